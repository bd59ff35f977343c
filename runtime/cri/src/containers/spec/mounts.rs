//! Mounts.

use std::path::{Path, PathBuf};

use mainstay::{
    Access, IdMapping, IdMappings, ImageMount, MissingSource, Mount, MountSource, Owners, Propagation,
    Relabel, Restriction, Submounts, UserNamespace,
};
use mainstay_cri_api::{self as api, MountPropagation};

use super::known;
use crate::failure::{Failure, Result};

/// All mounts, outer ones before those inside them: kubelet has no order of its own.
pub(super) fn mounts(mounts: &[api::Mount], pod: &UserNamespace) -> Result<Vec<Mount>> {
    let mut all: Vec<Mount> = mounts
        .iter()
        .enumerate()
        .map(|(index, given)| mount(&format!("config.mounts[{index}]"), given, pod))
        .collect::<Result<_>>()?;
    all.sort_by_key(|mount| mount.target.components().count());
    Ok(all)
}

fn mount(field: &str, given: &api::Mount, pod: &UserNamespace) -> Result<Mount> {
    let target: PathBuf = Path::new(&given.container_path).components().collect();
    let mut mount = Mount::new(source(field, given)?, target);
    mount.propagation = match known::<MountPropagation>(&format!("{field}.propagation"), given.propagation)? {
        MountPropagation::PropagationPrivate => Propagation::Private,
        MountPropagation::PropagationHostToContainer => Propagation::Slave,
        MountPropagation::PropagationBidirectional => Propagation::Shared,
    };
    if given.recursive_read_only {
        let refuse = |value: &str, expected: &str| {
            Err(Failure::invalid(format!("{field}.recursive_read_only"), value, expected))
        };
        if !given.readonly {
            return refuse("true, with readonly false", "a mount that is read-only to begin with");
        }
        if mount.propagation != Propagation::Private {
            return refuse("true, with propagation", "a mount with PROPAGATION_PRIVATE");
        }
    }
    (mount.access, mount.submounts) = match (given.readonly, given.recursive_read_only) {
        (false, _) => (Access::ReadWrite, Submounts::Alike),
        (true, false) => (Access::ReadOnly, Submounts::AsOnHost),
        (true, true) => (Access::ReadOnly, Submounts::Alike),
    };
    if let MountSource::Bind { .. } = mount.source {
        mount.owners = owners(given, pod);
        mount.missing = MissingSource::DirectoryMade;
    }
    if given.selinux_relabel {
        mount.relabel = Relabel::Shared;
    }
    for (index, option) in given.mount_options.iter().enumerate() {
        apply(&format!("{field}.mount_options[{index}]"), option, &mut mount)?;
    }
    Ok(mount)
}

fn source(field: &str, given: &api::Mount) -> Result<MountSource> {
    // kubelet sends an image without a name where it means none.
    let image = given.image.as_ref().map(|image| image.image.as_str()).filter(|image| !image.is_empty());
    match image {
        Some(_) if !given.host_path.is_empty() => {
            let expected = "an image or a path of the host, not both";
            Err(Failure::invalid(format!("{field}.host_path"), format!("{:?}", given.host_path), expected))
        }
        Some(_) if !given.readonly => {
            let expected = "true: an image can only be read";
            Err(Failure::invalid(format!("{field}.readonly"), "false", expected))
        }
        Some(image) => {
            let sub_path = (!given.image_sub_path.is_empty()).then(|| given.image_sub_path.clone().into());
            Ok(MountSource::Image(ImageMount { image: image.parse()?, sub_path }))
        }
        None if !given.image_sub_path.is_empty() => {
            let expected = "none, for a mount without an image";
            let shown = format!("{:?}", given.image_sub_path);
            Err(Failure::invalid(format!("{field}.image_sub_path"), shown, expected))
        }
        None => Ok(MountSource::Bind { path: given.host_path.clone().into() }),
    }
}

/// kubelet gives a volume the mappings of its pod where it can be mapped, and none where it cannot.
fn owners(given: &api::Mount, pod: &UserNamespace) -> Owners {
    if given.uid_mappings.is_empty() && given.gid_mappings.is_empty() {
        return Owners::Host;
    }
    let ids = IdMappings { uids: mappings(&given.uid_mappings), gids: mappings(&given.gid_mappings) };
    match pod {
        UserNamespace::Mapped(of_pod) if *of_pod == ids => Owners::Mapped,
        UserNamespace::Mapped(_) | UserNamespace::Auto | UserNamespace::Host => Owners::Given(ids),
    }
}

fn mappings(given: &[api::IdMapping]) -> Vec<IdMapping> {
    let mapping = |mapping: &api::IdMapping| IdMapping {
        container: mapping.container_id,
        host: mapping.host_id,
        size: mapping.length,
    };
    given.iter().map(mapping).collect()
}

/// An option as OCI names it. A word that takes back what nothing has set says nothing.
fn apply(field: &str, option: &str, mount: &mut Mount) -> Result<()> {
    let restriction = match option {
        "noexec" => Restriction::NoExec,
        "nosuid" => Restriction::NoSuid,
        "nodev" => Restriction::NoDev,
        "nosymfollow" => Restriction::NoSymfollow,
        "noatime" => Restriction::NoAtime,
        "exec" | "suid" | "dev" | "symfollow" | "relatime" | "rbind" | "bind" => return Ok(()),
        "ro" => {
            if mount.access == Access::ReadWrite {
                (mount.access, mount.submounts) = (Access::ReadOnly, Submounts::AsOnHost);
            }
            return Ok(());
        }
        _ => {
            let expected = "one of noexec, nosuid, nodev, nosymfollow, noatime and ro";
            return Err(Failure::invalid(field, format!("{option:?}"), expected));
        }
    };
    mount.restrictions.insert(restriction);
    Ok(())
}
