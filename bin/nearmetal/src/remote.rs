//! Other machines: over ssh by sending the probe, over libvirt by asking it.

use std::process::{Command, Stdio};

use anyhow::{Context, anyhow, bail};
use nearmetal_host::{HostFs, files};
use nearmetal_hypervisor::{Hypervisor, Libvirt};

use crate::installed::probe;

/// Runs on the other machine with the probe on its standard input: POSIX sh and coreutils are all it needs. A directory
/// mounted `noexec` is tried and left. The probe is removed however this ends.
const SCRIPT: &str = r#"umask 077
p= ; q=
trap 'rm -f "$p" "$q"' EXIT
trap 'exit 91' HUP INT TERM
for d in "${TMPDIR:-/tmp}" /dev/shm /var/tmp "$HOME"; do p=$(mktemp "$d/nearmetal-probe.XXXXXX" 2>/dev/null) && break; done
[ -n "$p" ] || { echo "no writable directory there" >&2; exit 92; }
cat >"$p" && chmod 700 "$p" || exit 93
"$p" --version >/dev/null 2>&1 || for d in /dev/shm /var/tmp "$HOME"; do
q=$(mktemp "$d/nearmetal-probe.XXXXXX" 2>/dev/null) || continue
cat "$p" >"$q" && chmod 700 "$q" && "$q" --version >/dev/null 2>&1 && break
rm -f "$q"; q=
done
"${q:-$p}" capture --unmasked"#;

/// Sends the static probe to a machine, has it collect, and reads what it collected.
///
/// # Errors
/// ssh cannot get in, the probe does not run there, or its answer is damaged.
pub(crate) fn over_ssh(name: &str, ssh: &str) -> anyhow::Result<HostFs> {
    // A name that begins with a dash would be an option to ssh, and some of those run programs here.
    if name.is_empty() || name.starts_with('-') || name.contains(|c: char| c.is_whitespace() || c.is_control()) {
        bail!("`{name}` is not a host: write NAME, USER@NAME or a libvirt URI");
    }
    let probe = probe()?;
    let mut words = ssh.split_whitespace();
    let program = words.next().ok_or_else(|| anyhow!("--ssh is empty: write a program and its options"))?;
    // The login shell may be any; what it hands to sh is one quoted word.
    let quoted = format!("sh -c '{}'", SCRIPT.replace('\'', r"'\''"));
    let output = Command::new(program)
        .args(words)
        .args(["-T", "--", name, &quoted])
        .stdin(Stdio::from(files::open(&probe)?))
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start `{program}`"))?;
    if !output.status.success() {
        bail!(
            "cannot read `{name}` ({}): see the message of ssh or the probe above. 255 comes from ssh itself, 91 to 93 mean \
             that no file could be written there, 126 that the probe cannot run there (it needs x86-64 Linux)",
            output.status
        );
    }
    nearmetal_capture::from_bytes(name, &output.stdout).with_context(|| format!("the answer of `{name}`"))
}

/// A host by libvirt's word alone.
pub(crate) struct ByLibvirt {
    /// Its files.
    pub(crate) fs: HostFs,
    /// What libvirt does not tell, in words.
    pub(crate) unknown: String,
    /// The connection.
    pub(crate) libvirt: Libvirt,
}

/// Asks libvirt for what it knows of a host.
///
/// # Errors
/// libvirt cannot be reached, or its XML is not understood.
pub(crate) fn over_libvirt(uri: &str) -> anyhow::Result<ByLibvirt> {
    let mut libvirt = Libvirt::open(Some(uri))?;
    let capabilities = libvirt.capabilities()?;
    let devices = libvirt.node_devices()?;
    let host = nearmetal_capture::from_libvirt(uri, &capabilities, &devices)?;
    Ok(ByLibvirt { fs: host.fs, unknown: format!("libvirt does not report: {}", host.unknown), libvirt })
}
