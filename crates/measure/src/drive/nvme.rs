//! A namespace of an NVMe drive, found by its number on both sides.
//!
//! Names tell nothing: kernels number namespaces as they come, so that `nvme0n1` may be namespace 2, and with multipath
//! (nvme_core.multipath) a name stands for all ways to a namespace. The number (NSID) is the drive's own.

use std::time::Duration;

use nearmetal_host::{Host, HostFs};
use nearmetal_units::{Bytes, PciAddress};

use crate::clock;
use crate::error::MeasureError;
use crate::program::settle_names;
use crate::scratch;

/// How long a controller may take from its driver to its namespaces.
const PATIENCE: Duration = Duration::from_secs(30);

/// A namespace as the host sees it through one function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Namespace {
    /// NSID.
    pub(crate) id: u32,
    /// The block device through which it is used: `nvme1n1`.
    pub(crate) device: String,
    /// Other block devices that are the same namespace by its identifier (wwid), reached through other controllers.
    pub(crate) twins: Vec<String>,
    /// Its size.
    pub(crate) size: Bytes,
}

fn refuse(function: PciAddress, why: impl Into<String>) -> MeasureError {
    MeasureError::Unfit(format!("{function} cannot be measured: {}", why.into()))
}

fn asked(function: PciAddress, why: String) -> MeasureError {
    MeasureError::Asked(format!("{function} cannot be measured: {why}"))
}

impl Namespace {
    /// Finds it; waits for the controller, which has just got its driver.
    ///
    /// # Errors
    /// No NVMe controller, one that does not come up, no such namespace, or one with several ways to it.
    pub(super) fn find(fs: &HostFs, function: PciAddress, wanted: Option<u32>) -> Result<Self, MeasureError> {
        let deadline = clock::now() + PATIENCE;
        loop {
            match Self::look(fs, function, wanted) {
                Ok(found) => return Ok(found),
                Err(error) if clock::now() >= deadline => return Err(error),
                Err(_) => clock::pause(Duration::from_millis(200)),
            }
        }
    }

    fn look(fs: &HostFs, function: PciAddress, wanted: Option<u32>) -> Result<Self, MeasureError> {
        let controllers = fs.list(&format!("/sys/bus/pci/devices/{function}/nvme")).unwrap_or_default();
        let Some(controller) = controllers.first() else {
            return Err(refuse(function, "the nvme driver made no controller of it: is it an NVMe drive, and online?"));
        };
        let state = text(fs, &format!("/sys/class/nvme/{controller}/state")).unwrap_or_default();
        if state != "live" {
            return Err(refuse(
                function,
                format!(
                    "its controller {controller} is `{state}`, not `live`: a virtual function is set online by `nearmetal device vfs`"
                ),
            ));
        }
        let mut seen = Vec::new();
        for entry in fs.list(&format!("/sys/class/nvme/{controller}")).unwrap_or_default() {
            let Some(head) = head_of(&entry) else { continue };
            let number = text(fs, &format!("/sys/block/{head}/nsid")).and_then(|text| text.parse::<u32>().ok());
            seen.extend(number.map(|number| (number, head, entry)));
        }
        let numbers = || seen.iter().map(|(number, ..)| number.to_string()).collect::<Vec<_>>().join(", ");
        let (id, device, path) = match (wanted, seen.as_slice()) {
            (_, []) => return Err(refuse(function, format!("{controller} has no namespace"))),
            (None, [only]) => only.clone(),
            (None, _) => {
                return Err(asked(
                    function,
                    format!("it has the namespaces {}: name the one to be written to (--namespace)", numbers()),
                ));
            }
            (Some(wanted), _) => match seen.iter().find(|(number, ..)| *number == wanted) {
                Some(found) => found.clone(),
                None => {
                    return Err(asked(function, format!("it has no namespace {wanted}; there are: {}", numbers())));
                }
            },
        };
        let others = ways(fs, &device)?;
        if others.iter().any(|way| *way != path) {
            return Err(refuse(
                function,
                format!(
                    "namespace {id} has several ways to it ({}), and the kernel chooses among them: attach it to this function \
                     alone (nvme detach-ns from the other controllers), or boot with nvme_core.multipath=N",
                    others.join(", ")
                ),
            ));
        }
        let sectors = text(fs, &format!("/sys/block/{device}/size")).and_then(|text| text.parse::<u64>().ok());
        let size = sectors.and_then(|sectors| sectors.checked_mul(512)).filter(|size| *size > 0);
        let size = size.ok_or_else(|| refuse(function, format!("the kernel gives no size of {device}")))?;
        let twins = twins(fs, &device);
        Ok(Self { id, device, twins, size: Bytes::new(size) })
    }

    /// Refuses a namespace that holds data or is in use, by any of its names.
    pub(super) fn must_be_empty(&self, fs: &HostFs) -> Result<(), MeasureError> {
        let host = Host::read(fs);
        for name in std::iter::once(&self.device).chain(&self.twins) {
            scratch::must_be_empty(fs, &host, name)?;
        }
        // The kernel shows a partition table it found once until it looks again.
        settle_names()
    }
}

fn text(fs: &HostFs, path: &str) -> Option<String> {
    fs.read(path).ok().map(|text| text.trim().to_owned())
}

/// The block device that stands for a namespace below a controller: `nvme0n2` for itself, and for the way `nvme0c1n2` to
/// it. `None` for other entries (`ng0n2`, `device`, `power`).
fn head_of(entry: &str) -> Option<String> {
    let rest = entry.strip_prefix("nvme")?;
    let (subsystem, namespace) = rest.rsplit_once('n')?;
    let subsystem = subsystem.split_once('c').map_or(subsystem, |(subsystem, _)| subsystem);
    let number = |text: &str| !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    (number(subsystem) && number(namespace)).then(|| format!("nvme{subsystem}n{namespace}"))
}

/// All ways the kernel has to what this block device stands for: itself without multipath.
fn ways(fs: &HostFs, head: &str) -> Result<Vec<String>, MeasureError> {
    let controllers = fs
        .list("/sys/class/nvme")
        .map_err(|source| MeasureError::Kernel { what: "cannot list NVMe controllers".into(), source })?;
    let mut ways = Vec::new();
    for controller in controllers {
        let entries = fs.list(&format!("/sys/class/nvme/{controller}")).unwrap_or_default();
        ways.extend(entries.into_iter().filter(|entry| head_of(entry).as_deref() == Some(head)));
    }
    Ok(ways)
}

/// Other block devices with the same identifier.
fn twins(fs: &HostFs, device: &str) -> Vec<String> {
    let identifier = |name: &str| text(fs, &format!("/sys/block/{name}/wwid")).filter(|wwid| !wwid.is_empty());
    let Some(own) = identifier(device) else { return Vec::new() };
    let names = fs.list("/sys/block").unwrap_or_default();
    // Ways to a namespace have no block device of their own; their entries here lead nowhere that can be opened.
    let whole = names.into_iter().filter(|name| name != device && head_of(name).as_deref() == Some(name));
    whole.filter(|name| identifier(name).as_ref() == Some(&own)).collect()
}

/// The command by which a guest tells its namespaces: `PATH:NSID` a line.
pub(super) const LIST_IN_GUEST: &str = "grep -H . /sys/block/nvme*/nsid";

/// The guest's block device of a namespace, out of what [`LIST_IN_GUEST`] printed.
pub(super) fn device_in_guest(listed: &str, id: u32) -> Option<String> {
    listed.lines().find_map(|line| {
        let (path, number) = line.split_once("/nsid:")?;
        let name = path.strip_prefix("/sys/block/")?;
        (number.trim().parse::<u32>().ok()? == id && head_of(name).as_deref() == Some(name))
            .then(|| format!("/dev/{name}"))
    })
}

#[cfg(test)]
mod tests {
    use nearmetal_host::{Entry, MemoryTree};

    use super::*;

    fn function() -> PciAddress {
        "0000:51:00.1".parse().unwrap()
    }

    fn host(files: &[(&str, &str)]) -> HostFs {
        let mut tree = MemoryTree::new();
        for (path, text) in files {
            let entry = match text {
                &"/" => Entry::Directory,
                text => Entry::File(text.as_bytes().to_vec()),
            };
            tree.put(path, entry).unwrap();
        }
        HostFs::of_tree(tree, "drives")
    }

    /// A drive (nvme0) and its virtual function (nvme1), as Linux 6.12 shows them; the NSIDs are the other way round.
    const DRIVE: &[(&str, &str)] = &[
        ("/sys/bus/pci/devices/0000:51:00.1/nvme/nvme1/state", "live\n"),
        ("/sys/class/nvme/nvme0/nvme0c0n1/nsid", "2\n"),
        ("/sys/class/nvme/nvme1/state", "live\n"),
        ("/sys/class/nvme/nvme1/nvme0c1n1/nsid", "2\n"),
        ("/sys/class/nvme/nvme1/nvme0c1n2/nsid", "1\n"),
        ("/sys/class/nvme/nvme1/ng1n2/dev", "2\n"),
        ("/sys/block/nvme0n1/nsid", "2\n"),
        ("/sys/block/nvme0n1/size", "16777216\n"),
        ("/sys/block/nvme0n1/wwid", "nvme.a\n"),
        ("/sys/block/nvme0n2/nsid", "1\n"),
        ("/sys/block/nvme0n2/size", "2097152\n"),
        ("/sys/block/nvme0n2/wwid", "nvme.b\n"),
        ("/sys/block/nvme7n1/wwid", "nvme.b\n"),
        ("/sys/block/sda/wwid", "nvme.b\n"),
    ];

    #[test]
    fn a_namespace_is_found_by_its_number_and_not_by_its_name() {
        let found = Namespace::look(&host(DRIVE), function(), Some(1)).unwrap();
        assert_eq!((found.device.as_str(), found.size, found.id), ("nvme0n2", Bytes::from_mib(1024), 1));
        assert_eq!(found.twins, ["nvme7n1"]);
    }

    #[test]
    fn several_ways_and_several_namespaces_are_refused() {
        let error = |wanted| Namespace::look(&host(DRIVE), function(), wanted).unwrap_err().to_string();
        assert!(error(Some(2)).contains("nvme0c0n1, nvme0c1n1") && error(Some(2)).contains("multipath=N"));
        assert!(error(None).contains("--namespace") && error(Some(3)).contains("there are: "));
        let mut offline = DRIVE.to_vec();
        offline[2].1 = "connecting\n";
        let error = Namespace::look(&host(&offline), function(), Some(1)).unwrap_err().to_string();
        assert!(error.contains("not `live`"), "{error}");
        let none = Namespace::look(&host(&[("/sys/class/x", "1")]), function(), None).unwrap_err().to_string();
        assert!(none.contains("no controller"), "{none}");
    }

    #[test]
    fn names_of_ways_lead_to_heads() {
        assert_eq!(head_of("nvme0c11n2").as_deref(), Some("nvme0n2"));
        assert_eq!(head_of("nvme3n12").as_deref(), Some("nvme3n12"));
        for other in ["nvme0", "ng0n1", "nvmen1", "nvme0n", "nvme0n1p1", "power", "nvme0cxn", "n"] {
            assert_eq!(head_of(other), None, "{other}");
        }
    }

    #[test]
    fn the_guest_names_it_as_it_likes() {
        let listed = "/sys/block/nvme0c0n1/nsid:2\n/sys/block/nvme0n1/nsid:2\n/sys/block/nvme0n2/nsid:1\n";
        assert_eq!(device_in_guest(listed, 2).as_deref(), Some("/dev/nvme0n1"));
        assert_eq!(device_in_guest("/sys/block/../../x/nsid:2\nx", 2), None);
    }
}
