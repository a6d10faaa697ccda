//! An image as a guest gets it: it, and the images of the store that it is based on, each held open.
//!
//! What an image says of itself is hostile: a backing file is followed only to another image of the same store, and
//! everything is read from the very file that is handed on.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags};

use super::{Store, qcow2};
use crate::hash::ImageId;

/// Images below each other at most: each is one more look-up for a block that is in none of those above it.
const MOST_LAYERS: usize = 8;

/// Format of an image, by its first bytes. They are proven by its name, so nobody can make it another one later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ImageFormat {
    /// The disk, byte for byte.
    Raw,
    /// QEMU's own.
    Qcow2,
}

impl ImageFormat {
    /// QEMU's word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
        }
    }
}

/// One image of a chain, open for reading.
#[derive(Debug)]
pub struct Layer {
    /// Its hash.
    pub image: ImageId,
    /// Its path.
    pub path: PathBuf,
    /// It.
    pub file: File,
    /// Its format.
    pub format: ImageFormat,
    /// Length of the disk that a guest sees, in bytes.
    pub disk: u64,
}

/// Why an image is not given to a guest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LayerError {
    /// It leads out of the store.
    #[error(
        "the image {image} is based on `{}`, which is not an image of `{}`: make it one file (`qemu-img convert -O qcow2`), \
         and push that", shown(backing), directory.display()
    )]
    Outside {
        /// Which.
        image: String,
        /// What it names.
        backing: String,
        /// The store.
        directory: PathBuf,
    },
    /// Its data is not in it.
    #[error(
        "the image {image} keeps its data in another file: make it one file (`qemu-img convert -O qcow2`), and push that"
    )]
    DataElsewhere {
        /// Which.
        image: String,
    },
    /// It takes a secret.
    #[error("the image {image} is encrypted, and no secret can be given with it: push one that is not")]
    Encrypted {
        /// Which.
        image: String,
    },
    /// There are too many below each other.
    #[error(
        "the image {image} is based on {MOST_LAYERS} others or on itself: make it one file (`qemu-img convert -O qcow2`)"
    )]
    TooMany {
        /// The first of them.
        image: String,
    },
    /// Its length is not that of what was stored.
    #[error("the image {image} has {found} bytes, and {stored} were stored: push it again")]
    Length {
        /// Which.
        image: String,
        /// Bytes now.
        found: u64,
        /// Bytes then.
        stored: u64,
    },
    /// It cannot be read.
    #[error("cannot read the image {image}: {reason}")]
    Unreadable {
        /// Which.
        image: String,
        /// Why.
        reason: String,
    },
}

/// Text of an image, for a message.
fn shown(text: &str) -> String {
    text.chars().take(200).map(|character| if character.is_control() { '?' } else { character }).collect()
}

/// An image and all that it is based on, itself first.
///
/// # Errors
/// See [`LayerError`]; nothing outside the store is opened.
pub fn layers(store: &Store, image: &ImageId) -> Result<Vec<Layer>, LayerError> {
    let mut layers = Vec::new();
    let mut next = Some(*image);
    while let Some(id) = next {
        if layers.len() == MOST_LAYERS {
            return Err(LayerError::TooMany { image: image.short() });
        }
        let (layer, below) = layer(store, &id)?;
        layers.push(layer);
        next = below;
    }
    Ok(layers)
}

fn layer(store: &Store, id: &ImageId) -> Result<(Layer, Option<ImageId>), LayerError> {
    let path = store.path(id);
    let unreadable = |reason: String| LayerError::Unreadable { image: id.short(), reason };
    let system = |error: std::io::Error| unreadable(error.to_string());
    // No link, and nothing that waits when it is opened: a file of the store and nothing else.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(&path, flags, Mode::empty()).map_err(|errno| system(errno.into()))?;
    let file = File::from(file);
    let metadata = file.metadata().map_err(system)?;
    if !metadata.is_file() {
        return Err(unreadable("it is not a file".to_owned()));
    }
    if let Some(stored) = store.description(id).map(|description| description.length) {
        if stored != metadata.len() {
            return Err(LayerError::Length { image: id.short(), found: metadata.len(), stored });
        }
    }
    let mut head = Vec::new();
    (&file).take(qcow2::HEAD as u64).read_to_end(&mut head).map_err(system)?;
    let header = qcow2::header(&head).map_err(|error| unreadable(error.to_string()))?;
    let Some(header) = header else {
        return Ok((Layer { image: *id, path, file, format: ImageFormat::Raw, disk: metadata.len() }, None));
    };
    if header.data_elsewhere {
        return Err(LayerError::DataElsewhere { image: id.short() });
    }
    if header.encrypted {
        return Err(LayerError::Encrypted { image: id.short() });
    }
    let below = header.backing.map(|backing| {
        let name = backing.strip_prefix(&format!("{}/", store.directory().display())).unwrap_or(&backing);
        let outside = || LayerError::Outside {
            image: id.short(),
            backing: backing.clone(),
            directory: store.directory().to_owned(),
        };
        name.parse::<ImageId>().map_err(|_| outside())
    });
    let below = below.transpose()?;
    Ok((Layer { image: *id, path, file, format: ImageFormat::Qcow2, disk: header.disk }, below))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearmetal_host::files;

    fn id(byte: u8) -> ImageId {
        ImageId::from_bytes([byte; 32])
    }

    struct Shelf(tempfile::TempDir);

    impl Shelf {
        fn new(images: &[(u8, Vec<u8>)]) -> Self {
            let directory = tempfile::tempdir().unwrap();
            images.iter().for_each(|(byte, content)| {
                files::write(&directory.path().join(id(*byte).to_string()), content).unwrap();
            });
            Self(directory)
        }

        fn layers(&self, byte: u8) -> Result<Vec<Layer>, LayerError> {
            layers(&Store::at(self.0.path()), &id(byte))
        }
    }

    #[test]
    fn a_chain_inside_the_store_is_followed_to_its_end() {
        let shelf = Shelf::new(&[(1, vec![7; 4096])]);
        let absolute = shelf.0.path().join(id(1).to_string()).display().to_string();
        files::write(&shelf.0.path().join(id(2).to_string()), qcow2::sample(&absolute)).unwrap();
        files::write(&shelf.0.path().join(id(3).to_string()), qcow2::sample(&id(2).to_string())).unwrap();
        let found: Vec<_> = shelf.layers(3).unwrap().iter().map(|layer| (layer.image, layer.format)).collect();
        assert_eq!(found, [(id(3), ImageFormat::Qcow2), (id(2), ImageFormat::Qcow2), (id(1), ImageFormat::Raw)]);
        assert_eq!(shelf.layers(1).unwrap()[0].disk, 4096);
    }

    #[test]
    fn whatever_leads_out_of_the_store_is_refused_by_name() {
        for backing in ["/etc/shadow", "../secret", "json:{\"file.filename\":\"/etc/shadow\"}", "nbd://host/x", "a\nb"]
        {
            let error = Shelf::new(&[(1, qcow2::sample(backing))]).layers(1).unwrap_err();
            assert!(matches!(&error, LayerError::Outside { backing: named, .. } if named == backing), "{error}");
            assert!(!error.to_string().contains('\n'));
        }
        let mut data = qcow2::sample("");
        data[79] = 4;
        assert!(matches!(Shelf::new(&[(1, data)]).layers(1), Err(LayerError::DataElsewhere { .. })));
    }

    #[test]
    fn loops_links_and_images_that_are_not_there_are_refused() {
        let shelf = Shelf::new(&[(1, qcow2::sample(&id(1).to_string()))]);
        assert!(matches!(shelf.layers(1), Err(LayerError::TooMany { .. })));
        assert!(matches!(shelf.layers(9), Err(LayerError::Unreadable { .. })));
        rustix::fs::symlink("/etc/passwd", shelf.0.path().join(id(4).to_string())).unwrap();
        assert!(matches!(shelf.layers(4), Err(LayerError::Unreadable { .. })));
    }

    #[test]
    fn a_file_that_was_cut_off_is_refused_with_both_lengths() {
        let shelf = Shelf::new(&[(1, vec![7; 100])]);
        let description = serde_json::to_vec(&super::super::Description::new("debian", 4096)).unwrap();
        files::write(&shelf.0.path().join(format!("{}.json", id(1))), description).unwrap();
        assert_eq!(shelf.layers(1).unwrap_err(), LayerError::Length { image: id(1).short(), found: 100, stored: 4096 });
    }
}
