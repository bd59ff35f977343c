//! The deadline of a caller: what it is told when it is over.
//!
//! The library answers `CANCELLED` then, which says that the caller left. kubelet looks for `DEADLINE_EXCEEDED`, and where its own clock is slower than ours by a
//! hair, our answer is the one that counts. What was asked for goes on or not as [`crate::service`] has it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tonic::Status;
use tonic::codegen::http::{HeaderMap, Request, Response};
use tower::Service;

/// The header of the time that a caller has.
const TIMEOUT_HEADER: &str = "grpc-timeout";
/// The most digits of it (gRPC over HTTP/2, "Timeout").
const TIMEOUT_DIGITS_MAX: usize = 8;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Deadline<S>(pub(super) S);

impl<S, Q, A> Service<Request<Q>> for Deadline<S>
where
    S: Service<Request<Q>, Response = Response<A>>,
    S::Future: Send + 'static,
    A: Default,
{
    type Response = Response<A>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<A>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let time = time(request.headers());
        let answer = self.0.call(request);
        let Some(time) = time else { return Box::pin(answer) };
        // From now on, and not from the first poll: the library's own clock starts after this one, and so is never ahead of it.
        let over = tokio::time::sleep(time);
        Box::pin(async move {
            tokio::select! {
                biased;
                answer = answer => answer,
                () = over => {
                    let text = format!("not done within {} ms, the deadline of the caller", time.as_millis());
                    Ok(Status::deadline_exceeded(text).into_http())
                }
            }
        })
    }
}

fn time(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(TIMEOUT_HEADER)?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.len() > TIMEOUT_DIGITS_MAX || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3_600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("2S", Some(Duration::from_secs(2)))]
    #[case("100m", Some(Duration::from_millis(100)))]
    #[case("99999999H", Some(Duration::from_secs(99_999_999 * 3_600)))]
    #[case("7n", Some(Duration::from_nanos(7)))]
    #[case("123456789S", None)]
    #[case("-1S", None)]
    #[case("S", None)]
    #[case("2", None)]
    #[case("", None)]
    fn times(#[case] text: &str, #[case] expected: Option<Duration>) {
        let mut headers = HeaderMap::new();
        headers.insert(TIMEOUT_HEADER, text.parse().expect("a value"));
        assert_eq!(time(&headers), expected);
    }

    #[tokio::test]
    async fn a_caller_whose_time_is_over_is_told_so() {
        let nothing =
            tower::service_fn(|_: Request<()>| std::future::pending::<Result<Response<()>, Infallible>>());
        let mut request = Request::new(());
        request.headers_mut().insert(TIMEOUT_HEADER, "1m".parse().expect("a value"));
        let Ok(answer) = Deadline(nothing).call(request).await;
        assert_eq!(answer.headers()["grpc-status"], "4", "DEADLINE_EXCEEDED");
    }
}
