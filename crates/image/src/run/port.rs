//! How a host was reached, and how fast that port is.

use std::net::IpAddr;

use nearmetal_host::HostFs;

/// Addresses in `SSH_CONNECTION`, which sshd sets: of who came, and of this machine as it was reached (sshd(8)).
pub(crate) fn connection(text: &str) -> Option<(IpAddr, IpAddr)> {
    let mut words = text.split_ascii_whitespace();
    let (client, _, server, _) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let mapped = |text: &str| text.parse::<IpAddr>().ok().map(|address| address.to_canonical());
    Some((mapped(client)?, mapped(server)?))
}

/// Mbit/s of the port with this address, if its network is in the table of routes and the port says how fast it is.
pub(crate) fn speed(fs: &HostFs, address: IpAddr) -> Option<u64> {
    let IpAddr::V4(address) = address else { return None };
    let interface = interface(&fs.read("/proc/net/route").ok()?, u32::from_le_bytes(address.octets()))?;
    let speed = fs.read(&format!("/sys/class/net/{interface}/speed")).ok()?;
    // -1 where it is not known.
    speed.trim().parse().ok().filter(|speed| *speed > 0)
}

/// The interface whose own network an address is in. Numbers in /proc/net/route are hexadecimal, in the machine's order.
fn interface(routes: &str, address: u32) -> Option<String> {
    let mut best: Option<(u32, &str)> = None;
    for line in routes.lines().skip(1) {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [name, network, gateway, _, _, _, _, mask, ..] = words.as_slice() else { continue };
        let number = |text: &str| u32::from_str_radix(text, 16).ok();
        let (Some(network), Some(0), Some(mask)) = (number(network), number(gateway), number(mask)) else { continue };
        let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.@".contains(c)) && !name.starts_with('.');
        if mask != 0
            && address & mask == network
            && plain
            && best.is_none_or(|(longest, _)| mask.count_ones() > longest)
        {
            best = Some((mask.count_ones(), name));
        }
    }
    best.map(|(_, name)| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTES: &str = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n\
        eth0\t00000000\t0100A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
        eth0\t0000A8C0\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n\
        eth1\t0007A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n\
        ../x\t0007A8C0\t00000000\t0001\t0\t0\t0\tFFFFFFFF\t0\t0\t0\nshort\n";

    #[test]
    fn the_port_is_that_of_the_narrowest_network() {
        let address = |text: &str| u32::from_le_bytes(text.parse::<std::net::Ipv4Addr>().unwrap().octets());
        assert_eq!(interface(ROUTES, address("192.168.7.9")).as_deref(), Some("eth1"));
        assert_eq!(interface(ROUTES, address("192.168.8.9")).as_deref(), Some("eth0"));
        assert_eq!(interface(ROUTES, address("10.0.0.1")), None);
        assert_eq!(interface("", address("10.0.0.1")), None);
    }

    #[test]
    fn the_addresses_of_an_ssh_connection_are_read_and_junk_is_none() {
        let (client, server) = connection("10.0.0.1 50000 ::ffff:10.0.0.2 22").unwrap();
        assert_eq!((client.to_string(), server.to_string()), ("10.0.0.1".to_owned(), "10.0.0.2".to_owned()));
        for junk in ["", "10.0.0.1 5 x 22", "UNKNOWN 65535 UNKNOWN 65535", "10.0.0.1 50000 10.0.0.2"] {
            assert_eq!(connection(junk), None, "{junk}");
        }
    }
}
