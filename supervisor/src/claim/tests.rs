use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

/// Settings for directories and a cgroup that nobody else has; none, with a word, when not root.
struct Place {
    _temp: tempfile::TempDir,
    settings: SupervisorSettings,
}

impl Place {
    fn new() -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can make cgroups");
            return None;
        }
        let temp = tempfile::tempdir().expect("a temporary directory");
        let mut settings = SupervisorSettings::new(temp.path().join("run"), temp.path().join("lib"));
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        settings.cgroup_parent = format!("/mainstay-claim-{}-{number}", std::process::id());
        Some(Self { _temp: temp, settings })
    }

    fn group(&self) -> Cgroup {
        let layout = Layout::detect().expect("cgroups");
        Cgroup::open(&layout, &CgroupPath::parse(&self.settings.cgroup_parent).expect("a good path"))
    }

    fn is_there(&self) -> bool {
        !self.group().v1_procs().expect("readable").is_empty()
            || self.group().v2_dir().expect("readable").is_some()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.group().remove();
    }
}

/// Two daemons on one state directory, or two with one cgroup and everything else apart, once ran beside each other: each took
/// the other's pods for leaks, and adopted and removed them.
#[test]
fn a_second_runtime_is_told_what_the_first_one_has() {
    let (Some(one), Some(two)) = (Place::new(), Place::new()) else { return };
    let claim = Claim::take(&one.settings).expect("free");
    let both = Claim::take(&two.settings).expect("another one, with another cgroup");
    drop(both);
    let mut same_state = two.settings.clone();
    same_state.state_dir.clone_from(&one.settings.state_dir);
    let mut same_cgroup = two.settings.clone();
    same_cgroup.cgroup_parent.clone_from(&one.settings.cgroup_parent);
    let own = std::process::id();
    let state = one.settings.state_dir.display();
    let cgroup = &one.settings.cgroup_parent;
    for (settings, sentence) in [
        (
            &same_state,
            format!(
                "the state directory {state} is not available: it belongs to the runtime of process {own}; end that one, or \
                 choose another state_dir"
            ),
        ),
        (
            &same_cgroup,
            format!(
                "the cgroup {cgroup} is not available: it belongs to the runtime of process {own}; end that one, or choose \
                 another cgroup_parent"
            ),
        ),
    ] {
        assert_eq!(Claim::take(settings).expect_err("taken").to_string(), sentence);
    }
    drop(claim);
    drop(Claim::take(&same_state).expect("free again"));
    drop(Claim::take(&same_cgroup).expect("free again"));
}

/// `mainstay run` and `bench` left an empty cgroup behind for each time that they were used.
#[test]
fn its_cgroup_goes_with_it_unless_a_pod_is_in_it() {
    let Some(place) = Place::new() else { return };
    let claim = Claim::take(&place.settings).expect("free");
    assert!(place.is_there());
    drop(claim);
    assert!(!place.is_there());
    let claim = Claim::take(&place.settings).expect("free");
    let pod = place.group().path().child("pod").expect("a good path");
    let pod = Cgroup::create(&Layout::detect().expect("cgroups"), &pod, Controllers::NONE).expect("made");
    drop(claim);
    assert!(place.is_there());
    pod.remove().expect("empty, and still there");
}

/// A shim outlives its runtime and must not keep what that had: the next one could not be started before it was gone.
#[test]
fn what_is_started_does_not_inherit_it() {
    let Some(place) = Place::new() else { return };
    let claim = Claim::take(&place.settings).expect("free");
    let mut child = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().expect("started");
    let held = PathBuf::from(format!("/proc/{}/fd", child.id()));
    let fds = std::fs::read_dir(held).expect("runs").flatten().filter_map(|fd| fd.path().read_link().ok());
    let fds: Vec<PathBuf> = fds.collect();
    drop(claim);
    let again = Claim::take(&place.settings);
    child.kill().and_then(|()| child.wait()).expect("our child");
    again.expect("free");
    assert!(!fds.iter().any(|fd| fd.starts_with(&place.settings.state_dir)), "{fds:?}");
}

/// A state directory on a disk that is full, or that went read-only after an error, must not keep a daemon from coming back:
/// what runs needs it.
#[test]
fn a_file_that_is_there_is_locked_without_being_written() {
    let Some(place) = Place::new() else { return };
    drop(Claim::take(&place.settings).expect("free"));
    let lock = StateLock::take(&place.settings.directories()).expect("free");
    let flags = rustix::fs::fcntl_getfl(&lock.0).expect("open");
    assert!(!flags.intersects(OFlags::WRONLY | OFlags::RDWR), "{:?} {flags:?}", lock.0.as_raw_fd());
}
