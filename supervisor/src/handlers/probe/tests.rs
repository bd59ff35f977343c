use std::os::unix::fs::PermissionsExt;

use super::*;

struct Script {
    directory: tempfile::TempDir,
}

impl Script {
    fn new(text: &str) -> Self {
        let script = Self { directory: tempfile::tempdir().expect("a directory") };
        script.write(text);
        script
    }

    /// In the place of the old one, as a package manager does it.
    fn write(&self, text: &str) {
        let new = self.directory.path().join("new");
        std::fs::write(&new, format!("#!/bin/sh\necho $1 >> $0.calls\n{text}\n")).expect("written");
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o755)).expect("set");
        std::fs::rename(&new, self.path()).expect("renamed");
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("runtime")
    }

    fn program(&self, vulnerable: Vulnerable) -> OciProgram {
        OciProgram { program: self.path().display().to_string(), vulnerable }
    }

    fn calls(&self) -> String {
        std::fs::read_to_string(self.path().with_extension("calls")).unwrap_or_default()
    }
}

fn layout() -> Layout {
    Layout::detect().expect("cgroups")
}

#[test]
fn a_program_is_asked_once_and_again_when_its_file_has_changed() {
    let (runtimes, layout) = (Runtimes::default(), layout());
    let script = Script::new("[ $1 = --version ] && echo 'runc version 1.3.5'");
    let program = script.program(Vulnerable::Refuse);
    let error = runtimes.admit("x", &program, &layout).expect_err("it has a hole").to_string();
    assert_eq!(
        error,
        "handler x with refuse_vulnerable: not supported: runc 1.3.5 has 1 known hole, CVE-2026-41579; \
         install 1.3.6, 1.4.3, 1.5.0-rc.3 or newer"
    );
    assert_eq!(runtimes.admit("x", &script.program(Vulnerable::Warn), &layout).as_deref(), Ok("1.3.5"));
    assert_eq!(script.calls(), "--version\nfeatures\n");
    script.write("[ $1 = --version ] && echo 'runc version 1.5.0'");
    assert_eq!(runtimes.admit("x", &program, &layout).as_deref(), Ok("1.5.0"));
    assert_eq!(script.calls(), "--version\nfeatures\n--version\nfeatures\n");
}

#[test]
fn one_that_fails_is_named_with_what_it_said() {
    for (text, said) in [
        (
            "echo 'no such libseccomp' >&2; exit 127",
            "failed (exit status: 127) and said \"no such libseccomp\"",
        ),
        ("echo hello", "--version says \"hello\", which has no version in it"),
        ("kill -9 $$", "failed (signal: 9 (SIGKILL))"),
        ("head -c 1000000 /dev/zero", "--version says more than 262144 bytes"),
    ] {
        let script = Script::new(text);
        let error = Runtimes::default().admit("x", &script.program(Vulnerable::Warn), &layout());
        let error = error.expect_err("refused").to_string();
        assert!(error.starts_with("handler x is not available: ") && error.contains(said), "{text}: {error}");
        assert!(error.len() < 2_000, "{error}");
    }
    let absent = OciProgram { program: "/nowhere/runc".to_owned(), vulnerable: Vulnerable::Warn };
    let error = Runtimes::default().admit("x", &absent, &layout()).expect_err("refused").to_string();
    assert!(error.starts_with("handler.x.runtime: \"/nowhere/runc\" is not valid"), "{error}");
}

/// Its answer filled the memory of the machine: only so much of it was read, but all of it was kept.
#[test]
fn an_answer_without_an_end_is_cut_off() {
    let script = Script::new("exec yes");
    let error = Runtimes::default().admit("x", &script.program(Vulnerable::Warn), &layout());
    let error = error.expect_err("refused").to_string();
    assert!(error.contains("--version says more than 262144 bytes, beginning with \"y\""), "{error}");
}

/// One that hangs is killed with what it has started, and not asked again at once.
#[test]
fn one_that_hangs_is_killed() {
    let script = Script::new("sleep 1000 & echo $! > $0.pid; wait");
    let (runtimes, layout) = (Runtimes::default(), layout());
    for _ in 0..2 {
        let error = runtimes.admit("x", &script.program(Vulnerable::Warn), &layout).expect_err("refused");
        assert!(error.to_string().contains("did not answer within 5000 ms"), "{error}");
    }
    assert_eq!(script.calls(), "--version\n");
    let pid = std::fs::read_to_string(script.path().with_extension("pid")).expect("written");
    let deadline = Instant::now() + Duration::from_secs(30);
    while is_running(pid.trim()) {
        assert!(Instant::now() < deadline, "what it has started is left");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A zombie counts as gone: it is reaped by whoever inherits it.
fn is_running(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
}

#[test]
fn real_runtimes_are_understood() {
    let layout = layout();
    for name in ["runc", "crun"] {
        let program = OciProgram { program: name.to_owned(), vulnerable: Vulnerable::Warn };
        if find("x", name).is_err() {
            assert!(std::env::var_os("MAINSTAY_TEST_REQUIRE_PEERS").is_none(), "{name} is missing");
            eprintln!("skipped real_runtimes_are_understood: {name} is not installed");
            continue;
        }
        match Runtimes::default().admit(name, &program, &layout) {
            Ok(version) => assert!(version.starts_with('1'), "{version}"),
            Err(error) => assert!(error.to_string().contains("v2 tree that has controllers"), "{error}"),
        }
    }
}

#[test]
fn shims_say_their_version_each_in_its_way() {
    let containerd = "containerd-shim-runc-v2:\n  Version:  1.6.20~ds1\n  Revision: 1.6.20~ds1-1+deb12u3\n";
    assert_eq!(said_version(containerd).as_deref(), Some("1.6.20~ds1"));
    let kata = "containerd-shim-kata-v2: id: \"io.containerd.kata.v2\", version: 3.2.0, commit: 1234";
    assert_eq!(said_version(kata).as_deref(), Some("3.2.0"));
    assert_eq!(said_version("no such flag"), None);
}
