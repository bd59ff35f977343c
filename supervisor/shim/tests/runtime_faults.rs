//! Runtimes that hang, fail, talk rubbish or lie: a script in the place of `runc`, which does what a file tells it to, and is
//! `runc` otherwise.

mod rig;

use std::path::{Path, PathBuf};

use mainstay_messages::ExitStatus;
use mainstay_task_api::streams::{OnLag, StdinUse};
use rig::{Lifeline, Plan, Rig, Runtime, context, next_exits, until};

/// The limit of a call in tests where one hangs: long enough for those of the same pod that must not, on a busy machine.
const CALL_MS: u32 = 5_000;
/// The limit of a call in tests where it must not.
const CALL_LONG_MS: u32 = 30_000;

/// A pod behind the script.
struct World {
    rig: Rig,
    steer: PathBuf,
}

/// Whether this test can run here.
fn possible() -> bool {
    let runc = Runtime::Runc.program().is_some_and(|path| path.is_absolute());
    let required = std::env::var_os("MAINSTAY_TEST_REQUIRE_PEERS").is_some();
    assert!(runc || !required, "runc is missing (Debian package of the same name)");
    runc && rig::possible()
}

async fn world(call_ms: u32) -> World {
    let rig = Rig::start_behind(Lifeline::Without, None).await;
    let steer = rig.scratch().join("steer");
    let runc = Runtime::Runc.program().expect("a program");
    // The verb is the seventh word: `--root R --log L --log-format json VERB …`.
    let text = format!(
        "#!/bin/sh\nverb=$7 log=$4 steer={steer} runc={runc}\n\
         pid_file() {{ while [ $# -gt 1 ]; do [ \"$1\" = --pid-file ] && echo \"$2\"; shift; done; }}\n\
         file=$(pid_file \"$@\")\n\
         [ -f $steer/$verb ] && . $steer/$verb\n\
         exec $runc \"$@\"\n",
        steer = steer.display(),
        runc = runc.display(),
    );
    std::fs::create_dir(&steer).expect("made");
    let program = rig.script("runc-that-fails", &text);
    rig.extension.create_pod(context(), &rig.pod_request(&program, call_ms)).await.expect("a pod");
    World { rig, steer }
}

impl World {
    /// What the script does for a verb before it is `runc`.
    fn steer(&self, verb: &str, text: &str) {
        std::fs::write(self.steer.join(verb), text).expect("written");
    }

    fn behave(&self, verb: &str) {
        std::fs::remove_file(self.steer.join(verb)).expect("removed");
    }

    /// The error of a creation that must fail, after which nothing is left, and the same id can be used at once.
    async fn refused(&self, id: &str) -> String {
        let error = self.rig.try_create(id, &Plan::default()).await.expect_err("refused");
        let error = message(&error);
        assert!(self.rig.container_cgroup(id).v2_dir().expect("readable").is_none(), "its cgroup is left");
        assert!(self.rig.container_cgroup(id).v1_procs().expect("readable").is_empty(), "v1 groups are left");
        let runtime_state = self.rig.directory.join("oci").join(id);
        assert!(!runtime_state.exists(), "the runtime's state is left");
        let files = std::fs::read_dir(self.rig.bundle(id)).expect("the bundle is its maker's").flatten();
        let names: Vec<_> = files.map(|file| file.file_name()).collect();
        assert_eq!(names, ["config.json"], "files of calls are left");
        error
    }

    async fn works(&self, id: &str) {
        let plan = Plan { args: &["sh", "-c", "exit 5"], ..Plan::default() };
        self.rig.try_create(id, &plan).await.expect("created");
        self.rig.start_task(id, "").await.expect("started");
        assert_eq!(self.rig.wait(id, "").await, 5);
        assert_eq!(self.rig.delete(id, "").await.expect("deleted"), 5);
    }
}

fn message(error: &ttrpc::Error) -> String {
    match error {
        ttrpc::Error::RpcStatus(status) => status.message().to_owned(),
        other => panic!("{other}"),
    }
}

fn is_gone(pid_file: &Path) -> bool {
    let text = std::fs::read_to_string(pid_file).expect("written");
    text.split_whitespace().all(|pid| !Path::new("/proc").join(pid).exists())
}

/// A runtime that hung held up its container for ever, and what it had started stayed when it was killed.
#[tokio::test]
async fn a_runtime_that_hangs_is_killed_and_reaped_with_its_descendants() {
    if !possible() {
        return;
    }
    let world = world(CALL_MS).await;
    let pids = world.steer.join("pids");
    let script = format!(
        "sh -c 'echo $$ > {0}.inner; sleep 1000 & echo $! >> {0}.inner; wait' & echo $$ $! > {0}\n\
         while [ $(cat {0}.inner | wc -w) -lt 2 ]; do :; done; wait\n",
        pids.display()
    );
    world.steer("create", &script);
    let error = world.refused("c1").await;
    let hung = format!("runc-that-fails create of container c1 did not finish within {CALL_MS} ms");
    assert!(error.contains(&hung), "{error}");
    assert!(is_gone(&pids) && is_gone(&pids.with_extension("inner")), "processes are left");
    world.behave("create");
    world.works("c1").await;
}

#[tokio::test]
async fn what_a_runtime_says_is_the_reason_in_one_sentence() {
    if !possible() {
        return;
    }
    let world = world(CALL_LONG_MS).await;
    for (script, reason) in [
        ("echo first >&2; echo it is raining >&2; exit 3", "runc-that-fails create: it is raining"),
        (
            r#"echo '{"level":"error","msg":"out of tea"}' > $log; echo else >&2; exit 1"#,
            "runc-that-fails create: out of tea",
        ),
        ("exit 4", "runc-that-fails create: it failed and gave no reason"),
        ("kill -9 $$", "runc-that-fails create: it was ended by signal 9"),
        ("head -c 3000000 /dev/urandom > $log; exit 1", "runc-that-fails create: "),
        ("exit 0", "its pid file has \"\" and no process id"),
        ("echo hello > $file; exit 0", "its pid file has \"hello\\n\" and no process id"),
        ("echo 1 > $file; exit 0", "the runtime says that it is process 1, which is no child of this shim"),
        // What it has left behind went on to write, and the shim to read.
        ("yes >&2 & exit 1", "runc-that-fails create: "),
    ] {
        world.steer("create", script);
        let error = world.refused("c1").await;
        assert!(error.contains(reason), "{script}: {error}");
        assert!(error.len() < 6_000 && !error.contains('\n'), "{script}: {error}");
    }
    world.behave("create");
    world.works("c1").await;
}

/// Whatever child of the shim a runtime named was taken for the new process: the exit of one was another's, and signals went to
/// the wrong one.
#[tokio::test]
async fn another_process_of_the_pod_is_not_taken_for_the_new_one() {
    if !possible() {
        return;
    }
    let world = world(CALL_LONG_MS).await;
    let id = "c8";
    let idle = Plan { args: &["sleep", "1000"], ..Plan::default() };
    let init = world.rig.try_create(id, &idle).await.expect("created");
    world.rig.start_task(id, "").await.expect("started");
    world.steer("create", &format!("echo {init} > $file; exit 0"));
    let error = world.refused("c9").await;
    let reason = format!("the runtime says that it is process {init}, which is another process of the pod");
    assert!(error.contains(&reason), "{error}");
    // A child of the shim's that is in no table, and in the cgroup of another container.
    let stranger = world.steer.join("stranger");
    world.steer("exec", &format!("sh -c 'sleep 1000 & echo $! > {}'; exec $runc \"$@\"", stranger.display()));
    assert_eq!(world.rig.exec(id, &["true"]).await.1, 0);
    world.steer("create", &format!("cat {} > $file; exit 0", stranger.display()));
    let error = world.refused("c9").await;
    assert!(error.contains("which is not in the cgroup of its container"), "{error}");
    world.behave("create");
    world.works("c9").await;
    world.rig.kill(id, "", 9).await.expect("sent");
    assert_eq!(world.rig.wait(id, "").await, 137, "its own end is its own");
}

/// A process that ended before its number was read was reaped as an orphan, and its exit was lost.
#[tokio::test]
async fn what_a_runtime_made_before_it_died_is_removed() {
    if !possible() {
        return;
    }
    let world = world(CALL_LONG_MS).await;
    world.steer("create", "$runc \"$@\"; kill -9 $$");
    let error = world.refused("c1").await;
    assert!(error.contains("was ended by signal 9"), "{error}");
    // Its process is the shim's child by then, and is reaped before the number is told.
    let script =
        "$runc \"$@\"; pid=$(cat $file); kill -9 $pid; while kill -0 $pid 2>/dev/null; do :; done; exit 0";
    world.steer("create", script);
    let error = world.refused("c1").await;
    assert!(error.contains("ended before its program ran: killed by SIGKILL"), "{error}");
    world.behave("create");
    world.works("c1").await;
}

#[tokio::test]
async fn a_start_that_hangs_or_fails_is_an_exit_with_the_reason() {
    if !possible() {
        return;
    }
    let world = world(CALL_MS).await;
    let hung = format!("did not finish within {CALL_MS} ms");
    for (script, reason) in [
        ("sleep 1000", hung.as_str()),
        ("echo no such luck >&2; exit 1", "no such luck"),
        // What it has left behind went on to write, and the shim to read.
        ("yes >&2 & exit 1", "runc-that-fails start"),
    ] {
        world.steer("start", script);
        let id = world.rig.create(&Plan { args: &["sleep", "1000"], ..Plan::default() }).await;
        let error = world.rig.start_task(&id, "").await.expect_err("refused");
        let error = message(&error);
        assert!(error.contains(reason), "{error}");
        assert_eq!(world.rig.wait(&id, "").await, 128);
        let exits = next_exits(&world.rig.extension, &[], true).await;
        let found: Vec<_> = exits.iter().filter(|(key, _)| key.container.as_str() == id).collect();
        let [(_, exit)] = found[..] else { panic!("{exits:?}") };
        let ExitStatus::StartError { reason: said } = &exit.status else { panic!("{exit:?}") };
        assert!(said.contains(reason), "{said}");
        world.rig.delete(&id, "").await.expect("deleted");
    }
    world.behave("start");
    world.works("c9").await;
}

#[tokio::test]
async fn an_exec_that_hangs_harms_itself_alone() {
    if !possible() {
        return;
    }
    let world = world(CALL_MS).await;
    let id = world.rig.run_idle().await;
    world.steer("exec", "sleep 1000");
    let exec = world.rig.register_exec(&id, &["true"], false, "").await.expect("registered");
    let mut streams = world.rig.open(&id, &exec, StdinUse::No, OnLag::Block).await;
    let error = world.rig.start_task(&id, &exec).await.expect_err("it hangs");
    let error = message(&error);
    assert!(error.contains(&format!("did not finish within {CALL_MS} ms")), "{error}");
    assert_eq!(world.rig.wait(&id, &exec).await, 128);
    assert!(rig::read_to_end(&mut streams).await.is_empty());
    world.behave("exec");
    assert_eq!(world.rig.exec(&id, &["echo", "hi"]).await, (b"hi\n".to_vec(), 0));
    // A program that is not there is a sentence of the runtime's.
    let exec = world.rig.register_exec(&id, &["/nothing"], false, "").await.expect("registered");
    let error = world.rig.start_task(&id, &exec).await.expect_err("not there");
    let error = message(&error);
    assert!(error.contains("/nothing"), "{error}");
    world.rig.kill(&id, "", 9).await.expect("sent");
    assert_eq!(world.rig.wait(&id, "").await, 137);
}

/// Most of them have ended before the runtime has told of them.
#[tokio::test]
async fn no_exit_of_a_short_exec_is_lost() {
    if !possible() {
        return;
    }
    let world = world(CALL_LONG_MS).await;
    let id = world.rig.run_idle().await;
    for _ in 0..20 {
        assert_eq!(world.rig.exec(&id, &["sh", "-c", "echo x; exit 9"]).await, (b"x\n".to_vec(), 9));
    }
}

#[tokio::test]
async fn a_removal_goes_on_when_the_runtime_does_not() {
    if !possible() {
        return;
    }
    let world = world(CALL_MS).await;
    world.steer("delete", "sleep 1000");
    let id = world.rig.run_idle().await;
    world.rig.kill(&id, "", 9).await.expect("sent");
    assert_eq!(world.rig.wait(&id, "").await, 137);
    world.rig.delete(&id, "").await.expect("deleted");
    assert!(!world.rig.bundle(&id).exists());
    assert!(world.rig.container_cgroup(&id).v1_procs().expect("readable").is_empty());
    assert!(world.rig.shim_log().contains("runc-that-fails delete of container c1 did not finish within"));
}

/// The shim of a pod may be killed while a runtime works for it.
#[tokio::test]
async fn a_runtime_does_not_outlive_its_shim() {
    if !possible() {
        return;
    }
    let mut world = world(CALL_LONG_MS).await;
    let pids = world.steer.join("pids");
    world.steer("create", &format!("echo $$ > {}; exec sleep 1000", pids.display()));
    let id = "c1".to_owned();
    let rig = &world.rig;
    let plan = Plan::default();
    tokio::select! {
        _ = rig.try_create(&id, &plan) => panic!("it hangs"),
        () = until("the runtime", || pids.exists() && !std::fs::read(&pids).expect("readable").is_empty()) => {}
    }
    world.rig.kill_shim();
    until("the end of the runtime", || is_gone(&pids)).await;
}

/// The user of a container is looked up inside its root, by the rules of the launcher and not by the runtime's own.
#[tokio::test]
async fn users_are_looked_up_in_the_root() {
    if !possible() {
        return;
    }
    let world = world(CALL_LONG_MS).await;
    let etc = world.rig.rootfs.join("etc");
    std::fs::write(etc.join("passwd"), "root:x:0:0::/root:/bin/sh\napp:x:1000:1001::/home/app:/bin/sh\n")
        .expect("written");
    std::fs::write(etc.join("group"), "root:x:0:\nusers:x:100:app\n").expect("written");
    std::os::unix::fs::symlink("busybox", world.rig.rootfs.join("bin/id")).expect("linked");
    let user = |spec: &mut serde_json::Value| {
        spec["annotations"] = serde_json::json!({ "dev.mainstay.user": "app" });
    };
    let script = "id -u; id -g; id -G; exec sleep 1000";
    let plan = Plan { args: &["sh", "-c", script], edit: &user, ..Plan::default() };
    let id = world.rig.run(&plan).await;
    until("the ids", || rig::joined(&world.rig.log_path(&id), "stdout") == b"1000\n1001\n1001 100\n").await;
    world.rig.kill(&id, "", 9).await.expect("sent");
    world.rig.wait(&id, "").await;
    let nobody = |spec: &mut serde_json::Value| {
        spec["annotations"] = serde_json::json!({ "dev.mainstay.user": "nobody" });
    };
    let plan = Plan { edit: &nobody, ..Plan::default() };
    let error = world.rig.try_create("c7", &plan).await.expect_err("no such user");
    let error = message(&error);
    assert!(error.contains("the container's /etc/passwd has no user \"nobody\""), "{error}");
}

/// Hooks are the runtime's: each runs once, in its turn, and those of the end before the deletion is answered.
#[tokio::test]
async fn hooks_are_run_by_the_runtime() {
    if !possible() {
        return;
    }
    let world = world(CALL_LONG_MS).await;
    let told = world.rig.scratch().join("told");
    let hook = |point: &str| serde_json::json!([{ "path": "/bin/sh", "args": ["sh", "-c", format!("echo {point} >> {}", told.display())] }]);
    let hooks = |spec: &mut serde_json::Value| {
        let points = ["prestart", "createRuntime", "poststart", "poststop"];
        spec["hooks"] = points.into_iter().map(|point| (point.to_owned(), hook(point))).collect();
    };
    let id = world.rig.run(&Plan { args: &["sleep", "1000"], edit: &hooks, ..Plan::default() }).await;
    let said = || std::fs::read_to_string(&told).unwrap_or_default();
    until("the hooks of the start", || said() == "prestart\ncreateRuntime\npoststart\n").await;
    world.rig.kill(&id, "", 9).await.expect("sent");
    world.rig.wait(&id, "").await;
    world.rig.delete(&id, "").await.expect("deleted");
    assert_eq!(said(), "prestart\ncreateRuntime\npoststart\npoststop\n");
    let failing = |spec: &mut serde_json::Value| {
        let hook = serde_json::json!([{ "path": "/bin/sh", "args": ["sh", "-c", "echo no >&2; exit 3"] }]);
        spec["hooks"] = serde_json::json!({ "createRuntime": hook });
    };
    let plan = Plan { edit: &failing, ..Plan::default() };
    let error = world.rig.try_create("c9", &plan).await.expect_err("refused");
    assert!(message(&error).contains("hook"), "{error}");
    assert!(world.rig.container_cgroup("c9").v1_procs().expect("readable").is_empty());
}
