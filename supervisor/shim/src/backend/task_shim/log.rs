//! What a shim of others logs.
//!
//! Owns: reading it, so that the shim never waits for a reader, and leaving out what nobody needs later. Never: keeps it.

use std::path::Path;

use tokio::io::{AsyncBufReadExt, BufReader};

use super::{Background, fifo};
use crate::failure::Failure;
use crate::logger::{self, Seldom};

/// The most that is read of a line that it logs, in bytes.
const LOG_LINE_MAX_BYTES: u64 = 8 * 1024;

/// The most lines of a shim that are all kept. It may say the same for ever, and the log of this one is small.
const LOG_LINES_MAX: u64 = 1_000;

/// Takes what a shim logs into the log of this one: the FIFO `log` of its bundle, which is there before the shim is.
pub(super) fn follow(bundle: &Path) -> Result<Background, Failure> {
    let path = bundle.join("log");
    let failed = |doing| {
        let path = path.clone();
        move |source| Failure::File { path, doing, source }
    };
    match fifo::make(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(failed("made")(error)),
        _ => {}
    }
    let open = tokio::net::unix::pipe::OpenOptions::new().read_write(true).open_receiver(&path);
    let pipe = open.map_err(failed("opened"))?;
    let task = tokio::task::spawn_local(async move {
        let mut lines = BufReader::with_capacity(1024, pipe);
        let mut line = Vec::new();
        let (mut kept, left_out) = (0, Seldom::default());
        loop {
            line.clear();
            let mut limited = tokio::io::AsyncReadExt::take(&mut lines, LOG_LINE_MAX_BYTES);
            match limited.read_until(b'\n', &mut line).await {
                Ok(count) if count > 0 => {
                    let text = String::from_utf8_lossy(&line);
                    if !worth_keeping(&text) {
                        continue;
                    }
                    kept += 1;
                    if kept <= LOG_LINES_MAX {
                        logger::note!("behind: {}", text.trim_end());
                    } else if let Some(count) = left_out.comes() {
                        logger::note!("behind ({count} more): {}", text.trim_end());
                    }
                }
                _ => return,
            }
        }
    });
    Ok(Background(task))
}

/// Shims tell much about themselves that nobody needs later.
fn worth_keeping(line: &str) -> bool {
    !line.contains("level=info") && !line.contains("level=debug")
}
