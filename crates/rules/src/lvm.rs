//! Names of LVM volumes.

use nearmetal_domain::DiskFacts;

/// The device mapper's name of an LVM volume: `/dev/vg/lv` is `vg-lv`, with hyphens inside names doubled.
pub(crate) fn mapped_name(disk: &DiskFacts) -> Option<String> {
    let path = disk.source.as_deref().filter(|_| disk.kind == "block")?.strip_prefix("/dev/")?;
    match path.split_once('/')? {
        ("mapper", name) => Some(name.to_owned()),
        (group, volume) if !volume.contains('/') => {
            Some(format!("{}-{}", group.replace('-', "--"), volume.replace('-', "--")))
        }
        _ => None,
    }
}
