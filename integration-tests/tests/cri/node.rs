//! What is said of the runtime itself.

use mainstay::{CgroupDriver, HandlerSettings, Network};
use mainstay_cri_api::{
    NetworkConfig, RuntimeCondition, RuntimeConfig, RuntimeConfigRequest, StatusRequest, StatusResponse,
    UpdateRuntimeConfigRequest, VersionRequest,
};
use serde_json::Value;
use tonic::Code;

use crate::rig::Rig;
use crate::{assert_refused, rig};

#[tokio::test]
async fn the_version_is_told() {
    let rig = rig!();
    let version = rig.runtime().version(VersionRequest::default()).await.expect("answered").into_inner();
    assert_eq!(version.runtime_name, "mainstay");
    assert_eq!(version.runtime_version, mainstay::VERSION);
    assert_eq!(version.runtime_api_version, "v1");
    rig.finish().await;
}

async fn status(rig: &Rig, verbose: bool) -> StatusResponse {
    rig.runtime().status(StatusRequest { verbose }).await.expect("answered").into_inner()
}

fn condition<'a>(status: &'a StatusResponse, name: &str) -> &'a RuntimeCondition {
    let conditions = &status.status.as_ref().expect("a status").conditions;
    conditions.iter().find(|condition| condition.r#type == name).expect("the condition")
}

#[tokio::test]
async fn a_runtime_that_can_work_is_ready_with_its_handlers() {
    let rig = rig!(|config| {
        config.handler.0.insert("annotated".parse().expect("a name"), HandlerSettings::default());
    });
    let told = status(&rig, false).await;
    assert!(condition(&told, "RuntimeReady").status);
    assert!(condition(&told, "NetworkReady").status);
    let names: Vec<_> = told.runtime_handlers.iter().map(|handler| handler.name.as_str()).collect();
    assert_eq!(names, ["", "mainstay", "annotated"]);
    for handler in &told.runtime_handlers {
        assert!(handler.features.expect("features").recursive_read_only_mounts);
    }
    let features = told.features.expect("features");
    assert!(features.supplemental_groups_policy && features.mount_options);
    assert!(told.info.is_empty(), "not asked for");
    rig.finish().await;
}

#[tokio::test]
async fn what_is_told_at_length_is_json() {
    let rig = rig!();
    let told = status(&rig, true).await;
    let part = |name: &str| serde_json::from_str::<Value>(&told.info[name]).expect("JSON");
    assert_eq!(part("runtime")["name"], "mainstay");
    assert_eq!(part("config")["cri"]["cgroup_driver"], "cgroupfs");
    assert_eq!(part("network")["kind"], "none");
    assert!(part("plugins").is_array());
    rig.finish().await;
}

/// A node without a CNI configuration is told so, with the directory that was looked at, and nothing else of it is down.
#[tokio::test]
async fn a_network_that_cannot_be_had_is_told_with_its_reason() {
    let rig = rig!(|config| {
        config.network.default = Network::Cni;
        config.network.cni_conf_dir = "/nonexistent/net.d".into();
    });
    let told = status(&rig, false).await;
    assert!(condition(&told, "RuntimeReady").status);
    let network = condition(&told, "NetworkReady");
    assert!(!network.status);
    assert_eq!(network.reason, "NetworkPluginNotReady");
    assert!(network.message.contains("/nonexistent/net.d"), "{}", network.message);
    rig.finish().await;
}

#[tokio::test]
async fn kubelet_is_told_the_cgroup_driver() {
    use mainstay_cri_api::CgroupDriver as Told;
    for (set, told) in [(CgroupDriver::Cgroupfs, Told::Cgroupfs), (CgroupDriver::Systemd, Told::Systemd)] {
        let rig = rig!(|config| config.cri.cgroup_driver = set);
        let answer = rig.runtime().runtime_config(RuntimeConfigRequest {}).await.expect("answered");
        assert_eq!(answer.into_inner().linux.expect("of Linux").cgroup_driver(), told);
        rig.finish().await;
    }
}

#[tokio::test]
async fn the_clusters_addresses_are_taken_and_shown() {
    let rig = rig!();
    let say = async |cidr: &str| {
        let network_config = Some(NetworkConfig { pod_cidr: cidr.to_owned() });
        let runtime_config = Some(RuntimeConfig { network_config });
        rig.runtime().update_runtime_config(UpdateRuntimeConfigRequest { runtime_config }).await
    };
    say("10.244.7.0/24,fd00:7::/64").await.expect("taken");
    say("").await.expect("kubelet says so before it knows");
    assert_refused(say("10.244.7.0").await, Code::InvalidArgument, &["pod_cidr", "10.244.1.0/24"]);
    let network: Value = serde_json::from_str(&status(&rig, true).await.info["network"]).expect("JSON");
    assert_eq!(network["podCIDR"], "10.244.7.0/24,fd00:7::/64");
    rig.finish().await;
}
