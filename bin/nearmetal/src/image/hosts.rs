//! The hosts that a command of `nearmetal image` is about.

use std::path::PathBuf;

use nearmetal_change::Reach;
use nearmetal_fleet::file::HostReach;

use crate::exit_status::WrongUse;
use crate::fleet::file::read_file;
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
        let mut targets = Vec::new();
        if let Some(path) = &self.fleet {
            let Some(fleet) = read_file(path, printer) else { return Ok(None) };
            for host in fleet.hosts {
                let reach = match host.reach {
                    HostReach::Local => Reach::Local,
                    HostReach::Ssh { destination, command } => Reach::Ssh { destination, command },
                    HostReach::Libvirt(_) | HostReach::Capture(_) => {
                        let name = &host.name;
                        printer.important(&format!(
                            "host `{name}` is left out: nothing can run there (no `ssh` in the fleet file)"
                        ));
                        continue;
                    }
                };
                targets.push(Target { name: host.name, reach });
            }
        }
        for name in &self.hosts {
            let reach = Reach::Ssh { destination: name.clone(), command: None };
            if targets.iter().any(|target: &Target| target.reach == reach) {
                return Err(WrongUse(format!("host `{name}` is named twice: name it once")));
            }
            targets.push(Target { name: name.clone(), reach });
        }
        Ok(Some(targets))
    }

    /// As [`HostArgs::targets`]; this machine if none is named.
    pub(crate) fn targets_or_here(&self, printer: &mut Printer) -> Result<Option<Vec<Target>>, WrongUse> {
        let here = || vec![Target { name: "this machine".to_owned(), reach: Reach::Local }];
        if self.fleet.is_none() && self.hosts.is_empty() {
            return Ok(Some(here()));
        }
        self.targets(printer)
    }
}
