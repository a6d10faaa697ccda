//! The parsers of what comes from other machines and from disks, for `examples/fuzz.rs`. No interface.

use crate::frame::{Frame, Run};
use crate::hash::PIECE;
use crate::manifest::Manifest;
use crate::store::{Description, qcow2};
use crate::{control, frame, manifest};

/// A name, an input that is understood, and the parser.
pub type Parser = (&'static str, Vec<u8>, fn(&[u8]));

/// Every parser of this crate.
pub fn fuzz_targets() -> Vec<Parser> {
    let image: Vec<u8> = (0..PIECE + 9000).map(|at| (at / 4096) as u8).collect();
    let manifest = Manifest::of(image.as_slice(), image.len() as u64, |_| ());
    let manifest = manifest.map(|manifest| manifest.encode(true)).unwrap_or_default();
    let frames = [
        Frame::AskManifest { fingerprints: true },
        Frame::Want(vec![Run { first: 1, count: 2, mask: 3 }]),
        Frame::Piece { index: 1, mask: 1, bytes: vec![7; 100] },
        Frame::Alive,
        Frame::Message(b"{\"message\":\"finish\"}".to_vec()),
    ];
    let frames = frames.iter().flat_map(|frame| frame.encode(None)).collect();
    let order = b"{\"message\":\"order\",\"generation\":3,\"upstream\":{\"port\":{\"address\":\"::1\",\"port\":9}},\
                  \"fingerprints\":true}";
    let ended = b"{\"message\":\"ended\",\"outcome\":{\"stored\":{\"received\":1,\"reused\":2}}}";
    let description = serde_json::to_vec(&Description::new("debian", 7)).unwrap_or_default();
    vec![
        ("image manifest", manifest, manifest::fuzz),
        ("image frames", frames, frame::fuzz),
        ("image order", order.to_vec(), control::fuzz),
        ("image outcome", ended.to_vec(), control::fuzz),
        ("image description", description, |bytes| drop(std::str::from_utf8(bytes).ok().and_then(Description::parse))),
        ("qcow2 header", qcow2::sample("/base.qcow2"), |bytes| drop(qcow2::header(bytes))),
    ]
}
