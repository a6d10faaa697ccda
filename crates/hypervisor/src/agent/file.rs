//! Files to and from a guest.

use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

use super::{QUICK, ask, decode, encode, exec, unexpected};
use crate::{Hypervisor, HypervisorError};

/// Bytes for each write. libvirt (11.3, measured) hands a command to the agent's socket in one go and never sends the
/// rest of one that does not fit its send buffer, 208 KiB by default: 160 KiB of data, a third more as base64, arrived,
/// and 176 KiB made every later command time out. Larger chunks are no faster: 1 to 1.5 MB/s at any size from 16 KiB.
pub const WRITE_CHUNK: usize = 48 << 10;

/// Bytes for each read. Replies are not cut; libvirt's limit for one is 4 MiB. Reading runs at 5 to 7 MB/s.
pub const READ_CHUNK: usize = 512 << 10;

/// The agent's command that reads.
const READ: &str = "guest-file-read";

/// How long the agent may take for one chunk: it reads its channel 4 KiB at a time, which is slow under emulation.
const CHUNK_WAIT: Duration = Duration::from_secs(60);

#[derive(Deserialize)]
struct Written {
    count: usize,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Read {
    count: usize,
    buf_b64: String,
    eof: bool,
}

/// Writes a file, replacing what was there; its mode is the agent's default.
pub fn write_file(
    hypervisor: &mut dyn Hypervisor,
    name: &str,
    path: &str,
    bytes: &[u8],
) -> Result<(), HypervisorError> {
    const COMMAND: &str = "guest-file-write";
    let handle: i64 = ask(hypervisor, name, "guest-file-open", json!({"path": path, "mode": "w"}), QUICK)?;
    let mut write = || {
        let mut rest = bytes;
        while !rest.is_empty() {
            let chunk = &rest[..rest.len().min(WRITE_CHUNK)];
            let arguments = json!({"handle": handle, "buf-b64": encode(chunk)});
            let Written { count } = ask(hypervisor, name, COMMAND, arguments, CHUNK_WAIT)?;
            if count == 0 || count > chunk.len() {
                let reason = format!("it wrote {count} of {} bytes to {path}: is the guest's disk full?", chunk.len());
                return Err(unexpected(name, COMMAND, reason));
            }
            rest = &rest[count..];
        }
        // What does not fit on the disk is only found out here.
        ask::<Value>(hypervisor, name, "guest-file-flush", json!({"handle": handle}), CHUNK_WAIT).map(drop)
    };
    let written = write();
    // In any case: handles left open stay so until the agent is restarted.
    let closed = ask::<Value>(hypervisor, name, "guest-file-close", json!({"handle": handle}), QUICK);
    written.and(closed.map(drop))
}

/// Writes a program and makes it executable by its owner (the agent's user, root).
pub fn push_executable(
    hypervisor: &mut dyn Hypervisor,
    name: &str,
    path: &str,
    bytes: &[u8],
) -> Result<(), HypervisorError> {
    write_file(hypervisor, name, path, bytes)?;
    let output = exec(hypervisor, name, &["chmod", "0755", path], None, QUICK)?;
    if output.status.is_success() {
        return Ok(());
    }
    Err(HypervisorError::AgentCommandFailed {
        name: name.into(),
        command: format!("chmod 0755 {path}"),
        message: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

/// Reads a file of at most `limit` bytes; a longer one is an error, since its rest would be missing unseen.
pub fn read_file(
    hypervisor: &mut dyn Hypervisor,
    name: &str,
    path: &str,
    limit: usize,
) -> Result<Vec<u8>, HypervisorError> {
    let file = OpenFile::open(hypervisor, name, path, "r")?;
    let Part { bytes, end } = file.read(hypervisor, limit, &mut |_| None);
    file.close(hypervisor);
    match end {
        PartEnd::Whole => Ok(bytes),
        PartEnd::Failed(error) => Err(error),
        PartEnd::Limit | PartEnd::Stopped(_) => Err(HypervisorError::InvalidRequest {
            action: format!("read {path} of"),
            name: name.into(),
            reason: format!("it is longer than {limit} bytes, the limit here"),
        }),
    }
}

/// A file that the agent holds open. Whatever becomes of its name in the guest, it is read.
#[derive(Debug)]
pub struct OpenFile {
    guest: String,
    handle: i64,
}

/// What was read of a file.
#[derive(Debug)]
pub struct Part {
    /// Its bytes, from where the last reading ended.
    pub bytes: Vec<u8>,
    /// Why there are no more of them.
    pub end: PartEnd,
}

/// Why reading ended.
#[derive(Debug)]
pub enum PartEnd {
    /// This is all of it, so far.
    Whole,
    /// There is more, beyond the limit.
    Limit,
    /// The caller said so, for this reason.
    Stopped(String),
    /// The agent does not go on.
    Failed(HypervisorError),
}

impl OpenFile {
    /// Makes a file, or empties the one that is there, and keeps it open for reading what others write to it.
    ///
    /// # Errors
    /// The agent may not open files, or not this one; it does not answer.
    pub fn create(hypervisor: &mut dyn Hypervisor, name: &str, path: &str) -> Result<Self, HypervisorError> {
        Self::open(hypervisor, name, path, "w+")
    }

    fn open(hypervisor: &mut dyn Hypervisor, name: &str, path: &str, mode: &str) -> Result<Self, HypervisorError> {
        let handle: i64 = ask(hypervisor, name, "guest-file-open", json!({"path": path, "mode": mode}), QUICK)?;
        Ok(Self { guest: name.to_owned(), handle })
    }

    /// Reads on, up to `limit` bytes. `stop` is asked before each piece, with the time, and may give a reason to end. What was
    /// read stays, whatever happens then.
    pub fn read(
        &self,
        hypervisor: &mut dyn Hypervisor,
        limit: usize,
        stop: &mut dyn FnMut(Instant) -> Option<String>,
    ) -> Part {
        // The agent fills its pieces, but for the last one: one that does not would never come to an end.
        let most = 2 * (limit / READ_CHUNK) + 16;
        let mut bytes = Vec::new();
        for _ in 0..most {
            if let Some(why) = stop(hypervisor.now()) {
                return Part { bytes, end: PartEnd::Stopped(why) };
            }
            // One byte more tells that there is more.
            let wanted = READ_CHUNK.min(limit.saturating_add(1) - bytes.len());
            match self.piece(hypervisor, wanted) {
                Err(error) => return Part { bytes, end: PartEnd::Failed(error) },
                Ok((piece, eof)) => {
                    bytes.extend(piece);
                    if bytes.len() > limit {
                        bytes.truncate(limit);
                        return Part { bytes, end: PartEnd::Limit };
                    }
                    if eof {
                        return Part { bytes, end: PartEnd::Whole };
                    }
                }
            }
        }
        let reason = format!("it sends {} bytes in {most} pieces, and says there is more", bytes.len());
        Part { bytes, end: PartEnd::Failed(unexpected(&self.guest, READ, reason)) }
    }

    fn piece(&self, hypervisor: &mut dyn Hypervisor, wanted: usize) -> Result<(Vec<u8>, bool), HypervisorError> {
        let arguments = json!({"handle": self.handle, "count": wanted});
        let Read { count, buf_b64, eof } = ask(hypervisor, &self.guest, READ, arguments, CHUNK_WAIT)?;
        let piece = decode(&self.guest, READ, &buf_b64)?;
        if piece.len() != count || count > wanted {
            let reason = format!("it announces {count} bytes and sends {}, at most {wanted} asked", piece.len());
            return Err(unexpected(&self.guest, READ, reason));
        }
        if count == 0 && !eof {
            return Err(unexpected(&self.guest, READ, "it sends nothing, and says there is more"));
        }
        Ok((piece, eof))
    }

    /// Has the agent close it. What was read stays right if it does not.
    pub fn close(self, hypervisor: &mut dyn Hypervisor) {
        let arguments = json!({"handle": self.handle});
        let _ = ask::<Value>(hypervisor, &self.guest, "guest-file-close", arguments, QUICK);
    }
}
