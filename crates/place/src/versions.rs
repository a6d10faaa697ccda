//! What QEMU and libvirt can do from which version on.

use nearmetal_host::System;

/// The first QEMU and libvirt that share a disk's queues among iothreads (QEMU's ChangeLog/9.0, libvirt's NEWS of 10.0).
pub const SHARED_QUEUES: ((u32, u32), (u32, u32)) = ((9, 0), (10, 0));

/// `(10, 0)` from `10.0.8 (Debian …)`.
pub fn major_minor(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split(|c: char| !c.is_ascii_digit()).filter(|part| !part.is_empty());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Why this host's QEMU or libvirt cannot share a disk's queues among iothreads; `None` if both can, or nobody knows their versions.
pub fn no_shared_queues(system: &System) -> Option<String> {
    let needed =
        [("QEMU", &system.qemu_version, SHARED_QUEUES.0), ("libvirt", &system.libvirt_version, SHARED_QUEUES.1)];
    needed.into_iter().find_map(|(name, version, first)| {
        let (major, minor) = version.as_deref().and_then(major_minor).filter(|version| *version < first)?;
        Some(format!("{name} {major}.{minor} shares no queues among iothreads: {}.{} is the first", first.0, first.1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_programs_write_them() {
        assert_eq!(major_minor("10.0.8"), Some((10, 0)));
        assert_eq!(major_minor("QEMU emulator version 9.2 (Debian)"), Some((9, 2)));
        assert_eq!(major_minor("6.12.41+deb13-amd64"), Some((6, 12)));
        assert_eq!(major_minor("unknown"), None);
    }

    #[test]
    fn what_shares_no_queues_is_named_with_its_version() {
        let system = |qemu: &str, libvirt: &str| System {
            qemu_version: Some(qemu.to_owned()),
            libvirt_version: Some(libvirt.to_owned()),
            ..System::default()
        };
        assert_eq!(no_shared_queues(&system("9.0.0", "10.0.0")), None);
        assert_eq!(no_shared_queues(&System::default()), None);
        assert!(no_shared_queues(&system("8.2.0", "11.3.0")).unwrap().starts_with("QEMU 8.2 shares no queues"));
        assert!(no_shared_queues(&system("10.0.2", "9.0.0")).unwrap().ends_with("10.0 is the first"));
    }
}
