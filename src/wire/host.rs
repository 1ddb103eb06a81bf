//! Hosts that a command may reach: a name, perhaps with a wildcard, or a host with its port.

use core::net::{IpAddr, Ipv4Addr};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The ports of a host that is named without one: those of HTTP and TLS.
pub const WEB_PORTS: [u16; 2] = [80, 443];

/// The address by which a virtual machine of Azure reaches its host.
const AZURE_HOST: Ipv4Addr = Ipv4Addr::new(168, 63, 129, 16);

/// The longest name of a host.
const MAX_NAME: usize = 253;

/// A host, or all hosts below a name.
///
/// `packages.example.com` and `*.example.com` (each name below `example.com`, not itself) mean public addresses, on the
/// ports of the web.
/// `db.internal:5432` and `127.0.0.1:8080` mean exactly this host and port, wherever it is: also on this machine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostPattern {
    name: String,
    has_wildcard: bool,
    port: Option<u16>,
}

/// The part of a host that a pattern lets through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HostGrant {
    /// Public addresses, with a protocol that names the host.
    Public,
    /// Every address of the host, with every protocol.
    Exact,
}

impl HostPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// A sentence about a text that is none.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bad = |why: &str| Err(format!("{text:?} is not a host: {why}"));
        let (host, port) = match split_port(text.trim()) {
            Ok(parts) => parts,
            Err(why) => return bad(why),
        };
        let (name, has_wildcard) = match host.strip_prefix("*.") {
            Some(name) => (name, true),
            None => (host, false),
        };
        let name = normal(name);
        if has_wildcard && port.is_some() {
            return bad("a host with a port is exact; leave the wildcard or the port out");
        }
        if is_address(&name) {
            let is_exact = port.is_some() && name.parse::<IpAddr>().is_ok();
            return if is_exact {
                Ok(Self { name, has_wildcard, port })
            } else {
                bad("an address needs its port, as in 127.0.0.1:8080")
            };
        }
        if !is_name(&name) {
            return bad(
                "write a name such as packages.example.com, *.example.com or db.internal:5432",
            );
        }
        if has_wildcard && !name.contains('.') {
            return bad("a wildcard needs a name of two parts, such as *.example.com");
        }
        Ok(Self { name, has_wildcard, port })
    }

    /// Returns what the pattern lets through of a host and a port; `None` for nothing.
    pub fn grants(&self, host: &str, port: u16) -> Option<HostGrant> {
        let host = normal(host);
        let is_below = || host.strip_suffix(&*self.name).is_some_and(|head| head.ends_with('.'));
        let is_meant = if self.has_wildcard { is_below() } else { host == self.name };
        match self.port {
            Some(own) => (is_meant && own == port).then_some(HostGrant::Exact),
            None if is_address(&host) || !WEB_PORTS.contains(&port) => None,
            None => is_meant.then_some(HostGrant::Public),
        }
    }

    /// Whether the pattern means one port of a host, wherever the host is.
    pub fn has_port(&self) -> bool {
        self.port.is_some()
    }

    /// Returns the pattern for one port of a host that has no wildcard.
    #[must_use]
    pub fn with_port(&self, port: u16) -> Self {
        Self { port: Some(port), ..self.clone() }
    }

    /// Whether each host that `other` means is one that this pattern means.
    pub fn covers(&self, other: &Self) -> bool {
        if self.port != other.port {
            return false;
        }
        let is_below =
            || other.name.strip_suffix(&*self.name).is_some_and(|head| head.ends_with('.'));
        match (self.has_wildcard, other.has_wildcard) {
            (false, _) => self == other,
            (true, false) => is_below(),
            (true, true) => other.name == self.name || is_below(),
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wildcard = if self.has_wildcard { "*." } else { "" };
        let is_bracketed = self.name.contains(':');
        let (open, close) = if is_bracketed { ("[", "]") } else { ("", "") };
        write!(out, "{wildcard}{open}{}{close}", self.name)?;
        self.port.map_or(Ok(()), |port| write!(out, ":{port}"))
    }
}

impl TryFrom<String> for HostPattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
    }
}

impl From<HostPattern> for String {
    fn from(pattern: HostPattern) -> Self {
        pattern.to_string()
    }
}

/// Splits `HOST`, `HOST:PORT`, `[ADDRESS]` or `[ADDRESS]:PORT`. The error is a reason.
pub fn split_port(text: &str) -> Result<(&str, Option<u16>), &'static str> {
    let number = |port: &str| match port.parse::<u16>() {
        Ok(port) if port > 0 => Ok(Some(port)),
        Ok(_) | Err(_) => Err("its port is not a number from 1 to 65535"),
    };
    if let Some(rest) = text.strip_prefix('[') {
        let (address, rest) = rest.split_once(']').ok_or("its `]` is missing")?;
        return match rest.strip_prefix(':') {
            Some(port) => Ok((address, number(port)?)),
            None if rest.is_empty() => Ok((address, None)),
            None => Err("after its `]` comes a colon and a port"),
        };
    }
    match text.split_once(':') {
        Some((_, rest)) if rest.contains(':') => Err("write an IPv6 address in brackets"),
        Some((host, port)) => Ok((host, number(port)?)),
        None => Ok((text, None)),
    }
}

/// Returns a name as it is compared: in lower case, without the dot of the root.
fn normal(name: &str) -> String {
    let name = name.strip_suffix('.').unwrap_or(name);
    name.to_ascii_lowercase()
}

/// Whether a name is an address in any form that a resolver takes for one: `::1`, `127.0.0.1`, `127.1`, `0x7f000001`.
pub fn is_address(name: &str) -> bool {
    let is_number = |label: &str| {
        let digits = label.strip_prefix("0x").or_else(|| label.strip_prefix("0X"));
        match digits {
            Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
            None => !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_digit()),
        }
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    name.contains(':') || name.rsplit('.').next().is_some_and(is_number)
}

fn is_name(name: &str) -> bool {
    let is_label = |label: &str| {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        (1..=63).contains(&label.len())
            && label.bytes().all(is_part)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= MAX_NAME && name.split('.').all(is_label)
}

/// Whether an address belongs to the public internet: not to this machine, a local network, or a reserved range.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, _] = address.octets();
            let is_shared = a == 100 && (64..128).contains(&b);
            // Through this one a virtual machine of Azure reaches its host, with data about the machine.
            let is_of_host = address == AZURE_HOST;
            let is_reserved = a == 0
                || a >= 240
                || (a, b, c) == (192, 0, 0)
                || (a, b, c) == (192, 88, 99)
                || (a == 198 && (b == 18 || b == 19));
            !(address.is_private()
                || address.is_loopback()
                || address.is_link_local()
                || address.is_multicast()
                || address.is_documentation()
                || is_shared
                || is_of_host
                || is_reserved)
        }
        IpAddr::V6(address) => {
            let [first, second, ..] = address.segments();
            // Ranges that carry an IPv4 address: mapped, compatible, translated, 6to4, Teredo.
            let is_mapped = first == 0 || first == 0x64 || first == 0x2002;
            let is_special = first == 0x2001 && (second < 0x200 || second == 0xdb8);
            // Only this eighth is given out.
            (first & 0xe000) == 0x2000 && !is_mapped && !is_special && first != 0x3fff
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pattern(text: &str) -> HostPattern {
        HostPattern::parse(text).unwrap()
    }

    #[test]
    fn a_pattern_means_a_host_or_the_hosts_below_it() {
        use HostGrant::{Exact, Public};
        for (text, host, port, grant) in [
            ("packages.example.com", "packages.example.com", 443, Some(Public)),
            ("packages.example.com", "PACKAGES.example.com.", 80, Some(Public)),
            ("Packages.Example.COM", "packages.example.com", 443, Some(Public)),
            ("packages.example.com", "static.packages.example.com", 443, None),
            ("packages.example.com", "packages.example.com.evil.example", 443, None),
            ("packages.example.com", "evilpackages.example.com", 443, None),
            ("packages.example.com", "packages.example.com", 22, None),
            ("*.packages.example.com", "static.packages.example.com", 443, Some(Public)),
            ("*.packages.example.com", "a.b.packages.example.com", 443, Some(Public)),
            ("*.packages.example.com", "packages.example.com", 443, None),
            ("*.packages.example.com", "evilpackages.example.com", 443, None),
            ("db.internal:5432", "db.internal", 5432, Some(Exact)),
            ("db.internal:5432", "db.internal", 443, None),
            ("127.0.0.1:8080", "127.0.0.1", 8080, Some(Exact)),
            ("[::1]:8080", "::1", 8080, Some(Exact)),
            ("localhost:8080", "127.0.0.1", 8080, None),
        ] {
            assert_eq!(pattern(text).grants(host, port), grant, "{text} {host}:{port}");
        }
    }

    #[test]
    fn what_is_not_a_host_is_refused_with_a_reason() {
        for text in [
            "",
            "*",
            "*.io",
            "*.",
            "a..b",
            "a b",
            "-a.example",
            "http://a.example",
            "a.example/x",
            "127.0.0.1",
            "127.1:80",
            "0x7f000001",
            "0x7f.1:80",
            "2130706433:80",
            "::1",
            "[::1]",
            "[::1",
            "*.a.example:443",
            "a.example:0",
            "a.example:99999",
            "user@a.example",
            "10.0.0.0/8",
            "a.example:http",
        ] {
            let why = HostPattern::parse(text).unwrap_err();
            assert!(why.contains(&format!("{text:?} is not a host: ")), "{why}");
        }
    }

    #[test]
    fn a_pattern_covers_narrower_ones() {
        for (wide, narrow, covers) in [
            ("*.a.example", "b.a.example", true),
            ("*.a.example", "*.b.a.example", true),
            ("*.a.example", "*.a.example", true),
            ("*.a.example", "a.example", false),
            ("*.a.example", "b.a.example:443", false),
            ("a.example", "*.a.example", false),
            ("a.example", "a.example:443", false),
            ("a.example:22", "a.example:22", true),
        ] {
            assert_eq!(pattern(wide).covers(&pattern(narrow)), covers, "{wide} {narrow}");
        }
    }

    #[test]
    fn addresses_of_this_machine_and_of_local_networks_are_not_public() {
        for text in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "168.63.129.16",
            "100.64.0.1",
            "100.100.100.200",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "192.0.2.1",
            "198.18.0.1",
            "::1",
            "::",
            "fe80::1",
            "fc00::1",
            "ff02::1",
            "::ffff:8.8.8.8",
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::7f00:1",
            "fd00:ec2::254",
            "2002:7f00:1::",
            "2001:0:7f00:1::",
            "2001:db8::1",
        ] {
            assert!(!is_public(text.parse().unwrap()), "{text}");
        }
        for text in ["8.8.8.8", "1.1.1.1", "172.32.0.1", "2606:4700::1111", "2a00:1450:4001::1"] {
            assert!(is_public(text.parse().unwrap()), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_pattern_survives_its_text(text in "(\\*\\.)?[a-z]{1,8}(\\.[a-z0-9_-]{1,8}){0,3}(:[1-9][0-9]{0,3})?") {
            if let Ok(pattern) = HostPattern::parse(&text) {
                prop_assert_eq!(HostPattern::parse(&pattern.to_string()), Ok(pattern));
            }
        }

        /// No text that a resolver may take for an address passes as a name.
        #[test]
        fn no_number_is_a_name(text in "(0x)?[0-9a-f]{1,8}(\\.(0x)?[0-9]{1,3}){0,3}") {
            let last = text.rsplit('.').next().unwrap_or_default();
            if last.bytes().all(|byte| byte.is_ascii_digit()) {
                prop_assert!(HostPattern::parse(&text).is_err());
            }
        }
    }
}
