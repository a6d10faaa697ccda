//! Base images on all hosts of a fleet: content-addressed, proven piece by piece, from host to host.
//!
//! An image is called by the BLAKE3 of its content. [`push`] sends it down a chain of hosts; `chain` holds the
//! state machines that say who fetches from whom, `run` the threads and sockets that drive them, [`Store`] what is on a
//! host's disk.

mod bits;
mod chain;
mod control;
mod frame;
#[cfg(feature = "fuzzing")]
mod fuzzing;
mod handshake;
mod hash;
mod manifest;
mod run;
mod store;

#[cfg(feature = "fuzzing")]
pub use fuzzing::{Parser, fuzz_targets};
pub use hash::{BLOCK, ImageId, MOST_LENGTH, NotAnImageId, PIECE};
pub use manifest::{Manifest, ManifestError};
pub use run::{Event, EventKind, HostEnd, HostToPush, Push, PushError, Pushed, ReceiveError, Receiver, push, receive};
pub use store::layers::{ImageFormat, Layer, LayerError, layers};
pub use store::transfers::{Motion, Progress, Stage, Transfer};
pub use store::users::{CannotTell, User, users};
pub use store::{DIRECTORY, FindError, Store, StoredImage, Verified, is_name};
