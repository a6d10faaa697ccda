//! Building an image: steps of shell over a recipe, in a directory of its own that is renamed when all of it is there.

use std::path::Path;
use std::process::{Command, Stdio};

use nearmetal_host::files;
use nearmetal_units::Bytes;

use super::{Image, Recipe, space};
use crate::error::LabError;
use crate::lock::Lock;
use crate::places::Places;
use crate::progress::Progress;
use crate::tools;

/// Room a build takes at its peak, packages and both disk images included, with some to spare.
const NEEDED: Bytes = Bytes::from_mib(4096);

/// The image of this program's recipe, built first if the cache lacks it.
///
/// Nothing is downloaded when it is there. Two builders of the same image wait for each other.
///
/// # Errors
/// Not root, programs missing, too little room, or a step failed; then the cache is as before.
pub fn ensure(places: &Places, progress: &mut dyn Progress) -> Result<Image, LabError> {
    let recipe = Recipe::embedded();
    let image = Image::at(places.cache(), &recipe.hash());
    if image.is_built() {
        return Ok(image);
    }
    tools::require_root()?;
    tools::require(&[("mmdebstrap", "mmdebstrap"), ("mke2fs", "e2fsprogs"), ("cpio", "cpio"), ("dpkg-deb", "dpkg")])?;
    space::check("the lab's image", places.cache(), NEEDED)?;
    let images = places.cache().join("images");
    files::create_dir_all(&images)?;
    let _lock = Lock::wait(&places.cache().join("images.lock"))?;
    if image.is_built() {
        return Ok(image);
    }
    let work = images.join(format!("{}.building", recipe.hash()));
    remove_tree(&work)?;
    let result = build(&recipe, &work, progress);
    match result {
        Ok(()) => {
            files::rename(&work.join("out"), image.directory())?;
            remove_tree(&work)?;
            Ok(image)
        }
        Err(error) => {
            // The log is what the error points at; everything else goes.
            for leftover in ["out", "recipe"] {
                remove_tree(&work.join(leftover))?;
            }
            Err(error)
        }
    }
}

fn build(recipe: &Recipe, work: &Path, progress: &mut dyn Progress) -> Result<(), LabError> {
    let source = work.join("recipe");
    let out = work.join("out");
    files::create_dir_all(&out)?;
    for file in &recipe.files {
        let path = source.join(file.path);
        if let Some(parent) = path.parent() {
            files::create_dir_all(parent)?;
        }
        files::write(&path, file.text)?;
    }
    let log = work.join("build.log");
    let mirror = mirror();
    let steps: Vec<_> = recipe.steps().collect();
    for (index, step) in steps.iter().enumerate() {
        progress.stage(index + 1, steps.len(), &title(step.text));
        let output = files::append(&log)?;
        let status = Command::new("unshare")
            // Nothing a step mounts outlives it.
            .args(["--mount", "--propagation", "private", "sh", "-eu"])
            .arg(source.join(step.path))
            .env("RECIPE", &source)
            .env("OUT", &out)
            .env("MIRROR", &mirror)
            .env("SUITE", recipe.suite)
            .env("LC_ALL", "C.UTF-8")
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(|source| start("unshare", source))?)
            .stderr(output)
            .status()
            .map_err(|source| start("unshare", source))?;
        if !status.success() {
            let text = files::read_to_string(&log).unwrap_or_default();
            return Err(LabError::Build { step: step.path.to_owned(), reason: tools::last_words(&text), log });
        }
    }
    Ok(())
}

/// The first comment of a step tells people what it does.
fn title(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim_start_matches("# ").trim_end_matches('.').to_owned()
}

/// The mirror this machine's own apt uses, since it is known to be reachable; Debian's own otherwise.
fn mirror() -> String {
    const FALLBACK: &str = "http://deb.debian.org/debian";
    let output = Command::new("apt-get")
        .args(["indextargets", "--format", "$(REPO_URI) $(ORIGIN)", "Created-By: Packages"])
        .stdin(Stdio::null())
        .output();
    let Ok(output) = output else { return FALLBACK.to_owned() };
    let text = String::from_utf8_lossy(&output.stdout);
    choose_mirror(&text).unwrap_or(FALLBACK).to_owned()
}

/// A mirror of Debian itself: not of its security updates, nor of anybody else's packages.
fn choose_mirror(targets: &str) -> Option<&str> {
    targets.lines().find_map(|line| {
        let (address, origin) = line.split_once(' ')?;
        (origin.trim() == "Debian" && !address.contains("security")).then(|| address.trim_end_matches('/'))
    })
}

fn start(program: &str, source: std::io::Error) -> LabError {
    LabError::Start { program: program.to_owned(), source }
}

pub(super) fn remove_tree(path: &Path) -> Result<(), LabError> {
    Ok(files::remove_dir_all(path)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_debian_itself() {
        let targets = "https://packages.example.org/ Example\n\
                       http://deb.debian.org/debian-security/ Debian\n\
                       http://mirror.example.org/debian/ Debian\n";
        assert_eq!(choose_mirror(targets), Some("http://mirror.example.org/debian"));
        assert_eq!(choose_mirror(""), None);
    }

    #[test]
    fn a_step_says_what_it_does() {
        for step in Recipe::embedded().steps() {
            assert!(title(step.text).len() > 20, "{}", step.path);
        }
    }
}
