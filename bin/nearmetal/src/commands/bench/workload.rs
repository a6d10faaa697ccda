//! What is run on each side, by the words of `--workload`: those of the loads themselves.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use nearmetal_load::{MemoryBandwidth, MemoryJob, MemoryLatency, Named, Pattern, ProbePages, Shape, Workload, WorksOn};
use nearmetal_units::Bytes;

use crate::exit_status::WrongUse;

/// The size that is run where one is enough.
pub(super) const USUAL_SIZE: Bytes = Bytes::from_kib(4);
/// How much of a drive is worked on where a guest has it for itself, or several guests work at once: written once before,
/// and more than a drive's own cache holds back for long.
pub(super) const SPAN: Bytes = Bytes::from_mib(256);
/// Size of a database's rows: far more pages than a TLB holds, and few enough that filling the tables, which every sample does
/// anew, takes no longer than measuring. Where processors are emulated it would.
const ROWS: Bytes = Bytes::from_mib(64);
const ROWS_IN_A_LAB: Bytes = Bytes::from_mib(1);
/// Size of a web server's files: 13 directories of 36 files, each with contents of its own; in a lab one of them, which is the least.
const SITE: Bytes = Bytes::from_mib(64);
const SITE_IN_A_LAB: Bytes = Bytes::from_mib(5);
/// The least of each that can be asked for: of a database what a lab has.
const SMALLEST_SPAN: Bytes = Bytes::from_mib(4);
const SMALLEST_ROWS: Bytes = ROWS_IN_A_LAB;
/// What is run unless something else is asked for.
pub(super) const USUAL: &str = "random";

/// One load by its name, or all of a kind by what their names begin with.
#[derive(Debug, Clone)]
pub(super) struct Chosen {
    word: String,
    loads: Vec<&'static Named>,
}

/// Reads one load.
pub(super) fn one(fits: fn(&Named) -> bool) -> impl TypedValueParser<Value = Chosen> {
    parser(fits, false)
}

/// Reads one load, or all of a kind.
pub(super) fn several(fits: fn(&Named) -> bool) -> impl TypedValueParser<Value = Chosen> {
    parser(fits, true)
}

fn parser(fits: fn(&Named) -> bool, kinds: bool) -> impl TypedValueParser<Value = Chosen> {
    let loads: Vec<&'static Named> = Workload::named().into_iter().filter(|load| fits(load)).collect();
    let mut values: Vec<PossibleValue> = Vec::new();
    for load in &loads {
        let all: Vec<&str> = of_kind(&loads, kind(load)).iter().map(|load| load.word).collect();
        if kinds && all.len() > 1 && all[0] == load.word && !all.contains(&kind(load)) {
            values.push(PossibleValue::new(kind(load)).help(all.join(" and ")));
        }
        values.push(PossibleValue::new(load.word).help(load.help));
    }
    PossibleValuesParser::new(values).map(move |word| {
        let exact: Vec<_> = loads.iter().copied().filter(|load| load.word == word).collect();
        let loads = if exact.is_empty() { of_kind(&loads, &word) } else { exact };
        Chosen { word, loads }
    })
}

/// What names of a kind begin with: `iozone` of `iozone-xfs`.
fn kind(load: &Named) -> &'static str {
    load.word.split_once('-').map_or(load.word, |(kind, _)| kind)
}

fn of_kind(loads: &[&'static Named], wanted: &str) -> Vec<&'static Named> {
    loads.iter().copied().filter(|load| kind(load) == wanted).collect()
}

impl Chosen {
    /// Several as one, for what any of them needs.
    pub(super) fn together(several: &[Self]) -> Self {
        let words: Vec<&str> = several.iter().map(|one| one.word.as_str()).collect();
        Self { word: words.join(" and "), loads: several.iter().flat_map(|one| one.loads.iter().copied()).collect() }
    }

    /// Sizes of requests that are run: those of a kind have the same. Empty if it has no requests.
    pub(super) fn sizes(&self) -> &'static [u64] {
        self.loads.first().map_or(&[], |load| load.sizes)
    }

    /// The size that is run where one is enough.
    pub(super) fn usual_size(&self) -> Bytes {
        match self.sizes() {
            [only] => Bytes::new(*only),
            _ => USUAL_SIZE,
        }
    }

    /// Whether it runs programs of the loads image.
    pub(super) fn needs_loads_image(&self) -> bool {
        self.loads.iter().any(|load| load.needs_loads_image())
    }

    /// Whether it runs a licensed kit of the user's.
    pub(super) fn needs_kit(&self) -> bool {
        self.loads.iter().any(|load| load.needs_kit())
    }

    /// Whether its program is PostgreSQL, which not every loads image has.
    pub(super) fn needs_postgresql(&self) -> bool {
        self.loads.iter().any(|load| load.needs_postgresql())
    }

    /// The word it was chosen by.
    pub(super) fn word(&self) -> &str {
        &self.word
    }

    fn works_on(&self, what: WorksOn) -> bool {
        self.loads.iter().any(|load| load.on == what)
    }

    /// Size of its files together, unless somebody says.
    pub(super) fn usual_span(&self, emulated: bool) -> Bytes {
        let (silicon, lab) = match () {
            () if self.works_on(WorksOn::Database) => (ROWS, ROWS_IN_A_LAB),
            () if self.works_on(WorksOn::Site) => (SITE, SITE_IN_A_LAB),
            () => (SPAN, SPAN),
        };
        if emulated { lab } else { silicon }
    }

    /// The least size of its files together; `None` if it has none.
    fn least_span(&self) -> Option<Bytes> {
        match () {
            () if self.works_on(WorksOn::Database) => Some(SMALLEST_ROWS),
            () if self.works_on(WorksOn::Site) => Some(SITE_IN_A_LAB),
            () => self.works_on(WorksOn::Files).then_some(SMALLEST_SPAN),
        }
    }

    /// The workloads of this shape.
    pub(super) fn of(&self, shape: &Shape) -> Vec<Workload> {
        self.loads.iter().map(|load| (load.make)(shape)).collect()
    }

    /// Refuses what this load has no use for.
    pub(super) fn check(&self, seconds: bool, sizes: bool, span: Option<Bytes>) -> Result<(), WrongUse> {
        let word = &self.word;
        let least = self.least_span();
        let is_small = span.zip(least).is_some_and(|(span, least)| span < least);
        let problem = match () {
            () if self.works_on(WorksOn::Files) && seconds => {
                format!("--seconds: the steps of {word} run to their end, so leave it out")
            }
            () if span.is_some() && least.is_none() => {
                format!(
                    "--span is the size of iozone's or web's files or a database's rows, and {word} has none: leave it out, or name \
                     --workload iozone, web, oltp or pgbench"
                )
            }
            () if self.works_on(WorksOn::Site) && is_small => {
                format!("--span: {word} needs {SITE_IN_A_LAB} at least, which is one directory of files of all sizes")
            }
            () if self.works_on(WorksOn::Files) && is_small => {
                format!("--span: {word} needs {SMALLEST_SPAN} at least, since fewer blocks are read again and again")
            }
            () if sizes && self.sizes().is_empty() => {
                format!("--block-size: {word} makes no requests to a disk, so leave it out")
            }
            () => return Ok(()),
        };
        Err(WrongUse(problem))
    }
}

/// How long a program may take to start.
#[derive(Debug, clap::Args)]
pub(super) struct StartArgs {
    /// Seconds that a JVM, a database or a web server may take to start, before its load begins; if it takes longer the sample
    /// fails [default: as many as a slow machine needs]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=43_200))]
    start: Option<u32>,
}

impl StartArgs {
    /// These loads with so much time.
    ///
    /// # Errors
    /// [`WrongUse`] of one that starts at once.
    pub(super) fn given(&self, loads: Vec<Workload>) -> Result<Vec<Workload>, WrongUse> {
        let Some(seconds) = self.start else { return Ok(loads) };
        let given = |load: Workload| {
            load.starting_within(seconds).ok_or_else(|| {
                WrongUse(format!(
                    "--start is for a JVM, a database or a web server whose load begins at a moment, and not for {}: leave it out",
                    load.label()
                ))
            })
        };
        loads.into_iter().map(given).collect()
    }
}

/// A span of storage: 4 MiB at least, since fewer blocks are read again and again within a sample.
pub(super) fn span(text: &str) -> Result<Bytes, String> {
    span_from(SMALLEST_SPAN, text)
}

/// A span of whatever a load has; how small it may be hangs on the load ([`Chosen::check`]).
pub(super) fn span_of_any(text: &str) -> Result<Bytes, String> {
    span_from(SMALLEST_ROWS, text)
}

fn span_from(least: Bytes, text: &str) -> Result<Bytes, String> {
    let size: Bytes = text.parse().map_err(|error: nearmetal_units::ParseError| error.to_string())?;
    if size < least || size.get() % (1 << 20) != 0 {
        return Err(format!("{size} is not a span: write a multiple of 1 MiB from {least} up, such as 256MiB"));
    }
    Ok(size)
}

/// What is measured of memory, once on each side and page size.
#[derive(Debug, clap::Args)]
pub(super) struct MemoryArgs {
    /// Leave memory latency and bandwidth out
    #[arg(long)]
    no_memory: bool,
    /// Size of the memory to measure, at least 4MiB. The part that fits into caches does not count as memory
    #[arg(long, value_name = "SIZE", value_parser = memory_buffer, default_value_t = MEMORY_BUFFER, conflicts_with = "no_memory")]
    memory_buffer: Bytes,
}

/// Memory buffer: 4,096 pages beyond any TLB of today, small enough for a small guest.
const MEMORY_BUFFER: Bytes = Bytes::from_mib(64);

/// A buffer is of whole huge pages, and guests have to hold it.
fn memory_buffer(text: &str) -> Result<Bytes, String> {
    let size: Bytes = text.parse().map_err(|error: nearmetal_units::ParseError| error.to_string())?;
    match size.get() {
        bytes if bytes % (2 << 20) == 0 && (4 << 20..=64 << 30).contains(&bytes) => Ok(size),
        _ => Err(format!(
            "{size} is not the size of a buffer: write a multiple of 2 MiB from 4MiB to 64GiB, such as 64MiB"
        )),
    }
}

impl MemoryArgs {
    /// Its loads.
    pub(super) fn workloads(&self) -> Vec<Workload> {
        let Self { no_memory, memory_buffer: size } = *self;
        let mut workloads = Vec::new();
        for pages in [ProbePages::Small, ProbePages::Transparent].into_iter().filter(|_| !no_memory) {
            for pattern in [Pattern::Groups, Pattern::Page] {
                workloads.push(MemoryLatency(MemoryJob { size, pages, pattern }).into());
            }
            workloads.push(MemoryBandwidth(MemoryJob { size, pages, pattern: Pattern::Groups }).into());
        }
        workloads
    }
}

#[cfg(test)]
pub(super) mod tests {
    use clap::builder::TypedValueParser as _;

    use super::*;

    pub(in super::super) fn chosen(word: &str) -> Chosen {
        one(|_| true).parse_ref(&clap::Command::new("x"), None, word.as_ref()).unwrap()
    }

    #[test]
    fn time_to_start_is_for_what_takes_some() {
        let shape = Shape {
            size: USUAL_SIZE,
            seconds: 5,
            ramp: 1,
            span: SPAN,
            vcpus: 2,
            memory: Bytes::from_mib(512),
            nodes: 1,
            emulated: true,
            kit: None,
        };
        let given = |word: &str, start| StartArgs { start }.given(chosen(word).of(&shape));
        assert_eq!(given("jvm", None).unwrap(), chosen("jvm").of(&shape));
        assert_ne!(given("jvm", Some(30)).unwrap(), chosen("jvm").of(&shape));
        assert!(["oltp", "pgbench", "web"].iter().all(|word| given(word, Some(75)).is_ok()));
        assert_ne!(given("pgbench", Some(75)).unwrap(), chosen("pgbench").of(&shape));
        let why = given("zstd", Some(30)).unwrap_err().to_string();
        assert!(why.contains("--start is for a JVM, a database or a web server") && why.contains("zstd"), "{why}");
    }

    #[test]
    fn several_loads_need_what_any_of_them_needs() {
        let all = Chosen::together(&[chosen("random"), chosen("pgbench")]);
        assert!(all.needs_loads_image() && all.needs_postgresql() && !all.needs_kit());
        assert_eq!(all.word(), "random and pgbench");
        assert!(!Chosen::together(&[chosen("random"), chosen("zstd")]).needs_loads_image());
    }

    #[test]
    fn a_buffer_is_of_whole_huge_pages() {
        assert_eq!(memory_buffer("16MiB"), Ok(Bytes::from_mib(16)));
        for wrong in ["2MiB", "5MiB", "0", "65GiB", "much"] {
            assert!(memory_buffer(wrong).is_err(), "{wrong}");
        }
        let words = |size: u64, no_memory| MemoryArgs { no_memory, memory_buffer: Bytes::from_mib(size) }.workloads();
        assert_eq!((words(64, false).len(), words(64, true).len()), (6, 0));
        assert_ne!(words(64, false), words(16, false));
    }

    #[test]
    fn a_database_has_a_span_of_its_own_and_may_be_as_small_as_in_a_lab() {
        assert_eq!(chosen("oltp").usual_span(false), ROWS);
        assert_eq!(chosen("oltp").usual_span(true), ROWS_IN_A_LAB);
        assert_eq!(chosen("iozone-ext4").usual_span(true), SPAN);
        let least = span_of_any("1MiB").unwrap();
        assert!(chosen("oltp").check(false, false, Some(least)).is_ok());
        let why = chosen("iozone-ext4").check(false, false, Some(least)).unwrap_err().to_string();
        assert!(why.contains("4 MiB at least"), "{why}");
        assert!(chosen("iozone-ext4").check(false, false, Some(SMALLEST_SPAN)).is_ok());
        assert!(chosen("random").check(false, false, Some(SPAN)).is_err());
        assert_eq!((chosen("web").usual_span(false), chosen("web").usual_span(true)), (SITE, SITE_IN_A_LAB));
        assert!(chosen("web").check(false, false, None).is_ok());
        assert!(chosen("web").check(true, false, Some(SITE_IN_A_LAB)).is_ok());
        let why = chosen("web").check(false, false, Some(SMALLEST_SPAN)).unwrap_err().to_string();
        assert!(why.contains("web needs 5 MiB at least"), "{why}");
        assert!(span("1MiB").is_err() && span("4MiB").is_ok() && span_of_any("1536KiB").is_err());
    }
}
