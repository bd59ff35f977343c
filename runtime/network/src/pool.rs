//! Which address comes next.
//!
//! Owns: the arithmetic of one range. Never: IO, nor a memory of what is leased.
//!
//! A pod gets the lowest free address above the one that was given out last, and from the bottom when there is none: an
//! address that was just given back is not reused while others were free for longer.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// The addresses of one range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pool {
    pub(crate) key: &'static str,
    pub(crate) range: IpNet,
}

impl Pool {
    /// The bridge's address: the first after that of the range itself.
    pub(crate) fn gateway(&self) -> IpAddr {
        self.address(number(self.range.network()) + 1)
    }

    fn first(&self) -> u128 {
        number(self.range.network()) + 2
    }

    /// The last address that a pod may have. The very last is IPv4's broadcast; IPv6 has none, and is held to the same
    /// so that one rule is to be known.
    fn last(&self) -> u128 {
        number(self.range.broadcast()) - 1
    }

    /// How many pods can have an address.
    pub(crate) fn count(&self) -> u128 {
        self.last() - self.first() + 1
    }

    /// Whether a pod may have this address.
    pub(crate) fn may_lease(&self, ip: IpAddr) -> bool {
        self.range.contains(&ip) && (self.first()..=self.last()).contains(&number(ip))
    }

    /// The address for the next pod.
    pub(crate) fn next(&self, taken: &BTreeSet<IpAddr>, last_given: Option<IpAddr>) -> Option<IpAddr> {
        let after = last_given.filter(|ip| self.may_lease(*ip)).map_or(self.first(), |ip| number(ip) + 1);
        // The search passes leased addresses only, so it is as long as there are leases, however large the range.
        let mut candidates = (after..=self.last()).chain(self.first()..after);
        candidates.find_map(|n| Some(self.address(n)).filter(|ip| !taken.contains(ip)))
    }

    fn address(&self, number: u128) -> IpAddr {
        match self.range {
            // The numbers of a pool of IPv4 are those of its range.
            IpNet::V4(_) => Ipv4Addr::from_bits(number as u32).into(),
            IpNet::V6(_) => Ipv6Addr::from_bits(number).into(),
        }
    }
}

fn number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => ip.to_bits().into(),
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pool(range: &str) -> Pool {
        Pool { key: "network.ipv4", range: range.parse().expect("a range") }
    }

    #[test]
    fn the_smallest_range_has_one_pod() {
        let pool = pool("10.0.0.0/30");
        assert_eq!(pool.gateway().to_string(), "10.0.0.1");
        assert_eq!(pool.count(), 1);
        let only = pool.next(&BTreeSet::new(), None).expect("one");
        assert_eq!(only.to_string(), "10.0.0.2");
        assert_eq!(pool.next(&BTreeSet::from([only]), Some(only)), None);
        assert_eq!(pool.next(&BTreeSet::new(), Some(only)), Some(only), "free again");
    }

    #[test]
    fn an_address_given_back_is_not_next() {
        let pool = pool("10.0.0.0/24");
        let first = pool.next(&BTreeSet::new(), None).expect("free");
        let second = pool.next(&BTreeSet::new(), Some(first)).expect("free");
        assert_eq!(second.to_string(), "10.0.0.3");
    }

    #[test]
    fn a_large_range_costs_nothing() {
        let pool = Pool { key: "network.ipv6", range: "fd00::/64".parse().expect("a range") };
        assert_eq!(pool.next(&BTreeSet::new(), None).expect("free").to_string(), "fd00::2");
        assert_eq!(pool.count(), (1 << 64) - 3);
    }

    proptest! {
        #[test]
        fn every_address_is_given_once_before_the_range_is_full(prefix in 24u8..=30, start in 0u32..400) {
            let pool = pool(&format!("10.0.0.0/{prefix}"));
            let mut last = Some(IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + start)));
            let mut taken = BTreeSet::new();
            while let Some(ip) = pool.next(&taken, last) {
                prop_assert!(pool.may_lease(ip));
                prop_assert!(taken.insert(ip));
                last = Some(ip);
            }
            prop_assert_eq!(taken.len() as u128, pool.count());
            prop_assert!(!taken.contains(&pool.gateway()));
            prop_assert!(!taken.contains(&pool.range.network()) && !taken.contains(&pool.range.broadcast()));
        }
    }
}
