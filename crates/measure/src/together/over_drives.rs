//! Several guests, each on a drive of its own that host and guest take turns on.

use nearmetal_load::FioJob;
use nearmetal_results::ArmName;
use nearmetal_units::PciAddress;

use super::{Ready, TogetherRequest, make_room};
use crate::appliance::Appliance;
use crate::drive::{DrivePath, Own, clone_with, device_title, may_be_taken, taken};
use crate::engine::{Session, Tenant, slice_of};
use crate::error::MeasureError;
use crate::record::record;

pub(super) fn ready<'p>(
    request: &TogetherRequest,
    job: &FioJob,
    functions: &[PciAddress],
    namespace: Option<u32>,
    session: &mut Session<'_>,
) -> Result<Ready<'p>, MeasureError> {
    functions.iter().try_for_each(|function| may_be_taken(*function, session))?;
    session.stage("taking the functions");
    let (mut taken_all, mut tenants) = (Vec::new(), Vec::new());
    for (member, function) in request.members.iter().zip(functions) {
        let (card, found) = taken(*function, namespace, job.span, session)?;
        let slice = slice_of(&member.placement, &device_title(&card, &found), found.size);
        tenants.push(Tenant::new(&member.guest, slice));
        taken_all.push((card, found));
    }
    make_room(&request.members, &tenants, session)?;
    let appliance = Appliance::with_probe(&request.conditions)?;
    let mut all = Vec::new();
    for ((member, tenant), (card, found)) in request.members.iter().zip(&mut tenants).zip(taken_all) {
        let uuid = session.new_uuid()?;
        let guest = clone_with(&member.xml_planned, &member.guest, card.function, &uuid, &appliance)?;
        let name = guest.name.clone();
        session.will_clone([name.clone()])?;
        session.stage(&format!("booting the clone of {}", member.guest));
        let mut own = Own::new(card, found, guest);
        own.give_to_guest(session)?;
        let recorded = record(session, &ArmName::planned(), "", "", Some(&name), &tenant.slice)?;
        tenant.placement = recorded.placement;
        tenant.placement.push(own.words(session));
        all.push(own);
    }
    let caveat = "guests stay up between samples; host and guest took turns on each drive: bound to nvme, or handed over by VFIO";
    Ok(Ready {
        path: Box::new(DrivePath(all)),
        tenants,
        workload: job.clone().into(),
        caveats: vec![caveat.to_owned()],
        ceiling: false,
    })
}
