//! The guest that is measured: this host's own kernel with the drivers of its cards, and this host's own
//! programs.
//!
//! Bare metal runs under the host's kernel, so the guest does too: what differs is virtualization alone. And a virtual
//! function needs its driver, which a kernel made for guests seldom has.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use nearmetal_domain::DomainXml;
use nearmetal_host::{HostFs, files};
use nearmetal_load::LoadError;
use nearmetal_results::{CardPlace, NetPath};

use crate::appliance::{Appliance, PROBE_IN_GUEST, archive_of, initramfs, kit_source, loads_source, staged};
use crate::clones::{add_loads, make_own};
use crate::engine::Session;
use crate::error::MeasureError;
use crate::program::{output, run};

/// What the guest needs besides the drivers of its functions; a kernel may have any of them built in.
const MODULES: [&str; 5] = ["virtio_pci", "virtio_net", "virtio_console", "button", "evdev"];

/// What it needs to read the loads image.
const MODULES_FOR_LOADS: [&str; 2] = ["virtio_blk", "erofs"];

/// The appliance with `programs`, the probe, this host's kernel and `drivers`, and with the loads image where the measurement
/// has one. Without drivers the appliance's own kernel will do where the host's is not to be had.
pub(crate) fn with_probe(
    programs: &[&str],
    mut drivers: Vec<String>,
    session: &Session<'_>,
) -> Result<Appliance, MeasureError> {
    let conditions = &session.conditions;
    let work = conditions.place_for_guest_files()?;
    let kernel = match own_kernel(session.fs, session.host.system.kernel.as_deref()) {
        Ok(kernel) => Some(kernel),
        // The appliance's own kernel need not have the driver.
        Err(why) if !drivers.is_empty() => return Err(MeasureError::Unfit(why)),
        Err(_) => None,
    };
    if conditions.loads.is_some() {
        drivers.extend(MODULES_FOR_LOADS.map(str::to_owned));
    }
    let mut made = appliance(session.fs, &conditions.appliance, programs, kernel.as_deref(), &drivers, &work)?;
    let mut archive = files::read(&made.initramfs)?;
    archive.resize(archive.len().next_multiple_of(4), 0);
    archive.extend(archive_of(&[(PROBE_IN_GUEST.to_owned(), files::read(&conditions.probe)?)]));
    made.initramfs = work.join("appliance-with-probe-for-the-network.cpio");
    files::write(&made.initramfs, &archive)?;
    made.loads = conditions.loads.as_deref().map(loads_source).transpose()?;
    made.kit = conditions.kit.as_deref().map(kit_source).transpose()?;
    Ok(made)
}

/// The image of the host's own kernel: Debian, Ubuntu, SUSE and Fedora keep it in /boot, Arch and new Fedoras with the modules.
pub(crate) fn own_kernel(fs: &HostFs, release: Option<&str>) -> Result<PathBuf, String> {
    let release = release.ok_or("the release of this host's kernel is unknown")?;
    let places = [format!("/boot/vmlinuz-{release}"), format!("/usr/lib/modules/{release}/vmlinuz")];
    let found = places.iter().find(|path| fs.exists(path));
    found.map(PathBuf::from).ok_or_else(|| {
        format!(
            "the guest needs this host's kernel for the function's driver, and neither {} is there",
            places.join(" nor ")
        )
    })
}

/// The appliance with the host's own `programs` in it, and with its kernel and `drivers` where `kernel` is given.
///
/// # Errors
/// A program is not installed, a driver is not to be had, or a file cannot be read or written.
pub(crate) fn appliance(
    fs: &HostFs,
    directory: &Path,
    programs: &[&str],
    kernel: Option<&Path>,
    drivers: &[String],
    work: &Path,
) -> Result<Appliance, MeasureError> {
    let mut added = Vec::new();
    // Programs share libraries, and each is needed once.
    let mut paths = BTreeSet::new();
    for program in programs {
        let program = which(fs, program)?;
        paths.extend(libraries(&program)?);
        paths.insert(program);
    }
    for path in paths {
        let contents = contents(fs, &path)?;
        added.push((path, contents));
    }
    if kernel.is_some() {
        added.extend(modules(fs, drivers)?);
    }
    let mut archive = initramfs(directory)?;
    archive.extend(archive_of(&added));
    let initramfs = work.join("appliance-for-the-network.cpio");
    files::create_dir_all(work)?;
    files::write(&initramfs, &archive)?;
    let kernel = match kernel {
        // Some distributions' kernels are larger than a file of a capture may be.
        Some(own) if fs.is_live() => files::read(own)?,
        Some(own) => contents(fs, &own.display().to_string())?,
        None => files::read(&directory.join("vmlinuz"))?,
    };
    Ok(Appliance { kernel: staged(&kernel, work.join("kernel-for-the-network"))?, initramfs, loads: None, kit: None })
}

/// A file of the host, which is not one of the kernel's.
fn contents(fs: &HostFs, path: &str) -> Result<Vec<u8>, MeasureError> {
    fs.read_bytes(path).map_err(|source| MeasureError::Kernel { what: format!("cannot read `{path}`"), source })
}

fn which(fs: &HostFs, program: &str) -> Result<String, MeasureError> {
    let places = ["/usr/bin", "/usr/local/bin", "/bin"].map(|directory| format!("{directory}/{program}"));
    places.into_iter().find(|path| fs.exists(path)).ok_or_else(|| {
        MeasureError::Unfit(format!(
            "`{program}` is not installed: install the package `{program}`, since both sides of every comparison run this host's own"
        ))
    })
}

/// Paths of the libraries a program loads, its loader included; none for a static one.
fn libraries(program: &str) -> Result<Vec<String>, MeasureError> {
    // ldd ends with 1 for a static program, and says so on stdout.
    let output = output(Command::new("ldd").arg(program))?;
    Ok(paths_in(&String::from_utf8_lossy(&output.stdout)))
}

/// `libm.so.6 => /lib/x/libm.so.6 (0x…)` and `/lib64/ld-linux-x86-64.so.2 (0x…)`.
fn paths_in(text: &str) -> Vec<String> {
    let line = |line: &str| line.split_whitespace().find(|word| word.starts_with('/')).map(str::to_owned);
    text.lines().filter(|line| line.contains("(0x")).filter_map(line).collect()
}

/// Module files of the running kernel with what they depend on, and the order in which the appliance loads them.
fn modules(fs: &HostFs, drivers: &[String]) -> Result<Vec<(String, Vec<u8>)>, MeasureError> {
    let mut paths: Vec<String> = Vec::new();
    let wanted = MODULES.iter().map(|name| (*name, false)).chain(drivers.iter().map(|name| (name.as_str(), true)));
    for (name, needed) in wanted {
        match run(Command::new("modprobe").args(["--show-depends", "--", name])) {
            Ok(text) => {
                let files = text.lines().filter_map(|line| line.trim().strip_prefix("insmod ")?.split(' ').next());
                for path in files.map(str::to_owned) {
                    if !paths.contains(&path) {
                        paths.push(path);
                    }
                }
            }
            Err(error) if needed => return Err(error),
            // A kernel without, say, evdev loads what it has.
            Err(_) => {}
        }
    }
    let (mut added, mut order) = (Vec::new(), String::new());
    for path in paths {
        let file = path.rsplit('/').next().unwrap_or_default();
        let plain = file.trim_end_matches(".xz").trim_end_matches(".zst").trim_end_matches(".gz");
        added.push((format!("lib/modules/{plain}"), unpacked(fs, &path)?));
        order.push_str(&format!("{plain}\n"));
    }
    added.push(("lib/modules/order".to_owned(), order.into_bytes()));
    Ok(added)
}

/// A module's file, unpacked: the appliance's loader takes no compressed ones.
fn unpacked(fs: &HostFs, path: &str) -> Result<Vec<u8>, MeasureError> {
    let program = match path.rsplit('.').next() {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        Some("gz") => "gzip",
        _ => return contents(fs, path),
    };
    let output = output(Command::new(program).args(["-dc", "--", path]))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let why = String::from_utf8_lossy(&output.stderr).trim().chars().take(400).collect();
    Err(LoadError::WorkloadFailed { what: format!("{program} -dc {path}"), why }.into())
}

/// One card of the clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ArmCard {
    /// The arm.
    pub path: NetPath,
    /// Address by which the guest's kernel tells it from the others.
    pub mac: String,
    /// Name of its tap or macvtap on the host.
    pub tap: String,
    /// Interface that a macvtap lies on; empty for others.
    pub lower: String,
    /// Function given away.
    pub function: Option<nearmetal_units::PciAddress>,
}

/// The hardware address of the card with this number in the run with this UUID: locally administered, as libvirt makes them,
/// and another in each run, since another host may measure beside this one.
pub(crate) fn mac_of_run(uuid: &str, number: usize) -> String {
    let digits: Vec<char> = uuid.chars().filter(char::is_ascii_hexdigit).collect();
    let pair = |place: usize| digits.get(2 * place..2 * place + 2).map_or_else(|| "00".to_owned(), String::from_iter);
    format!("52:54:00:{}:{}:{:02x}", pair(0), pair(1), number as u8).to_ascii_lowercase()
}

/// The clone of a domain that has exactly these cards, and no disk but the loads image, where there is one. `name` and `uuid`
/// are its own.
pub(crate) fn guest_with(
    xml: &str,
    name: &str,
    uuid: &str,
    bridge: &str,
    cards: &[&ArmCard],
    appliance: &Appliance,
) -> Result<String, MeasureError> {
    let wrap = |source| MeasureError::Xml { arm: name.to_owned(), source };
    let mut clone = make_own(xml, name, uuid, appliance).map_err(wrap)?;
    clone.remove_devices(&["interface", "disk"]).map_err(wrap)?;
    add_loads(&mut clone, appliance).map_err(wrap)?;
    let fragments: String = cards
        .iter()
        .map(|card| {
            let (lower, mac, tap) = (card.lower.as_str(), card.mac.as_str(), card.tap.as_str());
            card.path.interface(&CardPlace { bridge, lower, function: card.function, mac, tap })
        })
        .collect();
    let text = clone.as_str();
    let end = text
        .rfind("</devices>")
        .ok_or_else(|| MeasureError::Unfit(format!("the definition behind `{name}` has no <devices>")))?;
    let text = format!("{}{fragments}{}", &text[..end], &text[end..]);
    DomainXml::parse(&text).map(|clone| clone.as_str().to_owned()).map_err(wrap)
}

/// Brings one card up with an address and waits until the peer answers. `$1` MAC, `$2` address, `$3` peer.
pub(crate) const UP: &str = r#"d=
for n in /sys/class/net/*; do [ "$(cat $n/address)" = "$1" ] && d=${n##*/}; done
[ -n "$d" ] || { echo "no card has the address $1" >&2; exit 3; }
ip addr add "$2" dev $d && ip link set $d up || exit 4
i=0; while [ $i -lt 50 ] && [ "$(cat /sys/class/net/$d/carrier 2>/dev/null)" != 1 ]; do i=$((i+1)); usleep 200000; done
i=0; while [ $i -lt 6 ]; do netperf -H "$3" -t TCP_RR -l -20 -P 0 >/dev/null 2>/tmp/why && exit 0; i=$((i+1)); sleep 1; done
head -n 1 /tmp/why | grep . >&2 || echo "netperf reaches nobody at $3" >&2; exit 5"#;

/// Brings one card up with an address and waits until it has a link. `$1` MAC, `$2` address.
pub(crate) const CARRIER: &str = r#"d=
for n in /sys/class/net/*; do [ "$(cat $n/address)" = "$1" ] && d=${n##*/}; done
[ -n "$d" ] || { echo "no card has the address $1" >&2; exit 3; }
ip addr add "$2" dev $d && ip link set lo up && ip link set $d up || exit 4
i=0; while [ $i -lt 150 ]; do [ "$(cat /sys/class/net/$d/carrier 2>/dev/null)" = 1 ] && exit 0; i=$((i+1)); usleep 200000; done
echo "$d has no link" >&2; exit 5"#;

/// Takes every card down again, so that the next one has the address for itself.
pub(crate) const DOWN: &str =
    "for n in /sys/class/net/*; do d=${n##*/}; [ $d = lo ] || { ip addr flush dev $d; ip link set $d down; }; done";

#[cfg(test)]
mod tests {
    use nearmetal_results::Link;

    use super::*;

    const FOUND: &str = "<domain type='kvm'>
  <name>web1</name>
  <memory unit='MiB'>384</memory>
  <vcpu>2</vcpu>
  <os><type arch='x86_64' machine='q35'>hvm</type></os>
  <devices>
    <disk type='block' device='disk'><source dev='/dev/sda'/><target dev='vda' bus='virtio'/></disk>
    <interface type='network'><mac address='52:54:00:00:00:01'/><source network='default'/></interface>
  </devices>
</domain>
";

    #[test]
    fn the_guest_has_the_arms_as_cards_and_nothing_of_the_user() {
        let card = |path, mac: &str, tap: &str| ArmCard {
            path,
            mac: mac.into(),
            tap: tap.into(),
            lower: "eth9".into(),
            function: Some("0000:39:10.0".parse().unwrap()),
        };
        let cards = [
            card(NetPath::libvirt_default(), "52:54:00:00:09:00", "nmtap0"),
            card(NetPath::hardware(Link::VfHostdev), "52:54:00:00:09:01", ""),
        ];
        let appliance =
            Appliance { kernel: "/a/vmlinuz".into(), initramfs: "/a/initramfs".into(), loads: None, kit: None };
        let uuid = "22222222-2222-2222-2222-222222222222";
        let xml = guest_with(FOUND, "web1-nearmetal-net", uuid, "nmbr0", &cards.each_ref(), &appliance).unwrap();
        let facts = DomainXml::parse(&xml).unwrap().facts().unwrap();
        assert_eq!((facts.disks.len(), facts.interfaces.len()), (0, 2), "{xml}");
        assert_eq!(facts.interfaces[0].source.as_deref(), Some("nmbr0"));
        assert_eq!(facts.interfaces[1].kind, "hostdev");
        assert!(!xml.contains("52:54:00:00:00:01"), "the user's own card is gone: {xml}");
    }

    #[test]
    fn libraries_are_read_from_ldd() {
        let text =
            "\tlinux-vdso.so.1 (0x00007f07)\n\tlibm.so.6 => /lib/x/libm.so.6 (0x00007f)\n\t/lib64/ld.so.2 (0x00)\n";
        assert_eq!(paths_in(text), ["/lib/x/libm.so.6", "/lib64/ld.so.2"]);
        assert!(paths_in("\tnot a dynamic executable\n").is_empty());
    }

    fn nothing() -> HostFs {
        HostFs::of_tree(nearmetal_host::MemoryTree::new(), "nothing")
    }

    #[test]
    fn a_program_that_is_missing_is_named_with_its_package() {
        let why = which(&nothing(), "nearmetal-no-such-program").unwrap_err().to_string();
        assert!(why.contains("install the package `nearmetal-no-such-program`"), "{why}");
    }

    #[test]
    fn a_kernel_that_is_nowhere_is_said_to_be() {
        assert!(own_kernel(&nothing(), None).is_err());
        assert!(own_kernel(&nothing(), Some("0.0.0-none")).unwrap_err().contains("/boot/vmlinuz-0.0.0-none"));
    }
}
