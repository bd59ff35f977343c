//! What pods and containers use, over the interface.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use mainstay::{CpuTime, Network};
use mainstay_cri_api::{
    ContainerStats, ContainerStatsFilter, ContainerStatsRequest, ListContainerStatsRequest,
    ListMetricDescriptorsRequest, ListPodSandboxMetricsRequest, ListPodSandboxStatsRequest, PodSandboxStats,
    PodSandboxStatsFilter, PodSandboxStatsRequest, StreamContainerStatsRequest,
    StreamPodSandboxMetricsRequest, StreamPodSandboxStatsRequest,
};
use mainstay_integration_tests::net::Internet;
use mainstay_integration_tests::wait;
use tonic::Code;

use crate::rig::Rig;
use crate::{assert_refused, rig};

/// The metrics that kubelet's own cAdvisor has, and that every machine can tell of a container with limits: critest asks for them.
const EXPECTED: [&str; 40] = [
    "container_cpu_cfs_periods_total",
    "container_cpu_cfs_throttled_periods_total",
    "container_cpu_cfs_throttled_seconds_total",
    "container_cpu_system_seconds_total",
    "container_cpu_usage_seconds_total",
    "container_cpu_user_seconds_total",
    "container_file_descriptors",
    "container_fs_inodes_free",
    "container_fs_inodes_total",
    "container_fs_limit_bytes",
    "container_fs_usage_bytes",
    "container_last_seen",
    "container_memory_cache",
    "container_memory_failcnt",
    "container_memory_failures_total",
    "container_memory_kernel_usage",
    "container_memory_mapped_file",
    "container_memory_max_usage_bytes",
    "container_memory_rss",
    "container_memory_swap",
    "container_memory_usage_bytes",
    "container_memory_working_set_bytes",
    "container_network_receive_bytes_total",
    "container_network_receive_errors_total",
    "container_network_receive_packets_dropped_total",
    "container_network_receive_packets_total",
    "container_network_transmit_bytes_total",
    "container_network_transmit_errors_total",
    "container_network_transmit_packets_dropped_total",
    "container_network_transmit_packets_total",
    "container_oom_events_total",
    "container_processes",
    "container_sockets",
    "container_spec_cpu_period",
    "container_spec_cpu_quota",
    "container_spec_cpu_shares",
    "container_spec_memory_limit_bytes",
    "container_spec_memory_swap_limit_bytes",
    "container_threads",
    "container_threads_max",
];

async fn of_container(rig: &Rig, id: &str) -> ContainerStats {
    let request = ContainerStatsRequest { container_id: id.to_owned() };
    let answer = rig.runtime().container_stats(request).await.expect("answered").into_inner();
    answer.stats.expect("stats")
}

async fn of_pod(rig: &Rig, id: &str) -> PodSandboxStats {
    let request = PodSandboxStatsRequest { pod_sandbox_id: id.to_owned() };
    let answer = rig.runtime().pod_sandbox_stats(request).await.expect("answered").into_inner();
    answer.stats.expect("stats")
}

async fn listed(rig: &Rig, filter: ContainerStatsFilter) -> Vec<String> {
    let request = ListContainerStatsRequest { filter: Some(filter) };
    let answer = rig.runtime().list_container_stats(request).await.expect("answered").into_inner();
    let ids = answer.stats.into_iter().map(|stats| stats.attributes.expect("attributes").id);
    let mut ids: Vec<_> = ids.collect();
    ids.sort();
    ids
}

#[tokio::test]
async fn a_container_and_its_pod_tell_what_they_use() {
    let _internet = Internet::enter();
    let rig = rig!(|config| {
        config.network.default = Network::Builtin;
        config.usage.disk_interval_ms = 100;
    });
    let pod = rig.made_pod("p", Network::Builtin).await;
    let script = "dd if=/dev/zero of=/written bs=1024 count=2048; while :; do :; done";
    let limit = 256 << 20;
    let id = rig.started_container(&pod, "c", script, |spec| spec.resources.memory_bytes = Some(limit)).await;
    // A rate needs two measurements, and files are counted in the background.
    wait::until_async("it is measured twice, and its files are counted", async || {
        let stats = of_container(&rig, &id).await;
        let rate = stats.cpu.and_then(|cpu| cpu.usage_nano_cores).map_or(0, |rate| rate.value);
        let disk = stats.writable_layer.and_then(|layer| layer.used_bytes).map_or(0, |bytes| bytes.value);
        rate > 0 && disk >= 2 << 20
    })
    .await;
    let stats = of_container(&rig, &id).await;
    let attributes = stats.attributes.expect("attributes");
    assert_eq!(attributes.metadata.map(|who| (who.name, who.attempt)), Some(("c".to_owned(), 3)));
    assert_eq!(attributes.labels, HashMap::from([("container".to_owned(), "c".to_owned())]));
    let cpu = stats.cpu.expect("CPU time");
    assert!(cpu.timestamp > 0 && cpu.usage_core_nano_seconds.expect("told").value > 0);
    let memory = stats.memory.expect("memory");
    let (used, free) =
        (memory.working_set_bytes.expect("told").value, memory.available_bytes.expect("told").value);
    assert_eq!(used + free, limit);
    assert!(memory.usage_bytes.expect("told").value >= used && memory.page_faults.expect("told").value > 0);
    let layer = stats.writable_layer.expect("a layer");
    assert!(layer.timestamp > 0 && layer.inodes_used.expect("told").value >= 1);
    assert!(std::path::Path::new(&layer.fs_id.expect("told").mountpoint).is_dir());

    let stats = of_pod(&rig, &pod).await;
    assert_eq!(stats.attributes.expect("attributes").metadata.expect("metadata").namespace, "tests");
    let linux = stats.linux.expect("of Linux");
    assert_eq!(linux.containers.len(), 1);
    assert!(linux.cpu.expect("CPU time").usage_core_nano_seconds.expect("told").value > 0);
    assert!(linux.process.expect("processes").process_count.expect("told").value >= 1);
    let interface = linux.network.expect("a network").default_interface.expect("an interface");
    assert_eq!(interface.name, "eth0");
    assert!(interface.rx_bytes.is_some() && interface.tx_errors.is_some());
    rig.finish().await;
}

#[tokio::test]
async fn those_that_are_asked_for_are_told_in_lists_and_streams() {
    let rig = rig!();
    let (one, other) = (rig.made_pod("one", Network::None).await, rig.made_pod("other", Network::None).await);
    let a = rig.started_container(&one, "a", "exec sleep 1000", |_| {}).await;
    let b = rig.started_container(&other, "b", "exec sleep 1000", |_| {}).await;
    let over = rig.started_container(&other, "over", "exit 0", |_| {}).await;
    rig.ended_container(&over).await;
    let mut all = vec![a.clone(), b.clone(), over.clone()];
    all.sort();
    assert_eq!(listed(&rig, ContainerStatsFilter::default()).await, all);
    let of_one = ContainerStatsFilter { pod_sandbox_id: one.clone(), ..Default::default() };
    assert_eq!(listed(&rig, of_one).await, [a.as_str()]);
    let label = HashMap::from([("container".to_owned(), "b".to_owned())]);
    let labelled = ContainerStatsFilter { label_selector: label.clone(), ..Default::default() };
    assert_eq!(listed(&rig, labelled.clone()).await, [b.as_str()]);
    assert!(listed(&rig, ContainerStatsFilter { id: a.clone(), ..labelled }).await.is_empty());

    let ended = of_container(&rig, &over).await;
    assert!(ended.attributes.is_some() && ended.cpu.is_none(), "it uses nothing any more: {ended:?}");
    let request = StreamContainerStatsRequest { filter: None };
    let mut parts = rig.runtime().stream_container_stats(request).await.expect("open").into_inner();
    let mut streamed = Vec::new();
    while let Some(part) = parts.message().await.expect("read") {
        streamed.extend(part.container_stats.into_iter().map(|stats| stats.attributes.expect("who").id));
    }
    streamed.sort();
    assert_eq!(streamed, all);

    let filter = PodSandboxStatsFilter {
        id: String::new(),
        label_selector: [("pod".to_owned(), "one".to_owned())].into(),
    };
    let request = ListPodSandboxStatsRequest { filter: Some(filter.clone()) };
    let found = rig.runtime().list_pod_sandbox_stats(request).await.expect("answered").into_inner().stats;
    let ids: Vec<_> = found.into_iter().map(|stats| stats.attributes.expect("who").id).collect();
    assert_eq!(ids, [one.as_str()]);
    let request = StreamPodSandboxStatsRequest { filter: Some(filter) };
    let mut parts = rig.runtime().stream_pod_sandbox_stats(request).await.expect("open").into_inner();
    assert_eq!(parts.message().await.expect("read").expect("one").pod_sandbox_stats.len(), 1);
    assert!(parts.message().await.expect("read").is_none());

    let request = ContainerStatsRequest { container_id: "nobody".to_owned() };
    assert_refused(rig.runtime().container_stats(request).await, Code::NotFound, &["nobody"]);
    let request = PodSandboxStatsRequest { pod_sandbox_id: "nobody".to_owned() };
    assert_refused(rig.runtime().pod_sandbox_stats(request).await, Code::NotFound, &["nobody"]);
    rig.finish().await;
}

/// containerd has no `container_threads` on cgroup v1.
#[tokio::test]
async fn the_metrics_of_cadvisor_are_told_with_their_labels() {
    let _internet = Internet::enter();
    let rig = rig!(|config| config.network.default = Network::Builtin);
    let pod = rig.made_pod("p", Network::Builtin).await;
    let id = rig
        .started_container(&pod, "c", "exec sleep 1000", |spec| {
            spec.resources.memory_bytes = Some(64 << 20);
            spec.resources.memory_swap_bytes = Some(64 << 20);
            spec.resources.cpu_shares = Some(1024);
            spec.resources.cpu_time = Some(CpuTime { quota_us: 20_000, period_us: 100_000 });
        })
        .await;
    let descriptors = rig.runtime().list_metric_descriptors(ListMetricDescriptorsRequest {}).await;
    let descriptors = descriptors.expect("answered").into_inner().descriptors;
    let labels: BTreeMap<_, _> = descriptors.iter().map(|d| (d.name.clone(), d.label_keys.clone())).collect();
    assert!(descriptors.iter().all(|descriptor| !descriptor.help.is_empty()));

    let metrics = rig.runtime().list_pod_sandbox_metrics(ListPodSandboxMetricsRequest {}).await;
    let metrics = metrics.expect("answered").into_inner().pod_metrics;
    assert_eq!(metrics.len(), 1);
    assert_eq!(metrics[0].pod_sandbox_id, pod);
    assert_eq!(metrics[0].container_metrics.len(), 1);
    assert_eq!(metrics[0].container_metrics[0].container_id, id);
    let own = &metrics[0].container_metrics[0].metrics;
    let all: Vec<_> = metrics[0].metrics.iter().chain(own).collect();
    for metric in &all {
        assert_eq!(metric.label_values.len(), labels[&metric.name].len(), "{}", metric.name);
    }
    let named: BTreeSet<_> = all.iter().map(|metric| metric.name.as_str()).collect();
    let missing: Vec<_> = EXPECTED.iter().filter(|name| !named.contains(**name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    let value = |name: &str| {
        own.iter().find(|metric| metric.name == name).and_then(|metric| metric.value).expect("a value").value
    };
    assert_eq!((value("container_threads"), value("container_processes")), (1, 1));
    assert_eq!(value("container_spec_memory_limit_bytes"), 64 << 20);
    assert_eq!(value("container_spec_cpu_quota"), 20_000);
    assert!(value("container_file_descriptors") >= 3);
    let who: HashMap<_, _> = labels["container_threads"]
        .iter()
        .zip(
            own.iter().find(|metric| metric.name == "container_threads").expect("there").label_values.clone(),
        )
        .collect();
    for (label, value) in [("container", "c"), ("pod", "p"), ("namespace", "tests"), ("name", id.as_str())] {
        assert_eq!(who[&label.to_owned()], value, "{label}");
    }
    // Sums over containers leave out what has no container.
    assert!(metrics[0].metrics.iter().all(|metric| metric.label_values[0].is_empty()));

    let mut parts = rig
        .runtime()
        .stream_pod_sandbox_metrics(StreamPodSandboxMetricsRequest {})
        .await
        .expect("open")
        .into_inner();
    assert_eq!(parts.message().await.expect("read").expect("one").pod_sandbox_metrics.len(), 1);
    assert!(parts.message().await.expect("read").is_none());
    rig.finish().await;
}
