//! Where a name leads.
//!
//! A name may lead through symbolic links, of this layer or of those below: they are followed here by text, with the root
//! of the layer as `/`, so they end inside it. Each directory is then opened by one name, without following any link.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::rc::Rc;

use rustix::fs::{FileType, Mode, openat, readlinkat};
use rustix::io::Errno;

use super::{Directory, Ending, Tree, directory_flags};
use crate::unpack::Fault;
use crate::unpack::metadata::Metadata;
use crate::unpack::path::{join, parent};

/// How many symbolic links one name may go through, as in the kernel.
const LINKS_MAX: usize = 40;
/// The mode of a directory that nothing describes.
const DIRECTORY_MODE: u32 = 0o755;

/// What to do about a directory that is nowhere.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    Make,
    Leave,
}

/// Where one component leads.
enum Step {
    Into(Rc<Directory>),
    Link(Vec<u8>),
    Nowhere,
}

impl Tree<'_> {
    pub(super) fn resolve(
        &mut self,
        components: &[&[u8]],
        missing: Missing,
    ) -> Result<Option<Rc<Directory>>, Fault> {
        if components.is_empty() {
            return Ok(Some(self.root()));
        }
        let written = components.join(&b'/');
        if let Some(known) = self.open.get(&written) {
            return Ok(Some(Rc::clone(known)));
        }
        let mut here = self.root();
        let mut ahead: VecDeque<Vec<u8>> = components.iter().map(|name| name.to_vec()).collect();
        let mut links = 0;
        while let Some(name) = ahead.pop_front() {
            match name.as_slice() {
                b"" | b"." => continue,
                b".." => {
                    here = self.above(&here)?;
                    continue;
                }
                _ => {}
            }
            match self.step(&here, &name, missing)? {
                Step::Into(next) => here = next,
                Step::Nowhere => return Ok(None),
                Step::Link(target) => {
                    links += 1;
                    if links > LINKS_MAX {
                        let problem = format!("it leads through more than {LINKS_MAX} symbolic links");
                        return Err(Fault::Refused(problem));
                    }
                    if target.starts_with(b"/") {
                        here = self.root();
                    }
                    for component in target.split(|byte| *byte == b'/').rev() {
                        ahead.push_front(component.to_vec());
                    }
                }
            }
        }
        self.keep(written, &here);
        Ok(Some(here))
    }

    fn step(&mut self, here: &Rc<Directory>, name: &[u8], missing: Missing) -> Result<Step, Fault> {
        let path = join(&here.path, name);
        if path.len() as u64 > self.path_bytes_max {
            let (what, setting) = ("bytes in a path", "path_bytes_max");
            return Err(Fault::Limit { what, setting, max: self.path_bytes_max });
        }
        if let Some(known) = self.open.get(&path) {
            return Ok(Step::Into(Rc::clone(known)));
        }
        match openat(&here.fd, name, directory_flags(), Mode::empty()) {
            Ok(fd) => {
                let next = Rc::new(Directory { fd, path: path.clone() });
                self.keep(path, &next);
                Ok(Step::Into(next))
            }
            Err(Errno::NOENT) => self.step_below(here, name, path, missing),
            Err(Errno::NOTDIR | Errno::LOOP) => match readlinkat(&here.fd, name, Vec::new()) {
                Ok(target) => Ok(Step::Link(target.into_bytes())),
                Err(Errno::INVAL) => Err(not_a_directory(&path, "this layer")),
                Err(error) => Err(Fault::Write("reading a link", error.into())),
            },
            Err(error) => Err(Fault::Write("opening a directory", error.into())),
        }
    }

    /// Where a component leads that this layer does not have.
    fn step_below(
        &mut self,
        here: &Rc<Directory>,
        name: &[u8],
        path: Vec<u8>,
        missing: Missing,
    ) -> Result<Step, Fault> {
        let Some(found) = self.below(&path)? else {
            return match missing {
                Missing::Leave => Ok(Step::Nowhere),
                Missing::Make => {
                    let made = self.make_empty(here, name, path)?;
                    let ending = Ending { modified: Some(self.time), default_acl: None };
                    self.endings.insert(made.path.clone(), ending);
                    rustix::fs::fchmod(&made.fd, Mode::from_raw_mode(DIRECTORY_MODE))
                        .map_err(Fault::write("setting the mode"))?;
                    Ok(Step::Into(made))
                }
            };
        };
        match found.kind() {
            FileType::Directory => {
                let original = openat(&found.directory, name, directory_flags(), Mode::empty())
                    .map_err(Fault::write("opening a directory of a layer below"))?;
                let metadata = Metadata::of_file(original.as_fd(), &found.stat)
                    .map_err(Fault::write("reading a directory of a layer below"))?;
                let made = self.make_empty(here, name, path)?;
                self.describe(&made, &metadata)?;
                Ok(Step::Into(made))
            }
            FileType::Symlink => {
                let target = readlinkat(&found.directory, name, Vec::new())
                    .map_err(Fault::write("reading a link of a layer below"))?;
                Ok(Step::Link(target.into_bytes()))
            }
            _ => Err(not_a_directory(&path, "a layer below")),
        }
    }

    fn above(&self, here: &Directory) -> Result<Rc<Directory>, Fault> {
        let path = parent(&here.path);
        if path.is_empty() {
            return Ok(self.root());
        }
        let fd = self.open_again(path).map_err(Fault::write("opening a directory"))?;
        Ok(Rc::new(Directory { fd, path: path.to_vec() }))
    }
}

fn not_a_directory(path: &[u8], layer: &str) -> Fault {
    let path = String::from_utf8_lossy(path);
    Fault::Refused(format!("it would be in {path:?}, which is a file in {layer} and no directory"))
}
