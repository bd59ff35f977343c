//! The actors on fakes, in paused time: what a caller sees.

mod directory;
mod exits;
mod lifecycle;
mod pulls;
mod races;
mod recovery;
mod restarts;
mod stop;
mod store;
mod world;
