//! Credential helpers: programs that keep credentials for Docker's tools.
//!
//! `docker-credential-NAME get` reads a key from its standard input and prints `{"Username":…, "Secret":…}`. The user
//! `<token>` means that the secret is an identity token. A helper that hangs is killed at its deadline, with all that it
//! started.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

use super::{Credentials, CredentialsError, Secret};

/// The longest answer that is read, in bytes.
pub const HELPER_OUTPUT_MAX: u64 = 64 << 10;
/// The user that says that the secret is an identity token.
const TOKEN_USER: &str = "<token>";
/// What helpers print when they have nothing for a key.
const NOT_FOUND: &str = "credentials not found";

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    username: String,
    secret: String,
}

/// Asks a helper; none when it has nothing for the key.
pub(super) async fn get(
    name: &str,
    key: &str,
    dirs: &[PathBuf],
    timeout: Duration,
) -> Result<Option<Credentials>, CredentialsError> {
    let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
    if name.is_empty() || !name.bytes().all(good) {
        return Err(CredentialsError::HelperName { name: name.chars().take(64).collect() });
    }
    let program = format!("docker-credential-{name}");
    match tokio::time::timeout(timeout, run(&program, key, dirs)).await {
        Ok(answer) => answer,
        Err(_) => Err(CredentialsError::HelperTimeout { program, timeout }),
    }
}

async fn run(program: &str, key: &str, dirs: &[PathBuf]) -> Result<Option<Credentials>, CredentialsError> {
    let failed = |source| CredentialsError::HelperRun { program: program.to_owned(), source };
    let path = dirs.iter().map(|dir| dir.join(program)).find(|path| path.is_file());
    let child = Command::new(path.map_or_else(|| OsString::from(program), OsString::from))
        .arg("get")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let mut helper = Helper(child);
    let child = &mut helper.0;
    let mut output = Vec::new();
    if let Some(mut input) = child.stdin.take() {
        // A helper that knows its answer may not read.
        let _ = input.write_all(key.as_bytes()).await;
    }
    if let Some(stdout) = child.stdout.take() {
        stdout.take(HELPER_OUTPUT_MAX + 1).read_to_end(&mut output).await.map_err(failed)?;
    }
    let too_long = output.len() as u64 > HELPER_OUTPUT_MAX;
    if too_long {
        return Err(CredentialsError::HelperAnswer { program: program.to_owned() });
    }
    let status = child.wait().await.map_err(failed)?;
    if !status.success() {
        let nothing = String::from_utf8_lossy(&output).contains(NOT_FOUND);
        return if nothing {
            Ok(None)
        } else {
            Err(CredentialsError::HelperFailed { program: program.to_owned(), status })
        };
    }
    let answer: Answer = serde_json::from_slice(&output)
        .map_err(|_| CredentialsError::HelperAnswer { program: program.to_owned() })?;
    let secret = Secret::new(answer.secret);
    Ok(Some(match answer.username.as_str() {
        TOKEN_USER => Credentials::IdentityToken(secret),
        _ => Credentials::Basic { user: answer.username, password: secret },
    }))
}

/// A helper that runs. It leads a process group of its own, which ends with it when nobody waits any more.
struct Helper(Child);

impl Drop for Helper {
    fn drop(&mut self) {
        // There is an id until it was waited for, so it is no stranger's.
        let pid = self.0.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        if let Some(pid) = pid {
            // A group that is gone needs no signal.
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// Long enough for any machine.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn helper(script: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("docker-credential-test");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("made executable");
        dir
    }

    async fn ask(script: &str, timeout: Duration) -> Result<Option<Credentials>, CredentialsError> {
        let dir = helper(script);
        get("test", "r.example", &[dir.path().to_owned()], timeout).await
    }

    #[tokio::test]
    async fn the_key_goes_in_and_credentials_come_out() {
        let script =
            r#"[ "$1" = get ] && printf '{"ServerURL":"","Username":"u","Secret":"for %s"}' "$(cat)""#;
        let found = ask(script, PATIENCE).await.expect("an answer");
        let password = Secret::new("for r.example");
        assert_eq!(found, Some(Credentials::Basic { user: "u".to_owned(), password }));
        let found = ask(r#"echo '{"Username":"<token>","Secret":"t"}'"#, PATIENCE).await.expect("an answer");
        assert_eq!(found, Some(Credentials::IdentityToken(Secret::new("t"))));
    }

    #[tokio::test]
    async fn nothing_is_none_and_failure_is_an_error_without_its_words() {
        let nothing = ask("echo credentials not found in native keychain; exit 1", PATIENCE).await;
        assert!(matches!(nothing, Ok(None)), "{nothing:?}");
        let error = ask("echo hunter2; exit 3", PATIENCE).await.expect_err("it failed");
        assert_eq!(error.to_string(), "docker-credential-test failed (exit status: 3)");
        let error = ask("echo hunter2", PATIENCE).await.expect_err("no JSON");
        assert!(!format!("{error} {error:?}").contains("hunter2"));
        let error = ask("yes", PATIENCE).await.expect_err("no end");
        assert!(matches!(error, CredentialsError::HelperAnswer { .. }));
    }

    /// A helper that waits for a locked key ring must not hold a pull for ever, nor must a child of it that keeps the
    /// pipe, nor may that child stay behind.
    #[tokio::test]
    async fn a_helper_that_hangs_is_given_up_and_killed() {
        let dir = helper("sleep 1000 & echo $! > \"$0.pid\"; wait");
        let pid_file = dir.path().join("docker-credential-test.pid");
        let dirs = [dir.path().to_owned()];
        let error = get("test", "r.example", &dirs, Duration::from_secs(1)).await.expect_err("it hangs");
        assert!(matches!(error, CredentialsError::HelperTimeout { .. }), "{error}");
        let Ok(pid) = std::fs::read_to_string(&pid_file) else { return };
        let proc = format!("/proc/{}/stat", pid.trim());
        let deadline = std::time::Instant::now() + PATIENCE;
        let runs = || std::fs::read_to_string(&proc).is_ok_and(|stat| !stat.contains(") Z "));
        while runs() {
            assert!(std::time::Instant::now() < deadline, "the helper runs on");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    #[tokio::test]
    async fn a_name_is_no_path_and_a_program_that_is_missing_is_named() {
        let error = get("../x", "r.example", &[], PATIENCE).await.expect_err("no name");
        assert!(matches!(error, CredentialsError::HelperName { .. }));
        let error = get("that-is-nowhere", "r.example", &[], PATIENCE).await.expect_err("no such program");
        assert_eq!(error.to_string(), "docker-credential-that-is-nowhere cannot be run");
    }
}
