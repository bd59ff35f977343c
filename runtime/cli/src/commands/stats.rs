//! `stats`: what containers use. CPU time is a sum, so its share needs two measurements.

use std::collections::HashMap;
use std::process::ExitCode;
use std::time::Duration;

use mainstay_admin::Client;
use mainstay_messages::ContainerId;
use mainstay_messages::admin::{ContainerStats, Reference};
use mainstay_messages::supervisor::Stats;

use crate::arguments::{Format, StatsArguments};
use crate::connection::Context;
use crate::failure::{Failure, Result};
use crate::output;
use crate::table::{Align, Table};
use crate::view::{self, StatsView};
use crate::words::{bytes, cpu_time, per_cent};

/// Time between the two measurements of one table, in milliseconds.
const SAMPLE_INTERVAL_MS: u64 = 500;
/// Time between two tables, in milliseconds.
const FOLLOW_INTERVAL_MS: u64 = 1_000;
/// Clears the screen and goes to its beginning.
const CLEAR_SCREEN: &str = "\u{1b}[H\u{1b}[2J";

/// `mainstay stats`
pub(super) async fn stats(context: &Context, arguments: StatsArguments) -> Result<ExitCode> {
    let client = context.daemon().await?;
    if context.format() == Format::Json {
        return as_json(&client, &arguments).await;
    }
    let mut before = measure(&client, &arguments.containers).await?;
    let mut interval_ms = SAMPLE_INTERVAL_MS;
    loop {
        tokio::time::sleep(Duration::from_millis(interval_ms)).await;
        let now = measure(&client, &arguments.containers).await?;
        let shown = table(&before, &now);
        if !arguments.follow {
            output::print(&shown).map_err(Failure::Output)?;
            return Ok(ExitCode::SUCCESS);
        }
        output::print(&format!("{CLEAR_SCREEN}{shown}")).map_err(Failure::Output)?;
        before = now;
        interval_ms = FOLLOW_INTERVAL_MS;
    }
}

/// One document; or, with `--follow`, one a line and container.
async fn as_json(client: &Client, arguments: &StatsArguments) -> Result<ExitCode> {
    if !arguments.follow {
        let measured = measure(client, &arguments.containers).await?;
        let views: Vec<_> = measured.iter().map(StatsView::from).collect();
        return super::print(Format::Json, String::new, &views);
    }
    loop {
        let measured = measure(client, &arguments.containers).await?;
        let lines: String = measured.iter().map(|one| view::line(&StatsView::from(one))).collect();
        output::print(&lines).map_err(Failure::Output)?;
        tokio::time::sleep(Duration::from_millis(FOLLOW_INTERVAL_MS)).await;
    }
}

async fn measure(client: &Client, containers: &[Reference]) -> Result<Vec<ContainerStats>> {
    if containers.is_empty() {
        return Ok(client.stats(None).await?);
    }
    let each = containers.iter().map(|container| client.stats(Some(container.clone())));
    Ok(futures::future::try_join_all(each).await?.into_iter().flatten().collect())
}

fn table(before: &[ContainerStats], now: &[ContainerStats]) -> String {
    let before: HashMap<&ContainerId, &Stats> =
        before.iter().filter_map(|one| Some((&one.container, one.stats.as_ref().ok()?))).collect();
    let mut table = Table::new([
        ("CONTAINER ID", Align::Left),
        ("NAME", Align::Left),
        ("CPU", Align::Right),
        ("CPU TIME", Align::Right),
        ("MEMORY", Align::Right),
        ("LIMIT", Align::Right),
        ("TASKS", Align::Right),
        ("", Align::Left),
    ]);
    let unknown = || "-".to_owned();
    for one in now {
        let id = one.container.short().to_owned();
        let stats = match &one.stats {
            Ok(stats) => stats,
            Err(error) => {
                let [cpu, time, memory, limit, tasks] = std::array::from_fn(|_| unknown());
                table.row([id, one.name.clone(), cpu, time, memory, limit, tasks, error.to_string()]);
                continue;
            }
        };
        table.row([
            id,
            one.name.clone(),
            before.get(&one.container).and_then(|before| cpu_share(before, stats)).unwrap_or_else(unknown),
            stats.cpu_usage_ns.map_or_else(unknown, cpu_time),
            stats.memory_working_set_bytes.or(stats.memory_usage_bytes).map_or_else(unknown, bytes),
            stats.memory_limit_bytes.map_or_else(unknown, bytes),
            stats.pids.map_or_else(unknown, |pids| pids.to_string()),
            notes(stats),
        ]);
    }
    table.to_string()
}

fn cpu_share(before: &Stats, now: &Stats) -> Option<String> {
    let used = now.cpu_usage_ns?.saturating_sub(before.cpu_usage_ns?);
    Some(per_cent(used, now.at.nanos_since(before.at)))
}

/// What should not be, and is.
fn notes(stats: &Stats) -> String {
    let oom = stats.oom_kills.filter(|kills| *kills > 0).map(|kills| format!("killed for memory: {kills}"));
    let lost = (stats.log_bytes_lost > 0).then(|| format!("log lost: {}", bytes(stats.log_bytes_lost)));
    oom.into_iter().chain(lost).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use mainstay_messages::{Error, Timestamp};

    use super::*;

    fn measured(name: &str, stats: Result<Stats, Error>) -> ContainerStats {
        ContainerStats { container: ContainerId::from_random([1; 16]), name: name.to_owned(), stats }
    }

    #[test]
    fn a_share_is_what_was_used_between_two_measurements() {
        let at = |at, cpu| Stats {
            at: Timestamp(at),
            cpu_usage_ns: Some(cpu),
            memory_usage_bytes: Some(64 << 20),
            pids: Some(3),
            oom_kills: Some(1),
            ..Stats::default()
        };
        let (before, now) =
            (measured("web", Ok(at(0, 0))), measured("web", Ok(at(500_000_000, 750_000_000))));
        let expected = "\
CONTAINER ID   NAME       CPU   CPU TIME   MEMORY   LIMIT   TASKS
010101010101   web    150.0 %     750 ms   64 MiB       -       3   killed for memory: 1
";
        assert_eq!(table(&[before], &[now]), expected);
    }

    #[test]
    fn what_could_not_be_measured_says_why() {
        let gone = measured("web", Err(Error::unavailable("the shim", "it is gone")));
        assert!(table(&[], &[gone]).contains("the shim is not available: it is gone"));
    }
}
