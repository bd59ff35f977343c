//! What plugins of all ages are told.

use mainstay_nri::link::{ContainerNotice, PodNotice};
use mainstay_nri_plugin::Way;
use mainstay_nri_plugin::api::{
    CreateContainerRequest, Event, LinuxResources, StopContainerRequest, UpdateContainerRequest,
    ValidateContainerAdjustmentRequest,
};
use mainstay_nri_plugin::faults::{Faults, Told};

use crate::world::{AMPLE, World, container, pod};

const POD_NOTICES: [PodNotice; 4] =
    [PodNotice::Run, PodNotice::PostUpdate, PodNotice::Stop, PodNotice::Remove];
const CONTAINER_NOTICES: [ContainerNotice; 5] = [
    ContainerNotice::PostCreate,
    ContainerNotice::Start,
    ContainerNotice::PostStart,
    ContainerNotice::PostUpdate,
    ContainerNotice::Remove,
];

/// Tells a plugin everything, and looks at what it heard.
async fn everything(faults: &Faults) -> Vec<Told> {
    let world = World::new();
    let (link, _updates) = world.obedient(faults).await;
    for notice in POD_NOTICES {
        link.pod_notice(notice, pod("p1"), AMPLE).await.expect("told");
    }
    for notice in CONTAINER_NOTICES {
        link.container_notice(notice, pod("p1"), container("c1"), AMPLE).await.expect("told");
    }
    let (some_pod, some_container) = (Some(pod("p1")).into(), Some(container("c1")).into());
    let request = CreateContainerRequest { pod: some_pod, container: some_container, ..Default::default() };
    link.create_container(&request, AMPLE).await.expect("asked");
    let CreateContainerRequest { pod: some_pod, container: some_container, .. } = request;
    let request = UpdateContainerRequest { pod: some_pod, container: some_container, ..Default::default() };
    link.update_container(&request, AMPLE).await.expect("asked");
    let UpdateContainerRequest { pod: some_pod, container: some_container, .. } = request;
    let request = StopContainerRequest { pod: some_pod, container: some_container, ..Default::default() };
    link.stop_container(&request, AMPLE).await.expect("asked");
    for _ in 0..2 {
        let (overhead, resources) = (LinuxResources::default(), LinuxResources::default());
        link.update_pod_sandbox(pod("p1"), overhead, resources, AMPLE).await.expect("told");
        let request =
            ValidateContainerAdjustmentRequest { pod: Some(pod("p1")).into(), ..Default::default() };
        let answer = link.validate_container_adjustment(&request, AMPLE).await.expect("asked");
        assert!(!answer.reject);
    }
    link.shutdown(AMPLE).await.expect("told");
    faults.told()
}

fn named(told: &[Told], call: &str) -> Vec<Told> {
    told.iter().filter(|told| told.call == call).cloned().collect()
}

#[tokio::test]
async fn a_plugin_of_today_has_a_call_for_each_event() {
    let told = everything(&Faults::default()).await;
    for event in [PodNotice::Run.event(), PodNotice::PostUpdate.event(), Event::STOP_POD_SANDBOX] {
        let expected =
            Told { call: event.name(), pod: "p1".to_owned(), container: String::new(), way: Way::OwnCall };
        assert_eq!(named(&told, event.name()), [expected]);
    }
    let once = CONTAINER_NOTICES.map(ContainerNotice::event).into_iter().chain([
        Event::CREATE_CONTAINER,
        Event::UPDATE_CONTAINER,
        Event::STOP_CONTAINER,
    ]);
    for event in once {
        let [told] = &named(&told, event.name())[..] else { panic!("{event:?}") };
        assert_eq!((told.pod.as_str(), told.container.as_str(), told.way), ("p1", "c1", Way::OwnCall));
    }
    assert_eq!(named(&told, "UpdatePodSandbox").len(), 2);
    assert_eq!(named(&told, "ValidateContainerAdjustment").len(), 2);
    assert_eq!(named(&told, "Shutdown").len(), 1);
}

/// Before 0.12 nine events came as changes of state. Who asks such a plugin by the new calls first each time makes two
/// round trips of each.
#[tokio::test]
async fn a_plugin_of_before_hears_of_the_same_as_changes_of_state() {
    let faults = Faults::default();
    faults.speak_old();
    let told = everything(&faults).await;
    for notice in POD_NOTICES {
        let [told] = &named(&told, notice.event().name())[..] else { panic!("{notice:?}") };
        assert_eq!((told.pod.as_str(), told.container.as_str(), told.way), ("p1", "", Way::StateChange));
    }
    for notice in CONTAINER_NOTICES {
        let [told] = &named(&told, notice.event().name())[..] else { panic!("{notice:?}") };
        assert_eq!((told.pod.as_str(), told.container.as_str(), told.way), ("p1", "c1", Way::StateChange));
    }
    for own in ["CreateContainer", "UpdateContainer", "StopContainer"] {
        assert_eq!(named(&told, own)[0].way, Way::OwnCall);
    }
    // There is nothing that they could be told instead.
    assert_eq!(named(&told, "UpdatePodSandbox"), []);
    assert_eq!(named(&told, "ValidateContainerAdjustment"), []);
}

#[tokio::test]
async fn what_a_plugin_does_not_know_is_remembered() {
    let (world, faults) = (World::new(), Faults::default());
    faults.speak_old();
    let (link, _updates) = world.obedient(&faults).await;
    assert!(!link.hears_state_changes() && link.wants(Event::UPDATE_POD_SANDBOX));
    link.pod_notice(PodNotice::Run, pod("p1"), AMPLE).await.expect("told");
    assert!(link.hears_state_changes());
    link.update_pod_sandbox(pod("p1"), LinuxResources::default(), LinuxResources::default(), AMPLE)
        .await
        .expect("nothing to tell");
    assert!(!link.wants(Event::UPDATE_POD_SANDBOX) && link.wants(Event::VALIDATE_CONTAINER_ADJUSTMENT));
    assert!(link.wants(Event::RUN_POD_SANDBOX));
}
