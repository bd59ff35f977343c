//! What plugins ask for by themselves.

use mainstay_nri::link::{PodNotice, UPDATES_IN_FLIGHT_MAX, UPDATES_REFUSED_MAX};
use mainstay_nri_plugin::api::{ContainerEviction, ContainerUpdate, EventMask};
use mainstay_nri_plugin::faults::{Fault, Faults};
use mainstay_nri_plugin::{Plugin, Runtime, RuntimeError, async_trait};
use tokio::sync::mpsc;

use crate::world::{AMPLE, World, pod, within};

struct Restless(mpsc::UnboundedSender<Runtime>);

#[async_trait]
impl Plugin for Restless {
    fn events(&self) -> EventMask {
        EventMask::ALL
    }

    async fn connected(&self, runtime: Runtime) {
        let _ = self.0.send(runtime);
    }
}

fn update(id: &str) -> ContainerUpdate {
    ContainerUpdate { container_id: id.to_owned(), ..Default::default() }
}

#[tokio::test]
async fn a_plugin_asks_and_is_answered() {
    let world = World::new();
    let (sender, mut runtimes) = mpsc::unbounded_channel();
    let (_link, mut updates) = world.link(Restless(sender), &Faults::default()).await.expect("a link");
    let runtime = within(runtimes.recv()).await.expect("a runtime");

    let eviction = ContainerEviction { container_id: "c3".to_owned(), ..Default::default() };
    let asked = runtime.update_containers(vec![update("c1"), update("c2")], vec![eviction], AMPLE);
    let answered = async {
        let request = within(updates.next()).await.expect("a request");
        assert_eq!(request.request.update.len(), 2);
        assert_eq!(request.request.evict[0].container_id, "c3");
        request.done(vec![update("c2")]);
    };
    let (failed, ()) = tokio::join!(asked, answered);
    assert_eq!(failed, Ok(vec![update("c2")]));

    let asked = runtime.update_containers(vec![update("c1")], Vec::new(), AMPLE);
    let (refused, ()) = tokio::join!(asked, async {
        within(updates.next()).await.expect("a request").refuse("the store is full");
    });
    assert_eq!(refused, Err(RuntimeError::Refused("the store is full".to_owned())));

    drop(updates);
    let asked = runtime.update_containers(vec![update("c1")], Vec::new(), AMPLE).await;
    assert!(matches!(asked, Err(RuntimeError::Refused(_))), "{asked:?}");
}

#[tokio::test]
async fn more_than_so_many_at_once_are_refused_and_a_plugin_that_goes_on_is_cut_off() {
    let (world, faults) = (World::new(), Faults::default());
    let few = 10 * UPDATES_IN_FLIGHT_MAX as u32;
    faults.set("StopPodSandbox", Fault::Flood(few), None);
    faults.set("RemovePodSandbox", Fault::Flood(UPDATES_REFUSED_MAX + few), None);
    let (link, mut updates) = world.obedient(&faults).await;
    // It answers when all its requests are answered.
    let told = link.pod_notice(PodNotice::Stop, pod("p1"), AMPLE);
    tokio::pin!(told);
    let mut taken = 0;
    loop {
        tokio::select! {
            told = &mut told => break told.expect("told"),
            request = updates.next() => {
                request.expect("a request").done(Vec::new());
                taken += 1;
            }
        }
    }
    assert!(taken >= UPDATES_IN_FLIGHT_MAX, "{taken}");
    let told = link.pod_notice(PodNotice::Remove, pod("p1"), AMPLE).await.expect_err("cut off");
    assert!(told.to_string().contains("the plugin floods"), "{told}");
}
