//! What containers of kubelet may do, and as whom.

use mainstay_cri_api::security_profile::ProfileType;
use mainstay_cri_api::{
    Capability, ContainerConfig, Int64Value, LinuxContainerConfig, LinuxContainerResources,
    LinuxContainerSecurityContext, NamespaceMode, NamespaceOption, SecurityProfile, SupplementalGroupsPolicy,
};
use tonic::Code;

use crate::{assert_refused, busybox, rig};

fn with(name: &str, change: impl FnOnce(&mut LinuxContainerSecurityContext)) -> ContainerConfig {
    let mut security = LinuxContainerSecurityContext::default();
    let own = NamespaceOption { pid: NamespaceMode::Container.into(), ..NamespaceOption::default() };
    security.namespace_options = Some(own);
    change(&mut security);
    ContainerConfig {
        linux: Some(LinuxContainerConfig { security_context: Some(security), resources: None }),
        ..busybox::script(name, "exec sleep 1000")
    }
}

fn id(value: i64) -> Option<Int64Value> {
    Some(Int64Value { value })
}

#[tokio::test]
async fn users_and_groups_are_those_that_are_asked_for() {
    let rig = rig!();
    if !busybox::import(&rig).await {
        return;
    }
    let pod = rig.run_pod(&busybox::pod(&rig, "p")).await;
    let by_name = with("name", |security| {
        security.run_as_username = "app".to_owned();
        security.supplemental_groups = vec![1_234];
        security.set_supplemental_groups_policy(SupplementalGroupsPolicy::Strict);
    });
    let container = rig.run_container(&pod, &by_name).await;
    assert_eq!(rig.says(&container, "id -u; id -g; id -G").await, "1000\n1001\n1001 1234");
    let user = rig.container(&container).await.user.and_then(|user| user.linux).expect("given");
    let mut groups = user.supplemental_groups;
    groups.sort_unstable();
    assert_eq!((user.uid, user.gid, groups), (1_000, 1_001, vec![1_001, 1_234]));
    let by_id = with("id", |security| (security.run_as_user, security.run_as_group) = (id(7), id(8)));
    let container = rig.run_container(&pod, &by_id).await;
    assert_eq!(rig.says(&container, "id -u; id -g").await, "7\n8");
    let group = with("group", |security| security.run_as_group = id(8));
    let refused = rig.create(&pod, &group).await;
    assert_refused(refused, Code::InvalidArgument, &["run_as_group", "run_as_user"]);
    let absent = with("absent", |security| security.run_as_username = "nobody-at-all".to_owned());
    let refused = rig.create(&pod, &absent).await.expect_err("no such user");
    assert!(refused.message().contains("nobody-at-all"), "{refused:?}");
    rig.finish().await;
}

#[tokio::test]
async fn filters_capabilities_and_paths_are_those_that_are_given() {
    let rig = rig!();
    if !busybox::import(&rig).await {
        return;
    }
    let pod = rig.run_pod(&busybox::pod(&rig, "p")).await;
    let file = rig.world().path().join("profile.json");
    let text = r#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["chdir"], "action": "SCMP_ACT_ERRNO"}]}"#;
    std::fs::write(&file, text).expect("written");
    let profile = |kind: ProfileType, localhost_ref: &str| {
        Some(SecurityProfile { profile_type: kind.into(), localhost_ref: localhost_ref.to_owned() })
    };
    let seccomp = "while read k v; do [ $k = Seccomp: ] && echo $v; done < /proc/1/status";
    for (name, given, expected) in [
        ("nothing", None, "0"),
        ("unconfined", profile(ProfileType::Unconfined, ""), "0"),
        ("default", profile(ProfileType::RuntimeDefault, ""), "2"),
        ("file", profile(ProfileType::Localhost, &file.display().to_string()), "2"),
    ] {
        let container = rig.run_container(&pod, &with(name, |security| security.seccomp = given)).await;
        assert_eq!(rig.says(&container, seccomp).await, expected, "{name}");
    }
    let absent = with("absent", |security| {
        security.seccomp = profile(ProfileType::Localhost, "/no/such/profile.json");
    });
    let refused = rig.create(&pod, &absent).await;
    assert_refused(refused, Code::InvalidArgument, &["seccomp.localhost_ref", "/no/such/profile.json"]);

    let limited = with("limited", |security| {
        security.capabilities = Some(Capability {
            drop_capabilities: vec!["ALL".to_owned()],
            add_capabilities: vec!["NET_ADMIN".to_owned()],
            add_ambient_capabilities: Vec::new(),
        });
        security.no_new_privs = true;
        security.readonly_rootfs = true;
        security.masked_paths = vec!["/proc/version".to_owned()];
        security.readonly_paths = vec!["/tmp".to_owned()];
    });
    let container = rig.run_container(&pod, &limited).await;
    let script = "while read k v; do case $k in CapEff:|NoNewPrivs:) echo $v;; esac; done < /proc/1/status; wc -c < /proc/version; echo > /x || echo read-only";
    let said = rig.says(&container, script).await;
    assert_eq!(said, "0000000000001000\n1\n0\nread-only");
    rig.finish().await;
}

/// kubelet compares what it reads back with what it gave.
#[tokio::test]
async fn limits_are_written_as_they_are_given() {
    let rig = rig!();
    if !busybox::import(&rig).await {
        return;
    }
    let pod = rig.run_pod(&busybox::pod(&rig, "p")).await;
    let limits = LinuxContainerResources {
        cpu_period: 50_000,
        cpu_quota: 12_345,
        cpu_shares: 100,
        memory_limit_in_bytes: 64 << 20,
        oom_score_adj: 500,
        ..LinuxContainerResources::default()
    };
    let mut config = with("c", |_| ());
    config.linux.as_mut().expect("given").resources = Some(limits.clone());
    let container = rig.run_container(&pod, &config).await;
    assert_eq!(rig.says(&container, "cat /proc/1/oom_score_adj").await, "500");
    let shown = rig.container(&container).await.resources.and_then(|resources| resources.linux);
    let shown = shown.expect("given");
    assert_eq!(
        (shown.cpu_period, shown.cpu_quota, shown.cpu_shares, shown.memory_limit_in_bytes),
        (limits.cpu_period, limits.cpu_quota, limits.cpu_shares, limits.memory_limit_in_bytes)
    );
    rig.finish().await;
}

/// An ephemeral container looks into another one.
#[tokio::test]
async fn a_container_sees_the_processes_of_its_target() {
    let rig = rig!();
    if !busybox::import(&rig).await {
        return;
    }
    let pod = rig.run_pod(&busybox::pod(&rig, "p")).await;
    let target = rig.run_container(&pod, &with("target", |_| ())).await;
    let options = |mode: NamespaceMode, target: &str| NamespaceOption {
        pid: mode.into(),
        target_id: target.to_owned(),
        ..NamespaceOption::default()
    };
    let looks = with("looks", |security| {
        security.namespace_options = Some(options(NamespaceMode::Target, &target));
    });
    let looks = rig.run_container(&pod, &looks).await;
    let namespace = "readlink /proc/self/ns/pid";
    assert_eq!(rig.says(&looks, namespace).await, rig.says(&target, namespace).await);
    let none = with("none", |security| {
        security.namespace_options = Some(options(NamespaceMode::Target, "no-such-container"));
    });
    let refused = rig.create(&pod, &none).await.expect_err("no such container");
    assert!(refused.message().contains("no-such-container"), "{refused:?}");
    rig.finish().await;
}
