//! Doors to what reads the files of strangers, for the package `runtime/images/fuzz` and for nobody else.

use std::path::Path;

use crate::credentials::docker_config;
use crate::hosts::file;

/// Reads a `hosts.toml` of this registry; what is wrong with it, if something is.
pub fn hosts_toml(text: &str, registry: &str) -> Result<usize, String> {
    let endpoints = file::parse(text, Path::new("/certs.d/x"), registry);
    endpoints.map(|endpoints| endpoints.len()).map_err(|error| error.to_string())
}

/// Reads a `config.json`, and looks a repository up in it. Answers how what it found is shown.
pub fn docker_config(text: &[u8], host: &str, path: &str) -> Result<String, String> {
    let config = docker_config::parse(text).map_err(|error| error.to_string())?;
    let (helper, auth) = (config.helper(host), config.auth(host, path)?);
    Ok(format!("{helper:?} {auth:?}"))
}
