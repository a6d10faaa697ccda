//! A JVM with a thread for each warehouse: the program `warehouses` of the loads image.
//!
//! Transactions on maps of the heap, without locks, I/O or think time; what they come to a second is the score. A sample is a
//! JVM of its own, and everything that a JVM would choose by the machine it finds itself on is given (heap, processors,
//! collector), so that both sides run the same. The program counts its time from the start of its process: its warm-up ends at
//! a known moment, and programs that begin together measure together.

use std::time::Duration;

use nearmetal_units::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{At, Load, Measured, Named, SLACK, Shape, Window, WorksOn};
use crate::cost::{Each, Middle};
use crate::error::LoadError;
use crate::metric::{Metric, Unit};

mod settings;

pub(super) use self::settings::{JAVA, Settings};

/// What people call it.
pub(super) const NAMED: &[Named] = &[
    Named {
        word: "jvm",
        help: "Java transactions, a warehouse on each vCPU; pages as this machine gives them",
        sizes: &[],
        on: WorksOn::Processors,
        make: |shape| JvmJob::of(shape, JavaPages::OfTheMachine).into(),
    },
    Named {
        word: "jvm-small-pages",
        help: "the same, kept from transparent huge pages",
        sizes: &[],
        on: WorksOn::Processors,
        make: |shape| JvmJob::of(shape, JavaPages::Small).into(),
    },
    Named {
        word: "jvm-large-pages",
        help: "the same with transparent huge pages; a JVM that gets none is a failed sample",
        sizes: &[],
        on: WorksOn::Processors,
        make: |shape| JvmJob::of(shape, JavaPages::Large).into(),
    },
];

const CLASSES: &str = "/usr/lib/nearmetal/java/classes";
const MAIN: &str = "warehouses.Main";

/// Goods in the catalogue, of which each warehouse has its stock: its maps are past the caches of a core.
const ITEMS: u32 = 20_000;
const ITEMS_EMULATED: u32 = 2_000;
/// Seconds from the start of the process until its transactions count: the data is made, and compiled is what runs often.
const WARM_UP: u32 = 15;
/// The same where the machine is emulated. Half of it is for the start: in a lab on a host of two busy cores, a
/// JVM took 40 s to begin.
const WARM_UP_EMULATED: u32 = 90;
/// How much faster than at the end of its warm-up a JVM may have measured before a reader is told.
const STILL_WARMING: f64 = 1.1;
/// The part of the heap that is in large pages at least, where they are asked for.
const LARGE_AT_LEAST: f64 = 0.5;

/// The pages behind the heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JavaPages {
    /// What the machine gives a program that asks for nothing.
    OfTheMachine,
    /// Small ones, whatever the machine's setting is.
    Small,
    /// Large ones (`-XX:+UseTransparentHugePages`).
    Large,
}

/// One run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JvmJob {
    /// Warehouses, a thread each.
    pub warehouses: u32,
    /// Goods in the catalogue.
    pub items: u32,
    /// Size of the heap, from its start to its end.
    pub heap: Bytes,
    /// Seconds from the start of the process to the measured part.
    pub warm_up: u32,
    /// Seconds of the measured part.
    pub seconds: u32,
    /// The pages behind the heap.
    pub pages: JavaPages,
    /// Whether the JVM spreads its heap over the nodes that it sees.
    pub numa: bool,
    /// Whether only the first compiler is used: an emulated machine is long at what the second one does.
    pub emulated: bool,
}

impl JvmJob {
    /// The job for a guest of this shape.
    pub fn of(shape: &Shape, pages: JavaPages) -> Self {
        let (items, warm_up) = if shape.emulated { (ITEMS_EMULATED, WARM_UP_EMULATED) } else { (ITEMS, WARM_UP) };
        let Settings { heap, processors: warehouses, numa, emulated, .. } = Settings::of(shape, pages);
        Self {
            warehouses,
            items,
            heap,
            // Longer samples are the remedy of a JVM that was not warm, so its warm-up grows with them.
            warm_up: warm_up.max(shape.ramp).max(shape.seconds),
            seconds: shape.seconds,
            pages,
            numa,
            emulated,
        }
    }

    /// The job of one JVM that has the vCPUs and the memory of so many nodes.
    pub fn over(&self, nodes: u32) -> Self {
        Self {
            warehouses: self.warehouses * nodes,
            heap: self.heap.times(nodes.into()),
            numa: self.numa || nodes > 1,
            ..self.clone()
        }
    }

    /// The same job with so many seconds for the JVM to start: half of the warm-up is for that.
    pub(super) fn starting_within(&self, seconds: u32) -> Self {
        Self { warm_up: seconds.saturating_mul(2).max(self.seconds), ..self.clone() }
    }

    /// How its JVM is run.
    fn settings(&self) -> Settings {
        let Self { heap, warehouses, pages, numa, emulated, .. } = *self;
        Settings { heap, processors: warehouses, pages, numa, emulated }
    }

    /// The program in the image, with its arguments.
    fn program(&self, seed: u64) -> Vec<String> {
        let numbers = [
            ("--seed", seed),
            ("--items", self.items.into()),
            ("--threads", self.warehouses.into()),
            ("--warm-up-ms", u64::from(self.warm_up) * 1000),
            ("--points", self.warehouses.into()),
            ("--each-ms", u64::from(self.seconds) * 1000),
        ];
        let mut words = vec![JAVA.to_owned()];
        words.extend(self.settings().flags());
        words.extend(["-cp", CLASSES, MAIN].map(str::to_owned));
        words.extend(numbers.iter().flat_map(|(name, number)| [(*name).to_owned(), number.to_string()]));
        words
    }

    /// Refuses a heap in other pages than were asked for: a JVM that gets no large ones warns and goes on.
    fn check_pages(&self, large: Bytes) -> Result<(), LoadError> {
        let part = large.get() as f64 / self.heap.get() as f64;
        let refused = |asked: &str| {
            let what = self.label();
            let why = format!(
                "it asked for {asked} pages, and {large} of its {} heap is in large ones: see \
                 /sys/kernel/mm/transparent_hugepage/enabled on that side, and its free memory",
                self.heap
            );
            Err(LoadError::WorkloadFailed { what, why })
        };
        match self.pages {
            JavaPages::Large if part < LARGE_AT_LEAST => refused("large"),
            JavaPages::Small if large > Bytes::ZERO => refused("small"),
            _ => Ok(()),
        }
    }
}

impl Load for JvmJob {
    fn id(&self) -> String {
        let pages = match self.pages {
            JavaPages::OfTheMachine => "",
            JavaPages::Small => ".small-pages",
            JavaPages::Large => ".large-pages",
        };
        format!("jvm.w{}{pages}", self.warehouses)
    }

    fn label(&self) -> String {
        let warehouses = if self.warehouses == 1 { "warehouse" } else { "warehouses" };
        let pages = match self.pages {
            JavaPages::OfTheMachine => "",
            JavaPages::Small => ", small pages",
            JavaPages::Large => ", large pages",
        };
        format!("JVM, {} {warehouses}, {} heap{pages}", self.warehouses, self.heap)
    }

    fn rate(&self) -> Option<String> {
        Some("score".to_owned())
    }

    fn command(&self, at: &At<'_>, seed: u64) -> Vec<String> {
        let options: &[&str] = if self.pages == JavaPages::Small { &["--small-pages"] } else { &[] };
        at.in_the_image(options, self.program(seed))
    }

    fn length(&self) -> Option<Duration> {
        Some(Duration::from_secs((self.warm_up + self.seconds).into()))
    }

    fn limit(&self) -> Duration {
        // An emulated machine may take as long again to start a JVM and to touch its heap.
        self.length().unwrap_or_default() * if self.emulated { 2 } else { 1 } + SLACK
    }

    fn middle(&self) -> Option<(Middle, Each)> {
        let (warm_up, seconds) = (Duration::from_secs(self.warm_up.into()), Duration::from_secs(self.seconds.into()));
        // Most of the measured part: it begins at a known age of the process, and an agent's moment and a look at a guest's
        // clock come before that.
        let middle = Middle { begins: warm_up + seconds / 5, ends: warm_up + seconds * 9 / 10 };
        Some((middle, Each::Transaction))
    }

    fn cold(&self) -> bool {
        false
    }

    fn needs_loads_image(&self) -> bool {
        true
    }

    fn read(&self, output: &str) -> Result<Measured, LoadError> {
        let said = Said(output, document(output)?);
        let (seconds, transactions) = (said.number("/points/0/seconds")?, said.number("/points/0/transactions")?);
        let score = transactions / seconds;
        let metric = Metric::new("score", Unit::TransactionsPerSecond, score);
        let metric = metric.ok_or_else(|| said.unreadable("a score that is not above zero"))?;
        self.settings().check(&self.label(), |flag| said.text(&format!("/flags/{flag}")))?;
        let large = said.whole("/pages/large_kib")?;
        self.check_pages(Bytes::from_kib(large))?;
        let mut notes = vec![said.text("/vm")?, format!("ready after {:.1} s", said.number("/ready_seconds")?)];
        let late = said.late_in_the_warm_up()?;
        if score > late * STILL_WARMING {
            notes.push(format!(
                "it was still getting faster: {late:.0} transactions/s at the end of its warm-up, {score:.0} in the measured \
                 part; take longer samples (--seconds)"
            ));
        }
        notes.push(format!("{} of its memory in large pages", Bytes::from_kib(large)));
        if self.numa && said.text("/flags/UseNUMA")? != "true" {
            notes.push("UseNUMA was asked for, and the JVM turned it off: it sees one node".to_owned());
        }
        Ok(Measured { metrics: vec![metric], notes })
    }

    fn window(&self, output: &str, ahead: f64) -> Result<Window, LoadError> {
        let said = Said(output, document(output)?);
        Ok(Window { began: said.number("/began_ms")? - ahead, ended: said.number("/ended_ms")? - ahead })
    }

    fn says_what_was_done_when(&self) -> bool {
        true
    }

    fn done(&self, output: &str, part: Window, ahead: f64) -> Option<f64> {
        let said = Said(output, document(output).ok()?);
        let began = said.number("/points/0/began_ms").ok()? - ahead;
        let moments = said.1.pointer("/points/0/moments")?.as_array()?;
        let pair = |moment: &Value| Some((began + moment.get(0)?.as_f64()?, moment.get(1)?.as_f64()?));
        let moments =
            std::iter::once(Some((began, 0.0))).chain(moments.iter().map(pair)).collect::<Option<Vec<_>>>()?;
        let done = by(&moments, part.ended)? - by(&moments, part.began)?;
        (done > 0.0).then_some(done)
    }

    fn provenance(&self) -> Option<(String, String)> {
        Some(("jvm command".to_owned(), self.program(0).join(" ")))
    }
}

/// What was done by a moment, between the two that were counted around it; `None` before the first and behind the last.
fn by(moments: &[(f64, f64)], at: f64) -> Option<f64> {
    let around = moments.windows(2).find(|pair| pair[0].0 <= at && at <= pair[1].0 && pair[0].0 < pair[1].0)?;
    let [(earlier, before), (later, after)] = [around[0], around[1]];
    Some(before + (after - before) * (at - earlier) / (later - earlier))
}

/// What the program said, for errors, and the same read.
struct Said<'o>(&'o str, Value);

impl Said<'_> {
    fn unreadable(&self, why: &str) -> LoadError {
        unreadable(self.0, why)
    }

    fn number(&self, at: &str) -> Result<f64, LoadError> {
        let value = self.1.pointer(at).and_then(Value::as_f64).filter(|value| value.is_finite() && *value > 0.0);
        value.ok_or_else(|| self.unreadable(&format!("no `{at}` above zero in it")))
    }

    /// A whole number, which may be zero.
    fn whole(&self, at: &str) -> Result<u64, LoadError> {
        self.1.pointer(at).and_then(Value::as_u64).ok_or_else(|| self.unreadable(&format!("no `{at}` in it")))
    }

    fn text(&self, at: &str) -> Result<String, LoadError> {
        let text = self.1.pointer(at).and_then(Value::as_str).map(str::to_owned);
        text.ok_or_else(|| self.unreadable(&format!("no `{at}` in it")))
    }

    /// Transactions a second in the last quarter of the warm-up.
    fn late_in_the_warm_up(&self) -> Result<f64, LoadError> {
        let each = self.number("/warm_up/interval_seconds")?;
        let counts = self.1.pointer("/warm_up/transactions").and_then(Value::as_array);
        let counts: Vec<f64> = counts.into_iter().flatten().filter_map(Value::as_f64).collect();
        let last = counts.len().div_ceil(4);
        if last == 0 {
            return Err(self.unreadable("nothing of its warm-up in it"));
        }
        Ok(counts[counts.len() - last..].iter().sum::<f64>() / (last as f64 * each))
    }
}

fn document(output: &str) -> Result<Value, LoadError> {
    // A JVM prints its warnings on the same output, before what the program says.
    let line = output.lines().rev().find(|line| line.starts_with('{')).unwrap_or_default();
    let document: Value = serde_json::from_str(line).map_err(|error| unreadable(output, &error.to_string()))?;
    match document.pointer("/schema").and_then(Value::as_str) {
        Some("nearmetal-jvm") => Ok(document),
        _ => Err(unreadable(output, "it is not of the schema `nearmetal-jvm`")),
    }
}

fn unreadable(output: &str, why: &str) -> LoadError {
    super::unreadable("the output of the warehouses in Java", why, output)
}

#[cfg(test)]
mod tests;
