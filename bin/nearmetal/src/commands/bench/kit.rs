//! A licensed kit that the user names.

use std::path::PathBuf;

use anyhow::Context as _;
use nearmetal_lab::Places;
use nearmetal_lab::image::{KitFiles, ensure_kit};
use nearmetal_load::{Kit, KitEdition, KitHash};

use super::workload::Chosen;
use crate::exit_status::WrongUse;

/// Where the kit is.
#[derive(Debug, clap::Args)]
pub(super) struct KitArgs {
    /// Directory of your licensed SPECjbb2005 or SPECjbb2015, for the load specjbb. nearmetal packs it, as it is, into an image that
    /// clones have as a disk, and runs it as root in the clones and on this host. Keep results elsewhere: a kit with other files is
    /// another kit
    #[arg(long, value_name = "DIR")]
    kit: Option<PathBuf>,
}

/// A kit, its files read.
#[derive(Debug)]
pub(super) struct FoundKit {
    /// What it is.
    pub(super) kit: Kit,
    files: KitFiles,
}

impl KitArgs {
    /// The kit that this load runs; `None` if it runs none. `has_seconds`: whether the user said how long a sample takes.
    ///
    /// # Errors
    /// [`WrongUse`] of a load without its kit, a kit without its load, a directory that is no kit, or seconds for one that runs to its
    /// end; its files cannot be read.
    pub(super) fn of(&self, load: &Chosen, has_seconds: bool) -> anyhow::Result<Option<FoundKit>> {
        let directory = match (&self.kit, load.needs_kit()) {
            (None, false) => return Ok(None),
            (Some(directory), true) => directory,
            (None, true) => {
                return Err(WrongUse(format!(
                    "--kit: {} runs a kit of yours, so name the directory it is in",
                    load.word()
                ))
                .into());
            }
            (Some(_), false) => {
                return Err(WrongUse(format!("--kit: {} runs no kit, so leave it out", load.word())).into());
            }
        };
        let edition = KitEdition::of(directory).map_err(|error| WrongUse(error.to_string()))?;
        if has_seconds && !edition.is_timed() {
            return Err(WrongUse(format!(
                "--seconds: a run of {} takes as long as the kit's own properties say, so leave it out",
                edition.title()
            ))
            .into());
        }
        // Whoever is where: the image is of this directory.
        let directory = directory.canonicalize().with_context(|| format!("--kit: `{}`", directory.display()))?;
        let files = KitFiles::read(&directory)?;
        Ok(Some(FoundKit { kit: Kit { edition, hash: KitHash(files.hash()) }, files }))
    }

    /// The same, for samples whose length must be known before.
    ///
    /// # Errors
    /// As [`KitArgs::of`], and [`WrongUse`] of a kit that runs to its end.
    pub(super) fn timed(&self, load: &Chosen) -> anyhow::Result<Option<FoundKit>> {
        let found = self.of(load, false)?;
        match &found {
            Some(FoundKit { kit, .. }) if !kit.edition.is_timed() => Err(WrongUse(format!(
                "--kit: a run of {} takes hours, and a tune needs many of them: use `nearmetal bench slice`, or another load",
                kit.edition.title()
            ))
            .into()),
            _ => Ok(found),
        }
    }
}

impl FoundKit {
    /// Its image, packed if there is none of these files.
    ///
    /// # Errors
    /// It cannot be packed.
    pub(super) fn packed(&self) -> anyhow::Result<PathBuf> {
        Ok(ensure_kit(&Places::standard(), &self.files)?)
    }
}

#[cfg(test)]
mod tests {
    use nearmetal_host::files;

    use super::super::workload::tests::chosen;
    use super::*;

    fn kit(names: &[&str]) -> (tempfile::TempDir, KitArgs) {
        let directory = tempfile::tempdir().unwrap();
        names.iter().for_each(|name| files::write(&directory.path().join(name), "x").unwrap());
        let kit = Some(directory.path().to_owned());
        (directory, KitArgs { kit })
    }

    fn why(result: anyhow::Result<Option<FoundKit>>) -> String {
        let error = result.unwrap_err();
        assert!(error.is::<WrongUse>(), "{error:#}");
        error.to_string()
    }

    #[test]
    fn a_kit_and_its_load_belong_together() {
        let (_directory, own) = kit(&["jbb.jar", "check.jar", "SPECjbb.props"]);
        let found = own.of(&chosen("specjbb"), true).unwrap().unwrap();
        assert_eq!(found.kit.edition, KitEdition::Of2005);
        assert!(own.timed(&chosen("specjbb")).unwrap().is_some());
        assert!(why(own.of(&chosen("jvm"), false)).contains("jvm runs no kit"));
        let none = KitArgs { kit: None };
        assert!(none.of(&chosen("jvm"), true).unwrap().is_none());
        assert!(why(none.of(&chosen("specjbb"), false)).contains("name the directory"));
        let (_directory, other) = kit(&["readme.txt"]);
        assert!(why(other.of(&chosen("specjbb"), false)).contains("were looked for"));
    }

    #[test]
    fn a_kit_that_runs_to_its_end_has_no_seconds_and_no_tune() {
        let (_directory, own) = kit(&["specjbb2015.jar"]);
        assert!(own.of(&chosen("specjbb"), false).unwrap().is_some());
        assert!(why(own.of(&chosen("specjbb"), true)).contains("--seconds"));
        assert!(why(own.timed(&chosen("specjbb"))).contains("takes hours"));
    }
}
