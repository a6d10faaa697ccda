//! One writer at a time.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::Path;

use nearmetal_host::files::FileError;
use rustix::fs::FlockOperation;

use crate::ChangeError;
use crate::private_files;

/// The right to change the machine; given back when dropped, or by the kernel when the process ends in any way.
#[derive(Debug)]
pub struct WriterLock {
    _file: File,
}

impl WriterLock {
    /// Takes it, or says who has it.
    pub(crate) fn take(path: &Path) -> Result<Self, ChangeError> {
        let mut file = private_files::append(path)?;
        let failed = |source| FileError { action: "lock", path: path.to_owned(), source };
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut holder = String::new();
                let _ = (&file).take(32).read_to_string(&mut holder);
                let holder = holder.trim().to_owned();
                let holder = if holder.is_empty() { "unknown".to_owned() } else { holder };
                return Err(ChangeError::Busy { holder });
            }
            Err(errno) => return Err(failed(errno.into()).into()),
        }
        file.set_len(0).and_then(|()| file.rewind()).map_err(failed)?;
        file.write_all(format!("{}\n", std::process::id()).as_bytes()).map_err(failed)?;
        Ok(Self { _file: file })
    }
}
