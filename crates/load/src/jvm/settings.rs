//! How a JVM of the loads image is run, whatever program it runs: everything that it would choose by the machine it finds itself on.

use nearmetal_units::Bytes;

use super::JavaPages;
use crate::Shape;
use crate::error::LoadError;

/// The program, in the loads image.
pub(crate) const JAVA: &str = "/usr/lib/nearmetal/java/runtime/bin/java";

/// The part of a guest's memory that is the heap's at most; the rest is the JVM's own, and the guest's system.
const MOST_OF_MEMORY: u64 = 2;
/// Heap of a processor, whose thread works on it: room for what it keeps and to collect seldom. More would only be touched and
/// zeroed.
const HEAP_EACH: Bytes = Bytes::from_mib(1024);
/// The same where the machine is emulated, which takes a second to touch some 100 MiB.
const HEAP_EACH_EMULATED: Bytes = Bytes::from_mib(64);

/// What is given to a JVM, equal on all sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Size of the heap, from its start to its end.
    pub heap: Bytes,
    /// Processors that it reckons with.
    pub processors: u32,
    /// The pages behind the heap.
    pub pages: JavaPages,
    /// Whether it spreads its heap over the nodes that it sees.
    pub numa: bool,
    /// Whether only the first compiler is used: an emulated machine is long at what the second one does.
    pub emulated: bool,
}

impl Settings {
    /// Those for a guest of this shape.
    pub(crate) fn of(shape: &Shape, pages: JavaPages) -> Self {
        let each = if shape.emulated { HEAP_EACH_EMULATED } else { HEAP_EACH };
        let most = Bytes::from_mib(shape.memory.kib() / 1024 / MOST_OF_MEMORY);
        let processors = shape.vcpus.max(1);
        Self {
            heap: each.times(processors.into()).min(most),
            processors,
            pages,
            numa: shape.nodes > 1,
            emulated: shape.emulated,
        }
    }

    /// What the JVM is told.
    pub(crate) fn flags(&self) -> Vec<String> {
        let heap = self.heap.kib() / 1024;
        let mut flags = vec![
            format!("-Xms{heap}m"),
            format!("-Xmx{heap}m"),
            "-XX:+AlwaysPreTouch".to_owned(),
            "-XX:+UseParallelGC".to_owned(),
            format!("-XX:ActiveProcessorCount={}", self.processors),
            // Its counters would be a file in /tmp that somebody could read.
            "-XX:-UsePerfData".to_owned(),
        ];
        let mut more = |flag: &str, is_wanted: bool| flags.extend(is_wanted.then(|| flag.to_owned()));
        more("-XX:+UseNUMA", self.numa);
        more("-XX:+UseTransparentHugePages", self.pages == JavaPages::Large);
        more("-XX:TieredStopAtLevel=1", self.emulated);
        flags
    }

    /// Flags that are read back, and what each must be.
    fn asked(&self) -> [(&'static str, String); 5] {
        let (heap, on) = (self.heap.get().to_string(), || "true".to_owned());
        [
            ("InitialHeapSize", heap.clone()),
            ("MaxHeapSize", heap),
            ("UseParallelGC", on()),
            ("AlwaysPreTouch", on()),
            ("ActiveProcessorCount", self.processors.to_string()),
        ]
    }

    /// Refuses a JVM that made something else of its flags, as it may where a machine is too small for them. `found`: the value of
    /// the flag of that name, as the JVM says it.
    ///
    /// # Errors
    /// A flag has another value, or cannot be read.
    pub(crate) fn check(
        &self,
        label: &str,
        found: impl Fn(&str) -> Result<String, LoadError>,
    ) -> Result<(), LoadError> {
        for (name, asked) in self.asked() {
            let found = found(name)?;
            if found != asked {
                let why = format!("it was told {name}={asked}, and ran with {name}={found}");
                return Err(LoadError::WorkloadFailed { what: label.to_owned(), why });
            }
        }
        Ok(())
    }
}
