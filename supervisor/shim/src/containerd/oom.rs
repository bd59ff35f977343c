//! Telling containerd of processes that were ended for want of memory while their container lives on.
//!
//! Owns: the watching. Never: counts, or decides what is new (`face`).

use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::Interest;

use super::Face;
use super::face::News;
use crate::container::Container;
use crate::logger::{self, Chain};
use crate::readiness::watch;

/// How often is looked for the process after the kernel has said that one will be killed.
const LOOKS: u32 = 20;
/// Time between two looks, in milliseconds.
const LOOK_PAUSE_MS: u64 = 50;

/// Watches a container for as long as it lives.
pub(super) fn begin(face: &Rc<Face>, container: &Rc<Container>) {
    let told = match container.cgroup.watch_oom() {
        Ok(Some(told)) => told,
        Ok(None) => return,
        Err(error) => return logger::warning!("container {}: {}", container.id, Chain(&error)),
    };
    let (face, container) = (face.clone(), container.clone());
    tokio::task::spawn_local(async move {
        let Ok(told) = watch(told, Interest::READABLE) else { return };
        loop {
            tokio::select! {
                ready = told.readable() => match ready {
                    Ok(mut guard) => guard.clear_ready(),
                    Err(_) => return,
                },
                // The look at its end is the last one.
                () = container.init.wait_ended() => return,
            }
            // What was counted matters, and not how often it was told.
            while rustix::io::read(told.as_fd(), &mut [0; 1024]).is_ok_and(|count| count > 0) {}
            for _ in 0..LOOKS {
                if face.look_for_oom(&container) == News::Yes {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(LOOK_PAUSE_MS)).await;
            }
        }
    });
}
