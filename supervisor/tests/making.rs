//! What is said of a container, and done to it, while it is being made. A test of its own program: the places at which it is
//! held are set for a whole program.

mod world;

use std::fs;
use std::path::Path;

use mainstay_messages::record::{ContainerRecord, SandboxRecord};
use mainstay_messages::router::TaskKey;
use mainstay_messages::supervisor::{
    AdoptShim, Adopted, CreateTask, DeleteTask, QueryTask, TaskKnowledge, TaskStatus,
};
use mainstay_messages::{Error, ProcessIdentity, Result};
use mainstay_supervisor::faults::{FAULTS_DIRECTORY, HELD};
use tokio::task::JoinHandle;
use world::{Running, World, until};

/// Where a creation is held, with the step at which it is then.
const POINTS: [(&str, &str); 4] = [
    ("create-container.bundle.before", "bundle"),
    ("create-container.layer.after", "layer"),
    ("create-container.task.before", "task"),
    ("create-container.task.after", "task"),
];

/// Begins to make a container and holds that at a point.
async fn held(
    supervisor: &Running,
    faults: &Path,
    point: &str,
    sandbox: &SandboxRecord,
    container: &ContainerRecord,
) -> JoinHandle<Result<ProcessIdentity>> {
    fs::write(faults.join(point), "hang").expect("written");
    let message = CreateTask { record: container.clone(), sandbox: sandbox.clone() };
    let created = supervisor.address.send(message);
    let making = actix::spawn(async move { created.await.expect("it runs").map(|made| made.process) });
    let file = faults.join(format!("{point}{HELD}"));
    until("the creation is held", || file.exists()).await;
    making
}

fn release(faults: &Path, point: &str) {
    fs::remove_file(faults.join(format!("{point}{HELD}"))).expect("it was held");
}

async fn query(supervisor: &Running, container: &ContainerRecord) -> Result<TaskKnowledge> {
    let task = TaskKey { sandbox: container.sandbox.clone(), container: container.id.clone(), exec: None };
    supervisor.address.send(QueryTask { task }).await.expect("it runs")
}

/// Between the preparing of a creation and its sending the shim did not know the container. Whoever asked then (an actor
/// that was started again) heard that it was not known, wrote down that it had never been made, and the creation made it all
/// the same.
#[actix::test]
async fn what_is_being_made_is_neither_unknown_nor_removed_too_early() {
    let Some(world) = World::new() else { return };
    let faults = tempfile::tempdir().expect("a directory");
    // SAFETY: this is the only test of its program, and nothing else of it runs yet.
    unsafe { std::env::set_var(FAULTS_DIRECTORY, faults.path()) };
    let supervisor = world.supervisor().await;
    let sandbox = supervisor.launch(world.sandbox("pod")).await;
    for (number, (point, at)) in POINTS.into_iter().enumerate() {
        let container = world.container(&sandbox, &format!("c{number}"), &["sleep", "1000000"]);
        let making = held(&supervisor, faults.path(), point, &sandbox, &container).await;
        let adopt = AdoptShim {
            record: sandbox.clone(),
            containers: vec![container.id.clone()],
            processes: Default::default(),
        };
        let adopting = actix::spawn(supervisor.address.send(adopt));
        match query(&supervisor, &container).await {
            Err(Error::InProgress { id, operation, step, .. }) => {
                assert_eq!(
                    (id.as_str(), operation.as_str(), step.as_str()),
                    (container.id.as_str(), "create", at)
                );
            }
            other => panic!("at {point}: {other:?}"),
        }
        let again = supervisor.create(&sandbox, &container).await;
        assert!(matches!(again, Err(Error::InProgress { .. })), "at {point}: {again:?}");
        release(faults.path(), point);
        making.await.expect("no panic").expect("made");
        let adopted = adopting.await.expect("no panic").expect("it runs").expect("adopted");
        let Adopted::Running(tasks) = adopted else { panic!("at {point}: the shim runs") };
        let found = tasks.iter().find(|task| task.container == container.id);
        assert_eq!(found.map(|task| &task.status), Some(&TaskStatus::Created), "at {point}");

        let removed = world.container(&sandbox, &format!("d{number}"), &["sleep", "1000000"]);
        let making = held(&supervisor, faults.path(), point, &sandbox, &removed).await;
        let delete = DeleteTask { sandbox: sandbox.id.clone(), container: removed.id.clone() };
        let deleting = actix::spawn(supervisor.address.send(delete));
        // Its answer says that the deletion, which was sent before it, has arrived.
        query(&supervisor, &removed).await.expect_err("it is being made");
        release(faults.path(), point);
        making.await.expect("no panic").expect("made");
        deleting.await.expect("no panic").expect("it runs").expect("deleted");
        assert!(world.left_of(&removed).is_empty(), "at {point}: {:?}", world.left_of(&removed));
        assert_eq!(query(&supervisor, &removed).await, Ok(TaskKnowledge::NotKnown), "at {point}");
    }
}
