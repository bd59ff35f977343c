//! Actors that panic (P9).

use mainstay_actors::Routed;
use mainstay_actors::fakes::{Behaviour, Call};
use mainstay_actors::router::state::{ACTOR_RESTART_WINDOW_MS, ACTOR_RESTARTS_MAX};
use mainstay_actors::router::{PoisonContainer, PoisonSandbox};
use mainstay_messages::container::IfRunning;
use mainstay_messages::event::What;
use mainstay_messages::record::{ContainerPhase, SandboxPhase};
use mainstay_messages::{ContainerId, Error};

use crate::world::{Test, pass};

async fn poison(test: &Test, container: &ContainerId) {
    let message = PoisonContainer { container: container.clone() };
    let answer = test.core.router.send(Routed(message)).await.expect("the router runs");
    assert!(matches!(answer, Err(Error::Internal { .. })), "{answer:?}");
}

#[actix::test]
async fn a_container_whose_actor_panics_is_started_again() {
    let test = Test::new();
    let pod = test.pod().await;
    let (web, other) = (test.running(&pod, "web").await, test.running(&pod, "other").await);
    poison(&test, &web).await;
    pass(10).await;
    assert_eq!(test.phase(&web), ContainerPhase::Running);
    assert_eq!(test.phase(&other), ContainerPhase::Running);
    assert_eq!(test.count(|what| matches!(what, What::ActorRestarted { .. })), 1);
    assert_eq!(test.core.counters.restarts.get(), 1);
    test.stop(&web, 1_000).await.expect("it obeys");
    assert_eq!(test.exit_code(&web).await, 143);
    test.remove(&web, IfRunning::Refuse).await.expect("removed");
    test.remove_pod(&pod).await.expect("removed");
}

/// The process ends while its actor is being started again: the exit is found, and settled.
#[actix::test]
async fn an_exit_during_a_restart_is_not_lost() {
    let test = Test::new();
    let pod = test.pod().await;
    let web = test.running(&pod, "web").await;
    test.world.host.misbehave(Call::QueryTask, Behaviour::Delay(1_000), 1);
    test.world.host.end_task(&web, 6);
    poison(&test, &web).await;
    assert_eq!(test.exit_code(&web).await, 6);
    test.until("it is settled", |test| test.world.host.unsettled() == 0).await;
    assert_eq!(test.count(|what| matches!(what, What::ContainerExited { .. })), 1);
}

#[actix::test]
async fn callers_of_an_actor_that_panics_hear_of_it() {
    let test = Test::new();
    let pod = test.pod().await;
    test.world.host.misbehave(Call::CreateTask, Behaviour::Delay(2_000), 1);
    let kill = async {
        pass(500).await;
        let id = test.core.directory.containers(None)[0].record.id.clone();
        poison(&test, &id).await;
    };
    let (created, ()) = futures::join!(test.create(&pod, "web"), kill);
    assert!(matches!(created, Err(Error::Internal { .. })), "{created:?}");
    // The supervisor was still at it: what came of it is found, and whoever asks again joins it.
    let id = test.core.directory.containers(None)[0].record.id.clone();
    test.until("it is adopted", |test| test.phase(&id) == ContainerPhase::Created).await;
    assert_eq!(test.create(&pod, "web").await, Ok(id));
}

#[actix::test]
async fn a_pod_whose_actor_panics_is_started_again() {
    let test = Test::new();
    let pod = test.pod().await;
    let web = test.running(&pod, "web").await;
    let message = PoisonSandbox { sandbox: pod.clone() };
    let answer = test.core.router.send(Routed(message)).await.expect("the router runs");
    assert!(matches!(answer, Err(Error::Internal { .. })), "{answer:?}");
    pass(10).await;
    assert_eq!(test.pod_phase(&pod), SandboxPhase::Ready);
    assert_eq!(test.phase(&web), ContainerPhase::Running);
    test.running(&pod, "another").await;
    test.remove_pod(&pod).await.expect("removed, with the container of before");
    assert!(test.core.directory.containers(None).is_empty());
}

#[actix::test]
async fn an_actor_that_panics_again_and_again_is_left_alone_for_a_while() {
    let test = Test::new();
    let pod = test.pod().await;
    let web = test.running(&pod, "web").await;
    for _ in 0..=ACTOR_RESTARTS_MAX {
        poison(&test, &web).await;
        pass(100).await;
    }
    assert_eq!(test.phase(&web), ContainerPhase::Unknown);
    assert!(matches!(test.stop(&web, 0).await, Err(Error::Internal { .. })));
    pass(ACTOR_RESTART_WINDOW_MS).await;
    test.until("it is back", |test| test.phase(&web) == ContainerPhase::Running).await;
    test.stop(&web, 0).await.expect("stopped");
}
