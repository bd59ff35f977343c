//! The pull benchmark: an image that is made for it, from a registry on the loopback network, into an empty store; with what
//! each stage takes alone beside it, in the same run, and the same image again when it is there.
//!
//! ```text
//!   registry (a process of its own) ── blobs ──► this process: pull ─► remove, collect ─► the stages, each alone ─┐
//!                                                     ▲                                        every round      │
//!                                                     └──────────────────────────────────────────────────────────┘
//! ```
//!
//! | module | owns |
//! |---|---|
//! | `image` | the image: its files, its layers, its manifest |
//! | `registry` | the process that makes the image and serves it |
//! | `stages` | what each stage takes alone |
//! | `report` | what was measured, and how it is shown |

mod image;
mod registry;
mod report;
mod stages;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use mainstay::{Config, Runtime, Shutdown};
use mainstay_messages::image::{ImageName, PullSpec};
use serde::Serialize;

pub use registry::run as run_registry;

use super::memory;
use crate::arguments::Format;
use image::Made;
use registry::Registry;
use report::{Rounds, print_table};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Options of the pull benchmark.
#[derive(Clone, Debug, Args)]
pub struct Pull {
    /// What the image is like.
    #[command(flatten)]
    pub shape: Shape,
    /// How often it is pulled, after one round that does not count.
    #[arg(long, default_value_t = 5)]
    pub rounds: u32,
    /// Where the runtime and the image are kept meanwhile.
    #[arg(long, default_value = "/var/tmp")]
    pub directory: PathBuf,
}

/// What an image is like. The same shape is the same image, byte by byte.
#[derive(Clone, Copy, Debug, Args, Serialize)]
pub struct Shape {
    /// Layers, from 1 to 100.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub layers: u32,
    /// MiB of all files together.
    #[arg(long, default_value_t = 100)]
    pub size_mib: u32,
    /// Files in all layers together; each layer has one at least.
    #[arg(long, default_value_t = 1000)]
    pub files: u32,
    /// Percent of the bytes that compress well; the others not at all.
    #[arg(long, default_value_t = 75, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub compressible: u32,
    /// How the layers are compressed.
    #[arg(long, value_enum, default_value_t = Compression::Gzip)]
    pub compression: Compression,
}

/// How layers are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// By gzip, level 6.
    Gzip,
    /// By zstd, level 3.
    Zstd,
    /// Not at all.
    Plain,
}

/// Options of the registry.
#[derive(Clone, Debug, Args)]
pub struct RegistryOptions {
    /// What the image is like.
    #[command(flatten)]
    pub shape: Shape,
    /// An empty directory for the image.
    #[arg(long)]
    pub directory: PathBuf,
}

/// Measures, and prints a table or, for programs, one JSON document.
pub async fn run(options: &Pull, format: Format) -> Outcome<()> {
    let directory = options.directory.join(format!("mainstay-bench-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let outcome = measure(options, &directory).await;
    std::fs::remove_dir_all(&directory)?;
    let report = outcome?.report(options.shape).ok_or("no round")?;
    match format {
        Format::Json => println!("{}", serde_json::to_string(&report)?),
        Format::Text => print_table(&report),
    }
    Ok(())
}

async fn measure(options: &Pull, directory: &Path) -> Outcome<Rounds> {
    let registry = Registry::start(&options.shape, &directory.join("image"))?;
    let config = Config::beside(directory, format!("/mainstay-bench-{}", std::process::id()));
    let runtime = Runtime::start(config).await?;
    let outcome = measure_on(&runtime, options, &registry, directory).await;
    runtime.close(Shutdown::StopContainers).await?;
    outcome
}

async fn measure_on(
    runtime: &Runtime,
    options: &Pull,
    registry: &Registry,
    directory: &Path,
) -> Outcome<Rounds> {
    let name: ImageName = registry.name().parse()?;
    // Opens the images, and the connections; fills the caches with the files of the registry.
    one_pull(runtime, registry.made(), &name).await?;
    let mut rounds = Rounds::default();
    for _ in 0..options.rounds.max(1) {
        let pulled = one_pull(runtime, registry.made(), &name).await?;
        rounds.pulls.push(pulled.cold);
        rounds.present.push(pulled.present);
        rounds.cpu.push(pulled.cpu);
        rounds.peaks.push(pulled.peak);
        let stages = stages::measure(registry, &directory.join("stages"))?;
        rounds.stages.push(stages);
    }
    rounds.bytes = registry.made().bytes();
    Ok(rounds)
}

/// What one pull took.
struct Pulled {
    /// Into an empty store.
    cold: Duration,
    /// Again, with all of it there.
    present: Duration,
    /// Time of the processors, of this process alone.
    cpu: Duration,
    /// The most memory that this process had more than before, in bytes.
    peak: u64,
}

async fn one_pull(runtime: &Runtime, made: &Made, name: &ImageName) -> Outcome<Pulled> {
    let pull = || async { runtime.pull_image(PullSpec::new(name.clone())).image().await };
    // What others wrote is not for this pull to sync.
    rustix::fs::sync();
    let resident = memory::restart_peak()?;
    let cpu = memory::cpu_time();
    let begun = Instant::now();
    pull().await?;
    let cold = begun.elapsed();
    let cpu = memory::cpu_time() - cpu;
    let peak = memory::peak()?.saturating_sub(resident);
    let begun = Instant::now();
    pull().await?;
    let present = begun.elapsed();
    let image = runtime.image(name).await?;
    if image.layers.len() != made.layers.len() {
        return Err(format!("the image came with {} layers", image.layers.len()).into());
    }
    runtime.remove_image(name).await?;
    runtime.collect_images().await?;
    Ok(Pulled { cold, present, cpu, peak })
}
