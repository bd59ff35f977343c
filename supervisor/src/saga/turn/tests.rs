//! Work that outlives its deadline.

use std::sync::mpsc;

use actix::{Actor, Context, Handler};
use mainstay_messages::router::Noted;

use super::*;
use crate::claim::Claim;
use crate::settings::SupervisorSettings;

struct Deaf;

impl Actor for Deaf {
    type Context = Context<Self>;
}

impl Handler<Noted> for Deaf {
    type Result = ();

    fn handle(&mut self, _: Noted, _: &mut Self::Context) {}
}

/// A machine whose pieces of work have 50 ms.
fn machine(temp: &tempfile::TempDir, name: &str) -> Option<Arc<Machine>> {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can make cgroups");
        return None;
    }
    let mut settings = SupervisorSettings::new(temp.path().join("run"), temp.path().join("lib"));
    settings.cgroup_parent = format!("/mainstay-turn-{name}-{}", std::process::id());
    settings.timeouts.files_ms = 50;
    let claim = Claim::take(&settings).expect("nobody else's");
    Some(Arc::new(
        Machine::new(settings, claim, Arc::new(crate::NoNetworks), Deaf.start().recipient())
            .expect("a machine"),
    ))
}

/// A creation hung in a look at a file server that was gone. Its deadline passed, it was undone, and its name was free. When
/// the server came back the look ended, and the rest of that piece of work made a layer that nobody knew of any more.
#[actix::test]
async fn an_undo_waits_for_what_its_deadline_has_overtaken() {
    let temp = tempfile::tempdir().expect("a directory");
    let Some(machine) = machine(&temp, "late") else { return };
    let (release, server) = mpsc::channel::<()>();
    let layer = temp.path().join("layer");
    let turn = Turn::take(&machine, "container c".to_owned()).await.expect("nobody else");
    let late = layer.clone();
    let making = turn.blocking("the making", move |_| {
        server.recv().expect("the server comes back");
        std::fs::create_dir(late).map_err(|error| Error::unavailable("layer", error))
    });
    let error = making.await.expect_err("it takes too long").to_string();
    assert!(error.contains("the making did not finish within 50 ms"), "{error}");
    let undo = || {
        let layer = layer.clone();
        turn.blocking("the undoing", move |_| {
            std::fs::remove_dir(layer).map_err(|error| Error::unavailable("layer", error))
        })
    };
    let error = undo().await.expect_err("it may not begin yet").to_string();
    assert!(error.contains("earlier work on container c, which has to end first"), "{error}");
    release.send(()).expect("somebody waits");
    // As the actors do: until it has worked.
    while undo().await.is_err() {}
    assert!(!layer.exists());
}

#[actix::test]
async fn sagas_of_one_object_follow_one_another_and_hold_up_no_other() {
    let temp = tempfile::tempdir().expect("a directory");
    let Some(machine) = machine(&temp, "two") else { return };
    let first = Turn::take(&machine, "pod p".to_owned()).await.expect("nobody else");
    Turn::take(&machine, "pod q".to_owned()).await.expect("another pod");
    Turn::take(&machine, "pod p".to_owned()).await.expect_err("it is worked on");
    drop(first);
    Turn::take(&machine, "pod p".to_owned()).await.expect("nobody any more");
}
