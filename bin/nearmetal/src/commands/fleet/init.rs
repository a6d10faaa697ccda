//! `nearmetal fleet init`.

use std::path::PathBuf;

use nearmetal_domain::{DomainFacts, DomainXml};
use nearmetal_fleet::file::{self, FoundDomain, FoundHost, HostReach};
use nearmetal_host::{Host, files};
use nearmetal_hypervisor::{Definition, Hypervisor, HypervisorError, Libvirt};

use super::found;
use crate::exit_status::ExitStatus;
use crate::printer::Printer;
use crate::source::SourceArgs;

/// Write a fleet file from the domains that exist
///
/// Asks libvirt for the domains of this machine or of another (--host), or reads definitions from files. Without libvirt,
/// as with a capture, it lists the running guests. The file is yours to edit. The command writes nothing else and never
/// overwrites a file.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    source: SourceArgs,
    /// The command that reaches the other machine, with its options; split at spaces
    #[arg(long, value_name = "COMMAND", default_value = "ssh", requires = "host")]
    ssh: String,
    /// Read a definition from this file instead of asking libvirt; may be repeated
    #[arg(long, value_name = "FILE")]
    domain_xml: Vec<PathBuf>,
    /// The host's name in the fleet file [default: its own name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Write the fleet file here [default: stdout]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn init(args: &Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    if let Some(path) = args.output.as_ref().filter(|path| path.exists()) {
        printer.important(&format!(
            "error: `{}` exists, and nearmetal does not overwrite it: name another file",
            path.display()
        ));
        return Ok(ExitStatus::WrongUse);
    }
    let mut source = match args.source.open(&args.ssh) {
        Ok(source) => source,
        Err(error) => {
            printer.important(&format!("error: {error:#}"));
            return Ok(if args.source.host.is_some() { ExitStatus::Refused } else { ExitStatus::WrongUse });
        }
    };
    let host = Host::read(&source.fs);
    let reach = reach(args);
    let name = args.name.clone().unwrap_or_else(|| found::host_name(&host, &reach));
    let pus = Some(host.online().len() as u32).filter(|count| *count > 0);
    let mut found = FoundHost { name, reach, pus, domains: Vec::new(), remarks: Vec::new() };
    if !args.domain_xml.is_empty() {
        for path in &args.domain_xml {
            match definition(path) {
                Ok(facts) => found.domains.push(found::domain(&facts, &host, false)),
                Err(message) => {
                    printer.important(&format!("error: {message}"));
                    return Ok(ExitStatus::WrongUse);
                }
            }
        }
    } else if let Err(why) = ask(args, source.libvirt.as_mut(), source.fs.is_live(), &host, &mut found) {
        let guests: Vec<FoundDomain> = host.guests.iter().filter_map(found::guest).collect();
        let remark = format!("libvirt's domains are unknown ({why}): these are the running guests");
        printer.important(&remark);
        found.remarks.push(remark);
        found.domains = guests;
    }
    let text = file::init(&[found]);
    match &args.output {
        None => printer.data(&text),
        Some(path) => {
            files::write_atomic(path, &text)?;
            printer.say(&format!("written; to check it: nearmetal fleet check {}", path.display()));
        }
    }
    Ok(ExitStatus::Done)
}

/// How the host is read again, in a fleet file's words.
fn reach(args: &Args) -> HostReach {
    match (&args.source.capture, &args.source.host) {
        // The file may lie elsewhere than where this was called.
        (Some(path), _) if args.output.as_ref().is_some_and(|output| output.components().count() > 1) => {
            HostReach::Capture(std::path::absolute(path).unwrap_or_else(|_| path.clone()))
        }
        (Some(path), _) => HostReach::Capture(path.clone()),
        (None, Some(uri)) if uri.contains("://") => HostReach::Libvirt(uri.clone()),
        (None, Some(name)) => {
            let command = Some(args.ssh.clone()).filter(|command| command != "ssh");
            HostReach::Ssh { destination: name.clone(), command }
        }
        (None, None) => HostReach::Local,
    }
}

fn definition(path: &std::path::Path) -> Result<DomainFacts, String> {
    let text = files::read_to_string(path).map_err(|error| error.to_string())?;
    let facts = DomainXml::parse(&text).and_then(|xml| xml.facts());
    facts.map_err(|error| format!("`{}`: {error}", path.display()))
}

/// The domains libvirt knows, on this machine or where `known` leads; over ssh by libvirt's own way through it. Or why
/// they are not known, in a line.
fn ask(args: &Args, known: Option<&mut Libvirt>, live: bool, host: &Host, found: &mut FoundHost) -> Result<(), String> {
    let line = |error: HypervisorError| error.to_string().lines().next().unwrap_or_default().to_owned();
    let mut own;
    let libvirt = match (known, &args.source.host) {
        (Some(libvirt), _) => libvirt,
        (None, Some(name)) if args.ssh == "ssh" => {
            own = Libvirt::open(Some(&format!("qemu+ssh://{name}/system"))).map_err(line)?;
            &mut own
        }
        (None, Some(_)) => return Err("libvirt is asked over plain ssh only: give --host a libvirt URI".to_owned()),
        (None, None) if live => {
            own = Libvirt::open(None).map_err(line)?;
            &mut own
        }
        (None, None) => return Err("a capture holds no definitions: name files with --domain-xml".to_owned()),
    };
    for summary in libvirt.domains().map_err(line)? {
        let which = if summary.persistent { Definition::Inactive } else { Definition::Live };
        let text = libvirt.domain_xml(&summary.name, which).map_err(line);
        let facts = text
            .and_then(|text| DomainXml::parse(&text).and_then(|xml| xml.facts()).map_err(|error| error.to_string()));
        match facts {
            Ok(facts) => found.domains.push(found::domain(&facts, host, !summary.state.is_off())),
            Err(error) => found.remarks.push(format!("cannot read domain {}: {error}", summary.name)),
        }
    }
    Ok(())
}
