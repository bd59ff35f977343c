//! What the interface gives back that a runtime has no word for: kept in the notes of pods and containers.
//!
//! Owns: the keys. A pod or container without an identity was not asked for over this interface, and is not shown there: kubelet
//! ends what it has not asked for.

/// The directory for the logs of a pod's containers.
pub(crate) const LOG_DIRECTORY: &str = "cri.log_directory";
/// There in a pod that may have privileged containers.
pub(crate) const PRIVILEGED: &str = "cri.privileged";
/// The image of a container as it was asked for.
pub(crate) const IMAGE: &str = "cri.image";
/// The same as the user wrote it.
pub(crate) const IMAGE_USER: &str = "cri.image.user";
/// A name by which people know the image of a container.
pub(crate) const IMAGE_NAME: &str = "cri.image.name";
/// The image of a container in its registry: a name with a digest.
pub(crate) const IMAGE_REF: &str = "cri.image.ref";
