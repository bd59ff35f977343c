//! What plugins hear of containers, and what becomes of those that they refuse.

use mainstay::{ContainerId, ContainerPhase, FailPolicy, IfRunning};
use mainstay_integration_tests::{Shorthand, script_spec, wait, world};
use mainstay_nri_plugin::faults::Fault;

use crate::stage::{LATE_MS, Stub, live, start, with_plugins};

/// crio#8790: a plugin that refused a container left its name taken.
#[tokio::test]
async fn a_container_that_a_plugin_refuses_leaves_nothing_and_its_name_is_free() {
    let world = world!();
    let config = with_plugins(&world, |_| {});
    let runtime = start(&config).await;
    let stub = Stub::start(&config, "10", "stub");
    live(&runtime, "10-stub").await;
    let pod = runtime.pod("p").await;
    for call in ["CreateContainer", "StartContainer"] {
        stub.faults.set(call, Fault::Refuse("no".to_owned()), Some(1));
        let made = runtime.create_container(&pod, script_spec("c", "exec sleep 1000")).await;
        let (error, id) = match made {
            Err(error) => (error, refused(&stub)),
            Ok(id) => {
                let error = runtime.start_container(&id).await.expect_err("refused");
                let phase = runtime.container(&id).expect("listed").record.phase;
                assert_eq!(phase, ContainerPhase::Created, "it may be started another time");
                runtime.remove_container(&id, IfRunning::Kill).await.expect("removed");
                (error, id.to_string())
            }
        };
        assert!(error.to_string().contains(&format!("{call}: plugin 10-stub: no")), "{error}");
        wait::until("it is told of the end", || {
            stub.heard(&id).ends_with(&["StopContainer", "RemoveContainer"]).then_some(())
        })
        .await;
        assert!(runtime.containers_of(&pod).is_empty());
    }
    runtime.started(&pod, "c", "exec sleep 1000").await;
    world.finish(runtime).await;
}

fn refused(stub: &Stub) -> String {
    let told = stub.faults.told();
    told.iter().rfind(|told| told.call == "CreateContainer").expect("it was told").container.clone()
}

/// What is to stop, stops: neither a refusal nor silence of a plugin holds it up.
#[tokio::test]
async fn no_plugin_stands_in_the_way_of_an_end() {
    let world = world!();
    let config = with_plugins(&world, |config| {
        config.nri.request_timeout_ms = LATE_MS;
        config.nri.fail = FailPolicy::Closed;
    });
    let runtime = start(&config).await;
    let stub = Stub::start(&config, "10", "stub");
    live(&runtime, "10-stub").await;
    let pod = runtime.pod("p").await;
    let container: ContainerId = runtime.started(&pod, "c", "exec sleep 1000").await;
    for call in ["StopContainer", "RemoveContainer"] {
        stub.faults.set(call, Fault::Refuse("no".to_owned()), None);
    }
    for call in ["StopPodSandbox", "RemovePodSandbox"] {
        stub.faults.set(call, Fault::Hang, None);
    }
    runtime.remove_container(&container, IfRunning::Kill).await.expect("removed");
    runtime.remove_sandbox(&pod).await.expect("removed");
    world.finish(runtime).await;
}
