//! Whether KVM really accelerates on this machine: the probe's verdict, asked for once a boot.
//!
//! /dev/kvm exists on hosts that only emulate guests, thousands of times slower, so its existence says nothing. The probe
//! runs guests of a few dozen bytes for half a second; what it found is kept until the next boot.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use nearmetal_host::{Host, files};
use serde::{Deserialize, Serialize};

use crate::installed::beside_this_program;

/// What /dev/kvm is worth.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kvm {
    /// The probe's word: `accelerates`, `emulates`, or why there is nothing to judge.
    pub verdict: String,
    /// What it rests on.
    pub reason: String,
    /// The boot it was found in.
    boot_id: String,
}

impl Kvm {
    /// Whether guests run on the processor; `None` where there was nothing to judge.
    pub(crate) fn accelerates(&self) -> Option<bool> {
        match self.verdict.as_str() {
            "accelerates" => Some(true),
            "emulates" => Some(false),
            _ => None,
        }
    }
}

/// The verdict; `None` where the probe is not installed or could not tell.
pub(crate) fn verdict(host: &Host) -> Option<Kvm> {
    let boot_id = host.system.boot_id.clone()?;
    let kept = kept_at();
    let known = kept.as_ref().and_then(|path| serde_json::from_str::<Kvm>(&files::read_to_string(path).ok()?).ok());
    if let Some(known) = known.filter(|known| known.boot_id == boot_id) {
        return Some(known);
    }
    let found = ask(boot_id)?;
    if let (Some(path), Ok(text)) = (kept, serde_json::to_string(&found)) {
        // Where it cannot be kept, the next command asks again: slower, not wrong.
        let _ = path.parent().map(files::create_dir_all);
        let _ = files::write_atomic(&path, text);
    }
    Some(found)
}

fn ask(boot_id: String) -> Option<Kvm> {
    let probe = beside_this_program("nearmetal-probe").ok()?;
    let output = Command::new(probe).arg("kvm").stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
    let text = |name: &str| Some(document.pointer(&format!("/result/{name}"))?.as_str()?.to_owned());
    Some(Kvm { verdict: text("verdict")?, reason: text("reason").unwrap_or_default(), boot_id })
}

/// A place that does not outlive the boot and that only this user writes.
fn kept_at() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from("/run/nearmetal/kvm.json"));
    }
    let own = std::env::var_os("XDG_RUNTIME_DIR").filter(|path| !path.is_empty())?;
    Some(PathBuf::from(own).join("nearmetal-kvm.json"))
}
