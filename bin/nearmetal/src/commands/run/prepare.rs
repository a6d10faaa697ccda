//! What a run needs before it takes anything: its flavour, image, kernel, user data, and what it was given. Each is refused here.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use nearmetal_host::{HostFs, files};
use nearmetal_image::{Layer, LayerError, Store, layers};
use nearmetal_measure::APPLIANCE_COMMAND_LINE;
use nearmetal_run::RunError;
use nearmetal_run::definition::Kernel;
use nearmetal_run::flavour::{Boot, Flavour, Flavours};
use nearmetal_run::given::Given;
use nearmetal_run::needs::{boot_files, bridge, in_a_session, kvm, port};
use nearmetal_run::output::fits;
use nearmetal_units::Bytes;

use super::Args;
use super::caller::Caller;
use super::mode::Mode;
use crate::guest_files;
use crate::printer::Printer;

/// Bytes of a flavours file that are read: the parser refuses more with its own words.
const MOST: usize = 2 << 20;

/// What is there to run with.
pub(super) struct Prepared {
    pub(super) flavour: Flavour,
    pub(super) given: Given,
    /// The image and what it is based on, open; none for a guest without a disk.
    pub(super) layers: Vec<Layer>,
    pub(super) mode: Mode,
    /// Where its delta takes its room.
    pub(super) delta_directory: PathBuf,
    /// Memory that the job is charged for beside the guest's.
    pub(super) beside: Bytes,
}

/// Reads and checks all of it; makes nothing.
pub(super) fn prepare(
    args: &Args,
    mode: Mode,
    caller: &Caller,
    fs: &HostFs,
    printer: &mut Printer,
) -> Result<Prepared, RunError> {
    fits(&args.command)?;
    let text = files::read_to_string_up_to(&args.places.flavours, MOST).map_err(|error| match error.source.kind() {
        ErrorKind::NotFound => RunError::NoFlavoursFile { path: args.places.flavours.clone() },
        _ => error.into(),
    })?;
    let flavours = Flavours::parse(&args.places.flavours.display().to_string(), &text)?;
    let flavour = flavours.find(args.flavour.as_deref().unwrap_or_default())?.clone();
    caller.may_have(&flavour)?;
    let wanted = args.image.as_ref().or(flavour.image.as_ref());
    let layers = match (wanted, &flavour.boot) {
        (Some(_), Boot::Appliance) => return Err(RunError::ImageNotWanted { flavour: flavour.name }),
        (None, Boot::Disk(_)) => return Err(RunError::NoImage { flavour: flavour.name }),
        (None, _) => Vec::new(),
        (Some(wanted), _) => opened(args, wanted, printer)?,
    };
    if caller.user_data.is_some() && flavour.boot == Boot::Appliance {
        return Err(RunError::UserDataNotWanted { flavour: flavour.name });
    }
    match mode {
        Mode::System => {
            bridge(fs, &flavour)?;
            port(fs, &flavour)?;
        }
        Mode::Session => {
            in_a_session(&flavour)?;
            // A dry run shows what there is room for.
            if !args.dry_run {
                kvm(Path::new("/dev/kvm"))?;
            }
        }
    }
    let given = caller.given(fs)?;
    let (delta_directory, beside) = (mode.delta_directory(args), mode.beside());
    Ok(Prepared { flavour, given, layers, mode, delta_directory, beside })
}

fn opened(args: &Args, wanted: &str, printer: &mut Printer) -> Result<Vec<Layer>, RunError> {
    let store = Store::at(&args.places.directory);
    let image = store.find(wanted)?.image;
    let layers = layers(&store, &image)?;
    if args.verify_image {
        printer.say("run: reading the image");
        for layer in &layers {
            let verified = store.verify(&layer.image, |_| ());
            if !verified.right {
                let why = verified.problem.unwrap_or_else(|| "its content does not have this hash any more".to_owned());
                let reason = format!("{why}; `nearmetal image verify` says where, and a push mends it");
                return Err(LayerError::Unreadable { image: layer.image.short(), reason }.into());
            }
        }
    }
    Ok(layers)
}

/// What the guest boots without a boot loader. Under the system's libvirt, copies of the appliance are made where QEMU's user may
/// read them; in a session, that is this user.
pub(super) fn kernel(args: &Args, prepared: &Prepared) -> Result<Option<Kernel>, RunError> {
    match &prepared.flavour.boot {
        Boot::Disk(_) => Ok(None),
        Boot::Kernel { kernel, initrd, command_line } => {
            // libvirt's own words for a file that is not there name neither flavour nor key. In a session QEMU is this user.
            let there = |path: &PathBuf| match prepared.mode {
                Mode::System => files::metadata(path).map(drop),
                Mode::Session => files::open(path).map(drop),
            };
            boot_files(&prepared.flavour, &args.places.appliance).iter().try_for_each(there)?;
            let (kernel, initrd) = (kernel.clone(), initrd.clone());
            Ok(Some(Kernel { kernel, initrd, command_line: command_line.clone() }))
        }
        Boot::Appliance => {
            let instead = Path::new("/var/lib/nearmetal/run");
            let copy = |name: &str| {
                let file = args.places.appliance.join(name);
                match prepared.mode {
                    Mode::System => guest_files::copy(&file, instead),
                    Mode::Session => files::open(&file).map(|_| file),
                }
            };
            let (kernel, initrd) = (copy("vmlinuz")?, Some(copy("initramfs.cpio.gz")?));
            Ok(Some(Kernel { kernel, initrd, command_line: APPLIANCE_COMMAND_LINE.to_owned() }))
        }
    }
}
