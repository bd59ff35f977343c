//! Being told when the OOM killer may have been in a group.
//!
//! Owns: asking the kernel for it. Never: waits, or counts: [`Cgroup::oom_kills`] does.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::inotify;
use rustix::io::Errno;

use crate::controllers::Controller;
use crate::error::CgroupError;
use crate::group::Cgroup;
use crate::layout::Home;

impl Cgroup {
    /// A descriptor, not blocking, that can be read when a process of the group may have been ended for want of memory: on v1
    /// just before that (an eventfd), on v2 just after (an inotify). What there is to be read says nothing. `None` without a
    /// memory controller. It is of no use once the group is gone.
    pub fn watch_oom(&self) -> Result<Option<OwnedFd>, CgroupError> {
        match self.home_node(Controller::Memory) {
            None => Ok(None),
            Some((node, Home::V1(_))) => {
                let file = node.file("memory.oom_control");
                let failed = |errno| CgroupError::io("watch", file.clone(), errno);
                let told = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(failed)?;
                let control = File::open(&file)
                    .map_err(|error| failed(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
                let command = format!("{} {}", told.as_raw_fd(), control.as_raw_fd());
                node.write("cgroup.event_control", &command).map_err(failed)?;
                Ok(Some(told))
            }
            Some((node, Home::V2(_))) => {
                let file = node.file("memory.events");
                let failed = |errno| CgroupError::io("watch", file.clone(), errno);
                let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
                let told = inotify::init(flags).map_err(failed)?;
                inotify::add_watch(&told, &file, inotify::WatchFlags::MODIFY).map_err(failed)?;
                Ok(Some(told))
            }
        }
    }
}
