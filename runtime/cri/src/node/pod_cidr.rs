//! The addresses that a cluster has for the pods of this node. Mainstay gives pods addresses of its own configuration, or CNI does: what the cluster
//! says is compared with that, and told where they differ.

use std::net::IpAddr;

use mainstay::{Config, Network};

use crate::failure::{Failure, Result};

/// Checks a list of ranges, as in `10.244.1.0/24,fd00:244:1::/64`.
pub(super) fn check(text: &str) -> Result<()> {
    let range = |range: &str| {
        let (address, length) = range.split_once('/')?;
        let address: IpAddr = address.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        length.parse::<u8>().ok().filter(|length| *length <= most)
    };
    if text.split(',').all(|part| range(part).is_some()) {
        return Ok(());
    }
    Err(Failure::invalid(
        "runtime_config.network_config.pod_cidr",
        format!("{text:?}"),
        "ranges of addresses with commas between them, as in 10.244.1.0/24",
    ))
}

/// Tells where the built-in network gives other addresses than the cluster expects.
pub(super) fn compare(config: &Config, cidr: &str) {
    if config.network.default != Network::Builtin {
        return tracing::info!(
            cidr,
            "the cluster says which addresses pods have here; the CNI configuration decides"
        );
    }
    let ranges = [config.network.ipv4.map(|r| r.to_string()), config.network.ipv6.map(|r| r.to_string())];
    for range in cidr.split(',').filter(|range| !ranges.iter().flatten().any(|ours| ours == range)) {
        tracing::warn!(
            range,
            "the cluster expects pods of this node to have these addresses, and the section [network] gives others; set ipv4 or ipv6 there"
        );
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("10.244.1.0/24", true)]
    #[case("10.244.1.0/24,fd00::/64", true)]
    #[case("10.244.1.0", false)]
    #[case("10.244.1.0/33", false)]
    #[case("10.244.1.0/24, fd00::/64", false)]
    fn ranges(#[case] text: &str, #[case] good: bool) {
        assert_eq!(check(text).is_ok(), good);
    }
}
