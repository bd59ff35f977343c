//! The program of the process: found, checked and executed with the user's rights, inside the container.
//!
//! Checked before the parent is told `Ready`, so that creating a container reports a command that cannot be run. Nothing is
//! executed by a path that the spec does not name.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use oci_spec::runtime::Process;
use rustix::fs::{Access, AtFlags, CWD, FileType, accessat, stat};

use crate::error::{CommandFault, Context, LaunchError, Result, Step, invalid};
use crate::syscall::execve;

/// Where programs are looked for when the process has no PATH.
const PATH_DEFAULT: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A program that is there, with its arguments and environment.
pub(crate) struct Command {
    name: String,
    program: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
}

impl Command {
    /// Finds the program of a process, as the user and in the directory that this process now has.
    pub(crate) fn find(process: &Process, home: &str) -> Result<Command> {
        let arguments = process.args().as_deref().unwrap_or_default();
        let Some(name) = arguments.first().filter(|name| !name.is_empty()) else {
            return Err(invalid("process.args", "the list must begin with the name of a program"));
        };
        let environment = process.env().as_deref().unwrap_or_default();
        let search_path = variable(environment, "PATH");
        let program = if name.contains('/') {
            check(Path::new(name)).map_err(|fault| LaunchError::Command { program: name.clone(), fault })?;
            PathBuf::from(name)
        } else {
            search(name, search_path.unwrap_or(PATH_DEFAULT))
                .map_err(|fault| LaunchError::Command { program: name.clone(), fault })?
        };
        let mut environment = strings(environment, "process.env")?;
        if !environment.iter().any(|entry| entry.as_bytes().starts_with(b"HOME=")) {
            environment.extend(strings(&[format!("HOME={home}")], "HOME")?);
        }
        Ok(Command {
            name: name.clone(),
            program: CString::new(program.as_os_str().as_bytes())
                .map_err(|_| invalid("process.args[0]", "it has a NUL byte"))?,
            arguments: strings(arguments, "process.args")?,
            environment,
        })
    }

    /// Becomes the program. Returns only on failure.
    pub(crate) fn execute(&self) -> LaunchError {
        let error = execve(&self.program, &pointers(&self.arguments), &pointers(&self.environment));
        let fault = match error.raw_os_error() {
            Some(libc::ENOENT) => CommandFault::NoInterpreter,
            Some(libc::EACCES) => CommandFault::NotExecutable,
            Some(libc::ENOEXEC | libc::ELIBBAD | libc::EINVAL) => CommandFault::WrongFormat,
            _ => {
                let refused: io::Result<()> = Err(error);
                return match refused.context(Step::Exec, || format!("executing {:?}", self.name)) {
                    Err(error) => error,
                    Ok(()) => LaunchError::ChildGone,
                };
            }
        };
        LaunchError::Command { program: self.name.clone(), fault }
    }
}

fn variable<'a>(environment: &'a [String], name: &str) -> Option<&'a str> {
    environment.iter().find_map(|entry| entry.strip_prefix(name)?.strip_prefix('='))
}

fn search(name: &str, search_path: &str) -> std::result::Result<PathBuf, CommandFault> {
    let mut denied = None;
    for directory in search_path.split(':').filter(|directory| !directory.is_empty()) {
        let candidate = Path::new(directory).join(name);
        match check(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(CommandFault::NotExecutable) => denied = Some(CommandFault::NotExecutable),
            Err(_) => {}
        }
    }
    Err(denied.unwrap_or_else(|| CommandFault::NotFound { searched: Some(search_path.to_owned()) }))
}

fn check(program: &Path) -> std::result::Result<(), CommandFault> {
    let found = stat(program).map_err(|error| match error {
        rustix::io::Errno::ACCESS => CommandFault::NotExecutable,
        _ => CommandFault::NotFound { searched: None },
    })?;
    match FileType::from_raw_mode(found.st_mode) {
        FileType::Directory => return Err(CommandFault::Directory),
        FileType::RegularFile => {}
        _ => return Err(CommandFault::NotExecutable),
    }
    accessat(CWD, program, Access::EXEC_OK, AtFlags::EACCESS).map_err(|_| CommandFault::NotExecutable)
}

fn strings(texts: &[String], field: &str) -> Result<Vec<CString>> {
    let convert = |text: &String| {
        CString::new(text.as_bytes()).map_err(|_| invalid(field, format!("{text:?} has a NUL byte")))
    };
    texts.iter().map(convert).collect()
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([std::ptr::null()]).collect()
}
