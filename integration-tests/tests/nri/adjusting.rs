//! What plugins change of containers.

use mainstay::Resources;
use mainstay_integration_tests::{Shorthand, script_spec, world};
use mainstay_nri_plugin::faults::Faults;
use mainstay_nri_plugin::{Adjusted, Plugin, Updated, api};

use crate::stage::{Stub, live, start, with_plugins};

/// A plugin that changes what it is asked about.
struct Greeter;

#[mainstay_nri_plugin::async_trait]
impl Plugin for Greeter {
    fn events(&self) -> api::EventMask {
        api::EventMask::NONE.with(api::Event::CREATE_CONTAINER).with(api::Event::UPDATE_CONTAINER)
    }

    async fn create_container(
        &self,
        _: api::PodSandbox,
        container: api::Container,
    ) -> mainstay_nri_plugin::Result<Adjusted> {
        let mut adjust = api::ContainerAdjustment::default();
        let value = format!("hello {}", container.name);
        adjust.env.push(api::KeyValue { key: "GREETING".to_owned(), value, ..Default::default() });
        adjust.annotations.insert("greeted".to_owned(), "yes".to_owned());
        Ok(Adjusted { adjust, ..Default::default() })
    }

    async fn update_container(
        &self,
        _: api::PodSandbox,
        container: api::Container,
        mut resources: api::LinuxResources,
    ) -> mainstay_nri_plugin::Result<Updated> {
        resources.pids = Some(api::LinuxPids { limit: 77, ..Default::default() }).into();
        let linux = api::LinuxContainerUpdate { resources: Some(resources).into(), ..Default::default() };
        let update = api::ContainerUpdate {
            container_id: container.id,
            linux: Some(linux).into(),
            ..Default::default()
        };
        Ok(Updated { update: vec![update], ..Default::default() })
    }
}

/// What a plugin changes is what runs, and what the runtime remembers.
#[tokio::test]
async fn a_container_gets_what_plugins_change_of_it() {
    let world = world!();
    let config = with_plugins(&world, |_| {});
    let runtime = start(&config).await;
    let stub = Stub::with(&config, "10", "greeter", Greeter, Faults::default());
    live(&runtime, "10-greeter").await;
    let pod = runtime.pod("p").await;
    let container = runtime.started(&pod, "c", "exec sleep 1000").await;
    let said = runtime.sh(&container, "tr '\\0' '\\n' < /proc/1/environ").await;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains("GREETING=hello c"), "{said}");
    let record = runtime.container(&container).expect("listed").record.clone();
    assert_eq!(record.annotations()["greeted"], "yes");
    let limits = Resources { memory_bytes: Some(64 << 20), ..Resources::default() };
    runtime.update_container(&container, limits).await.expect("updated");
    let record = runtime.container(&container).expect("listed").record.clone();
    assert_eq!(record.limits().pids, Some(77));
    assert_eq!(record.limits().memory_bytes, Some(64 << 20));
    // Two plugins that want the same are told apart.
    let other = Stub::with(&config, "20", "other", Greeter, Faults::default());
    live(&runtime, "20-other").await;
    let error = runtime.create_container(&pod, script_spec("d", "true")).await.expect_err("both want it");
    let sentence = error.to_string();
    for part in ["10-greeter", "20-other", "greeted"] {
        assert!(sentence.contains(part), "{sentence}");
    }
    world.finish(runtime).await;
    drop((stub, other));
}
