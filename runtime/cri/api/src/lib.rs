//! The Container Runtime Interface of Kubernetes, `runtime.v1`, as of July 2026.
//!
//! Owns: its messages, both services ([`runtime_service_server`], [`image_service_server`]) and their clients
//! ([`runtime_service_client`], [`image_service_client`]). The names and numbers in `proto/` are those of the interface; build.rs
//! makes all the code of them.
//!
//! Never: knows what a runtime makes of a message.

use std::fmt;

// Written by build.rs from the files in `proto/`.
#[allow(missing_docs, clippy::all, rustdoc::all)]
mod generated {
    tonic::include_proto!("runtime.v1");
}

pub use generated::*;
pub use prost::Message;

/// What [`VersionResponse::runtime_api_version`] says.
pub const API_VERSION: &str = "v1";

impl fmt::Debug for AuthConfig {
    /// Who, and for which server; never the secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthConfig")
            .field("username", &self.username)
            .field("server_address", &self.server_address)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_printed() {
        let auth = AuthConfig {
            username: "who".into(),
            password: "secret".into(),
            auth: "secret".into(),
            identity_token: "secret".into(),
            registry_token: "secret".into(),
            ..AuthConfig::default()
        };
        let request = PullImageRequest { auth: Some(auth), ..PullImageRequest::default() };
        let said = format!("{request:?}");
        assert!(said.contains("who"), "{said}");
        assert!(!said.contains("secret"), "{said}");
    }
}
