//! What has to be written for a set of limits, worked out before anything is written.
//!
//! Owns: going through the OCI resources, checking each value, finding the hierarchy that holds it, and the order of
//! writing. A plan that exists can be carried out as far as can be told beforehand. Never: touches the file system
//! ([`crate::group`] carries plans out) or knows how a generation spells a value ([`crate::v1`], [`crate::v2`]).

mod sections;

use std::borrow::Cow;

use oci_spec::runtime::{LinuxRdma, LinuxResources};

use crate::blkio;
use crate::controllers::{Controller, Controllers};
use crate::devices::{ExceptionList, Rules};
use crate::error::{CgroupError, FieldName, Warning};
use crate::layout::{HierarchyId, Home, Layout};
use crate::limits::{Limit, UsageCheck};

/// The writes for a set of limits.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub needs: Controllers,
    pub steps: Vec<Step>,
    pub warnings: Vec<Warning>,
}

/// One value for one file. A value of several lines is written line by line.
#[derive(Debug)]
pub(crate) struct Setting {
    pub field: FieldName,
    pub hierarchy: HierarchyId,
    pub file: Cow<'static, str>,
    pub value: String,
    /// What would be right, for the error.
    pub expected: &'static str,
    pub absent: Absent,
}

/// What to do when the kernel does not have the file.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Absent {
    Refuse,
    Warn(&'static str),
    Skip,
}

#[derive(Debug)]
pub(crate) enum Step {
    Write(Setting),
    /// Settings that the kernel checks against each other, so that the right order depends on the values in force: it
    /// answers EINVAL to the wrong one.
    Interdependent(Vec<Setting>),
    /// The same limit in different spellings; the first whose file exists.
    FirstPresent(Vec<Setting>),
    /// A v1 memory limit without a swap limit: where a swap limit is in force, it moves along.
    MemoryLimitV1(Setting),
    /// A v2 memory limit: the kernel kills rather than refuse a limit below what is in use.
    MemoryMaxV2 {
        setting: Setting,
        limit: Limit,
        check: UsageCheck,
    },
    /// A v2 CPU period without a quota: both live in one file, so the quota in force is written again. The value is the
    /// period.
    CpuPeriodV2(Setting),
    DevicesV1 {
        hierarchy: HierarchyId,
        list: ExceptionList,
    },
    DevicesV2 {
        hierarchy: HierarchyId,
        rules: Rules,
    },
}

impl Setting {
    pub fn new(
        field: impl Into<FieldName>,
        hierarchy: HierarchyId,
        file: impl Into<Cow<'static, str>>,
        value: impl ToString,
        expected: &'static str,
    ) -> Self {
        let (field, file) = (field.into(), file.into());
        Setting { field, hierarchy, file, value: value.to_string(), expected, absent: Absent::Refuse }
    }

    #[must_use]
    pub fn absent(self, absent: Absent) -> Self {
        Setting { absent, ..self }
    }
}

impl Plan {
    pub fn new(layout: &Layout, resources: &LinuxResources) -> Result<Self, CgroupError> {
        let mut plan = Plan::default();
        if let Some(memory) = resources.memory() {
            plan.memory(layout, memory)?;
        }
        if let Some(cpu) = resources.cpu() {
            plan.cpu(layout, cpu)?;
            plan.cpuset(layout, cpu)?;
        }
        if let Some(pids) = resources.pids() {
            plan.pids(layout, pids)?;
        }
        if let Some(io) = resources.block_io() {
            blkio::plan(&mut plan, layout, io)?;
        }
        plan.huge_pages(layout, resources.hugepage_limits().as_deref().unwrap_or(&[]))?;
        if let Some(network) = resources.network() {
            plan.network(layout, network)?;
        }
        let mut adapters: Vec<(&String, &LinuxRdma)> = resources.rdma().iter().flatten().collect();
        adapters.sort_by_key(|(name, _)| *name);
        for (name, limits) in adapters {
            plan.rdma(layout, name, limits)?;
        }
        plan.devices(layout, resources.devices().as_deref().unwrap_or(&[]))?;
        let mut unified: Vec<(&String, &String)> = resources.unified().iter().flatten().collect();
        unified.sort();
        for (key, value) in unified {
            plan.unified(layout, key, value)?;
        }
        Ok(plan)
    }

    pub fn write(&mut self, setting: Setting) {
        self.steps.push(Step::Write(setting));
    }

    pub fn warn(&mut self, field: impl Into<FieldName>, value: impl ToString, reason: &'static str) {
        self.warnings.push(Warning { field: field.into(), value: value.to_string(), reason });
    }

    /// Where a controller lives, noting that the group needs it.
    pub fn home(
        &mut self,
        layout: &Layout,
        controller: Controller,
        field: impl Into<FieldName>,
        value: impl ToString,
    ) -> Result<Home, CgroupError> {
        let Some(home) = layout.home(controller) else {
            let (field, value) = (field.into(), value.to_string());
            return Err(CgroupError::ControllerMissing { field, value, controller, mode: layout.mode() });
        };
        self.needs = self.needs.with(controller);
        Ok(home)
    }
}

#[cfg(test)]
mod tests;
