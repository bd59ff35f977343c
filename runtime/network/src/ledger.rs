//! The leases: which pod has which addresses, ports and link.
//!
//! Owns: the directory of leases and the decision who gets what. Never: anything of the kernel's network.
//!
//! A lease is written before anything is made for its pod, and removed after everything is gone (P3). One file per pod,
//! named like the pod: a sealed frame (see `mainstay_messages::codec`) of magic `MNLS` and version 2, whose body is a
//! [`Lease`]. It is written whole to a file of another name and renamed, so that a file is a whole lease or none. It is not synced:
//! a power cut takes all that a lease tells of, and one that is torn by it is listed until its pod is detached. `.lock` is held as
//! long as the network is open.
//!
//! ```text
//!           chosen              written                        removed
//!   (none) ───────► promised ───────────► leased ── repeated ──► … ───► (none)   a restart reads the files and changes none
//!      ▲                │ cannot be written
//!      └────────────────┘
//! ```
//!
//! Files are written and removed with no lock held: what a hung disk keeps from its end is one pod's, and its address, ports and
//! link stay that pod's until then. Whoever calls sees to it that one call at a time works on a pod.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use mainstay_messages::codec::Format;
use mainstay_messages::{SandboxId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::durable::{self, Claim, Outlives};
use crate::error::NetworkError;
use crate::faults;
use crate::name;
use crate::pool::Pool;
use crate::spec::{AttachSpec, Mac, PortMapping, mac_of};

/// The largest lease, in bytes: more than one with all the ports that a pod may map.
const LEASE_LENGTH_MAX: usize = 128 * 1024;
const FORMAT: Format = Format { magic: *b"MNLS", version: 2, body_length_max: LEASE_LENGTH_MAX };

/// What one pod has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The pod.
    pub pod: SandboxId,
    /// Higher than that of every lease before it.
    pub sequence: u64,
    /// When it was given.
    pub since: Timestamp,
    /// The pod's link, as the host names it.
    pub link: String,
    /// The pod's Ethernet address.
    pub mac: Mac,
    /// The pod's addresses, in the order of the ranges.
    pub ips: Vec<IpAddr>,
    /// The host's ports that lead to the pod.
    pub ports: Vec<PortMapping>,
}

/// A file among the leases that is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableLease {
    /// The pod, by the name of the file; none when it is no name of a pod.
    pub pod: Option<SandboxId>,
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: String,
}

/// All leases of one network.
#[derive(Debug)]
pub(crate) struct Ledger {
    directory: PathBuf,
    /// The bridge, after which links are named.
    bridge: String,
    pools: Vec<Pool>,
    /// Never held while a file is written, read or removed.
    book: Mutex<Book>,
    _lock: Claim,
}

/// Who has what.
///
/// Invariants: (1) no two of all leases, promised ones too, share an address or a link; (2) no two of them have ports that
/// collide; (3) what is in `leases` is in the directory.
#[derive(Debug, Default)]
struct Book {
    leases: BTreeMap<SandboxId, Lease>,
    /// On their way to the directory.
    promised: BTreeMap<SandboxId, Lease>,
    unreadable: BTreeMap<PathBuf, UnreadableLease>,
    last_sequence: u64,
    last_given: BTreeMap<&'static str, IpAddr>,
}

impl Ledger {
    /// Reads the leases, and keeps every other process from them.
    pub(crate) fn open(directory: &Path, bridge: &str, pools: Vec<Pool>) -> Result<Self, NetworkError> {
        let fault = |operation| {
            let path = directory.to_owned();
            move |source| NetworkError::File { path, operation, source }
        };
        let lock = durable::claim(directory).map_err(fault("claimed"))?;
        let lock = lock.ok_or_else(|| NetworkError::Locked { directory: directory.to_owned() })?;
        let mut book = Book::default();
        for path in durable::files(directory).map_err(fault("read"))? {
            book.load(path);
        }
        let mut by_age: Vec<_> = book.leases.values().cloned().collect();
        by_age.sort_by_key(|lease| lease.sequence);
        by_age.iter().for_each(|lease| book.remember(lease, &pools));
        Ok(Self {
            directory: directory.to_owned(),
            bridge: bridge.to_owned(),
            pools,
            book: Mutex::new(book),
            _lock: lock,
        })
    }

    /// The lease of a pod.
    pub(crate) fn get(&self, pod: &SandboxId) -> Option<Lease> {
        self.book().leases.get(pod).cloned()
    }

    /// All leases, without those that are being written.
    pub(crate) fn leases(&self) -> Vec<Lease> {
        self.book().leases.values().cloned().collect()
    }

    /// Whether a pod's link may be called so, in a lease that is written or being written.
    pub(crate) fn names_link(&self, name: &str) -> bool {
        self.book().all().any(|lease| lease.link == name)
    }

    /// Files that are no leases.
    pub(crate) fn unreadable(&self) -> Vec<UnreadableLease> {
        self.book().unreadable.values().cloned().collect()
    }

    /// The lease of a pod: the one that it has, or a new one that is in the directory when this returns.
    pub(crate) fn keep(&self, pod: &SandboxId, spec: &AttachSpec) -> Result<Lease, NetworkError> {
        let path = self.directory.join(pod.as_str());
        let lease = {
            let mut book = self.book();
            if let Some(lease) = book.leases.get(pod) {
                return same_request(lease, spec).map(|()| lease.clone());
            }
            if book.unreadable.contains_key(&path) {
                return Err(NetworkError::Differs {
                    pod: pod.clone(),
                    what: "things that its damaged lease hides",
                });
            }
            // Of an earlier call that panicked; nobody else works on the pod.
            book.promised.remove(pod);
            let lease = book.choose(pod, spec, &self.bridge, &self.pools)?;
            book.remember(&lease, &self.pools);
            book.promised.insert(pod.clone(), lease.clone());
            lease
        };
        let written = self.write(&path, &lease);
        let mut book = self.book();
        book.promised.remove(pod);
        written?;
        book.leases.insert(pod.clone(), lease.clone());
        Ok(lease)
    }

    fn write(&self, path: &Path, lease: &Lease) -> Result<(), NetworkError> {
        let frame =
            FORMAT.seal(lease).map_err(|source| NetworkError::NotALease { path: path.to_owned(), source })?;
        let written = durable::write_whole(&self.directory, path, &frame, Outlives::Kill);
        written.map_err(|source| NetworkError::File { path: path.to_owned(), operation: "written", source })
    }

    /// Forgets the lease of a pod, and says whether there was one. What it held is free when its file is gone.
    pub(crate) fn release(&self, pod: &SandboxId) -> Result<bool, NetworkError> {
        let path = self.directory.join(pod.as_str());
        faults::reach("lease-file-going");
        let gone = match fs::remove_file(&path) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(source) => return Err(NetworkError::File { path, operation: "removed", source }),
        };
        let mut book = self.book();
        book.unreadable.remove(&path);
        Ok(book.leases.remove(pod).is_some() || gone)
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        // Whatever panics with it has changed it after a file, or not at all.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Book {
    fn load(&mut self, path: PathBuf) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let pod = name.parse::<SandboxId>().ok();
        let read = match read(&path) {
            Ok(lease) if Some(&lease.pod) == pod.as_ref() => Ok(lease),
            Ok(lease) => Err(format!("it is the lease of pod {}", lease.pod)),
            Err(error) => Err(error),
        };
        match read {
            Ok(lease) => drop(self.leases.insert(lease.pod.clone(), lease)),
            Err(reason) => {
                tracing::warn!(path = %path.display(), reason, "not a lease; its pod's addresses are not known");
                self.unreadable.insert(path.clone(), UnreadableLease { pod, path, reason });
            }
        }
    }

    fn remember(&mut self, lease: &Lease, pools: &[Pool]) {
        self.last_sequence = self.last_sequence.max(lease.sequence);
        for ip in &lease.ips {
            if let Some(pool) = pools.iter().find(|pool| pool.may_lease(*ip)) {
                self.last_given.insert(pool.key, *ip);
            }
        }
    }

    fn all(&self) -> impl Iterator<Item = &Lease> {
        self.leases.values().chain(self.promised.values())
    }

    fn choose(
        &self,
        pod: &SandboxId,
        spec: &AttachSpec,
        bridge: &str,
        pools: &[Pool],
    ) -> Result<Lease, NetworkError> {
        for lease in self.all() {
            for mapping in &spec.ports {
                if lease.ports.iter().any(|theirs| theirs.collides(mapping)) {
                    return Err(NetworkError::port_taken(mapping, &lease.pod));
                }
            }
        }
        for ip in &spec.ips {
            if !pools.iter().any(|pool| pool.may_lease(*ip)) {
                let ranges: Vec<_> = pools.iter().map(|pool| pool.range.to_string()).collect();
                let expected =
                    format!("an address of {}, not its first two nor its last", ranges.join(" or "));
                return Err(NetworkError::setting("ips", ip, expected));
            }
            if let Some(holder) = self.all().find(|lease| lease.ips.contains(ip)) {
                return Err(NetworkError::AddressTaken { ip: *ip, holder: holder.pod.clone() });
            }
        }
        let link = name::pod_link(bridge, pod, self.all()).ok_or_else(|| {
            NetworkError::setting("pod", pod, "an id whose link's names are not other pods'")
        })?;
        let taken: BTreeSet<_> = self.all().flat_map(|lease| lease.ips.iter().copied()).collect();
        let address = |pool: &Pool| {
            let wanted = spec.ips.iter().copied().find(|ip| pool.may_lease(*ip));
            let full = || NetworkError::RangeFull { key: pool.key, range: pool.range, count: pool.count() };
            wanted.or_else(|| pool.next(&taken, self.last_given.get(pool.key).copied())).ok_or_else(full)
        };
        let ips: Vec<_> = pools.iter().map(address).collect::<Result<_, _>>()?;
        Ok(Lease {
            pod: pod.clone(),
            sequence: self.last_sequence.saturating_add(1),
            since: Timestamp::from_system(SystemTime::now()),
            link,
            // There is a range, so there is an address.
            mac: spec.mac.unwrap_or_else(|| mac_of(ips[0])),
            ips,
            ports: spec.ports.clone(),
        })
    }
}

/// A repeated attach may ask for what the pod has, and for nothing else.
fn same_request(lease: &Lease, spec: &AttachSpec) -> Result<(), NetworkError> {
    let differs = |what| Err(NetworkError::Differs { pod: lease.pod.clone(), what });
    if lease.ports != spec.ports {
        return differs("ports");
    }
    if spec.mac.is_some_and(|mac| mac != lease.mac) {
        return differs("Ethernet address");
    }
    if !spec.ips.iter().all(|ip| lease.ips.contains(ip)) {
        return differs("addresses");
    }
    Ok(())
}

fn read(path: &Path) -> Result<Lease, String> {
    use std::io::Read;
    let mut frame = Vec::new();
    let limit = LEASE_LENGTH_MAX as u64 + 64;
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path);
    file.and_then(|file| file.take(limit).read_to_end(&mut frame)).map_err(|error| error.to_string())?;
    FORMAT.open(&frame).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
