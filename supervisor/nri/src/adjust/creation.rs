//! The creation of a container, as plugins change it one after the other.

use std::collections::BTreeSet;

use mainstay_messages::adjustment::{ADJUSTMENT_LENGTH_MAX, Adjustment};
use mainstay_nri_api::{
    Container, ContainerAdjustment, CreateContainerResponse, Field, Hook, Hooks, LinuxContainer,
    LinuxContainerAdjustment, Message, MessageField, PluginInstance, PodSandbox,
    ValidateContainerAdjustmentRequest,
};

use super::convert;
use super::error::{AdjustError, Fault};
use super::keyed::{self, Entry, Removing, merge_map};
use super::other::{Changed, Eviction, OtherUpdate, Others};
use super::owners::{Claims, Owners};
use super::resources;

/// A container that is being created.
#[derive(Clone, Debug)]
pub struct Creation {
    pristine: Container,
    container: Container,
    adjustment: ContainerAdjustment,
    owners: Owners,
    others: Others,
}

/// What all plugins together want.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Merged {
    /// Of the container that is being created.
    pub adjustment: Adjustment,
    /// Of others.
    pub others: Vec<OtherUpdate>,
    /// Containers that are to be stopped.
    pub evictions: Vec<Eviction>,
}

impl Creation {
    /// Begins with the container as it was asked for.
    pub fn new(container: Container) -> Self {
        Self {
            pristine: container.clone(),
            container,
            adjustment: ContainerAdjustment::new(),
            owners: Owners::default(),
            others: Others::default(),
        }
    }

    /// The container as the next plugin is to see it.
    pub fn container(&self) -> &Container {
        &self.container
    }

    /// What has been changed so far.
    pub fn adjustment(&self) -> &ContainerAdjustment {
        &self.adjustment
    }

    /// Who changed what so far.
    pub fn owners(&self) -> &Owners {
        &self.owners
    }

    /// Takes the answer of a plugin. A refused one changes nothing.
    ///
    /// # Errors
    /// What is wrong with it, or who had changed the same before.
    pub fn apply(&mut self, plugin: &str, answer: &CreateContainerResponse) -> Result<(), AdjustError> {
        let mut next = self.clone();
        if let Some(change) = answer.adjust.as_ref() {
            convert::adjustment(change).map_err(|fault| fault.of(plugin))?;
            next.adjust(plugin, change)?;
            // What is written down and sent around has a limit, however many plugins there are.
            let length = usize::try_from(next.adjustment.compute_size()).unwrap_or(usize::MAX);
            if length > ADJUSTMENT_LENGTH_MAX {
                let expected = format!("at most {ADJUSTMENT_LENGTH_MAX} bytes with those of other plugins");
                return Err(Fault::invalid("adjust", format!("{length} bytes"), expected).of(plugin));
            }
        }
        let changed = Changed { updates: &answer.update, evictions: &answer.evict };
        next.others.apply(plugin, changed, Some(&self.container.id), None, &mut next.owners)?;
        *self = next;
        Ok(())
    }

    /// What validators are asked.
    pub fn validation(
        &self,
        pod: &PodSandbox,
        plugins: Vec<PluginInstance>,
    ) -> ValidateContainerAdjustmentRequest {
        ValidateContainerAdjustmentRequest {
            pod: MessageField::some(pod.clone()),
            container: MessageField::some(self.pristine.clone()),
            adjust: MessageField::some(self.adjustment.clone()),
            update: self.others.to_api(),
            owners: MessageField::some(self.owners.to_api()),
            plugins,
            ..Default::default()
        }
    }

    /// What is to be done.
    ///
    /// # Errors
    /// Never for answers that were applied: each was checked. An error names no plugin, but "all together".
    pub fn finish(self) -> Result<Merged, AdjustError> {
        let together = |fault: Fault| fault.of("all together");
        let adjustment = convert::adjustment(&self.adjustment).map_err(together)?;
        let (others, evictions) = self.others.finish()?;
        Ok(Merged { adjustment, others, evictions })
    }

    /// Merges one plugin's adjustment.
    pub(super) fn adjust(&mut self, plugin: &str, change: &ContainerAdjustment) -> Result<(), AdjustError> {
        let Self { pristine, container, adjustment, owners, .. } = self;
        let id = container.id.clone();
        let claims = &mut Claims { owners, container: &id, plugin };
        let all = &mut *adjustment;
        merge_map(
            claims,
            Field::Annotations,
            &change.annotations,
            &mut container.annotations,
            &mut all.annotations,
        )?;
        let mounts = keyed::merge(claims, Field::Mounts, Removing::Clears, &change.mounts, &mut all.mounts)?;
        container.mounts.retain(|mount| !mounts.keys.contains(&Entry::compared_key(mount)));
        container.mounts.extend(mounts.put);
        let env = keyed::merge(claims, Field::Env, Removing::Clears, &change.env, &mut all.env)?;
        container.env.retain(|entry| {
            let name = entry.split_once('=').map_or(entry.as_str(), |(name, _)| name);
            !env.keys.contains(name)
        });
        container.env.extend(env.put.iter().map(|entry| format!("{}={}", entry.key, entry.value)));
        adjust_args(claims, &change.args, pristine, container, all)?;
        if let Some(hooks) = change.hooks.as_ref() {
            adjust_hooks(claims, hooks, container, all);
        }
        for limit in &change.rlimits {
            claims.claim(Field::Rlimits, Some(&limit.type_))?;
            container.rlimits.retain(|other| other.type_ != limit.type_);
            container.rlimits.push(limit.clone());
            all.rlimits.push(limit.clone());
        }
        for device in &change.cdi_devices {
            claims.claim(Field::CdiDevices, Some(&device.name))?;
            all.cdi_devices.push(device.clone());
        }
        if let Some(linux) = change.linux.as_ref() {
            let now = container.linux.mut_or_insert_default();
            adjust_linux(claims, linux, now, all.linux.mut_or_insert_default())?;
        }
        Ok(())
    }
}

fn adjust_args(
    claims: &mut Claims<'_>,
    args: &[String],
    pristine: &Container,
    container: &mut Container,
    all: &mut ContainerAdjustment,
) -> Result<(), AdjustError> {
    let Some(first) = args.first() else { return Ok(()) };
    let mut args = args;
    if first.is_empty() {
        claims.clear(Field::Args, None);
        args = &args[1..];
        // Nothing behind the mark: the command is the one that was asked for.
        if args.is_empty() {
            all.args.clear();
            container.args.clone_from(&pristine.args);
            return Ok(());
        }
    }
    claims.claim(Field::Args, None)?;
    all.args = args.to_vec();
    container.args = args.to_vec();
    Ok(())
}

fn adjust_hooks(
    claims: &mut Claims<'_>,
    hooks: &Hooks,
    container: &mut Container,
    all: &mut ContainerAdjustment,
) {
    let lists: [fn(&mut Hooks) -> &mut Vec<Hook>; 6] = [
        |hooks| &mut hooks.prestart,
        |hooks| &mut hooks.create_runtime,
        |hooks| &mut hooks.create_container,
        |hooks| &mut hooks.start_container,
        |hooks| &mut hooks.poststart,
        |hooks| &mut hooks.poststop,
    ];
    let mut given = hooks.clone();
    let mut has_any = false;
    for list in lists {
        let added = std::mem::take(list(&mut given));
        has_any |= !added.is_empty();
        list(container.hooks.mut_or_insert_default()).extend(added.iter().cloned());
        list(all.hooks.mut_or_insert_default()).extend(added);
    }
    if has_any {
        claims.share(Field::OciHooks);
    }
}

fn adjust_linux(
    claims: &mut Claims<'_>,
    change: &LinuxContainerAdjustment,
    now: &mut LinuxContainer,
    all: &mut LinuxContainerAdjustment,
) -> Result<(), AdjustError> {
    let devices = keyed::merge(claims, Field::Devices, Removing::Clears, &change.devices, &mut all.devices)?;
    now.devices.retain(|device| !devices.keys.contains(&Entry::compared_key(device)));
    now.devices.extend(devices.put);
    if let Some(limits) = change.resources.as_ref() {
        let targets = &mut [now.resources.mut_or_insert_default(), all.resources.mut_or_insert_default()];
        resources::merge(claims, limits, targets)?;
    }
    if !change.cgroups_path.is_empty() {
        claims.claim(Field::CgroupsPath, None)?;
        now.cgroups_path.clone_from(&change.cgroups_path);
        all.cgroups_path.clone_from(&change.cgroups_path);
    }
    macro_rules! take {
        ($($name:ident => $field:ident),+ $(,)?) => { $(
            if change.$name.is_some() {
                claims.claim(Field::$field, None)?;
                now.$name = change.$name.clone();
                all.$name = change.$name.clone();
            }
        )+ };
    }
    take!(
        oom_score_adj => OomScoreAdj,
        io_priority => IoPriority,
        seccomp_policy => SeccompPolicy,
        scheduler => LinuxSched,
    );
    let namespaces =
        keyed::merge(claims, Field::Namespace, Removing::Claims, &change.namespaces, &mut all.namespaces)?;
    now.namespaces.retain(|namespace| !namespaces.keys.contains(&namespace.type_));
    now.namespaces.extend(namespaces.put);
    merge_map(claims, Field::Sysctl, &change.sysctl, &mut now.sysctl, &mut all.sysctl)?;
    merge_map(
        claims,
        Field::LinuxNetDevices,
        &change.net_devices,
        &mut now.net_devices,
        &mut all.net_devices,
    )?;
    if change.memory_policy.is_some() {
        claims.claim(Field::MemoryPolicy, None)?;
        all.memory_policy = change.memory_policy.clone();
    }
    adjust_rdt(claims, change, all)
}

fn adjust_rdt(
    claims: &mut Claims<'_>,
    change: &LinuxContainerAdjustment,
    all: &mut LinuxContainerAdjustment,
) -> Result<(), AdjustError> {
    let Some(rdt) = change.rdt.as_ref() else { return Ok(()) };
    if rdt.remove {
        for field in [Field::RdtClosID, Field::RdtSchemata, Field::RdtEnableMonitoring] {
            claims.clear(field, None);
        }
        all.rdt = MessageField::some(Default::default());
        all.rdt.mut_or_insert_default().remove = true;
    }
    let mut set = BTreeSet::new();
    macro_rules! take {
        ($($name:ident => $field:ident),+ $(,)?) => { $(
            if rdt.$name.is_some() {
                claims.claim(Field::$field, None)?;
                all.rdt.mut_or_insert_default().$name = rdt.$name.clone();
                set.insert(stringify!($name));
            }
        )+ };
    }
    take!(
        clos_id => RdtClosID,
        schemata => RdtSchemata,
        enable_monitoring => RdtEnableMonitoring,
    );
    if !set.is_empty() {
        all.rdt.mut_or_insert_default().remove = false;
    }
    Ok(())
}
