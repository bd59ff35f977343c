//! What is answered to a request, by its method, path and `Accept`.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};

use crate::{Format, Metrics};

/// Where the metrics are.
pub const PATH: &str = "/metrics";

impl Format {
    /// The media type of it.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// The one that a scraper wants, by its `Accept`: OpenMetrics where it is preferred to plain text.
    fn accepted(accept: &str) -> Self {
        let weight = |kinds: &[&str]| {
            let ranges = accept.split(',').map(|range| range.trim().split(';').map(str::trim));
            ranges
                .filter_map(|mut parts| {
                    let kind = parts.next()?;
                    let quality = parts.find_map(|part| part.strip_prefix("q=")?.parse::<f32>().ok());
                    kinds.contains(&kind).then_some(quality.unwrap_or(1.0))
                })
                .fold(0.0, f32::max)
        };
        let open = weight(&["application/openmetrics-text"]);
        if open > 0.0 && open >= weight(&["text/plain", "text/*"]) {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }
}

/// The answer to a request. Its body, if it has one, is not read.
pub(super) fn answer<B>(request: &Request<B>, metrics: &Metrics) -> Response<Full<Bytes>> {
    let of_method = matches!(*request.method(), Method::GET | Method::HEAD);
    match (request.uri().path(), of_method) {
        (PATH, true) => {
            let accept = request.headers().get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
            let format = Format::accepted(&accept.collect::<Vec<_>>().join(","));
            response(StatusCode::OK, format.content_type(), metrics.text(format))
        }
        (PATH, false) => {
            let mut refusal = sentence(StatusCode::METHOD_NOT_ALLOWED, "metrics are read with GET");
            refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            refusal
        }
        _ => sentence(StatusCode::NOT_FOUND, "there is nothing here but /metrics"),
    }
}

fn sentence(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    response(status, "text/plain; charset=utf-8", format!("{text}\n"))
}

fn response(status: StatusCode, kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("", Format::Prometheus)]
    #[case("*/*", Format::Prometheus)]
    #[case("text/plain", Format::Prometheus)]
    #[case("application/openmetrics-text", Format::OpenMetrics)]
    // What Prometheus 2 and 3 send.
    #[case(
        "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
        Format::OpenMetrics
    )]
    #[case("text/plain;version=0.0.4;q=0.9, application/openmetrics-text;q=0.1", Format::Prometheus)]
    #[case("application/openmetrics-text;q=0", Format::Prometheus)]
    #[case(";;,q=,,=;q=x", Format::Prometheus)]
    fn the_format_is_the_preferred_one(#[case] accept: &str, #[case] format: Format) {
        assert_eq!(Format::accepted(accept), format);
    }
}
