//! Whose libvirt starts the guest.

use std::path::{Path, PathBuf};

use nearmetal_run::reservation::Desk;
use nearmetal_run::session::BESIDE;
use nearmetal_run::{RunError, delta};
use nearmetal_units::Bytes;

use super::Args;

/// Whose libvirt starts the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Mode {
    /// One of this run's own, as this user: the guest is inside the job's control group. No huge pages, bridges or PCI functions
    Session,
    /// The system's, as root or by its service: the guest is outside of the job's control group
    System,
}

impl Mode {
    /// The mode of a run. `is_root`: who runs it. A dry run starts nothing, and may look at either.
    ///
    /// # Errors
    /// Root has no session.
    pub(super) fn of(args: &Args, is_root: bool) -> Result<Self, RunError> {
        Self::decide(args.mode, is_root, args.dry_run)
    }

    /// Whether the service is asked, since this user cannot have the mode himself.
    pub(super) fn asks(args: &Args) -> bool {
        args.mode == Some(Self::System) && !args.dry_run && !rustix::process::geteuid().is_root()
    }

    fn decide(wanted: Option<Self>, is_root: bool, dry_run: bool) -> Result<Self, RunError> {
        let own = if is_root { Self::System } else { Self::Session };
        match wanted {
            Some(Self::Session) if is_root && !dry_run => Err(RunError::RootHasNoSession),
            wanted => Ok(wanted.unwrap_or(own)),
        }
    }

    /// Where runs of this mode say what they have.
    pub(super) fn desk(self, args: &Args) -> Desk {
        match self {
            Self::Session => Desk::shared(&args.places.reservations),
            Self::System => Desk::at(&args.places.reservations),
        }
    }

    /// In whose file system the guest's writes take their room.
    pub(super) fn delta_directory(self, args: &Args) -> PathBuf {
        let usual = || match self {
            // Batch systems name a job's own scratch space so.
            Self::Session => std::env::var_os("TMPDIR").filter(|path| Path::new(path).is_absolute()).map(PathBuf::from),
            Self::System => Some(delta::DIRECTORY.into()),
        };
        args.places.delta_directory.clone().or_else(usual).unwrap_or_else(|| "/var/tmp".into())
    }

    /// Memory that the job is charged for beside the guest's.
    pub(super) fn beside(self) -> Bytes {
        match self {
            Self::Session => BESIDE,
            Self::System => Bytes::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_decides_unless_a_mode_is_named_and_a_dry_run_may_look_at_either() {
        let decide = |wanted, is_root, dry| Mode::decide(wanted, is_root, dry).map_err(|error| error.to_string());
        assert_eq!(decide(None, false, false), Ok(Mode::Session));
        assert_eq!(decide(None, true, false), Ok(Mode::System));
        assert_eq!(decide(Some(Mode::System), true, false), Ok(Mode::System));
        assert!(decide(Some(Mode::Session), true, false).unwrap_err().contains("leave `--mode session` out"));
        assert_eq!(decide(Some(Mode::System), false, true), Ok(Mode::System));
        assert_eq!(decide(Some(Mode::Session), true, true), Ok(Mode::Session));
    }
}
