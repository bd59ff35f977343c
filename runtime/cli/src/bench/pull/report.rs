//! What the pull benchmark has measured, and how it is shown.

use std::time::Duration;

use serde::Serialize;

use super::Shape;
use super::image::Bytes;
use super::stages::{Stages, Taken};
use crate::bench::series::{Series, Summary};

/// What a stage took.
type OfStage = fn(&Stages) -> Taken;

/// The stages, by the names that they are shown with.
const STAGES: [(&str, OfStage); 5] = [
    ("receive", |stages| stages.receive),
    ("hash", |stages| stages.hash),
    ("inflate", |stages| stages.inflate),
    ("write", |stages| stages.write),
    ("sync", |stages| stages.sync),
];

/// The measurements of all rounds.
#[derive(Debug, Default)]
pub struct Rounds {
    pub pulls: Vec<Duration>,
    pub present: Vec<Duration>,
    pub cpu: Vec<Duration>,
    pub stages: Vec<Stages>,
    /// The most memory that a pull took, in bytes.
    pub peaks: Vec<u64>,
    pub bytes: Bytes,
}

/// What is said of them. Rates are those of the archives' bytes, so that they can be compared.
#[derive(Debug, Serialize)]
pub struct Report {
    shape: Shape,
    bytes: Bytes,
    /// A pull into an empty store.
    pull: Rate,
    /// Time of the processors for it, in this process.
    cpu: Summary,
    /// What each stage takes alone.
    stages: Vec<Stage>,
    /// Median of the pull to that of the slowest stage.
    ratio_to_slowest_stage: f64,
    /// Median of the processors' time for the pull to that for all stages together.
    ratio_of_work: f64,
    /// A pull of the image that is there.
    present: Summary,
    /// The most memory that the process had more than before a pull, in KiB.
    peak_growth_kib: u64,
}

#[derive(Debug, Serialize)]
struct Rate {
    #[serde(flatten)]
    summary: Summary,
    mb_per_second: f64,
}

#[derive(Debug, Serialize)]
struct Stage {
    name: &'static str,
    #[serde(flatten)]
    rate: Rate,
    /// Time of the processors.
    cpu: Summary,
}

impl Rounds {
    /// Nothing when there was no round.
    pub fn report(self, shape: Shape) -> Option<Report> {
        let rate = |times: &mut dyn Iterator<Item = Duration>| {
            let summary = times.collect::<Series>().summary()?;
            let mb_per_second = self.bytes.content as f64 / summary.p50_us.max(1) as f64;
            Some(Rate { summary, mb_per_second })
        };
        let stages = STAGES
            .into_iter()
            .map(|(name, of)| {
                let taken = || self.stages.iter().map(of);
                let cpu = taken().map(|taken| taken.cpu).collect::<Series>().summary()?;
                Some(Stage { name, rate: rate(&mut taken().map(|taken| taken.time))?, cpu })
            })
            .collect::<Option<Vec<_>>>()?;
        let pull = rate(&mut self.pulls.iter().copied())?;
        let p50 = |stage: &Stage| stage.rate.summary.p50_us;
        let slowest = stages.iter().map(p50).max()?.max(1);
        let work: u64 = stages.iter().map(|stage| stage.cpu.p50_us).sum();
        let cpu = self.cpu.into_iter().collect::<Series>().summary()?;
        Some(Report {
            shape,
            bytes: self.bytes,
            ratio_to_slowest_stage: pull.summary.p50_us as f64 / slowest as f64,
            ratio_of_work: cpu.p50_us as f64 / work.max(1) as f64,
            pull,
            cpu,
            stages,
            present: self.present.into_iter().collect::<Series>().summary()?,
            peak_growth_kib: self.peaks.into_iter().max()? / 1024,
        })
    }
}

/// Shows it to people.
pub fn print_table(report: &Report) {
    let ms = |us: u64| format!("{}.{:02}", us / 1000, us % 1000 / 10);
    let Report { shape, bytes, .. } = report;
    let mb = |bytes: u64| bytes as f64 / 1e6;
    println!(
        "{} layers, {} files, {:.1} MB of archives in {:.1} MB of blobs",
        shape.layers,
        shape.files,
        mb(bytes.content),
        mb(bytes.blobs)
    );
    println!("{:<26}{:>10}{:>10}{:>10}{:>16}", "", "p50 (ms)", "max", "MB/s", "processor (ms)");
    let row = |name: &str, rate: &Rate, cpu: &Summary| {
        let Rate { summary, mb_per_second } = rate;
        let (p50, max, cpu) = (ms(summary.p50_us), ms(summary.max_us), ms(cpu.p50_us));
        println!("{name:<26}{p50:>10}{max:>10}{mb_per_second:>10.1}{cpu:>16}");
    };
    row("pull", &report.pull, &report.cpu);
    for stage in &report.stages {
        row(&format!("  {} alone", stage.name), &stage.rate, &stage.cpu);
    }
    println!(
        "{:<26}{:>10}{:>10}",
        "image already there",
        ms(report.present.p50_us),
        ms(report.present.max_us)
    );
    println!(
        "a pull takes {:.2} times the slowest stage, and {:.2} times the processors' work of all; {:.1} MiB of memory",
        report.ratio_to_slowest_stage,
        report.ratio_of_work,
        report.peak_growth_kib as f64 / 1024.0
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::pull::Compression;

    #[test]
    fn the_ratio_is_that_of_the_medians() {
        let ms = Duration::from_millis;
        let taken = |time, cpu| Taken { time: ms(time), cpu: ms(cpu) };
        let rounds = Rounds {
            pulls: vec![ms(30), ms(20), ms(90)],
            present: vec![ms(1); 3],
            cpu: vec![ms(25); 3],
            stages: vec![Stages { inflate: taken(20, 15), write: taken(5, 5), ..Stages::default() }; 3],
            peaks: vec![1 << 20, 3 << 20, 2 << 20],
            bytes: Bytes { blobs: 1_000_000, content: 3_000_000 },
        };
        let shape =
            Shape { layers: 1, size_mib: 3, files: 1, compressible: 0, compression: Compression::Plain };
        let report = rounds.report(shape).expect("three rounds");
        assert_eq!((report.ratio_to_slowest_stage, report.pull.mb_per_second), (1.5, 100.0));
        assert_eq!((report.ratio_of_work, report.peak_growth_kib), (1.25, 3072));
    }
}
