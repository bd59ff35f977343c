//! Values of flags about networks.

use std::net::IpAddr;

use mainstay_messages::spec::{PortMapping, Protocol};

/// `[IP:]HOST:POD[/PROTOCOL]`, as in `8080:80`, `127.0.0.1:53:53/udp` or `[2001:db8::1]:80:8080`.
pub fn port_mapping(text: &str) -> Result<PortMapping, String> {
    let expected = || {
        "expected [IP:]HOST:POD[/udp|tcp|sctp], as in 8080:80, 127.0.0.1:53:53/udp or [2001:db8::1]:80:80"
            .to_owned()
    };
    let (places, protocol) = match text.split_once('/') {
        Some((places, protocol)) => (places, protocol.parse().map_err(|_| expected())?),
        None => (text, Protocol::Tcp),
    };
    let (before, pod_port) = places.rsplit_once(':').ok_or_else(expected)?;
    let (host_ip, host_port) = match before.rsplit_once(':') {
        Some((ip, port)) => (Some(address(ip).ok_or_else(expected)?), port),
        None => (None, before),
    };
    let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(expected);
    Ok(PortMapping { protocol, host_ip, host_port: port(host_port)?, pod_port: port(pod_port)? })
}

/// An address; one of IPv6 in brackets, so that its colons are no others.
fn address(text: &str) -> Option<IpAddr> {
    match text.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']')?.parse().ok().filter(IpAddr::is_ipv6),
        None => text.parse().ok().filter(IpAddr::is_ipv4),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("8080:80", "8080:80/tcp")]
    #[case("127.0.0.1:53:5353/udp", "127.0.0.1:53:5353/udp")]
    #[case("[2001:db8::1]:80:8080/sctp", "[2001:db8::1]:80:8080/sctp")]
    fn a_port_is_read(#[case] text: &str, #[case] shown: &str) {
        assert_eq!(port_mapping(text).expect("good").to_string(), shown);
    }

    #[rstest]
    #[case("80")]
    #[case("0:80")]
    #[case("80:0")]
    #[case("80:65536")]
    #[case("80:80/icmp")]
    #[case("::1:80:80")]
    #[case("[127.0.0.1]:80:80")]
    #[case("host:80:80")]
    #[case("80-90:80")]
    fn what_is_no_port_is_refused_with_what_would_be_right(#[case] text: &str) {
        assert!(port_mapping(text).expect_err("refused").starts_with("expected [IP:]HOST:POD"));
    }
}
