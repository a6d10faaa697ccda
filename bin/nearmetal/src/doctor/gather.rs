//! The host and its domains, from the machine, from a capture, from libvirt or from files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use nearmetal_domain::{DomainFacts, DomainXml};
use nearmetal_host::{Host, HostFs, files};
use nearmetal_hypervisor::{Definition, DomainSummary, Hypervisor, HypervisorError, Libvirt};
use nearmetal_rules::{Domain, WorkloadClass};

/// Everything that is checked, and what could not be had.
#[derive(Debug)]
pub(crate) struct Gathered {
    /// The host.
    pub host: Host,
    /// Domains whose definitions could be read.
    pub domains: Vec<Domain>,
    /// Files that are no definitions, one message each.
    pub bad_files: Vec<String>,
    /// Domains of libvirt whose definitions could not be read, one message each.
    pub bad_domains: Vec<String>,
    /// Why libvirt's domains are unknown, where they were wanted.
    pub no_libvirt: Option<String>,
}

/// Reads the host, and definitions from these files, else from libvirt. A capture has no libvirt.
///
/// # Errors
/// The capture is none.
pub(crate) fn gather(
    xml: &[PathBuf],
    capture: Option<&Path>,
    class: Option<WorkloadClass>,
) -> Result<Gathered, String> {
    let tree = match capture {
        None => HostFs::live(),
        Some(directory) => HostFs::at(directory).map_err(|error| error.to_string())?,
    };
    let host = Host::read(&tree);
    let mut gathered =
        Gathered { host, domains: Vec::new(), bad_files: Vec::new(), bad_domains: Vec::new(), no_libvirt: None };
    if !xml.is_empty() {
        gathered.read_files(xml, class);
    } else if tree.is_live() {
        if let Err(error) = gathered.ask_libvirt(class) {
            gathered.no_libvirt = Some(error.to_string().lines().next().unwrap_or_default().to_owned());
        }
    }
    Ok(gathered)
}

impl Gathered {
    fn read_files(&mut self, paths: &[PathBuf], class: Option<WorkloadClass>) {
        let mut names = BTreeSet::new();
        for path in paths {
            let text = files::read_to_string(path).map_err(|error| error.to_string());
            let read = text.and_then(|text| facts(&text).map_err(|error| format!("`{}`: {error}", path.display())));
            match read {
                Ok(mut facts) => {
                    // Rules compare domains by name; two files may hold the same one.
                    if !names.insert(facts.name.clone()) {
                        facts.name = format!("{} ({})", facts.name, path.display());
                    }
                    self.domains.extend(Domain::new(Some(facts), None, class));
                }
                Err(message) => self.bad_files.push(message),
            }
        }
    }

    fn ask_libvirt(&mut self, class: Option<WorkloadClass>) -> Result<(), HypervisorError> {
        let mut libvirt = Libvirt::open(None)?;
        for summary in libvirt.domains()? {
            match definitions(&mut libvirt, &summary) {
                Ok((defined, running)) => self.domains.extend(Domain::new(defined, running, class)),
                Err(message) => self.bad_domains.push(format!("domain `{}`: {message}", summary.name)),
            }
        }
        Ok(())
    }
}

type Definitions = (Option<DomainFacts>, Option<DomainFacts>);

fn definitions(libvirt: &mut Libvirt, summary: &DomainSummary) -> Result<Definitions, String> {
    let mut read = |which| {
        let text = libvirt.domain_xml(&summary.name, which).map_err(|error| error.to_string())?;
        facts(&text)
    };
    let defined = if summary.persistent { Some(read(Definition::Inactive)?) } else { None };
    let running = if summary.state.is_off() { None } else { Some(read(Definition::Live)?) };
    Ok((defined, running))
}

fn facts(text: &str) -> Result<DomainFacts, String> {
    DomainXml::parse(text).and_then(|xml| xml.facts()).map_err(|error| error.to_string())
}
