//! Mounts of a container as the interface shows them.

use mainstay::{Access, Mount, MountSource, Owners, Propagation, Relabel, Submounts};
use mainstay_cri_api as api;

use crate::pods::show::ids;

/// A mount, if it is of a kind that the interface has.
pub(crate) fn shown(mount: &Mount) -> Option<api::Mount> {
    let mut shown = api::Mount {
        container_path: mount.target.display().to_string(),
        readonly: mount.access == Access::ReadOnly || mount.stands_on().is_some(),
        selinux_relabel: mount.relabel != Relabel::Never,
        ..Default::default()
    };
    match &mount.source {
        MountSource::Bind { path } => {
            shown.host_path = path.display().to_string();
            shown.recursive_read_only = shown.readonly && mount.submounts == Submounts::Alike;
        }
        MountSource::Layers(layered) => {
            let id = &layered.image.0;
            let image = api::ImageSpec { image: id.clone(), image_ref: id.clone(), ..Default::default() };
            shown.image = Some(image);
            shown.image_sub_path = path_text(layered.sub_path.as_deref());
        }
        MountSource::Image(asked) => {
            let image = api::ImageSpec { image: asked.image.to_string(), ..Default::default() };
            shown.image = Some(image);
            shown.image_sub_path = path_text(asked.sub_path.as_deref());
        }
        MountSource::Tmpfs { .. } => return None,
    }
    if let Owners::Given(mappings) = &mount.owners {
        shown.uid_mappings = ids(&mappings.uids);
        shown.gid_mappings = ids(&mappings.gids);
    }
    shown.set_propagation(match mount.propagation {
        Propagation::Private => api::MountPropagation::PropagationPrivate,
        Propagation::Slave => api::MountPropagation::PropagationHostToContainer,
        Propagation::Shared => api::MountPropagation::PropagationBidirectional,
    });
    Some(shown)
}

fn path_text(path: Option<&std::path::Path>) -> String {
    path.map(|path| path.display().to_string()).unwrap_or_default()
}
