//! Runs, one after the other, a third of them killed at a moment that chance chooses: nothing adds up.

use std::ops::RangeInclusive;

use anyhow::{Context, ensure};

use super::super::Verdict;
use super::{flavours, nothing_is_left};
use crate::context::Bench;

/// How many there are.
const RUNS: u32 = 200;
/// So many of them run unless others are asked for: all take an hour and more.
const USUAL: u32 = 10;
/// So often everything is looked at, after a run that nobody killed.
const LOOK: u32 = 20;
/// Where the numbers of chance begin, unless this variable says otherwise.
const SEED: u64 = 20_261_125;
const VARIABLE: &str = "NEARMETAL_SEED";
/// A part of them, `61-120` say, with the chances of all.
const PART: &str = "NEARMETAL_RUNS";

/// Who is killed.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Killed {
    Run,
    Qemu,
    Libvirt,
}

impl Killed {
    /// What kills it, once it is there. A process that is not there yet, or any more, cannot be killed: then nobody is.
    fn script(self) -> &'static str {
        match self {
            Self::Run => "kill -9 $run 2>/dev/null && echo killed",
            Self::Qemu => "pkill -9 -f '[g]uest=run-' && echo killed",
            Self::Libvirt => "pkill -9 -x libvirtd && echo killed",
        }
    }

    /// The code of a run that did not come to its command's end.
    fn code(self) -> u8 {
        if self == Self::Run { 137 } else { 3 }
    }
}

/// Knuth's linear congruential generator (MMIX): plain, and the same everywhere.
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most.max(1)
    }

    /// Who is killed, and when, in milliseconds: a third of the runs, over a little more than the time a run takes.
    fn kill(&mut self, takes: u64) -> Option<(Killed, u64)> {
        let who = match self.below(9) {
            0 => Killed::Run,
            1 => Killed::Qemu,
            2 => Killed::Libvirt,
            _ => return None,
        };
        Some((who, self.below(takes + takes / 10)))
    }
}

/// How long a run takes here that nobody kills, in milliseconds, by its last event.
fn length(bench: &Bench) -> anyhow::Result<u64> {
    bench.sh("nearmetal run tiny --flavours /root/flavours.toml --events /root/events -- true")?;
    let last: serde_json::Value = serde_json::from_str(&bench.sh("tail -n 1 /root/events")?)?;
    let seconds = last["seconds"].as_f64().context("the last event has no time")?;
    Ok((seconds * 1000.0) as u64)
}

/// One run, and whether somebody was killed in it.
fn one(bench: &Bench, number: u32, kill: Option<(Killed, u64)>) -> anyhow::Result<bool> {
    // 2 and 3 are nearmetal's own codes, 137 is that of a run that was killed.
    let own = u8::try_from(4 + number % 100)?;
    let flavour = if number % 3 == 0 { "pages" } else { "tiny" };
    let script = kill.map_or_else(String::new, |(who, after)| {
        format!("sleep {}.{:03}; {}\n", after / 1000, after % 1000, who.script())
    });
    let said = bench.sh(&format!(
        "rm -f /root/events; nearmetal run {flavour} --flavours /root/flavours.toml --events /root/events -- sh -c 'exit {own}' 2>/root/said & run=$!
         {script}wait $run; echo code $?; tail -n 1 /root/events 2>/dev/null; cat /root/said"
    ));
    if kill.is_some_and(|(who, _)| who == Killed::Libvirt) {
        bench.sh("systemctl reset-failed libvirtd; systemctl start libvirtd; virsh list >/dev/null")?;
    }
    let said = said?;
    let code: u8 = said.lines().find_map(|line| line.strip_prefix("code ")?.parse().ok()).context("no code")?;
    let killed = said.lines().next() == Some("killed");
    let finished = said.contains("\"outcome\":\"exited\"");
    match kill {
        // A job that has finished has its code, whoever is killed afterwards, but for the run that should pass it on.
        _ if finished && code == own => {}
        Some((who, _)) if killed && code == who.code() && (!finished || who == Killed::Run) => {}
        _ => anyhow::bail!("run {number}, {kill:?}: code {code}, its command's is {own}: {said}"),
    }
    Ok(killed)
}

/// The runs that are wanted, by their numbers.
fn part() -> anyhow::Result<RangeInclusive<u32>> {
    let Ok(text) = std::env::var(PART) else { return Ok(1..=USUAL) };
    let numbers = text.split_once('-').and_then(|(from, to)| Some(from.parse().ok()?..=to.parse().ok()?));
    let within = |part: &RangeInclusive<u32>| *part.start() >= 1 && *part.end() <= RUNS && !part.is_empty();
    numbers.filter(within).with_context(|| format!("{PART}: `{text}`; `1-{RUNS}` are all of them"))
}

pub(super) fn some_killed(bench: &Bench) -> anyhow::Result<Verdict> {
    let seed = std::env::var(VARIABLE).ok().and_then(|seed| seed.parse().ok()).unwrap_or(SEED);
    let (mut chance, part) = (Chance(seed), part()?);
    let again = || format!("again: {VARIABLE}={seed} {PART}={}-{}", part.start(), part.end());
    flavours(bench)?;
    let takes = length(bench)?;
    let mut killed = 0;
    for number in 1..=*part.end() {
        // Those before this part take their chances all the same.
        let kill = chance.kill(takes).filter(|_| number % LOOK != 0 && number != *part.end());
        if !part.contains(&number) {
            continue;
        }
        killed += u32::from(one(bench, number, kill).with_context(again)?);
        if number % LOOK == 0 || number == *part.end() {
            nothing_is_left(bench, &format!("run {number}, {killed} were killed")).with_context(again)?;
        }
    }
    let runs = part.clone().count();
    ensure!(
        runs < 30 || killed as usize > runs / 10,
        "only {killed} were killed: the moments of chance miss the runs; {}",
        again()
    );
    Ok(Verdict::Holds(format!("{runs} runs, {killed} of them killed; {}", again())))
}
