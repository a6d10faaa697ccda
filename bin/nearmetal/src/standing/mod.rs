//! `nearmetal` without a command: where a machine stands, in about ten lines, and the next command.

mod in_force;
mod next;
mod text;

use std::path::Path;

use nearmetal_host::{Host, HostFs};
use nearmetal_rules::{Examination, Input, RULES, Settings, examine};

use crate::doctor::{Gathered, gather};
use crate::exit_status::{ExitStatus, WrongUse};
use crate::kvm::{self, Kvm};
use crate::printer::Printer;
use crate::state::StateArgs;

pub(crate) use in_force::{InForce, in_force, line, listed, planned, with_writer};

/// Everything that is said of a machine.
#[derive(Debug)]
struct Standing<'a> {
    /// The capture that was read; `None`: this machine.
    capture: Option<&'a Path>,
    /// The host and its domains.
    gathered: &'a Gathered,
    /// What the rules said.
    examination: &'a Examination,
    /// What the probe said of /dev/kvm; `None` where it was not run.
    kvm: Option<Kvm>,
    /// What the journal has in force; `None` for a capture, which has no journal.
    in_force: Option<InForce>,
}

impl Standing<'_> {
    fn host(&self) -> &Host {
        &self.gathered.host
    }
}

/// Says where this machine stands, or a captured one. Reads only, and needs neither root nor libvirt.
pub(crate) fn standing(capture: Option<&Path>, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    let gathered = gather(&[], capture, None).map_err(WrongUse)?;
    let input = Input { host: Some(&gathered.host), domains: &gathered.domains, settings: &Settings::default() };
    let examination = examine(&input, RULES);
    let here = capture.is_none();
    let standing = Standing {
        capture,
        gathered: &gathered,
        examination: &examination,
        kvm: if here { kvm::verdict(&gathered.host) } else { None },
        in_force: here.then(|| in_force(&StateArgs::of(None).journal(), &HostFs::live())),
    };
    printer.data(&text::text(&standing));
    gathered.problems().iter().for_each(|problem| printer.important(&format!("error: {problem}")));
    if let Some(sentence) = nearmetal_host::text::what_root_would_add(&gathered.host) {
        printer.say(&sentence);
    }
    printer.say(&next::next(&standing));
    Ok(ExitStatus::Done)
}
