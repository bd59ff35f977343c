//! What the tests of the client share: a registry that misbehaves on demand, images, a record of events.

#![allow(dead_code, unused_imports, reason = "each test program uses a part of it")]

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub use mainstay_images_testing::wait::finish;
pub use mainstay_images_testing::{content, stub};
use mainstay_oci_image::{Event, Reference, Step};
use mainstay_registry::liveness::Pace;
use mainstay_registry::retry::RetryPolicy;
use mainstay_registry::settings::Proxies;
use mainstay_registry::{Credentials, Registry, Reporter, Repository, Settings};

/// Settings under which tests need no patience, and nothing of the machine is read.
pub fn settings() -> Settings {
    Settings {
        hosts_dirs: Vec::new(),
        docker_config: None,
        proxies: Proxies::None,
        connect_timeout: Duration::from_secs(30),
        response_timeout: Duration::from_secs(30),
        pace: Pace { stall_timeout: Duration::from_secs(30), floor_bytes_per_s: 0 },
        retry: RetryPolicy {
            tries: 3,
            first: Duration::from_millis(1),
            longest: Duration::from_millis(10),
            retry_after_max: Duration::from_secs(2),
            progress_bytes: 1,
        },
        ..Settings::default()
    }
}

/// The settings with a directory of hosts.
pub fn settings_with(hosts_dir: &std::path::Path) -> Settings {
    Settings { hosts_dirs: vec![PathBuf::from(hosts_dir)], ..settings() }
}

/// Everything that was reported.
#[derive(Clone, Default)]
pub struct Events(Arc<Mutex<Vec<Event>>>);

impl Events {
    pub fn reporter(&self) -> Reporter {
        let events = Arc::clone(&self.0);
        Arc::new(move |event| events.lock().expect("not poisoned").push(event))
    }

    pub fn steps(&self) -> Vec<Step> {
        self.0.lock().expect("not poisoned").iter().map(|event| event.step.clone()).collect()
    }

    pub fn count(&self, which: impl Fn(&Step) -> bool) -> usize {
        self.steps().iter().filter(|step| which(step)).count()
    }

    pub fn retries(&self) -> usize {
        self.count(|step| matches!(step, Step::Retrying { .. }))
    }

    pub fn bytes(&self) -> u64 {
        let received = |step: &Step| if let Step::Received { bytes } = step { *bytes } else { 0 };
        self.steps().iter().map(received).sum()
    }
}

/// Opens a repository on a host.
pub async fn open(settings: Settings, name: &str, credentials: Option<Credentials>) -> (Repository, Events) {
    let events = Events::default();
    let reference: Reference = name.parse().expect("a name");
    let registry = Registry::new(settings);
    let repository = registry.open(&reference, credentials, events.reporter()).await.expect("good settings");
    (repository, events)
}
