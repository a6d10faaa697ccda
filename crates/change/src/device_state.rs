//! What a change to a device puts into the journal: the state before and after, whole.

use nearmetal_units::PciAddress;
use serde::{Deserialize, Serialize};

/// A function with what it is, so that a boot with other cards in its slots does nothing to them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Card {
    /// Its address.
    pub function: PciAddress,
    /// Vendor and device id, `0x8086:0x10c9`.
    pub id: String,
}

/// The virtual functions of a card.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VfState {
    /// Whether drivers of the host take new ones (`sriov_drivers_autoprobe`); `None` before Linux 4.12: they do.
    pub autoprobe: Option<bool>,
    /// One for each virtual function, by number.
    pub functions: Vec<VfSettings>,
}

/// One virtual function. What is `None` is not known, or not to be changed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VfSettings {
    /// Its driver.
    pub driver: DriverState,
    /// Its row in a network card's table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkSettings>,
    /// What an NVMe drive has given it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvme: Option<NvmeResources>,
}

/// A driver, and whether the function is kept for one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriverState {
    /// The driver it is bound to.
    pub bound: BoundDriver,
    /// The only driver that may take it (`driver_override`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<String>,
}

/// The driver a function is bound to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BoundDriver {
    /// None.
    #[default]
    None,
    /// This one.
    Named(String),
    /// The one the kernel chooses, if it has one: in what is wanted, never in what is found.
    Kernels,
}

impl BoundDriver {
    /// Whether it is one that hands functions to guests: vfio-pci, or a card's own, mlx5_vfio_pci.
    pub(crate) fn is_vfio(&self) -> bool {
        matches!(self, Self::Named(name) if name.contains("vfio"))
    }
}

/// A row of a network card's table, as `ip link set … vf N` sets it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkSettings {
    /// The address its card gives it; of zeros: it may choose its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// The VLAN its card puts it in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<Vlan>,
    /// Whether its card drops packets it sends with another address than its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spoof_check: Option<bool>,
    /// Whether it may change its address and listen to all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust: Option<bool>,
    /// The most and the least it may send, in Mbit/s; 0 for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// `auto`, `enable` or `disable`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_state: Option<String>,
}

/// A VLAN tag; 0 for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vlan {
    /// 1 to 4094, or 0 for none.
    pub id: u32,
    /// Priority, 0 to 7.
    #[serde(default)]
    pub priority: u32,
    /// Whether it is a service tag (802.1ad) rather than 802.1Q's.
    #[serde(default)]
    pub service: bool,
}

/// Limits of what a function sends, in Mbit/s; 0 for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// At most.
    pub max: u32,
    /// At least.
    pub min: u32,
}

/// What an NVMe drive has given a virtual function (NVM Express Base Specification, Virtualization Enhancements).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NvmeResources {
    /// Queues, the admin queue among them.
    pub queues: u32,
    /// Interrupts.
    pub interrupts: u32,
    /// Whether it is online: one that is not does not answer.
    pub online: bool,
}

impl DriverState {
    /// Bound to nothing, kept for nothing.
    pub fn none() -> Self {
        Self::default()
    }

    /// Kept for a driver that hands functions to guests, and bound to it.
    pub(crate) fn is_kept_for_guests(&self) -> bool {
        self.only.is_some() && self.bound.is_vfio()
    }

    /// Kept for one driver, and bound to it.
    pub fn only(driver: &str) -> Self {
        Self { bound: BoundDriver::Named(driver.to_owned()), only: Some(driver.to_owned()) }
    }

    /// Whether what is found is what is wanted.
    pub(crate) fn is_met_by(&self, found: &Self) -> bool {
        self.only == found.only && (self.bound == BoundDriver::Kernels || self.bound == found.bound)
    }
}

impl std::fmt::Display for DriverState {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.bound {
            BoundDriver::None => formatter.write_str("no driver"),
            BoundDriver::Named(name) => formatter.write_str(name),
            BoundDriver::Kernels => formatter.write_str("the driver the kernel chooses"),
        }
    }
}

impl VfState {
    /// How many there are.
    pub fn count(&self) -> u32 {
        self.functions.len() as u32
    }

    /// The first thing that is not as wanted: what, wanted, found. Unknown and unset is no difference.
    pub(crate) fn difference(&self, found: &Self) -> Option<(String, String, String)> {
        self.differences(found).into_iter().next()
    }

    /// The same with the drivers that are found: whom a function is given to is not its card's. libvirt takes one for a guest and gives
    /// it back.
    pub(crate) fn with_drivers_of(mut self, found: &Self) -> Self {
        for (own, found) in self.functions.iter_mut().zip(&found.functions) {
            own.driver = found.driver.clone();
        }
        self
    }

    /// Everything that is not as wanted. Of another number of functions nothing further is compared.
    pub(crate) fn differences(&self, found: &Self) -> Vec<(String, String, String)> {
        if self.count() != found.count() {
            let what = "the number of virtual functions".to_owned();
            return vec![(what, text(self.count()), text(found.count()))];
        }
        let mut all = Vec::new();
        if self.autoprobe.is_some() && self.autoprobe != found.autoprobe {
            let what = "whether drivers take new virtual functions".to_owned();
            all.push((what, maybe(self.autoprobe), maybe(found.autoprobe)));
        }
        for (number, (wanted, found)) in self.functions.iter().zip(&found.functions).enumerate() {
            let own = wanted.differences(found).into_iter();
            all.extend(own.map(|(what, wanted, found)| (format!("{what} of VF {number}"), wanted, found)));
        }
        all
    }
}

impl VfSettings {
    fn differences(&self, found: &Self) -> Vec<(String, String, String)> {
        let mut all = Vec::new();
        if !self.driver.is_met_by(&found.driver) {
            all.push(("the driver".to_owned(), self.driver.to_string(), found.driver.to_string()));
        }
        if let Some(wanted) = &self.network {
            let empty = NetworkSettings::default();
            let missing = wanted.missing(found.network.as_ref().unwrap_or(&empty)).into_iter();
            all.extend(missing.map(|(setting, found)| (setting.name().to_owned(), setting.to_string(), found)));
        }
        if let Some(wanted) = self.nvme.filter(|wanted| found.nvme != Some(*wanted)) {
            let found = found.nvme.map_or_else(|| "unknown".to_owned(), |found| found.to_string());
            all.push(("what the drive gives".to_owned(), wanted.to_string(), found));
        }
        all
    }
}

/// One setting of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RowSetting {
    Mac(String),
    Vlan(Vlan),
    SpoofCheck(bool),
    Trust(bool),
    Rate(Rate),
    LinkState(String),
}

impl RowSetting {
    fn name(&self) -> &'static str {
        match self {
            Self::Mac(_) => "the MAC address",
            Self::Vlan(_) => "the VLAN",
            Self::SpoofCheck(_) => "the spoof check",
            Self::Trust(_) => "trust",
            Self::Rate(_) => "the rate",
            Self::LinkState(_) => "the link state",
        }
    }
}

impl std::fmt::Display for RowSetting {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Mac(text) | Self::LinkState(text) => formatter.write_str(text),
            Self::Vlan(vlan) => vlan.fmt(formatter),
            Self::SpoofCheck(on) | Self::Trust(on) => formatter.write_str(if *on { "on" } else { "off" }),
            Self::Rate(rate) => rate.fmt(formatter),
        }
    }
}

impl std::fmt::Display for Vlan {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self { id: 0, .. } => formatter.write_str("none"),
            Self { id, priority, service } => {
                write!(formatter, "{id}, priority {priority}{}", if *service { ", 802.1ad" } else { "" })
            }
        }
    }
}

impl std::fmt::Display for Rate {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let limit = |rate: u32| if rate == 0 { "no limit".to_owned() } else { format!("{rate} Mbit/s") };
        write!(formatter, "at most {}, at least {}", limit(self.max), limit(self.min))
    }
}

impl std::fmt::Display for NvmeResources {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = if self.online { "online" } else { "offline" };
        write!(formatter, "{} queues, {} interrupts, {state}", self.queues, self.interrupts)
    }
}

impl NetworkSettings {
    /// Settings that are wanted and not found, each with what is found.
    pub(crate) fn missing(&self, found: &Self) -> Vec<(RowSetting, String)> {
        let mut missing = Vec::new();
        let same_mac = |wanted: &String| found.mac.as_ref().is_some_and(|mac| mac.eq_ignore_ascii_case(wanted));
        if let Some(mac) = self.mac.as_ref().filter(|mac| !same_mac(mac)) {
            missing.push((RowSetting::Mac(mac.clone()), maybe(found.mac.as_ref())));
        }
        if let Some(vlan) = self.vlan.filter(|_| self.vlan != found.vlan) {
            missing.push((RowSetting::Vlan(vlan), maybe(found.vlan)));
        }
        if let Some(on) = self.spoof_check.filter(|_| self.spoof_check != found.spoof_check) {
            missing.push((RowSetting::SpoofCheck(on), maybe(found.spoof_check)));
        }
        if let Some(on) = self.trust.filter(|_| self.trust != found.trust) {
            missing.push((RowSetting::Trust(on), maybe(found.trust)));
        }
        if let Some(rate) = self.rate.filter(|_| self.rate != found.rate) {
            missing.push((RowSetting::Rate(rate), maybe(found.rate)));
        }
        if let Some(state) = self.link_state.as_ref().filter(|_| self.link_state != found.link_state) {
            missing.push((RowSetting::LinkState(state.clone()), maybe(found.link_state.as_ref())));
        }
        missing
    }
}

fn text(value: impl ToString) -> String {
    value.to_string()
}

fn maybe(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "unknown".to_owned(), |value| value.to_string())
}
