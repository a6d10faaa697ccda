//! One SSH connection per lab, shared by every command: a handshake takes seconds under emulation.

use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::LabError;
use crate::tools;

/// What authentication may take beyond the limit that ssh keeps itself.
const GRACE: Duration = Duration::from_secs(30);

/// Options that both `ssh` and `scp` take.
pub(crate) fn options(state: &Path, command: &mut Command) {
    command.args(["-F", "none"]);
    for option in settings(state) {
        command.args(["-o", &option]);
    }
}

/// The same as a section of ssh_config(5), for programs that run `ssh -F FILE` themselves.
pub(crate) fn config(state: &Path, port: u16, name: &str) -> String {
    let mut text = format!("Host {name}\n  HostName 127.0.0.1\n  Port {port}\n  User root\n");
    for setting in settings(state) {
        let (key, value) = setting.split_once('=').unwrap_or((&setting, ""));
        text.push_str(&format!("  {key} \"{value}\"\n"));
    }
    text
}

fn settings(state: &Path) -> [String; 13] {
    let path = |name: &str| state.join(name).display().to_string();
    [
        format!("IdentityFile={}", path("key")),
        "BatchMode=yes".to_owned(),
        "LogLevel=ERROR".to_owned(),
        "HostKeyAlias=nearmetal-lab".to_owned(),
        format!("UserKnownHostsFile={}", path("known_hosts")),
        "GlobalKnownHostsFile=none".to_owned(),
        "StrictHostKeyChecking=yes".to_owned(),
        "UpdateHostKeys=no".to_owned(),
        "IdentitiesOnly=yes".to_owned(),
        "IdentityAgent=none".to_owned(),
        format!("ControlPath={}", path("ssh")),
        // The cheapest under emulation, by measurement.
        "Ciphers=aes128-gcm@openssh.com".to_owned(),
        "KexAlgorithms=curve25519-sha256".to_owned(),
    ]
}

/// An `ssh` towards the lab, over the shared connection where there is one.
pub(crate) fn client(state: &Path, port: u16) -> Command {
    let mut command = Command::new("ssh");
    options(state, &mut command);
    command.args(["-p", &port.to_string(), "root@127.0.0.1"]);
    command
}

/// Tries once to open the shared connection. It lives until the lab or [`disconnect`] ends it.
pub(crate) fn connect(state: &Path, port: u16, limit: Duration) -> Result<bool, LabError> {
    let mut command = Command::new("ssh");
    options(state, &mut command);
    command.args(["-f", "-N", "-o", "ControlMaster=yes", "-o", "ControlPersist=yes", "-o", "ServerAliveInterval=30"]);
    command.args(["-o", &format!("ConnectTimeout={}", limit.as_secs().max(1))]);
    command.args(["-p", &port.to_string(), "root@127.0.0.1"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let failed = |source| LabError::Start { program: "ssh".to_owned(), source };
    let mut child = command.spawn().map_err(failed)?;
    // Its own limit ends with the exchange of keys; a lab whose disk does not answer hangs behind that.
    let deadline = Instant::now() + limit + GRACE;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait().map_err(failed)? {
            return Ok(status.success());
        }
        thread::sleep(Duration::from_millis(20));
    }
    let _ = child.kill();
    let _ = child.wait();
    Ok(false)
}

/// Whether the shared connection stands.
pub(crate) fn is_connected(state: &Path, port: u16) -> bool {
    control(state, port, "check").unwrap_or(false)
}

/// Ends the shared connection, if there is one.
pub(crate) fn disconnect(state: &Path, port: u16) {
    let _ = control(state, port, "exit");
}

fn control(state: &Path, port: u16, request: &str) -> Result<bool, LabError> {
    let mut command = Command::new("ssh");
    options(state, &mut command);
    command.args(["-O", request, "-p", &port.to_string(), "root@127.0.0.1"]);
    quiet(&mut command)
}

fn quiet(command: &mut Command) -> Result<bool, LabError> {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.map(|status| status.success()).map_err(|source| LabError::Start { program: "ssh".to_owned(), source })
}

/// A command line for the lab's shell that runs `words` unchanged.
pub(crate) fn line(words: &[String]) -> String {
    words.iter().map(|word| tools::quote(word)).collect::<Vec<_>>().join(" ")
}
