//! How long a pod takes to come and to go. Prints numbers, and asserts none:
//! `cargo test -p mainstay-network --test kernel -- --ignored --nocapture figures`.

use std::time::{Duration, Instant};

use mainstay_network::AttachSpec;

use crate::world::{Namespace, World, pod};

const PODS: usize = 40;

fn p50(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

#[test]
#[ignore = "prints numbers"]
fn figures() {
    let Some(world) = World::new() else { return };
    let network = world.open();
    let (mut attaches, mut detaches) = (Vec::new(), Vec::new());
    for number in 0..PODS {
        let (id, inside) = (pod(&format!("pod-{number}")), Namespace::make());
        let began = Instant::now();
        network.attach(&id, inside.fd(), &AttachSpec::default()).expect("attached");
        attaches.push(began.elapsed());
        let began = Instant::now();
        network.detach(&id).expect("detached");
        detaches.push(began.elapsed());
    }
    println!("attach p50 {:?}, detach p50 {:?}, of {PODS} pods", p50(attaches), p50(detaches));
}
