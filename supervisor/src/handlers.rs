//! What runs the containers of a pod, by the name of its handler.
//!
//! Owns: which handlers there are, and what a shim is told of each. Never: runs a program of one, but to ask it what it is
//! (`probe`).
//!
//! | module | holds |
//! |---|---|
//! | [`version`] | what a runtime says of itself (pure) |
//! | [`holes`] | the known holes of runtimes (pure) |
//! | [`fit`] | whether a runtime can do what a spec asks for (pure) |
//! | [`probe`] | asking runtimes, and remembering what they said |

pub mod fit;
pub mod holes;
pub mod probe;
pub mod version;

mod shim_options;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use mainstay_messages::id::HANDLER_DEFAULT;
use mainstay_messages::{Error, Handler, Result};
use mainstay_task_api::extension as wire;

/// What runs the containers of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Runner {
    /// The pod's own shim, by itself.
    #[default]
    Own,
    /// A program with the command line of runc, which the pod's shim calls.
    Oci(OciProgram),
    /// A shim of containerd's, which the pod's own shim starts and asks.
    Shim(ShimProgram),
}

/// A program with the command line of runc.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OciProgram {
    /// A path, or a name that is looked for in `PATH`.
    pub program: String,
    /// What is done with a version that is known to have a hole.
    pub vulnerable: Vulnerable,
}

/// What is done with a program of a version that is known to have a hole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Vulnerable {
    /// The log says so once, and it is used.
    #[default]
    Warn,
    /// Pods of its handler are refused.
    Refuse,
}

/// A shim of containerd's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShimProgram {
    /// A path, a name that is looked for in `PATH`, or a type as in `io.containerd.runc.v2`.
    pub program: String,
    /// What it is told at the creation of each container.
    pub options: BTreeMap<String, OptionValue>,
    /// How it gives the output of processes.
    pub output: ShimOutput,
}

/// How a shim of containerd's gives the output of processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShimOutput {
    /// It starts a logger of ours, which hands the pipes to the pod's own shim.
    #[default]
    Logger,
    /// It writes into named pipes: for shims that know no loggers.
    Fifo,
}

/// The value of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionValue {
    /// A text.
    Text(String),
    /// Yes or no.
    Switch(bool),
    /// A number.
    Number(i64),
}

/// The handlers of a configuration.
#[derive(Clone, Debug, Default)]
pub struct Handlers(BTreeMap<Handler, Runner>);

impl FromIterator<(Handler, Runner)> for Handlers {
    fn from_iter<I: IntoIterator<Item = (Handler, Runner)>>(handlers: I) -> Self {
        Self(handlers.into_iter().collect())
    }
}

/// The name of a handler.
pub(crate) fn handler_name(handler: Option<&Handler>) -> &str {
    handler.map_or(HANDLER_DEFAULT, Handler::as_str)
}

impl Handlers {
    /// What runs the pods of a handler.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for one that there is not.
    pub fn runner(&self, handler: Option<&Handler>) -> Result<&Runner> {
        let name = handler_name(handler);
        if let Some((_, runner)) = self.0.iter().find(|(known, _)| known.as_str() == name) {
            return Ok(runner);
        }
        if name == HANDLER_DEFAULT {
            return Ok(&Runner::Own);
        }
        let others = self.0.keys().map(Handler::as_str).filter(|known| *known != HANDLER_DEFAULT);
        let names: Vec<_> = std::iter::once(HANDLER_DEFAULT).chain(others).collect();
        Err(Error::invalid(
            "handler",
            format!("{name:?}"),
            format!("a handler of the configuration: {}", names.join(", ")),
        ))
    }

    /// The handlers with a program that is called, and the names of those.
    pub(crate) fn programs(&self) -> impl Iterator<Item = (&Handler, Cow<'_, OciProgram>)> {
        self.0.iter().filter_map(|(name, runner)| Some((name, runner.runtime()?)))
    }

    /// The handlers whose shim cannot be started as it is set, and why not.
    pub(crate) fn without_shim(&self) -> impl Iterator<Item = (&Handler, Error)> {
        let shims = self.0.iter().filter(|(_, runner)| matches!(runner, Runner::Shim(_)));
        shims.filter_map(|(name, runner)| Some((name, runner.backend(Some(name)).err()?)))
    }
}

impl Runner {
    /// The program with runc's command line that runs its containers in the end, where there is one: a shim for runc leaves out
    /// what that does not know as well.
    pub(crate) fn runtime(&self) -> Option<Cow<'_, OciProgram>> {
        match self {
            Self::Own => None,
            Self::Oci(program) => Some(Cow::Borrowed(program)),
            Self::Shim(shim) => {
                let program = shim_options::runtime_of(&shim_file(&shim.program), &shim.options)?;
                Some(Cow::Owned(OciProgram { program, vulnerable: Vulnerable::Warn }))
            }
        }
    }

    /// What a shim is told of it; nothing where it does all by itself.
    ///
    /// # Errors
    /// When its program is not there.
    pub(crate) fn backend(&self, handler: Option<&Handler>) -> Result<Option<wire::Backend>> {
        let name = handler_name(handler);
        let kind = match self {
            Self::Own => return Ok(None),
            Self::Oci(OciProgram { program, .. }) => {
                let program = find(&format!("handler.{name}.runtime"), program)?;
                wire::backend::Kind::Oci(wire::OciRuntime { program, ..Default::default() })
            }
            Self::Shim(ShimProgram { program, options, output }) => {
                let output = match output {
                    ShimOutput::Logger => wire::OutputBy::OUTPUT_LOGGER,
                    ShimOutput::Fifo => wire::OutputBy::OUTPUT_FIFO,
                };
                let program = find(&format!("handler.{name}.shim"), &shim_file(program))?;
                let options = shim_options::on_wire(&format!("handler.{name}.options"), &program, options)?;
                let shim = wire::TaskShim {
                    program,
                    output: output.into(),
                    options_type: options.kind,
                    options: options.value,
                    ..Default::default()
                };
                wire::backend::Kind::Shim(shim)
            }
        };
        Ok(Some(wire::Backend { kind: Some(kind), ..Default::default() }))
    }
}

/// The name of a shim's program: `io.containerd.runc.v2` is that of `containerd-shim-runc-v2`, as containerd has it.
fn shim_file(name: &str) -> String {
    if name.contains('/') {
        return name.to_owned();
    }
    match name.rsplit('.').take(2).collect::<Vec<_>>()[..] {
        [version, kind] if !kind.is_empty() && !version.is_empty() => {
            format!("containerd-shim-{kind}-{version}")
        }
        _ => name.to_owned(),
    }
}

/// The absolute path of a program.
fn find(field: &str, program: &str) -> Result<String> {
    let found = if program.contains('/') {
        Some(PathBuf::from(program)).filter(|path| is_program(path))
    } else {
        let places = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&places).map(|place| place.join(program)).find(|path| is_program(path))
    };
    let path = found.filter(|path| path.is_absolute()).and_then(|path| path.to_str().map(str::to_owned));
    path.ok_or_else(|| {
        let expected = "an absolute path of a program, or the name of one that is in PATH";
        Error::invalid(field, format!("{program:?}"), expected)
    })
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handler(name: &str) -> Handler {
        name.parse().expect("a good name")
    }

    fn oci(program: &str) -> Runner {
        Runner::Oci(OciProgram { program: program.to_owned(), vulnerable: Vulnerable::Warn })
    }

    #[test]
    fn the_usual_handler_is_always_there_and_can_be_set() {
        let none = Handlers::default();
        assert_eq!(none.runner(None), Ok(&Runner::Own));
        assert_eq!(none.runner(Some(&handler(HANDLER_DEFAULT))), Ok(&Runner::Own));
        let set: Handlers = [(handler(HANDLER_DEFAULT), oci("runc"))].into_iter().collect();
        assert_eq!(set.runner(None), Ok(&oci("runc")));
    }

    #[test]
    fn one_that_is_not_there_is_refused_with_those_that_are() {
        let handlers: Handlers = [(handler("crun"), oci("crun"))].into_iter().collect();
        let error = handlers.runner(Some(&handler("kata"))).expect_err("not there").to_string();
        assert_eq!(
            error,
            "handler: \"kata\" is not valid; expected a handler of the configuration: mainstay, crun"
        );
    }

    #[test]
    fn a_shim_that_is_not_there_is_said_at_the_start() {
        let shim = |program: &str| {
            let (program, options) = (program.to_owned(), BTreeMap::new());
            Runner::Shim(ShimProgram { program, options, output: ShimOutput::Logger })
        };
        let set: Handlers = [(handler("a"), shim("io.containerd.none.v2")), (handler("b"), shim("/bin/sh"))]
            .into_iter()
            .collect();
        let found: Vec<_> = set.without_shim().map(|(name, error)| format!("{name}: {error}")).collect();
        assert!(
            found.len() == 1 && found[0].starts_with("a: handler.a.shim: \"containerd-shim-none-v2\""),
            "{found:?}"
        );
    }

    #[test]
    fn types_of_containerd_name_their_programs() {
        assert_eq!(shim_file("io.containerd.runc.v2"), "containerd-shim-runc-v2");
        assert_eq!(shim_file("containerd-shim-kata-v2"), "containerd-shim-kata-v2");
        assert_eq!(shim_file("/opt/a.b/shim"), "/opt/a.b/shim");
    }

    #[test]
    fn a_program_that_is_not_there_is_named_with_its_field() {
        let error = oci("no-such-runtime").backend(Some(&handler("x"))).expect_err("not there").to_string();
        assert!(error.starts_with("handler.x.runtime: \"no-such-runtime\" is not valid"), "{error}");
        let backend = oci("sh").backend(None).expect("there").expect("one");
        assert!(matches!(backend.kind, Some(wire::backend::Kind::Oci(oci)) if oci.program.starts_with('/')));
    }
}
