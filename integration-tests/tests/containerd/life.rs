//! The life of containers: what is answered, and what is told.

use mainstay_integration_tests::wait;

use crate::containerd;

#[tokio::test]
async fn a_container_in_the_foreground_has_its_output_and_code() {
    let containerd = containerd!();
    let said = containerd.run(&[], "web", &["sh", "-c", "echo out; echo err >&2; exit 7"]).await;
    assert_eq!((said.code, said.out.as_str()), (7, "out\n"), "{}", said.err);
    assert!(said.err.starts_with("err\n"), "{}", said.err);
    containerd.is_bare().await;
}

#[tokio::test]
async fn a_container_in_the_background_can_be_worked_with() {
    let containerd = containerd!();
    let events = containerd.events().await;
    containerd.run_detached(&[], "web", &["sleep", "100000"]).await;
    containerd.has_status("web", "RUNNING").await;
    let (pid, _) = containerd.task("web").await.expect("listed");
    let processes = containerd.done(&["task", "ps", "web"]).await;
    assert!(processes.lines().any(|line| line.starts_with(&pid.to_string())), "{processes}");
    let exec =
        containerd.say(&["task", "exec", "--exec-id", "probe", "web", "sh", "-c", "echo in; exit 3"]).await;
    assert_eq!((exec.code, exec.out.as_str()), (3, "in\n"), "{}", exec.err);
    let metrics = containerd.done(&["task", "metrics", "web"]).await;
    let value = |name: &str| {
        let line = metrics.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{metrics}"));
        line.split_whitespace()
            .last()
            .and_then(|word| word.parse::<u64>().ok())
            .unwrap_or_else(|| panic!("{line}"))
    };
    assert!(value("pids.current") >= 1, "{metrics}");
    assert!(metrics.contains("memory.usage"), "{metrics}");
    containerd.done(&["task", "pause", "web"]).await;
    containerd.has_status("web", "PAUSED").await;
    containerd.done(&["task", "resume", "web"]).await;
    containerd.has_status("web", "RUNNING").await;
    assert!(containerd.shims().len() == 1);
    assert_eq!(containerd.end("web").await, 0, "ctr deletes it");
    let told =
        ["create", "start", "exec-added", "exec-started", "exit", "paused", "resumed", "exit", "delete"];
    events.are("web", &told).await;
    assert!(events.text().contains("\"exit_status\":137"), "{}", events.text());
    containerd.is_bare().await;
}

/// An exit may overtake the answer to the start: whoever is told of it first has never heard of the process.
#[tokio::test]
async fn the_start_of_a_short_container_is_told_before_its_exit() {
    let containerd = containerd!();
    let events = containerd.events().await;
    for number in 0..5 {
        let id = format!("short{number}");
        assert_eq!(containerd.run(&[], &id, &["true"]).await.code, 0);
        events.are(&id, &["create", "start", "exit", "delete"]).await;
    }
    containerd.is_bare().await;
}

/// In a PID namespace of somebody else's the kernel does not end the execs with PID 1: they are killed after it, and their
/// exits came after its own, which for a client of containerd's is the last one of a container.
#[tokio::test]
async fn the_exit_of_a_container_is_told_after_those_of_its_execs() {
    let containerd = containerd!();
    let events = containerd.events().await;
    let ours = format!("pid:/proc/{}/ns/pid", std::process::id());
    containerd.run_detached(&["--with-ns", &ours], "web", &["sleep", "100000"]).await;
    for exec in ["first", "second"] {
        containerd.done(&["task", "exec", "-d", "--exec-id", exec, "web", "sleep", "100000"]).await;
    }
    containerd.done(&["task", "kill", "-s", "SIGKILL", "web"]).await;
    let execs = ["exec-added", "exec-started"];
    events.are("web", &[&["create", "start"][..], &execs, &execs, &["exit"; 3]].concat()).await;
    let text = events.text();
    let last = text.lines().rfind(|line| line.contains("/tasks/exit")).expect("there are three");
    assert!(last.contains("\"id\":\"web\""), "{text}");
    containerd.say(&["task", "delete", "web"]).await;
    containerd.done(&["container", "rm", "web"]).await;
    containerd.is_bare().await;
}

#[tokio::test]
async fn a_container_that_is_out_of_memory_is_told_of() {
    let containerd = containerd!();
    let events = containerd.events().await;
    let hungry = ["dd", "if=/dev/zero", "of=/dev/null", "bs=100M"];
    let said = containerd.run(&["--memory-limit", "20000000"], "hungry", &hungry).await;
    assert_eq!(said.code, 137, "{}", said.err);
    events.are("hungry", &["create", "start", "oom", "exit", "delete"]).await;
    containerd.is_bare().await;
}

/// What makes a pod's reason "OOMKilled": the container itself may end much later, or with a code of its own.
#[tokio::test]
async fn a_process_that_is_out_of_memory_is_told_of_while_its_container_lives() {
    let containerd = containerd!();
    let events = containerd.events().await;
    let script = "dd if=/dev/zero of=/dev/null bs=100M; exec sleep 100000";
    containerd.run_detached(&["--memory-limit", "20000000"], "web", &["sh", "-c", script]).await;
    events.are("web", &["create", "start", "oom"]).await;
    containerd.has_status("web", "RUNNING").await;
    containerd.end("web").await;
    events.are("web", &["create", "start", "oom", "exit", "delete"]).await;
    containerd.is_bare().await;
}

#[tokio::test]
async fn a_root_is_what_the_snapshotter_sends_or_a_directory() {
    let containerd = containerd!();
    let archive = containerd.path().join("image.tar").display().to_string();
    containerd.done(&["image", "import", "--snapshotter", "native", &archive]).await;
    let write = ["sh", "-c", "echo x > /tmp/written && cat /tmp/written"];
    for options in [&[][..], &["--snapshotter", "native"], &["--snapshotter", "native", "--read-only"]] {
        let said = containerd.run(options, "web", &write).await;
        let may_write = !options.contains(&"--read-only");
        assert_eq!(said.code == 0 && said.out == "x\n", may_write, "{options:?}: {}", said.err);
    }
    let root = containerd.path().join("plain");
    std::fs::create_dir_all(root.join("bin")).expect("made");
    std::fs::copy("/bin/busybox", root.join("bin/busybox")).expect("copied");
    let root = root.display().to_string();
    let words = [
        "run",
        "--rm",
        "--runtime",
        crate::rig::RUNTIME,
        "--rootfs",
        &root,
        "dir",
        "/bin/busybox",
        "echo",
        "hi",
    ];
    assert_eq!(containerd.done(&words).await, "hi\n");
    containerd.is_bare().await;
}

#[tokio::test]
async fn a_program_that_is_not_there_is_a_failure_with_its_name() {
    let containerd = containerd!();
    let said = containerd.run(&[], "web", &["no-such-program"]).await;
    assert!(said.code != 0 && said.err.contains("no-such-program"), "{}", said.err);
    wait::until_async("its task is gone", async || containerd.task("web").await.is_none()).await;
    containerd.is_bare().await;
}
