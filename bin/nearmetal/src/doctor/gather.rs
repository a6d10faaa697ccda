//! The host and its domains, from the machine, from a capture, from libvirt or from files.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use nearmetal_change::{Journal, Left};
use nearmetal_domain::{DomainFacts, DomainXml};
use nearmetal_host::{Host, HostFs, files};
use nearmetal_hypervisor::{Definition, DomainSummary, Hypervisor, HypervisorError, Libvirt};
use nearmetal_rules::{Domain, Finding, Scope, WorkloadClass};

use super::Images;
use crate::live;

/// Everything that is checked, and what could not be had.
#[derive(Debug)]
pub(crate) struct Gathered {
    /// The host.
    pub host: Host,
    /// Domains whose definitions could be read.
    pub domains: Vec<Domain>,
    /// What each of them starts with next time, as written, with its secrets; a transient one has none.
    pub definitions: BTreeMap<String, String>,
    /// Files that are no definitions, one message each.
    pub bad_files: Vec<String>,
    /// Domains of libvirt whose definitions could not be read.
    pub bad_domains: Vec<BadDomain>,
    /// Why no domain was checked, where no files of definitions were given.
    pub domains_unknown: Option<String>,
    /// What plans in force leave, by domain; what they leave of the host under the empty name.
    pub left: BTreeMap<String, Vec<Left>>,
}

/// A domain of libvirt whose definition could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BadDomain {
    /// Its name.
    pub name: String,
    /// Whether it runs.
    pub runs: bool,
    /// Why it could not be read.
    pub problem: String,
}

impl fmt::Display for BadDomain {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "domain `{}`: {}", self.name, self.problem)
    }
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
    gather_again(xml, capture, class, &mut Images::default())
}

/// The same, with what is known of images already.
///
/// # Errors
/// As [`gather`].
pub(crate) fn gather_again(
    xml: &[PathBuf],
    capture: Option<&Path>,
    class: Option<WorkloadClass>,
    images: &mut Images,
) -> Result<Gathered, String> {
    let tree = match capture {
        None => HostFs::live(),
        Some(path) => nearmetal_capture::open(path).map_err(|error| error.to_string())?,
    };
    let host = Host::read(&tree);
    let mut gathered = Gathered::of(host);
    if !xml.is_empty() {
        gathered.read_files(xml, class);
    } else if tree.is_live() {
        let asked = Libvirt::open(None).and_then(|mut libvirt| gathered.ask_libvirt(&mut libvirt, class));
        if let Err(error) = asked {
            gathered.domains_unknown = Some(error.to_string().lines().next().unwrap_or_default().to_owned());
        }
    } else {
        gathered.domains_unknown = Some("a capture holds no definitions; `--xml FILE` adds them".to_owned());
    }
    // Images of a captured machine lie there.
    if tree.is_live() {
        images.look(&mut gathered.domains);
        live::complete(&mut gathered.host, &gathered.domains);
    }
    Ok(gathered)
}

impl Gathered {
    /// A host, and no domain yet.
    pub(crate) fn of(host: Host) -> Self {
        Self {
            host,
            domains: Vec::new(),
            definitions: BTreeMap::new(),
            bad_files: Vec::new(),
            bad_domains: Vec::new(),
            domains_unknown: None,
            left: BTreeMap::new(),
        }
    }

    /// What could not be read, one message each.
    pub(crate) fn problems(&self) -> Vec<String> {
        self.bad_files.iter().cloned().chain(self.bad_domains.iter().map(ToString::to_string)).collect()
    }

    /// Whether a domain is there whose definition could not be read.
    pub(crate) fn is_bad(&self, domain: &str) -> bool {
        self.bad_domains.iter().any(|bad| bad.name == domain)
    }

    /// Asks the journal what the plans of these domains leave. Without the right to read it nobody can tell, and findings
    /// are shown without that.
    pub(crate) fn ask_plans(&mut self, journal: &Journal) {
        for domain in &self.domains {
            let Ok(Some(plan)) = journal.plan_in_force(&domain.name) else { continue };
            let own = plan.domains.iter().filter(|change| change.name == domain.name);
            self.left.entry(domain.name.clone()).or_default().extend(own.flat_map(|change| change.left.clone()));
            self.left.entry(String::new()).or_default().extend(plan.left);
        }
    }

    /// Why plans in force leave what a finding is about.
    pub(crate) fn left_by_plan(&self, finding: &Finding) -> Vec<&Left> {
        let domain = match &finding.scope {
            Scope::Host => "",
            Scope::Domain { name, .. } => name.as_str(),
        };
        let is_it =
            |left: &&Left| left.rule == finding.rule && finding.objects.iter().any(|object| object.what == left.what);
        let mut left: Vec<&Left> = self.left.get(domain).into_iter().flatten().filter(is_it).collect();
        left.dedup();
        left
    }

    fn read_files(&mut self, paths: &[PathBuf], class: Option<WorkloadClass>) {
        let mut read = Vec::new();
        for path in paths {
            let text = files::read_to_string(path).map_err(|error| error.to_string());
            let read_facts = text.and_then(|text| {
                facts(&text).map(|facts| (facts, text)).map_err(|error| format!("`{}`: {error}", path.display()))
            });
            match read_facts {
                Ok((facts, text)) => read.push((path, facts, text)),
                Err(message) => self.bad_files.push(message),
            }
        }
        let mut count: BTreeMap<String, usize> = BTreeMap::new();
        read.iter().for_each(|(_, facts, _)| *count.entry(facts.name.clone()).or_default() += 1);
        for (path, mut facts, text) in read {
            // Rules compare domains by name: where several files hold the same one, each is called by its file too.
            if count.get(&facts.name).is_some_and(|count| *count > 1) {
                facts.name = format!("{} ({})", facts.name, path.display());
            }
            self.definitions.insert(facts.name.clone(), text);
            self.domains.extend(Domain::new(Some(facts), None, class));
        }
    }

    fn ask_libvirt(
        &mut self,
        libvirt: &mut dyn Hypervisor,
        class: Option<WorkloadClass>,
    ) -> Result<(), HypervisorError> {
        live::tell_versions(&mut self.host, libvirt.versions()?);
        for summary in libvirt.domains()? {
            match definitions(libvirt, &summary) {
                Ok((stored, running)) => {
                    let defined = stored.map(|(facts, text)| {
                        self.definitions.insert(summary.name.clone(), text);
                        facts
                    });
                    let starts_with_host = summary.autostart;
                    let domain = Domain::new(defined, running, class);
                    self.domains.extend(domain.map(|domain| Domain { starts_with_host, ..domain }));
                }
                Err(problem) => {
                    let (name, runs) = (summary.name.clone(), !summary.state.is_off());
                    self.bad_domains.push(BadDomain { name, runs, problem });
                }
            }
        }
        Ok(())
    }
}

/// The stored definition with its text, and the one in force.
type Definitions = (Option<(DomainFacts, String)>, Option<DomainFacts>);

fn definitions(libvirt: &mut dyn Hypervisor, summary: &DomainSummary) -> Result<Definitions, String> {
    let mut read = |which| {
        let text = libvirt.domain_xml(&summary.name, which).map_err(|error| error.to_string())?;
        Ok::<_, String>((facts(&text)?, text))
    };
    let defined = if summary.persistent { Some(read(Definition::Inactive)?) } else { None };
    let running = if summary.state.is_off() { None } else { Some(read(Definition::Live)?.0) };
    Ok((defined, running))
}

fn facts(text: &str) -> Result<DomainFacts, String> {
    DomainXml::parse(text).and_then(|xml| xml.facts()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use nearmetal_host::synthetic::Synthetic;
    use nearmetal_hypervisor::Fake;

    use super::*;

    #[test]
    fn a_running_domain_has_both_its_definitions_and_a_bad_one_does_not_hide_the_others() {
        let xml = |name: &str, memory: &str| {
            format!("<domain type='kvm'><name>{name}</name><memory unit='{memory}'>1</memory><vcpu>1</vcpu></domain>")
        };
        let fake = Fake::new("<capabilities/>").with_domain(&xml("off", "GiB"));
        let mut fake = fake.with_running_domain(&xml("on", "GiB")).with_domain(&xml("bad", "pages"));
        let host = Synthetic::new().build();
        let mut gathered = Gathered::of(host);
        gathered.ask_libvirt(&mut fake, Some(WorkloadClass::Density)).unwrap();
        let state = |name: &str| {
            let domain = gathered.domains.iter().find(|domain| domain.name == name).unwrap();
            (domain.defined.is_some(), domain.running.is_some(), domain.class)
        };
        assert_eq!(state("off"), (true, false, WorkloadClass::Density));
        assert_eq!(state("on"), (true, true, WorkloadClass::Density));
        assert_eq!(gathered.definitions.keys().collect::<Vec<_>>(), ["off", "on"]);
        let system = &gathered.host.system;
        assert_eq!((system.libvirt_version.as_deref(), system.qemu_version.as_deref()), (Some("9.0.0"), Some("7.2.0")));
        assert!(matches!(&gathered.problems()[..], [one] if one.starts_with("domain `bad`: ")), "{gathered:?}");
        assert!(gathered.is_bad("bad") && !gathered.is_bad("on") && !gathered.bad_domains[0].runs);
        assert_eq!(fake.changes().len(), 0);
    }

    #[test]
    fn what_libvirt_starts_with_the_host_is_known() {
        let xml = |name: &str| {
            format!("<domain type='kvm'><name>{name}</name><memory unit='GiB'>1</memory><vcpu>1</vcpu></domain>")
        };
        let mut fake = Fake::new("<capabilities/>").with_domain(&xml("early")).with_domain(&xml("late"));
        fake.set_autostart("early", true).unwrap();
        let mut gathered = Gathered::of(Synthetic::new().build());
        gathered.ask_libvirt(&mut fake, None).unwrap();
        let starts = gathered.domains.iter().map(|domain| (domain.name.as_str(), domain.starts_with_host));
        assert_eq!(starts.collect::<Vec<_>>(), [("early", true), ("late", false)]);
    }
}
