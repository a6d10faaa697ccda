//! A prefaulted buffer of a chosen page size, with the backing read back from the kernel.

use nearmetal_host::HostFs;
use nearmetal_units::NodeSet;

use crate::error::ProbeError;
use crate::memory::backing::Backing;
use crate::memory::budget::pool_shortage;
use crate::system::mapping::{Mapping, PageKind};

/// Maps and populates a buffer. Where the pool cannot give huge pages, small pages are taken instead, and the backing
/// says so with the reason.
///
/// # Errors
/// [`ProbeError::Kernel`] when no memory can be had; [`ProbeError::Backing`] when `exact` and the pages are others
/// than asked for.
pub fn buffer(
    files: &HostFs,
    bytes: u64,
    asked: PageKind,
    nodes: Option<&NodeSet>,
    exact: bool,
) -> Result<(Mapping, Backing), ProbeError> {
    let length = usize::try_from(bytes).unwrap_or(usize::MAX);
    let mut reason = pool_shortage(files, asked, bytes, nodes);
    let mut mapping = None;
    if reason.is_none() {
        match populated(length, asked) {
            Ok(done) => mapping = Some(done),
            Err(error) if asked == PageKind::Huge => reason = Some(crate::error::chain(&error)),
            Err(error) => return Err(error),
        }
    }
    let mapping = match mapping {
        Some(mapping) => mapping,
        None => populated(length, PageKind::Small)?,
    };
    if asked == PageKind::Transparent {
        reason = files
            .read("/sys/kernel/mm/transparent_hugepage/enabled")
            .map_or(Some("this kernel has no transparent huge pages".to_owned()), |mode| {
                Some(format!("transparent_hugepage/enabled is `{}`", mode.trim()))
            });
    }
    let backing = Backing::read(files, mapping.start().addr(), mapping.len() as u64, asked, reason);
    if exact && !backing.as_asked {
        let reason = backing.reason.clone().unwrap_or_else(|| "the kernel gave no reason".to_owned());
        return Err(ProbeError::Backing { asked: backing.asked.to_owned(), got: backing.got.to_owned(), reason });
    }
    Ok((mapping, backing))
}

fn populated(bytes: usize, kind: PageKind) -> Result<Mapping, ProbeError> {
    let refused = |error| ProbeError::kernel(format!("give {bytes} bytes in {} pages", kind.name()), error);
    let mut mapping = Mapping::new(bytes, kind).map_err(refused)?;
    mapping.populate(kind).map_err(refused)?;
    Ok(mapping)
}
