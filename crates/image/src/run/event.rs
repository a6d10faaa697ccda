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
        /// Pieces that it got in the last window.
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

#[cfg(test)]
mod tests {
    use super::*;
    use nearmetal_cli_reference::{Fields, Tables};

    #[test]
    fn events_have_the_fields_of_their_page() {
        const PAGE: Tables<'_> = Tables(include_str!("../../../../docs/reference/images.md"));
        let text = || "test".to_owned();
        let image = ImageId::from_bytes([1; 32]);
        let kinds = [
            EventKind::Named { image, name: text(), length: 1, data_bytes: 1, pieces: 1 },
            EventKind::Ready { port: 1 },
            EventKind::Order { from: text() },
            EventKind::Progress { pieces: 1 },
            EventKind::Silent { silent_seconds: 0.5 },
            EventKind::Back,
            EventKind::Aside { got: 1, predecessor: 2 },
            EventKind::OverSsh,
            EventKind::Note { text: text() },
            EventKind::Stored { received: 1, reused: 1 },
            EventKind::Failed { reason: text() },
            EventKind::Finished { stored: 1, failed: 0, transfer_seconds: Some(0.5), source_sent: 1 },
        ];
        let mut all = serde_json::Map::new();
        for kind in kinds {
            let event = serde_json::to_value(Event::new(Duration::from_millis(1500), Some("web7"), kind)).unwrap();
            let word = event["event"].as_str().unwrap().to_owned();
            assert!(PAGE.section("## Push events").contains(&format!("`{word}`")), "{word}");
            all.extend(event.as_object().unwrap().clone());
        }
        PAGE.have(&Fields::of(&all.into()), "## Push events");
    }
}
