//! `logs`.

use std::process::ExitCode;
use std::time::Duration;

use futures::FutureExt;
use mainstay_messages::Timestamp;
use mainstay_messages::admin::{End, Follow, Item, LineEnd, LogRecord, OutputStream, StreamRequest};

use crate::arguments::parse::Since;
use crate::arguments::{Format, LogsArguments};
use crate::connection::Context;
use crate::failure::{Failure, Result};
use crate::output::Console;
use crate::view::{self, LogView};

/// How log records are shown. It knows where lines begin, which records do not say.
#[derive(Debug)]
struct LogPrinter {
    format: Format,
    times: Times,
    /// Whether the next record of standard output and of standard error begins a line.
    at_line_start: [bool; 2],
}

/// Whether each line begins with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Times {
    Shown,
    Hidden,
}

/// `mainstay logs`: standard output of the container to ours, its standard error to ours.
pub(super) async fn logs(context: &Context, arguments: LogsArguments) -> Result<ExitCode> {
    let client = context.daemon().await?;
    let request = StreamRequest::Logs {
        container: arguments.container,
        follow: if arguments.follow { Follow::Yes } else { Follow::No },
        tail: arguments.tail,
        since: arguments.since.map(|since| beginning(since, super::now())),
    };
    let mut stream = client.open(request).await?;
    let times = if arguments.timestamps { Times::Shown } else { Times::Hidden };
    let mut printer = LogPrinter { format: context.format(), times, at_line_start: [true; 2] };
    let mut console = Console::new();
    loop {
        // What is there is written together; what has to be waited for is not held back.
        let item = match stream.next().now_or_never() {
            Some(item) => item,
            None => {
                console.flush().map_err(Failure::Output)?;
                stream.next().await
            }
        };
        match item {
            Some(Item::Log(record)) => {
                let (stream, bytes) = printer.show(&record);
                console.print(stream, &bytes).map_err(Failure::Output)?;
            }
            Some(_) => {}
            None => break,
        }
    }
    console.flush().map_err(Failure::Output)?;
    match stream.end().await? {
        End::Done | End::Exited(_) | End::CutOff { .. } | End::Images(_) => Ok(ExitCode::SUCCESS),
    }
}

fn beginning(since: Since, now: Timestamp) -> Timestamp {
    match since {
        Since::At(at) => at,
        Since::Ago(Duration::ZERO) => now,
        Since::Ago(span) => {
            Timestamp(now.0.saturating_sub(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
        }
    }
}

impl LogPrinter {
    fn show(&mut self, record: &LogRecord) -> (OutputStream, Vec<u8>) {
        if self.format == Format::Json {
            return (OutputStream::Stdout, view::line(&LogView::from(record)).into_bytes());
        }
        let at_line_start = match record.stream {
            OutputStream::Stdout => &mut self.at_line_start[0],
            OutputStream::Stderr => &mut self.at_line_start[1],
        };
        let mut shown = Vec::with_capacity(record.bytes.len() + 1);
        if *at_line_start && self.times == Times::Shown {
            shown.extend_from_slice(format!("{} ", record.at).as_bytes());
        }
        shown.extend_from_slice(&record.bytes);
        *at_line_start = record.ends == LineEnd::Newline;
        if *at_line_start {
            shown.push(b'\n');
        }
        (record.stream, shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(stream: OutputStream, bytes: &[u8], ends: LineEnd) -> LogRecord {
        LogRecord { at: Timestamp(0), stream, bytes: bytes.to_vec(), ends }
    }

    fn shown(times: Times, records: &[LogRecord]) -> (Vec<u8>, Vec<u8>) {
        let mut printer = LogPrinter { format: Format::Text, times, at_line_start: [true; 2] };
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        for record in records {
            match printer.show(record) {
                (OutputStream::Stdout, bytes) => stdout.extend(bytes),
                (OutputStream::Stderr, bytes) => stderr.extend(bytes),
            }
        }
        (stdout, stderr)
    }

    #[test]
    fn pieces_of_a_long_line_are_joined_and_nothing_is_added() {
        let records = [
            record(OutputStream::Stdout, b"one ", LineEnd::Continued),
            record(OutputStream::Stderr, b"\xff\0", LineEnd::Newline),
            record(OutputStream::Stdout, b"line", LineEnd::Newline),
            record(OutputStream::Stdout, b"", LineEnd::Newline),
            record(OutputStream::Stdout, b"tail", LineEnd::Continued),
        ];
        let (stdout, stderr) = shown(Times::Hidden, &records);
        assert_eq!(stdout, b"one line\n\ntail");
        assert_eq!(stderr, b"\xff\0\n");
    }

    #[test]
    fn a_line_has_one_time() {
        let records = [
            record(OutputStream::Stdout, b"a", LineEnd::Continued),
            record(OutputStream::Stdout, b"b", LineEnd::Newline),
        ];
        assert_eq!(shown(Times::Shown, &records).0, b"1970-01-01T00:00:00.000000000Z ab\n");
    }

    #[test]
    fn so_long_ago_is_before_now() {
        let now = Timestamp(5_000_000_000);
        assert_eq!(beginning(Since::Ago(Duration::from_secs(2)), now), Timestamp(3_000_000_000));
        assert_eq!(beginning(Since::Ago(Duration::from_secs(9)), now), Timestamp(0));
    }
}
