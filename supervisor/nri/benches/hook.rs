//! How long a hook takes, through the link to a plugin that does nothing: the floor of every event, for each plugin that
//! asked for it.

use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use futures::future::join_all;
use mainstay_nri::link::{Configuration, Link, Listener, PodNotice, Updates};
use mainstay_nri_plugin::api::{Container, CreateContainerRequest, EventMask, MessageField, PodSandbox};
use mainstay_nri_plugin::{Door, Identity, Options, Plugin, async_trait, run};

/// Far more than a call takes.
const AMPLE: Duration = Duration::from_secs(60);
/// Calls at the same time, for different pods.
const IN_PARALLEL: usize = 4;

struct Idle;

#[async_trait]
impl Plugin for Idle {
    fn events(&self) -> EventMask {
        EventMask::ALL
    }
}

/// What a pod of a usual size looks like.
fn pod() -> PodSandbox {
    let label = |n| (format!("app.example/label-{n}"), "some value of some length".to_owned());
    PodSandbox {
        id: "5c1f2a".repeat(10),
        name: "web-7d4b9c6f5-x2x8v".to_owned(),
        namespace: "default".to_owned(),
        labels: (0..8).map(label).collect(),
        annotations: (0..8).map(label).collect(),
        ..Default::default()
    }
}

fn container() -> Container {
    Container {
        id: "9e8d7c".repeat(10),
        args: vec!["sh".to_owned(), "-c".to_owned(), "exec server".to_owned()],
        env: (0..40).map(|n| format!("VARIABLE_{n}=some value of some length")).collect(),
        ..Default::default()
    }
}

/// A link to a plugin on a thread of its own, as the processes of plugins are beside the runtime.
async fn linked(listener: &Listener) -> (Link, Updates) {
    let path = listener.path().to_owned();
    std::thread::spawn(move || {
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let options = Options::new(Identity::new("10", "idle"), Door::Socket(path));
        let _ = tokio.block_on(run(Idle, options));
    });
    let accepted = listener.accept().await.expect("a connection");
    let configuration = Configuration {
        config: String::new(),
        runtime_name: "bench".to_owned(),
        runtime_version: "v0".to_owned(),
        registration_timeout: AMPLE,
        request_timeout: AMPLE,
    };
    let registered = accepted.register(AMPLE).await.expect("registered");
    registered.configure(configuration, AMPLE).await.expect("a link")
}

fn hook(criterion: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a directory");
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (link, _updates, _listener) = tokio.block_on(async {
        let listener = Listener::bind(&dir.path().join("nri.sock")).expect("a socket");
        let (link, updates) = linked(&listener).await;
        (link, updates, listener)
    });
    let notice = async || link.pod_notice(PodNotice::Run, pod(), AMPLE).await.expect("told");
    let create = CreateContainerRequest {
        pod: MessageField::some(pod()),
        container: MessageField::some(container()),
        ..Default::default()
    };

    let mut group = criterion.benchmark_group("hook");
    group.bench_function("RunPodSandbox", |bencher| {
        bencher.iter_custom(|rounds| {
            tokio.block_on(async {
                let began = Instant::now();
                for _ in 0..rounds {
                    notice().await;
                }
                began.elapsed()
            })
        });
    });
    group.bench_function("CreateContainer", |bencher| {
        bencher.iter_custom(|rounds| {
            tokio.block_on(async {
                let began = Instant::now();
                for _ in 0..rounds {
                    link.create_container(&create, AMPLE).await.expect("asked");
                }
                began.elapsed()
            })
        });
    });
    group.throughput(Throughput::Elements(IN_PARALLEL as u64));
    group.bench_function("RunPodSandbox of four pods at once", |bencher| {
        bencher.iter_custom(|rounds| {
            tokio.block_on(async {
                let began = Instant::now();
                for _ in 0..rounds {
                    join_all((0..IN_PARALLEL).map(|_| notice())).await;
                }
                began.elapsed()
            })
        });
    });
    group.finish();
}

criterion_group!(benches, hook);
criterion_main!(benches);
