//! Threads and sockets that drive the state machines of `chain`.

mod bucket;
mod desk;
mod event;
mod link;
mod notes;
mod port;
mod push;
mod receive;
mod serving;
mod shelf;

pub use event::{Event, EventKind};
pub use push::{HostEnd, HostToPush, Push, PushError, Pushed, push};
pub use receive::{ReceiveError, Receiver, receive};
