//! The network: one call at a time per pod, many at once.
//!
//! Owns: the order of steps and who may work on what. Never: knows what a step looks like to the kernel.
//!
//! ```text
//!  attach:  lease ─► bridge ─► pair, port ─► addresses, routes ─► rules of ports
//!  detach:  rules of ports ─► link ─► lease
//! ```

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ipnet::IpNet;
use mainstay_messages::SandboxId;

use crate::conntrack;
use crate::error::{NetworkError, Trying};
use crate::faults;
use crate::holdings::{self, Fault, Holdings};
use crate::host;
use crate::ledger::{Lease, Ledger};
use crate::name;
use crate::namespace::{self, NamespaceId, within};
use crate::netlink::{Lanes, Netlink};
use crate::nft::Table;
use crate::pod;
use crate::pool::Pool;
use crate::settings::Settings;
use crate::spec::{AttachSpec, Attachment, POD_LINK, PodAddress};
use crate::sysctl::{self, SysctlChange};

/// Sockets for links, and with that how many pods' links are made or removed at once.
const LANES: usize = 8;

/// A network for pods. See the crate's page for what it makes.
#[derive(Debug)]
pub struct Network {
    settings: Settings,
    pools: Vec<Pool>,
    host: File,
    changes: Vec<SysctlChange>,
    ledger: Ledger,
    links: Arc<Lanes>,
    /// Held while the bridge is made anew.
    mending: Mutex<()>,
    table: Mutex<Table>,
    flows: Mutex<Netlink>,
    /// Pods that a call is working on.
    busy: Mutex<BTreeSet<SandboxId>>,
}

/// The data stays whole when a thread panics with it: sockets skip answers that are not theirs.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps every other call from a pod until it is dropped.
struct Turn<'a> {
    network: &'a Network,
    pod: &'a SandboxId,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        locked(&self.network.busy).remove(self.pod);
    }
}

impl Network {
    /// Reads the leases, and makes the bridge, the table and the switches what they have to be. The network namespace of this
    /// thread is the host's from now on. Pods that are attached stay so.
    pub fn open(settings: Settings) -> Result<Self, NetworkError> {
        settings.check()?;
        let pools: Vec<_> = settings.ranges().map(|(key, range)| Pool { key, range }).collect();
        let ledger = Ledger::open(&settings.directory, &settings.bridge, pools.clone())?;
        check_leases(&pools, &ledger)?;
        let mut links = pod::route_socket(&settings).trying(|| "open a netlink socket".into())?;
        let mut table = Table::connect(&settings.table, settings.request_timeout)
            .trying(|| "open a netlink socket for nftables".into())?;
        let flows = conntrack::connect(settings.request_timeout)
            .trying(|| "open a netlink socket for connections".into())?;
        let present = host::own_bridge(&mut links, &settings)?;
        host::own_table(&mut table, &settings)?;
        host::check_routes(&mut links, present.as_ref(), &pools)?;
        let bridge = host::bridge(&mut links, &settings, &pools)?;
        // The guard of the table must stand before the switch that it guards.
        host::table(&mut table, &settings)?;
        let changes = sysctl::prepare(&settings)?;
        host::gateways(&mut links, &bridge, &pools)?;
        let host = namespace::current().trying(|| "open the network namespace of the host".into())?;
        let mut lanes = vec![links];
        for _ in 1..LANES {
            lanes.push(pod::route_socket(&settings).trying(|| "open a netlink socket".into())?);
        }
        Ok(Self {
            host,
            settings,
            pools,
            changes,
            ledger,
            links: Arc::new(Lanes::new(lanes)),
            mending: Mutex::new(()),
            table: Mutex::new(table),
            flows: Mutex::new(flows),
            busy: Mutex::new(BTreeSet::new()),
        })
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The switches of the kernel that were changed.
    pub fn sysctl_changes(&self) -> &[SysctlChange] {
        &self.changes
    }

    /// Gives a pod its place in the network. A repetition with the same request completes what an earlier one began, also for
    /// another namespace, and returns the same. After an error the lease stands, if there was a free address: detach the pod,
    /// or ask again.
    pub fn attach(
        &self,
        pod: &SandboxId,
        netns: BorrowedFd<'_>,
        spec: &AttachSpec,
    ) -> Result<Attachment, NetworkError> {
        let ranges: Vec<_> = self.pools.iter().map(|pool| pool.range).collect();
        spec.check(&ranges)?;
        if NamespaceId::of(netns)? == NamespaceId::of(self.host.as_fd())? {
            let reason = "it is the host's own; give the pod a network namespace of its own".into();
            return Err(NetworkError::Namespace { reason, source: None });
        }
        let _turn = self.turn(pod)?;
        faults::reach("attach-begun");
        let lease = self.ledger.keep(pod, spec)?;
        faults::reach("lease-kept");
        let bridge = self.bridge()?;
        faults::reach("bridge-there");
        let attachment = self.attachment(&lease);
        pod::connect(&self.links, &self.settings, &bridge, netns, &lease, &attachment.ips)?;
        self.open_ports(&lease)?;
        self.forget_flows(&lease)?;
        faults::reach("rules-made");
        Ok(attachment)
    }

    /// Takes everything back that a pod has, whether its namespace is there or not, and then its lease. Fine for a pod that
    /// has nothing, and for one whose lease was lost.
    pub fn detach(&self, pod: &SandboxId) -> Result<(), NetworkError> {
        let _turn = self.turn(pod)?;
        faults::reach("detach-begun");
        let lease = self.ledger.get(pod);
        // A lease says whether there are ports; without one they have to be looked for.
        if lease.as_ref().is_none_or(|lease| !lease.ports.is_empty()) {
            pod::close_ports(&mut locked(&self.table), &self.settings, pod)?;
        }
        if let Some(lease) = &lease {
            self.forget_flows(lease)?;
        }
        faults::reach("rules-gone");
        {
            let bridge = host::own_bridge(&mut self.links.lane(), &self.settings)?;
            let bridge = bridge.map(|bridge| bridge.index);
            let disconnect = |names: &mut dyn Iterator<Item = String>| {
                pod::disconnect(&self.links, &self.settings, bridge, pod, names)
            };
            match lease {
                Some(lease) => disconnect(&mut [lease.link].into_iter())?,
                None => {
                    let names = name::pod_links(&self.settings.bridge, pod);
                    // Another pod's lease may have one of these names, and its link no alias yet.
                    disconnect(&mut names.filter(|name| !self.ledger.names_link(name)))?;
                }
            }
        }
        faults::reach("link-gone");
        self.ledger.release(pod)?;
        faults::reach("lease-file-gone");
        Ok(())
    }

    /// What a pod has, as its lease says.
    pub fn attached(&self, pod: &SandboxId) -> Option<Attachment> {
        self.ledger.get(pod).map(|lease| self.attachment(&lease))
    }

    /// Everything that is there of this network: in the leases, and in the kernel.
    pub fn list(&self) -> Result<Holdings, NetworkError> {
        // The kernel first: what is made meanwhile has a lease by the time that leases are read.
        let (links, rules) = {
            let mut netlink = self.links.lane();
            let bridge = host::own_bridge(&mut netlink, &self.settings)?;
            (holdings::links(&mut netlink, bridge.as_ref())?, holdings::rules(&mut locked(&self.table))?)
        };
        Ok(holdings::assemble(self.ledger.leases(), self.ledger.unreadable(), links, rules))
    }

    /// Everything of pods that a network of these settings has in the kernel, for one that is not open and has no lease. Makes and
    /// changes nothing, and reads no file. The network namespace of this thread is taken for the host's.
    pub fn look(settings: &Settings) -> Result<Holdings, NetworkError> {
        let mut links = pod::route_socket(settings).trying(|| "open a netlink socket".into())?;
        let bridge = match host::own_bridge(&mut links, settings) {
            Err(NetworkError::Foreign { .. }) => None,
            found => found?,
        };
        let links = match &bridge {
            Some(bridge) => holdings::links(&mut links, Some(bridge))?,
            None => Vec::new(),
        };
        Ok(holdings::assemble(Vec::new(), Vec::new(), links, host::rules_of_pods(settings)?))
    }

    /// What of a pod is not as its lease says; nothing when all is well.
    pub fn check(&self, pod: &SandboxId) -> Result<Vec<Fault>, NetworkError> {
        let Some(lease) = self.ledger.get(pod) else {
            return Ok(vec![Fault::NoLease]);
        };
        let mut netlink = self.links.lane();
        let bridge = host::own_bridge(&mut netlink, &self.settings)?;
        let found = holdings::rules(&mut locked(&self.table))?;
        holdings::faults(&mut netlink, bridge.as_ref(), &lease, &found)
    }

    /// What others have set that keeps packets of pods from leaving: one sentence each.
    pub fn obstacles(&self) -> Result<Vec<String>, NetworkError> {
        let chains =
            locked(&self.table).chains_that_drop().trying(|| "list the chains of the firewall".into())?;
        let sentence = |chain| {
            format!(
                "the firewall's chain {chain} drops forwarded packets that no rule of it accepts; let it accept those \
                 from and to the bridge {}",
                self.settings.bridge
            )
        };
        Ok(chains.into_iter().map(sentence).collect())
    }

    /// Removes the bridge and the table. Refused while a pod has a lease. The switches of the kernel stay.
    pub fn remove(self) -> Result<(), NetworkError> {
        let leases = self.ledger.leases();
        if let Some(first) = leases.first() {
            return Err(NetworkError::InUse { count: leases.len(), first: first.pod.clone() });
        }
        host::remove(&mut self.links.lane(), &mut locked(&self.table), &self.settings)
    }

    fn turn<'a>(&'a self, pod: &'a SandboxId) -> Result<Turn<'a>, NetworkError> {
        match locked(&self.busy).insert(pod.clone()) {
            true => Ok(Turn { network: self, pod }),
            false => Err(NetworkError::Busy { pod: pod.clone() }),
        }
    }

    /// The bridge; made anew when someone has removed it, with the switches that went with it.
    fn bridge(&self) -> Result<crate::link::Link, NetworkError> {
        let mut links = self.links.lane();
        if let Some(bridge) = host::own_bridge(&mut links, &self.settings)? {
            return Ok(bridge);
        }
        let _mending = locked(&self.mending);
        tracing::warn!(bridge = self.settings.bridge, "the bridge is gone and is made anew");
        let bridge = host::bridge(&mut links, &self.settings, &self.pools)?;
        within(self.host.as_fd(), || sysctl::prepare(&self.settings))?;
        host::gateways(&mut links, &bridge, &self.pools)?;
        Ok(bridge)
    }

    fn open_ports(&self, lease: &Lease) -> Result<(), NetworkError> {
        let mut table = locked(&self.table);
        match pod::open_ports(&mut table, &self.settings, lease) {
            // Someone has flushed the firewall.
            Err(error) if error.errno() == Some(libc::ENOENT) => {
                tracing::warn!(
                    table = self.settings.table,
                    "the table of the firewall is gone and is made anew"
                );
                host::table(&mut table, &self.settings)?;
                pod::open_ports(&mut table, &self.settings, lease)
            }
            result => result,
        }
    }

    fn forget_flows(&self, lease: &Lease) -> Result<(), NetworkError> {
        let mut flows = locked(&self.flows);
        conntrack::forget(&mut flows, &lease.ports)
            .trying(|| format!("forget the flows to the UDP ports of pod {}", lease.pod))
    }

    fn attachment(&self, lease: &Lease) -> Attachment {
        let address = |ip: &std::net::IpAddr| {
            let pool = self.pools.iter().find(|pool| pool.range.contains(ip))?;
            let gateway = pool.gateway();
            Some(PodAddress { ip: IpNet::new(*ip, pool.range.prefix_len()).ok()?, gateway })
        };
        Attachment {
            link: POD_LINK,
            host_link: lease.link.clone(),
            ips: lease.ips.iter().filter_map(address).collect(),
            mac: lease.mac,
            mtu: self.settings.mtu,
            dns: self.settings.dns.clone(),
        }
    }
}

/// Leases that the ranges do not hold any more would be pods that nobody can reach.
fn check_leases(pools: &[Pool], ledger: &Ledger) -> Result<(), NetworkError> {
    for lease in &ledger.leases() {
        let outside = lease.ips.iter().find(|ip| !pools.iter().any(|pool| pool.may_lease(**ip)));
        if let Some(ip) = outside {
            let key = if ip.is_ipv4() { "network.ipv4" } else { "network.ipv6" };
            let range = pools.iter().find(|pool| pool.key == key).map(|pool| pool.range.to_string());
            let expected = format!("a range with {ip}, which pod {} has; remove the pod first", lease.pod);
            return Err(NetworkError::setting(key, range.unwrap_or_else(|| "none".into()), expected));
        }
    }
    Ok(())
}
