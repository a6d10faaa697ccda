//! What a plan can decide in two ways, and why it cannot here.

use nearmetal_host::Host;
use nearmetal_measure::LeftOut;
use nearmetal_place::{Choices, DiskEngine, EmulatorOn, GuestRequest, Pins, Siblings};

/// One factor.
pub(super) struct Factor {
    /// Its word, as `--without` takes it.
    pub(super) id: &'static str,
    /// What it decides.
    pub(super) about: &'static str,
    /// The rules' level and the other one, for people, or why there is but one here.
    pub(super) levels: fn(&Situation<'_>) -> Result<[String; 2], String>,
    /// How choices are turned to the other level.
    pub(super) turn: Turn,
    /// Subject of the planner's reason for not doing what the other level asks for, if it gives one.
    pub(super) subject: Option<&'static str>,
}

/// Turns choices to a factor's other level; the engine is the other one that this machine has.
pub(super) type Turn = fn(Choices, Option<DiskEngine>) -> Choices;

/// What decides whether a factor has two levels.
pub(super) struct Situation<'a> {
    pub(super) host: &'a Host,
    /// The choices of the plan by rule.
    pub(super) by_rule: Choices,
    /// The engine beside that of the rules.
    pub(super) other: Option<DiskEngine>,
    /// Whether the plan by rule has cells: those that the definition shows.
    pub(super) has_cells: bool,
}

/// All factors. Where the time is short the first four make the fraction.
pub(super) const FACTORS: [Factor; 7] = [
    Factor {
        id: "pages",
        about: "huge pages of a pool, or the kernel's own",
        levels: |here| match here.by_rule.huge {
            true => two("huge", "small"),
            false => Err("the rules plan no huge pages here: no node has a pool of 2 MiB pages with room".to_owned()),
        },
        turn: |choices, _| Choices { huge: false, ..choices },
        subject: None,
    },
    Factor {
        id: "pins",
        about: "a PU for each vCPU, the PUs of its node for all, or floating",
        levels: |_| two("a PU each", "the node's PUs"),
        turn: |choices, _| Choices { pins: Pins::Node, ..choices },
        subject: None,
    },
    Factor {
        id: "engine",
        about: "io_uring, Linux AIO or threads, with cache none",
        levels: |here| match here.by_rule.engine.zip(here.other) {
            Some((rule, other)) => two(rule.name(), other.name()),
            None => Err(format!(
                "one engine is left: io_uring_disabled is {}",
                here.host.system.io_uring_disabled.map_or_else(|| "unknown".to_owned(), |value| value.to_string())
            )),
        },
        turn: |choices, other| Choices { engine: other, ..choices },
        subject: None,
    },
    Factor {
        id: "iothread",
        about: "an iothread with a PU of its own, or QEMU's main loop",
        levels: |here| match here.by_rule.iothread {
            true => two("iothread", "main loop"),
            false => Err("the rules plan none here".to_owned()),
        },
        turn: |choices, _| Choices { iothread: false, ..choices },
        subject: None,
    },
    Factor {
        id: "emulator",
        about: "a PU for QEMU's other threads, or all free PUs of its node",
        levels: |_| two("a PU", "the node's free PUs"),
        turn: |choices, _| Choices { emulator: EmulatorOn::Node, ..choices },
        subject: None,
    },
    Factor {
        id: "smt",
        about: "vCPUs on all PUs of a core, or a core for each",
        levels: |here| match here.host.cores.iter().any(|core| core.cpus.intersection(&here.host.online()).len() > 1) {
            true => two("siblings used", "a core each"),
            false => Err("each core of this machine has one PU: it takes one with SMT".to_owned()),
        },
        turn: |choices, _| Choices { siblings: Siblings::Spare, ..choices },
        subject: None,
    },
    Factor {
        id: "cells",
        about: "the VM sees the nodes that it lies on, with a socket for each, or one node",
        levels: |here| match here.has_cells {
            true => Err("its definition shows it cells, which the plan by rule deals to its nodes".to_owned()),
            false => two("not shown", "cells"),
        },
        turn: |choices, _| Choices { cells: true, ..choices },
        subject: Some("guest cells"),
    },
];

fn two(rule: &str, other: &str) -> Result<[String; 2], String> {
    Ok([rule.to_owned(), other.to_owned()])
}

/// The disk that is measured: the first writable virtio disk.
pub(super) fn disk_of(request: &GuestRequest) -> Option<String> {
    let disk = request.disks.iter().find(|disk| disk.is_virtio_blk && !disk.is_read_only);
    disk.map(|disk| disk.target.clone())
}

/// Engines that the kernel lets QEMU use, best first by rule.
pub(super) fn engines(host: &Host, request: &GuestRequest) -> Vec<DiskEngine> {
    let mut engines = Vec::new();
    if host.system.io_uring_disabled.is_none_or(|value| value == 0) {
        engines.push(DiskEngine::IoUring);
    }
    let is_block =
        request.disks.iter().find(|disk| disk.is_virtio_blk && !disk.is_read_only).is_some_and(|disk| disk.is_block);
    // On a file that is not allocated yet, Linux AIO blocks: correctness of its speed is no matter of taste there.
    if is_block {
        engines.push(DiskEngine::Native);
    }
    engines.push(DiskEngine::Threads);
    engines
}

pub(super) fn other_engine(host: &Host, request: &GuestRequest, rule: DiskEngine) -> Option<DiskEngine> {
    engines(host, request).into_iter().find(|engine| *engine != rule)
}

/// What a plan could decide and no tune measures yet.
pub(super) fn standing_left_out() -> Vec<LeftOut> {
    let one = |what: &str, why: &str| LeftOut { what: what.to_owned(), why: why.to_owned() };
    vec![
        one(
            "cache modes other than none",
            "the rules decide: a second copy in the host's memory; `bench disk race` measures them",
        ),
        one("halt polling", "a setting of the whole host, which no plan of one VM makes"),
        one("network", "the load works on the disk; `bench net race` measures ways to the network"),
    ]
}
