//! One arm of the network matrix: a way from a guest's packets to a port, as data.

use nearmetal_domain::OFFLOADS;
use nearmetal_units::PciAddress;
use serde::{Deserialize, Serialize};

/// Queues a guest is given at most here: beyond, each vCPU of a small guest has one already.
pub const MOST_QUEUES: u32 = 8;

/// What joins the guest's card to the port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Link {
    /// A tap on a Linux bridge, the port on the same bridge: how libvirt's and most people's guests are joined.
    Bridge,
    /// A macvtap on the port; guests on the same port reach each other.
    MacvtapBridge,
    /// A macvtap on the port; guests on the same port do not reach each other.
    MacvtapPrivate,
    /// A macvtap that has the port for itself, its hardware address too.
    MacvtapPassthrough,
    /// A macvtap that has a virtual function for itself.
    VfMacvtapPassthrough,
    /// A virtual function given to the guest.
    VfHostdev,
    /// No guest: a virtual function, or the port, driven by the host and confined to the guest's slice.
    Bare,
}

impl Link {
    /// The word in ids and options.
    pub fn id(self) -> &'static str {
        match self {
            Self::Bridge => "bridge",
            Self::MacvtapBridge => "macvtap-bridge",
            Self::MacvtapPrivate => "macvtap-private",
            Self::MacvtapPassthrough => "macvtap-passthrough",
            Self::VfMacvtapPassthrough => "vf-macvtap-passthrough",
            Self::VfHostdev => "vf-hostdev",
            Self::Bare => "bare",
        }
    }

    /// The mode of its macvtap, in the words of libvirt; `None` where there is none.
    pub fn macvtap_mode(self) -> Option<&'static str> {
        match self {
            Self::MacvtapBridge => Some("bridge"),
            Self::MacvtapPrivate => Some("private"),
            Self::MacvtapPassthrough | Self::VfMacvtapPassthrough => Some("passthrough"),
            Self::Bridge | Self::VfHostdev | Self::Bare => None,
        }
    }

    /// What the port must be for it. A port is in one bridge, or carries macvtaps, or one that has it alone: the kernel
    /// lets one thing receive from a device (netdev_rx_handler_register).
    pub fn role(self) -> PortRole {
        match self {
            // Virtual functions are beside the port, so they are in the guest that has the bridged cards.
            Self::Bridge | Self::VfHostdev | Self::VfMacvtapPassthrough => PortRole::Bridged,
            Self::MacvtapBridge | Self::MacvtapPrivate => PortRole::Macvtaps,
            Self::MacvtapPassthrough => PortRole::GivenAway,
            Self::Bare => PortRole::Bare,
        }
    }

    /// Whether the guest sees a virtio card.
    pub fn is_virtio(self) -> bool {
        !matches!(self, Self::VfHostdev | Self::Bare)
    }
}

/// What a port is used for; arms of one role are cards of one guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PortRole {
    /// In the bridge.
    Bridged,
    /// Under macvtaps.
    Macvtaps,
    /// Under one macvtap that has it alone.
    GivenAway,
    /// No guest is there.
    Bare,
}

/// What moves the packets of a virtio card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backend {
    /// QEMU's main thread, in user space.
    Qemu,
    /// A kernel thread of vhost-net.
    Vhost,
}

/// One way to the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetPath {
    /// What joins the guest's card to the port.
    pub link: Link,
    /// What moves its packets; `None` where there is no virtio card.
    pub backend: Option<Backend>,
    /// Pairs of queues; `None` for what libvirt gives by itself, which is one.
    pub queues: Option<u32>,
    /// Whether the card takes checksums and segmentation off the guest, as it does unless told otherwise.
    pub offloads: bool,
    /// Whether the guest spreads what it receives over all its vCPUs (RPS, Documentation/networking/scaling.rst) rather than
    /// handle it where the queue's interrupt came.
    #[serde(default)]
    pub rps: bool,
}

/// What a fragment of XML needs beside the path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CardPlace<'a> {
    /// Bridge, for taps.
    pub bridge: &'a str,
    /// Interface that a macvtap lies on.
    pub lower: &'a str,
    /// Function given away.
    pub function: Option<PciAddress>,
    /// Address of the guest's card.
    pub mac: &'a str,
    /// Name of the tap or macvtap on the host.
    pub tap: &'a str,
}

impl NetPath {
    /// What libvirt makes of `<interface type='bridge'>` with `<model type='virtio'/>`: vhost-net, one queue.
    pub fn libvirt_default() -> Self {
        Self::virtio(Link::Bridge)
    }

    /// A virtio card over vhost-net with what libvirt gives by itself.
    pub fn virtio(link: Link) -> Self {
        Self { link, backend: Some(Backend::Vhost), queues: None, offloads: true, rps: false }
    }

    /// The ways over a bridge that guests with so many vCPUs can all take.
    pub fn over_a_bridge(vcpus: u32) -> Vec<Self> {
        let default = Self::libvirt_default();
        let mut ways =
            vec![default, Self { backend: Some(Backend::Qemu), ..default }, Self { offloads: false, ..default }];
        if vcpus > 1 {
            ways.push(Self { queues: Some(vcpus.min(MOST_QUEUES)), ..default });
        }
        ways
    }

    /// The ways that several guests with so many vCPUs can take through one port at once.
    pub fn of_several(vcpus: u32) -> Vec<Self> {
        let mut ways = Self::over_a_bridge(vcpus);
        ways.push(Self::hardware(Link::VfHostdev));
        ways
    }

    /// A way without a virtio card.
    pub fn hardware(link: Link) -> Self {
        Self { link, backend: None, queues: None, offloads: true, rps: false }
    }

    /// Whether it is what libvirt does by itself.
    pub fn is_libvirt_default(&self) -> bool {
        *self == Self::libvirt_default()
    }

    /// Words of the path, as `--without` takes them.
    pub fn words(&self) -> Vec<String> {
        let mut words = vec![self.link.id().to_owned()];
        match self.backend {
            Some(Backend::Qemu) => words.push("user-space".to_owned()),
            Some(Backend::Vhost) => words.push("vhost".to_owned()),
            None => {}
        }
        if self.link.macvtap_mode().is_some() {
            words.push("macvtap".to_owned());
        }
        if matches!(self.link, Link::VfHostdev | Link::VfMacvtapPassthrough) {
            words.push("vf".to_owned());
        }
        if self.queues.is_some() {
            words.push("multiqueue".to_owned());
        }
        if !self.offloads {
            words.push("no-offloads".to_owned());
        }
        if self.rps {
            words.push("rps".to_owned());
        }
        words
    }

    /// A stable id: `bridge.vhost.q1`, `bridge.vhost.q2.no-offloads`, `vf-hostdev`.
    pub fn id(&self) -> String {
        let mut id = self.link.id().to_owned();
        if let Some(backend) = self.backend {
            id.push_str(if backend == Backend::Qemu { ".user-space" } else { ".vhost" });
            id.push_str(&format!(".q{}", self.queues.unwrap_or(1)));
        }
        if !self.offloads {
            id.push_str(".no-offloads");
        }
        if self.rps {
            id.push_str(".rps");
        }
        id
    }

    /// What a person calls it.
    pub fn title(&self) -> String {
        let link = match self.link {
            Link::Bridge => "bridge",
            Link::MacvtapBridge => "macvtap bridge",
            Link::MacvtapPrivate => "macvtap private",
            Link::MacvtapPassthrough => "macvtap passthrough",
            Link::VfMacvtapPassthrough => "VF under macvtap passthrough",
            Link::VfHostdev => "VF given to the guest",
            Link::Bare => "bare metal, same slice",
        };
        let mut title = match self.backend {
            Some(Backend::Qemu) => format!("virtio in user space, {link}"),
            Some(Backend::Vhost) => format!("virtio vhost-net, {link}"),
            None => link.to_owned(),
        };
        if let Some(queues) = self.queues {
            title.push_str(&format!(", {queues} queues"));
        }
        if !self.offloads {
            title.push_str(", no offloads");
        }
        if self.rps {
            title.push_str(", RPS in the guest");
        }
        title
    }

    /// `<interface>` as libvirt reads it; empty for bare metal.
    pub fn interface(&self, place: &CardPlace<'_>) -> String {
        let mac = format!("<mac address='{}'/>", place.mac);
        let source = match (self.link, place.function) {
            (Link::Bare, _) => return String::new(),
            (Link::VfHostdev, Some(function)) => {
                return format!(
                    "<interface type='hostdev' managed='yes'>{mac}<source><address type='pci' domain='0x{:04x}' bus='0x{:02x}' slot='0x{:02x}' function='0x{:x}'/></source></interface>\n",
                    function.domain, function.bus, function.device, function.function
                );
            }
            (Link::VfHostdev, None) => return String::new(),
            (Link::Bridge, _) => format!("<interface type='bridge'>{mac}<source bridge='{}'/>", place.bridge),
            (link, _) => format!(
                "<interface type='direct'>{mac}<source dev='{}' mode='{}'/>",
                place.lower,
                link.macvtap_mode().unwrap_or("bridge")
            ),
        };
        // A boot ROM would be loaded for each card and costs seconds; the guest boots from its kernel.
        let target = if place.tap.is_empty() {
            String::new()
        } else {
            format!("<target dev='{}'/><rom enabled='no'/>", place.tap)
        };
        format!("{source}<model type='virtio'/>{}{target}</interface>\n", self.driver())
    }

    /// `<driver>`, empty for what libvirt does by itself.
    fn driver(&self) -> String {
        let queues = self.queues.map(|queues| format!(" queues='{queues}'")).unwrap_or_default();
        let name = match self.backend {
            Some(Backend::Qemu) => " name='qemu'",
            Some(Backend::Vhost) if self.is_libvirt_default() => return String::new(),
            Some(Backend::Vhost) => " name='vhost'",
            None => return String::new(),
        };
        if self.offloads {
            return format!("<driver{name}{queues}/>");
        }
        let off = |names: &[&str]| names.iter().map(|name| format!(" {name}='off'")).collect::<String>();
        let sides: String = OFFLOADS.iter().map(|(side, names)| format!("<{side}{}/>", off(names))).collect();
        format!("<driver{name}{queues}>{sides}</driver>")
    }

    /// The lines of a definition that make a guest use it, `bridge` and `port` being the user's to write.
    pub fn lines_for_libvirt(&self, port: &str, function: Option<PciAddress>) -> String {
        let place = CardPlace { bridge: "YOUR-BRIDGE", lower: port, function, mac: "", tap: "" };
        self.interface(&place).replace("<mac address=''/>", "").trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place<'a>() -> CardPlace<'a> {
        let function = Some("0000:39:10.1".parse().unwrap());
        CardPlace { bridge: "br", lower: "eth9", function, mac: "52:54:00:00:00:01", tap: "nmtap0" }
    }

    #[test]
    fn each_path_becomes_the_interface_libvirt_knows() {
        let default = NetPath::libvirt_default();
        let xml = default.interface(&place());
        assert!(xml.contains("<source bridge='br'/><model type='virtio'/><target"), "no driver element: {xml}");
        let user = NetPath { backend: Some(Backend::Qemu), ..default };
        assert!(user.interface(&place()).contains("<driver name='qemu'/>"));
        let several = NetPath { queues: Some(4), ..default };
        assert!(several.interface(&place()).contains("<driver name='vhost' queues='4'/>"));
        let bare = NetPath { offloads: false, ..default };
        let xml = bare.interface(&place());
        assert!(xml.contains("<host csum='off'") && xml.contains("<guest csum='off'"), "{xml}");
        let private = NetPath::virtio(Link::MacvtapPrivate).interface(&place());
        assert!(private.contains("type='direct'") && private.contains("dev='eth9' mode='private'"), "{private}");
        let given = NetPath::hardware(Link::VfHostdev).interface(&place());
        assert!(given.contains("managed='yes'") && given.contains("bus='0x39' slot='0x10' function='0x1'"), "{given}");
        assert_eq!(NetPath::hardware(Link::Bare).interface(&place()), "");
    }

    #[test]
    fn what_a_user_copies_has_neither_our_address_nor_our_tap() {
        let lines = NetPath::virtio(Link::MacvtapBridge).lines_for_libvirt("enp1s0", None);
        assert_eq!(
            lines,
            "<interface type='direct'><source dev='enp1s0' mode='bridge'/><model type='virtio'/><driver name='vhost'/></interface>"
        );
    }

    #[test]
    fn arms_that_need_the_port_in_different_ways_do_not_share_a_guest() {
        assert_eq!(Link::Bridge.role(), Link::VfHostdev.role());
        assert_ne!(Link::Bridge.role(), Link::MacvtapBridge.role());
        assert_ne!(Link::MacvtapPrivate.role(), Link::MacvtapPassthrough.role());
    }
}
