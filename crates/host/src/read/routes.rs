//! Interfaces a default route leads out through: /proc/net/route and /proc/net/ipv6_route.
//!
//! Documentation/filesystems/proc.rst, table 1-9; columns and flags in net/ipv4/fib_trie.c and include/uapi/linux/route.h.

use std::collections::BTreeSet;

use crate::facts::{Facts, parsed};
use crate::parse::{Parsed, malformed};

/// Packets are refused rather than sent.
const REJECT: u32 = 0x0200;

/// Names of interfaces; `None` where the source has no table. Without IPv6 there is no second table.
pub(super) fn default_interfaces(facts: &mut Facts<'_>) -> Option<BTreeSet<String>> {
    let mut read = |path: &str, parse: fn(&str) -> Parsed<BTreeSet<String>>| {
        let text = facts.text(path)?;
        facts.noted(parsed(path, &text, parse))
    };
    let mut found = read("/proc/net/route", fourth)?;
    found.extend(read("/proc/net/ipv6_route", sixth).unwrap_or_default());
    Some(found)
}

/// A heading, then interface, destination, gateway, flags, three counts and the mask, in columns.
pub(super) fn fourth(text: &str) -> Parsed<BTreeSet<String>> {
    let mut lines = text.lines();
    let heading = lines.next().unwrap_or_default();
    if !heading.starts_with("Iface\tDestination") || !text.ends_with('\n') {
        return malformed("expected a heading that begins with Iface and Destination, and whole lines");
    }
    let mut found = BTreeSet::new();
    for line in lines {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [name, destination, _, flags, _, _, _, mask, ..] = words[..] else {
            return malformed(format!("expected 8 or more columns in `{line}`"));
        };
        let (destination, flags, mask) = (bits(destination)?, bits(flags)?, bits(mask)?);
        if destination == 0 && mask == 0 && flags & REJECT == 0 {
            found.insert(name.to_owned());
        }
    }
    Ok(found)
}

/// Destination, its length, source, its length, next hop, metric, two counts, flags, interface: hexadecimal, no heading.
pub(super) fn sixth(text: &str) -> Parsed<BTreeSet<String>> {
    if !text.is_empty() && !text.ends_with('\n') {
        return malformed("cut off: the last line has no newline");
    }
    let mut found = BTreeSet::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [destination, length, _, _, _, _, _, _, flags, name] = words[..] else {
            return malformed(format!("expected 10 columns in `{line}`"));
        };
        let is_address = destination.len() == 32 && destination.bytes().all(|digit| digit.is_ascii_hexdigit());
        if !is_address {
            return malformed(format!("expected an address of 32 digits in `{line}`"));
        }
        if bits(length)? == 0 && bits(flags)? & REJECT == 0 {
            found.insert(name.to_owned());
        }
    }
    Ok(found)
}

fn bits(text: &str) -> Parsed<u32> {
    u32::from_str_radix(text, 16).or_else(|_| malformed(format!("expected hexadecimal digits, found `{text}`")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADING: &str = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT     \n";

    fn names(found: Parsed<BTreeSet<String>>) -> Vec<String> {
        found.unwrap().into_iter().collect()
    }

    #[test]
    fn default_routes_are_those_to_everywhere_that_are_not_refusals() {
        let text = format!(
            "{HEADING}br0\t00000000\t0100A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
             eth1\t0000A8C0\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0\n\
             eth2\t00000000\t00000000\t0200\t0\t0\t0\t00000000\t0\t0\t0\n"
        );
        assert_eq!(names(fourth(&text)), ["br0"]);
        assert_eq!(names(fourth(HEADING)), [] as [&str; 0]);
        let zero = "0".repeat(32);
        let text = format!(
            "{zero} 00 {zero} 00 fe800000000000000000000000000001 00000400 00000001 00000000 00000003 eth0\n\
             fe800000000000000000000000000000 40 {zero} 00 {zero} 00000100 00000001 00000000 00000001 eth1\n\
             {zero} 00 {zero} 00 {zero} ffffffff 00000001 00000000 00200200 lo\n"
        );
        assert_eq!(names(sixth(&text)), ["eth0"]);
    }

    #[test]
    fn what_is_no_table_is_refused() {
        for junk in ["", "no such thing\n", "Iface\tDestination", "Iface\tDestination\nbr0\t0\n"] {
            assert!(fourth(junk).is_err(), "{junk:?}");
        }
        for junk in ["no such thing\n", "0 0", "zz 00 0 00 0 0 0 0 3 eth0\n"] {
            assert!(sixth(junk).is_err(), "{junk:?}");
        }
    }
}
