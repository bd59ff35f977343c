//! The fault points themselves.

use mainstay_messages::event::Way;
use mainstay_shim::faults::{EXIT_RECORD, write_point};
pub use mainstay_shim::faults::{FAULTS_DIRECTORY, HELD, Moment, Passed, directory, is_set, reach};

use super::Written;
use crate::launch::RUN_POD;
use crate::task::CREATE_CONTAINER;

/// All points of the sagas, in the order of their steps, and of the files that the supervisor writes.
pub fn points() -> Vec<String> {
    let writes =
        Written::ALL.iter().flat_map(|write| Moment::ALL.map(|when| write_point(write.name(), when)));
    RUN_POD.points().chain(CREATE_CONTAINER.points()).chain(writes).collect()
}

/// The points of what shims write. A shim that is killed there is no daemon that is killed.
pub fn shim_points() -> Vec<String> {
    Moment::ALL.map(|when| write_point(EXIT_RECORD, when)).into()
}

/// The name of a point of a step.
pub(crate) fn step_point(saga: &str, step: &str, way: Way, moment: Moment) -> String {
    match way {
        Way::Act => format!("{saga}.{step}.{}", moment.word()),
        Way::Undo => format!("{saga}.{step}.undo.{}", moment.word()),
    }
}
