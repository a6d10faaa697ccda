//! Several guests, each on a scratch device of its own.

use nearmetal_load::FioJob;
use nearmetal_results::ArmName;
use nearmetal_units::Bytes;

use super::{Ready, TogetherRequest, make_room};
use crate::appliance::Appliance;
use crate::clones::{DiskClone, clone_xml, measured_disk};
use crate::engine::{Guest, Path, Seat, Session, Step, Tenant, restart_if_dead, slice_of};
use crate::error::MeasureError;
use crate::matrix::fill;
use crate::record::record;

/// The two regions of each tenant's device.
struct Regions {
    bare: Vec<String>,
    guests: Vec<Guest>,
}

impl Path for Regions {
    fn seat(&self, arm: usize, tenant: usize) -> Seat {
        match arm {
            0 => Seat::bare(&self.bare[tenant]),
            _ => Seat::guest(&self.guests[tenant].name, &self.guests[tenant].device),
        }
    }

    fn revive(&mut self, step: &Step, session: &mut Session<'_>) -> Result<bool, MeasureError> {
        let guests = if step.arm == 0 { &[][..] } else { &self.guests[..step.count] };
        guests.iter().try_fold(false, |any, guest| Ok(restart_if_dead(guest, session)? || any))
    }
}

pub(super) fn ready<'p>(
    request: &TogetherRequest,
    job: &FioJob,
    devices: &[String],
    session: &mut Session<'_>,
) -> Result<Ready<'p>, MeasureError> {
    session.stage("dividing the scratch devices");
    let mut scratches = Vec::new();
    for device in devices {
        // One region for each side.
        scratches.push(session.divide(device, 2)?);
    }
    if let Some(span) = job.span {
        // Blocks that were never written are read without the drive's medium.
        session.stage("writing what is read later");
        for scratch in &scratches {
            if span > scratch.region_size {
                return Err(MeasureError::Asked(format!(
                    "{} has {} for each side, and {span} are to be worked on: take a larger one",
                    scratch.device(),
                    scratch.region_size
                )));
            }
            scratch.regions.iter().try_for_each(|region| fill(region, Bytes::ZERO, span))?;
        }
    }
    let tenant = |(member, scratch): (&super::Member, &crate::scratch::Scratch)| {
        Tenant::new(&member.guest, slice_of(&member.placement, scratch.device(), scratch.region_size))
    };
    let mut tenants: Vec<Tenant> = request.members.iter().zip(&scratches).map(tenant).collect();
    make_room(&request.members, &tenants, session)?;
    let appliance = Appliance::with_probe(&request.conditions)?;
    let arm = &ArmName::planned();
    let mut path = Regions { bare: Vec::new(), guests: Vec::new() };
    for (member, scratch) in request.members.iter().zip(&scratches) {
        let [bare, region] = scratch.regions.as_slice() else { continue };
        let target = &measured_disk(&member.xml_planned, &member.guest)?;
        let uuid = &session.new_uuid()?;
        let made = DiskClone { guest: &member.guest, arm, target, region, uuid, appliance: &appliance };
        path.guests.push(clone_xml(&member.xml_planned, &made)?);
        path.bare.push(bare.clone());
    }
    session.will_clone(path.guests.iter().map(|guest| guest.name.clone()))?;
    session.stage("booting the clones");
    for (tenant, guest) in tenants.iter_mut().zip(&path.guests) {
        session.boot_paused(guest)?;
        let recorded = record(session, arm, "", &tenant.slice.device, Some(&guest.name), &tenant.slice)?;
        tenant.placement = recorded.placement;
    }
    let caveat = "guests stay up between samples, and each runs the planned path to its own scratch device";
    Ok(Ready {
        path: Box::new(path),
        tenants,
        workload: job.clone().into(),
        caveats: vec![caveat.to_owned()],
        ceiling: false,
    })
}
