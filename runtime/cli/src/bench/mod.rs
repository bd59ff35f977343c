//! `mainstay bench`: measures the product, with what the kernel itself takes beside it, in one run.
//!
//! It embeds the runtime in this process, or starts this program as a daemon; nothing here is on the path that it measures.

mod cgroups;
mod churn;
mod floor;
mod handlers;
mod lifecycle;
mod memory;
mod plugins;
mod pull;
mod restart;
mod series;

use std::error::Error;
use std::ffi::CString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use mainstay::{Config, ContainerSpec};

use crate::arguments::container::NetworkName;

/// What is measured.
#[derive(Clone, Debug, Subcommand)]
pub enum Bench {
    /// Pods and containers: to running, exit latency, stop, remove; with the floor of the kernel beside it.
    Lifecycle(Lifecycle),
    /// What plugins cost a pod: without any, and with so many, in turns.
    Plugins(PluginsOptions),
    /// A daemon with many pods is killed: how soon the next one is ready, and has adopted them.
    Restart(Restart),
    /// Many pods are run and removed: what is there before and after, and what the durable writes cost.
    Churn(Churn),
    /// An image from a registry on the loopback network, with what each stage takes alone beside it.
    Pull(Pull),
    /// The floor alone: clone, mounts and exec in five new namespaces. Runs in a process of its own.
    #[command(hide = true)]
    Floor(Floor),
    /// The registry of the pull benchmark. Runs in a process of its own.
    #[command(hide = true)]
    Registry(RegistryOptions),
}

/// Options of the life cycle benchmark.
#[derive(Clone, Debug, Args)]
pub struct Lifecycle {
    /// Pods, each with one container, in each of the two rounds (one after the other, and in parallel).
    #[arg(long, default_value_t = 100)]
    pub pods: u32,
    /// Pods at the same time in the second round.
    #[arg(long, default_value_t = 4)]
    pub parallel: u32,
    /// Pods that are kept running while memory is measured; 0 leaves it out.
    #[arg(long, default_value_t = 100)]
    pub memory_pods: u32,
    /// What runs the containers, several beside each other in one run: `mainstay`, a program with the command line of runc, or a
    /// shim of containerd's, by its path, name or type.
    #[arg(long = "handler", value_delimiter = ',', value_name = "HANDLER,...")]
    pub handlers: Vec<String>,
    /// The network of the pods. Other than none it is in a network namespace of this process's own.
    #[arg(long, value_enum, default_value = "none")]
    pub network: NetworkName,
    /// Where the list of CNI plugins is.
    #[arg(long, default_value = "/etc/cni/net.d")]
    pub cni_conf_dir: PathBuf,
    /// Where the runtime keeps its files meanwhile.
    #[arg(long, default_value = "/var/tmp")]
    pub directory: PathBuf,
}

/// Options of the benchmark of plugins.
#[derive(Clone, Debug, Args)]
pub struct PluginsOptions {
    /// Pods in each of the rounds (one after the other, in parallel, refused), with each number of plugins.
    #[arg(long, default_value_t = 50)]
    pub pods: u32,
    /// Pods at the same time in the second round.
    #[arg(long, default_value_t = 4)]
    pub parallel: u32,
    /// How many plugins, beside a runtime that listens for none.
    #[arg(long, value_delimiter = ',', value_name = "N,...", default_value = "0,1,5")]
    pub counts: Vec<u8>,
    /// The network of the pods. Other than none it is in a network namespace of this process's own.
    #[arg(long, value_enum, default_value = "none")]
    pub network: NetworkName,
    /// Where the list of CNI plugins is.
    #[arg(long, default_value = "/etc/cni/net.d")]
    pub cni_conf_dir: PathBuf,
    /// Where the runtimes keep their files meanwhile.
    #[arg(long, default_value = "/var/tmp")]
    pub directory: PathBuf,
}

/// Options of the restart benchmark.
#[derive(Clone, Debug, Args)]
pub struct Restart {
    /// Pods, each with one container.
    #[arg(long, default_value_t = 100)]
    pub pods: u32,
    /// How often the daemon is killed and started.
    #[arg(long, default_value_t = 5)]
    pub rounds: u32,
    /// Where the daemon keeps its files meanwhile.
    #[arg(long, default_value = "/var/tmp")]
    pub directory: PathBuf,
}

/// Options of the churn benchmark.
#[derive(Clone, Debug, Args)]
pub struct Churn {
    /// Pods, each with one container.
    #[arg(long, default_value_t = 1000)]
    pub pods: u32,
    /// Pods at the same time.
    #[arg(long, default_value_t = 4)]
    pub parallel: u32,
    /// Where the runtime keeps its files meanwhile.
    #[arg(long, default_value = "/var/tmp")]
    pub directory: PathBuf,
}

/// Options of the floor.
#[derive(Clone, Debug, Args)]
pub struct Floor {
    /// How often.
    #[arg(long)]
    pub rounds: u32,
    /// An empty directory to work in.
    #[arg(long)]
    pub directory: PathBuf,
}

/// Prints one time in microseconds a line, for `lifecycle` to read.
pub fn run_floor(options: &Floor) -> ExitCode {
    let measured = floor_in(options);
    match measured {
        Ok(times) => {
            for time in times {
                println!("{}", time.as_micros());
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("mainstay: bench floor in {}: {error}", options.directory.display());
            ExitCode::FAILURE
        }
    }
}

fn floor_in(options: &Floor) -> std::io::Result<Vec<std::time::Duration>> {
    for name in ["upper", "work", "merged"] {
        std::fs::create_dir_all(options.directory.join(name))?;
    }
    let dir = options.directory.display();
    let overlay = CString::new(format!("lowerdir=/,upperdir={dir}/upper,workdir={dir}/work"))?;
    let target = CString::new(format!("{dir}/merged"))?;
    floor::measure(options.rounds, &overlay, &target)
}

/// The network of one of several runtimes beside each other: bridge, rules and addresses are its own.
fn own_network(config: &mut Config, network: &NetworkName, index: u8) -> Result<(), Box<dyn Error>> {
    config.network.default = network.kind();
    config.network.bridge = format!("msbench{index}");
    config.network.table = format!("msbench{index}");
    config.network.ipv4 = Some(format!("10.{}.0.0/16", 100 + index).parse()?);
    Ok(())
}

/// What runs in the containers of a benchmark: it sleeps until it is killed.
fn sleeper() -> Result<ContainerSpec, Box<dyn Error>> {
    Ok(ContainerSpec::new("main".parse()?, ["sleep", "1000000"]))
}

pub use churn::run as run_churn;
pub use lifecycle::run as run_lifecycle;
pub use plugins::run as run_plugins;
pub use pull::{Pull, RegistryOptions, run as run_pull, run_registry};
pub use restart::run as run_restart;
