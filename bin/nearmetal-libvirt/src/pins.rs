//! Pins of vCPU, emulator and iothread threads.

use nearmetal_hypervisor::Scope;
use nearmetal_units::CpuSet;
use virt::domain::Domain;
use virt::error::Error;
use virt::sys;

/// One bit per PU, the first in the lowest bit of the first byte; as long as the largest member needs.
fn map(cpus: &CpuSet) -> Vec<u8> {
    let mut bytes = vec![0; cpus.iter().last().map_or(1, |last| last as usize / 8 + 1)];
    for cpu in cpus.iter() {
        bytes[cpu as usize / 8] |= 1 << (cpu % 8);
    }
    bytes
}

pub(crate) fn flags(scope: Scope) -> sys::virDomainModificationImpact {
    let live = if scope.live { sys::VIR_DOMAIN_AFFECT_LIVE } else { 0 };
    let config = if scope.config { sys::VIR_DOMAIN_AFFECT_CONFIG } else { 0 };
    live | config
}

pub(crate) fn vcpu(domain: &Domain, vcpu: u32, cpus: &CpuSet, scope: Scope) -> Result<(), Error> {
    domain.pin_vcpu_flags(vcpu, &map(cpus), flags(scope)).map(drop)
}

pub(crate) fn emulator(domain: &Domain, cpus: &CpuSet, scope: Scope) -> Result<(), Error> {
    domain.pin_emulator(&map(cpus), flags(scope)).map(drop)
}

pub(crate) fn iothread(domain: &Domain, id: u32, cpus: &CpuSet, scope: Scope) -> Result<(), Error> {
    let mut map = map(cpus);
    let length = i32::try_from(map.len()).unwrap_or(i32::MAX);
    #[allow(unsafe_code, reason = "virt 0.4.3 has no wrapper for virDomainPinIOThread")]
    // SAFETY: the domain handle is valid as long as `domain` lives, and the map is at least `length` bytes long.
    let result = unsafe { sys::virDomainPinIOThread(domain.as_ptr(), id, map.as_mut_ptr(), length, flags(scope)) };
    if result == -1 { Err(Error::last_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_have_one_bit_per_cpu() {
        for (cpus, bytes) in [("0", vec![1]), ("7-8", vec![0x80, 1]), ("1,16", vec![2, 0, 1]), ("", vec![0])] {
            assert_eq!(map(&cpus.parse().unwrap()), bytes, "{cpus}");
        }
    }
}
