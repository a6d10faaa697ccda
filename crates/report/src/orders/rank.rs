//! Modes in order, and which of them are told apart.

use crate::text::value;
use crate::view::{ArmRole, ArmView, ModePoint, NodesQuantity};

/// How many times one mean is of another; `None` if it cannot be had.
pub(super) fn growth(rate: &NodesQuantity, arm: &ArmView, from: u32, to: u32) -> Option<f64> {
    let gain = rate.point(&arm.id, to)?.mean / rate.point(&arm.id, from)?.mean;
    gain.is_finite().then_some(gain)
}

/// `native 100 % or one VM on each node 99.9 %, then guest cells 97.1 %`: "or" where they are not told apart.
pub(super) fn ranked(quantity: &NodesQuantity, modes: &[(&ArmView, &ModePoint)]) -> String {
    let mut text = String::new();
    for (place, (arm, point)) in modes.iter().enumerate() {
        if let Some((before, better)) = place.checked_sub(1).map(|place| modes[place]) {
            let apart = apart((before, better), (arm, point));
            text.push_str(if apart { ", then " } else { " or " });
        }
        text.push_str(&arm.name);
        match point.to_bare {
            _ if quantity.unit == "%" => text.push_str(&format!(" {:.1} %", point.mean)),
            Some(ratio) => text.push_str(&format!(" {ratio}")),
            None => text.push_str(&format!(" {} {}", value(Some(point.mean)), quantity.unit)),
        }
    }
    text
}

/// Whether two modes are told apart: by their intervals to native where both have them, else by samples that do not overlap. One
/// sample tells nothing.
fn apart(one: (&ArmView, &ModePoint), other: (&ArmView, &ModePoint)) -> bool {
    let of_native = |(arm, point): (&ArmView, &ModePoint)| match point.to_bare {
        Some(ratio) => Some((ratio.interval.low, ratio.interval.high)),
        None if arm.role == ArmRole::Bare => Some((1.0, 1.0)),
        None => None,
    };
    if let (Some(one), Some(other)) = (of_native(one), of_native(other)) {
        return one.0 > other.1 || other.0 > one.1;
    }
    let (one, other) = (one.1, other.1);
    one.samples > 1 && other.samples > 1 && (one.low > other.high || other.low > one.high)
}
