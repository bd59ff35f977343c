//! Standard streams: FIFOs, terminals, files, programs.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use mainstay_integration_tests::wait;
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::containerd;
use crate::rig::{IMAGE, RUNTIME};

#[tokio::test]
async fn a_lot_of_output_arrives_whole() {
    let containerd = containerd!();
    let said = containerd.run(&[], "web", &["seq", "1", "400000"]).await;
    assert_eq!(said.code, 0, "{}", said.err);
    let expected: String = (1..=400_000).map(|number| format!("{number}\n")).collect();
    assert!(said.out == expected, "{} bytes of {}", said.out.len(), expected.len());
    containerd.is_bare().await;
}

/// The input is a FIFO with two writers, ctr and the shim: the container reads its end when both have let go.
#[tokio::test]
async fn input_arrives_and_ends() {
    let containerd = containerd!();
    let out = containerd.path().join("out");
    let mut command =
        containerd.ctr(&["run", "--rm", "--runtime", RUNTIME, IMAGE, "web", "sh", "-c", "echo ready; wc -c"]);
    command.stdin(Stdio::piped()).stdout(File::create(&out).expect("made"));
    let mut child = command.spawn().expect("it runs");
    let text = || fs::read_to_string(&out).expect("readable");
    wait::until("it reads", || text().contains("ready").then_some(())).await;
    let mut stdin = child.stdin.take().expect("a pipe");
    let writing = tokio::task::spawn_blocking(move || stdin.write_all(&[b'x'; 300_000]));
    wait::finish("all is taken", writing).await.expect("no panic").expect("written");
    let status = wait::until("it ends", || child.try_wait().expect("our child")).await;
    assert!(status.success(), "{}", containerd.log());
    assert_eq!(text(), "ready\n300000\n");
    containerd.is_bare().await;
}

#[tokio::test]
async fn a_terminal_has_the_size_of_the_callers() {
    let containerd = containerd!();
    let (master, slave) = terminal();
    tcsetwinsize(&master, Winsize { ws_row: 33, ws_col: 77, ws_xpixel: 0, ws_ypixel: 0 })
        .expect("a terminal");
    let script = "read line; echo got $line; until [ \"$(stty size)\" = '33 77' ]; do sleep 0.05; done; echo right; exit 4";
    let mut command =
        containerd.ctr(&["run", "-t", "--rm", "--runtime", RUNTIME, IMAGE, "web", "sh", "-c", script]);
    let copy = || slave.try_clone().expect("duplicated");
    command.stdin(copy()).stdout(copy()).stderr(copy());
    let mut child = command.spawn().expect("it runs");
    drop((command, slave));
    let (mut reader, mut writer) = (File::from(master.try_clone().expect("duplicated")), File::from(master));
    writer.write_all(b"typed\r").expect("written");
    let reading = tokio::task::spawn_blocking(move || {
        let (mut seen, mut buffer) = (Vec::new(), [0; 1024]);
        // EIO: nobody has the other end any more.
        while let Ok(count @ 1..) = reader.read(&mut buffer) {
            seen.extend_from_slice(&buffer[..count]);
        }
        String::from_utf8_lossy(&seen).into_owned()
    });
    let status = wait::until("it ends", || child.try_wait().expect("our child")).await;
    let seen = wait::finish("the terminal ends", reading).await.expect("no panic");
    assert_eq!(status.code(), Some(4), "{seen}");
    assert!(seen.contains("got typed") && seen.contains("right"), "{seen}");
    containerd.is_bare().await;
}

fn terminal() -> (OwnedFd, OwnedFd) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags).expect("a terminal");
    grantpt(&master).expect("granted");
    unlockpt(&master).expect("unlocked");
    let slave = ioctl_tiocgptpeer(&master, flags).expect("its other end");
    (master, slave)
}

#[tokio::test]
async fn a_file_gets_both_streams() {
    let containerd = containerd!();
    let log = containerd.path().join("logs/web.log");
    let uri = format!("file://{}", log.display());
    containerd.run_detached(&["--log-uri", &uri], "web", &["sh", "-c", "echo out; echo err >&2"]).await;
    containerd.has_status("web", "STOPPED").await;
    let text = fs::read_to_string(&log).expect("a log");
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["err", "out"]);
    containerd.done(&["task", "delete", "web"]).await;
    containerd.done(&["container", "rm", "web"]).await;
    containerd.is_bare().await;
}

#[tokio::test]
async fn a_program_gets_both_streams() {
    let containerd = containerd!();
    let program = containerd.path().join("logger");
    let out = containerd.path().join("logged");
    let script = format!(
        "#!/bin/sh\nexec 5>&-\ncat <&3 >{0}.out &\ncat <&4 >{0}.err\nwait\necho \"$1=$2 $CONTAINER_NAMESPACE/$CONTAINER_ID\" >{0}\n",
        out.display()
    );
    fs::write(&program, script).expect("written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("ours");
    let uri = format!("binary://{}?key=value", program.display());
    containerd.run_detached(&["--log-uri", &uri], "web", &["sh", "-c", "echo out; echo err >&2"]).await;
    containerd.has_status("web", "STOPPED").await;
    containerd.done(&["task", "delete", "web"]).await;
    containerd.done(&["container", "rm", "web"]).await;
    wait::until("the program ends", || fs::read_to_string(&out).ok().filter(|text| text.ends_with('\n')))
        .await;
    let text = |name: &str| fs::read_to_string(name).expect("written");
    assert_eq!(
        text(&out.display().to_string()),
        format!("key=value {}/web\n", containerd.cgroup().trim_matches('/'))
    );
    assert_eq!(text(&format!("{}.out", out.display())), "out\n");
    assert_eq!(text(&format!("{}.err", out.display())), "err\n");
    containerd.is_bare().await;
}
