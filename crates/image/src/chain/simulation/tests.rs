use std::time::Duration;

use super::world::{Fault, Life, World};
use crate::chain::coordinator::Directive;

/// A piece at 1 Gbit/s.
const PIECE: Duration = Duration::from_micros(2100);
const HOSTS: usize = 1000;
/// 1 GiB.
const PIECES: usize = 4096;
const LIMIT: Duration = Duration::from_secs(200);

/// One copy, and the way of its last piece through so many hosts.
fn ideal(hosts: usize, pieces: usize) -> Duration {
    PIECE * (pieces + hosts) as u32
}

fn last(ends: &[Option<Duration>], but: &[usize]) -> Duration {
    let others = ends.iter().enumerate().filter(|(host, _)| !but.contains(host));
    others.map(|(host, end)| end.unwrap_or_else(|| panic!("host {host} has no image"))).max().unwrap()
}

fn told(world: &World, what: impl Fn(&Directive) -> bool) -> usize {
    world.told.iter().filter(|directive| what(directive)).count()
}

fn is_alarm(directive: &Directive) -> bool {
    matches!(directive, Directive::Silent { .. } | Directive::Aside { .. } | Directive::Lost { .. })
}

#[test]
fn a_thousand_hosts_take_as_long_as_one_copy_and_the_length_of_the_chain() {
    let mut world = World::new(HOSTS, PIECES, PIECE);
    let took = last(&world.run(LIMIT), &[]);
    // The manifest passes the chain before the first piece: 0.6 of a piece a host.
    assert!(took < ideal(HOSTS, PIECES) + PIECE.mul_f64(0.8 * HOSTS as f64), "{took:?} of {:?}", ideal(HOSTS, PIECES));
    assert_eq!(told(&world, is_alarm), 0);
}

#[test]
fn hosts_that_die_or_freeze_all_over_a_thousand_cost_the_others_less_than_a_second_each() {
    let mut world = World::new(HOSTS, PIECES, PIECE);
    let mut lost = Vec::new();
    for number in 0..10 {
        let (dies, freezes) = (37 + number * 90, 80 + number * 90);
        let at = Duration::from_millis(1500 + 600 * number as u64);
        world.fault(at, Fault::Becomes(dies, Life::Dead));
        world.fault(at, Fault::Becomes(freezes, Life::Frozen));
        lost.extend([dies, freezes]);
    }
    let ends = world.run(LIMIT);
    let took = last(&ends, &lost);
    assert!(took < ideal(HOSTS, PIECES) + PIECE * 800 + Duration::from_millis(10 * 900), "{took:?}");
    assert!(lost.iter().all(|host| ends[*host].is_none()));
    assert_eq!(told(&world, |directive| matches!(directive, Directive::Silent { .. })), 10);
    assert_eq!(told(&world, |directive| matches!(directive, Directive::Lost { .. })), 20);
    assert_eq!(told(&world, |directive| matches!(directive, Directive::Aside { .. })), 0);
}

#[test]
fn two_neighbours_that_freeze_at_once_are_both_spliced_out() {
    let mut world = World::new(30, PIECES, PIECE);
    for host in [0, 1, 14, 15, 16] {
        world.fault(Duration::from_secs(4), Fault::Becomes(host, Life::Frozen));
    }
    let took = last(&world.run(LIMIT), &[0, 1, 14, 15, 16]);
    assert!(took < ideal(30, PIECES) + Duration::from_millis(900), "{took:?}");
}

#[test]
fn a_cut_of_the_sources_network_is_taken_as_nobodys_death_and_costs_its_own_length() {
    let mut world = World::new(30, PIECES, PIECE);
    world.fault(Duration::from_secs(4), Fault::Cut(true));
    world.fault(Duration::from_secs(9), Fault::Cut(false));
    let took = last(&world.run(LIMIT), &[]);
    assert!(took < ideal(30, PIECES) + Duration::from_millis(5900), "{took:?}");
    assert_eq!(told(&world, is_alarm), 0);
}

#[test]
fn a_slow_host_steps_aside_alone_and_ends_at_its_own_rate() {
    let mut world = World::new(30, PIECES, PIECE);
    world.slow(7, 5);
    let ends = world.run(LIMIT);
    let (others, slow) = (last(&ends, &[7]), ends[7].unwrap());
    assert!(others < ideal(30, PIECES) + Duration::from_millis(2800), "{others:?}");
    assert!(slow < PIECE * PIECES as u32 * 5 + Duration::from_secs(3), "{slow:?}");
    let aside = |directive: &Directive| matches!(directive, Directive::Aside { host: 7, .. });
    assert_eq!((told(&world, aside), told(&world, is_alarm)), (1, 1));
}

#[test]
fn after_a_stall_nobody_is_called_slow_though_the_backlog_stays() {
    let mut world = World::new(100, PIECES, PIECE);
    world.fault(Duration::from_secs(3), Fault::Becomes(20, Life::Frozen));
    world.fault(Duration::from_secs(5), Fault::Becomes(60, Life::Frozen));
    last(&world.run(LIMIT), &[20, 60]);
    assert_eq!(told(&world, |directive| matches!(directive, Directive::Aside { .. })), 0);
}

#[test]
fn a_host_that_was_frozen_for_a_while_comes_back_and_ends_with_the_image() {
    let mut world = World::new(30, PIECES, PIECE);
    world.fault(Duration::from_secs(2), Fault::Becomes(9, Life::Frozen));
    world.fault(Duration::from_secs(5), Fault::Becomes(9, Life::Runs));
    last(&world.run(LIMIT), &[]);
    assert_eq!(told(&world, |directive| matches!(directive, Directive::Back { host: 9 })), 1);
}

#[test]
fn hosts_that_reach_no_port_are_served_through_ssh_and_the_others_follow_them() {
    let mut world = World::new(10, 512, PIECE);
    let source = world.source();
    world.close_port(source);
    world.close_port(4);
    last(&world.run(LIMIT), &[]);
    let over_ssh: Vec<usize> = world
        .told
        .iter()
        .filter_map(|directive| match directive {
            Directive::OverSsh { host } => Some(*host),
            _ => None,
        })
        .collect();
    assert_eq!(over_ssh, [0, 5]);
}

#[test]
fn all_hosts_dying_ends_the_push() {
    let mut world = World::new(5, PIECES, PIECE);
    for host in 0..5 {
        world.fault(Duration::from_secs(1 + host as u64), Fault::Becomes(host, Life::Dead));
    }
    assert!(world.run(LIMIT).iter().all(Option::is_none));
}
