//! Where a run finds what it needs, and leaves what it writes.

use std::path::PathBuf;

use nearmetal_run::RunError;
use nearmetal_run::flavour::FILE;
use nearmetal_run::reservation::DIRECTORY;

const APPLIANCE: &str = "/usr/share/nearmetal/appliance";

/// Files and directories.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
pub(super) struct Places {
    /// Flavours file (docs/reference/flavours.md)
    #[arg(long, value_name = "FILE", default_value = FILE)]
    pub(super) flavours: PathBuf,
    /// Directory of images
    #[arg(long, value_name = "DIR", default_value = nearmetal_image::DIRECTORY)]
    pub(super) directory: PathBuf,
    /// Directory in whose file system the guest's writes take their room [default: /var/lib/nearmetal/deltas; in session mode
    /// $TMPDIR, or /var/tmp, which have to be on a disk]
    #[arg(long, value_name = "DIR")]
    pub(super) delta_directory: Option<PathBuf>,
    /// Directory of the appliance (vmlinuz, initramfs.cpio.gz), for flavours that boot it
    #[arg(long, value_name = "DIR", default_value = APPLIANCE)]
    pub(super) appliance: PathBuf,
    /// Directory of reservations, for tests
    #[arg(long, hide = true, value_name = "DIR", default_value = DIRECTORY)]
    pub(super) reservations: PathBuf,
}

impl Places {
    /// Refuses those that another user's run does not get from whoever asks for it.
    pub(super) fn are_usual(&self) -> Result<(), RunError> {
        let wrong = [
            ("--flavours", self.flavours.as_os_str() != FILE),
            ("--directory", self.directory.as_os_str() != nearmetal_image::DIRECTORY),
            ("--delta-directory", self.delta_directory.is_some()),
            ("--appliance", self.appliance.as_os_str() != APPLIANCE),
            ("--reservations", self.reservations.as_os_str() != DIRECTORY),
        ];
        match wrong.into_iter().find(|(_, is_wrong)| *is_wrong) {
            Some((option, _)) => Err(RunError::ServiceDecides { option }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        places: Places,
    }

    #[test]
    fn a_user_who_asks_for_a_run_names_no_place_of_roots() {
        let refused = |words: &[&str]| {
            let places = Words::parse_from(std::iter::once(&"run").chain(words)).places;
            places.are_usual().map_err(|error| error.to_string())
        };
        assert_eq!(refused(&[]), Ok(()));
        for option in ["--flavours", "--directory", "--delta-directory", "--appliance", "--reservations"] {
            let said = refused(&[option, "/tmp/x"]).unwrap_err();
            assert!(said.starts_with(option), "{said}");
        }
    }
}
