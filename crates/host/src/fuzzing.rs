//! The parsers behind the model, one by one, for `examples/fuzz.rs`. Only with the feature `fuzzing`; no interface.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;

use nearmetal_units::{Bytes, CpuSet, PciAddress};

use crate::parse;

/// A parser that drops what it makes of its input.
pub type Run = Box<dyn Fn(&[u8])>;

/// One parser and an input it understands.
pub struct Target {
    /// What it parses.
    pub name: &'static str,
    /// A sound input, to be damaged.
    pub seed: Vec<u8>,
    /// Runs the parser; it must return.
    pub run: Run,
}

impl Target {
    pub(crate) fn text(name: &'static str, seed: &str, run: impl Fn(&str) + 'static) -> Self {
        // As HostFs: what is not text never reaches a parser of text.
        let run = move |bytes: &[u8]| {
            if let Ok(text) = std::str::from_utf8(bytes) {
                run(text);
            }
        };
        Self { name, seed: seed.as_bytes().to_vec(), run: Box::new(run) }
    }

    pub(crate) fn bytes(name: &'static str, seed: &[u8], run: impl Fn(&[u8]) + 'static) -> Self {
        Self { name, seed: seed.to_vec(), run: Box::new(run) }
    }
}

/// Every parser of text or bytes that a capture may hold.
pub fn targets() -> Vec<Target> {
    let mut targets = vec![
        Target::text("one line", "0-3\n", |text| drop(parse::line(text))),
        Target::text("numbers", "18446744073709551615", |text| {
            drop((parse::number(text), parse::number_u32(text), parse::index_or_none(text), parse::flag(text)));
            drop(parse::signed(text));
        }),
        Target::text("hexadecimal number", "0x010802", |text| drop(parse::hex(text))),
        Target::text("escaped name", "/vm\\040images", |text| drop(parse::unescaped(text))),
        Target::text("bracketed choice", "always [madvise] never", |text| drop(parse::bracketed(text))),
        Target::text("list of PUs", "0-3,8,16-30:2", |text| reads_back(parse::cpu_list(text).ok())),
        Target::text("list of nodes", "0-1,250-255", |text| drop(parse::node_list(text))),
        Target::text("mask of PUs", "00000001,80000003", |text| reads_back(parse::cpu_mask(text).ok())),
        Target::text("page size", "2048", |text| drop(parse::page_size_kib(text))),
        Target::text("PCI address", "0000:3b:00.1", |text| drop(text.parse::<PciAddress>())),
        Target::text("amount of memory", "512MiB", |text| drop(text.parse::<Bytes>())),
    ];
    targets.extend(crate::read::fuzz_targets());
    targets.extend(crate::guests::fuzz_targets());
    targets.extend(crate::images::fuzz_targets());
    targets.push(crate::file_locks::fuzz_target());
    targets.push(crate::uevents::fuzz_target());
    targets.push(crate::lab_counters::fuzz_target());
    targets.push(crate::lab_time_model::fuzz_target());
    targets
}

/// A set that was understood means what it prints.
fn reads_back(set: Option<CpuSet>) {
    if let Some(set) = set {
        assert_eq!(set.to_string().parse::<CpuSet>().ok().as_ref(), Some(&set), "{set}");
    }
}

/// Runs COUNT damaged inputs (the first argument, default 100000) through each target whose name contains the second
/// argument, and prints how many ran. Fails if a parser panicked.
#[allow(clippy::print_stdout, clippy::print_stderr, reason = "for programs of people who change a parser")]
pub fn campaign(targets: Vec<Target>, mut arguments: impl Iterator<Item = String>) -> ExitCode {
    let count: u64 = arguments.next().and_then(|count| count.parse().ok()).unwrap_or(100_000);
    let filter = arguments.next().unwrap_or_default();
    let mut total = 0;
    let mut failed = false;
    for target in targets.into_iter().filter(|target| target.name.contains(&filter)) {
        let start = Instant::now();
        match fuzz(&target, count) {
            Ok(()) => println!("{:24} {count:>10} inputs  {:8.1} s", target.name, start.elapsed().as_secs_f64()),
            Err(input) => {
                eprintln!("{}: failed on {:?}", target.name, String::from_utf8_lossy(&input));
                failed = true;
            }
        }
        total += count;
    }
    println!("{:24} {total:>10} inputs", "all");
    ExitCode::from(u8::from(failed))
}

/// Pieces that mean something to one parser or another.
const WORDS: [&[u8]; 24] = [
    b"0",
    b"1",
    b"-1",
    b"-",
    b",",
    b":",
    b";",
    b"\n",
    b"\t",
    b" ",
    b"\0",
    b"/",
    b"=",
    b"0x",
    b"ffffffff",
    b"4294967295",
    b"18446744073709551616",
    b"65535",
    b"65536",
    b"(",
    b")",
    b"[",
    b"]",
    b"\xff\xfe",
];

/// xorshift64*: small, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

/// The input that made the parser panic, if one did.
fn fuzz(target: &Target, count: u64) -> Result<(), Vec<u8>> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut input = target.seed.clone();
    for _ in 0..count {
        // Damage adds up, until it is time to begin anew.
        if random.below(8) == 0 || input.len() > 4 * target.seed.len() + 64 {
            input.clone_from(&target.seed);
        }
        for _ in 0..=random.below(3) {
            mutate(&mut input, &mut random);
        }
        if catch_unwind(AssertUnwindSafe(|| (target.run)(&input))).is_err() {
            return Err(input);
        }
    }
    Ok(())
}

fn mutate(input: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(input.len() + 1);
    match random.below(6) {
        0 if at < input.len() => input[at] ^= 1 << random.below(7),
        1 if at < input.len() => input[at] = random.next() as u8,
        2 => input.truncate(at),
        3 => drop(input.drain(at..(at + random.below(8)).min(input.len()))),
        4 => {
            let piece = input[at..(at + random.below(16)).min(input.len())].to_vec();
            input.splice(at..at, piece);
        }
        _ => drop(input.splice(at..at, WORDS[random.below(WORDS.len())].iter().copied())),
    }
}
