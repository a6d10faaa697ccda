//! Building the lab's image or the loads image: steps of shell over a recipe, in a directory of its own that is renamed when
//! all of it is there.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nearmetal_host::files;
use nearmetal_units::Bytes;

use super::{Image, Layer, Recipe, Release, With, space};
use crate::error::LabError;
use crate::lock::Lock;
use crate::machine::Extra;
use crate::places::Places;
use crate::progress::Progress;
use crate::tools;

/// Room the lab's image takes at its peak, packages and both disk images included, with some to spare.
const NEEDED: Bytes = Bytes::from_mib(4096);
/// The same of the loads image: its packages twice, and the image.
const NEEDED_BY_LOADS: Bytes = Bytes::from_mib(2048);
/// The same of a layer: a copy of the lab's operating system, packages, and the image.
const NEEDED_BY_LAYER: Bytes = Bytes::from_mib(3072);

/// What is built, and where.
struct Product {
    /// In words, for errors.
    what: &'static str,
    /// Of what.
    recipe: Recipe,
    /// The directory in the cache that holds one for each recipe.
    directory: PathBuf,
    /// Room at the peak.
    needed: Bytes,
    /// Programs, and Debian's packages of them.
    programs: &'static [(&'static str, &'static str)],
    /// The image that it is a layer over.
    base: Option<Image>,
}

/// The image of this program's recipe for a release, built first if the cache lacks it.
///
/// Nothing is downloaded when it is there. Two builders of the same image wait for each other.
///
/// # Errors
/// Not root, programs missing, too little room, or a step failed; then the cache is as before.
pub fn ensure(places: &Places, release: Release, progress: &mut dyn Progress) -> Result<Image, LabError> {
    let recipe = Recipe::of(release);
    let base = match &recipe.base {
        Some(_) => Some(ensure(places, Release::default(), progress)?),
        None => None,
    };
    let image = Image::at(places.cache(), &recipe.hash());
    let product = Product {
        what: "the lab's image",
        recipe,
        directory: places.cache().join("images"),
        needed: NEEDED,
        programs: &[
            ("mmdebstrap", "mmdebstrap"),
            ("mke2fs", "e2fsprogs"),
            ("cpio", "cpio"),
            ("dpkg-deb", "dpkg"),
            ("unxz", "xz-utils"),
            ("as", "binutils"),
            ("ld", "binutils"),
            ("nm", "binutils"),
            ("objdump", "binutils"),
        ],
        base,
    };
    ensured(&product, progress)?;
    Ok(image)
}

/// Where the loads image of this program's recipe is, built or not.
pub fn loads(places: &Places, with: Option<With>) -> PathBuf {
    places.cache().join("loads").join(Recipe::loads(with).hash()).join(Extra::Loads(with).file())
}

/// How udev names a disk in a lab, before its serial number.
const VIRTIO_DISK: &str = "/dev/disk/by-id/virtio-";

/// The loads image of this machine: the disk of a lab, else the image in the cache; `None` where nothing was built. An image that has
/// more beside serves whoever asks for nothing beside.
pub fn found_loads(places: &Places, with: Option<With>) -> Option<PathBuf> {
    found_beside(VIRTIO_DISK, places, with)
}

fn found_beside(disk: &str, places: &Places, with: Option<With>) -> Option<PathBuf> {
    let more = With::ALL.into_iter().map(Some).filter(|_| with.is_none());
    let serve: Vec<Option<With>> = std::iter::once(with).chain(more).collect();
    let disks = serve.iter().map(|with| PathBuf::from(format!("{disk}{}", Extra::Loads(*with).serial())));
    let kept = serve.iter().map(|with| loads(places, *with));
    disks.chain(kept).find(|image| image.exists())
}

/// The loads image, built first if the cache lacks it; as [`ensure`]. Guests read it, so everybody may.
///
/// # Errors
/// As [`ensure`].
pub fn ensure_loads(places: &Places, with: Option<With>, progress: &mut dyn Progress) -> Result<PathBuf, LabError> {
    let product = Product {
        what: "the loads image",
        recipe: Recipe::loads(with),
        directory: places.cache().join("loads"),
        needed: NEEDED_BY_LOADS,
        programs: &[("mmdebstrap", "mmdebstrap"), ("mkfs.erofs", "erofs-utils")],
        base: None,
    };
    ensured(&product, progress)?;
    Ok(loads(places, with))
}

/// A layer of packages over the lab's image, built first if the cache lacks it, and the image before it.
///
/// # Errors
/// As [`ensure`].
pub fn ensure_layer(places: &Places, layer: Layer, progress: &mut dyn Progress) -> Result<PathBuf, LabError> {
    let base = ensure(places, Release::default(), progress)?;
    let product = Product {
        what: "a layer of packages",
        recipe: Recipe::layer(layer),
        directory: places.cache().join("layers"),
        needed: NEEDED_BY_LAYER,
        programs: &[("cpio", "cpio"), ("mkfs.erofs", "erofs-utils")],
        base: Some(base),
    };
    ensured(&product, progress)?;
    Ok(product.directory.join(product.recipe.hash()).join(Extra::Layer.file()))
}

fn ensured(product: &Product, progress: &mut dyn Progress) -> Result<(), LabError> {
    let hash = product.recipe.hash();
    let there = product.directory.join(&hash);
    if there.is_dir() {
        return Ok(());
    }
    tools::require_root(product.what)?;
    tools::require(product.programs)?;
    space::check(product.what, &product.directory, product.needed)?;
    files::create_dir_all(&product.directory)?;
    let _lock = Lock::wait(&product.directory.with_extension("lock"))?;
    if there.is_dir() {
        return Ok(());
    }
    let work = product.directory.join(format!("{hash}.building"));
    remove_tree(&work)?;
    let result = build(product, &work, progress);
    match result {
        Ok(()) => {
            files::rename(&work.join("out"), &there)?;
            remove_tree(&work)
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

fn build(product: &Product, work: &Path, progress: &mut dyn Progress) -> Result<(), LabError> {
    let recipe = &product.recipe;
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
            .env("BASE", product.base.as_ref().map_or(Path::new(""), Image::directory))
            .env("LC_ALL", "C.UTF-8")
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(|source| start("unshare", source))?)
            .stderr(output)
            .status()
            .map_err(|source| start("unshare", source))?;
        if !status.success() {
            let text = files::read_to_string(&log).unwrap_or_default();
            let (what, step) = (product.what, step.path.to_owned());
            return Err(LabError::Build { what, step, reason: tools::last_words(&text), log });
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
    fn an_image_with_more_serves_who_asks_for_nothing_more_and_not_the_other_way_round() {
        let cache = tempfile::tempdir().unwrap();
        let places = Places::new(cache.path(), cache.path());
        let (usual, more) = (loads(&places, None), loads(&places, Some(With::Postgresql)));
        let made = |path: &Path| {
            files::create_dir_all(path.parent().unwrap()).unwrap();
            files::write(path, "x").unwrap();
        };
        let disk = cache.path().join("disk-").display().to_string();
        let kept = |with| found_beside(&disk, &places, with);
        assert_eq!((kept(None), kept(Some(With::Postgresql))), (None, None));
        made(&more);
        assert_eq!((kept(None), kept(Some(With::Postgresql))), (Some(more.clone()), Some(more.clone())));
        files::remove(&more).unwrap();
        made(&usual);
        assert_eq!((kept(None), kept(Some(With::Postgresql))), (Some(usual), None));
        // In a lab, its disk is the image, and says by its name what is in it.
        let (usual, more) = (cache.path().join("disk-loads"), cache.path().join("disk-loads-postgresql"));
        made(&usual);
        assert_eq!((kept(None), kept(Some(With::Postgresql))), (Some(usual.clone()), None));
        files::remove(&usual).unwrap();
        made(&more);
        assert_eq!((kept(None), kept(Some(With::Postgresql))), (Some(more.clone()), Some(more)));
    }

    #[test]
    fn a_step_says_what_it_does() {
        for recipe in [Recipe::embedded(), Recipe::loads(Some(With::Postgresql)), Recipe::layer(Layer::Cockpit)] {
            for step in recipe.steps() {
                assert!(title(step.text).len() > 20, "{}", step.path);
            }
        }
    }
}
