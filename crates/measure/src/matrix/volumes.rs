//! Logical volumes for arms: a volume group on partitions of the scratch device, one linear volume on each partition, so
//! that a volume lies where a partition arm would.

use std::path::Path;
use std::process::Command;

use nearmetal_host::HostFs;
use nearmetal_units::Bytes;

use crate::engine::new_uuid;
use crate::error::MeasureError;
use crate::program::{run, settle_names};

/// Space of a physical volume that holds no data: LVM's own metadata and what is lost to whole extents (lvm.conf(5):
/// `default_data_alignment`, extents of 4 MiB).
pub(crate) const LOST: Bytes = Bytes::from_mib(8);
/// Volume groups of nearmetal begin with this.
const NAME: &str = "nearmetal-scratch";

/// LVM's program with a file of devices switched off: the one of RHEL 9 would keep the scratch partitions in it.
fn lvm(subcommand: &str) -> Command {
    let mut command = Command::new("lvm");
    command.args([subcommand, "--config", "devices{use_devicesfile=0}"]);
    command
}

/// Whether lvm2 is installed.
pub(crate) fn available() -> bool {
    run(Command::new("lvm").arg("version")).is_ok()
}

/// A name for a volume group that nothing else has.
///
/// # Errors
/// The kernel gives no random UUID.
pub(crate) fn new_name(fs: &HostFs) -> Result<String, MeasureError> {
    let uuid = new_uuid(fs)?;
    Ok(format!("{NAME}-{}", uuid.chars().take(8).collect::<String>()))
}

/// Makes a volume group of these partitions and one volume on each; gives the volumes' paths. Whoever calls writes the
/// name down first.
///
/// # Errors
/// LVM's own words.
pub(crate) fn make(group: &str, partitions: &[String]) -> Result<Vec<String>, MeasureError> {
    run(lvm("vgcreate").args(["--quiet", "--yes", group]).args(partitions))?;
    let mut volumes = Vec::new();
    for (number, partition) in partitions.iter().enumerate() {
        let volume = format!("arm{number}");
        let size = ["--extents", "100%PVS", "--wipesignatures", "n", "--zero", "n"];
        run(lvm("lvcreate").args(["--quiet", "--yes", "--name", &volume]).args(size).args([group, partition]))?;
        volumes.push(format!("/dev/{group}/{volume}"));
    }
    settle_names()?;
    Ok(volumes)
}

/// Removes a volume group of nearmetal with all in it. One that is not there is no error: it is what was wanted.
///
/// # Errors
/// The name is not one of [`new_name`], or LVM's own words.
pub(crate) fn remove(group: &str) -> Result<(), MeasureError> {
    if !group.starts_with(NAME) || group.contains('/') {
        return Err(MeasureError::Unfit(format!(
            "`{group}` is not a volume group of nearmetal and is not removed: delete it from bench.json in the state directory"
        )));
    }
    if run(lvm("vgs").args(["--noheadings", "--options", "vg_name", group])).is_err() {
        return Ok(());
    }
    run(lvm("vgremove").args(["--quiet", "--force", "--force", "--yes", group])).map(drop)
}

/// The path that QEMU's open files show: a volume's name is a link.
pub(crate) fn opened_as(source: &str) -> String {
    Path::new(source).canonicalize().map_or_else(|_| source.to_owned(), |path| path.display().to_string())
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_volume_group_but_its_own_is_ever_removed() {
        for name in ["system", "nearmetal", "/dev/nearmetal-scratch-1", "nearmetal-scratch-1/../root"] {
            assert!(super::remove(name).unwrap_err().to_string().contains("not removed"), "{name}");
        }
    }
}
