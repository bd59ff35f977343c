//! The life of pods, and what is said of them.

use std::collections::HashMap;
use std::fs;

use mainstay_cri_api::{
    ContainerState, DnsConfig, ListContainersRequest, ListPodSandboxRequest, NamespaceMode, PodSandboxConfig,
    PodSandboxFilter, PodSandboxState, PodSandboxStateValue, PodSandboxStatusRequest,
    PodSandboxStatusResponse, RemovePodSandboxRequest, RunPodSandboxRequest, StopPodSandboxRequest,
    StreamPodSandboxesRequest,
};
use mainstay_integration_tests::wait;
use tonic::Code;

use crate::rig::Rig;
use crate::{assert_refused, busybox, rig};

async fn status(rig: &Rig, pod: &str, verbose: bool) -> PodSandboxStatusResponse {
    let request = PodSandboxStatusRequest { pod_sandbox_id: pod.to_owned(), verbose };
    rig.runtime().pod_sandbox_status(request).await.expect("it is there").into_inner()
}

async fn stop(rig: &Rig, pod: &str) {
    let request = StopPodSandboxRequest { pod_sandbox_id: pod.to_owned() };
    wait::finish("a pod stops", rig.runtime().stop_pod_sandbox(request)).await.expect("stopped");
}

async fn remove(rig: &Rig, pod: &str) {
    let request = RemovePodSandboxRequest { pod_sandbox_id: pod.to_owned() };
    wait::finish("a pod goes", rig.runtime().remove_pod_sandbox(request)).await.expect("removed");
}

async fn list(rig: &Rig, change: impl FnOnce(&mut PodSandboxFilter)) -> Vec<String> {
    let mut filter = PodSandboxFilter::default();
    change(&mut filter);
    let request = ListPodSandboxRequest { filter: Some(filter) };
    let answer = rig.runtime().list_pod_sandbox(request).await.expect("listed").into_inner();
    answer.items.into_iter().map(|pod| pod.id).collect()
}

fn in_state(state: PodSandboxState) -> Option<PodSandboxStateValue> {
    Some(PodSandboxStateValue { state: state.into() })
}

#[tokio::test]
async fn a_pod_is_told_of_as_it_was_asked_for_from_its_run_to_its_removal() {
    let rig = rig!();
    let mut config = busybox::pod(&rig, "web");
    config.annotations = HashMap::from([("example.com/any".to_owned(), "thing\n".to_owned())]);
    let id = rig.run_pod(&config).await;
    let PodSandboxStatusResponse { status: Some(shown), info, containers_statuses, timestamp } =
        status(&rig, &id, true).await
    else {
        panic!("no status");
    };
    assert_eq!(shown.metadata, config.metadata);
    assert_eq!((&shown.labels, &shown.annotations), (&config.labels, &config.annotations));
    assert_eq!(shown.state(), PodSandboxState::SandboxReady);
    assert!(shown.created_at > 0 && timestamp >= shown.created_at && containers_statuses.is_empty());
    let options = shown.linux.and_then(|linux| linux.namespaces).and_then(|namespaces| namespaces.options);
    let options = options.expect("given");
    assert_eq!((options.network(), options.pid()), (NamespaceMode::Node, NamespaceMode::Container));
    let info: serde_json::Value = serde_json::from_str(&info["info"]).expect("JSON");
    assert!(info["pid"].as_u64().is_some_and(|pid| pid > 1), "{info}");

    stop(&rig, &id).await;
    stop(&rig, &id).await;
    let shown = status(&rig, &id, false).await;
    assert_eq!(shown.status.expect("given").state(), PodSandboxState::SandboxNotready);
    assert!(shown.info.is_empty());
    remove(&rig, &id).await;
    remove(&rig, &id).await;
    let gone = PodSandboxStatusRequest { pod_sandbox_id: id.clone(), verbose: false };
    assert_refused(rig.runtime().pod_sandbox_status(gone).await, Code::NotFound, &[&id]);
    stop(&rig, "0000").await;
    remove(&rig, "0000").await;
    rig.finish().await;
}

#[tokio::test]
async fn a_list_has_what_its_filter_wants_and_nothing_of_others() {
    let rig = rig!();
    let (one, two) = (busybox::pod(&rig, "one"), busybox::pod(&rig, "two"));
    let (one, two) = (rig.run_pod(&one).await, rig.run_pod(&two).await);
    // One that was not asked for here is nobody's business here: kubelet would end it.
    let spec = mainstay::SandboxSpec::new("operators".parse().expect("a name"));
    let own = wait::finish("a pod runs", rig.admin().await.run_sandbox(spec)).await.expect("it runs");
    let mut all = vec![one.clone(), two.clone()];
    all.sort();
    assert_eq!(list(&rig, |_| {}).await, all);
    assert_eq!(list(&rig, |filter| filter.id = one.clone()).await, [one.as_str()]);
    let labels = HashMap::from([("pod".to_owned(), "two".to_owned())]);
    assert_eq!(list(&rig, |filter| filter.label_selector = labels).await, [two.as_str()]);
    stop(&rig, &two).await;
    assert_eq!(
        list(&rig, |filter| filter.state = in_state(PodSandboxState::SandboxReady)).await,
        [one.as_str()]
    );
    assert_eq!(
        list(&rig, |filter| filter.state = in_state(PodSandboxState::SandboxNotready)).await,
        [two.as_str()]
    );
    let mut stream = rig
        .runtime()
        .stream_pod_sandboxes(StreamPodSandboxesRequest { filter: None })
        .await
        .expect("opened")
        .into_inner();
    let mut streamed = Vec::new();
    while let Some(answer) = stream.message().await.expect("told") {
        streamed.extend(answer.pod_sandboxes.into_iter().map(|pod| pod.id));
    }
    assert_eq!(streamed, all);
    let request = PodSandboxStatusRequest { pod_sandbox_id: own.to_string(), verbose: false };
    assert_refused(rig.runtime().pod_sandbox_status(request).await, Code::NotFound, &[]);
    // Enough of an id is one.
    assert_eq!(status(&rig, &one[..16], false).await.status.expect("given").id, one);
    rig.finish().await;
}

/// cd#12438 and its like: kubelet's time is over while a pod is being made, and every retry finds that the name is reserved. Here a
/// retry joins the run, also when whoever asked first has left, and is answered with the same pod when it is made.
#[tokio::test]
async fn the_same_pod_again_is_the_same_pod() {
    let rig = rig!();
    let config = busybox::pod(&rig, "web");
    let request = RunPodSandboxRequest { config: Some(config.clone()), runtime_handler: String::new() };
    let (mut first, mut second, mut third) = (rig.runtime(), rig.runtime(), rig.runtime());
    {
        let left = first.run_pod_sandbox(request.clone());
        tokio::pin!(left);
        let begun = async { wait::until_async("the run has begun", async || knows(&rig, "web").await).await };
        tokio::select! {
            biased;
            answer = &mut left => drop(answer.expect("it runs")),
            () = begun => {}
        }
    }
    let (one, two) =
        tokio::join!(second.run_pod_sandbox(request.clone()), third.run_pod_sandbox(request.clone()));
    let id = one.expect("joined").into_inner().pod_sandbox_id;
    assert_eq!(two.expect("joined").into_inner().pod_sandbox_id, id);
    assert_eq!(rig.run_pod(&config).await, id);
    let other =
        PodSandboxConfig { hostname: "other".to_owned(), annotations: config.labels.clone(), ..config };
    let request = RunPodSandboxRequest { config: Some(other), runtime_handler: String::new() };
    assert_refused(rig.runtime().run_pod_sandbox(request).await, Code::AlreadyExists, &[&id]);
    rig.finish().await;
}

/// Whether the runtime has begun to make this pod.
async fn knows(rig: &Rig, name: &str) -> bool {
    let pods = rig.admin().await.list_sandboxes().await.expect("listed");
    pods.iter().any(|pod| pod.record.spec.identity.as_ref().is_some_and(|identity| identity.name == name))
}

#[tokio::test]
async fn a_pod_that_cannot_be_is_refused_with_the_name_of_what_is_wrong() {
    let rig = rig!();
    let run = async |config: PodSandboxConfig, handler: &str| {
        let request = RunPodSandboxRequest { config: Some(config), runtime_handler: handler.to_owned() };
        rig.runtime().run_pod_sandbox(request).await
    };
    let config = || busybox::pod(&rig, "web");
    assert_refused(run(config(), "kata").await, Code::InvalidArgument, &["runtime_handler", "kata"]);
    let nameless = PodSandboxConfig { metadata: None, ..config() };
    assert_refused(run(nameless, "").await, Code::InvalidArgument, &["config.metadata"]);
    let dns = DnsConfig { servers: vec!["nowhere".to_owned()], ..Default::default() };
    let dns = PodSandboxConfig { dns_config: Some(dns), ..config() };
    assert_refused(run(dns, "").await, Code::InvalidArgument, &["config.dns_config.servers[0]", "nowhere"]);
    let request = RunPodSandboxRequest::default();
    assert_refused(rig.runtime().run_pod_sandbox(request).await, Code::InvalidArgument, &["config"]);
    assert!(list(&rig, |_| {}).await.is_empty());
    rig.finish().await;
}

#[tokio::test]
async fn containers_have_what_their_pod_was_asked_for() {
    let rig = rig!(|config| config.network.default = mainstay::Network::None);
    if !busybox::import(&rig).await {
        return;
    }
    let mut config = busybox::pod(&rig, "web");
    config.hostname = "web-0".to_owned();
    config.dns_config = Some(DnsConfig {
        servers: vec!["10.96.0.10".to_owned()],
        searches: vec!["shop.svc.cluster.local".to_owned()],
        options: vec!["ndots:5".to_owned()],
    });
    let linux = config.linux.as_mut().expect("given");
    linux.cgroup_parent = format!("{}-foreign/pod1", rig.world().cgroup());
    linux.sysctls = HashMap::from([("net.ipv4.ip_forward".to_owned(), "1".to_owned())]);
    let namespaces = linux.security_context.as_mut().and_then(|context| context.namespace_options.as_mut());
    let namespaces = namespaces.expect("given");
    namespaces.set_network(NamespaceMode::Pod);
    namespaces.set_pid(NamespaceMode::Pod);
    let parent = Foreign(format!("{}-foreign", rig.world().cgroup()));
    let pod = rig.run_pod(&config).await;
    let one = rig.run_container(&pod, &busybox::script("one", "exec sleep 1000")).await;
    let two = rig.run_container(&pod, &busybox::script("two", "exec sleep 1000")).await;
    assert_eq!(rig.says(&one, "hostname").await, "web-0");
    let resolver = rig.says(&one, "cat /etc/resolv.conf").await;
    for line in ["nameserver 10.96.0.10", "search shop.svc.cluster.local", "options ndots:5"] {
        assert!(resolver.lines().any(|found| found == line), "{line}: {resolver}");
    }
    assert_eq!(rig.says(&one, "cat /proc/sys/net/ipv4/ip_forward").await, "1");
    assert_eq!(
        rig.says(&one, "readlink /proc/self/ns/pid").await,
        rig.says(&two, "readlink /proc/self/ns/pid").await
    );
    rig.says(&one, "echo shared > /dev/shm/x").await;
    assert_eq!(rig.says(&two, "cat /dev/shm/x").await, "shared");
    let info = status(&rig, &pod, true).await.info;
    let info: serde_json::Value = serde_json::from_str(&info["info"]).expect("JSON");
    assert_eq!(info["cgroupsPath"], format!("{}/pod1/{pod}", parent.0));

    // A stop kills what still runs, and takes no longer for it.
    let shown = status(&rig, &pod, false).await;
    assert!(shown.containers_statuses.iter().all(|one| one.state() == ContainerState::ContainerRunning));
    assert_eq!(shown.containers_statuses.len(), 2);
    stop(&rig, &pod).await;
    assert_eq!(rig.container(&one).await.exit_code, 137);
    remove(&rig, &pod).await;
    let containers = rig.runtime().list_containers(ListContainersRequest::default()).await.expect("listed");
    assert!(containers.into_inner().containers.is_empty(), "they go with their pod");
    drop(parent);
    rig.finish().await;
}

/// A cgroup that is not the runtime's.
struct Foreign(String);

impl Drop for Foreign {
    fn drop(&mut self) {
        for path in mainstay_integration_tests::ledger::Ledger::take("/nonexistent".as_ref(), &self.0)
            .cgroups
            .iter()
            .rev()
        {
            let _ = fs::remove_dir(path);
        }
    }
}
