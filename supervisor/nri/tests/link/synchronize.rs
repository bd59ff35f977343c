//! Telling a plugin everything that there is.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mainstay_nri::link::{CallError, HandshakeError, Link, SynchronizeError, Updates};
use mainstay_nri_plugin::api::mux::{Channels, Mux};
use mainstay_nri_plugin::api::ttrpc::asynchronous::transport::Socket;
use mainstay_nri_plugin::api::ttrpc::asynchronous::{Client, TtrpcContext};
use mainstay_nri_plugin::api::ttrpc::{self, context};
use mainstay_nri_plugin::api::{
    ConfigureRequest, ConfigureResponse, Container, ContainerUpdate, EventMask, PluginService, PodSandbox,
    RegisterPluginRequest, RuntimeClient, SynchronizeRequest, SynchronizeResponse, create_plugin, serve,
};
use mainstay_nri_plugin::faults::{Fault, Faults};
use mainstay_nri_plugin::{Plugin, Result, async_trait};
use tokio::net::UnixStream;

use crate::world::{AMPLE, World, configuration, container, pod};

/// What one synchronisation tells.
type Seen = (Vec<PodSandbox>, Vec<Container>);

/// Remembers what it was told.
#[derive(Clone, Default)]
struct Scribe(Arc<Mutex<Vec<Seen>>>);

#[async_trait]
impl Plugin for Scribe {
    fn events(&self) -> EventMask {
        EventMask::ALL
    }

    async fn synchronize(
        &self,
        pods: Vec<PodSandbox>,
        containers: Vec<Container>,
    ) -> Result<Vec<ContainerUpdate>> {
        self.0.lock().expect("not poisoned").push((pods, containers));
        Ok(vec![ContainerUpdate { container_id: "c7".to_owned(), ..Default::default() }])
    }
}

/// Some megabytes of containers.
fn many() -> Vec<Container> {
    let padded = |n: usize| {
        let mut container = container(&format!("c{n}"));
        container.annotations.insert("padding".to_owned(), "x".repeat(10_000));
        container
    };
    (0..500).map(padded).collect()
}

/// containerd sends all in one time-out, and runs into it where there is much (containerd#13901).
#[tokio::test]
async fn everything_comes_in_parts_and_is_seen_once() {
    let (world, scribe, faults) = (World::new(), Scribe::default(), Faults::default());
    let (link, _updates) = world.link(scribe.clone(), &faults).await.expect("a link");
    let updates = link.synchronize(vec![pod("p1"), pod("p2")], many(), AMPLE).await.expect("synchronised");
    assert_eq!(updates.len(), 1);
    assert_eq!(updates[0].container_id, "c7");
    let parts = faults.told().iter().filter(|told| told.call == "Synchronize").count();
    assert!(parts >= 5, "{parts}");
    let seen = scribe.0.lock().expect("not poisoned");
    let [(pods, containers)] = &seen[..] else { panic!("once, and not {}", seen.len()) };
    assert_eq!((pods.len(), containers.len()), (2, 500));
    assert_eq!(containers.iter().map(|container| &container.id).collect::<BTreeSet<_>>().len(), 500);
}

#[tokio::test]
async fn the_time_for_all_grows_with_the_parts() {
    let (world, faults) = (World::new(), Faults::default());
    faults.set("Synchronize", Fault::Hang, None);
    let (link, _updates) = world.link(Scribe::default(), &faults).await.expect("a link");
    let per_part = Duration::from_millis(20);
    let late = link.synchronize(Vec::new(), many(), per_part).await.expect_err("late");
    let SynchronizeError::Call(CallError::Late { call: "Synchronize", after_ms }) = late else {
        panic!("{late}")
    };
    assert!(after_ms >= 100 && after_ms % 20 == 0, "{after_ms}");
    // And the link is as it was.
    faults.clear();
    link.synchronize(Vec::new(), Vec::new(), AMPLE).await.expect("synchronised");
}

/// A plugin that answers whatever it was given.
struct Careless {
    events: i32,
}

#[async_trait]
impl PluginService for Careless {
    async fn configure(&self, _: &TtrpcContext, _: ConfigureRequest) -> ttrpc::Result<ConfigureResponse> {
        Ok(ConfigureResponse { events: self.events, ..Default::default() })
    }

    async fn synchronize(
        &self,
        _: &TtrpcContext,
        _: SynchronizeRequest,
    ) -> ttrpc::Result<SynchronizeResponse> {
        Ok(SynchronizeResponse::default())
    }
}

async fn careless(world: &World, events: i32) -> Result<(Link, Updates, Mux), HandshakeError> {
    let (mux, Channels { plugin, runtime }) =
        Mux::new(UnixStream::connect(world.socket()).await.expect("connected"));
    serve(create_plugin(Arc::new(Careless { events })), plugin, mux.closing()).await.expect("it serves");
    let client = RuntimeClient::new(Client::new(Socket::new(runtime)));
    tokio::spawn(async move {
        let request = RegisterPluginRequest {
            plugin_name: "careless".to_owned(),
            plugin_idx: "00".to_owned(),
            ..Default::default()
        };
        client.register_plugin(context::with_duration(AMPLE), &request).await.expect("registered");
    });
    let registered = world.accept().await.register(AMPLE).await?;
    assert_eq!(registered.nri_version(), None);
    let (link, updates) = registered.configure(configuration(""), AMPLE).await?;
    Ok((link, updates, mux))
}

#[tokio::test]
async fn a_plugin_that_takes_a_part_for_all_is_found_out() {
    let world = World::new();
    let (link, _updates, _mux) = careless(&world, 0).await.expect("a link");
    assert_eq!(link.events(), EventMask::ALL);
    link.synchronize(vec![pod("p1")], Vec::new(), AMPLE).await.expect("one part");
    let error = link.synchronize(Vec::new(), many(), AMPLE).await.expect_err("no parts");
    assert!(matches!(error, SynchronizeError::NoParts { part: 1, .. }), "{error}");
    // Whoever wrote it in Rust without the other calls is taken for an older one.
    let told = link.pod_notice(mainstay_nri::link::PodNotice::Run, pod("p1"), AMPLE).await;
    assert!(matches!(told, Err(CallError::Unknown { call: "RunPodSandbox" })), "{told:?}");
    assert!(link.hears_state_changes());
}

#[tokio::test]
async fn a_plugin_that_asks_for_events_that_are_none_is_refused() {
    let world = World::new();
    let error = careless(&world, 1 << 20).await.expect_err("refused");
    assert_eq!(
        error.to_string(),
        "the event mask 0x100000 has the unknown bits 0x100000; the known ones are 0x3fff"
    );
}
