//! Reading a whole answer of bounded length.

use std::time::Duration;

use reqwest::Response;

use crate::error::Problem;
use crate::transport::innermost;

/// Reads a body to its end. `timeout` is the longest time without a byte.
pub(crate) async fn read(mut response: Response, max: usize, timeout: Duration) -> Result<Vec<u8>, Problem> {
    let expected = response.content_length();
    if expected.is_some_and(|length| length > max as u64) {
        return Err(Problem::TooLong { max });
    }
    let mut body = Vec::with_capacity(expected.unwrap_or_default() as usize);
    loop {
        match tokio::time::timeout(timeout, response.chunk()).await {
            Err(_) => return Err(Problem::TimedOut { what: "rest of the answer", timeout }),
            Ok(Err(error)) => {
                let reason = innermost(&error);
                return Err(Problem::Interrupted { got: body.len() as u64, expected, reason });
            }
            Ok(Ok(None)) => return Ok(body),
            Ok(Ok(Some(chunk))) if body.len() + chunk.len() > max => return Err(Problem::TooLong { max }),
            Ok(Ok(Some(chunk))) => body.extend_from_slice(&chunk),
        }
    }
}
