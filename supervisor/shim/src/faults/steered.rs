//! The fault points themselves.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use mainstay_messages::{Error, Result};
use rustix::process::{Signal, getpid, kill_process};

/// The environment variable that names the directory with the faults.
pub const FAULTS_DIRECTORY: &str = "MAINSTAY_FAULTS";
/// The ending that the file of a point gets while it is held.
pub const HELD: &str = ".held";
/// Time between two looks whether a point is still held.
const HELD_LOOK: Duration = Duration::from_millis(5);

static DIRECTORY: LazyLock<Option<PathBuf>> =
    LazyLock::new(|| std::env::var_os(FAULTS_DIRECTORY).map(PathBuf::from));

/// Before or after something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Before it.
    Before,
    /// After it has worked.
    After,
}

/// What the caller has to do about a fault that lets it go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passed {
    /// Nothing.
    Once,
    /// Do it a second time.
    Again,
}

/// What is set at a point.
enum Fault {
    None,
    Fail,
    Repeat,
    Hang { until_gone: PathBuf },
}

impl Moment {
    /// Both, in their order.
    pub const ALL: [Self; 2] = [Self::Before, Self::After];

    /// Its part of a point's name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::After => "after",
        }
    }
}

/// The name of a point of a durable write.
pub fn write_point(name: &str, moment: Moment) -> String {
    format!("write.{name}.{}", moment.word())
}

/// The directory with the faults; none when nobody wants any.
pub fn directory() -> Option<&'static Path> {
    DIRECTORY.as_deref()
}

/// Whether a fault is set at a point.
pub fn is_set(point: &str) -> bool {
    DIRECTORY.as_ref().is_some_and(|directory| directory.join(point).exists())
}

/// Passes a point. The error is the fault that a test has set there.
pub async fn reach(point: &str) -> Result<Passed> {
    match strike(point) {
        Fault::Hang { until_gone } => {
            while until_gone.exists() {
                tokio::time::sleep(HELD_LOOK).await;
            }
            Ok(Passed::Once)
        }
        fault => fault.passed(point),
    }
}

/// The same in a thread that blocks.
pub fn reach_now(point: &str) -> Result<Passed> {
    match strike(point) {
        Fault::Hang { until_gone } => {
            while until_gone.exists() {
                std::thread::sleep(HELD_LOOK);
            }
            Ok(Passed::Once)
        }
        fault => fault.passed(point),
    }
}

impl Fault {
    fn passed(self, point: &str) -> Result<Passed> {
        match self {
            Self::None | Self::Hang { .. } => Ok(Passed::Once),
            Self::Repeat => Ok(Passed::Again),
            Self::Fail => Err(Error::unavailable(format!("the point {point}"), "a test wants it to fail")),
        }
    }
}

/// Reads the file of a point and takes it away.
fn strike(point: &str) -> Fault {
    let Some(file) = DIRECTORY.as_ref().map(|directory| directory.join(point)) else { return Fault::None };
    let Ok(text) = fs::read_to_string(&file) else { return Fault::None };
    let (kind, times) = text.trim().split_once(' ').unwrap_or((text.trim(), "1"));
    if kind == "hang" {
        let mut held = file.as_os_str().to_owned();
        held.push(HELD);
        let renamed = fs::rename(&file, &held);
        renamed.expect("the directory of the faults can be written");
        return Fault::Hang { until_gone: held.into() };
    }
    match times.parse::<u32>().expect("a number of times") {
        0 | 1 => fs::remove_file(&file),
        times => fs::write(&file, format!("{kind} {}", times - 1)),
    }
    .expect("the directory of the faults can be written");
    match kind {
        "fail" => Fault::Fail,
        "repeat" => Fault::Repeat,
        "kill" => {
            // A program can always kill itself.
            let _ = kill_process(getpid(), Signal::KILL);
            Fault::None
        }
        other => panic!("{file:?}: {other:?} is no fault; expected fail, repeat, hang or kill"),
    }
}
