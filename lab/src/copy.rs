//! Files into a lab and out of it, over the shared connection.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::LabError;
use crate::lab::Lab;
use crate::ssh;
use crate::tools;

impl Lab {
    /// Copies a file or directory into the lab. Modes and times are kept.
    ///
    /// # Errors
    /// Either path cannot be used, or the connection broke.
    pub fn push(&self, local: &Path, remote: &str) -> Result<(), LabError> {
        self.copy(
            &local.display().to_string(),
            &format!("root@127.0.0.1:{remote}"),
            (&local.display().to_string(), remote),
        )
    }

    /// Copies a file or directory out of the lab. Modes and times are kept.
    ///
    /// # Errors
    /// Either path cannot be used, or the connection broke.
    pub fn pull(&self, remote: &str, local: &Path) -> Result<(), LabError> {
        self.copy(
            &format!("root@127.0.0.1:{remote}"),
            &local.display().to_string(),
            (remote, &local.display().to_string()),
        )
    }

    fn copy(&self, from: &str, to: &str, (source, target): (&str, &str)) -> Result<(), LabError> {
        let mut command = Command::new("scp");
        ssh::options(self.state(), &mut command);
        command.args(["-q", "-r", "-p", "-P", &self.ssh_port().to_string(), "--", from, to]);
        let output = command
            .stdin(Stdio::null())
            .output()
            .map_err(|source| LabError::Start { program: "scp".to_owned(), source })?;
        if output.status.success() {
            return Ok(());
        }
        Err(LabError::Copy {
            from: source.to_owned(),
            to: target.to_owned(),
            reason: tools::last_words(&String::from_utf8_lossy(&output.stderr)),
        })
    }
}
