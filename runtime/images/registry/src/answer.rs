//! What a status means, and what the registry says of it.

use std::time::SystemTime;

use reqwest::header::RETRY_AFTER;
use reqwest::{Response, StatusCode};
use serde::Deserialize;

use crate::error::{Problem, Said};
use crate::retry::retry_after;

/// The most bytes of an error's body that are read.
const ERROR_BODY_MAX: usize = 16 << 10;

/// The body of an error (OCI distribution specification, "Error Codes"); token servers have one of their own.
#[derive(Deserialize)]
struct Body {
    #[serde(default)]
    errors: Vec<Entry>,
    #[serde(default)]
    details: String,
    #[serde(default)]
    error: String,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
}

/// Turns an answer that is no success into a problem. The body is read only as far as it is there in time.
pub(crate) async fn problem(
    response: Response,
    with_credentials: bool,
    timeout: std::time::Duration,
) -> Problem {
    let status = response.status();
    let asked = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    let asked = asked.and_then(|value| retry_after(value, SystemTime::now()));
    let body = tokio::time::timeout(timeout, read(response)).await.unwrap_or_default();
    let said = said(&body);
    match status {
        StatusCode::UNAUTHORIZED => Problem::Unauthorized { with_credentials, said },
        StatusCode::FORBIDDEN => Problem::Forbidden { said },
        StatusCode::NOT_FOUND => Problem::NotFound { said },
        StatusCode::TOO_MANY_REQUESTS => Problem::TooManyRequests { retry_after: asked, said },
        other => Problem::Status { status: other.as_u16(), retry_after: asked, said },
    }
}

async fn read(mut response: Response) -> Vec<u8> {
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        let room = ERROR_BODY_MAX - body.len();
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if body.len() == ERROR_BODY_MAX {
            break;
        }
    }
    body
}

/// The first error of a body; nothing of a body that is none of the known ones, such as a page for people.
fn said(body: &[u8]) -> Said {
    match serde_json::from_slice::<Body>(body) {
        Ok(body) => match body.errors.first() {
            Some(entry) => Said::new(&entry.code, &entry.message),
            None => Said::new(&body.error, &body.details),
        },
        Err(_) => Said::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(r#"{"errors":[{"code":"DENIED","message":"no","detail":[1]}]}"#, ": DENIED: no")]
    #[case(r#"{"errors":[{"code":"DENIED"}]}"#, ": DENIED")]
    #[case(r#"{"details":"incorrect username or password"}"#, ": incorrect username or password")]
    #[case(r#"{"errors":[]}"#, "")]
    #[case("<html>", "")]
    #[case("", "")]
    fn reads(#[case] body: &str, #[case] expected: &str) {
        assert_eq!(said(body.as_bytes()).to_string(), expected);
    }
}
