//! `nearmetal lab down`.

use nearmetal_lab::{Lab, LabError, LabName, Places, Stopped};

use crate::exit_status::ExitStatus;
use crate::printer::Printer;

/// Stop a lab and remove it, except disks it was told to keep
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Name of the lab
    #[arg(default_value = "quad")]
    name: String,
    /// Delete kept disks too, whether or not the lab runs
    #[arg(long)]
    purge: bool,
}

/// Takes a lab down.
pub fn down(args: Args, places: &Places, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    let name: LabName = args.name.parse()?;
    let found = match Lab::open(places, &name) {
        Ok(lab) => {
            let keep = lab.keeps_disks();
            if lab.down()? == Stopped::Killed && keep && !args.purge {
                printer
                    .important("the lab did not shut down in time and was killed: its disks are as after a power loss");
            }
            true
        }
        // What a dead lab left is this command's to remove, too.
        Err(LabError::NotUp { .. }) => nearmetal_lab::sweep(places)?.contains(&name),
        Err(error) => return Err(error.into()),
    };
    let purged = args.purge && nearmetal_lab::purge(places, &name)?;
    if !found && !purged {
        return Err(LabError::NotUp { name: name.to_string() }.into());
    }
    Ok(ExitStatus::Done)
}
