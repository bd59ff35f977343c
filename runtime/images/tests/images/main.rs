//! The images of a node on real file systems, through the public interface.

mod collecting;
mod damage;
mod mounts;
mod sharing;
mod transfer;
mod world;
