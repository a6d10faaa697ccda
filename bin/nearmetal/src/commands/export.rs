//! `nearmetal export`.

use std::path::PathBuf;

use nearmetal_change::AnyPlan;
use nearmetal_interchange::{Engine, Options};

use crate::exit_status::{ExitStatus, WrongUse};
use crate::export_directory;
use crate::fleet::file::read_file;
use crate::printer::Printer;
use crate::style::Format;

/// Write a plan for the engine you manage your hosts with
///
/// Reads a plan of one host or of a fleet, writes files for the engine, and changes nothing else. It prints what it wrote,
/// and everything of the plan that the engine cannot express, with the reason and what to do by hand. Needs neither root
/// nor libvirt.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// The plan, from `nearmetal plan -o`
    #[arg(value_name = "PLAN")]
    plan: PathBuf,
    /// The engine
    #[arg(long, value_enum)]
    to: To,
    /// The directory to write to: new, empty, or written by an earlier export
    #[arg(long, short, value_name = "DIR")]
    output: PathBuf,
    /// The number of a VM in Proxmox VE; may be repeated. Others are numbered from 100 on
    #[arg(long, value_name = "NAME=NUMBER", value_parser = numbered)]
    vmid: Vec<(String, u32)>,
    /// The fleet file that was planned: its groups become Nova's server groups
    #[arg(long, value_name = "FILE")]
    groups: Option<PathBuf>,
    /// Output format; json lists the files and what the engine cannot express
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

const EXAMPLES: &str = "\
Examples:
  nearmetal export plan.json --to kubevirt -o manifests    a VirtualMachine for each VM
  nearmetal export plan.json --to kubevirt -o manifests --format json    what KubeVirt cannot say, for programs
  nearmetal export plan.json --to proxmox -o pve --vmid web1=107    web1 is VM 107 there
  nearmetal export plan.json --to nova -o nova --groups fleet.toml    with the groups of the fleet file
  nearmetal export plan.json --to ansible -o play          then: cd play && ansible-playbook -i inventory.json site.yml";

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum To {
    /// `VirtualMachine` manifests
    Kubevirt,
    /// XSLT for dmacvicar's libvirt provider
    Terraform,
    /// `VMID.conf` and a hookscript that pins each thread
    Proxmox,
    /// Flavors, the commands that make them, and each host's nova.conf
    Nova,
    /// A role that applies, verifies and rolls back each host's plan
    Ansible,
}

/// `NAME=NUMBER`; a name may have `=` in it.
fn numbered(text: &str) -> Result<(String, u32), String> {
    let pair = text.rsplit_once('=').and_then(|(name, number)| Some((name.to_owned(), number.parse().ok()?)));
    pair.ok_or_else(|| "write the VM's name, `=`, and a number".to_owned())
}

/// Runs the command.
pub(crate) fn export(args: &Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    let plan = AnyPlan::load(&args.plan).map_err(|error| WrongUse(error.to_string()))?;
    let engine = match args.to {
        To::Kubevirt => Engine::Kubevirt,
        To::Terraform => Engine::Terraform,
        To::Proxmox => Engine::Proxmox,
        To::Nova => Engine::Nova,
        To::Ansible => Engine::Ansible,
    };
    if !args.vmid.is_empty() && engine != Engine::Proxmox {
        return Err(WrongUse("--vmid is for --to proxmox: drop it".to_owned()).into());
    }
    if args.groups.is_some() && engine != Engine::Nova {
        return Err(WrongUse("--groups is for --to nova: drop it".to_owned()).into());
    }
    let fleet = match &args.groups {
        None => None,
        Some(path) => match read_file(path, printer) {
            Some(fleet) => Some(fleet),
            None => return Ok(ExitStatus::WrongUse),
        },
    };
    let options = Options { fleet, numbers: args.vmid.iter().cloned().collect() };
    let exported =
        nearmetal_interchange::export(&plan, engine, &options).map_err(|error| WrongUse(error.to_string()))?;
    let list = export_directory::write(&args.output, &exported.files).map_err(WrongUse)?;
    if args.format == Format::Json {
        printer.data(&serde_json::to_string_pretty(&exported.document(engine))?);
        return Ok(ExitStatus::Done);
    }
    printer.data(&list);
    match exported.limits.as_slice() {
        [] => printer.say(&format!("{} can say all of this plan", engine.name())),
        limits => {
            printer.data(&format!("\n{} cannot say, or does not do by itself:", engine.name()));
            limits.iter().for_each(|limit| printer.data(&format!("  {}", limit.line())));
        }
    }
    Ok(ExitStatus::Done)
}
