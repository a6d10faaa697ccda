//! `nearmetal lab up`.

use std::time::Duration;

use nearmetal_lab::image::{Layer, Release, With};
use nearmetal_lab::machine::{Cable, Count};
use nearmetal_lab::{Lab, Places, UpOptions};

use super::progress::Drawn;
use crate::exit_status::{ExitStatus, WrongUse};
use crate::printer::Printer;

/// Boot a lab; builds its image first if there is none
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Name of the lab
    #[arg(default_value = "quad")]
    name: String,
    /// A built-in machine (`quad`, `quad-4nvme`, `quad-tiles`, `quad-wide`, `peer`, `farm`) or the path of a machine file
    #[arg(long, default_value = "quad")]
    machine: String,
    /// Keep the disks after `down` or a power loss; the next `up --keep` of this name uses them again
    #[arg(long)]
    keep: bool,
    /// More kernel arguments, such as "default_hugepagesz=1G hugepages=2"
    #[arg(long, value_name = "ARGUMENTS", default_value = "", allow_hyphen_values = true)]
    append: String,
    /// Plug a cable into the first network card: its name and end, such as wire:a; the other lab takes wire:b
    #[arg(long, value_name = "NAME:END")]
    cable: Option<Cable>,
    /// Count what its processors do: instructions of host and guests (work), or accesses to memory by node as well
    /// (locality; twice as slow)
    #[arg(long, value_name = "work|locality")]
    count: Option<Count>,
    /// Give it the loads image as a disk, as /dev/disk/by-id/virtio-loads; builds the image first if there is none
    #[arg(long)]
    loads: bool,
    /// With --loads: the image that has this beside, as /dev/disk/by-id/virtio-loads-postgresql
    #[arg(long, value_name = "postgresql", requires = "loads")]
    loads_with: Option<With>,
    /// Lay Debian's packages of a batch system, or of Cockpit, over its operating system; builds the layer first if there is none.
    /// Nothing of them is started
    // `--engine` is what it was called while it had batch systems alone.
    #[arg(long, value_name = "slurm|condor|cockpit", alias = "engine")]
    with: Option<Layer>,
    /// Release of Debian that it runs: 13 or 12; builds that image first if there is none
    #[arg(long, value_name = "13|12", default_value_t)]
    debian: Release,
    /// Seconds to wait for libvirt
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    timeout: u64,
}

/// Boots a lab and waits until libvirt answers.
pub fn up(args: Args, places: &Places, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    if let Some(layer) = args.with.filter(|_| args.debian != Release::default()) {
        let why =
            format!("the packages of {} are those of Debian {}: leave --debian out", layer.word(), Release::default());
        return Err(WrongUse(why).into());
    }
    let mut options = UpOptions::new(args.name.parse()?);
    options.machine = args.machine;
    options.keep = args.keep;
    options.append = args.append.split_whitespace().map(str::to_owned).collect();
    options.cable = args.cable;
    options.count = args.count;
    options.loads = args.loads;
    options.loads_with = args.loads_with;
    options.layer = args.with;
    options.release = args.debian;
    options.timeout = Duration::from_secs(args.timeout);
    let lab = Lab::up(places, &options, &mut Drawn::new(printer))?;
    if let Some(boot) = lab.boot_times() {
        printer.say(&format!(
            "lab {} is up: commands after {:.0} s, libvirt after {:.0} s\n\nnearmetal lab exec {} -- virsh list --all",
            lab.name(),
            boot.ssh_seconds,
            boot.libvirt_seconds,
            lab.name()
        ));
    }
    Ok(ExitStatus::Done)
}
