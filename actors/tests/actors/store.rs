//! A store that fails (P7).

use mainstay_actors::fakes::StoreFault;
use mainstay_messages::container::IfRunning;
use mainstay_messages::event::What;
use mainstay_messages::process::OomVerdict;
use mainstay_messages::record::ContainerPhase;
use mainstay_messages::router::{ExitReceipt, TaskExited, TaskKey};
use mainstay_messages::{Error, Exit, ExitStatus, Timestamp};

use crate::world::{Test, pass};

#[actix::test]
async fn nothing_is_made_or_started_while_the_store_fails() {
    let test = Test::new();
    let pod = test.pod().await;
    let container = test.create(&pod, "web").await.expect("created");
    test.world.store.set_fault(StoreFault::Fail);
    assert!(matches!(test.run("other").await, Err(Error::Unavailable { .. })));
    assert!(matches!(test.create(&pod, "other").await, Err(Error::Unavailable { .. })));
    assert!(matches!(test.start(&container).await, Err(Error::Unavailable { .. })));
    assert_eq!(test.phase(&container), ContainerPhase::Created, "nothing changed");
    assert_eq!(test.core.directory.sandboxes().len(), 1);
    assert_eq!(test.core.directory.containers(None).len(), 1);
    test.world.store.set_fault(StoreFault::None);
    test.start(&container).await.expect("started");
    test.run("other").await.expect("the name is free");
    test.create(&pod, "other").await.expect("the name is free");
}

/// Removing is how an operator makes room on a full disk: it goes on, says that it could not be written, and the
/// records follow when there is room.
#[actix::test]
async fn stopping_and_removing_go_on_while_the_store_fails() {
    let test = Test::new();
    let pod = test.pod().await;
    let container = test.running(&pod, "web").await;
    test.world.store.set_fault(StoreFault::Fail);
    test.stop(&container, 1_000).await.expect("stopped");
    assert_eq!(test.phase(&container), ContainerPhase::Exited);
    assert!(test.world.host.unsettled() > 0, "an exit that is not durable is not settled");
    let error = test.remove(&container, IfRunning::Refuse).await.expect_err("it says so");
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert_eq!(test.world.host.tasks(), 0, "the task is gone all the same");
    assert_eq!(test.phase(&container), ContainerPhase::Removing, "it stays listed until it is durable");
    test.world.store.set_fault(StoreFault::None);
    test.until("it is gone", |test| test.core.directory.container(&container).is_none()).await;
    test.until("the exit is settled", |test| test.world.host.unsettled() == 0).await;
    assert_eq!(
        test.count(|what| matches!(what, What::ContainerExited { .. })),
        1,
        "its end is in the journal"
    );
    assert_eq!(test.world.store.container(&container), None);
    test.create(&pod, "web").await.expect("the name is free");
}

/// Only the first to ask for a removal on a full disk was told that a record was left. Whoever asked again waited, without any
/// answer, until somebody made room; and so did the removal of the pod.
#[actix::test]
async fn whoever_asks_again_for_a_removal_that_is_not_written_is_told_so() {
    let test = Test::new();
    let pod = test.pod().await;
    let container = test.running(&pod, "web").await;
    test.world.store.set_fault(StoreFault::Fail);
    for _ in 0..2 {
        let error =
            test.remove(&container, IfRunning::Kill).await.expect_err("it is not written").to_string();
        assert!(error.contains("all but its record is gone"), "{error}");
    }
    test.stop(&container, 0).await.expect("its process has ended");
    for _ in 0..2 {
        let error = test.remove_pod(&pod).await.expect_err("it is not written").to_string();
        assert!(error.contains("all but its record is gone"), "{error}");
    }
    test.world.store.set_fault(StoreFault::None);
    test.until("both are gone", |test| {
        test.core.directory.containers(None).is_empty() && test.core.directory.sandboxes().is_empty()
    })
    .await;
    test.run("pod").await.expect("its name is free");
}

#[actix::test]
async fn an_exit_is_pending_until_it_is_durable() {
    let test = Test::new();
    let pod = test.pod().await;
    let container = test.running(&pod, "web").await;
    test.world.store.set_fault(StoreFault::Fail);
    let exit = Exit { status: ExitStatus::Exited { code: 3 }, at: Timestamp(1), oom: OomVerdict::NotKilled };
    let report =
        TaskExited { task: TaskKey { sandbox: pod.clone(), container: container.clone(), exec: None }, exit };
    for _ in 0..2 {
        let receipt = test.core.router.send(report.clone()).await.expect("the router runs");
        assert_eq!(receipt, ExitReceipt::Pending);
    }
    assert_eq!(test.exit_code(&container).await, 3, "readers see it");
    test.world.store.set_fault(StoreFault::None);
    pass(1_000).await;
    let receipt = test.core.router.send(report).await.expect("the router runs");
    assert_eq!(receipt, ExitReceipt::Settled);
    let durable = test.world.store.container(&container).expect("a record");
    assert_eq!(durable.exit.expect("an exit").code(), 3);
}

/// A commit that was given up for want of time may still become durable: what follows it sets the record right.
#[actix::test]
async fn a_commit_that_comes_too_late_is_undone() {
    let test = Test::new();
    let pod = test.pod().await;
    test.world.store.set_fault(StoreFault::Slow(15_000));
    let error = test.create(&pod, "web").await.expect_err("the store is too slow");
    assert!(matches!(error, Error::DeadlineExceeded { .. }), "{error}");
    test.world.store.set_fault(StoreFault::None);
    pass(30_000).await;
    assert!(test.core.directory.containers(None).is_empty());
    let left = mainstay_actors::ports::Store::load(&test.world.store).await.expect("it loads");
    assert!(left.containers.is_empty(), "{left:?}");
    test.create(&pod, "web").await.expect("the name is free");
}

#[actix::test]
async fn a_store_that_hangs_does_not_hang_callers_or_stops() {
    let test = Test::new();
    let pod = test.pod().await;
    let container = test.running(&pod, "web").await;
    test.world.store.set_fault(StoreFault::Hang);
    assert!(matches!(test.create(&pod, "other").await, Err(Error::DeadlineExceeded { .. })));
    test.stop(&container, 0).await.expect("stopped");
    assert_eq!(test.phase(&container), ContainerPhase::Exited);
}
