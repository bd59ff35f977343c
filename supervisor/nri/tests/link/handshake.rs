//! From connecting to being configured.

use mainstay_nri::link::{CallError, HandshakeError};
use mainstay_nri_plugin::api::mux::Closed;
use mainstay_nri_plugin::api::{Event, EventMask, NRI_VERSION};
use mainstay_nri_plugin::faults::{Faults, Obedient};
use mainstay_nri_plugin::{ConnectError, Identity, Plugin, async_trait};
use tokio::net::UnixStream;

use crate::world::{AMPLE, SHORT, World, configuration, within};

struct Choosy;

#[async_trait]
impl Plugin for Choosy {
    fn events(&self) -> EventMask {
        EventMask::NONE.with(Event::CREATE_CONTAINER)
    }
}

#[tokio::test]
async fn a_plugin_says_who_it_is_and_what_it_wants() {
    let world = World::new();
    let (link, _updates) = world.link(Choosy, &Faults::default()).await.expect("a link");
    assert_eq!(link.name().to_string(), "10-stub");
    assert_eq!(link.nri_version(), Some(NRI_VERSION));
    assert_eq!(link.events(), EventMask::NONE.with(Event::CREATE_CONTAINER));
    assert!(link.wants(Event::CREATE_CONTAINER) && !link.wants(Event::RUN_POD_SANDBOX));
    assert_eq!(link.peer().pid, i32::try_from(std::process::id()).ok());
    assert_eq!(link.reason(), None);
}

#[tokio::test]
async fn a_name_that_cannot_be_is_refused_with_what_would_be_right() {
    let world = World::new();
    for (identity, text) in [
        (Identity::new("1", "stub"), "expected two digits"),
        (Identity::new("1x", "stub"), "expected two digits"),
        (Identity::new("10", ""), "expected 1 to 64 letters"),
        (Identity::new("10", "../../etc"), "expected 1 to 64 letters"),
        (Identity::new("10", "a".repeat(65)), "expected 1 to 64 letters"),
    ] {
        let plugin = world.start(identity, Obedient, Faults::default());
        let refused = world.accept().await.register(AMPLE).await.err().expect("refused");
        assert!(matches!(refused, HandshakeError::WrongName { .. }), "{refused}");
        assert!(refused.to_string().contains(text), "{refused}");
        let seen = within(plugin).await.expect("it ends").expect_err("refused");
        assert!(matches!(&seen, ConnectError::Refused(reason) if reason.contains(text)), "{seen}");
    }
}

#[tokio::test]
async fn one_that_connects_and_says_nothing_is_waited_for_no_longer_than_that() {
    let world = World::new();
    let _mute = UnixStream::connect(world.socket()).await.expect("connected");
    let late = world.accept().await.register(SHORT).await.err().expect("late");
    assert_eq!(late.to_string(), "the plugin did not register within 100 ms");
}

#[tokio::test]
async fn one_that_goes_before_it_has_registered_is_named_so() {
    let world = World::new();
    drop(UnixStream::connect(world.socket()).await.expect("connected"));
    let gone = world.accept().await.register(AMPLE).await.err().expect("gone");
    assert_eq!(gone, HandshakeError::Closed(Closed::There));
}

#[tokio::test]
async fn one_that_does_not_take_its_configuration_is_not_linked() {
    let world = World::new();
    let plugin = world.start(Identity::new("10", "stub"), Obedient, Faults::default());
    let registered = world.accept().await.register(AMPLE).await.expect("registered");
    let refused = registered.configure(configuration("nonsense"), AMPLE).await.expect_err("refused");
    let HandshakeError::Configure(CallError::Refused { reason, .. }) = &refused else { panic!("{refused}") };
    assert!(reason.contains("the fault \"nonsense\" is not valid"), "{reason}");
    // It is cut off with that.
    assert!(matches!(within(plugin).await.expect("it ends"), Ok(Closed::There)));
}

#[tokio::test]
async fn a_plugin_is_cut_off_when_its_link_is_dropped_or_closed() {
    let world = World::new();
    for close in [true, false] {
        let plugin = world.start(Identity::new("10", "stub"), Obedient, Faults::default());
        let registered = world.accept().await.register(AMPLE).await.expect("registered");
        let (link, mut updates) = registered.configure(configuration(""), AMPLE).await.expect("a link");
        if close {
            link.close("it was late three times");
            assert_eq!(
                within(link.closed()).await.to_string(),
                "this side closed the connection: it was late three times"
            );
            assert!(matches!(link.shutdown(AMPLE).await, Err(CallError::Gone { .. })));
        }
        drop(link);
        assert!(matches!(within(plugin).await.expect("it ends"), Ok(Closed::There)));
        assert!(within(updates.next()).await.is_none());
    }
}
