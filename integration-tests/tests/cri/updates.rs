//! Limits that change while it runs.

use mainstay::{CpuTime, Network};
use mainstay_cri_api::{
    ContainerStatusRequest, LinuxContainerResources, UpdateContainerResourcesRequest,
    UpdatePodSandboxResourcesRequest,
};
use tonic::{Code, Status};

use crate::rig::Rig;
use crate::{assert_refused, rig};

async fn update(rig: &Rig, id: &str, linux: LinuxContainerResources) -> Result<(), Status> {
    let request = UpdateContainerResourcesRequest {
        container_id: id.to_owned(),
        linux: Some(linux),
        ..Default::default()
    };
    rig.runtime().update_container_resources(request).await.map(drop)
}

async fn in_force(rig: &Rig, id: &str) -> LinuxContainerResources {
    let request = ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
    let answer = rig.runtime().container_status(request).await.expect("answered").into_inner();
    answer.status.and_then(|status| status.resources).and_then(|resources| resources.linux).expect("limits")
}

#[tokio::test]
async fn limits_of_a_container_are_changed_as_they_are_given() {
    let rig = rig!();
    let pod = rig.made_pod("p", Network::None).await;
    let limits = |spec: &mut mainstay::ContainerSpec| {
        spec.resources.memory_bytes = Some(64 << 20);
        spec.resources.memory_swap_bytes = Some(64 << 20);
        spec.resources.cpu_time = Some(CpuTime { quota_us: 20_000, period_us: 50_000 });
    };
    // One that waits to be started has a cgroup, too.
    let id = rig.made_container(&pod, "c", "exec sleep 1000", limits).await;
    update(&rig, &id, LinuxContainerResources { cpu_shares: 512, ..Default::default() })
        .await
        .expect("changed");
    rig.admin()
        .await
        .start_container(mainstay_messages::admin::Reference(id.clone()))
        .await
        .expect("started");
    let change = LinuxContainerResources {
        cpu_quota: 30_001,
        memory_limit_in_bytes: 128 << 20,
        cpuset_cpus: "0".to_owned(),
        ..Default::default()
    };
    update(&rig, &id, change).await.expect("changed");
    let found = in_force(&rig, &id).await;
    assert_eq!((found.cpu_quota, found.cpu_period, found.cpu_shares), (30_001, 50_000, 512));
    assert_eq!((found.memory_limit_in_bytes, found.memory_swap_limit_in_bytes), (128 << 20, 128 << 20));
    assert_eq!(found.cpuset_cpus, "0");

    let lift = LinuxContainerResources { cpu_quota: -1, memory_limit_in_bytes: -1, ..Default::default() };
    update(&rig, &id, lift).await.expect("lifted");
    let found = in_force(&rig, &id).await;
    assert_eq!((found.cpu_quota.max(0), found.memory_limit_in_bytes), (0, 0));
    rig.finish().await;
}

#[tokio::test]
async fn limits_that_cannot_be_are_refused_and_leave_those_from_before() {
    let rig = rig!();
    let pod = rig.made_pod("p", Network::None).await;
    // It holds 32 MiB, of which none can be given back.
    let script = "x=$(head -c 33554432 /dev/zero | tr '\\0' x); while :; do sleep 1; done";
    let id =
        rig.started_container(&pod, "c", script, |spec| spec.resources.memory_bytes = Some(512 << 20)).await;
    mainstay_integration_tests::wait::until_async("it holds its memory", async || {
        let request = mainstay_cri_api::ContainerStatsRequest { container_id: id.clone() };
        let stats = rig.runtime().container_stats(request).await.expect("answered").into_inner().stats;
        let rss = stats.and_then(|stats| stats.memory).and_then(|memory| memory.rss_bytes);
        rss.is_some_and(|rss| rss.value > 32 << 20)
    })
    .await;
    let below = LinuxContainerResources { memory_limit_in_bytes: 8 << 20, ..Default::default() };
    let refused = update(&rig, &id, below).await.expect_err("it is below what is in use");
    assert!(refused.message().contains("memory"), "{refused:?}");
    assert_eq!(in_force(&rig, &id).await.memory_limit_in_bytes, 512 << 20);
    let nowhere = LinuxContainerResources { cpuset_cpus: "0-".to_owned(), ..Default::default() };
    assert_refused(update(&rig, &id, nowhere).await, Code::InvalidArgument, &["cpuset_cpus"]);
    assert_refused(
        update(&rig, "nobody", LinuxContainerResources::default()).await,
        Code::NotFound,
        &["nobody"],
    );
    rig.finish().await;
}

#[tokio::test]
async fn what_a_pod_is_expected_to_take_is_kept_and_limits_nothing() {
    let rig = rig!();
    let pod = rig.made_pod("p", Network::None).await;
    let resources =
        |memory: i64| Some(LinuxContainerResources { memory_limit_in_bytes: memory, ..Default::default() });
    let request = UpdatePodSandboxResourcesRequest {
        pod_sandbox_id: pod.clone(),
        overhead: resources(1 << 20),
        resources: resources(64 << 20),
    };
    rig.runtime().update_pod_sandbox_resources(request.clone()).await.expect("changed");
    let pods = rig.admin().await.list_sandboxes().await.expect("listed");
    let record = &pods[0].record;
    assert_eq!(record.plan().overhead.memory_bytes, Some(1 << 20));
    assert_eq!(record.plan().containers.memory_bytes, Some(64 << 20));
    assert_eq!(record.limits().memory_bytes, None);
    rig.stopped_pod(&pod).await;
    let refused = rig.runtime().update_pod_sandbox_resources(request).await;
    assert_refused(refused, Code::FailedPrecondition, &["stopped"]);
    let unknown =
        UpdatePodSandboxResourcesRequest { pod_sandbox_id: "nobody".to_owned(), ..Default::default() };
    assert_refused(rig.runtime().update_pod_sandbox_resources(unknown).await, Code::NotFound, &["nobody"]);
    rig.finish().await;
}
