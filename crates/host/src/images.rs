//! Disk images as `qemu-img info --output=json` describes them, with or without `--backing-chain`.
//!
//! QEMU's own words: `ImageInfo` and `ImageInfoSpecificQCow2` in its qapi/block-core.json.

use nearmetal_units::Bytes;
use serde::{Deserialize, Serialize};

/// The longest text that is read: an image has some hundred bytes, and each internal snapshot as many.
pub const LONGEST: usize = 4 << 20;

/// An image and those it is based on: never empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageChain {
    /// The image that is written to.
    pub top: Image,
    /// Those below it, nearest first.
    pub below: Vec<Image>,
}

/// One image.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Image {
    /// Its name as `qemu-img` was given it, or as the image above names it.
    pub name: String,
    /// `raw`, `qcow2`, `vmdk`, ….
    pub format: String,
    /// What the guest sees.
    pub virtual_size: Bytes,
    /// Space that is allocated for it; `None` where the storage does not say.
    pub allocated: Option<Bytes>,
    /// Length of its file, holes included. QEMU tells it from 8.0 on.
    pub length: Option<Bytes>,
    /// Clusters of qcow2.
    pub cluster: Option<Bytes>,
    /// The image it is based on.
    pub backing: Option<String>,
    /// Version of qcow2: `0.10` or `1.1`.
    pub compat: Option<String>,
    /// Whether clusters of qcow2 are allocated in 32 parts.
    pub extended_l2: Option<bool>,
    /// Whether qcow2 is marked as damaged: QEMU then opens it to read alone.
    pub corrupt: Option<bool>,
    /// Names of the snapshots inside it.
    pub snapshots: Vec<String>,
}

/// A text that `qemu-img info` would not have written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected what `qemu-img info --output=json` prints: {0}")]
pub struct NotAnImage(String);

impl ImageChain {
    /// Reads what `qemu-img info --output=json` printed: one object, or a list of them with `--backing-chain`.
    ///
    /// # Errors
    /// It is none of these, or longer than [`LONGEST`].
    pub fn parse(text: &str) -> Result<Self, NotAnImage> {
        if text.len() > LONGEST {
            return Err(NotAnImage(format!("{} bytes, and {LONGEST} is the limit", text.len())));
        }
        // Not an untagged enum: its errors do not say where the text is wrong.
        let printed: Result<Vec<Info>, _> = match text.trim_start().starts_with('[') {
            true => serde_json::from_str(text),
            false => serde_json::from_str(text).map(|one| vec![one]),
        };
        let mut images = printed.map_err(|error| NotAnImage(error.to_string()))?.into_iter().map(Image::from);
        let top = images.next().ok_or_else(|| NotAnImage("the list is empty".to_owned()))?;
        Ok(Self { top, below: images.collect() })
    }

    /// How many images a read may have to go through below the first; `None` where only the first was described.
    pub fn depth(&self) -> Option<usize> {
        match (&self.top.backing, self.below.len()) {
            (Some(_), 0) => None,
            (_, count) => Some(count),
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Info {
    filename: String,
    format: String,
    virtual_size: u64,
    actual_size: Option<u64>,
    cluster_size: Option<u64>,
    backing_filename: Option<String>,
    full_backing_filename: Option<String>,
    format_specific: Option<Specific>,
    #[serde(default)]
    snapshots: Vec<Snapshot>,
    #[serde(default)]
    children: Vec<Child>,
}

#[derive(Deserialize)]
struct Specific {
    #[serde(default)]
    data: Data,
}

/// Of any format: what is not known to be there is not asked for.
#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Data {
    compat: Option<String>,
    extended_l2: Option<bool>,
    corrupt: Option<bool>,
}

#[derive(Deserialize)]
struct Snapshot {
    name: String,
}

#[derive(Deserialize)]
struct Child {
    name: String,
    info: ChildInfo,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct ChildInfo {
    virtual_size: Option<u64>,
}

impl From<Info> for Image {
    fn from(info: Info) -> Self {
        let data = info.format_specific.map(|specific| specific.data).unwrap_or_default();
        let file = info.children.into_iter().find(|child| child.name == "file");
        Self {
            name: info.filename,
            format: info.format,
            virtual_size: Bytes::new(info.virtual_size),
            allocated: info.actual_size.map(Bytes::new),
            length: file.and_then(|file| file.info.virtual_size).map(Bytes::new),
            cluster: info.cluster_size.filter(|size| *size > 0).map(Bytes::new),
            backing: info.full_backing_filename.or(info.backing_filename),
            compat: data.compat,
            extended_l2: data.extended_l2,
            corrupt: data.corrupt,
            snapshots: info.snapshots.into_iter().map(|snapshot| snapshot.name).collect(),
        }
    }
}

/// For the fuzzer.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz_targets() -> Vec<crate::fuzzing::Target> {
    vec![crate::fuzzing::Target::text("qemu-img info", SAMPLE, |text| {
        if let Ok(chain) = ImageChain::parse(text) {
            let _ = chain.depth();
        }
    })]
}

/// What QEMU 7.2 printed, shortened; `children` as 8.0 prints it.
#[cfg(any(test, feature = "fuzzing"))]
const SAMPLE: &str = r#"[
    {"backing-filename-format": "qcow2", "virtual-size": 67108864, "filename": "over.qcow2", "cluster-size": 131072,
     "format": "qcow2", "actual-size": 397312, "full-backing-filename": "/i/base.qcow2", "dirty-flag": false,
     "format-specific": {"type": "qcow2", "data": {"compat": "1.1", "compression-type": "zlib", "refcount-bits": 16,
       "lazy-refcounts": false, "corrupt": false, "extended-l2": true}},
     "children": [{"name": "file", "info": {"children": [], "virtual-size": 393224, "filename": "over.qcow2",
       "format": "file", "actual-size": 397312, "format-specific": {"type": "file", "data": {}}, "dirty-flag": false}}],
     "snapshots": [{"icount": 0, "vm-clock-nsec": 0, "name": "one", "date-sec": 1, "id": "1", "vm-state-size": 0}]},
    {"virtual-size": 67108864, "filename": "/i/base.qcow2", "format": "raw", "actual-size": 4096, "dirty-flag": false}
]"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_what_qemu_img_printed() {
        let chain = ImageChain::parse(SAMPLE).unwrap();
        let top = &chain.top;
        assert_eq!((chain.depth(), top.backing.as_deref()), (Some(1), Some("/i/base.qcow2")));
        assert_eq!((top.cluster, top.length), (Some(Bytes::from_kib(128)), Some(Bytes::new(393_224))));
        assert_eq!((top.compat.as_deref(), top.extended_l2, top.corrupt), (Some("1.1"), Some(true), Some(false)));
        assert_eq!(top.snapshots, ["one"]);
        let base = &chain.below[0];
        assert_eq!((base.format.as_str(), base.allocated), ("raw", Some(Bytes::from_kib(4))));
        assert_eq!((base.length, base.extended_l2), (None, None));
    }

    #[test]
    fn one_image_without_its_chain_has_an_unknown_depth() {
        let one = |backing: &str| {
            ImageChain::parse(&format!(r#"{{"filename": "x", "format": "qcow2", "virtual-size": 1{backing}}}"#))
        };
        assert_eq!(one("").unwrap().depth(), Some(0));
        assert_eq!(one(r#", "backing-filename": "b""#).unwrap().depth(), None);
    }

    #[test]
    fn other_texts_are_refused() {
        for junk in ["", "[]", "{}", "null", r#"[{"filename": "x", "format": "raw", "virtual-size": -1}]"#, "[1]"] {
            assert!(ImageChain::parse(junk).is_err(), "{junk}");
        }
        let long = " ".repeat(LONGEST + 1);
        assert!(ImageChain::parse(&long).unwrap_err().to_string().contains("limit"));
    }
}
