//! The checks of specs: every refusal names the field, the value and what would be right. What only the
//! machine can tell, such as whether a path exists, is found out where it is used.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use serde::Serialize;

use super::*;
use crate::codec;
use crate::error::{Error, Result};
use crate::sandbox::SandboxChange;

mod limits;
mod settings;

impl SandboxSpec {
    /// Checks every field.
    pub fn check(&self) -> Result<()> {
        if let Some(hostname) = &self.hostname {
            let good = (1..=HOSTNAME_LENGTH_MAX).contains(&hostname.len())
                && hostname.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.'));
            if !good {
                return Err(Error::invalid(
                    "hostname",
                    quoted(hostname),
                    format!("1 to {HOSTNAME_LENGTH_MAX} letters, digits, '-' or '.'"),
                ));
            }
        }
        self.resources.check()?;
        settings::check_sysctls(&self.sysctls, self.network, self.ipc)?;
        self.names.check()?;
        self.user_namespace.check(self.network, self.pid, self.ipc)?;
        self.check_network()?;
        check_labels("labels", &self.labels)?;
        check_labels("annotations", &self.annotations)?;
        check_labels("notes", &self.notes)?;
        self.identity.iter().try_for_each(|identity| identity.check())?;
        check_length(self)
    }
}

impl SandboxChange {
    /// Checks its length. The limits are checked as they are to be, together with those that stay.
    pub fn check(&self) -> Result<()> {
        check_length(self)
    }
}

impl ContainerSpec {
    /// Checks every field. Whether paths exist is found out when they are used.
    pub fn check(&self) -> Result<()> {
        // An image may say what to run.
        if self.image().is_none() || !self.process.command.is_empty() {
            self.process.check_program()?;
        }
        self.process.check()?;
        match &self.rootfs {
            Rootfs::Directory { path } | Rootfs::CopyOnWrite { path } => check_absolute("rootfs", path)?,
            Rootfs::Image(ImageRoot { entrypoint: Some(entrypoint), .. }) => {
                check_strings("rootfs.entrypoint", entrypoint.iter().map(String::as_str))?;
            }
            Rootfs::Layers(root) => {
                let expected = "an image by its name or id; the runtime finds its layers";
                return Err(Error::invalid("rootfs", format!("layers of {}", root.image), expected));
            }
            Rootfs::Image(_) | Rootfs::Host => {}
        }
        if self.mounts.len() > MOUNTS_MAX {
            return Err(Error::invalid(
                "mounts",
                self.mounts.len().to_string(),
                format!("at most {MOUNTS_MAX}"),
            ));
        }
        self.mounts.iter().enumerate().try_for_each(|(i, mount)| mount.check(i))?;
        self.resources.check()?;
        self.security.check()?;
        if let Some(score) = self.oom_score_adj.filter(|score| !(-1000..=1000).contains(score)) {
            return Err(Error::invalid("oom_score_adj", score.to_string(), "a number from -1000 to 1000"));
        }
        self.rlimits.iter().try_for_each(Rlimit::check)?;
        settings::check_devices(&self.devices, &self.device_rules)?;
        settings::check_cdi_devices(&self.cdi_devices)?;
        if let Some(path) = &self.log_path {
            check_absolute("log_path", path)?;
        }
        check_labels("labels", &self.labels)?;
        check_labels("annotations", &self.annotations)?;
        if let Some(annotations) = &self.runtime_annotations {
            check_labels("runtime_annotations", annotations)?;
        }
        check_labels("notes", &self.notes)?;
        self.identity.iter().try_for_each(|identity| identity.check())?;
        check_length(self)
    }
}

impl ExecSpec {
    /// Checks every field.
    pub fn check(&self) -> Result<()> {
        self.process.check_program()?;
        self.process.check()?;
        check_length(self)
    }
}

impl ProcessSpec {
    fn check_program(&self) -> Result<()> {
        match self.command.first() {
            None => Err(Error::invalid("command", "[]", "a program, with its arguments")),
            Some(program) if program.is_empty() => {
                Err(Error::invalid("command[0]", "\"\"", "the name or path of a program"))
            }
            Some(_) => Ok(()),
        }
    }

    fn check(&self) -> Result<()> {
        check_strings("command", self.command.iter().map(String::as_str))?;
        check_strings("env", self.env.iter().flat_map(|(key, value)| [key.as_str(), value.as_str()]))?;
        if let Some(key) = self.env.keys().find(|key| key.is_empty() || key.contains('=')) {
            return Err(Error::invalid(
                "env",
                quoted(key),
                "variable names that are not empty and have no '='",
            ));
        }
        if let Some(workdir) = &self.workdir {
            check_absolute("workdir", workdir)?;
        }
        if let Some(user) = &self.user {
            check_user(user)?;
        }
        if self.groups.contains(&u32::MAX) {
            return Err(Error::invalid("groups", u32::MAX.to_string(), "group ids below 4294967295"));
        }
        if let Terminal::Tty(WindowSize { rows, columns }) = self.terminal
            && (rows == 0 || columns == 0)
        {
            return Err(Error::invalid(
                "terminal",
                format!("{rows}x{columns}"),
                "at least one row and one column",
            ));
        }
        Ok(())
    }
}

impl Mount {
    fn check(&self, index: usize) -> Result<()> {
        check_absolute(&format!("mounts[{index}].target"), &self.target)?;
        if self.target == Path::new("/") {
            return Err(Error::invalid(
                format!("mounts[{index}].target"),
                "\"/\"",
                "a path below the root; to replace the root, use rootfs",
            ));
        }
        if self.propagation != Propagation::Private && !matches!(self.source, MountSource::Bind { .. }) {
            return Err(Error::invalid(
                format!("mounts[{index}].propagation"),
                format!("{:?}", self.propagation),
                "private; only files and directories of the host propagate",
            ));
        }
        self.check_owners(index)?;
        match &self.source {
            MountSource::Bind { path } => check_absolute(&format!("mounts[{index}].source"), path),
            MountSource::Tmpfs { size_bytes: Some(0) } => {
                Err(Error::invalid(format!("mounts[{index}].size_bytes"), "0", "a size above 0"))
            }
            MountSource::Tmpfs { .. } => Ok(()),
            MountSource::Image(ImageMount { sub_path, .. }) => match sub_path {
                Some(path) => check_sub_path(&format!("mounts[{index}].sub_path"), path),
                None => Ok(()),
            },
            MountSource::Layers(layered) => {
                let expected = "an image by its name or id; the runtime finds its layers";
                let field = format!("mounts[{index}].source");
                Err(Error::invalid(field, format!("layers of {}", layered.image), expected))
            }
        }
    }

    fn check_owners(&self, index: usize) -> Result<()> {
        let Owners::Given(mappings) = &self.owners else { return Ok(()) };
        let field = format!("mounts[{index}].owners");
        if !matches!(self.source, MountSource::Bind { .. }) {
            let expected = "none: only files and directories of the host have other owners";
            return Err(Error::invalid(field, "mappings of ids", expected));
        }
        mappings.check_owners(&field)
    }
}

impl Security {
    fn check(&self) -> Result<()> {
        let lists = [("masked_paths", &self.masked_paths), ("readonly_paths", &self.readonly_paths)];
        for (field, paths) in lists {
            paths.iter().flatten().try_for_each(|path| check_absolute(field, path))?;
        }
        match &self.seccomp {
            Seccomp::Profile { json } if json.len() > SECCOMP_PROFILE_LENGTH_MAX => Err(Error::invalid(
                "seccomp",
                format!("a profile of {} bytes", json.len()),
                format!("at most {SECCOMP_PROFILE_LENGTH_MAX} bytes"),
            )),
            Seccomp::Profile { .. } | Seccomp::Default | Seccomp::Unconfined => Ok(()),
        }?;
        self.check_modules()
    }

    /// Names that are written to files of the kernel, each of them one word.
    fn check_modules(&self) -> Result<()> {
        let word = |text: &str| {
            text.len() <= PROFILE_NAME_LENGTH_MAX && !text.contains(|c: char| c.is_whitespace() || c == '\0')
        };
        let expected =
            |what: &str| format!("{what} of at most {PROFILE_NAME_LENGTH_MAX} bytes, without spaces");
        if let AppArmor::Profile { name } = &self.apparmor
            && (name.is_empty() || !word(name))
        {
            return Err(Error::invalid("apparmor", quoted(name), expected("the name of a profile")));
        }
        let Some(label) = &self.selinux else { return Ok(()) };
        let SelinuxLabel { user, role, kind, level } = label;
        for (field, part) in [("user", user), ("role", role), ("type", kind), ("level", level)] {
            // It becomes a part of the options of mounts, where a comma or a quotation mark ends it: a label with such in it would be
            // another option. A level alone has colons, and commas between its categories.
            let fits = |c: char| {
                c.is_ascii_alphanumeric() || "_.-".contains(c) || (field == "level" && ":,".contains(c))
            };
            if part.len() > PROFILE_NAME_LENGTH_MAX || !part.chars().all(fits) {
                let expected = format!(
                    "letters, digits, '_', '.' and '-' (and ':' and ',' in a level), at most {PROFILE_NAME_LENGTH_MAX} bytes"
                );
                return Err(Error::invalid(format!("selinux.{field}"), quoted(part), expected));
            }
        }
        Ok(())
    }
}

impl Rlimit {
    fn check(&self) -> Result<()> {
        if !RLIMIT_NAMES.contains(&self.name.as_str()) {
            return Err(Error::invalid(
                "rlimits",
                quoted(&self.name),
                format!("one of {}", RLIMIT_NAMES.join(", ")),
            ));
        }
        if self.soft > self.hard {
            return Err(Error::invalid(
                format!("rlimits.{}", self.name),
                format!("soft {} above hard {}", self.soft, self.hard),
                "a soft limit that is not above the hard one",
            ));
        }
        Ok(())
    }
}

/// Checks the size of a whole spec: what is taken once must fit into every answer that lists it.
fn check_length(spec: &impl Serialize) -> Result<()> {
    let length = codec::encode_body(spec).map_err(|error| Error::internal("spec", error))?.len();
    if length <= SPEC_LENGTH_MAX {
        return Ok(());
    }
    Err(Error::invalid("spec", format!("{length} bytes"), format!("at most {SPEC_LENGTH_MAX} bytes in all")))
}

/// Checks the shape of a user: an all-digit part must be a number that fits, and is never taken as a name.
fn check_user(user: &str) -> Result<()> {
    let refuse = || {
        Err(Error::invalid(
            "user",
            quoted(user),
            "USER, UID, USER:GROUP or UID:GID, with ids from 0 to 4294967294",
        ))
    };
    let mut parts = user.splitn(2, ':');
    let first = parts.next().unwrap_or_default();
    for part in [Some(first), parts.next()].into_iter().flatten() {
        let numeric = part.bytes().all(|b| b.is_ascii_digit());
        let id_fits = part.parse::<u32>().is_ok_and(|id| id != u32::MAX);
        let name_fits =
            part.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-' | b'$'))
                && !part.starts_with('-')
                && !part.starts_with(|c: char| c.is_ascii_digit());
        if part.is_empty() || part.len() > 256 || !(if numeric { id_fits } else { name_fits }) {
            return refuse();
        }
    }
    Ok(())
}

fn check_absolute(field: &str, path: &Path) -> Result<()> {
    let plain = path.components().all(|part| !matches!(part, Component::ParentDir));
    // Records, the admin RPC and configuration files hold text.
    let text = path.to_str().filter(|text| !text.contains('\0') && text.len() < PATH_LENGTH_MAX);
    if path.is_absolute() && plain && text.is_some() {
        return Ok(());
    }
    let shown = quoted(&path.to_string_lossy());
    let expected = format!("an absolute path in UTF-8, without \"..\", shorter than {PATH_LENGTH_MAX} bytes");
    Err(Error::invalid(field, shown, expected))
}

/// A path inside an image: links in it are for whoever opens it.
fn check_sub_path(field: &str, path: &Path) -> Result<()> {
    let plain = path.components().all(|part| !matches!(part, Component::ParentDir));
    let text = path.to_str().filter(|text| !text.contains('\0') && text.len() < PATH_LENGTH_MAX);
    if plain && text.is_some_and(|text| !text.is_empty()) {
        return Ok(());
    }
    let shown = quoted(&path.to_string_lossy());
    let expected =
        format!("a path inside the image in UTF-8, without \"..\", shorter than {PATH_LENGTH_MAX} bytes");
    Err(Error::invalid(field, shown, expected))
}

fn check_strings<'a>(field: &str, strings: impl Iterator<Item = &'a str>) -> Result<()> {
    for (count, text) in strings.enumerate() {
        if count / 2 >= ARGUMENTS_MAX {
            return Err(Error::invalid(field, "too many entries", format!("at most {ARGUMENTS_MAX}")));
        }
        if text.contains('\0') {
            return Err(Error::invalid(field, quoted(text), "text without a NUL byte"));
        }
        if text.len() >= ARGUMENT_LENGTH_MAX {
            return Err(Error::invalid(
                field,
                format!("{} bytes", text.len()),
                format!("entries shorter than {ARGUMENT_LENGTH_MAX} bytes"),
            ));
        }
    }
    Ok(())
}

fn check_labels(field: &str, labels: &BTreeMap<String, String>) -> Result<()> {
    let bytes: usize = labels.iter().map(|(key, value)| key.len() + value.len()).sum();
    if labels.len() <= LABELS_MAX && bytes <= LABELS_LENGTH_MAX {
        return Ok(());
    }
    Err(Error::invalid(
        field,
        format!("{} entries of {bytes} bytes", labels.len()),
        format!("at most {LABELS_MAX} entries of {LABELS_LENGTH_MAX} bytes together"),
    ))
}

/// Checks a text that is kept and given back as it is.
pub(super) fn check_text(field: &str, text: &str, length_max: usize) -> Result<()> {
    if text.len() <= length_max && !text.contains('\0') {
        return Ok(());
    }
    Err(Error::invalid(field, quoted(text), format!("at most {length_max} bytes, none of them NUL")))
}

/// A value as an error shows it: quoted, and never longer than a line.
fn quoted(value: &str) -> String {
    let shown: String = value.chars().take(128).collect();
    format!("{shown:?}")
}
