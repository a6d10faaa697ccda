//! A key for the user and one for the host, made for each lab.

use std::path::Path;
use std::process::{Command, Stdio};

use nearmetal_host::files;

use crate::error::LabError;
use crate::tools;

/// Makes `key` and `host_key` in the state directory, and `known_hosts` with the latter's public half.
pub(crate) fn make(state: &Path) -> Result<(), LabError> {
    tools::require(&[("ssh-keygen", "openssh-client"), ("ssh", "openssh-client")])?;
    for file in ["key", "host_key"] {
        let status = Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-C", "nearmetal-lab", "-f"])
            .arg(state.join(file))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        match status {
            Ok(status) if status.success() => {}
            Ok(status) => {
                let source = std::io::Error::other(format!("it ended with {status}"));
                return Err(LabError::Start { program: "ssh-keygen".to_owned(), source });
            }
            Err(source) => return Err(LabError::Start { program: "ssh-keygen".to_owned(), source }),
        }
    }
    let public = files::read_to_string(&state.join("host_key.pub"))?;
    files::write(&state.join("known_hosts"), format!("nearmetal-lab {public}"))?;
    Ok(())
}
