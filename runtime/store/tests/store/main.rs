//! The store through its public interface, on real files.

mod commits;
mod disk_full;
mod model;
mod opening;
mod samples;
