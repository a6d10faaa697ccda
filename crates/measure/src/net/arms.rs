//! Which arms there are on a port, and which are left out and why. Pure.

use std::collections::BTreeSet;

use nearmetal_results::{Backend, LeftOut, Link, MOST_QUEUES, NetPath};
use nearmetal_units::PciAddress;

/// A virtual function of the port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Where it is.
    pub address: PciAddress,
    /// The host's interface on it; `None` while no network driver is bound.
    pub interface: Option<String>,
    /// Its network driver on the host.
    pub driver: Option<String>,
    /// Why no guest can be given it; `None` if one can.
    pub obstacle: Option<String>,
}

/// What decides which arms can be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetGround {
    /// Interface of the port.
    pub port: String,
    /// Its virtual functions.
    pub functions: Vec<Function>,
    /// vCPUs of the guest.
    pub vcpus: u32,
    /// Whether the kernel offers vhost-net.
    pub vhost: bool,
    /// Whether the kernel has macvtap.
    pub macvtap: bool,
    /// Whether the guest can run this host's kernel, which has the driver of a function; `Err` says why not.
    pub own_kernel: Result<(), String>,
    /// Words whose arms are not wanted.
    pub without: Vec<String>,
}

impl NetGround {
    /// The function that is given to the guest, and that bare metal is measured on.
    pub(crate) fn given(&self) -> Option<&Function> {
        self.functions.first()
    }

    /// The function under a macvtap: another one, since both arms are in one guest.
    pub(crate) fn under_macvtap(&self) -> Option<&Function> {
        self.functions.get(1)
    }
}

/// The arms to measure, libvirt's default first, bare metal last, and those left out.
pub fn net_arms(ground: &NetGround) -> (Vec<NetPath>, Vec<LeftOut>) {
    let (mut kept, mut left_out) = (Vec::new(), Vec::new());
    for path in wanted(ground.vcpus) {
        match refused(ground, &path) {
            None => kept.push(path),
            Some(why) => left_out.push(LeftOut { what: path.title(), why }),
        }
    }
    (kept, left_out)
}

/// Every word that `--without` takes on any machine, in alphabetical order.
pub fn net_words() -> Vec<String> {
    wanted(2).iter().flat_map(NetPath::words).collect::<BTreeSet<_>>().into_iter().collect()
}

fn wanted(vcpus: u32) -> Vec<NetPath> {
    let default = NetPath::libvirt_default();
    let queues = Some(vcpus.clamp(1, MOST_QUEUES));
    vec![
        default,
        NetPath { backend: Some(Backend::Qemu), ..default },
        NetPath { queues, ..default },
        NetPath { offloads: false, ..default },
        NetPath { rps: true, ..default },
        NetPath::virtio(Link::MacvtapBridge),
        NetPath::virtio(Link::MacvtapPrivate),
        NetPath::virtio(Link::MacvtapPassthrough),
        NetPath::virtio(Link::VfMacvtapPassthrough),
        NetPath::hardware(Link::VfHostdev),
        NetPath::hardware(Link::Bare),
    ]
}

/// Why a path cannot be, or is not wanted.
fn refused(ground: &NetGround, path: &NetPath) -> Option<String> {
    // What everything is compared with stays.
    if path.is_libvirt_default() {
        return None;
    }
    if let Some(word) = path.words().into_iter().find(|word| ground.without.contains(word)) {
        return Some(format!("--without {word}"));
    }
    if path.backend == Some(Backend::Vhost) && !ground.vhost {
        return Some("there is no /dev/vhost-net: load the module vhost_net".to_owned());
    }
    if path.queues.is_some() && ground.vcpus < 2 {
        return Some("the guest has 1 vCPU: one queue is what libvirt gives by itself".to_owned());
    }
    if path.rps && ground.vcpus < 2 {
        return Some("the guest has 1 vCPU: there is nothing to spread over".to_owned());
    }
    if path.link.macvtap_mode().is_some() && !ground.macvtap {
        return Some("this kernel has no macvtap".to_owned());
    }
    let port = &ground.port;
    match path.link {
        Link::VfHostdev => match ground.given() {
            None => Some(format!("{port} has no virtual function: `nearmetal device vfs {port} 2` makes two")),
            Some(function) => {
                function.obstacle.clone().or_else(|| ground.own_kernel.clone().err()).or_else(|| no_driver(function))
            }
        },
        Link::VfMacvtapPassthrough => match ground.under_macvtap() {
            None => Some(format!(
                "{port} has no second virtual function, the first being the guest's: `nearmetal device vfs {port} 2` makes two"
            )),
            Some(function) => no_driver(function),
        },
        _ => None,
    }
}

fn no_driver(function: &Function) -> Option<String> {
    function.interface.is_none().then(|| {
        format!(
            "no network driver has the virtual function {0}: `nearmetal device release {0}` gives it back to the host",
            function.address
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(address: &str, name: &str) -> Function {
        Function {
            address: address.parse().unwrap(),
            interface: Some(name.into()),
            driver: Some("igbvf".into()),
            obstacle: None,
        }
    }

    fn ground() -> NetGround {
        NetGround {
            port: "enp57s0".into(),
            functions: vec![function("0000:39:10.0", "v0"), function("0000:39:10.2", "v1")],
            vcpus: 2,
            vhost: true,
            macvtap: true,
            own_kernel: Ok(()),
            without: vec![],
        }
    }

    #[test]
    fn the_words_of_all_ways_are_known() {
        let words = net_words();
        for word in ["vhost", "user-space", "multiqueue", "no-offloads", "rps", "macvtap", "vf", "vf-hostdev"] {
            assert!(words.iter().any(|known| known == word), "{word} is not in {words:?}");
        }
    }

    #[test]
    fn all_ways_are_there_where_the_machine_has_all_and_none_twice() {
        let (arms, left_out) = net_arms(&ground());
        assert_eq!((arms.len(), left_out.len()), (11, 0), "{left_out:?}");
        assert!(arms[0].is_libvirt_default() && arms[10].link == Link::Bare);
        let mut ids: Vec<_> = arms.iter().map(NetPath::id).collect();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 11);
    }

    #[test]
    fn what_cannot_be_is_left_out_with_the_reason() {
        type Row = (NetGround, fn(&NetPath) -> bool, &'static str);
        let mut held = ground();
        held.functions[0].obstacle = Some("the guest `db1` has it".into());
        let mut unbound = ground();
        unbound.functions[1].interface = None;
        let table: [Row; 8] = [
            (
                NetGround { functions: vec![], ..ground() },
                |arm| arm.link == Link::VfHostdev,
                "nearmetal device vfs enp57s0 2",
            ),
            (
                NetGround { functions: vec![function("0000:39:10.0", "v0")], ..ground() },
                |arm| arm.link == Link::VfMacvtapPassthrough,
                "no second virtual function",
            ),
            (held, |arm| arm.link == Link::VfHostdev, "`db1` has it"),
            (unbound, |arm| arm.link == Link::VfMacvtapPassthrough, "device release 0000:39:10.2"),
            (
                NetGround { own_kernel: Err("no kernel in /boot".into()), ..ground() },
                |arm| arm.link == Link::VfHostdev,
                "no kernel in /boot",
            ),
            (NetGround { macvtap: false, ..ground() }, |arm| arm.link.macvtap_mode().is_some(), "no macvtap"),
            (NetGround { vcpus: 1, ..ground() }, |arm| arm.queues.is_some() || arm.rps, "1 vCPU"),
            (
                NetGround { without: vec!["user-space".into()], ..ground() },
                |arm| arm.backend == Some(Backend::Qemu),
                "--without user-space",
            ),
        ];
        for (ground, gone, reason) in table {
            let (arms, left_out) = net_arms(&ground);
            assert!(!arms.iter().any(gone), "{reason}");
            assert!(left_out.iter().any(|left| left.why.contains(reason)), "{reason}: {left_out:?}");
            assert!(arms[0].is_libvirt_default());
        }
    }

    #[test]
    fn the_default_stays_whatever_is_left_out() {
        let without = ["bridge", "vhost"].map(str::to_owned).to_vec();
        let (arms, _) = net_arms(&NetGround { without, ..ground() });
        assert!(arms[0].is_libvirt_default());
    }
}
