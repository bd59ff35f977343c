//! The built-in network of pods: a bridge, addresses, a way out, ports of the host; by netlink, with nothing to install.
//!
//! [`Network`] is all of it. [`Network::attach`] gives a pod, which is a network namespace, a link on the bridge with
//! addresses and routes; [`Network::detach`] takes all of it back. Both may be repeated at any time, also by another process after
//! a kill -9 at any instant: what a pod has is named by its lease, which is durable before anything is made (P3) and goes
//! after all of it is gone.
//!
//! ```text
//!                      host                                     pod's namespace
//!   lease ─► bridge mainstay0 ── ms3f… ═══════ veth ═══════════ eth0, lo
//!              │ gateway addresses                              addresses, default routes
//!              └ table inet mainstay: masquerade, ports
//! ```
//!
//! Calls block, each request to the kernel with its own deadline; they may come from any thread, also at the same time. The
//! host is the network namespace in which [`Network::open`] was called. This crate never makes or holds a namespace,
//! never touches a link, rule or table without its mark, and knows nothing of the rest of the runtime.
//!
//! | module | owns |
//! |---|---|
//! | `settings` | what an operator sets |
//! | `spec` | what a pod asks for and gets |
//! | `ledger` | the leases |
//! | `pool` | which address is next |
//! | `host` | bridge, table and switches |
//! | `pod` | a pod's link, addresses, routes and rules |
//! | `holdings` | what there is of ours, for audits |
//! | `rules` | which rules there are |
//! | `expression` | what rules are made of |
//! | `nft`, `conntrack`, `netfilter`, `link`, `netlink`, `sysctl`, `namespace` | the kernel's interfaces |
//! | `name` | names of links |
//! | `durable` | how files are written |
//! | [`cni`] | the other kind of network: plugins that others wrote |

pub mod cni;
mod conntrack;
mod durable;
mod error;
mod expression;
#[doc(hidden)]
pub mod faults;
mod holdings;
mod host;
mod ledger;
mod link;
mod name;
mod namespace;
mod netfilter;
mod netlink;
mod network;
mod nft;
mod pod;
mod pool;
mod rules;
mod settings;
mod spec;
mod sysctl;

pub use crate::error::NetworkError;
pub use crate::holdings::{Fault, Holdings, PodLink, PodRule};
pub use crate::ledger::{Lease, UnreadableLease};
pub use crate::namespace::{TcpSockets, tcp_sockets};
pub use crate::network::Network;
pub use crate::settings::{
    BRIDGE_DEFAULT, DIRECTORY_LENGTH_MAX, DNS_SERVERS_MAX, LINK_NAME_LENGTH_MAX, MTU_DEFAULT, MTU_MAX,
    MTU_MIN, Masquerade, REQUEST_TIMEOUT_DEFAULT_MS, Settings, TABLE_DEFAULT, TABLE_NAME_LENGTH_MAX,
};
pub use crate::spec::{AttachSpec, Attachment, Mac, POD_LINK, PORTS_MAX, PodAddress, PortMapping, Protocol};
pub use crate::sysctl::SysctlChange;
