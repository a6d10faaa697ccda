//! Images of kits: programs that users have a licence for, packed as they are, so that clones and the host run the same bytes.
//!
//! ext4 and not erofs: every Debian has the program that makes it (mke2fs(8), `-d`), so that a lab can pack one, too. An image is known
//! by the hash of the files in it, and taken again while that is the same.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nearmetal_host::files;
use nearmetal_units::Bytes;
use rustix::fs::{FileType, Mode};
use sha2::{Digest, Sha256};

use super::space;
use crate::error::LabError;
use crate::lock::Lock;
use crate::places::Places;
use crate::tools;

/// Files and directories of a kit at most, and their size: a kit has some hundreds, of some 100 MiB. More is the wrong directory.
const MOST_FILES: usize = 20_000;
const MOST: Bytes = Bytes::from_mib(2048);
/// Block of the file system.
const BLOCK: u64 = 4096;
/// What a file system has beside its files' blocks.
const BESIDE: Bytes = Bytes::from_mib(8);

/// The files of a kit, as they were when they were read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KitFiles {
    directory: PathBuf,
    hash: [u8; 8],
    /// Files and directories.
    count: usize,
    /// In whole blocks.
    size: Bytes,
}

impl KitFiles {
    /// Reads those of a directory, all of them.
    ///
    /// # Errors
    /// [`LabError::Kit`] of a directory with anything but files and directories, or too many or too large ones; one cannot be read.
    pub fn read(directory: &Path) -> Result<Self, LabError> {
        let mut hasher = Sha256::new();
        let mut found = Self { directory: directory.to_owned(), hash: [0; 8], count: 0, size: Bytes::ZERO };
        found.add(directory, &mut hasher)?;
        found.hash.copy_from_slice(&hasher.finalize()[..8]);
        Ok(found)
    }

    /// The first 8 bytes of the SHA-256 over the paths and contents.
    pub fn hash(&self) -> [u8; 8] {
        self.hash
    }

    fn add(&mut self, directory: &Path, hasher: &mut Sha256) -> Result<(), LabError> {
        for path in files::list(directory)? {
            let status =
                rustix::fs::lstat(&path).map_err(|error| self.wrong(&path, &format!("cannot be read ({error})")))?;
            self.count += 1;
            if self.count > MOST_FILES {
                return Err(self.problem(format!("it has more than {MOST_FILES} files: name the kit's own directory")));
            }
            let is_directory = match FileType::from_raw_mode(status.st_mode) {
                FileType::Directory => true,
                FileType::RegularFile => false,
                _ => {
                    return Err(
                        self.wrong(&path, "is neither a file nor a directory: put the file itself in its place")
                    );
                }
            };
            let size = if is_directory { BLOCK } else { u64::try_from(status.st_size).unwrap_or(u64::MAX) };
            self.size = Bytes::new(self.size.get().saturating_add(size.saturating_add(BLOCK - 1) / BLOCK * BLOCK));
            if self.size > MOST {
                return Err(self.problem(format!("its files are larger than {MOST}: name the kit's own directory")));
            }
            let relative =
                path.strip_prefix(&self.directory).unwrap_or(&path).as_os_str().as_encoded_bytes().to_owned();
            let contents = if is_directory { Vec::new() } else { files::read(&path)? };
            for part in [&[u8::from(is_directory)], relative.as_slice(), &contents] {
                // Lengths keep the end of one part from being taken for the start of the next.
                hasher.update((part.len() as u64).to_le_bytes());
                hasher.update(part);
            }
            if is_directory {
                self.add(&path, hasher)?;
            }
        }
        Ok(())
    }

    fn wrong(&self, path: &Path, why: &str) -> LabError {
        self.problem(format!("`{}` {why}", path.display()))
    }

    fn problem(&self, why: String) -> LabError {
        LabError::Kit { directory: self.directory.clone(), why }
    }

    /// Size of its image.
    fn image_size(&self) -> Bytes {
        // Inodes of 256 bytes, and as much again for what mke2fs reserves.
        let inodes = (self.count as u64 + 64) * 512;
        Bytes::new(self.size.get() + self.size.get() / 50 + inodes).plus(BESIDE)
    }

    /// The arguments of mke2fs.
    fn arguments(&self, image: &Path) -> Vec<String> {
        let words = ["-q", "-F", "-t", "ext4", "-O", "^has_journal", "-m", "0", "-b", "4096", "-E"];
        let mut words: Vec<String> = words.map(str::to_owned).to_vec();
        words.extend(["root_owner=0:0,lazy_itable_init=0".to_owned(), "-N".to_owned()]);
        words.extend([(self.count + 64).to_string(), "-d".to_owned()]);
        words.extend([self.directory.display().to_string(), image.display().to_string()]);
        words.push(format!("{}k", self.image_size().kib()));
        words
    }
}

/// The image of a kit, packed first if the cache has none of these files; needs root only then. Guests read it, so everybody may who
/// knows its name, which nobody can list.
///
/// # Errors
/// Not root, no mke2fs, too little room, a directory that changed meanwhile, or mke2fs failed.
pub fn ensure_kit(places: &Places, kit: &KitFiles) -> Result<PathBuf, LabError> {
    const WHAT: &str = "the image of a kit";
    let directory = places.cache().join("kits");
    let name: String = kit.hash.iter().map(|byte| format!("{byte:02x}")).collect();
    let image = directory.join(format!("{name}.ext4"));
    if image.exists() {
        return Ok(image);
    }
    tools::require_root(WHAT)?;
    tools::require(&[("mke2fs", "e2fsprogs")])?;
    files::create_dir_all(&directory)?;
    // QEMU's user reads the image, and a kit is licensed to whoever packed it: who does not know its hash finds no file.
    let mode = Mode::from_raw_mode(0o711);
    rustix::fs::chmod(&directory, mode)
        .map_err(|error| kit.problem(format!("`{}` cannot be closed to others ({error})", directory.display())))?;
    let _lock = Lock::wait(&directory.with_extension("lock"))?;
    // What a packing that was killed left.
    for left in files::list(&directory)?.iter().filter(|path| path.extension().is_some_and(|end| end == "building")) {
        files::remove(left)?;
    }
    if image.exists() {
        return Ok(image);
    }
    space::check(WHAT, &directory, kit.image_size())?;
    let building = directory.join(format!("{name}.building"));
    files::write(&building, "")?;
    let packed = pack(kit, &building);
    if packed.is_err() {
        files::remove(&building)?;
    }
    packed?;
    files::rename(&building, &image)?;
    Ok(image)
}

fn pack(kit: &KitFiles, image: &Path) -> Result<(), LabError> {
    let made = Command::new("mke2fs").args(kit.arguments(image)).stdin(Stdio::null()).output();
    let made = made.map_err(|source| LabError::Start { program: "mke2fs".to_owned(), source })?;
    if !made.status.success() {
        return Err(kit.problem(format!("mke2fs: {}", tools::last_words(&String::from_utf8_lossy(&made.stderr)))));
    }
    if KitFiles::read(&kit.directory)? != *kit {
        return Err(kit.problem("its files changed while they were packed: run the command again".to_owned()));
    }
    let mode = Mode::from_raw_mode(0o644);
    rustix::fs::chmod(image, mode).map_err(|error| kit.wrong(image, &format!("cannot be made readable ({error})")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kit() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        files::create_dir_all(&directory.path().join("xml")).unwrap();
        for (name, contents) in [("jbb.jar", "jar"), ("xml/template.xml", "<x/>")] {
            files::write(&directory.path().join(name), contents).unwrap();
        }
        directory
    }

    #[test]
    fn the_hash_changes_with_every_name_and_content_and_not_with_the_place() {
        let hash = |directory: &Path| KitFiles::read(directory).unwrap().hash();
        let (one, two) = (kit(), kit());
        let first = hash(one.path());
        assert_eq!(first, hash(two.path()));
        files::write(&two.path().join("xml/template.xml"), "<y/>").unwrap();
        let second = hash(two.path());
        files::rename(&two.path().join("xml/template.xml"), &two.path().join("xml/other.xml")).unwrap();
        let third = hash(two.path());
        files::create_dir_all(&two.path().join("empty")).unwrap();
        let fourth = hash(two.path());
        // The end of a name is not the start of what is in it.
        files::remove(&one.path().join("jbb.jar")).unwrap();
        files::write(&one.path().join("jbb.ja"), "rjar").unwrap();
        let all = [first, second, third, fourth, hash(one.path())];
        assert!(all.iter().enumerate().all(|(at, own)| !all[at + 1..].contains(own)), "{all:?}");
    }

    #[test]
    fn what_is_no_file_is_refused_and_named() {
        let directory = kit();
        std::os::unix::fs::symlink("/etc/passwd", directory.path().join("xml/link")).unwrap();
        let why = KitFiles::read(directory.path()).unwrap_err().to_string();
        assert!(why.contains("xml/link` is neither a file nor a directory"), "{why}");
        assert!(KitFiles::read(Path::new("/nonexistent/kit")).is_err());
    }

    #[test]
    fn a_file_larger_than_a_kit_is_refused_before_it_is_read() {
        let directory = kit();
        let large = files::create(&directory.path().join("large")).unwrap();
        large.set_len(MOST.get() + 1).unwrap();
        let why = KitFiles::read(directory.path()).unwrap_err().to_string();
        assert!(why.contains("larger than 2 GiB"), "{why}");
    }

    #[test]
    fn an_image_holds_the_files_and_some_more() {
        let directory = kit();
        let found = KitFiles::read(directory.path()).unwrap();
        assert_eq!((found.count, found.size), (3, Bytes::new(3 * BLOCK)));
        assert!(found.image_size() > Bytes::from_mib(8) && found.image_size() < Bytes::from_mib(9));
        let words = found.arguments(Path::new("/c/x.ext4")).join(" ");
        assert!(words.contains("-O ^has_journal") && words.contains("-N 67 -d /"), "{words}");
        assert!(words.ends_with(&format!("/c/x.ext4 {}k", found.image_size().kib())), "{words}");
    }

    #[test]
    fn an_image_in_the_cache_is_taken_again() {
        let (directory, cache) = (kit(), tempfile::tempdir().unwrap());
        let places = Places::new(cache.path(), cache.path());
        let found = KitFiles::read(directory.path()).unwrap();
        let name: String = found.hash().iter().map(|byte| format!("{byte:02x}")).collect();
        files::create_dir_all(&cache.path().join("kits")).unwrap();
        let image = cache.path().join("kits").join(format!("{name}.ext4"));
        files::write(&image, "x").unwrap();
        assert_eq!(ensure_kit(&places, &found).unwrap(), image);
        assert_eq!(files::read_to_string(&image).unwrap(), "x", "it was packed again");
    }
}
