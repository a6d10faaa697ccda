//! Files of a web site that a seed makes: what the server has and what the driver expects are told from the same numbers.
//!
//! Sizes and how often they are asked for are those of SPECweb99's static part: 35 % below 1 kB, 50 % below 10 kB, 14 % below
//! 100 kB, 1 % below 1 MB (SPECweb99 Release 1.02, "User's Guide", "Workload"); nine sizes in each class, here drawn alike, and
//! directories drawn alike, where that one draws them by Zipf's law. No file has the contents of another, on any seed, so
//! that neither a page cache shared by guests nor KSM makes one of two.

use crate::load::arrivals::Mix;
use crate::random::Random;

/// A class of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileClass {
    /// Its name in figures.
    pub name: &'static str,
    /// How often it is asked for, in hundredths.
    pub weight: u32,
    /// Its smallest file, in bytes; the others have twice to nine times as many.
    pub step: u64,
}

/// All of them.
pub const CLASSES: [FileClass; 4] = [
    FileClass { name: "below-1kb", weight: 35, step: 102 },
    FileClass { name: "below-10kb", weight: 50, step: 1_024 },
    FileClass { name: "below-100kb", weight: 14, step: 10_240 },
    FileClass { name: "below-1mb", weight: 1, step: 102_400 },
];

/// Files of a class in each directory.
pub const SIZES: u32 = 9;

/// A site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Site {
    /// What makes its contents.
    pub seed: u64,
    /// Directories, each with 36 files of 5 MB together.
    pub directories: u32,
}

/// One file of a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SiteFile {
    /// Directory.
    pub directory: u32,
    /// Number of its class.
    pub class: usize,
    /// Which of the nine, from 1.
    pub size: u32,
}

impl SiteFile {
    /// Bytes of it.
    pub fn bytes(&self) -> u64 {
        CLASSES.get(self.class).map_or(0, |class| class.step * u64::from(self.size))
    }

    /// Its path below the site's root, which begins with `/`.
    pub fn path(&self) -> String {
        format!("/d{:05}/c{}s{}", self.directory, self.class, self.size)
    }

    /// The file of a path, if it is one of this form.
    pub fn of_path(path: &str) -> Option<Self> {
        let (directory, file) = path.strip_prefix("/d")?.split_once("/c")?;
        let (class, size) = file.split_once('s')?;
        let file = Self { directory: number(directory)?, class: number(class)? as usize, size: number(size)? };
        (file.class < CLASSES.len() && (1..=SIZES).contains(&file.size) && file.path() == path).then_some(file)
    }
}

fn number(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

impl Site {
    /// A file of a class, drawn.
    pub fn draw(&self, class: usize, random: &mut Random) -> SiteFile {
        SiteFile { directory: random.below(self.directories), class, size: 1 + random.below(SIZES) }
    }

    /// Files of all classes by their weights, drawn without end; the same seed draws the same.
    pub fn drawn(&self, seed: u64) -> impl Iterator<Item = SiteFile> + use<> {
        let (site, mut random) = (*self, Random::new(seed));
        let mix = Mix::new(&CLASSES.map(|class| class.weight));
        std::iter::from_fn(move || {
            let class = mix.as_ref()?.draw(&mut random);
            Some(site.draw(class, &mut random))
        })
    }

    /// All of its files.
    pub fn files(&self) -> impl Iterator<Item = SiteFile> + use<> {
        let classes = 0..CLASSES.len();
        (0..self.directories).flat_map(move |directory| {
            classes.clone().flat_map(move |class| (1..=SIZES).map(move |size| SiteFile { directory, class, size }))
        })
    }

    /// Bytes of all its files.
    pub fn bytes(&self) -> u64 {
        let of_a_directory: u64 = CLASSES.iter().map(|class| class.step * u64::from(SIZES * (SIZES + 1) / 2)).sum();
        of_a_directory * u64::from(self.directories)
    }

    /// The first bytes of a file, by which it is told from every other: as many as it has.
    pub fn mark(&self, file: &SiteFile) -> Vec<u8> {
        let mut mark = format!("{:016x}{}\n", self.seed, file.path()).into_bytes();
        mark.truncate(usize::try_from(file.bytes()).unwrap_or(usize::MAX));
        mark
    }

    /// A file's contents: its mark, and then text that nobody can compress much.
    pub fn contents(&self, file: &SiteFile) -> Vec<u8> {
        let own = (u64::from(file.directory) << 16) | ((file.class as u64) << 8) | u64::from(file.size);
        let mut contents = self.mark(file);
        text(&mut contents, file.bytes() as usize, &mut Random::new(self.seed ^ own.wrapping_mul(0x9e37_79b9)));
        contents
    }
}

/// Appends random printable text in lines of 76 letters, until there are `bytes` in all.
pub(crate) fn text(contents: &mut Vec<u8>, bytes: usize, random: &mut Random) {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 .";
    contents.reserve(bytes.saturating_sub(contents.len()) + 8);
    let mut column = 0;
    while contents.len() < bytes {
        let drawn = random.next_u64();
        // Ten letters of six bits each.
        for letter in 0..10 {
            if column == 76 {
                contents.extend_from_slice(b"\r\n");
                column = 0;
            }
            contents.push(LETTERS[(drawn >> (6 * letter)) as usize & 63]);
            column += 1;
        }
    }
    contents.truncate(bytes);
    // No line ends by half.
    if let Some(last) = contents.last_mut().filter(|last| **last == b'\r') {
        *last = b'.';
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_file_has_its_size_its_mark_and_its_own_contents() {
        let site = Site { seed: 7, directories: 2 };
        let mut seen = BTreeSet::new();
        let mut sum = 0;
        for file in site.files().filter(|file| file.class < 3) {
            let contents = site.contents(&file);
            assert_eq!(contents.len() as u64, file.bytes());
            assert!(contents.starts_with(&site.mark(&file)));
            assert_ne!(contents, Site { seed: 8, ..site }.contents(&file), "another seed has other contents");
            assert_eq!(SiteFile::of_path(&file.path()), Some(file));
            assert!(seen.insert(contents), "{file:?} is another file's twin");
        }
        site.files().for_each(|file| sum += file.bytes());
        assert_eq!(sum, site.bytes());
        assert_eq!(seen.len(), 2 * 27);
    }

    #[test]
    fn a_path_of_another_form_is_no_file() {
        for path in
            ["", "/", "/d0/c0s1", "/d00000/c4s1", "/d00000/c0s0", "/d00000/c0s10", "/d00000/c+0s1", "/d00001/c0s01"]
        {
            assert_eq!(SiteFile::of_path(path), None, "{path}");
        }
    }

    #[test]
    fn files_are_drawn_by_the_weights_of_their_classes_and_alike_by_the_same_seed() {
        let site = Site { seed: 7, directories: 3 };
        let drawn: Vec<SiteFile> = site.drawn(1).take(10_000).collect();
        assert!(drawn.iter().all(|file| file.directory < 3 && SiteFile::of_path(&file.path()) == Some(*file)));
        for (number, class) in CLASSES.iter().enumerate() {
            let found = drawn.iter().filter(|file| file.class == number).count() as f64;
            let expected = f64::from(class.weight) * 100.0;
            assert!((found - expected).abs() < 5.0 * expected.sqrt(), "{}: {found}", class.name);
        }
        assert_eq!(site.drawn(1).take(10_000).collect::<Vec<_>>(), drawn);
        assert_ne!(site.drawn(2).take(100).collect::<Vec<_>>(), drawn[..100]);
    }

    #[test]
    fn the_weights_are_hundredths() {
        assert_eq!(CLASSES.iter().map(|class| class.weight).sum::<u32>(), 100);
    }
}
