//! The connection to a plugin, against plugins of our own that are told what to do wrong.

mod faults;
mod handshake;
mod listener;
mod notices;
mod synchronize;
mod updates;
mod world;
