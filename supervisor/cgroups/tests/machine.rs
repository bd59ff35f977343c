//! Groups on the kernel of this machine, with real processes. Skipped, with a word, where not root or without cgroups.
//!
//! Layouts that the machine does not have by itself are had by leaving lines out of its mountinfo: without the v2 tree a
//! hybrid machine is a v1 one, without the v1 hierarchies it is a v2 one (with few controllers).

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use mainstay_cgroups::{
    Cgroup, CgroupError, CgroupPath, Controller, Controllers, FreezerState, GroupLock, KillMethod,
    KillOutcome, Layout, LayoutSources, Occupancy, Sharing, default_device_rules,
};
use oci_spec::runtime::LinuxResources;
use rustix::process::{Pid, Signal, pidfd_open, pidfd_send_signal};

const DEADLINE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy)]
enum View {
    Machine,
    OnlyV1,
    OnlyV2,
}

/// Says that the test on this thread is skipped, past the macros, whose output the harness swallows.
fn skipped(reason: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let _ = writeln!(std::io::stderr(), "skipped {test}: {reason}");
}

/// The machine as a layout, or `None` with the reason printed.
fn layout(view: View) -> Option<Layout> {
    if !rustix::process::geteuid().is_root() {
        skipped("needs root");
        return None;
    }
    let Ok(machine) = Layout::detect() else {
        skipped("no cgroup file system");
        return None;
    };
    let mountinfo = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let without = |kind: &str| -> String {
        mountinfo.lines().filter(|line| !line.contains(kind)).map(|line| format!("{line}\n")).collect()
    };
    let parsed = |mountinfo: &str, v2_controllers: &str| {
        Layout::parse(&LayoutSources { mountinfo, proc_cgroups: "", v2_controllers }).ok()
    };
    let layout = match view {
        View::Machine => Some(machine),
        View::OnlyV1 => parsed(&without(" - cgroup2 "), "")
            .filter(|layout| layout.v1_mount_point(Controller::Freezer).is_some()),
        View::OnlyV2 => {
            let tree = machine.v2_mount_point()?;
            parsed(&without(" - cgroup "), &fs::read_to_string(tree.join("cgroup.controllers")).unwrap())
        }
    };
    if layout.is_none() {
        skipped("this machine cannot be seen as that layout");
    }
    layout
}

/// A group, and the processes of the test in it; all gone at the end, failed or not.
struct Rig {
    layout: Layout,
    group: Cgroup,
    children: Vec<Child>,
}

impl Rig {
    fn new(view: View, name: &str, limits: &str) -> Option<Rig> {
        let layout = layout(view)?;
        let limits = resources(limits);
        let needs = match layout.check(&limits) {
            Ok(needs) => needs,
            Err(error) => {
                skipped(&error.to_string());
                return None;
            }
        };
        let path = CgroupPath::parse(&format!("/mainstay-test-{}-{name}/web", std::process::id())).unwrap();
        let rig = Rig { group: Cgroup::open(&layout, &path), layout, children: Vec::new() };
        Cgroup::create(&rig.layout, &path, needs).unwrap();
        rig.group.apply(&limits).unwrap();
        Some(rig)
    }

    /// Starts a script that is in the group before its first line after `read go` runs.
    fn run(&mut self, script: &str) -> &mut Child {
        let child = Command::new("sh")
            .args(["-c", &format!("read go; {script}")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let pid = pid(&child);
        self.children.push(child);
        self.group.add(pid).unwrap();
        let child = self.children.last_mut().unwrap();
        child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
        child
    }

    /// Runs a script to its end: its exit status and all that it said.
    fn finish(&mut self, script: &str) -> (std::process::ExitStatus, String) {
        self.run(script);
        let mut child = self.children.pop().unwrap();
        let status = child.wait().unwrap();
        let mut said = String::new();
        child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (status, said)
    }

    /// The directory of the group in the hierarchy that this test looks at.
    fn dir(&self, controller: Option<Controller>) -> PathBuf {
        let mount = match controller {
            None => self.layout.v2_mount_point().unwrap(),
            Some(controller) => self.layout.v1_mount_point(controller).unwrap(),
        };
        mount.join(self.group.path().relative())
    }

    fn reap(&mut self) {
        for mut child in self.children.drain(..) {
            child.wait().unwrap();
        }
        until("the group is empty", || self.group.occupancy().unwrap() == Occupancy::Empty);
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let top = self.group.path().relative().parent().unwrap().to_str().unwrap().to_owned();
        let top = Cgroup::open(&self.layout, &CgroupPath::parse(&format!("/{top}")).unwrap());
        let _ = top.kill();
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        let gone_by = Instant::now() + DEADLINE;
        while let Err(error) = top.remove() {
            if Instant::now() > gone_by {
                eprintln!("left behind: {error}");
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn resources(json: &str) -> LinuxResources {
    serde_json::from_str(json).unwrap()
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id() as i32).unwrap()
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !holds() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn memory_limit_kills_and_is_counted() {
    let Some(mut rig) =
        Rig::new(View::Machine, "oom", r#"{"memory": {"limit": 16777216, "swap": 16777216}}"#)
    else {
        return;
    };
    assert_eq!(rig.group.stats().unwrap().memory_limit, Some(16 << 20));
    assert_eq!(rig.group.oom_kills().unwrap(), Some(0));
    // Reads a line that never ends into memory.
    let (status, said) = rig.finish("exec tail /dev/zero");
    assert_eq!(status.signal(), Some(libc::SIGKILL), "{said}");
    assert_eq!(rig.group.oom_kills().unwrap(), Some(1));
}

#[test]
fn pids_limit_stops_forks() {
    let Some(mut rig) = Rig::new(View::Machine, "pids", r#"{"pids": {"limit": 3}}"#) else { return };
    // The sleepers must not hold the pipes that `finish` reads to their end.
    let sleeper = "sleep 300 >/dev/null 2>&1 &";
    let (status, said) = rig.finish(&format!("{sleeper} {sleeper} {sleeper} {sleeper} echo all"));
    assert!(!status.success() && !said.contains("all"), "{status}: {said}");
    assert_eq!(rig.group.stats().unwrap().pids_limit, Some(3));
}

/// field-bugs 11: a privileged container makes a group inside its own and moves its processes there. They must still be
/// found, killed, and the groups removed.
#[test]
fn nested_groups_are_killed_and_removed() {
    for (view, name) in [(View::Machine, "nested"), (View::OnlyV1, "nested-v1"), (View::OnlyV2, "nested-v2")]
    {
        let Some(mut rig) = Rig::new(view, name, "{}") else { continue };
        let mut tops = rig.group.v1_procs().unwrap();
        tops.extend(rig.layout.v2_mount_point().map(|_| rig.dir(None).join("cgroup.procs")));
        for _ in 0..3 {
            let child = pid(rig.run("sleep 300 & sleep 300"));
            for top in &tops {
                let own = top.with_file_name("own/deeper");
                fs::create_dir_all(&own).unwrap();
                fs::write(own.join("cgroup.procs"), child.as_raw_nonzero().to_string()).unwrap();
            }
        }
        until("all have forked", || rig.group.pids().unwrap().len() >= 6);
        assert!(matches!(rig.group.remove(), Err(CgroupError::Busy { .. })));
        let report = rig.group.kill().unwrap();
        assert_eq!(report.outcome, KillOutcome::AllSignalled);
        let by_kernel = rig.layout.v2_mount_point().is_some();
        assert_eq!(report.method, if by_kernel { KillMethod::CgroupKill } else { KillMethod::Signals });
        rig.reap();
        rig.group.remove().unwrap();
        assert_eq!(rig.group.kill().unwrap().method, KillMethod::NothingThere);
        rig.group.remove().unwrap();
    }
}

/// Without cgroup.kill, a group that forks all the time outruns whoever kills it one by one, unless it is frozen.
#[test]
fn a_group_that_forks_all_the_time_is_killed_on_v1() {
    let Some(mut rig) = Rig::new(View::OnlyV1, "storm", r#"{"pids": {"limit": 150}}"#) else { return };
    rig.run("while :; do (sleep 0.01; sleep 0.01) & done 2>/dev/null");
    until("the storm is up", || rig.group.stats().unwrap().pids_current > Some(50));
    until("a kill has reached all", || rig.group.kill().unwrap().outcome == KillOutcome::AllSignalled);
    rig.reap();
    rig.group.remove().unwrap();
}

/// A container that may write to its own group makes it threaded: the kernel then refuses to list its processes and to kill
/// the group.
#[test]
fn a_threaded_group_cannot_hide() {
    let Some(mut rig) = Rig::new(View::OnlyV2, "threaded", "{}") else { return };
    fs::write(rig.dir(None).join("cgroup.type"), "threaded").unwrap();
    // A process cannot move into a threaded group from outside of its domain, so it is moved to the domain first.
    let domain = rig.dir(None).parent().unwrap().join("cgroup.procs");
    let child = Command::new("sleep").arg("300").spawn().unwrap();
    fs::write(domain, child.id().to_string()).unwrap();
    let pid = pid(&child);
    rig.children.push(child);
    fs::write(rig.dir(None).join("cgroup.threads"), pid.as_raw_nonzero().to_string()).unwrap();
    assert!(rig.group.pids().unwrap().contains(&pid));
    let report = rig.group.kill().unwrap();
    assert_eq!((report.method, report.signalled), (KillMethod::Signals, 1));
    rig.reap();
}

#[test]
fn freezing_stops_and_thawing_goes_on() {
    for (view, name) in [(View::Machine, "freeze"), (View::OnlyV1, "freeze-v1")] {
        let Some(mut rig) = Rig::new(view, name, "{}") else { continue };
        let child = rig.run("while read line; do echo $line; done");
        let (mut input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut output = BufReader::new(output);
        let mut said = String::new();
        input.write_all(b"before\n").unwrap();
        output.read_line(&mut said).unwrap();
        assert_eq!(rig.group.freezer_state().unwrap(), FreezerState::Running);
        rig.group.freeze().unwrap();
        until("it is frozen", || rig.group.freezer_state().unwrap() == FreezerState::Frozen);
        input.write_all(b"after\n").unwrap();
        rig.group.thaw().unwrap();
        output.read_line(&mut said).unwrap();
        assert_eq!(said, "before\nafter\n");
        assert_eq!(rig.group.freezer_state().unwrap(), FreezerState::Running);
        // A frozen group can be killed too.
        rig.group.freeze().unwrap();
        until("it is frozen", || rig.group.freezer_state().unwrap() == FreezerState::Frozen);
        rig.group.kill().unwrap();
        rig.reap();
    }
}

#[test]
fn stats_follow_the_work() {
    for (view, name) in [(View::Machine, "stats"), (View::OnlyV1, "stats-v1")] {
        let Some(mut rig) = Rig::new(view, name, "{}") else { continue };
        rig.run("while :; do :; done");
        until("CPU time was used", || rig.group.stats().unwrap().cpu_usage_ns > Some(20_000_000));
        let stats = rig.group.stats().unwrap();
        assert!(stats.memory_usage.is_some() && stats.memory_working_set.is_some(), "{stats:?}");
        assert!(stats.cpu_user_ns > Some(0), "{stats:?}");
        assert_eq!(stats.oom_kills, Some(0));
    }
}

fn only_null() -> String {
    r#"{"devices": [{"allow": false, "access": "rwm"},
        {"allow": true, "type": "c", "major": 1, "minor": 3, "access": "rw"}]}"#
        .to_owned()
}

const TRY_DEVICES: &str = "echo x >/dev/null && echo null; head -c1 /dev/zero >/dev/null && echo zero; true";

/// On v1 by the controller, on v2 by a BPF program.
#[test]
fn device_rules_hold() {
    for (view, name) in [(View::Machine, "dev"), (View::OnlyV1, "dev-v1"), (View::OnlyV2, "dev-v2")] {
        let Some(mut rig) = Rig::new(view, name, &only_null()) else { continue };
        let (_, said) = rig.finish(TRY_DEVICES);
        assert!(said.contains("null\n") && !said.contains("zero\n"), "{name}: {said}");
        assert!(said.contains("not permitted"), "{name}: {said}");

        let mut defaults = LinuxResources::default();
        let mut rules =
            resources(r#"{"devices": [{"allow": false, "access": "rwm"}]}"#).devices().clone().unwrap();
        rules.extend(default_device_rules());
        defaults.set_devices(Some(rules));
        rig.group.apply(&defaults).unwrap();
        let (_, said) = rig.finish(TRY_DEVICES);
        assert!(said.contains("null\n") && said.contains("zero\n"), "{name}: {said}");
        let (_, said) = rig.finish("head -c1 /dev/kmsg");
        assert!(said.contains("not permitted"), "{name}: {said}");

        rig.group.apply(&resources(&only_null())).unwrap();
        let (_, said) = rig.finish(TRY_DEVICES);
        assert!(!said.contains("zero\n"), "{name}: {said}");

        rig.group.apply(&resources(r#"{"devices": [{"allow": true, "access": "rwm"}]}"#)).unwrap();
        let (_, said) = rig.finish(TRY_DEVICES);
        assert!(said.contains("zero\n"), "{name}: {said}");
    }
}

/// The kernel's verifier gives up on a program that leaves it too many ways to go: the first shape of ours, at 2,000
/// rules, after a second.
#[test]
fn a_long_list_of_device_rules_is_taken() {
    for (view, name) in [(View::Machine, "long"), (View::OnlyV2, "long-v2")] {
        let rule = |n: usize| {
            let (kind, access) = (["c", "b"][n % 2], ["r", "w", "rw", "rwm"][n % 4]);
            let allow = !n.is_multiple_of(5);
            format!(
                r#"{{"allow": {allow}, "type": "{kind}", "major": {n}, "minor": {n}, "access": "{access}"}}"#
            )
        };
        let rules: Vec<String> = (0..1024).map(rule).collect();
        let Some(rig) = Rig::new(view, name, &format!(r#"{{"devices": [{}]}}"#, rules.join(","))) else {
            continue;
        };
        drop(rig);
    }
}

/// The v1 kernel keeps "memory <= memory and swap" at each moment, so that raising and lowering both need the right order.
#[test]
fn memory_and_swap_are_raised_and_lowered() {
    let Some(rig) = Rig::new(View::Machine, "memsw", "{}") else { return };
    for (limit, swap) in [(64, 64), (128, 128), (32, 48), (96, 512), (16, 16), (-1, -1), (8, 8)] {
        let bytes = |mib: i64| if mib < 0 { mib } else { mib << 20 };
        let json = format!(r#"{{"memory": {{"limit": {}, "swap": {}}}}}"#, bytes(limit), bytes(swap));
        rig.group.apply(&resources(&json)).unwrap_or_else(|error| panic!("{limit} {swap}: {error}"));
        assert_eq!(rig.group.stats().unwrap().memory_limit, u64::try_from(bytes(limit)).ok());
    }
    // Without a swap limit the one in force moves along.
    rig.group.apply(&resources(r#"{"memory": {"limit": 67108864}}"#)).unwrap();
    rig.group.apply(&resources(r#"{"memory": {"limit": -1}}"#)).unwrap();
}

#[test]
fn a_memory_limit_below_usage_is_refused_with_both_numbers() {
    let Some(mut rig) =
        Rig::new(View::Machine, "below", r#"{"memory": {"limit": 268435456, "swap": 268435456}}"#)
    else {
        return;
    };
    let child = rig.run("x=$(head -c 40000000 /dev/zero | tr '\\0' x); echo ready; read end");
    let mut said = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, "ready\n");
    let lower = |mib: u64| {
        let bytes = mib << 20;
        rig.group.apply(&resources(&format!(r#"{{"memory": {{"limit": {bytes}, "swap": {bytes}}}}}"#)))
    };
    match lower(4) {
        Err(CgroupError::MemoryBelowUsage { limit, usage, .. }) => {
            assert_eq!(limit, 4 << 20);
            assert!(usage > 30_000_000, "{usage}");
        }
        other => panic!("{other:?}"),
    }
    lower(200).unwrap();
    assert!(rig.children[0].try_wait().unwrap().is_none(), "it was killed");
}

#[test]
fn cpu_limits_move_through_states_that_the_kernel_takes() {
    let Some(rig) =
        Rig::new(View::Machine, "cpu", r#"{"cpu": {"quota": 100000, "period": 100000, "shares": 512}}"#)
    else {
        return;
    };
    for (quota, period, burst) in
        [(50_000, 50_000, 0), (200_000, 100_000, 100_000), (1_000, 1_000, 500), (-1, 100_000, 0)]
    {
        let json = format!(r#"{{"cpu": {{"quota": {quota}, "period": {period}, "burst": {burst}}}}}"#);
        rig.group.apply(&resources(&json)).unwrap_or_else(|error| panic!("{json}: {error}"));
    }
    let error = rig.group.apply(&resources(r#"{"cpu": {"cpus": "4000"}}"#)).unwrap_err().to_string();
    assert!(
        error.contains("linux.resources.cpu.cpus = \"4000\"") && error.contains("cpuset.cpus"),
        "{error}"
    );
}

#[test]
fn a_cpuset_takes_processes() {
    let Some(mut rig) = Rig::new(View::Machine, "cpuset", r#"{"cpu": {"cpus": "0"}}"#) else { return };
    let (_, said) = rig.finish("grep Cpus_allowed_list /proc/self/status");
    assert_eq!(said.split_whitespace().last(), Some("0"), "{said}");
}

/// An update may need a hierarchy that the container was made without: its processes are moved there, or the limit would
/// hold for nobody.
#[test]
fn a_running_group_joins_a_hierarchy_late() {
    let Some(mut rig) = Rig::new(View::Machine, "late", "{}") else { return };
    let child = pid(rig.run("sleep 300"));
    if rig.layout.check(&resources(r#"{"pids": {"limit": 9}}"#)).is_err() {
        return skipped("no pids controller");
    }
    rig.group.apply(&resources(r#"{"pids": {"limit": 9}}"#)).unwrap();
    let stats = rig.group.stats().unwrap();
    assert!(stats.pids_current > Some(0) && stats.pids_limit == Some(9), "{stats:?}");
    let groups = fs::read_to_string(format!("/proc/{}/cgroup", child.as_raw_nonzero())).unwrap();
    let ours = groups.lines().filter(|line| line.ends_with("late/web")).count();
    assert!(ours >= 1, "{groups}");
}

/// `v2_dir` is for clone3: the child is born in the group.
#[test]
fn a_process_is_cloned_into_the_group() {
    let Some(rig) = Rig::new(View::Machine, "clone", "{}") else { return };
    let Some(dir) = rig.group.v2_dir().unwrap() else { return skipped("no v2 tree") };
    const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
    // struct clone_args up to its eleventh word, `cgroup`.
    let mut arguments = [0u64; 11];
    arguments[0] = CLONE_INTO_CGROUP;
    arguments[4] = libc::SIGCHLD as u64;
    arguments[10] = dir.as_raw_fd() as u64;
    // SAFETY: a fork of a process with threads; the child does nothing but call pause(2).
    let cloned = unsafe { libc::syscall(libc::SYS_clone3, arguments.as_mut_ptr(), size_of_val(&arguments)) };
    if cloned == 0 {
        loop {
            // SAFETY: no memory is touched.
            unsafe { libc::pause() };
        }
    }
    let child = Pid::from_raw(cloned as i32).expect("clone3");
    assert_eq!(rig.group.pids().unwrap().into_iter().collect::<Vec<_>>(), [child]);
    rig.group.kill().unwrap();
    rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty()).unwrap();
    until("the group is empty", || rig.group.occupancy().unwrap() == Occupancy::Empty);
}

/// A group that a daemon died in the middle of making or removing: both are repeated, by a handle that knows the name alone.
#[test]
fn everything_can_be_repeated() {
    let Some(mut rig) = Rig::new(View::Machine, "again", "{}") else { return };
    let path = rig.group.path().clone();
    Cgroup::create(&rig.layout, &path, Controllers::NONE).unwrap();
    rig.run("exec sleep 300");
    let again = Cgroup::open(&Layout::detect().unwrap(), &path);
    assert_eq!(again.occupancy().unwrap(), Occupancy::Populated);
    let before = again.pids().unwrap();
    assert_eq!(before.len(), 1);
    let pidfd = pidfd_open(*before.iter().next().unwrap(), rustix::process::PidfdFlags::empty()).unwrap();
    again.kill().unwrap();
    again.kill().unwrap();
    rig.reap();
    assert!(pidfd_send_signal(&pidfd, Signal::KILL).is_err());
    again.remove().unwrap();
    rig.group.remove().unwrap();
    assert!(matches!(again.stats(), Err(CgroupError::NotFound { .. })));
    assert!(matches!(again.apply(&resources("{}")), Err(CgroupError::NotFound { .. })));
    assert!(matches!(again.add(rustix::process::getpid()), Err(CgroupError::NotFound { .. })));
}

/// The parent of all pods was removed with everything below it whenever the last pod went: with the cgroup, made just now and
/// still empty, and the limits of a pod that was on its way.
#[test]
fn a_parent_that_is_removed_leaves_a_child_that_is_being_made() {
    for view in [View::Machine, View::OnlyV1, View::OnlyV2] {
        let Some(rig) = Rig::new(view, "childless", "{}") else { continue };
        let above = rig.group.path().parent().unwrap();
        let above = Cgroup::open(&rig.layout, &above);
        assert!(matches!(above.remove_childless(), Err(CgroupError::Busy { .. })));
        rig.group.v1_procs().unwrap().iter().for_each(|file| assert!(file.exists(), "{file:?} is gone"));
        assert_eq!(rig.group.v2_dir().unwrap().is_some(), rig.layout.v2_mount_point().is_some());
        rig.group.remove().unwrap();
        above.remove_childless().unwrap();
        above.remove_childless().unwrap();
        assert!(above.v1_procs().unwrap().is_empty() && above.v2_dir().unwrap().is_none());
    }
}

/// Whoever makes a group finds its parent missing, makes that, and finds it missing again: somebody saw it empty.
#[test]
fn a_group_is_made_although_its_parent_is_removed_all_the_time() {
    let Some(rig) = Rig::new(View::Machine, "contended", "{}") else { return };
    let above = Cgroup::open(&rig.layout, &rig.group.path().parent().unwrap());
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                let _ = above.remove_childless();
            }
        });
        let made = (0..200).try_for_each(|_| {
            Cgroup::create(&rig.layout, rig.group.path(), Controllers::NONE)?;
            rig.group.remove()
        });
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        made.unwrap();
    });
}

#[test]
fn the_lock_of_a_group_has_one_owner_or_many_visitors() {
    for view in [View::Machine, View::OnlyV1, View::OnlyV2] {
        let Some(rig) = Rig::new(view, "lock", "{}") else { continue };
        let own = std::process::id();
        let locked = |result: Result<GroupLock, CgroupError>| match result {
            Err(CgroupError::Locked { holder, .. }) => assert_eq!(holder, Some(own)),
            other => panic!("{other:?}"),
        };
        let owner = rig.group.lock(Sharing::Exclusive).unwrap();
        locked(rig.group.lock(Sharing::Exclusive));
        locked(rig.group.lock(Sharing::Shared));
        drop(owner);
        let visitors = [rig.group.lock(Sharing::Shared).unwrap(), rig.group.lock(Sharing::Shared).unwrap()];
        locked(rig.group.lock(Sharing::Exclusive));
        drop(visitors);
        let owner = rig.group.lock(Sharing::Exclusive).unwrap();
        rig.group.remove().unwrap();
        assert!(matches!(rig.group.lock(Sharing::Exclusive), Err(CgroupError::NotFound { .. })));
        Cgroup::create(&rig.layout, rig.group.path(), Controllers::NONE).unwrap();
        // The one that is locked is another one, and gone.
        drop((rig.group.lock(Sharing::Exclusive).unwrap(), owner));
    }
}
