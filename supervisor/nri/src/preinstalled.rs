//! Pre-installed plugins.
