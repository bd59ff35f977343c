//! `metrics`: what the daemon counts, also where it serves no scraper.

use std::collections::BTreeMap;
use std::process::ExitCode;

use mainstay::exposition::Scrape;
use mainstay_messages::Error;
use mainstay_messages::admin::MetricsFormat;
use serde::Serialize;

use crate::arguments::MetricsArguments;
use crate::connection::Context;
use crate::failure::Result;

/// A series, as programs see it.
#[derive(Debug, Serialize)]
struct SeriesView {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

/// `mainstay metrics`
pub(super) async fn metrics(context: &Context, arguments: &MetricsArguments) -> Result<ExitCode> {
    let (asked, format) = if arguments.openmetrics {
        (MetricsFormat::OpenMetrics, mainstay::MetricsFormat::OpenMetrics)
    } else {
        (MetricsFormat::Prometheus, mainstay::MetricsFormat::Prometheus)
    };
    let text = context.daemon().await?.metrics(asked).await?;
    let scrape = Scrape::parse(&text, format).map_err(|error| Error::internal("the metrics", error))?;
    let series: Vec<_> = scrape.families.into_iter().flat_map(|family| family.samples).collect();
    let series =
        series.into_iter().map(|it| SeriesView { name: it.name, labels: it.labels, value: it.value });
    super::print(context.format(), || text, &series.collect::<Vec<_>>())
}
