//! Interfaces of the host: iproute2's words and answers, what the kernel says of a link, and waiting for one.

use std::process::Command;
use std::time::Duration;

use nearmetal_host::HostFs;
use nearmetal_load::LoadError;
use serde_json::Value;

use crate::clock;
use crate::error::MeasureError;
use crate::program::run;

/// How long an interface may take to come back from a guest or a namespace, or to have its link.
const PATIENCE: Duration = Duration::from_secs(20);

/// Whether there is an interface of that name.
pub(crate) fn exists(fs: &HostFs, interface: &str) -> bool {
    fs.exists(&format!("/sys/class/net/{interface}"))
}

/// The bridge or bond an interface belongs to.
pub(crate) fn master(fs: &HostFs, interface: &str) -> Option<String> {
    fs.link_name(&format!("/sys/class/net/{interface}/master")).ok()
}

/// `ip …`.
pub(crate) fn ip(words: &[&str]) -> Result<String, MeasureError> {
    run(Command::new("ip").args(words))
}

/// `ip -json …`, as one list.
pub(crate) fn ip_json(words: &[&str]) -> Result<Vec<Value>, MeasureError> {
    let text = run(Command::new("ip").args(["-json", "-details"]).args(words))?;
    match serde_json::from_str(if text.trim().is_empty() { "[]" } else { &text }) {
        Ok(Value::Array(rows)) => Ok(rows),
        Ok(_) | Err(_) => Err(LoadError::Unreadable {
            what: format!("`ip -json {}`", words.join(" ")),
            why: "it is not a list".to_owned(),
            text: text.chars().take(200).collect(),
        }
        .into()),
    }
}

/// Waits until something is so; `false` if it takes too long.
pub(crate) fn until(what: impl Fn() -> bool) -> bool {
    let deadline = clock::now() + PATIENCE;
    while !what() {
        if clock::now() > deadline {
            return false;
        }
        clock::pause(Duration::from_millis(200));
    }
    true
}

/// Whether it has a link.
pub(crate) fn has_link(fs: &HostFs, interface: &str) -> bool {
    fs.read(&format!("/sys/class/net/{interface}/carrier")).is_ok_and(|text| text.trim() == "1")
}
