//! Who asks, at a registry, in all forms that callers have for it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use mainstay::{Credentials, ImageName, ImageReference};
use mainstay_cri_api::AuthConfig;

use crate::failure::{Failure, Result};

/// Hosts that all are the same registry.
const DOCKER_HOSTS: [&str; 4] =
    ["docker.io", "index.docker.io", "registry-1.docker.io", "registry.hub.docker.com"];

/// The credentials of a pull; none where there are none, or only those for another registry.
pub(super) fn credentials(auth: &AuthConfig, image: &ImageName) -> Result<Option<Credentials>> {
    if !auth.server_address.is_empty() && !is_of(&auth.server_address, image) {
        return Ok(None);
    }
    Ok(if !auth.username.is_empty() {
        let (user, password) = (auth.username.clone(), auth.password.clone());
        Some(Credentials::Password { user, password })
    } else if !auth.identity_token.is_empty() {
        Some(Credentials::IdentityToken(auth.identity_token.clone()))
    } else if !auth.registry_token.is_empty() {
        Some(Credentials::RegistryToken(auth.registry_token.clone()))
    } else if !auth.auth.is_empty() {
        Some(decoded(&auth.auth)?)
    } else {
        None
    })
}

/// What Docker's file of credentials has as `auth`: user and password with a colon between them, in base64.
fn decoded(auth: &str) -> Result<Credentials> {
    let wrong = || {
        let value = format!("{} bytes that are not shown", auth.len());
        Failure::invalid("auth.auth", value, "USER:PASSWORD in base64")
    };
    let bytes = STANDARD.decode(auth.trim()).map_err(|_| wrong())?;
    let text = String::from_utf8(bytes).map_err(|_| wrong())?;
    // Some programs fill it up with zeros.
    let (user, password) = text.trim_end_matches('\0').split_once(':').ok_or_else(wrong)?;
    Ok(Credentials::Password { user: user.to_owned(), password: password.to_owned() })
}

/// Whether a server, as `https://index.docker.io/v1/` or `registry.example:5000`, is the one that the image is of.
fn is_of(server: &str, image: &ImageName) -> bool {
    let Ok(image) = image.as_str().parse::<ImageReference>() else { return false };
    let server = server.split_once("://").map_or(server, |(_, rest)| rest);
    let server = server.split('/').next().unwrap_or_default();
    server.eq_ignore_ascii_case(image.host())
        || [server, image.host()].iter().all(|host| DOCKER_HOSTS.contains(host))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn of(auth: AuthConfig) -> Result<Option<Credentials>> {
        credentials(&auth, &"registry.example:5000/a/b:c".parse().expect("a name"))
    }

    fn password(user: &str, password: &str) -> Option<Credentials> {
        Some(Credentials::Password { user: user.into(), password: password.into() })
    }

    #[test]
    fn all_forms_are_taken() {
        let none = AuthConfig::default;
        assert_eq!(of(none()).expect("good"), None);
        let auth = AuthConfig { username: "u".into(), password: "p".into(), ..none() };
        assert_eq!(of(auth).expect("good"), password("u", "p"));
        let auth = AuthConfig { auth: STANDARD.encode("u:p:q\0\0"), ..none() };
        assert_eq!(of(auth).expect("good"), password("u", "p:q"));
        let auth = AuthConfig { identity_token: "t".into(), ..none() };
        assert_eq!(of(auth).expect("good"), Some(Credentials::IdentityToken("t".into())));
        let auth = AuthConfig { registry_token: "t".into(), ..none() };
        assert_eq!(of(auth).expect("good"), Some(Credentials::RegistryToken("t".into())));
    }

    /// What is wrong is said, and what it is is not.
    #[rstest]
    #[case("not base64!")]
    #[case("bm90aGluZw==")]
    fn what_is_no_auth_is_refused(#[case] auth: &str) {
        let error =
            of(AuthConfig { auth: auth.into(), ..AuthConfig::default() }).expect_err("wrong").to_string();
        assert!(error.contains("auth.auth") && !error.contains(auth), "{error}");
    }

    #[rstest]
    #[case("registry.example:5000", true)]
    #[case("https://registry.example:5000/v2/", true)]
    #[case("registry.example", false)]
    #[case("https://other.example", false)]
    fn credentials_are_for_their_registry_alone(#[case] server: &str, #[case] taken: bool) {
        let auth =
            AuthConfig { username: "u".into(), server_address: server.into(), ..AuthConfig::default() };
        assert_eq!(of(auth).expect("good").is_some(), taken);
    }

    #[test]
    fn all_names_of_the_default_registry_are_one() {
        let auth = AuthConfig {
            username: "u".into(),
            server_address: "https://index.docker.io/v1/".into(),
            ..AuthConfig::default()
        };
        let found = credentials(&auth, &"busybox".parse().expect("a name")).expect("good");
        assert!(found.is_some());
    }
}
