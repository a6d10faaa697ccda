//! A base image and what became of it by an upgrade: how much of the second travels to hosts that have the first.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use crate::network::Network;
use crate::run::{clear, images, push, same};

/// What the image push cuts files into.
const BLOCK: usize = 4096;

/// Pushes both, one after the other, and prints bytes on the wire beside bytes that changed. Whether every host ended right.
pub(crate) fn both(network: &Network, old: &Path, new: &Path) -> bool {
    clear(network);
    let first = push(network, old, &[], None);
    let second = push(network, new, &[], None);
    let (before, after) = (fs::read(old).unwrap(), fs::read(new).unwrap());
    let known: HashSet<&[u8]> = before.chunks(BLOCK).collect();
    let foreign = after.chunks(BLOCK).filter(|block| !known.contains(block) && block.iter().any(|byte| *byte != 0));
    let foreign: HashSet<&[u8]> = foreign.collect();
    let mut same_place = before.chunks(BLOCK);
    let moved = after.chunks(BLOCK).filter(|block| same_place.next() != Some(block)).count();
    let mib = |bytes: f64| bytes / f64::from(1 << 20);
    let most = second.received.values().max().copied().unwrap_or(0) as f64;
    println!("{:34} {:>8.1} MiB in {:.1} s", "the base", mib(before.len() as f64), first.last_but(&[]));
    println!("{:34} {:>8.1} MiB in {:.1} s", "the upgraded base", mib(after.len() as f64), second.last_but(&[]));
    println!("{:34} {:>8.1} MiB", "  differs at the same place", mib((moved * BLOCK) as f64));
    println!("{:34} {:>8.1} MiB", "  is nowhere in the base", mib((foreign.len() * BLOCK) as f64));
    println!("{:34} {:>8.1} MiB", "  came to the host that took most", mib(most));
    println!("{:34} {:>8.1} MiB", "  left the source", mib(second.source_sent as f64));
    let right =
        |file: &Path| (1..=network.hosts).all(|host| images(network, host).iter().any(|image| same(image, file)));
    let good = first.code == 0 && second.code == 0 && right(new) && right(old);
    if !good {
        println!("NO: not every host has both images");
    }
    good
}
