//! Files to and from a guest.

use std::time::Duration;

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

/// Opens, does the work, and closes in any case: handles left open stay so until the agent is restarted.
fn with_handle<T>(
    hypervisor: &mut dyn Hypervisor,
    name: &str,
    path: &str,
    mode: &str,
    work: impl FnOnce(&mut dyn Hypervisor, i64) -> Result<T, HypervisorError>,
) -> Result<T, HypervisorError> {
    let handle: i64 = ask(hypervisor, name, "guest-file-open", json!({"path": path, "mode": mode}), QUICK)?;
    let result = work(hypervisor, handle);
    let closed = ask::<Value>(hypervisor, name, "guest-file-close", json!({"handle": handle}), QUICK);
    let value = result?;
    closed?;
    Ok(value)
}

/// Writes a file, replacing what was there; its mode is the agent's default.
pub fn write_file(
    hypervisor: &mut dyn Hypervisor,
    name: &str,
    path: &str,
    bytes: &[u8],
) -> Result<(), HypervisorError> {
    const COMMAND: &str = "guest-file-write";
    with_handle(hypervisor, name, path, "w", |hypervisor, handle| {
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
    })
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
    match read_file_up_to(hypervisor, name, path, limit)? {
        (bytes, true) => Ok(bytes),
        (_, false) => Err(HypervisorError::InvalidRequest {
            action: format!("read {path} of"),
            name: name.into(),
            reason: format!("it is longer than {limit} bytes, the limit here"),
        }),
    }
}

/// The first `limit` bytes of a file, and whether these are all of it.
pub fn read_file_up_to(
    hypervisor: &mut dyn Hypervisor,
    name: &str,
    path: &str,
    limit: usize,
) -> Result<(Vec<u8>, bool), HypervisorError> {
    const COMMAND: &str = "guest-file-read";
    with_handle(hypervisor, name, path, "r", |hypervisor, handle| {
        let mut bytes = Vec::new();
        loop {
            let arguments = json!({"handle": handle, "count": READ_CHUNK});
            let Read { count, buf_b64, eof } = ask(hypervisor, name, COMMAND, arguments, CHUNK_WAIT)?;
            let chunk = decode(name, COMMAND, &buf_b64)?;
            if chunk.len() != count || count > READ_CHUNK {
                let reason =
                    format!("it announces {count} bytes and sends {}, at most {READ_CHUNK} asked", chunk.len());
                return Err(unexpected(name, COMMAND, reason));
            }
            bytes.extend(chunk);
            if bytes.len() > limit {
                bytes.truncate(limit);
                return Ok((bytes, false));
            }
            if eof {
                return Ok((bytes, true));
            }
            if count == 0 {
                return Err(unexpected(name, COMMAND, "it sends nothing, and says there is more"));
            }
        }
    })
}
