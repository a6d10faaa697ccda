//! What `push` tells while it runs.

use std::time::Duration;

use serde::Serialize;

use crate::hash::ImageId;

/// Schema of a line.
const SCHEMA: &str = "nearmetal.image-event/1";

/// Something that happened, one line of JSON.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Event {
    schema: &'static str,
    /// Seconds since `push` began.
    pub seconds: f64,
    /// The host that it is about; `None`: all of them.
    pub host: Option<String>,
    /// What happened.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum EventKind {
    /// The image was read and is named.
    Named {
        /// Its hash.
        image: ImageId,
        /// Its readable name.
        name: String,
        /// Bytes, holes included.
        length: u64,
        /// Bytes that are not zero.
        data_bytes: u64,
        /// Pieces of it.
        pieces: u64,
    },
    /// The host can take it.
    Ready {
        /// Its data port.
        port: u16,
    },
    /// It was told whom to fetch from.
    Order {
        /// Another host, `source`, or `ssh` for the source through ssh.
        from: String,
    },
    /// How far it is.
    Progress {
        /// Pieces that are there and proven.
        pieces: u64,
    },
    /// It was silent and is spliced out of the chain.
    Silent {
        /// For how long.
        silent_seconds: f64,
    },
    /// It is heard again.
    Back,
    /// It is slow and steps aside: it now fetches from the end of the chain.
    Aside {
        /// Pieces that it got in the last second.
        got: u64,
        /// Pieces that the host before it got.
        predecessor: u64,
    },
    /// It reaches no data port, so that its pieces go through ssh.
    OverSsh,
    /// It says something.
    Note {
        /// What.
        text: String,
    },
    /// It has the image, under its final name and on its disk.
    Stored {
        /// Bytes that it was sent.
        received: u64,
        /// Bytes that were there already.
        reused: u64,
    },
    /// It does not have the image.
    Failed {
        /// Why.
        reason: String,
    },
    /// All hosts have ended.
    Finished {
        /// Hosts that have the image.
        stored: u64,
        /// Hosts that do not.
        failed: u64,
        /// Seconds between the first order and the last host that has it; `null` if none has.
        transfer_seconds: Option<f64>,
        /// Bytes that the source sent on its data port.
        source_sent: u64,
    },
}

impl Event {
    pub(crate) fn new(at: Duration, host: Option<&str>, kind: EventKind) -> Self {
        // To the millisecond: what is finer is noise.
        let seconds = at.as_millis() as f64 / 1000.0;
        Self { schema: SCHEMA, seconds, host: host.map(str::to_owned), kind }
    }
}
