//! `nearmetal class`.

use nearmetal_domain::{DomainFacts, DomainXml, NAMESPACE};
use nearmetal_hypervisor::{Definition, Hypervisor, HypervisorError, Libvirt, Scope};
use nearmetal_rules::{WorkloadClass, class_of};

use crate::exit_status::ExitStatus;
use crate::printer::Printer;

/// Prefix of nearmetal's elements in `<metadata>`.
const PREFIX: &str = "nearmetal";

/// Show, set or clear what a domain is for
///
/// `doctor` and `plan` judge a domain by its class. If none is set, `doctor` guesses one and says why; `plan` uses
/// `general` (or --class). The classes are general, density (many guests share CPUs on purpose), throughput, latency,
/// windows and passthrough.
///
/// The class is one element in the domain's <metadata>, in the running domain and in its stored definition. libvirt sets
/// it, as `virsh metadata` does. It does not change how the guest runs. The command prints how to undo itself.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The domain
    domain: String,
    /// The class to set; without it, the command shows the present one
    class: Option<WorkloadClass>,
    /// Remove the class, so that it is guessed again
    #[arg(long, conflicts_with = "class")]
    clear: bool,
}

/// Runs the command.
pub(crate) fn class(args: Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    let result =
        Libvirt::open(None).map_err(anyhow::Error::from).and_then(|mut libvirt| match (args.class, args.clear) {
            (None, false) => show(&mut libvirt, &args.domain).map(|text| (text, None)),
            (class, _) => set(&mut libvirt, &args.domain, class),
        });
    match result {
        Ok((text, back)) => {
            printer.data(&text);
            if let Some(back) = back {
                printer.say(&format!("to undo: {back}"));
            }
            printer.say("to see what the rules ask of a guest of this class: nearmetal doctor");
            Ok(ExitStatus::Done)
        }
        Err(error) => match error.downcast_ref() {
            Some(HypervisorError::NoSuchDomain { .. }) => {
                printer.important(&format!("error: {error:#}"));
                Ok(ExitStatus::WrongUse)
            }
            _ => Err(error),
        },
    }
}

/// A domain's definitions, running first, with their words.
fn definitions(libvirt: &mut dyn Hypervisor, name: &str) -> anyhow::Result<Vec<(&'static str, DomainFacts)>> {
    let summary = libvirt.domain(name)?;
    let which =
        [("running", Definition::Live, !summary.state.is_off()), ("defined", Definition::Inactive, summary.persistent)];
    let mut found = Vec::new();
    for (word, which, _) in which.into_iter().filter(|(.., there)| *there) {
        found.push((word, DomainXml::parse(&libvirt.domain_xml(name, which)?)?.facts()?));
    }
    Ok(found)
}

fn show(libvirt: &mut dyn Hypervisor, name: &str) -> anyhow::Result<String> {
    let lines: Vec<(&str, String)> = definitions(libvirt, name)?
        .iter()
        .map(|(word, facts)| {
            let (class, reason) = class_of(facts);
            (*word, format!("{} ({reason})", class.word()))
        })
        .collect();
    Ok(match lines.as_slice() {
        [(_, running), (_, defined)] if running != defined => {
            format!("{name}: running as {running}, defined as {defined}")
        }
        [(_, class), ..] => format!("{name}: {class}"),
        [] => format!("{name}: unknown"),
    })
}

/// Sets the class or removes it, and reads it back. Gives what is in force then, and the command that takes it back; none
/// where nothing changed.
fn set(
    libvirt: &mut dyn Hypervisor,
    name: &str,
    class: Option<WorkloadClass>,
) -> anyhow::Result<(String, Option<String>)> {
    let before = definitions(libvirt, name)?;
    let wanted = class.map(WorkloadClass::word);
    if before.iter().all(|(_, facts)| facts.class.as_deref() == wanted) {
        return Ok((format!("{} already", show(libvirt, name)?), None));
    }
    let has = |word: &str| before.iter().any(|(known, _)| *known == word);
    let scope = Scope { live: has("running"), config: has("defined") };
    let element = wanted.map(|word| format!("<class>{word}</class>"));
    libvirt.set_metadata(name, NAMESPACE, PREFIX, element.as_deref(), scope)?;
    for (word, facts) in definitions(libvirt, name)? {
        if facts.class.as_deref() != wanted {
            let (found, wanted) = (facts.class.as_deref().unwrap_or("none"), wanted.unwrap_or("none"));
            anyhow::bail!("libvirt accepted the class {wanted} for `{name}`, but the {word} definition has {found}");
        }
    }
    // The stored definition outlives the other.
    let former = before.last().and_then(|(_, facts)| facts.class.as_deref());
    let back = match former.map(|word| (word, word.parse::<WorkloadClass>().ok())) {
        None => format!("nearmetal class {name} --clear"),
        Some((word, Some(_))) => format!("nearmetal class {name} {word}"),
        Some((word, None)) => format!("nearmetal class {name} --clear (it was `{word}`, an unknown class)"),
    };
    Ok((show(libvirt, name)?, Some(back)))
}

#[cfg(test)]
mod tests {
    use nearmetal_hypervisor::Fake;

    use super::*;

    fn domain(metadata: &str) -> String {
        format!("<domain type='kvm'><name>web</name>{metadata}<memory>1024</memory><vcpu>1</vcpu></domain>")
    }

    #[test]
    fn a_class_is_set_in_both_definitions_shown_and_taken_back() {
        let mut fake = Fake::new("").with_running_domain(&domain(""));
        let guess = show(&mut fake, "web").unwrap();
        assert!(guess.starts_with("web: general (guessed: "), "{guess}");
        let (text, back) = set(&mut fake, "web", Some(WorkloadClass::Latency)).unwrap();
        assert_eq!(text, "web: latency (its metadata)");
        assert_eq!(back.as_deref(), Some("nearmetal class web --clear"));
        for (_, facts) in definitions(&mut fake, "web").unwrap() {
            assert_eq!(facts.class.as_deref(), Some("latency"));
        }
        let (_, back) = set(&mut fake, "web", Some(WorkloadClass::Density)).unwrap();
        assert_eq!(back.as_deref(), Some("nearmetal class web latency"));
        let before = fake.changes().len();
        let (text, back) = set(&mut fake, "web", Some(WorkloadClass::Density)).unwrap();
        assert_eq!((text.as_str(), back), ("web: density (its metadata) already", None));
        assert_eq!(fake.changes().len(), before, "nothing to do is nothing done");
        set(&mut fake, "web", None).unwrap();
        assert_eq!(show(&mut fake, "web").unwrap(), guess);
    }

    #[test]
    fn a_domain_that_is_off_or_not_there() {
        let other = "<metadata><app:x xmlns:app='https://example.org/'>kept</app:x></metadata>";
        let mut fake = Fake::new("").with_domain(&domain(other));
        set(&mut fake, "web", Some(WorkloadClass::Windows)).unwrap();
        assert_eq!(show(&mut fake, "web").unwrap(), "web: windows (its metadata)");
        assert!(fake.domain_xml("web", Definition::Inactive).unwrap().contains("kept"));
        let missing = set(&mut fake, "db", None).unwrap_err();
        assert!(matches!(missing.downcast_ref(), Some(HypervisorError::NoSuchDomain { .. })));
    }
}
