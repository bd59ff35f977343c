//! Follows what happens to a container from its beginning to its end, then reads its log and its whole life from the
//! journal. Needs root.
//!
//! ```console
//! # cargo run -p mainstay --example events
//! ```

use mainstay::{
    Config, ContainerSpec, Journaled, LogOptions, Runtime, SandboxSpec, Shutdown, StopOptions, Subject, What,
};

#[tokio::main(flavor = "current_thread")]
async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let runtime = Runtime::start(Config::beside(directory.path(), "/mainstay-example-events")).await?;
    let pod = runtime.run_sandbox(SandboxSpec::new("pod".parse()?)).await?;

    // Entries have numbers: a program that keeps the last one it saw goes on there after a restart.
    let mut events = runtime.events_from_now(Some(Subject::Sandbox(pod.clone())));
    let spec = ContainerSpec::new("ticker".parse()?, ["sh", "-c", "while sleep 0.1; do date; done"]);
    let container = runtime.create_container(&pod, spec).await?;
    runtime.start_container(&container).await?;
    while let Some(journaled) = events.next().await? {
        match journaled {
            Journaled::Event(event) => {
                println!("{:>4}  {}  {}", event.seq, event.at, event.what);
                match event.what {
                    What::ContainerStarted { .. } => {
                        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
                        let soon =
                            StopOptions { grace: Some(std::time::Duration::ZERO), ..Default::default() };
                        runtime.stop_container(&container, soon).await?;
                    }
                    What::ContainerExited { .. } => break,
                    _ => {}
                }
            }
            Journaled::Lagged { from, to } => println!("entries {from} to {to} are no longer kept"),
        }
    }

    let mut log = runtime.logs(&container, LogOptions::default()).await?;
    while let Some(record) = log.next().await? {
        println!("{}  {}", record.at, String::from_utf8_lossy(&record.bytes));
    }
    // Also when it is gone.
    runtime.remove_sandbox(&pod).await?;
    let life = runtime.explain(Subject::Container(container)).await?;
    println!("{} entries tell its life, the last one: {}", life.len(), life.last().ok_or("none")?.what);
    runtime.close(Shutdown::StopContainers).await?;
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // First thing, before tokio starts its threads: the shim of a pod is this very program, started again.
    mainstay::init();
    run()
}
