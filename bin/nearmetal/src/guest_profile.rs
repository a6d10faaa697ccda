//! What AppArmor lets QEMU do, where a plan asks for more than a distribution's profile of guests allows.

use nearmetal_capture::security_models;
use nearmetal_change::ChangeError;
use nearmetal_host::HostFs;
use nearmetal_hypervisor::{Hypervisor, LOCAL_PROFILE, Versions, allow_in_profile};
use nearmetal_place::{Blocker, Placement, Plan};

/// The part of every guest's profile that libvirt's package brings.
const PROFILE: &str = "/etc/apparmor.d/abstractions/libvirt-qemu";
/// What libvirt 11 allows there, and Debian 12's libvirt 9.0 does not.
const RULE: &str = "/sys/devices/system/node/*/cpumap r,";

/// Paths that hold it too, as a site may write them.
const WIDER: [&str; 4] = ["/sys/devices/system/node/**", "/sys/devices/system/**", "/sys/devices/**", "/sys/**"];

/// From these on libvirt has QEMU allocate a guest's pages by threads on their node (`-object thread-context,node-affinity=…`), for which
/// QEMU asks libnuma, and that the kernel, which PUs the node has. Seen with libvirt 9.0.0 and QEMU 7.2.22 of Debian 12: "The nodes
/// select no CPUs", and the guest does not start.
const QEMU: (u64, u64) = (7, 2);
const LIBVIRT: (u64, u64) = (8, 10);

/// What is in the way of guests in huge pages on a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Denied {
    qemu: String,
}

impl Denied {
    /// Looks. Where libvirt does not say what confines guests, or the profile cannot be read, nothing is known to be in the way.
    pub(crate) fn here(fs: &HostFs, libvirt: &mut dyn Hypervisor) -> Option<Self> {
        let versions = libvirt.versions().ok()?;
        let models = security_models("libvirt's capabilities", &libvirt.capabilities().ok()?).ok()?;
        if !models.iter().any(|model| model.model == "apparmor") {
            return None;
        }
        let profile = fs.read(PROFILE).ok()?;
        Self::of(&versions, &profile, &fs.read(LOCAL_PROFILE).unwrap_or_default())
    }

    fn of(versions: &Versions, profile: &str, local: &str) -> Option<Self> {
        let asks = versions.hypervisor_kind == "QEMU"
            && release(&versions.hypervisor)? >= QEMU
            && release(&versions.libvirt)? >= LIBVIRT;
        let allows = |line: &str| {
            let mut words = line.split_whitespace();
            let path = words.next().unwrap_or_default().replace("@{sys}", "/sys");
            let may_read = words.next().is_some_and(|what| what.contains('r'));
            may_read
                && (path.starts_with("/sys/devices/system/node/") && path.ends_with("/cpumap")
                    || WIDER.contains(&path.as_str()))
        };
        let is_allowed = profile.lines().chain(local.lines()).any(allows);
        (asks && !is_allowed).then(|| Self { qemu: versions.hypervisor.clone() })
    }

    fn problem(&self) -> String {
        format!(
            "AppArmor does not let QEMU {} see which PUs a node has, and a VM whose memory is in huge pages of a node would not start",
            self.qemu
        )
    }

    fn remedy(&self) -> String {
        format!("allow it, for all guests from their next start on: {}", allow_in_profile(RULE))
    }

    /// Takes guests that would not start out of a plan.
    pub(crate) fn block(&self, plan: &mut Plan) {
        let (blocked, placed) = std::mem::take(&mut plan.placements).into_iter().partition(in_huge_pages);
        plan.placements = placed;
        let block =
            |placement: Placement| Blocker { guest: placement.guest, problem: self.problem(), remedy: self.remedy() };
        let blocked: Vec<Placement> = blocked;
        if blocked.is_empty() {
            return;
        }
        plan.blocked.extend(blocked.into_iter().map(block));
        if !plan.placements.iter().any(in_huge_pages) {
            plan.pools.clear();
        }
    }

    /// Refuses a plan with such guests before anything is changed.
    ///
    /// # Errors
    /// It has some.
    pub(crate) fn refuse(&self, plan: &Plan) -> Result<(), ChangeError> {
        let names: Vec<String> =
            plan.placements.iter().filter(|one| in_huge_pages(one)).map(|one| format!("`{}`", one.guest)).collect();
        match names.is_empty() {
            true => Ok(()),
            false => Err(self.refusal(&names.join(", "))),
        }
    }

    /// Why nothing was changed for those who would be in huge pages.
    pub(crate) fn refusal(&self, whom: &str) -> ChangeError {
        ChangeError::Preconditions { problems: vec![format!("{whom}: {}; {}", self.problem(), self.remedy())] }
    }
}

fn in_huge_pages(placement: &Placement) -> bool {
    placement.memory.page_size.is_some()
}

/// The first two numbers of a version.
fn release(text: &str) -> Option<(u64, u64)> {
    let mut numbers = text.split('.').map(|word| word.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versions(libvirt: &str, qemu: &str) -> Versions {
        Versions {
            libvirt: libvirt.into(),
            hypervisor: qemu.into(),
            hypervisor_kind: "QEMU".into(),
            uri: "qemu:///system".into(),
        }
    }

    /// All that it says of /sys/devices.
    const BOOKWORM: &str = "  /sys/devices/**/usb[0-9]*/** r,\n  /sys/devices/**/block/*/queue/max_segments r,\n  /sys/devices/system/cpu/ r,
  /sys/devices/system/node/ r,\n  /sys/devices/system/node/node[0-9]*/meminfo r,\n";

    #[test]
    fn the_profile_of_debian_12_is_in_the_way_until_a_site_or_a_newer_libvirt_allows_it() {
        let debian_12 = versions("9.0.0", "7.2.22");
        assert!(Denied::of(&debian_12, BOOKWORM, "").is_some());
        assert!(Denied::of(&debian_12, BOOKWORM, "  # /sys/devices/system/node/*/cpumap r,\n").is_some(), "a remark");
        for allowed in [
            RULE,
            "/sys/devices/system/node/** r,",
            "/sys/devices/system/node/node[0-9]*/cpumap rw,",
            "@{sys}/devices/system/node/node*/cpumap r,",
            "/sys/** r,",
        ] {
            assert_eq!(Denied::of(&debian_12, BOOKWORM, &format!("  {allowed}\n")), None, "{allowed}");
            assert_eq!(Denied::of(&debian_12, &format!("{BOOKWORM}   {allowed}\n"), ""), None, "{allowed}");
        }
        for other in ["deny /sys/devices/system/node/*/cpumap r,", "/sys/devices/system/node/*/cpumap w,"] {
            assert!(Denied::of(&debian_12, BOOKWORM, other).is_some(), "{other}");
        }
        // Those do not ask.
        for (libvirt, qemu) in [("8.0.0", "7.2.0"), ("9.0.0", "6.2.0"), ("7.0.0", "5.2.0"), ("?", "7.2.0")] {
            assert_eq!(Denied::of(&versions(libvirt, qemu), BOOKWORM, ""), None, "{libvirt} {qemu}");
        }
        assert!(Denied::of(&versions("10.0.0", "10.0.3"), BOOKWORM, "").is_some());
    }

    #[test]
    fn guests_in_huge_pages_are_blocked_with_the_line_that_helps_and_others_are_not() {
        let denied = Denied::of(&versions("9.0.0", "7.2.22"), BOOKWORM, "").unwrap();
        let old = r#"{"guest":"NAME","uuid":"u","vcpus":[],"emulator":"","iothreads":[],"memory":{"nodes":"0",
            "page_size":SIZE,"pages":2},"disks":[],"reasons":[]}"#;
        let placement = |name: &str, size: &str| -> Placement {
            serde_json::from_str(&old.replace("NAME", name).replace("SIZE", size)).unwrap()
        };
        let size = serde_json::to_string(&nearmetal_units::PageSize::HUGE_2M).unwrap();
        let placements = vec![placement("huge", &size), placement("small", "null")];
        let mut plan = Plan { placements, ..Plan::default() };
        let refused = denied.refuse(&plan).unwrap_err().to_string();
        assert!(refused.contains("`huge`") && refused.contains(RULE) && !refused.contains("small"), "{refused}");
        denied.block(&mut plan);
        assert_eq!(plan.placements.len(), 1);
        assert_eq!(plan.blocked[0].guest, "huge");
        assert!(plan.blocked[0].remedy.contains(LOCAL_PROFILE));
        assert!(denied.refuse(&plan).is_ok());
    }
}
