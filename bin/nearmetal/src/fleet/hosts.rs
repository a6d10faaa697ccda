//! The hosts of a fleet as they are now: their hardware, who owns what of it, and the domains that are defined there.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, anyhow};
use nearmetal_change::{DomainInput, Reach};
use nearmetal_host::Host;
use nearmetal_host::ledger::{self, Ledger};
use nearmetal_hypervisor::{Definition, Hypervisor, Libvirt};

use super::there;
use crate::printer::Printer;
use crate::source::{Source, SourceArgs};

/// Hosts read at a time: each is a process of ssh, and most of the time is waiting.
const AT_ONCE: usize = 16;
/// The URI of libvirt on a host that is reached over ssh.
const LOCAL_URI: &str = "qemu:///system";

/// A host to read.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// Its name in the fleet.
    pub(crate) name: String,
    /// How commands are run there.
    pub(crate) reach: Reach,
    /// What it is read from, where that is not `reach`.
    pub(crate) source: SourceArgs,
}

/// A host, read.
#[derive(Debug)]
pub(crate) struct ReadHost {
    /// Its name in the fleet.
    pub(crate) name: String,
    /// How commands are run there.
    pub(crate) reach: Reach,
    /// What it is.
    pub(crate) host: Host,
    /// Who owns what.
    pub(crate) ledger: Ledger,
    /// Its domains; or why they are not known.
    pub(crate) domains: Result<Vec<DomainInput>, String>,
    /// What its source cannot say.
    pub(crate) unknown: Option<String>,
}

/// Reads all hosts, several at a time, and gives them in the order asked.
///
/// # Errors
/// The first host that cannot be read: a plan without it would be another fleet's.
pub(crate) fn read(wanted: &[Wanted], printer: &mut Printer) -> anyhow::Result<Vec<ReadHost>> {
    let bar = printer.progress(wanted.len() as u64, "reading hosts");
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<Option<anyhow::Result<ReadHost>>>> = Mutex::new(wanted.iter().map(|_| None).collect());
    thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(wanted.len()) {
            scope.spawn(|| {
                while let Some((at, one)) = {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    wanted.get(at).map(|one| (at, one))
                } {
                    let host = read_one(one).with_context(|| format!("host `{}`", one.name));
                    if let Ok(mut done) = done.lock() {
                        done[at] = Some(host);
                    }
                    bar.inc(1);
                }
            });
        }
    });
    bar.finish_and_clear();
    let done = done.into_inner().map_err(|_| anyhow!("reading a host was interrupted"))?;
    done.into_iter().map(|host| host.unwrap_or_else(|| Err(anyhow!("reading a host was interrupted")))).collect()
}

fn read_one(wanted: &Wanted) -> anyhow::Result<ReadHost> {
    let mut source = match &wanted.reach {
        Reach::Ssh { destination, command } => {
            let fs = crate::remote::over_ssh(destination, command.as_deref().unwrap_or("ssh"))?;
            Source { fs, unknown: None, libvirt: None }
        }
        _ => wanted.source.open("ssh")?,
    };
    let host = Host::read(&source.fs);
    // A description of the hardware alone knows no processes: who owns what is then unknown, and taken as nobody.
    let ledger = ledger::read(&source.fs, &host);
    let domains = domains(wanted, &mut source);
    Ok(ReadHost {
        name: wanted.name.clone(),
        reach: wanted.reach.clone(),
        host,
        ledger,
        domains,
        unknown: source.unknown,
    })
}

/// Definitions by libvirt's word: this machine's, a URI's, or by the helper that runs on the other machine.
fn domains(wanted: &Wanted, source: &mut Source) -> Result<Vec<DomainInput>, String> {
    let mut libvirt = match (source.libvirt.take(), &wanted.reach) {
        (Some(libvirt), _) => libvirt,
        (None, Reach::Local) => Libvirt::open(None).map_err(first_line)?,
        (None, reach @ Reach::Ssh { .. }) => {
            let words = there::words(reach, "nearmetal-libvirt", &[])?;
            Libvirt::with_program(words, LOCAL_URI).map_err(first_line)?
        }
        (None, Reach::Nowhere { known_by }) => return Err(format!("{known_by} holds no definitions")),
    };
    let mut inputs = Vec::new();
    for summary in libvirt.domains().map_err(first_line)? {
        // A transient domain has no stored definition: it is on the host like any other process.
        if !summary.persistent {
            continue;
        }
        let runs = !summary.state.is_off();
        let name = summary.name;
        let inactive_xml = libvirt.domain_xml(&name, Definition::Inactive).map_err(first_line)?;
        let live = if runs { Some(libvirt.domain_xml(&name, Definition::Live).map_err(first_line)?) } else { None };
        inputs.push(DomainInput { name, inactive_xml, live_xml: live });
    }
    Ok(inputs)
}

fn first_line(error: impl std::fmt::Display) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}
