//! Runs commands in a container: one for its output, one to talk to. Needs root.
//!
//! ```console
//! # cargo run -p mainstay --example exec
//! ```

use mainstay::{
    Config, ContainerSpec, ExecSpec, IfRunning, OutputStream, Runtime, SandboxSpec, SessionItem, Shutdown,
    Stdin,
};

#[tokio::main(flavor = "current_thread")]
async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let runtime = Runtime::start(Config::beside(directory.path(), "/mainstay-example-exec")).await?;
    let pod = runtime.run_sandbox(SandboxSpec::new("workshop".parse()?)).await?;
    let spec = ContainerSpec::new("bench".parse()?, ["sleep", "infinity"]);
    let container = runtime.create_container(&pod, spec).await?;
    runtime.start_container(&container).await?;

    // A command that is run to its end, with all that it wrote.
    let output =
        runtime.exec_output(&container, ExecSpec::new(["sh", "-c", "echo $((6 * 7)); exit 3"])).await?;
    println!("{}: {:?}", output.exit, String::from_utf8_lossy(&output.stdout));

    // A command to talk to. Its two directions are apart, so that each can wait without the other.
    let sort = ExecSpec { stdin: Stdin::Once, ..ExecSpec::new(["sort"]) };
    let (mut reader, mut writer) = runtime.exec(&container, sort).await?.split();
    writer.write(b"pear\napple\n").await?;
    writer.close_stdin().await?;
    while let Some(item) = reader.next().await? {
        match item {
            SessionItem::Output { stream: OutputStream::Stdout, bytes } => {
                print!("{}", String::from_utf8_lossy(&bytes));
            }
            SessionItem::Output { stream: OutputStream::Stderr, bytes } => {
                eprint!("{}", String::from_utf8_lossy(&bytes));
            }
            SessionItem::CutOff { bytes } => println!("{bytes} bytes are missing"),
            SessionItem::Exited(exit) => println!("sort {exit}"),
        }
    }

    runtime.remove_container(&container, IfRunning::Kill).await?;
    runtime.remove_sandbox(&pod).await?;
    runtime.close(Shutdown::StopContainers).await?;
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // First thing, before tokio starts its threads: the shim of a pod is this very program, started again.
    mainstay::init();
    run()
}
