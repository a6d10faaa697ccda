//! Whether a network card has a link: as long as it has none, its virtual functions have none.

use nearmetal_units::PciAddress;

use crate::kernel::Kernel;
use crate::verify::{Check, CheckKind};

/// `IFF_UP` of include/uapi/linux/if.h.
const UP: u32 = 0x1;

/// The link of an interface, as the kernel tells it (Documentation/ABI/testing/sysfs-class-net).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Link {
    /// Switched on, and the other end answers.
    Up,
    /// Switched on; no signal.
    NoCarrier,
    /// Switched off.
    Down,
    /// It could not be read, and why.
    Unknown(String),
}

impl Link {
    /// That of an interface.
    pub(crate) fn of(kernel: &dyn Kernel, interface: &str) -> Self {
        let root = format!("/sys/class/net/{interface}");
        let flags = match kernel.read(&format!("{root}/flags")) {
            Ok(Some(text)) => text,
            Ok(None) => return Self::Unknown(format!("the interface `{interface}` is gone")),
            Err(error) => return Self::Unknown(error.to_string()),
        };
        match flags.trim().strip_prefix("0x").and_then(|digits| u32::from_str_radix(digits, 16).ok()) {
            None => return Self::Unknown(format!("`{root}/flags` holds `{}`, which is not a flag word", flags.trim())),
            Some(flags) if flags & UP == 0 => return Self::Down,
            Some(_) => {}
        }
        // `carrier` fails while an interface is off; drivers that know no state say `unknown` beside a carrier of 1.
        match kernel.read(&format!("{root}/operstate")).map(|text| text.unwrap_or_default().trim().to_owned()) {
            Ok(state) if state == "up" => Self::Up,
            Ok(state) => match kernel.read(&format!("{root}/carrier")) {
                Ok(Some(carrier)) if carrier.trim() == "1" && state == "unknown" => Self::Up,
                Ok(Some(_)) => Self::NoCarrier,
                Ok(None) => Self::Unknown(format!("`{root}/carrier` does not exist")),
                Err(error) => Self::Unknown(error.to_string()),
            },
            Err(error) => Self::Unknown(error.to_string()),
        }
    }

    /// One check: it is to be up.
    pub(crate) fn check(&self, kind: CheckKind, card: PciAddress, interface: &str) -> Check {
        let subject = format!("link of {interface} ({card})");
        let found = match self {
            Self::Up => "up",
            Self::NoCarrier => "no carrier: the cable is missing, or the other end is off",
            Self::Down => "down: its virtual functions have no link either",
            Self::Unknown(why) => return Check::cannot_tell(kind, subject, "up", why),
        };
        Check::compared(kind, subject, "up", found, *self == Self::Up)
            .at(format!("/sys/class/net/{interface}/operstate"))
    }
}
