//! The bytes of a report: encoding in the child, decoding in the parent.
//!
//! Pure; never touches the socket. The layout is described in [`super`].

use std::io;
use std::os::fd::OwnedFd;

use super::Reply;
use crate::error::{CommandFault, LaunchError, Result, Step};

/// The longest text in a message; the rest of a longer one is left out.
const TEXT_MAX_BYTES: usize = 4 * 1024;
/// The most warnings of one launch; further ones are left out.
const WARNINGS_MAX: usize = 16;
/// The longest warning.
const WARNING_MAX_BYTES: usize = 512;

const READY: u8 = b'R';
const FAILED: u8 = b'F';
const ENVIRONMENT: u8 = b'E';

mod tag {
    pub(super) const SPEC: u8 = 0;
    pub(super) const UNSUPPORTED: u8 = 1;
    pub(super) const COMMAND: u8 = 2;
    pub(super) const USER: u8 = 3;
    pub(super) const SYSTEM: u8 = 4;
    pub(super) const TARGET_GONE: u8 = 5;
    pub(super) const INTERNAL: u8 = 6;
    pub(super) const CHILD_GONE: u8 = 7;
    pub(super) const MACHINE: u8 = 8;
    pub(super) const HOOK: u8 = 9;
}

mod fault {
    pub(super) const NOT_FOUND: u8 = 0;
    pub(super) const NOT_FOUND_IN_PATH: u8 = 1;
    pub(super) const DIRECTORY: u8 = 2;
    pub(super) const NOT_EXECUTABLE: u8 = 3;
    pub(super) const NO_INTERPRETER: u8 = 4;
    pub(super) const WRONG_FORMAT: u8 = 5;
}

fn put_number(frame: &mut Vec<u8>, number: u32) {
    frame.extend_from_slice(&number.to_ne_bytes());
}

fn put_text(frame: &mut Vec<u8>, text: &str, limit_bytes: usize) {
    let mut end = text.len().min(limit_bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    put_number(frame, end as u32);
    frame.extend_from_slice(&text.as_bytes()[..end]);
}

/// The report of a failure.
pub(super) fn failed(error: &LaunchError) -> Vec<u8> {
    let mut frame = vec![FAILED];
    let two = |frame: &mut Vec<u8>, kind: u8, first: &str, second: &str| {
        frame.push(kind);
        put_text(frame, first, TEXT_MAX_BYTES);
        put_text(frame, second, TEXT_MAX_BYTES);
    };
    match error {
        LaunchError::Spec { field, problem } => two(&mut frame, tag::SPEC, field, problem),
        LaunchError::Unsupported { field, value } => two(&mut frame, tag::UNSUPPORTED, field, value),
        LaunchError::Machine { field, reason } => two(&mut frame, tag::MACHINE, field, reason),
        LaunchError::Hook { hook, problem } => two(&mut frame, tag::HOOK, hook, problem),
        LaunchError::User { user, problem } => two(&mut frame, tag::USER, user, problem),
        LaunchError::Command { program, fault } => {
            let (kind, searched) = match fault {
                CommandFault::NotFound { searched: None } => (fault::NOT_FOUND, ""),
                CommandFault::NotFound { searched: Some(path) } => (fault::NOT_FOUND_IN_PATH, path.as_str()),
                CommandFault::Directory => (fault::DIRECTORY, ""),
                CommandFault::NotExecutable => (fault::NOT_EXECUTABLE, ""),
                CommandFault::NoInterpreter => (fault::NO_INTERPRETER, ""),
                CommandFault::WrongFormat => (fault::WRONG_FORMAT, ""),
            };
            two(&mut frame, tag::COMMAND, program, searched);
            frame.push(kind);
        }
        LaunchError::System { step, subject, source } => {
            frame.push(tag::SYSTEM);
            frame.push(*step as u8);
            put_text(&mut frame, subject, TEXT_MAX_BYTES);
            match source.raw_os_error() {
                Some(code) => put_number(&mut frame, code as u32),
                None => {
                    put_number(&mut frame, 0);
                    put_text(&mut frame, &source.to_string(), TEXT_MAX_BYTES);
                }
            }
        }
        LaunchError::TargetGone => frame.push(tag::TARGET_GONE),
        // Never sent: only the parent can see that a child is gone.
        LaunchError::ChildGone => frame.push(tag::CHILD_GONE),
        LaunchError::Internal { detail } => {
            frame.push(tag::INTERNAL);
            put_text(&mut frame, detail, TEXT_MAX_BYTES);
        }
    }
    frame
}

/// The report that it is the caller's turn.
pub(super) const ENVIRONMENT_FRAME: [u8; 1] = [ENVIRONMENT];

/// The report that all is prepared.
pub(super) fn ready(warnings: &[String]) -> Vec<u8> {
    let mut frame = vec![READY];
    let kept = &warnings[..warnings.len().min(WARNINGS_MAX)];
    put_number(&mut frame, kept.len() as u32);
    for warning in kept {
        put_text(&mut frame, warning, WARNING_MAX_BYTES);
    }
    frame
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn number(&mut self) -> Option<u32> {
        let (number, rest) = self.rest.split_first_chunk::<4>()?;
        self.rest = rest;
        Some(u32::from_ne_bytes(*number))
    }

    fn text(&mut self) -> Option<String> {
        let length = usize::try_from(self.number()?).ok()?;
        let (text, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(String::from_utf8_lossy(text).into_owned())
    }
}

/// Reads a report.
pub(super) fn decode(frame: &[u8], terminal: Option<OwnedFd>) -> Result<Reply> {
    let mut reader = Reader { rest: frame };
    let reply = match reader.byte() {
        Some(READY) => decode_ready(&mut reader, terminal),
        Some(FAILED) => decode_error(&mut reader).map(Reply::Failed),
        Some(ENVIRONMENT) => Some(Reply::Environment),
        _ => None,
    };
    reply.ok_or_else(|| LaunchError::Internal {
        detail: format!("a report of {} bytes that makes no sense", frame.len()),
    })
}

fn decode_ready(reader: &mut Reader<'_>, terminal: Option<OwnedFd>) -> Option<Reply> {
    let count = reader.number()?;
    let warnings = (0..count).map(|_| reader.text()).collect::<Option<Vec<_>>>()?;
    Some(Reply::Ready { terminal, warnings })
}

fn decode_error(reader: &mut Reader<'_>) -> Option<LaunchError> {
    Some(match reader.byte()? {
        tag::SPEC => LaunchError::Spec { field: reader.text()?, problem: reader.text()? },
        tag::UNSUPPORTED => LaunchError::Unsupported { field: reader.text()?, value: reader.text()? },
        tag::MACHINE => LaunchError::Machine { field: reader.text()?, reason: reader.text()? },
        tag::HOOK => LaunchError::Hook { hook: reader.text()?, problem: reader.text()? },
        tag::USER => LaunchError::User { user: reader.text()?, problem: reader.text()? },
        tag::COMMAND => {
            let program = reader.text()?;
            let searched = reader.text()?;
            let fault = match reader.byte()? {
                fault::NOT_FOUND => CommandFault::NotFound { searched: None },
                fault::NOT_FOUND_IN_PATH => CommandFault::NotFound { searched: Some(searched) },
                fault::DIRECTORY => CommandFault::Directory,
                fault::NOT_EXECUTABLE => CommandFault::NotExecutable,
                fault::NO_INTERPRETER => CommandFault::NoInterpreter,
                fault::WRONG_FORMAT => CommandFault::WrongFormat,
                _ => return None,
            };
            LaunchError::Command { program, fault }
        }
        tag::SYSTEM => {
            let step = Step::from_wire(reader.byte()?)?;
            let subject = reader.text()?;
            let source = match reader.number()? {
                0 => io::Error::other(reader.text()?),
                code => io::Error::from_raw_os_error(code as i32),
            };
            LaunchError::System { step, subject, source }
        }
        tag::TARGET_GONE => LaunchError::TargetGone,
        tag::CHILD_GONE => LaunchError::ChildGone,
        tag::INTERNAL => LaunchError::Internal { detail: reader.text()? },
        _ => return None,
    })
}
