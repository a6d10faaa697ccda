//! What a plan may decide for a guest and correctness does not: the choices that can be measured against each other.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::plan::DiskEngine;
use crate::policy::{EmulatorOn, PinTo, Policy, Siblings};

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
/// otherwise follows: `.emulator-node`, `.core-each`, `.cells`.
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
    pub emulator: EmulatorOn,
    /// Siblings of the vCPUs' PUs.
    pub siblings: Siblings,
    /// Whether the guest sees the nodes it lies on.
    pub cells: bool,
}

/// What follows the four words that are always there, in this order.
const EMULATOR: &str = "emulator-node";
const SIBLINGS: &str = "core-each";
const CELLS: &str = "cells";

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
        let (emulator, siblings) = (EmulatorOn::Pu, Siblings::Use);
        Self { pins, huge, engine, iothread, emulator, siblings, cells: false }
    }

    /// A policy that plans a guest so.
    pub(crate) fn policy(self, policy: &Policy) -> Policy {
        Policy {
            pins: if self.pins == Pins::Node { PinTo::Node } else { PinTo::Pu },
            hugepages: self.huge && policy.hugepages,
            iothreads: if self.iothread { policy.iothreads.max(1) } else { 0 },
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
            (self.emulator == EmulatorOn::Node, ", emulator thread on its node"),
            (self.siblings == Siblings::Spare, ", a core for each vCPU"),
            (self.cells, ", guest cells"),
        ];
        further.iter().filter(|(is_so, _)| *is_so).for_each(|(_, more)| words.push_str(more));
        words
    }

    /// The words that follow the four.
    fn further(self) -> impl Iterator<Item = &'static str> {
        let all = [
            (self.emulator == EmulatorOn::Node, EMULATOR),
            (self.siblings == Siblings::Spare, SIBLINGS),
            (self.cells, CELLS),
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
            emulator: if has(EMULATOR) { EmulatorOn::Node } else { EmulatorOn::Pu },
            siblings: if has(SIBLINGS) { Siblings::Spare } else { Siblings::Use },
            cells: has(CELLS),
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
                    let emulator = Choices { emulator: EmulatorOn::Node, ..plain };
                    let siblings = Choices { siblings: Siblings::Spare, ..plain };
                    let all = Choices { siblings: Siblings::Spare, cells: true, ..emulator };
                    for choices in [plain, emulator, siblings, Choices { cells: true, ..plain }, all] {
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
        ] {
            let error = junk.parse::<Choices>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{junk}` names no choices")), "{error}");
        }
    }
}
