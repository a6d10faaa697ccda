//! The hosts that a command is about, and how their own nearmetal is reached.

use std::path::PathBuf;

use nearmetal_change::Reach;
use nearmetal_fleet::file::{FleetFile, HostReach};

use super::file::read_file;
use crate::exit_status::WrongUse;
use crate::printer::Printer;

/// Which hosts, and where they keep images.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct HostArgs {
    /// All hosts of this fleet file that nearmetal reaches over ssh, and this machine if it is in it
    #[arg(long, value_name = "FILE")]
    fleet: Option<PathBuf>,
    /// A host, as ssh takes it; may be repeated, and adds to those of the fleet
    #[arg(long = "host", value_name = "[USER@]NAME")]
    hosts: Vec<String>,
    /// Where images are on each host
    #[arg(long, value_name = "DIR", default_value = nearmetal_image::DIRECTORY)]
    pub(crate) directory: PathBuf,
}

/// One host.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// Its name in the fleet, or as ssh takes it.
    pub(crate) name: String,
    /// How commands are run there.
    pub(crate) reach: Reach,
}

impl HostArgs {
    /// The hosts in the order of the fleet file, then those named; `None`: what is wrong with the fleet file was said.
    ///
    /// # Errors
    /// A host is named twice.
    pub(crate) fn targets(&self, printer: &mut Printer) -> Result<Option<Vec<Target>>, WrongUse> {
        let file = match &self.fleet {
            Some(path) => match read_file(path, printer) {
                Some(file) => Some(file),
                None => return Ok(None),
            },
            None => None,
        };
        let mut targets = targets_of(file.as_ref(), &self.hosts)?;
        targets.retain(|target| {
            let reached = !matches!(target.reach, Reach::Nowhere { .. });
            if !reached {
                let name = &target.name;
                printer.important(&format!(
                    "host `{name}` is left out: nothing can run there (no `ssh` in the fleet file)"
                ));
            }
            reached
        });
        Ok(Some(targets))
    }

    /// As [`HostArgs::targets`]; this machine if none is named.
    pub(crate) fn targets_or_here(&self, printer: &mut Printer) -> Result<Option<Vec<Target>>, WrongUse> {
        if self.fleet.is_none() && self.hosts.is_empty() {
            return Ok(Some(vec![this_machine()]));
        }
        self.targets(printer)
    }
}

/// This machine, where no host is named.
pub(crate) fn this_machine() -> Target {
    Target { name: "this machine".to_owned(), reach: Reach::Local }
}

/// The hosts of a fleet file in its order, then those named. Those where nothing can run are among them.
///
/// # Errors
/// A host is named twice.
pub(crate) fn targets_of(file: Option<&FleetFile>, named: &[String]) -> Result<Vec<Target>, WrongUse> {
    let hosts = file.into_iter().flat_map(|file| &file.hosts);
    let mut targets: Vec<Target> =
        hosts.map(|host| Target { name: host.name.clone(), reach: reach_of(&host.reach) }).collect();
    for name in named {
        let reach = Reach::Ssh { destination: name.clone(), command: None };
        if targets.iter().any(|target| target.reach == reach) {
            return Err(WrongUse(format!("host `{name}` is named twice: name it once")));
        }
        targets.push(Target { name: name.clone(), reach });
    }
    Ok(targets)
}

/// How commands are run on a host of a fleet file.
pub(crate) fn reach_of(reach: &HostReach) -> Reach {
    match reach {
        HostReach::Local => Reach::Local,
        HostReach::Ssh { destination, command } => {
            Reach::Ssh { destination: destination.clone(), command: command.clone() }
        }
        HostReach::Libvirt(uri) => Reach::Nowhere { known_by: format!("libvirt at {uri}") },
        HostReach::Capture(path) => Reach::Nowhere { known_by: format!("the capture {}", path.display()) },
    }
}
