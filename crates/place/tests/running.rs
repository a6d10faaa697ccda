//! Guests of a plan that run already: what they give back, and what those that stay as they are keep.

mod common;

use common::{cpu_set, guest, process, set};
use nearmetal_host::synthetic::Synthetic;
use nearmetal_host::{GuestProcess, Host, ThreadRole};
use nearmetal_place::{Blocker, GuestRequest, Occupied, Placement, Plan, Policy, WorkloadClass, plan_running};
use nearmetal_units::{Bytes, PageSize};

/// One node of eight PUs and 16 GiB.
fn host(pool: u64, guests: Vec<GuestProcess>) -> Host {
    let machine = Synthetic::new().cores_per_node(8).memory_per_node(Bytes::from_mib(16 << 10));
    let mut host = machine.pool(PageSize::HUGE_2M, pool).build();
    host.nodes[0].pools[0].free = 0;
    host.guests = guests;
    host
}

/// A guest with vCPUs on these PUs, and so many pages of 2 MiB.
fn running(name: &str, cpus: &str, pages: u64) -> GuestProcess {
    process(name, vec![(ThreadRole::Vcpu(0), set(cpus))], vec![(0, PageSize::HUGE_2M, pages)])
}

fn planned(host: &Host, guests: &[GuestRequest]) -> Plan {
    plan_running(host, guests, &Policy::default(), &[], |_| ()).plan
}

fn blocked(plan: &Plan) -> Vec<&str> {
    plan.blocked.iter().map(|blocker| blocker.guest.as_str()).collect()
}

#[test]
fn a_guest_that_will_float_gives_back_its_pus_and_keeps_its_pages() {
    let host = host(4096, vec![running("web", "1-7", 4096)]);
    let web = GuestRequest { class: WorkloadClass::Density, ..guest("web", 7, 8192) };
    let guests = [guest("db", 4, 2048), web];
    let plan = planned(&host, &guests);
    assert_eq!((plan.pools[0].before, plan.pools[0].after), (4096, 4096 + 1024));
    assert_eq!((cpu_set(&plan.placements[0]), plan.blocked), (set("1-4"), vec![]));
    let occupied = Occupied::around(&host, &guests);
    assert_eq!((occupied.returning, occupied.owners), (vec![], vec![]));
}

#[test]
fn nobody_is_placed_on_what_a_refused_guest_still_has() {
    let host = host(256, vec![running("b", "2-5", 256)]);
    let plan = planned(&host, &[guest("a", 3, 512), guest("b", 64, 512)]);
    assert_eq!(blocked(&plan), ["b"]);
    assert_eq!(cpu_set(&plan.placements[0]), set("1,6-7"));
    assert_eq!((plan.pools[0].before, plan.pools[0].after), (256, 512));
    // One that fits gives back what it has.
    let plan = planned(&host, &[guest("a", 3, 512), guest("b", 4, 512)]);
    assert_eq!((blocked(&plan).len(), plan.pools[0].after), (0, 512));
    assert_eq!(cpu_set(&plan.placements[0]), set("1-3"));
}

#[test]
fn a_guest_that_only_had_room_in_place_of_a_refused_one_stays_as_it_is_too() {
    let host = host(0, vec![running("a", "1", 0), running("b", "2-5", 0)]);
    let plan = planned(&host, &[guest("c", 1, 512), guest("a", 6, 512), guest("b", 64, 512)]);
    assert_eq!(blocked(&plan), ["a", "b"], "in the order asked");
    assert!(cpu_set(&plan.placements[0]).is_disjoint(&set("1-5")), "{:?}", plan.placements[0].vcpus);
}

#[test]
fn a_guest_that_runs_is_placed_where_a_new_one_before_it_fits_nowhere() {
    let host = host(0, vec![running("a", "1-4", 0)]);
    let plan = planned(&host, &[guest("new", 5, 512), guest("a", 4, 512)]);
    assert_eq!((blocked(&plan), plan.placements[0].guest.as_str()), (vec!["new"], "a"));
}

#[test]
fn what_else_keeps_a_guest_from_starting_refuses_it_with_what_it_has() {
    let host = host(0, vec![running("b", "1-4", 0)]);
    let refuse = |plan: &mut Plan| {
        let (refused, placed): (Vec<Placement>, Vec<Placement>) =
            std::mem::take(&mut plan.placements).into_iter().partition(|placement| placement.guest == "b");
        plan.placements = placed;
        plan.blocked.extend(refused.into_iter().map(|placement| Blocker {
            guest: placement.guest,
            problem: "it would not start".to_owned(),
            remedy: "another profile".to_owned(),
        }));
    };
    // Beside what it runs on, not beside what it would have been given.
    let plan = plan_running(&host, &[guest("b", 4, 512), guest("a", 3, 512)], &Policy::default(), &[], refuse).plan;
    assert_eq!((blocked(&plan), cpu_set(&plan.placements[0])), (vec!["b"], set("5-7")));
    assert_eq!(plan.blocked[0].problem, "it would not start");
}
