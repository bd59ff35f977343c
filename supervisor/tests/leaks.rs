//! What an audit finds too much of is removed while nobody else works on its pod.

mod world;

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

use mainstay_messages::audit::Leak;
use mainstay_messages::network::PodNetwork;
use mainstay_messages::spec::Network;
use mainstay_messages::supervisor::{LaunchShim, PodEnd, RemoveLeak, StopShim, TakeInventory};
use mainstay_messages::{Result, SandboxId};
use mainstay_supervisor::{NetworkThings, PodNetworks, PodToAttach};
use world::{World, until};

/// A network that takes as long to take a pod as the test wants.
#[derive(Debug, Default)]
struct Slow {
    log: Mutex<Vec<&'static str>>,
    may_end: Mutex<bool>,
    changed: Condvar,
}

impl Slow {
    fn note(&self, what: &'static str) {
        self.log.lock().expect("no panic").push(what);
    }

    fn has_noted(&self, what: &str) -> bool {
        self.log.lock().expect("no panic").contains(&what)
    }

    fn let_it_end(&self) {
        *self.may_end.lock().expect("no panic") = true;
        self.changed.notify_all();
    }
}

impl PodNetworks for Slow {
    fn attach(&self, pod: &PodToAttach<'_>) -> Result<PodNetwork> {
        self.note("attach begins");
        let may_end = self.may_end.lock().expect("no panic");
        drop(self.changed.wait_while(may_end, |may_end| !*may_end).expect("no panic"));
        self.note("attach ends");
        Ok(PodNetwork {
            name: "slow".into(),
            namespace: pod.name.to_owned(),
            link: "eth0".into(),
            ips: Vec::new(),
            mac: None,
            mtu: None,
            dns: Default::default(),
        })
    }

    fn holds(&self, _: &SandboxId) -> bool {
        true
    }

    fn detach(&self, _: &SandboxId, _: Option<&Path>) -> Result<()> {
        Ok(())
    }

    fn remove_leak(&self, _: &SandboxId, _: Option<&Path>) -> Result<()> {
        self.note("the leak is removed");
        Ok(())
    }

    fn things(&self) -> NetworkThings {
        NetworkThings::default()
    }
}

/// The repair of a leaked network did not wait for its turn: it could take away the name of a namespace, and what a saga of the
/// same pod was just making.
#[actix::test]
async fn the_network_of_a_pod_is_not_taken_while_a_saga_gives_it_one() {
    let Some(world) = World::new() else { return };
    let networks = Arc::new(Slow::default());
    let supervisor = world.supervisor_on(Arc::<Slow>::clone(&networks), 0).await;
    let mut record = world.sandbox("pod");
    record.spec.network = Network::Builtin;
    let sandbox = record.id.clone();
    let launched = tokio::spawn(supervisor.address.send(LaunchShim { record }));
    until("the pod is being given its network", || networks.has_noted("attach begins")).await;
    let leak = Leak::Network { sandbox: sandbox.clone() };
    let removed = tokio::spawn(supervisor.address.send(RemoveLeak { leak }));
    // Whoever does not wait has done it by the time that this is answered.
    supervisor.done(TakeInventory { processes: Vec::new() }).await;
    networks.let_it_end();
    launched.await.expect("no panic").expect("answered").expect("launched");
    removed.await.expect("no panic").expect("answered").expect("removed");
    let log = networks.log.lock().expect("no panic").clone();
    assert_eq!(log, ["attach begins", "attach ends", "the leak is removed"]);
    supervisor.done(StopShim { sandbox, end: PodEnd::Removed }).await;
}
