//! The parsers behind the model, one by one, for `examples/fuzz.rs`. Only with the feature `fuzzing`; no interface.

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
        // As HostFs: what is no text never reaches a parser of text.
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
        }),
        Target::text("hexadecimal number", "0x010802", |text| drop(parse::hex(text))),
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
    targets
}

/// A set that was understood means what it prints.
fn reads_back(set: Option<CpuSet>) {
    if let Some(set) = set {
        assert_eq!(set.to_string().parse::<CpuSet>().ok().as_ref(), Some(&set), "{set}");
    }
}
