//! The headline of one guest over more and more NUMA nodes: how local it is, and how far from native.

use crate::headline::{Headline, Piece, Stress};
use crate::text::{COUNTED_WORDS, LAB_WORDS, count};
use crate::view::{ArmRole, ArmView, ByNodesView, JobReport};

/// The sentence at the most nodes. In a lab it tells what was counted; time stands below.
pub(crate) fn headline_by_nodes(view: &JobReport, by_nodes: &ByNodesView) -> Headline {
    let mut pieces = Vec::new();
    let mut below = vec![by_nodes.load.clone()];
    let mut say = |text: String, stress| pieces.push(Piece { text, stress });
    let most = by_nodes.most_nodes().unwrap_or(0);
    let over = format!("{} over {}", view.guest.name, count(most as usize, "node"));
    let mean = |arm: &ArmView| Some(by_nodes.share()?.point(&arm.id, most)?.mean);
    let to_native = |arm: &ArmView| by_nodes.rate()?.point(&arm.id, most)?.to_bare;
    // What a plan makes of a guest over nodes is the one with cells; the best of the others where that was left out.
    let told = view.arm_of(ArmRole::Planned).or_else(|| best(view, by_nodes, most));
    let found = view.arm_of(ArmRole::AsFound).filter(|found| told.is_some_and(|told| told.id != found.id));
    let (share, rate) = (told.and_then(mean), told.and_then(to_native));
    let name = told.map_or("", |arm| arm.name.as_str());
    let emulated = by_nodes.rate().is_some_and(|rate| rate.emulated);
    // Time of a lab is in the sentence only if nothing was counted.
    let timed = rate.filter(|_| share.is_none() || !emulated);
    if let Some(share) = share {
        say(format!("{over}: "), Stress::Plain);
        say(format!("{share:.1} %"), Stress::Result);
        say(format!(" of its accesses stay on their node ({name})"), Stress::Plain);
        if let Some((found, share)) = found.and_then(|found| Some((found, mean(found)?))) {
            say(", ".to_owned(), Stress::Plain);
            say(format!("{share:.1} %"), Stress::Before);
            say(format!(" ({})", found.name), Stress::Plain);
        }
        if timed.is_some() {
            say("; it does ".to_owned(), Stress::Plain);
        }
    } else if timed.is_some() {
        let which = told.filter(|arm| arm.role != ArmRole::Planned).map(|arm| format!(" ({})", arm.name));
        say(format!("{over}{} does ", which.unwrap_or_default()), Stress::Plain);
    } else {
        say(format!("{over}: measured, and nothing can be said of it: fewer than two pairs count"), Stress::Plain);
    }
    if let Some(shown) = timed.map(|timed| timed.shown()) {
        say(shown.ratio, Stress::Result);
        say(" of native".to_owned(), Stress::Plain);
        if let Some(ends) = shown.interval {
            say(format!(" (95 % interval {ends})"), Stress::Quiet);
        }
        if let Some((found, ratio)) = found.and_then(|found| Some((found, to_native(found)?))) {
            say(format!(", {} ", found.name), Stress::Plain);
            say(ratio.shown().ratio, Stress::Before);
        }
    }
    if view.is_lab() {
        let words = if share.is_some() { COUNTED_WORDS } else { LAB_WORDS };
        say(format!(" — {words}"), Stress::Quiet);
    }
    if let Some(rate) = rate.filter(|_| timed.is_none()) {
        let found = found.and_then(|found| Some(format!(", {} {}", to_native(found)?, found.name)));
        let found = found.unwrap_or_default();
        below
            .push(format!("In the lab's emulated time: {rate} of native over {}{found}", count(most as usize, "node")));
    }
    Headline { pieces, below }
}

/// The best mode with guests: by the accesses that stay on their node, or else by what it does.
fn best<'a>(view: &'a JobReport, by_nodes: &ByNodesView, nodes: u32) -> Option<&'a ArmView> {
    let quantity = by_nodes.share().or_else(|| by_nodes.rate())?;
    let modes = quantity.best_first(&view.arms, nodes);
    modes.into_iter().map(|(arm, _)| arm).find(|arm| arm.role != ArmRole::Bare)
}
