//! Which addresses are private, and a resolver that lets only allowed hosts lead there.
//!
//! Checked where the name is resolved for the connection itself, so that a name cannot mean one
//! address when it is checked and another when it is used.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ureq::Error;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

/// Resolves names, but not to private addresses where the plan does not expect one.
#[derive(Debug, Default)]
pub(super) struct GuardedResolver {
    inner: DefaultResolver,
    /// Hosts whose address may be private.
    private_hosts: Vec<String>,
}

impl GuardedResolver {
    pub(super) fn new(private_hosts: Vec<String>) -> Self {
        Self {
            inner: DefaultResolver::default(),
            private_hosts,
        }
    }
}

impl Resolver for GuardedResolver {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        let addresses = self.inner.resolve(uri, config, timeout)?;
        let host = bare(uri.host().unwrap_or_default());
        let expected = self.private_hosts.contains(&host);
        match addresses.iter().find(|address| is_private(address.ip())) {
            Some(address) if !expected => {
                let problem = format!(
                    "{host} is the private address {}; list the host in private_hosts where that is \
                     meant",
                    address.ip()
                );
                let denied = io::Error::new(io::ErrorKind::PermissionDenied, problem);
                Err(Error::Io(denied))
            }
            _ => Ok(addresses),
        }
    }
}

/// A host in lower case, an IPv6 address without its brackets.
pub(super) fn bare(host: &str) -> String {
    host.trim_start_matches('[')
        .trim_end_matches(']')
        .to_ascii_lowercase()
}

/// Whether an address is not one of the public internet: this machine, a private or local network,
/// reserved, multicast, or an IPv6 form of such an address.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(four) => is_private_v4(four),
        IpAddr::V6(six) => is_private_v6(six),
    }
}

fn is_private_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation()
        || a == 0
        || a >= 240
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && c == 0)
        || (a == 198 && (18..20).contains(&b))
}

fn is_private_v6(address: Ipv6Addr) -> bool {
    let parts = address.segments();
    let four = |high: u16, low: u16| Ipv4Addr::from(u32::from(high) << 16 | u32::from(low));
    let inner = match parts {
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            Some(four(high, low))
        }
        [0x2002, high, low, ..] => Some(four(high, low)),
        _ => None,
    };
    match inner {
        Some(four) => is_private_v4(four),
        // Only 2000::/3 is given out to the public internet.
        None => parts[0] & 0xe000 != 0x2000 || (parts[0] == 0x2001 && parts[1] == 0xdb8),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_machine_and_of_local_networks_are_private_in_every_form() {
        for text in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "0.0.0.0",
            "100.64.0.1",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "fd00::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "64:ff9b::a00:1",
            "2002:7f00:1::",
            "2001:db8::1",
            "::7f00:1",
        ] {
            assert!(is_private(text.parse().unwrap()), "{text}");
        }
        for text in [
            "1.1.1.1",
            "140.82.121.4",
            "2606:4700::1",
            "::ffff:8.8.8.8",
            "100.128.0.1",
        ] {
            assert!(!is_private(text.parse().unwrap()), "{text}");
        }
    }
}
