//! Job files in, report out. Pure, and nothing is invented: what no file says stays unknown.

use nearmetal_change::HostIdentity;
use nearmetal_domain::{DomainFacts, DomainXml};
use nearmetal_host::Host;
use nearmetal_place::Placement;
use nearmetal_report::papers;
use nearmetal_report::view::{Environment, JobReport, QuickMode, REPORT_SCHEMA, SliceView};
use nearmetal_results::{Outcome, Results};

use super::error::{JobError, short};
use super::files::{HOST_AFTER, HOST_BEFORE, JobFiles, PLAN, RESULTS, ROLLBACK, VERIFICATION};
use super::manifest::Manifest;
use super::{arms, checks, comparisons, costs, guest, memory, metrics, plan, provenance, slice};

/// Makes the report of one guest of a job. `domain` is needed only where the plan places several and none was measured.
///
/// # Errors
/// Files that do not belong together, or a domain XML that cannot be read.
pub(crate) fn assemble(job: &JobFiles, domain: Option<&str>) -> Result<JobReport, JobError> {
    let results = job.results.as_ref();
    let index = choose(job, domain)?;
    let (change, placement) = (&job.plan.domains[index], &job.plan.plan.placements[index]);
    let verification = job.verification.iter().find(|found| found.guest == change.name);
    if let (None, Some(other)) = (verification, job.verification.first()) {
        let problem = format!("`{}` was planned, and `{}` read back", short(&change.name), short(&other.guest));
        return Err(JobError::Disagree { left: PLAN, right: VERIFICATION, problem });
    }
    // A domain that was made has no form it was found in: there is no slice of it then, and nothing it was before.
    let mut before = match change.is_new() {
        true => definition(&change.xml_after, index, "xml_after")?,
        false => definition(&change.xml_before, index, "xml_before")?,
    };
    let mut after = definition(&change.xml_after, index, "xml_after")?;
    for facts in [&mut before, &mut after] {
        follow_links(facts, placement);
    }
    let environment = environment(job)?;
    let lab = matches!(environment, Environment::Lab { .. });
    let host = job.host_before.as_ref().or(job.host_after.as_ref()).cloned().unwrap_or_else(unknown_host);
    let shown = results.map(metrics::shown).unwrap_or_default();
    let manifest = job.manifest.clone();
    let created = results.map_or(&job.plan.created, |results| &results.created);
    let title = format!("{} on {}", change.name, host.system.hostname.as_deref().unwrap_or(&job.plan.host.hostname));
    let quick =
        manifest.as_ref().is_some_and(|manifest| manifest.quick) || results.is_some_and(|results| results.quick);
    let shortened = manifest.as_ref().map(|manifest| manifest.shortened.clone()).unwrap_or_default();
    let at = |moment: Option<&Host>, facts: &DomainFacts| -> Option<SliceView> {
        let host = moment?;
        Some(match slice::process(host, &change.name, &change.uuid) {
            Some(guest) => slice::running(host, guest, facts),
            None => slice::defined(host, facts),
        })
    };
    let seen = verification.and_then(|found| found.guest_view.as_ref());
    let mut report = JobReport {
        schema: REPORT_SCHEMA.to_owned(),
        title: manifest.as_ref().map_or(title, |manifest| manifest.title.clone()),
        created: manifest.as_ref().map_or(created, |manifest| &manifest.created).clone(),
        nearmetal_version: results.map_or(&job.plan.nearmetal, |results| &results.version).clone(),
        environment,
        sample_data: manifest.as_ref().is_some_and(|manifest| manifest.sample_data),
        quick: quick.then_some(QuickMode { shortened }),
        host_after: job.host_after.clone(),
        guest: guest::card(&change.name, &change.uuid, &before, &after, &host),
        slice_before: at(job.host_before.as_ref().filter(|_| !change.is_new()), &before).unwrap_or_default(),
        slice_after: at(job.host_after.as_ref(), &after).unwrap_or_default(),
        plan: Some(plan::view(&job.plan, placement)),
        diff: plan::difference(change),
        verification: verification.map(checks::host).unwrap_or_default(),
        guest_view: verification.map(checks::guest).unwrap_or_default(),
        metrics: shown.iter().map(|metric| metric.view.clone()).collect(),
        headline_metric: results.and_then(|results| metrics::headline(results, &shown)),
        arms: results.map(|results| arms::views(results, Some(placement))).transpose()?.unwrap_or_default(),
        incomplete: results.map(arms::incomplete).unwrap_or_default(),
        comparisons: results.map(|results| comparisons::views(results, &shown)).transpose()?.unwrap_or_default(),
        race: None,
        together: None,
        by_nodes: None,
        tiles: None,
        tenants: Vec::new(),
        samples: results.map(|results| comparisons::samples(results, &shown)).unwrap_or_default(),
        noise_floors: results.map(|results| comparisons::floors(results, &shown)).unwrap_or_default(),
        costs: results.map(costs::lines).unwrap_or_default(),
        lifts: results.map(costs::lifts).unwrap_or_default(),
        memory: results.map(|results| memory::table(results, &host, lab)).transpose()?.flatten(),
        papers: Vec::new(),
        provenance: provenance::facts(&host, &job.plan, seen, results),
        texts: provenance::texts(change, results),
        stages: manifest.as_ref().map(|manifest| manifest.stages.clone()).unwrap_or_default(),
        rolled_back: job.rollback.as_ref().and_then(checks::rollback),
        reproduce: manifest.as_ref().map(|manifest| manifest.reproduce.clone()).unwrap_or_default(),
        caveats: caveats(job, &host),
        host: Some(host),
    };
    // Figures that nobody measured have none to stand beside.
    if !report.comparisons.is_empty() {
        report.papers = papers::beside(&report);
    }
    Ok(report)
}

/// Which of the plan's domains the report is about: the one asked for, the one measured, or the only one.
fn choose(job: &JobFiles, domain: Option<&str>) -> Result<usize, JobError> {
    let names: Vec<&str> = job.plan.domains.iter().map(|change| change.name.as_str()).collect();
    let measured = job.results.as_ref().map(Results::guest);
    let position = |wanted: &str| names.iter().position(|name| *name == wanted);
    let known = || names.iter().map(|name| format!("`{}`", short(name))).collect::<Vec<_>>().join(", ");
    match (domain, measured) {
        (Some(wanted), _) if position(wanted).is_none() => {
            Err(JobError::NoSuchDomain { wanted: short(wanted), known: known() })
        }
        (Some(wanted), Some(measured)) if wanted != measured => {
            Err(JobError::NotMeasured { wanted: short(wanted), measured: short(measured) })
        }
        (Some(wanted), _) => position(wanted).ok_or(JobError::NoDomain),
        (None, Some(measured)) => position(measured).ok_or_else(|| JobError::Disagree {
            left: PLAN,
            right: RESULTS,
            problem: format!("`{}` was measured, and planned were: {}", short(measured), known()),
        }),
        (None, None) => match names.len() {
            0 => Err(JobError::NoDomain),
            1 => Ok(0),
            _ => Err(JobError::WhichDomain { known: known() }),
        },
    }
}

fn definition(xml: &str, index: usize, field: &str) -> Result<DomainFacts, JobError> {
    let wrap = |source| JobError::Xml { file: PLAN.to_owned(), field: format!("domains[{index}].{field}"), source };
    DomainXml::parse(xml).and_then(|xml| xml.facts()).map_err(wrap)
}

/// Disks that the domain names by links get the kernel's names they had when the plan was made.
fn follow_links(facts: &mut DomainFacts, placement: &Placement) {
    for planned in &placement.disks {
        let disk = facts.disks.iter_mut().find(|disk| disk.target == planned.target && disk.kind == "block");
        if let (Some(disk), Some(name)) = (disk, &planned.block_device) {
            disk.source = Some(format!("/dev/{name}"));
        }
    }
}

/// Silicon or lab, as the job or its measurement says; both must say the same.
fn environment(job: &JobFiles) -> Result<Environment, JobError> {
    let of_job = job.manifest.as_ref().map(|manifest| &manifest.environment);
    let of_results = job.results.as_ref().map(|results| &results.environment);
    if let (Some(left), Some(right)) = (of_job, of_results) {
        if left != right {
            let name = |environment: &nearmetal_results::Environment| match environment {
                nearmetal_results::Environment::Silicon => "silicon".to_owned(),
                nearmetal_results::Environment::Lab { machine } => format!("the lab machine `{}`", short(machine)),
            };
            let problem = format!("one says {}, the other {}", name(left), name(right));
            return Err(JobError::Disagree { left: Manifest::FILE, right: RESULTS, problem });
        }
    }
    Ok(of_job.or(of_results).map_or(Environment::Silicon, described))
}

/// Where figures come from, and what follows from it for them.
pub(super) fn described(environment: &nearmetal_results::Environment) -> Environment {
    match environment {
        nearmetal_results::Environment::Lab { machine } => Environment::Lab {
            machine: machine.clone(),
            note:
                "The lab's clock is emulated. Ratios between its arms show decisions and the instructions they cost; \
                   none of its figures is one of silicon."
                    .to_owned(),
        },
        nearmetal_results::Environment::Silicon => Environment::Silicon,
    }
}

/// A host of which nothing is known: a job without `inspect` still has a plan to show.
pub(super) fn unknown_host() -> Host {
    Host { source: "unknown".to_owned(), ..Host::default() }
}

/// The job's own caveats, the measurement's, and what this directory lacks.
fn caveats(job: &JobFiles, host: &Host) -> Vec<String> {
    let mut caveats: Vec<String> = Vec::new();
    let own = job.manifest.iter().flat_map(|manifest| &manifest.caveats);
    for caveat in own.chain(job.results.iter().flat_map(|results| &results.caveats)) {
        if !caveats.contains(caveat) {
            caveats.push(caveat.clone());
        }
    }
    caveats.extend(job.results.as_ref().and_then(failures));
    let mut missing = |absent: bool, file: &str, means: &str| {
        caveats.extend(absent.then(|| format!("The job has no `{file}`: {means}")));
    };
    missing(job.host_before.is_none(), HOST_BEFORE, "what the VM occupied as found is unknown");
    missing(job.host_after.is_none(), HOST_AFTER, "what the VM occupies after the change is unknown");
    missing(job.verification.is_empty(), VERIFICATION, "nothing was read back, and the plan is not proven");
    missing(job.results.is_none(), RESULTS, "nothing was measured");
    missing(job.rollback.is_none(), ROLLBACK, "whether the change can be taken back was not tried");
    let unsaid = job.manifest.is_none() && job.results.is_none();
    missing(unsaid, Manifest::FILE, "whether the machine is silicon or a lab is unknown");
    let described = job.host_before.is_some() || job.host_after.is_some();
    if described && HostIdentity::of(host).fingerprint != job.plan.host.fingerprint {
        caveats.push(format!(
            "The plan was made for a host of another shape (`{}`, {}) than the one inspected",
            job.plan.host.hostname,
            job.plan.host.short()
        ));
    }
    if job.host_before.as_ref().is_some_and(|host| !host.denied.is_empty()) {
        caveats.push("The host was inspected without root: what only root may read is unknown".to_owned());
    }
    caveats
}

/// Runs that failed are left out of every figure, and named.
pub(super) fn failures(results: &Results) -> Option<String> {
    let failed: Vec<String> = results
        .runs
        .iter()
        .filter_map(|run| match &run.outcome {
            Outcome::Failed { why } => {
                Some(format!("{} in arm {} ({})", run.workload.id(), results.title(&run.arm), short(why)))
            }
            Outcome::Measured { .. } => None,
        })
        .collect();
    let first = failed.first()?;
    let more = if failed.len() > 1 { ", and others" } else { "" };
    Some(format!("{} of {} runs failed and are in no figure: {first}{more}", failed.len(), results.runs.len()))
}
