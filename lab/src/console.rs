//! The serial console: everything it said, and a socket to talk to it.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use nearmetal_host::files;

use crate::error::LabError;
use crate::lab::Lab;

impl Lab {
    /// File with everything the console has said since `up`.
    pub fn console_log(&self) -> PathBuf {
        self.state().join("console.log")
    }

    /// What the console has said so far.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn console_text(&self) -> Result<String, LabError> {
        Ok(String::from_utf8_lossy(&files::read(&self.console_log())?).into_owned())
    }

    /// A connection to the console: bytes written are typed, bytes read are shown. One at a time.
    ///
    /// # Errors
    /// The socket is gone.
    pub fn console(&self) -> Result<UnixStream, LabError> {
        let path = self.state().join("console.sock");
        UnixStream::connect(&path).map_err(|source| files::FileError { action: "connect to", path, source }.into())
    }
}
