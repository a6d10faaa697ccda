//! Runs all rules over every domain XML below a directory: what is found how often, what cannot be read, what panics.
//!
//! `cargo run -p nearmetal-rules --example corpus -- DIRECTORY [--show RULE] [--class CLASS] [--live]`:
//! `--show` prints the findings of one rule with their files, `--class` takes every domain as one of that class instead of
//! guessing, `--live` takes this machine as the host instead of a made-up one. libvirt's own test data (`tests/qemuxmlconfdata` of its source) is a good corpus: it has what no fixture has thought of.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people who write rules")]

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use nearmetal_domain::{DomainError, DomainXml};
use nearmetal_host::files::{self, FileError};
use nearmetal_host::synthetic::{Numbering, Synthetic};
use nearmetal_host::{Host, HostFs, Setting};
use nearmetal_rules::{Domain, Finding, Input, RULES, Settings, WorkloadClass, examine};
use nearmetal_units::{Bytes, PageSize};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (mut directory, mut show, mut class, mut live) = (None, None, None, false);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--show" => show = arguments.next(),
            "--class" => {
                let word = arguments.next().unwrap_or_default();
                class = word.parse().ok();
                if class.is_none() {
                    eprintln!("error: no class is called `{word}`");
                    return ExitCode::from(2);
                }
            }
            "--live" => live = true,
            _ => directory = Some(PathBuf::from(argument)),
        }
    }
    let Some(directory) = directory else {
        eprintln!("error: name the directory with the definitions");
        return ExitCode::from(2);
    };
    let mut paths = Vec::new();
    if let Err(error) = definitions(&directory, &mut paths) {
        eprintln!("error: {error}");
        return ExitCode::from(3);
    }
    let tally = Tally::of(&paths, class, show.as_deref(), &if live { Host::read(&HostFs::live()) } else { host() });
    tally.print();
    if tally.panics.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// XML files below a directory, in the order of their names.
fn definitions(directory: &Path, found: &mut Vec<PathBuf>) -> Result<(), FileError> {
    for path in files::list(directory)? {
        if path.is_dir() {
            definitions(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "xml") {
            found.push(path);
        }
    }
    Ok(())
}

#[derive(Default)]
struct Tally {
    read: usize,
    /// Files with another root than `<domain>`.
    others: usize,
    refused: Vec<String>,
    panics: Vec<String>,
    clean: usize,
    by_rule: BTreeMap<String, usize>,
}

impl Tally {
    fn of(paths: &[PathBuf], class: Option<WorkloadClass>, show: Option<&str>, host: &Host) -> Self {
        let mut tally = Self::default();
        for path in paths {
            let name = path.display().to_string();
            let text = match files::read_to_string(path) {
                Ok(text) => text,
                Err(error) => {
                    tally.refused.push(error.to_string());
                    continue;
                }
            };
            if !text.contains("<domain ") {
                tally.others += 1;
                continue;
            }
            match catch_unwind(AssertUnwindSafe(|| findings(&text, class, host))) {
                Err(_) => tally.panics.push(name),
                Ok(Err(error)) => tally.refused.push(format!("{name}: {error}")),
                Ok(Ok(findings)) => tally.count(&name, &findings, show),
            }
        }
        tally
    }

    fn count(&mut self, name: &str, findings: &[Finding], show: Option<&str>) {
        self.read += 1;
        self.clean += usize::from(findings.is_empty());
        for finding in findings {
            *self.by_rule.entry(finding.rule.clone()).or_default() += 1;
            if show == Some(finding.rule.as_str()) {
                println!("{name}: {}", finding.evidence());
            }
        }
    }

    fn print(&self) {
        for line in &self.refused {
            println!("refused: {line}");
        }
        for name in &self.panics {
            println!("PANIC: {name}");
        }
        let (refused, panics) = (self.refused.len(), self.panics.len());
        println!("{} definitions read, {} of them without a finding", self.read, self.clean);
        println!("{refused} refused, {panics} panics, {} files of another kind", self.others);
        for rule in RULES {
            println!("{:>6} {:<7} {}", self.by_rule.get(rule.id).unwrap_or(&0), rule.severity.as_str(), rule.id);
        }
    }
}

fn findings(text: &str, class: Option<WorkloadClass>, host: &Host) -> Result<Vec<Finding>, DomainError> {
    let facts = DomainXml::parse(text)?.facts()?;
    let domains: Vec<Domain> = Domain::new(Some(facts), None, class).into_iter().collect();
    let settings = Settings::default();
    Ok(examine(&Input { host: Some(host), domains: &domains, settings: &settings }, RULES).findings)
}

/// Two packages of 16 cores with two threads, large enough for most definitions; settings as a kernel comes.
fn host() -> Host {
    let machine = Synthetic::new().packages(2).cores_per_node(16).threads(2).numbering(Numbering::Split);
    let machine = machine.memory_per_node(Bytes::from_mib(256 << 10));
    let machine = machine.pool(PageSize::HUGE_2M, 32_768).pool(PageSize::HUGE_1G, 64);
    let mut host = machine.nvme(0).network(0, 8, 8).build();
    let setting = |(name, value): (&str, &str)| Setting { name: name.to_owned(), value: value.to_owned() };
    host.system.module_parameters =
        [("kvm.halt_poll_ns", "200000"), ("kvm_intel.enable_apicv", "Y"), ("kvm_intel.ept", "Y")].map(setting).to_vec();
    host
}
