//! The page, the dashboard and the alerts say nothing of metrics that there are not, and the page forgets none.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use mainstay_metrics::{Metrics, Source, State};
use serde_json::Value;

#[derive(Debug)]
struct Nothing;

impl Source for Nothing {
    fn state(&self) -> State {
        State::default()
    }
}

fn metrics() -> Metrics {
    Metrics::new("1", Arc::new(Nothing))
}

fn file(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The names that an expression looks at, each with the labels that stand in its braces.
fn used(expression: &str) -> Vec<(String, Vec<String>)> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let starts =
        expression.match_indices("mainstay_").filter(|(at, _)| !expression[..*at].ends_with(is_name));
    let read = |(at, _): (usize, &str)| {
        let rest = &expression[at..];
        let name: String = rest.chars().take_while(|c| is_name(*c)).collect();
        let braces = rest[name.len()..].strip_prefix('{').and_then(|rest| rest.split('}').next());
        let labels = braces.into_iter().flat_map(|inside| inside.split(','));
        let label = |pair: &str| pair.trim().chars().take_while(|c| is_name(*c)).collect::<String>();
        (name, labels.map(label).collect())
    };
    starts.map(read).collect()
}

/// All `by (…)` of an expression.
fn grouped(expression: &str) -> BTreeSet<String> {
    let lists = expression.split("by (").skip(1).filter_map(|rest| rest.split(')').next());
    lists.flat_map(|list| list.split(',')).map(|label| label.trim().to_owned()).collect()
}

fn check(expression: &str, place: &str) {
    let metrics = metrics();
    // Those that the scraper puts there.
    let mut known: BTreeSet<&str> = ["job", "instance"].into();
    let all = used(expression);
    assert!(!all.is_empty(), "{place}: {expression} looks at nothing of ours");
    for (name, labels) in &all {
        let entry = metrics.catalogue().entry_of(name);
        let entry = entry.unwrap_or_else(|| panic!("{place}: there is no metric {name}"));
        known.extend(entry.labels);
        if name.ends_with("_bucket") {
            known.insert("le");
        }
        for label in labels {
            assert!(known.contains(label.as_str()), "{place}: {name} has no label {label}");
        }
    }
    for label in grouped(expression) {
        assert!(known.contains(label.as_str()), "{place}: {expression} has no label {label}");
    }
}

#[test]
fn the_page_has_the_table_of_the_code() {
    let page = file("METRICS.md");
    let table = metrics().catalogue().to_string();
    assert!(page.contains(&table), "the table in METRICS.md is to be:\n{table}");
    for (name, _) in used(&page) {
        assert!(metrics().catalogue().entry_of(&name).is_some(), "METRICS.md: there is no metric {name}");
    }
}

#[test]
fn the_dashboard_looks_at_metrics_that_there_are() {
    let dashboard: Value = serde_json::from_str(&file("grafana/mainstay.json")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let (mut ids, mut looked) = (BTreeSet::new(), BTreeSet::new());
    for panel in panels {
        let title = panel["title"].as_str().expect("a title");
        assert!(ids.insert(panel["id"].as_u64().expect("an id")), "{title}: its id is taken");
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = target["expr"].as_str().expect("an expression");
            check(expression, title);
            looked.extend(used(expression).into_iter().map(|(name, _)| name));
        }
    }
    // What an operator is to see is on it.
    for name in ["mainstay_leaked_shims", "mainstay_audit_findings", "mainstay_saga_undos_pending"] {
        assert!(looked.contains(name), "{name} is not on the dashboard");
    }
}

#[test]
fn every_alert_looks_at_metrics_that_there_are_and_has_a_runbook() {
    let rules = file("alerts/mainstay.yaml");
    let alerts: Vec<&str> = rules.split("- alert: ").skip(1).collect();
    assert!(alerts.len() > 10, "{}", alerts.len());
    let mut names = BTreeSet::new();
    for alert in alerts {
        let name = alert.lines().next().expect("a name");
        assert!(name.starts_with("Mainstay") && names.insert(name), "{name}");
        let value = |key: &str| {
            let found = alert.lines().find_map(|line| line.trim().strip_prefix(key));
            found.unwrap_or_else(|| panic!("{name}: it has no {key}")).trim().trim_matches('"')
        };
        check(value("expr:"), name);
        assert!(["warning", "critical"].contains(&value("severity:")), "{name}");
        let (summary, runbook) = (value("summary:"), value("runbook:"));
        assert!(summary.contains("{{ $labels.instance }}"), "{name}: on which node?");
        assert!(runbook.len() > 40 && runbook.ends_with('.'), "{name}: {runbook:?} is no sentence");
        check_mentions(summary, name);
        check_mentions(runbook, name);
    }
}

fn check_mentions(text: &str, place: &str) {
    for (name, _) in used(text) {
        assert!(metrics().catalogue().entry_of(&name).is_some(), "{place}: there is no metric {name}");
    }
}

/// The checks themselves: a name that is wrong by a letter is seen.
#[test]
fn what_an_expression_looks_at_is_found() {
    let expression = "sum by (job, le) (rate(mainstay_a_bucket{x=\"1\", y=~\"$z\"}[5m])) / mainstay_b";
    let labels = vec!["x".to_owned(), "y".to_owned()];
    assert_eq!(
        used(expression),
        [("mainstay_a_bucket".to_owned(), labels), ("mainstay_b".to_owned(), vec![])]
    );
    assert_eq!(grouped(expression), ["job".to_owned(), "le".to_owned()].into());
    assert!(std::panic::catch_unwind(|| check(expression, "here")).is_err());
}
