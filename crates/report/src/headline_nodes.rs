//! The headline of one guest over more and more NUMA nodes: how local it is, and how far from native.

use crate::headline::{Headline, Piece, Stress};
use crate::text::{COUNTED_WORDS, LAB_WORDS, count};
use crate::view::{ArmRole, ByNodesView, JobReport};

/// The sentence at the most nodes. In a lab it tells what was counted; time stands below.
pub(crate) fn headline_by_nodes(view: &JobReport, by_nodes: &ByNodesView) -> Headline {
    let mut pieces = Vec::new();
    let mut below = vec![by_nodes.load.clone()];
    let mut say = |text: String, stress| pieces.push(Piece { text, stress });
    let most = by_nodes.most_nodes().unwrap_or(0);
    let over = format!("{} over {}", view.guest.name, count(most as usize, "node"));
    let named = |role| view.arm_of(role).map_or("", |arm| arm.name.as_str());
    let mean = |role| {
        let share = by_nodes.share()?;
        Some(share.point(&view.arm_of(role)?.id, most)?.mean)
    };
    let to_native = |role| {
        let rate = by_nodes.rate()?;
        rate.point(&view.arm_of(role)?.id, most)?.to_bare
    };
    let (share, rate) = (mean(ArmRole::Planned), to_native(ArmRole::Planned));
    let emulated = by_nodes.rate().is_some_and(|rate| rate.emulated);
    // Time of a lab is in the sentence only if nothing was counted.
    let timed = rate.filter(|_| share.is_none() || !emulated);
    if let Some(share) = share {
        say(format!("{over}: "), Stress::Plain);
        say(format!("{share:.1} %"), Stress::Result);
        say(format!(" of its accesses stay on their node ({})", named(ArmRole::Planned)), Stress::Plain);
        if let Some(found) = mean(ArmRole::AsFound) {
            say(", ".to_owned(), Stress::Plain);
            say(format!("{found:.1} %"), Stress::Before);
            say(format!(" ({})", named(ArmRole::AsFound)), Stress::Plain);
        }
        if timed.is_some() {
            say("; it does ".to_owned(), Stress::Plain);
        }
    } else if timed.is_some() {
        say(format!("{over} does "), Stress::Plain);
    } else {
        say(format!("{over}: measured, and nothing can be said of it: fewer than two pairs count"), Stress::Plain);
    }
    if let Some(shown) = timed.map(|timed| timed.shown()) {
        say(shown.ratio, Stress::Result);
        say(" of native".to_owned(), Stress::Plain);
        if let Some(ends) = shown.interval {
            say(format!(" (95 % interval {ends})"), Stress::Quiet);
        }
        if let Some(found) = to_native(ArmRole::AsFound) {
            say(format!(", {} ", named(ArmRole::AsFound)), Stress::Plain);
            say(found.shown().ratio, Stress::Before);
        }
    }
    if view.is_lab() {
        let words = if share.is_some() { COUNTED_WORDS } else { LAB_WORDS };
        say(format!(" — {words}"), Stress::Quiet);
    }
    if let Some(rate) = rate.filter(|_| timed.is_none()) {
        let found = to_native(ArmRole::AsFound)
            .map_or_else(String::new, |found| format!(", {found} {}", named(ArmRole::AsFound)));
        below
            .push(format!("In the lab's emulated time: {rate} of native over {}{found}", count(most as usize, "node")));
    }
    Headline { pieces, below }
}
