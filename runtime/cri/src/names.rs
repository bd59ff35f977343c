//! Names of pods and containers, made from what makes them one in the interface.
//!
//! Two requests are for the same pod when name, namespace, uid and attempt are the same, and for the same container in a pod when name
//! and attempt are. The runtime knows one name, of an alphabet of its own: it is readable where the parts are as Kubernetes has them,
//! and a digest of them where they are not. Different parts never make the same name.

use mainstay::{ContainerIdentity, Name, PodIdentity};
use sha2::{Digest, Sha256};

/// Between the parts: no name, namespace or uid of Kubernetes has it.
const BETWEEN: char = '_';
/// What a digest begins with. A readable name has at least one [`BETWEEN`].
const DIGEST: &str = "sha256-";

/// The name of a pod.
pub(crate) fn of_pod(identity: &PodIdentity) -> Name {
    let PodIdentity { name, namespace, uid, attempt } = identity;
    joined(&[name, namespace, uid, &attempt.to_string()])
}

/// The name of a container in its pod.
pub(crate) fn of_container(identity: &ContainerIdentity) -> Name {
    joined(&[&identity.name, &identity.attempt.to_string()])
}

fn joined(parts: &[&str]) -> Name {
    let text = parts.join(&BETWEEN.to_string());
    let plain = parts.iter().all(|part| !part.is_empty() && !part.contains(BETWEEN));
    match text.parse() {
        Ok(name) if plain => name,
        _ => digest(parts),
    }
}

fn digest(parts: &[&str]) -> Name {
    let mut hash = Sha256::new();
    for part in parts {
        // With its length, no part can be taken for another with what follows.
        hash.update(part.len().to_be_bytes());
        hash.update(part.as_bytes());
    }
    let hex: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    // Letters and digits, of a fixed length.
    format!("{DIGEST}{hex}").parse().expect("a digest in hexadecimal is a name")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, namespace: &str, uid: &str, attempt: u32) -> String {
        let identity = PodIdentity {
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            uid: uid.to_owned(),
            attempt,
        };
        of_pod(&identity).to_string()
    }

    #[test]
    fn names_of_kubernetes_can_be_read() {
        assert_eq!(pod("web-0", "shop", "1b2c", 3), "web-0_shop_1b2c_3");
        let container = ContainerIdentity { name: "app".to_owned(), attempt: 2 };
        assert_eq!(of_container(&container).as_str(), "app_2");
    }

    #[test]
    fn other_parts_make_another_name() {
        let long = "x".repeat(300);
        let all = [
            pod("a_b", "c", "d", 0),
            pod("a", "b_c", "d", 0),
            pod("a", "b", "c_d", 0),
            pod("", "a_b_c", "d", 0),
            pod("ü", "c", "d", 0),
            pod("-a", "c", "d", 0),
            pod(&long, "c", "d", 0),
            pod(&long, "c", "d", 1),
            pod("a", "b", "c", 1),
            pod("a", "b", "c", 11),
        ];
        let different: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len(), "{all:#?}");
    }
}
