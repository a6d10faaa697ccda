//! What a plan may decide for a guest and correctness does not: the choices that can be measured against each other.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::plan::DiskEngine;
use crate::policy::{HelperOn, InterfaceQueues, PinTo, Policy, Polling, Siblings};

/// Where vCPUs run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pins {
    /// On a PU each.
    Pu,
    /// On the PUs of the guest's node.
    Node,
    /// Wherever the kernel puts them, as the class `density` asks: then a plan decides nothing else.
    Float,
}

/// One combination. Its word, `pu.huge.none-io_uring.iothread`, names it in documents and stores; what is not as the rules have it
/// otherwise follows: `.emulator-node`, `.core-each`, `.cells`, `.iothread-node`, `.two-iothreads`, `.guest-polls` or `.host-polls`,
/// `.net-one-queue` or `.net-queue-each`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choices {
    /// Where vCPUs run.
    pub pins: Pins,
    /// Whether memory is in pages of a pool, if the host has one.
    pub huge: bool,
    /// Engine of the disk, with cache none; `None`: as the rules choose cache and engine.
    pub engine: Option<DiskEngine>,
    /// Whether an iothread with a PU of its own serves the disk, or QEMU's main loop.
    pub iothread: bool,
    /// Where the emulator thread runs.
    pub emulator: HelperOn,
    /// Siblings of the vCPUs' PUs.
    pub siblings: Siblings,
    /// Whether the guest sees the nodes it lies on.
    pub cells: bool,
    /// Where iothreads run.
    pub iothread_on: HelperOn,
    /// Whether two iothreads take the queues of a disk in turns.
    pub two_iothreads: bool,
    /// Who polls before a vCPU sleeps.
    pub polling: Polling,
    /// Queues of its interfaces.
    pub interface_queues: InterfaceQueues,
}

/// What follows the four words that are always there, in this order.
const EMULATOR: &str = "emulator-node";
const SIBLINGS: &str = "core-each";
const CELLS: &str = "cells";
const IOTHREAD: &str = "iothread-node";
const IOTHREADS: &str = "two-iothreads";
const POLLING: &str = "guest-polls";
const HOST_POLLS: &str = "host-polls";
const ONE_QUEUE: &str = "net-one-queue";
const QUEUE_EACH: &str = "net-queue-each";

/// A word that names no choices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownChoices(String);

impl fmt::Display for UnknownChoices {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "`{}` names no choices of a plan; they look like `pu.huge.none-io_uring.iothread`", self.0)
    }
}

impl std::error::Error for UnknownChoices {}

impl Choices {
    /// Nothing pinned.
    pub const FLOAT: Self = Self::new(Pins::Float, false, None, false);

    /// These, and all else as the rules have it.
    pub const fn new(pins: Pins, huge: bool, engine: Option<DiskEngine>, iothread: bool) -> Self {
        Self {
            pins,
            huge,
            engine,
            iothread,
            emulator: HelperOn::Pu,
            siblings: Siblings::Use,
            cells: false,
            iothread_on: HelperOn::Pu,
            two_iothreads: false,
            polling: Polling::Keep,
            interface_queues: InterfaceQueues::Keep,
        }
    }

    /// A policy that plans a guest so.
    pub(crate) fn policy(self, policy: &Policy) -> Policy {
        Policy {
            pins: if self.pins == Pins::Node { PinTo::Node } else { PinTo::Pu },
            hugepages: self.huge && policy.hugepages,
            iothreads: if self.iothread { policy.iothreads.max(1 + u32::from(self.two_iothreads)) } else { 0 },
            share_queues: self.two_iothreads || policy.share_queues,
            iothread_on: self.iothread_on,
            polling: if self.polling == Polling::Keep { policy.polling } else { self.polling },
            interface_queues: match self.interface_queues {
                InterfaceQueues::Keep => policy.interface_queues,
                chosen => chosen,
            },
            emulator: self.emulator,
            // What an operator asks for holds whatever was measured.
            siblings: if policy.siblings == Siblings::Spare { Siblings::Spare } else { self.siblings },
            guest_cells: self.cells || policy.guest_cells,
            ..policy.clone()
        }
    }

    /// For people.
    pub fn words(self) -> String {
        let pins = match self.pins {
            Pins::Float => return "floating".to_owned(),
            Pins::Pu => "a PU for each vCPU",
            Pins::Node => "vCPUs on their node",
        };
        let pages = if self.huge { "huge pages" } else { "small pages" };
        let engine =
            self.engine.map_or_else(|| "engine by rule".to_owned(), |engine| format!("none/{}", engine.name()));
        let thread = if self.iothread { "iothread" } else { "main loop" };
        let mut words = format!("{pins}, {pages}, {engine}, {thread}");
        let further = [
            (self.emulator == HelperOn::Node, ", emulator thread on its node"),
            (self.siblings == Siblings::Spare, ", a core for each vCPU"),
            (self.cells, ", guest cells"),
            (self.iothread_on == HelperOn::Node, ", iothread on its node"),
            (self.two_iothreads, ", two iothreads"),
            (self.polling == Polling::Guest, ", the guest polls"),
            (self.polling == Polling::Host, ", the host polls"),
            (self.interface_queues == InterfaceQueues::One, ", one queue for each interface"),
            (self.interface_queues == InterfaceQueues::EachVcpu, ", a network queue for each vCPU"),
        ];
        further.iter().filter(|(is_so, _)| *is_so).for_each(|(_, more)| words.push_str(more));
        words
    }

    /// The words that follow the four.
    fn further(self) -> impl Iterator<Item = &'static str> {
        let all = [
            (self.emulator == HelperOn::Node, EMULATOR),
            (self.siblings == Siblings::Spare, SIBLINGS),
            (self.cells, CELLS),
            (self.iothread_on == HelperOn::Node, IOTHREAD),
            (self.two_iothreads, IOTHREADS),
            (self.polling == Polling::Guest, POLLING),
            (self.polling == Polling::Host, HOST_POLLS),
            (self.interface_queues == InterfaceQueues::One, ONE_QUEUE),
            (self.interface_queues == InterfaceQueues::EachVcpu, QUEUE_EACH),
        ];
        all.into_iter().filter_map(|(is_so, word)| is_so.then_some(word))
    }
}

impl fmt::Display for Choices {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pins = match self.pins {
            Pins::Float => return formatter.write_str("float"),
            Pins::Pu => "pu",
            Pins::Node => "node",
        };
        let pages = if self.huge { "huge" } else { "small" };
        let engine = self.engine.map_or_else(|| "rule".to_owned(), |engine| format!("none-{}", engine.name()));
        let thread = if self.iothread { "iothread" } else { "main-loop" };
        write!(formatter, "{pins}.{pages}.{engine}.{thread}")?;
        self.further().try_for_each(|word| write!(formatter, ".{word}"))
    }
}

impl FromStr for Choices {
    type Err = UnknownChoices;

    fn from_str(text: &str) -> Result<Self, UnknownChoices> {
        let unknown = || UnknownChoices(text.chars().take(80).collect());
        if text == "float" {
            return Ok(Self::FLOAT);
        }
        let words: Vec<&str> = text.split('.').collect();
        let [pins, pages, engine, thread, further @ ..] = words.as_slice() else { return Err(unknown()) };
        let engines = [DiskEngine::Threads, DiskEngine::Native, DiskEngine::IoUring];
        let engine = match engine.strip_prefix("none-") {
            None if *engine == "rule" => None,
            word => Some(engines.into_iter().find(|one| Some(one.name()) == word).ok_or_else(unknown)?),
        };
        let has = |word: &str| further.contains(&word);
        let choices = Self {
            pins: match *pins {
                "pu" => Pins::Pu,
                "node" => Pins::Node,
                _ => return Err(unknown()),
            },
            huge: match *pages {
                "huge" => true,
                "small" => false,
                _ => return Err(unknown()),
            },
            engine,
            iothread: match *thread {
                "iothread" => true,
                "main-loop" => false,
                _ => return Err(unknown()),
            },
            emulator: if has(EMULATOR) { HelperOn::Node } else { HelperOn::Pu },
            siblings: if has(SIBLINGS) { Siblings::Spare } else { Siblings::Use },
            cells: has(CELLS),
            iothread_on: if has(IOTHREAD) { HelperOn::Node } else { HelperOn::Pu },
            two_iothreads: has(IOTHREADS),
            polling: match (has(POLLING), has(HOST_POLLS)) {
                (true, _) => Polling::Guest,
                (false, true) => Polling::Host,
                (false, false) => Polling::Keep,
            },
            interface_queues: match (has(ONE_QUEUE), has(QUEUE_EACH)) {
                (true, _) => InterfaceQueues::One,
                (false, true) => InterfaceQueues::EachVcpu,
                (false, false) => InterfaceQueues::Keep,
            },
        };
        // Each word that is known, once and in its place.
        if choices.further().eq(further.iter().copied()) { Ok(choices) } else { Err(unknown()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_comes_back_from_its_word() {
        let engines = [None, Some(DiskEngine::Threads), Some(DiskEngine::Native), Some(DiskEngine::IoUring)];
        for pins in [Pins::Pu, Pins::Node] {
            for (huge, iothread) in [(true, true), (true, false), (false, true), (false, false)] {
                for engine in engines {
                    let plain = Choices::new(pins, huge, engine, iothread);
                    let emulator = Choices { emulator: HelperOn::Node, ..plain };
                    let siblings = Choices { siblings: Siblings::Spare, ..plain };
                    let queues = Choices { interface_queues: InterfaceQueues::One, polling: Polling::Host, ..plain };
                    let all = Choices {
                        siblings: Siblings::Spare,
                        cells: true,
                        iothread_on: HelperOn::Node,
                        two_iothreads: true,
                        polling: Polling::Guest,
                        interface_queues: InterfaceQueues::EachVcpu,
                        ..emulator
                    };
                    for choices in [plain, emulator, siblings, Choices { cells: true, ..plain }, queues, all] {
                        assert_eq!(choices.to_string().parse(), Ok(choices), "{choices}");
                    }
                    // Documents of before there were more than four choices.
                    assert_eq!(plain.to_string().split('.').count(), 4);
                }
            }
        }
        assert_eq!("float".parse(), Ok(Choices::FLOAT));
        for junk in [
            "",
            "float.huge",
            "pu.huge.none-magic.iothread",
            "pu.huge.none-native",
            "x.huge.rule.iothread",
            "pu.huge.magic.iothread",
            "pu.huge.rule.iothread.magic",
            "pu.huge.rule.iothread.cells.cells",
            "pu.huge.rule.iothread.cells.emulator-node",
            "pu.huge.rule.iothread.net-one-queue.net-queue-each",
            "pu.huge.rule.iothread.guest-polls.host-polls",
        ] {
            let error = junk.parse::<Choices>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{junk}` names no choices")), "{error}");
        }
    }
}
