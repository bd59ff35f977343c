//! Pulls an image and runs it. Needs root, and a registry.
//!
//! ```console
//! # cargo run -p mainstay --example image busybox:latest
//! ```

use mainstay::{
    Config, ContainerSpec, ImageRoot, LogOptions, PullProgress, PullSpec, Rootfs, Runtime, SandboxSpec,
    Shutdown,
};

#[tokio::main(flavor = "current_thread")]
async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().ok_or("usage: image IMAGE [COMMAND…]")?.parse::<mainstay::ImageName>()?;
    let directory = tempfile::tempdir()?;
    let runtime = Runtime::start(Config::beside(directory.path(), "/mainstay-example-image")).await?;

    // Whoever pulls the same image at the same time shares the work; dropping the pull is leaving it.
    let mut pull = runtime.pull_image(PullSpec::new(name.clone()));
    while let Some(progress) = pull.progress().await {
        if let PullProgress::Part { part, activity, bytes, .. } = progress {
            println!("{part}: {activity:?}, {bytes} bytes");
        }
    }
    println!("{}", pull.image().await?);

    // What to run, as whom and where is what the image says, unless it is said here.
    let pod = runtime.run_sandbox(SandboxSpec::new("example".parse()?)).await?;
    let root = ImageRoot { image: name, entrypoint: None };
    let spec = ContainerSpec {
        rootfs: Rootfs::Image(root),
        ..ContainerSpec::new("container".parse()?, arguments.collect::<Vec<_>>())
    };
    let container = runtime.create_container(&pod, spec).await?;
    runtime.start_container(&container).await?;
    println!("{}", runtime.wait(&container).await?);
    let mut logs = runtime.logs(&container, LogOptions::default()).await?;
    while let Some(record) = logs.next().await? {
        println!("{}", String::from_utf8_lossy(&record.bytes));
    }
    runtime.remove_sandbox(&pod).await?;
    runtime.close(Shutdown::StopContainers).await?;
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // First thing, before tokio starts its threads: the shim of a pod is this very program, started again.
    mainstay::init();
    run()
}
