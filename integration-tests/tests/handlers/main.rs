//! Other people's runtimes and shims, on real processes.

mod fault_shim;
