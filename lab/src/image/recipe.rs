//! What the images are made of. Every file of a recipe, and nothing else, decides about its hash.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// One file of the recipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecipeFile {
    /// Path inside the recipe's directory.
    pub path: &'static str,
    /// Its text.
    pub text: &'static str,
}

/// Raised when the program's use of an image changes in a way the files do not show.
const FORMAT: &str = "1";

/// A release of Debian that a lab can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Release {
    /// Debian 13. Its QEMU also emulates the machines of all labs.
    #[default]
    Trixie,
    /// Debian 12.
    Bookworm,
}

impl Release {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Trixie, Self::Bookworm];

    /// Its name among Debian's suites.
    pub fn suite(self) -> &'static str {
        match self {
            Self::Trixie => "trixie",
            Self::Bookworm => "bookworm",
        }
    }

    /// Its number.
    pub fn number(self) -> u32 {
        match self {
            Self::Trixie => 13,
            Self::Bookworm => 12,
        }
    }
}

impl FromStr for Release {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|one| one.suite() == text || one.number().to_string() == text);
        found.ok_or_else(|| format!("`{text}` is not a release of Debian that labs know: 13 or 12"))
    }
}

impl fmt::Display for Release {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.number())
    }
}

macro_rules! recipe_files {
    ($directory:literal: $($path:literal),* $(,)?) => {
        &[$(RecipeFile { path: $path, text: include_str!(concat!("../../", $directory, "/", $path)) }),*]
    };
}

const FILES: &[RecipeFile] = recipe_files!["image":
    "packages.txt",
    "absent.txt",
    "kernels.txt",
    "drop.txt",
    "modules.txt",
    "units-off.txt",
    "units-on.txt",
    "generators-off.txt",
    "steps/common.sh",
    "steps/10-packages.sh",
    "steps/20-system.sh",
    "steps/30-initramfs.sh",
    "steps/40-appliance.sh",
    "steps/50-disks.sh",
    "initramfs/init",
    "appliance/init",
    "appliance/etc/inittab",
    "appliance/etc/rc",
    "appliance/etc/ready",
    "appliance/etc/passwd",
    "appliance/etc/group",
    "appliance/etc/acpi/PWRF/00000080",
    "appliance/sbin/modprobe",
    "appliance/sbin/shutdown",
    "rootfs/etc/default/libvirtd",
    "rootfs/etc/libvirt/qemu/networks/default.xml",
    "rootfs/etc/modprobe.d/lab.conf",
    "rootfs/etc/ssh/sshd_config.d/lab.conf",
    "rootfs/etc/systemd/journald.conf.d/lab.conf",
    "rootfs/etc/systemd/system.conf.d/lab.conf",
    "rootfs/etc/systemd/system/lab-bridge.service",
    "rootfs/etc/systemd/system/lab-vigil@.service",
    "rootfs/etc/systemd/system/serial-getty@ttyS0.service.d/lab.conf",
    "rootfs/etc/systemd/system/ssh.service.d/lab.conf",
    "rootfs/etc/systemd/system/systemd-udev-trigger.service.d/lab.conf",
    "rootfs/usr/lib/nearmetal-lab/vigil",
];

const LOADS: &[RecipeFile] = recipe_files!["loads":
    "packages.txt",
    "java-modules.txt",
    "drop.txt",
    "steps/10-packages.sh",
    "steps/20-java.sh",
    "steps/30-database.sh",
    "steps/35-web.sh",
    "steps/40-image.sh",
    "server.sh",
    "java/kit",
    "java/shop/Desk.java",
    "java/shop/Desks.java",
    "java/shop/Main.java",
    "java/warehouses/Catalogue.java",
    "java/warehouses/Generator.java",
    "java/warehouses/Main.java",
    "java/warehouses/Pages.java",
    "java/warehouses/Warehouse.java",
    "kits/2005/SPECjbb.props",
    "kits/2005/spec/jbb/JBBmain.java",
    "kits/2005/xml/template-document.xml",
    "kits/2015/StandIn.java",
    "database/oltp",
    "database/serve",
    "database/server.cnf",
    "web/load",
    "web/wrk.lua",
];

/// What [`With::Postgresql`] adds to the loads image.
const POSTGRESQL: &[RecipeFile] = &[
    RecipeFile { path: "more-packages.txt", text: include_str!("../../loads/with/postgresql/packages.txt") },
    RecipeFile { path: "steps/35-postgresql.sh", text: include_str!("../../loads/with/postgresql/35-postgresql.sh") },
    RecipeFile { path: "postgresql/pgbench", text: include_str!("../../loads/with/postgresql/pgbench") },
    RecipeFile { path: "postgresql/server.conf", text: include_str!("../../loads/with/postgresql/server.conf") },
];

/// What a loads image can have beside the programs that every one has: most people do without, and the image stays as small as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum With {
    /// PostgreSQL's server, and pgbench.
    Postgresql,
}

impl With {
    /// All of them.
    pub const ALL: [Self; 1] = [Self::Postgresql];

    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Postgresql => "postgresql",
        }
    }

    fn files(self) -> &'static [RecipeFile] {
        match self {
            Self::Postgresql => POSTGRESQL,
        }
    }
}

impl FromStr for With {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|with| with.word() == text);
        found.ok_or_else(|| format!("`{text}` is not what a loads image can have beside the rest: postgresql"))
    }
}

const LAYERS: &[RecipeFile] = recipe_files!["layers":
    "cockpit.txt",
    "slurm.txt",
    "condor.txt",
    "drop.txt",
    "steps/10-packages.sh",
    "steps/20-layer.sh",
];

/// Debian packages that a lab can have over its operating system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layer {
    /// Slurm, its accounting and the database of it.
    Slurm,
    /// HTCondor.
    Condor,
    /// Cockpit: its web server, its bridge, and the shell around pages.
    Cockpit,
}

impl Layer {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Slurm, Self::Condor, Self::Cockpit];

    /// Its word, which is also the name of its list of packages.
    pub fn word(self) -> &'static str {
        match self {
            Self::Slurm => "slurm",
            Self::Condor => "condor",
            Self::Cockpit => "cockpit",
        }
    }
}

impl FromStr for Layer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|layer| layer.word() == text);
        found.ok_or_else(|| {
            format!("`{text}` is not what labs can have over their operating system: slurm, condor or cockpit")
        })
    }
}

/// What the steps of all recipes share.
const COMMON: &str = "steps/common.sh";

/// The inputs of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipe {
    /// Debian release.
    pub suite: &'static str,
    /// Every file.
    pub files: Vec<RecipeFile>,
    /// Hash of the recipe that it is a layer over.
    pub base: Option<String>,
}

impl Recipe {
    /// The lab's recipe, as this program was built with it.
    pub fn embedded() -> Self {
        Self::of(Release::default())
    }

    /// That of a release. A lab of another than the newest is emulated by the QEMU of the newest: older ones lack devices.
    pub fn of(release: Release) -> Self {
        let base = (release != Release::default()).then(|| Self::embedded().hash());
        Self { suite: release.suite(), files: FILES.to_vec(), base }
    }

    /// That of the loads image: the programs of real loads, which all guests share, and what it has beside them.
    pub fn loads(with: Option<With>) -> Self {
        let common = FILES.iter().filter(|file| file.path == COMMON);
        let more = with.map_or(&[][..], With::files);
        let mut files: Vec<RecipeFile> = LOADS.iter().chain(common).chain(more).copied().collect();
        if with.is_some() {
            // Its steps are between the others.
            files.sort_by_key(|file| file.path);
        }
        Self { suite: Release::default().suite(), files, base: None }
    }

    /// That of a layer of packages over the lab's operating system: its own list is `packages.txt`.
    pub fn layer(layer: Layer) -> Self {
        let list = format!("{}.txt", layer.word());
        let packages = LAYERS.iter().filter(|file| file.path == list);
        let packages = packages.map(|file| RecipeFile { path: "packages.txt", text: file.text });
        let shared = LAYERS.iter().filter(|file| file.path == "drop.txt" || file.path.starts_with("steps/"));
        let common = FILES.iter().filter(|file| file.path == COMMON);
        let files = packages.chain(shared.chain(common).copied()).collect();
        Self { suite: Release::default().suite(), files, base: Some(Self::embedded().hash()) }
    }

    /// Sixteen hexadecimal digits of the SHA-256 over format, release, and every path and text.
    pub fn hash(&self) -> String {
        let mut hasher = Sha256::new();
        for part in [FORMAT, self.suite]
            .into_iter()
            .chain(self.files.iter().flat_map(|file| [file.path, file.text]))
            .chain(self.base.as_deref())
        {
            // Lengths keep the end of one part from being taken for the start of the next.
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        hasher.finalize()[..8].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The steps of the build, in order.
    pub fn steps(&self) -> impl Iterator<Item = &RecipeFile> {
        self.files.iter().filter(|file| file.path.starts_with("steps/") && file.path != COMMON)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_hash_changes_with_every_input() {
        let recipe = Recipe::embedded();
        let mut hashes = vec![recipe.hash(), Recipe { suite: "forky", ..recipe.clone() }.hash()];
        for index in 0..recipe.files.len() {
            let mut changed = recipe.clone();
            changed.files[index].text = "other";
            hashes.push(changed.hash());
            changed = recipe.clone();
            changed.files[index].path = "elsewhere";
            hashes.push(changed.hash());
        }
        let count = hashes.len();
        hashes.sort();
        hashes.dedup();
        assert_eq!(hashes.len(), count);
        let layer = Recipe::layer(Layer::Slurm);
        let elsewhere = Recipe { base: Some("other".to_owned()), ..layer.clone() };
        assert_ne!(layer.hash(), elsewhere.hash(), "a layer fits one image");
        assert_ne!(layer.hash(), Recipe::layer(Layer::Condor).hash());
        assert_ne!(recipe.hash(), Recipe::of(Release::Bookworm).hash());
        assert_eq!(recipe.hash(), Recipe::embedded().hash());
    }

    #[test]
    fn every_file_of_the_directory_is_in_the_recipe() {
        for (directory, files) in [("image", FILES), ("loads", LOADS), ("layers", LAYERS)] {
            let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(directory);
            let mut pending = vec![root.clone()];
            while let Some(directory) = pending.pop() {
                for path in nearmetal_host::files::list(&directory).unwrap() {
                    if path.is_dir() {
                        pending.push(path);
                    } else {
                        let relative = path.strip_prefix(&root).unwrap().to_str().unwrap();
                        let is_there = match relative.strip_prefix("with/") {
                            Some(_) => {
                                let text = nearmetal_host::files::read_to_string(&path).unwrap();
                                With::ALL.into_iter().flat_map(With::files).any(|file| file.text == text)
                            }
                            None => files.iter().any(|file| file.path == relative),
                        };
                        assert!(is_there, "{relative} is not in the recipe");
                    }
                }
            }
        }
    }

    #[test]
    fn an_image_with_more_is_another_image_and_has_all_of_the_usual_one() {
        let usual = Recipe::loads(None);
        for with in With::ALL {
            let more = Recipe::loads(Some(with));
            assert!(usual.hash() != more.hash() && usual.files.iter().all(|file| more.files.contains(file)));
            assert_eq!(with.word().parse(), Ok(with));
        }
        assert!("oracle".parse::<With>().unwrap_err().contains("postgresql"));
    }

    #[test]
    fn a_release_is_named_by_its_number_or_its_suite() {
        for release in Release::ALL {
            assert_eq!((release.suite().parse(), release.to_string().parse()), (Ok(release), Ok(release)));
        }
        assert!("11".parse::<Release>().unwrap_err().contains("13 or 12"));
    }

    #[test]
    fn every_layer_has_its_word_and_a_list_of_its_own() {
        let mut hashes = std::collections::BTreeSet::new();
        for layer in Layer::ALL {
            assert_eq!(layer.word().parse(), Ok(layer));
            let recipe = Recipe::layer(layer);
            assert!(recipe.files.iter().any(|file| file.path == "packages.txt" && file.text.contains(layer.word())));
            hashes.insert(recipe.hash());
        }
        assert_eq!(hashes.len(), Layer::ALL.len());
        assert!("pbs".parse::<Layer>().unwrap_err().contains("slurm, condor or cockpit"));
    }

    #[test]
    fn steps_are_in_order() {
        for (recipe, count) in [
            (Recipe::embedded(), 5),
            (Recipe::loads(None), 5),
            (Recipe::loads(Some(With::Postgresql)), 6),
            (Recipe::layer(Layer::Condor), 2),
        ] {
            let steps: Vec<_> = recipe.steps().map(|step| step.path).collect();
            assert_eq!(steps.len(), count);
            assert!(steps.is_sorted() && recipe.files.iter().any(|file| file.path == COMMON));
        }
    }
}
