//! What must be true when the storm is over.

use std::path::Path;

use mainstay::exposition::Scrape;
use mainstay::{MetricsFormat, Repair, Runtime};
use mainstay_integration_tests::wait;

use super::fakes;

/// The step that a network that cannot be taken back fails in, and those that wait for it.
const NETWORK: &str = "network";

/// Nothing is left; what was undone was undone at once, unless a CNI plugin did not take back what it had given; and that was
/// undone in the end.
pub async fn check(runtime: &Runtime, world: &Path) {
    assert!(runtime.sandboxes().is_empty());
    wait::until_async("the audit is clean", async || {
        wait::finish("an audit", runtime.audit(Repair::No)).await.expect("it looks").is_empty()
    })
    .await;
    let scrape = Scrape::parse(&runtime.metrics(MetricsFormat::Prometheus), MetricsFormat::Prometheus);
    let scrape = scrape.expect("readable");
    let sum = |name: &str, wanted: &[(&str, &str)]| -> f64 {
        let samples = scrape.families.iter().flat_map(|family| &family.samples);
        let fits = samples.filter(|sample| {
            sample.name == name
                && wanted.iter().all(|(label, value)| sample.labels.get(*label).is_some_and(|is| is == value))
        });
        fits.map(|sample| sample.value).sum()
    };
    let compensations = |outcome| sum("mainstay_saga_compensations_total", &[("outcome", outcome)]);
    let teardowns = |outcome| sum("mainstay_saga_teardowns_total", &[("outcome", outcome)]);
    let undos = |outcome: &str| sum("mainstay_saga_undos_total", &[("outcome", outcome)]);
    let of_network = sum("mainstay_saga_undos_total", &[("step", NETWORK), ("outcome", "failed")]);
    let pending = sum("mainstay_saga_undos_pending", &[]);
    let networks = fakes::check(world);
    println!(
        "compensations: {} complete at once, {} by trying again; teardowns: {} and {}; undone steps: {}, failed: {} (of which {of_network} \
         of networks of CNI plugins); {networks} pods had a network of theirs; pending in the end: {pending}",
        compensations("complete"),
        compensations("incomplete"),
        teardowns("complete"),
        teardowns("incomplete"),
        undos("done"),
        undos("failed"),
    );
    for outcome in ["answered", "refused", "missed"] {
        println!(
            "calls of plugins that were {outcome}: {}",
            sum("mainstay_plugin_calls_total", &[("outcome", outcome)])
        );
    }
    assert_eq!(pending, 0.0, "all that failed is undone");
    assert_eq!(undos("failed"), of_network, "nothing but the network of a CNI plugin was not undone at once");
    assert!(compensations("incomplete") <= of_network);
}
