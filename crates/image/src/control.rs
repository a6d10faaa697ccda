//! Messages between `push` and the receivers, in JSON through ssh. Not an interface: both ends are the same version.

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::hash::ImageId;

/// Both ends must be the same.
pub(crate) const VERSION: u32 = 1;

/// To a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum ToHost {
    /// What is coming.
    Begin {
        version: u32,
        /// Its number in the fleet.
        host: u32,
        image: ImageId,
        name: String,
        length: u64,
        /// Bytes that are not zero.
        data_bytes: u64,
        /// The transfer's key, in hexadecimal digits.
        key: String,
        /// Bytes per second that it may send on.
        bandwidth: Option<u64>,
    },
    /// Whom to fetch from, from now on. A later generation replaces an earlier one.
    Order { generation: u64, upstream: Upstream, fingerprints: bool },
    /// All is over.
    Finish,
}

/// Whom a host fetches from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Upstream {
    /// A data port; `None` for the address means that of the machine that ssh came from.
    Port { address: Option<IpAddr>, port: u16 },
    /// The source itself, through ssh.
    Ssh,
}

/// From a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum FromHost {
    /// It can take the image.
    Ready {
        version: u32,
        port: u16,
        /// Its address, as whoever came by ssh reached it; `None` on the machine of the source itself.
        address: Option<IpAddr>,
        /// Megabits per second of the port with that address, if it says so.
        speed: Option<u64>,
        /// Whether other images or a part of this one are there, so that fingerprints may save something.
        reuse: bool,
    },
    /// How far it is. Sent ten times a second, and taken as a sign of life.
    Status(Status),
    /// Something was wrong and has been dealt with.
    Note { text: String },
    /// It has the image under its final name, or never will.
    Ended { outcome: Outcome },
}

/// How far a host is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Status {
    /// The order that it follows.
    pub(crate) generation: u64,
    /// Pieces that are there and proven.
    pub(crate) have: u64,
    /// What it does.
    pub(crate) doing: Doing,
    /// How long it has not reached its upstream.
    pub(crate) without: Duration,
    /// Whether it ever reached it under this order.
    pub(crate) reached: bool,
}

/// What a host does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Doing {
    /// Nothing yet.
    Waiting,
    /// Looking for what is there already.
    Looking,
    /// Fetching.
    Fetching,
    /// Writing to the disk what is all there.
    Syncing,
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Outcome {
    /// Under its final name.
    Stored {
        /// Bytes that were received.
        received: u64,
        /// Bytes that were there already, in another image or from an earlier push.
        reused: u64,
    },
    /// Not.
    Failed { reason: String },
}

/// A message that makes no sense.
#[derive(Debug, thiserror::Error)]
#[error("a message that makes no sense: {0}")]
pub(crate) struct MessageError(#[from] serde_json::Error);

pub(crate) fn encode(message: &impl Serialize) -> Vec<u8> {
    // Plain data with text keys: serde_json has no reason to refuse it.
    serde_json::to_vec(message).unwrap_or_default()
}

pub(crate) fn parse<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, MessageError> {
    Ok(serde_json::from_slice(bytes)?)
}

/// 32 bytes as digits.
pub(crate) fn digits(bytes: &[u8; 32]) -> String {
    ImageId::from_bytes(*bytes).to_string()
}

/// For the fuzzer.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz(bytes: &[u8]) {
    if let Ok(message) = parse::<ToHost>(bytes) {
        assert_eq!(parse::<ToHost>(&encode(&message)).ok(), Some(message));
    }
    if let Ok(message) = parse::<FromHost>(bytes) {
        assert_eq!(parse::<FromHost>(&encode(&message)).ok(), Some(message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_were_written() {
        let status =
            Status { generation: 3, have: 9, doing: Doing::Looking, without: Duration::from_millis(40), reached: true };
        for message in [
            FromHost::Status(status),
            FromHost::Ended { outcome: Outcome::Failed { reason: "full".to_owned() } },
            FromHost::Ready { version: 1, port: 9, address: "10.0.0.1".parse().ok(), speed: None, reuse: false },
        ] {
            assert_eq!(parse::<FromHost>(&encode(&message)).unwrap(), message);
        }
        let order = ToHost::Order { generation: 4, upstream: Upstream::Ssh, fingerprints: true };
        assert_eq!(parse::<ToHost>(&encode(&order)).unwrap(), order);
    }

    #[test]
    fn a_damaged_message_is_refused() {
        for junk in ["", "{}", "[]", "{\"message\":\"begin\"}", "{\"message\":7}"] {
            assert!(parse::<ToHost>(junk.as_bytes()).is_err(), "{junk}");
        }
    }
}
