//! What another shim is given to read: the bundle of the pod, and annotations in those of its containers.
//!
//! Owns: the annotations by which a shim knows that containers belong together. Never: changes what a container is.

use std::path::Path;

use oci_spec::runtime::Spec;
use serde_json::json;

use crate::failure::Failure;

/// By these a shim knows which containers it is to serve together.
const GROUP_ANNOTATIONS: [&str; 2] = ["io.containerd.runc.v2.group", "io.kubernetes.cri.sandbox-id"];
/// By this it knows a container of a pod from the pod's own.
const KIND_ANNOTATION: &str = "io.kubernetes.cri.container-type";
const KIND_CONTAINER: &str = "container";

/// Writes the bundle of the pod as a whole. There is no process in it: it is for shims that look for the pod's annotations, or
/// make machinery for it.
pub(super) fn write_pod(bundle: &Path, pod: &str) -> Result<(), Failure> {
    let annotations: serde_json::Map<_, _> =
        GROUP_ANNOTATIONS.iter().map(|name| ((*name).to_owned(), json!(pod))).collect();
    let spec = json!({
        "ociVersion": "1.1.0",
        "annotations": annotations,
        "root": { "path": "rootfs" },
        "process": { "cwd": "/", "args": ["pause"], "user": { "uid": 0, "gid": 0 } },
        "linux": {},
    });
    let path = bundle.join("config.json");
    std::fs::write(&path, spec.to_string()).map_err(|source| Failure::File { path, doing: "written", source })
}

/// Says in the spec of a container which pod it is of. What the spec says already stands.
pub(super) fn note_pod(spec: &mut Spec, pod: &str) {
    let annotations = spec.annotations_mut().get_or_insert_with(Default::default);
    for name in GROUP_ANNOTATIONS {
        annotations.entry(name.to_owned()).or_insert_with(|| pod.to_owned());
    }
    annotations.entry(KIND_ANNOTATION.to_owned()).or_insert_with(|| KIND_CONTAINER.to_owned());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_say_the_same_pod_and_both_can_be_read() {
        let directory = tempfile::tempdir().expect("a directory");
        write_pod(directory.path(), "web").expect("written");
        let pod = crate::container::read_spec(directory.path()).expect("a spec");
        let mut container = Spec::default();
        note_pod(&mut container, "web");
        let of = |spec: &Spec| {
            let annotations = spec.annotations().clone().expect("some");
            GROUP_ANNOTATIONS.map(|name| annotations[name].clone())
        };
        assert_eq!(of(&pod), of(&container));
    }
}
