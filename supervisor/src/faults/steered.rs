//! The fault points themselves.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use mainstay_messages::event::Way;
use mainstay_messages::{Error, Result};
use rustix::process::{Signal, getpid, kill_process};

use crate::launch::RUN_POD;
use crate::task::CREATE_CONTAINER;

/// The environment variable that names the directory with the faults.
pub const FAULTS_DIRECTORY: &str = "MAINSTAY_FAULTS";
/// The ending that the file of a point gets while it is held.
pub const HELD: &str = ".held";
/// Time between two looks whether a point is still held, in milliseconds.
const HELD_LOOK_MS: u64 = 5;

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

/// All points of the sagas, in the order of their steps.
pub fn points() -> Vec<String> {
    RUN_POD.points().chain(CREATE_CONTAINER.points()).collect()
}

/// The name of a point of a step.
pub(crate) fn step_point(saga: &str, step: &str, way: Way, moment: Moment) -> String {
    match way {
        Way::Act => format!("{saga}.{step}.{}", moment.word()),
        Way::Undo => format!("{saga}.{step}.undo.{}", moment.word()),
    }
}

/// Whether a fault is set at a point.
pub fn is_set(point: &str) -> bool {
    DIRECTORY.as_ref().is_some_and(|directory| directory.join(point).exists())
}

/// Passes a point. The error is the fault that a test has set there.
pub async fn reach(point: &str) -> Result<Passed> {
    let Some(directory) = DIRECTORY.as_ref() else { return Ok(Passed::Once) };
    match strike(&directory.join(point)) {
        Fault::None => Ok(Passed::Once),
        Fault::Repeat => Ok(Passed::Again),
        Fault::Fail => Err(Error::unavailable(format!("the point {point}"), "a test wants it to fail")),
        Fault::Hang { until_gone } => {
            while until_gone.exists() {
                tokio::time::sleep(Duration::from_millis(HELD_LOOK_MS)).await;
            }
            Ok(Passed::Once)
        }
    }
}

/// Reads the file of a point and takes it away.
fn strike(file: &Path) -> Fault {
    let Ok(text) = fs::read_to_string(file) else { return Fault::None };
    let (kind, times) = text.trim().split_once(' ').unwrap_or((text.trim(), "1"));
    if kind == "hang" {
        let mut held = file.as_os_str().to_owned();
        held.push(HELD);
        let renamed = fs::rename(file, &held);
        renamed.expect("the directory of the faults can be written");
        return Fault::Hang { until_gone: held.into() };
    }
    match times.parse::<u32>().expect("a number of times") {
        0 | 1 => fs::remove_file(file),
        times => fs::write(file, format!("{kind} {}", times - 1)),
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
