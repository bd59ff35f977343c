//! CreateContainer: from the request to a container that waits to be started.
//!
//! Owns: the order of things, and what is kept beside the spec. What a container is made of is in [`super::spec`].

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mainstay::{
    ContainerId, ContainerIdentity, ContainerPhase, ContainerSnapshot, ContainerSpec, HandlerSettings,
    IfRunning, Image, ImageName, Name, SandboxId, SandboxRecord, SandboxSnapshot,
};
use mainstay_cri_api::{ContainerConfig, CreateContainerRequest, CreateContainerResponse, ImageSpec};

use super::spec::{self, Asked};
use crate::failure::{Failure, Result};
use crate::node::Node;
use crate::{filter, names, notes};

/// `CreateContainer`. The same request again joins the first, or is answered with its container.
pub(crate) async fn create(
    node: Arc<Node>,
    request: CreateContainerRequest,
) -> Result<CreateContainerResponse> {
    let pod = filter::pod(&node.runtime, &request.pod_sandbox_id)?;
    let Some(config) = request.config else {
        return Err(Failure::invalid("config", "nothing", "what the container is to be"));
    };
    let identity = identity(&config)?;
    check_privilege(&config, &pod)?;
    let image = image(&node, &config).await?;
    let asked = Asked { config: &config, pod: &pod, image: &image };
    let spec = ContainerSpec {
        labels: config.labels.clone().into_iter().collect(),
        annotations: config.annotations.clone().into_iter().collect(),
        runtime_annotations: Some(passed(
            &handler(&node, &pod.record),
            &pod.record.spec.annotations,
            &config.annotations,
        )),
        log_path: log_path(&config, &pod),
        notes: kept(config.image.as_ref(), &image),
        identity: Some(identity.clone()),
        ..spec::spec(names::of_container(&identity), asked).await?
    };
    let name = spec.name.clone();
    match node.runtime.create_container(&pod.record.id, spec).await {
        Ok(container) => Ok(CreateContainerResponse { container_id: container.to_string() }),
        Err(error) => {
            remove_failed(&node, &pod.record.id, &name).await;
            let what = || format!("container {}, attempt {},", identity.name, identity.attempt);
            Err(Failure::to_make(what, error))
        }
    }
}

/// The settings of a pod's handler. One that the configuration has no more lets nothing through.
fn handler(node: &Node, pod: &SandboxRecord) -> HandlerSettings {
    let name = pod.spec.handler.as_ref().map_or("", |handler| handler.as_str());
    node.runtime.config().handler.settings(name).unwrap_or_default()
}

/// The annotations that go on to the OCI runtime: those that the handler lists, of the pod and of the container.
fn passed(
    handler: &HandlerSettings,
    of_pod: &BTreeMap<String, String>,
    own: &HashMap<String, String>,
) -> BTreeMap<String, String> {
    let of_pod = of_pod.iter().filter(|(key, _)| handler.passes_of_pod(key));
    let own = own.iter().filter(|(key, _)| handler.passes_of_container(key));
    of_pod.chain(own).map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn identity(config: &ContainerConfig) -> Result<ContainerIdentity> {
    match &config.metadata {
        Some(metadata) if !metadata.name.is_empty() => {
            Ok(ContainerIdentity { name: metadata.name.clone(), attempt: metadata.attempt })
        }
        Some(_) => Err(Failure::invalid("config.metadata.name", "\"\"", "the container's name")),
        None => Err(Failure::invalid("config.metadata", "nothing", "the container's name and attempt")),
    }
}

/// A pod that was not asked for as privileged has no privileged containers.
fn check_privilege(config: &ContainerConfig, pod: &SandboxSnapshot) -> Result<()> {
    let security = config.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
    let privileged = security.is_some_and(|security| security.privileged);
    if !privileged || pod.record.spec.notes.contains_key(notes::PRIVILEGED) {
        return Ok(());
    }
    let expected = "false, in a pod that was not asked for as privileged";
    Err(Failure::invalid("config.linux.security_context.privileged", "true", expected))
}

async fn image(node: &Node, config: &ContainerConfig) -> Result<Image> {
    let asked = config.image.as_ref().map(|image| image.image.as_str()).unwrap_or_default();
    if asked.is_empty() {
        return Err(Failure::invalid(
            "config.image.image",
            "\"\"",
            "the name or id of an image that is here",
        ));
    }
    let name: ImageName = asked.parse()?;
    Ok(node.runtime.image(&name).await?)
}

/// Below the directory of the pod. Where either is not said, the log is the runtime's own.
fn log_path(config: &ContainerConfig, pod: &SandboxSnapshot) -> Option<PathBuf> {
    let directory = pod.record.spec.notes.get(notes::LOG_DIRECTORY)?;
    (!config.log_path.is_empty()).then(|| Path::new(directory).join(&config.log_path))
}

/// What the interface gives back about the image. It is found out once: a status must not wait for the images.
fn kept(asked: Option<&ImageSpec>, image: &Image) -> BTreeMap<String, String> {
    let nothing = ImageSpec::default();
    let asked = asked.unwrap_or(&nothing);
    let is_users = |name: &&String| {
        [&asked.user_specified_image, &asked.image]
            .into_iter()
            .any(|given| !given.is_empty() && name.ends_with(given.as_str()))
    };
    let name = image.tags.iter().find(is_users).or(image.tags.first());
    // What other names the image gets must not make another container of the next request.
    let repository = name.and_then(|name| name.rsplit_once(':')).map(|(repository, _)| repository);
    let is_same = |digest: &&String| {
        let beside = repository.and_then(|repository| digest.strip_prefix(repository));
        beside.is_some_and(|rest| rest.starts_with('@'))
    };
    let reference = image.digests.iter().find(is_same).or(image.digests.first());
    let notes = [
        (notes::IMAGE, asked.image.as_str()),
        (notes::IMAGE_USER, asked.user_specified_image.as_str()),
        (notes::IMAGE_NAME, name.map_or("", String::as_str)),
        (notes::IMAGE_REF, reference.map_or("", String::as_str)),
    ];
    let given = notes.into_iter().filter(|(_, value)| !value.is_empty());
    given.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// The runtime lists a container that could not be made until somebody has seen why. Here whoever asked is told, and asks again under
/// the same name.
async fn remove_failed(node: &Node, pod: &SandboxId, name: &Name) {
    let failed = |container: &Arc<ContainerSnapshot>| {
        let record = &container.record;
        let never_was = record.process.is_none() && record.started_at.is_none();
        record.spec.name == *name && record.phase == ContainerPhase::Exited && never_was
    };
    let failed: Option<ContainerId> =
        node.runtime.containers_of(pod).into_iter().find(failed).map(|container| container.record.id.clone());
    if let Some(id) = failed
        && let Err(error) = node.runtime.remove_container(&id, IfRunning::Refuse).await
    {
        tracing::warn!(container = %id, %error, "a container that could not be made stays listed");
    }
}

#[cfg(test)]
mod tests {
    use mainstay::{SandboxRecord, SandboxSpec, Timestamp};

    use super::*;

    #[test]
    fn annotations_go_on_that_the_handler_lists() {
        let handler = HandlerSettings {
            pod_annotations: vec!["a.io/*".into()],
            container_annotations: vec!["b.io/one".into()],
            ..HandlerSettings::default()
        };
        let all = [("a.io/x", "1"), ("b.io/one", "2"), ("c", "3")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        let passed = passed(&handler, &all.clone().into(), &all.into());
        let expected = [("a.io/x", "1"), ("b.io/one", "2")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert_eq!(passed, expected.into());
    }

    /// crictl and the conformance suite name a file without a directory: nobody would find it.
    #[test]
    fn a_log_is_where_both_say() {
        let pod = |directory: Option<&str>| {
            let mut spec = SandboxSpec::new("web".parse().expect("a name"));
            spec.notes.extend(directory.map(|path| (notes::LOG_DIRECTORY.to_owned(), path.to_owned())));
            let record = SandboxRecord::intent("id".parse().expect("an id"), spec, Timestamp(1));
            SandboxSnapshot { record, activity: None }
        };
        let config = |path: &str| ContainerConfig { log_path: path.to_owned(), ..Default::default() };
        let both = log_path(&config("app/0.log"), &pod(Some("/var/log/pods/x")));
        assert_eq!(both.as_deref(), Some(Path::new("/var/log/pods/x/app/0.log")));
        assert_eq!(log_path(&config("app/0.log"), &pod(None)), None);
        assert_eq!(log_path(&config(""), &pod(Some("/var/log/pods/x"))), None);
    }
}
