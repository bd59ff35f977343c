//! `run` and `create`: a pod and a container from a command line, in a daemon or inside this command.
//!
//! ```text
//! pod of its own (or --pod) ─► container ─► streams open ─► started ─► session ─► removed (--rm, or inside
//! us)
//! ```
//!
//! Whatever fails on the way, a pod that was made for the container is removed again; only a container that
//! could not be started stays listed, with the reason, where it was not to be removed.

use std::collections::BTreeMap;
use std::process::ExitCode;

use mainstay_admin::Client;
use mainstay_messages::admin::{Attached, IfRunning, Object, OnLag, Reference, StreamRequest};
use mainstay_messages::error::Kind;
use mainstay_messages::spec::{ContainerPid, SECCOMP_PROFILE_LENGTH_MAX, Stdin, Terminal};
use mainstay_messages::{ContainerSpec, Error, Name, SandboxSpec};
use serde_json::json;

use super::image::provide;
use super::process::{conclude, environment, read_text, terminal_for};
use crate::arguments::container::{CreateArguments, NetworkName, RunArguments};
use crate::arguments::spec::Surroundings;
use crate::connection::{Context, absolute};
use crate::embedded::Embedded;
use crate::failure::{Failure, Result};
use crate::foreground::{self, Ending, Plan, Screen, Start};
use crate::naming::{made_up_name, random_hex};
use crate::output::tell_failure;
use crate::signals::{Ownership, Signals};
use crate::terminal::{self, DetachKeys, WINDOW_DEFAULT};

/// On a pod that was made for one container and is removed with it: the container's name.
pub(super) const OWN_POD_ANNOTATION: &str = "dev.mainstay.pod-of";
/// On what a command makes: which command it was. The daemon takes a creation that says the same as an earlier one
/// for the same request, sent again; two commands are never the same request, however alike they are.
const REQUEST_ANNOTATION: &str = "dev.mainstay.request";
/// How often another made-up name is tried when somebody has it already.
const NAME_ATTEMPTS_MAX: usize = 5;

/// What was made.
#[derive(Debug)]
struct Made {
    /// The pod that was made for the container, if one was.
    own_pod: Option<Reference>,
    /// The container; it may be one that could not be set up.
    container: Reference,
    /// Why it could not be set up.
    failed: Option<Error>,
    spec: ContainerSpec,
}

/// What is asked for, with all that was to be read for it.
struct Wanted<'a> {
    arguments: &'a CreateArguments,
    /// What no other command has.
    request: String,
    environment: BTreeMap<String, String>,
    seccomp_profile: Option<String>,
}

/// What becomes of the container at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Afterwards {
    Remove,
    Keep,
}

/// `mainstay run`
pub(super) async fn run(context: &Context, arguments: &RunArguments) -> Result<ExitCode> {
    let wanted = Wanted::read(&arguments.what)?;
    if !arguments.detach {
        terminal_for(&arguments.what.process)?;
    }
    let mut signals = Signals::listen()?;
    let client = if arguments.embedded { None } else { context.daemon_if_any().await? };
    let Some(client) = client else {
        return inside(context, arguments, &wanted, &mut signals).await;
    };
    if arguments.detach {
        return detached(context, &client, &wanted, &mut signals).await;
    }
    let afterwards = if arguments.remove { Afterwards::Remove } else { Afterwards::Keep };
    let stdin = if arguments.what.process.tty { Stdin::Open } else { Stdin::Once };
    let made = make(&client, &wanted, stdin, &mut signals).await?;
    let ending = foreground(&client, &made, afterwards, &mut signals).await;
    if afterwards == Afterwards::Remove
        && let Err(error) = remove(&client, &made).await
    {
        tell_failure(&error);
    }
    conclude(ending?)
}

/// `mainstay create`
pub(super) async fn create(context: &Context, arguments: &CreateArguments) -> Result<ExitCode> {
    let wanted = Wanted::read(arguments)?;
    let client = context.daemon().await?;
    let mut signals = Signals::listen()?;
    let made = make(&client, &wanted, Stdin::Open, &mut signals).await?;
    match made.failed {
        Some(error) => conclude(Ending::NotStarted(error)),
        None => print_id(context, &made),
    }
}

/// Runs the container in a daemon inside this command.
async fn inside(
    context: &Context,
    arguments: &RunArguments,
    wanted: &Wanted<'_>,
    signals: &mut Signals,
) -> Result<ExitCode> {
    // A bridge with its addresses is one runtime's, and stays for as long as it has pods.
    let sandbox = &arguments.what.sandbox;
    let needs_daemon = [
        ("--detach", arguments.detach),
        ("--pod", arguments.what.pod.is_some()),
        ("--network builtin", sandbox.network == Some(NetworkName::Builtin)),
        ("--network cni", sandbox.network == Some(NetworkName::Cni)),
        ("--publish", !sandbox.publish.is_empty()),
        ("--ip", !sandbox.ip.is_empty()),
        ("--mac", sandbox.mac.is_some()),
    ];
    if let Some((what, _)) = needs_daemon.into_iter().find(|(_, given)| *given) {
        return Err(Failure::NeedsDaemon { what, socket: context.socket()? });
    }
    Failure::unless_root("run", "it makes namespaces, mounts and cgroups")?;
    let embedded = signals.patiently(Embedded::start(context.image_settings()?)).await??;
    let ending = async {
        let client = Client::connect(embedded.socket()).await?;
        let made = make(&client, wanted, Stdin::Once, signals).await?;
        foreground(&client, &made, Afterwards::Remove, signals).await
    }
    .await;
    // Signals are still taken, so that nothing stops the tidying up.
    if let Err(failure) = embedded.close().await {
        tell_failure(&failure);
    }
    conclude(ending?)
}

/// Makes the container, starts it and leaves it.
async fn detached(
    context: &Context,
    client: &Client,
    wanted: &Wanted<'_>,
    signals: &mut Signals,
) -> Result<ExitCode> {
    let made = make(client, wanted, Stdin::Open, signals).await?;
    let started = match &made.failed {
        Some(error) => Err(error.clone()),
        None => client.start_container(made.container.clone()).await,
    };
    match started {
        Ok(()) => print_id(context, &made),
        Err(error) => conclude(Ending::NotStarted(error)),
    }
}

fn print_id(context: &Context, made: &Made) -> Result<ExitCode> {
    let json = json!({ "id": made.container.0, "name": made.spec.name.as_str() });
    super::print(context.format(), || format!("{}\n", made.container.0), &json)
}

/// Opens the streams, starts the container and shows it until it has ended.
async fn foreground(
    client: &Client,
    made: &Made,
    afterwards: Afterwards,
    signals: &mut Signals,
) -> Result<Ending> {
    if let Some(error) = &made.failed {
        return Ok(Ending::NotStarted(error.clone()));
    }
    let input = if made.spec.stdin == Stdin::Null { Attached::No } else { Attached::Yes };
    let request = StreamRequest::Attach {
        container: made.container.clone(),
        stdin: input,
        // The container is ours: it waits for whoever reads us, as every program does.
        on_lag: OnLag::Block,
    };
    let stream = client.open(request).await?;
    let plan = Plan {
        container: made.container.clone(),
        ownership: Ownership::Run,
        input,
        screen: if made.spec.process.terminal == Terminal::None { Screen::None } else { Screen::Terminal },
        keys: match afterwards {
            Afterwards::Remove => DetachKeys::Ignored,
            Afterwards::Keep => DetachKeys::Watched,
        },
        start: Start::Now,
    };
    foreground::run(client, stream, signals, plan).await
}

/// Makes the pod, if none was named, and the container in it.
async fn make(client: &Client, wanted: &Wanted<'_>, stdin: Stdin, signals: &mut Signals) -> Result<Made> {
    let given = &wanted.arguments.name;
    let mut attempt = 1;
    loop {
        let name = given.clone().map_or_else(new_name, Ok)?;
        match make_named(client, wanted, name, stdin, signals).await {
            Err(Failure::Refused(Error::NameTaken { .. }))
                if given.is_none() && attempt < NAME_ATTEMPTS_MAX =>
            {
                attempt += 1;
            }
            outcome => return outcome,
        }
    }
}

async fn make_named(
    client: &Client,
    wanted: &Wanted<'_>,
    name: Name,
    stdin: Stdin,
    signals: &mut Signals,
) -> Result<Made> {
    signals.check()?;
    let (sandbox, mut container) = wanted.specs(name, stdin)?;
    let mounted = container.mounted_images().map(|(_, image)| image);
    for name in container.image().map(|root| &root.image).into_iter().chain(mounted) {
        let image = &wanted.arguments.image;
        let provided = provide(client, name, image.platform.clone(), image.policy());
        signals.impatiently(provided).await??;
    }
    if let Some(other) = &wanted.arguments.pid_of {
        container.pid = pid_of(client, other).await?;
    }
    let (pod, own_pod) = match &wanted.arguments.pod {
        Some(pod) => (pod.clone(), None),
        None => {
            let id = signals.patiently(client.run_sandbox(sandbox)).await??;
            let pod = Reference(id.to_string());
            (pod.clone(), Some(pod))
        }
    };
    let by_name = Reference(format!("{}/{}", pod.0, container.name));
    let created = async {
        signals.check()?;
        let id = signals.patiently(client.create_container(pod, container.clone())).await??;
        Ok::<_, Failure>(id)
    };
    let made = match created.await {
        Ok(id) => Made { own_pod, container: Reference(id.to_string()), failed: None, spec: container },
        // Its record says why it could not be set up.
        Err(Failure::Refused(error @ Error::StartFailed { .. })) => {
            Made { own_pod, container: by_name, failed: Some(error), spec: container }
        }
        Err(failure) => {
            if let Some(pod) = own_pod
                && let Err(error) = client.remove_sandbox(pod).await
            {
                tell_failure(&error);
            }
            return Err(failure);
        }
    };
    if let Err(interrupted) = signals.check() {
        if let Err(error) = remove(client, &made).await {
            tell_failure(&error);
        }
        return Err(interrupted);
    }
    Ok(made)
}

impl<'a> Wanted<'a> {
    /// Reads what is to be read, and checks all that can be found wrong before anything is made.
    fn read(arguments: &'a CreateArguments) -> Result<Self> {
        let request = random_hex().map_err(|e| Failure::machine("random bytes for a request", e))?;
        let environment = environment(&arguments.process)?;
        let read_profile = |path| read_text(path, "a system call profile", SECCOMP_PROFILE_LENGTH_MAX as u64);
        let seccomp_profile = arguments.security.seccomp_file().map(read_profile).transpose()?;
        let wanted = Self { arguments, request, environment, seccomp_profile };
        let name = arguments.name.clone().map_or_else(new_name, Ok)?;
        let (sandbox, container) = wanted.specs(name, Stdin::Null)?;
        sandbox.check()?;
        container.check()?;
        Ok(wanted)
    }

    fn specs(&self, name: Name, stdin: Stdin) -> Result<(SandboxSpec, ContainerSpec)> {
        let surroundings = Surroundings {
            environment: self.environment.clone(),
            window: terminal::window().unwrap_or(WINDOW_DEFAULT),
            absolute: &absolute,
            seccomp_profile: self.seccomp_profile.clone(),
        };
        let mut sandbox = self.arguments.sandbox_spec(name.clone());
        sandbox.annotations.insert(OWN_POD_ANNOTATION.to_owned(), name.to_string());
        let mut container = self.arguments.container_spec(name, stdin, surroundings)?;
        for annotations in [&mut sandbox.annotations, &mut container.annotations] {
            annotations.insert(REQUEST_ANNOTATION.to_owned(), self.request.clone());
        }
        Ok((sandbox, container))
    }
}

/// The id of the container whose processes are to be seen.
async fn pid_of(client: &Client, container: &Reference) -> Result<ContainerPid> {
    match client.inspect(container.clone()).await? {
        Object::Container { container, .. } => Ok(ContainerPid::Container { container: container.record.id }),
        Object::Sandbox { .. } | Object::Exec(_) => {
            Err(Error::not_found(Kind::Container, &container.0).into())
        }
    }
}

fn new_name() -> Result<Name> {
    made_up_name().map_err(|e| Failure::machine("random bytes for a name", e))
}

/// Removes the container, and the pod that was made for it.
async fn remove(client: &Client, made: &Made) -> Result<(), Error> {
    let container = client.remove_container(made.container.clone(), IfRunning::Kill).await;
    let pod = match &made.own_pod {
        Some(pod) => client.remove_sandbox(pod.clone()).await,
        None => Ok(()),
    };
    match (container, &made.own_pod) {
        // With its pod, a container that could not be set up is gone as well.
        (Err(Error::NotFound { .. }), _) | (Ok(()), _) => pod,
        (Err(_), Some(_)) => pod,
        (Err(error), None) => Err(error),
    }
}
