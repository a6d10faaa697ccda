//! Tiles from start to end on the played machine, and what is worked out of their runs.

use nearmetal_results::{FULL_TILE, Full, Level, Measurement, filled};

use super::*;
use crate::experiment::Experiment as Any;
use crate::played::{End, Kind, Machine, Sample};

/// The document of an experiment that leaves nothing behind.
fn results(machine: &mut Machine, experiment: &Any) -> Results {
    let Measurement::Results(results) = machine.perform(experiment).document() else { panic!("tiles leave results") };
    assert_eq!(machine.left(), Vec::<String>::new());
    *results
}

fn is_of(sample: &Sample, words: &str) -> bool {
    sample.guest.as_deref().is_some_and(|guest| guest.contains(words))
}

#[test]
fn a_machine_that_keeps_up_holds_all_tiles_and_scores_100_each() {
    let (mut machine, experiment) = Kind::TilesBothWays.set_up();
    let results = results(&mut machine, &experiment);
    let filled = filled(&results);
    assert_eq!(filled.iter().map(|arm| (arm.arm.as_str(), arm.held)).collect::<Vec<_>>(), [("bridge", 2), ("vf", 2)]);
    for arm in &filled {
        assert_eq!(arm.ended, Some((2, Full::NoMoreTiles)), "{}", arm.why());
        let scores: Vec<Option<f64>> = arm.levels.iter().map(Level::score).collect();
        assert_eq!(scores, [Some(FULL_TILE), Some(2.0 * FULL_TILE)]);
    }
    let [bridge, vf] = results.arms.as_slice() else { panic!("two arms") };
    assert!(bridge.xml.as_ref().unwrap().contains("<source bridge='nmbr0'/>"), "what was read is of its own guests");
    assert!(vf.xml.as_ref().unwrap().contains("type='hostdev'"));
    let words = |arm: &Arm, words: &str| arm.placement.iter().filter(|line| line.contains(words)).count();
    assert_eq!(
        (words(bridge, "virtio_net"), words(vf, "driver igbvf")),
        (2, 2),
        "{:?} {:?}",
        bridge.placement,
        vf.placement
    );
    let part = &results.runs[0].together.as_ref().unwrap().parts[0];
    assert!(part.metrics.iter().any(|metric| metric.name == "within-3000"), "{part:?}");
    let last = results.runs.last().unwrap();
    assert!(last.notes().iter().any(|note| note.starts_with("web2: 99 % of the requests went out")), "{last:?}");
    assert!(results.tenants.iter().all(|tenant| tenant.load.is_some()));
    let read = Results::parse(&serde_json::to_string(&results).unwrap()).unwrap();
    assert_eq!((&read.tiles, &read.tenants), (&results.tiles, &results.tenants));
    assert_eq!(nearmetal_results::filled(&read).iter().map(|arm| arm.held).collect::<Vec<_>>(), [2, 2]);
}

#[test]
fn quality_that_fails_with_two_tiles_ends_its_arm_alone_and_names_the_guest() {
    let (mut machine, experiment) = Kind::TilesBothWays.set_up();
    // The second tile's guest answers half of it too late, and only over the bridge.
    machine.rates(|sample| if is_of(sample, "web2-nearmetal-bridge") { 100 } else { 900 });
    let results = results(&mut machine, &experiment);
    let filled = filled(&results);
    assert_eq!(filled.iter().map(|arm| arm.held).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(filled[0].ended, Some((2, Full::Quality { failed: 3, of: 3 })));
    let why = filled[0].why();
    for words in ["with 2 tiles", "3 of 3 samples", "`web2` of tile 2", "50.0 % within 5 s", "99 % is the limit"] {
        assert!(why.contains(words), "{why}");
    }
    assert_eq!(filled[0].best().and_then(Level::score), Some(FULL_TILE));
}

#[test]
fn an_arm_that_is_full_is_asked_no_more() {
    let (mut machine, experiment) = Kind::TilesBothWays.set_up();
    machine.rates(|sample| if is_of(sample, "-bridge") { 100 } else { 900 });
    let results = results(&mut machine, &experiment);
    let counts = |arm: &str| results.runs.iter().filter(|run| run.arm == arm).map(|run| run.count).max();
    assert_eq!((counts("bridge"), counts("vf")), (Some(1), Some(2)));
    assert_eq!(filled(&results)[0].held, 0);
}

#[test]
fn guests_of_one_way_are_up_at_a_time_and_those_of_later_tiles_are_not_there() {
    let (mut machine, experiment) = Kind::TilesBothWays.set_up();
    results(&mut machine, &experiment);
    let mut up: Vec<String> = Vec::new();
    let mut most_of_the_first = 0;
    let mut asked = 0;
    for step in machine.steps() {
        if let Some(made) = step.strip_prefix("libvirt: create ") {
            up.push(made.to_owned());
        } else if let Some(ended) = step.strip_prefix("libvirt: destroy ") {
            up.retain(|made| made != ended);
        } else if step.contains(" load http ") {
            asked += 1;
            // Each arm has three samples of one tile.
            most_of_the_first = if asked <= 3 { up.len() } else { most_of_the_first };
        }
        let ways = ["-bridge", "-vf"].iter().filter(|way| up.iter().any(|name| name.ends_with(*way))).count();
        assert!(ways < 2, "{up:?}");
    }
    assert_eq!((most_of_the_first, asked), (1, 18));
}

#[test]
fn drivers_run_in_their_namespace_on_pus_that_no_guest_has() {
    let (mut machine, experiment) = Kind::TilesOverABridge.set_up();
    let results = results(&mut machine, &experiment);
    let tiles = results.tiles.as_ref().unwrap();
    for tenant in &results.tenants {
        let taken = tenant.slice.cpus.union(&tenant.slice.cpus_on_top);
        assert!(tiles.drivers.intersection(&taken).is_empty(), "{} {taken}", tiles.drivers);
    }
    let drivers = format!(" bind --cpus {} ", tiles.drivers);
    let asked: Vec<String> = machine.steps().into_iter().filter(|step| step.contains(" load http ")).collect();
    assert!(!asked.is_empty());
    for step in asked {
        assert!(step.starts_with("ip netns exec nearmetal-net ") && step.contains(&drivers), "{step}");
    }
}

#[test]
fn a_server_that_never_answers_ends_the_experiment_and_is_named() {
    let (mut machine, experiment) = Kind::TilesOverABridge.set_up();
    machine.mute_servers(true);
    let why = machine.perform(&experiment).failed();
    for words in ["4 runs in a row failed", "web server of `web1`", "198.18.0.2:80"] {
        assert!(why.contains(words), "{why}");
    }
    machine.mute_servers(false);
    assert_eq!(machine.left(), Vec::<String>::new());
}

#[test]
fn a_server_that_ends_is_started_again_and_said_to_have_ended() {
    let (mut machine, experiment) = Kind::TilesOverABridge.set_up();
    let mut done = false;
    machine.spoil(move |sample, number| {
        let dies = !done && number > 4 && is_of(sample, "web2-");
        done |= dies;
        if dies { End::TakesTheServerAlong } else { End::Well }
    });
    let results = results(&mut machine, &experiment);
    let caveats = results.caveats.join("\n");
    assert!(caveats.contains("in `web2-nearmetal-bridge` had ended and was started again"), "{caveats}");
    assert!(results.runs.iter().all(|run| run.failure().is_none()));
}

/// The request of a kind, changed.
fn changed(kind: Kind, change: impl FnOnce(&mut TilesRequest)) -> (Machine, Any) {
    let (machine, experiment) = kind.set_up();
    let Any::Tiles(mut request) = experiment else { panic!("tiles") };
    change(&mut request);
    (machine, Any::Tiles(request))
}

#[test]
fn an_arm_without_figures_is_full_and_the_other_one_goes_on() {
    let (mut machine, experiment) = changed(Kind::TilesBothWays, |request| request.samples = 5);
    machine.spoil(|sample, _| if is_of(sample, "web2-nearmetal-bridge") { End::Fails } else { End::Well });
    let results = results(&mut machine, &experiment);
    let filled = filled(&results);
    assert_eq!(filled[0].ended, Some((2, Full::NoFigures)));
    assert_eq!(filled[1].ended, Some((2, Full::NoMoreTiles)));
    assert_eq!(filled.iter().map(|arm| arm.held).collect::<Vec<_>>(), [1, 2]);
    let why = filled[0].why();
    assert!(why.contains("most samples gave no figures") && why.contains("spoiled by the test"), "{why}");
}

#[test]
fn a_sample_that_was_made_good_is_not_one_without_figures() {
    let (mut machine, experiment) = Kind::TilesBothWays.set_up();
    machine.spoil(|_, number| if number == 1 { End::Fails } else { End::Well });
    let results = results(&mut machine, &experiment);
    assert_eq!(results.runs.iter().filter(|run| run.failure().is_some()).count(), 1);
    for level in filled(&results).iter().flat_map(|arm| &arm.levels) {
        assert_eq!((level.samples.len(), level.failed, &level.last_failure), (3, 0, &None));
    }
}

#[test]
fn samples_that_all_fail_in_every_arm_are_an_error() {
    // Three samples in each arm: never four failures in a row in one of them.
    let (mut machine, experiment) = Kind::TilesBothWays.set_up();
    machine.spoil(|_, _| End::Fails);
    let why = machine.perform(&experiment).failed();
    assert!(why.contains("runs failed, the last") && why.contains("spoiled by the test"), "{why}");
    assert_eq!(machine.left(), Vec::<String>::new());
}

#[test]
fn a_network_that_was_made_half_is_made_again() {
    for words in ["link set dev nmtap-inside netns", "netns add nearmetal-net", "link set dev nmtap-drivers master"] {
        let (mut machine, experiment) = Kind::TilesBothWays.set_up();
        machine.fails_once(words);
        let results = results(&mut machine, &experiment);
        let failed: Vec<&str> = results.runs.iter().filter_map(Run::failure).collect();
        assert_eq!(failed.len(), 1, "{words}: {failed:?}");
        assert!(failed[0].contains(words), "{failed:?}");
        assert_eq!(filled(&results).iter().map(|arm| arm.held).collect::<Vec<_>>(), [2, 2], "{words}");
    }
}

#[test]
fn each_number_of_tiles_has_guests_that_were_booted_for_it() {
    let (mut machine, experiment) = Kind::TilesOverABridge.set_up();
    results(&mut machine, &experiment);
    let boots = |name: &str| machine.steps().iter().filter(|step| **step == format!("libvirt: create {name}")).count();
    let all = ["web1", "web2", "web3", "web4"].map(|guest| boots(&format!("{guest}-nearmetal-bridge")));
    assert_eq!(all, [2, 2, 1, 1]);
}

#[test]
fn an_application_is_started_again_with_the_database_that_it_asks() {
    let (mut machine, experiment) = changed(Kind::TilesOverABridge, |request| {
        (request.roles, request.seconds) = (vec![Role::Db, Role::App], 60);
    });
    let mut done = false;
    machine.spoil(move |sample, number| {
        let dies = !done && number > 4 && is_of(sample, "web1-");
        done |= dies;
        if dies { End::TakesTheServerAlong } else { End::Well }
    });
    let results = results(&mut machine, &experiment);
    let caveats = results.caveats.join("\n");
    let words = "`web2-nearmetal-bridge` was started again, since the database that it asks was";
    assert!(caveats.contains(words) && !caveats.contains("`web4-nearmetal-bridge` was started"), "{caveats}");
    let boots = |name: &str| machine.steps().iter().filter(|step| **step == format!("libvirt: create {name}")).count();
    assert_eq!((boots("web1-nearmetal-bridge"), boots("web2-nearmetal-bridge")), (2, 3));
}

#[test]
fn a_measurement_that_went_on_says_of_which_arms_nothing_was_read() {
    let (mut machine, experiment) = Kind::TilesBothWays.set_up();
    results(&mut machine, &experiment);
    let last = machine.steps().iter().rposition(|step| step.contains(" load http ")).unwrap();
    let (mut machine, experiment) = Kind::TilesBothWays.set_up();
    machine.kill_at(Some(last));
    assert!(matches!(machine.perform(&experiment), crate::played::Came::Dead));
    machine.kill_at(None);
    machine.take_back();
    let store = machine.store();
    let entry = store.entries(None).unwrap()[0].id;
    let mut experiment = Any::parse("tiles", &store.entry(entry).unwrap().request.unwrap()).unwrap();
    experiment.conditions_mut().resume = Some(entry);
    let results = results(&mut machine, &experiment);
    let without: Vec<&str> =
        results.arms.iter().filter(|arm| arm.xml.is_none()).map(|arm| arm.name.title.as_str()).collect();
    assert_eq!(without.len(), 1, "{without:?}");
    let words = format!("definition and placement are missing for {}", without[0]);
    assert!(results.caveats.iter().any(|caveat| caveat.ends_with(&words)), "{:?}", results.caveats);
}

#[test]
fn the_bridge_is_told_where_guests_and_drivers_are_and_no_echo_moves_them() {
    let (mut machine, experiment) = Kind::TilesOverABridge.set_up();
    results(&mut machine, &experiment);
    let steps = machine.steps();
    for tap in ["nmtap0", "nmtap1", "nmtap2", "nmtap3", "nmtap-drivers"] {
        let of = |step: &&String| step.starts_with("bridge fdb replace") && step.contains(&format!(" dev {tap} "));
        let last = steps.iter().rfind(of).unwrap_or_else(|| panic!("nobody told it of {tap}"));
        assert!(last.ends_with(" master static sticky"), "{last}");
    }
}

#[test]
fn guests_that_share_a_node_have_room_in_its_pool_all_at_once() {
    let (mut machine, experiment) = Kind::TilesOverABridge.set_up();
    results(&mut machine, &experiment);
    let grown = machine.steps().into_iter().find(|step| step.contains("nr_hugepages")).unwrap();
    // Four guests of 256 pages each, and none of the 16 that are there is in use.
    assert!(grown.contains("\"1024\""), "{grown}");
}

#[test]
fn nonsense_is_refused_before_anything_is_touched() {
    type Change = fn(&mut TilesRequest);
    let refused = |change: Change| {
        let (mut machine, experiment) = Kind::TilesOverABridge.set_up();
        let Any::Tiles(mut request) = experiment else { panic!("tiles") };
        change(&mut request);
        let why = machine.perform(&Any::Tiles(request)).failed();
        let touched = machine.steps().into_iter().filter(|step| !step.contains("look up") && !step.contains("mount"));
        let touched: Vec<String> = touched.filter(|step| !step.contains("version")).collect();
        assert_eq!(touched, Vec::<String>::new(), "{why}");
        assert_eq!(machine.left(), Vec::<String>::new());
        why
    };
    let cases: [(Change, &str); 8] = [
        (|request| drop(request.members.pop()), "3 guests do not make tiles of 2"),
        (|request| request.roles[1] = Role::Web, "two guests for `web`"),
        (|request| request.roles[1] = Role::App, "name a guest for `db`"),
        (|request| request.ways.push(TileWay::Bridge), "each way once"),
        (|request| request.scale = Scale::try_from(4.0).unwrap(), "has 512 MiB of memory"),
        (|request| request.members[3] = request.members[0].clone(), "named twice"),
        (|request| request.port = "eth77".to_owned(), "no interface `eth77`"),
        (|request| request.ways = vec![TileWay::Vf], "4 guests need one each"),
    ];
    for (change, words) in cases {
        let why = refused(change);
        assert!(why.contains(words), "{why}");
    }
}

#[test]
fn guests_that_leave_no_pu_to_the_drivers_are_refused() {
    let host = nearmetal_host::synthetic::Synthetic::new().packages(1).build();
    let (_, experiment) = Kind::TilesOverABridge.set_up();
    let Any::Tiles(request) = experiment else { panic!("tiles") };
    let mut tenant = Tenant::new("web1", slice_of(&request.members[0].placement, "enp57s0", Bytes::ZERO));
    let all = host.online();
    // What only an emulator thread has is taken where nothing else is left.
    let last: CpuSet = all.iter().last().into_iter().collect();
    (tenant.slice.cpus, tenant.slice.cpus_on_top) = (all.difference(&last), last.clone());
    assert_eq!(beside(&[tenant.clone()], &host).unwrap().0, last);
    tenant.slice.cpus = all;
    let why = beside(&[tenant], &host).unwrap_err().to_string();
    assert!(why.contains(&format!("all {} PUs", host.online().len())) && why.contains("at least 1"), "{why}");
}

#[test]
fn a_limit_of_which_samples_tell_little_is_a_caveat_and_goes_by_the_limits_in_force() {
    let (_, experiment) = Kind::TilesOverABridge.set_up();
    let Any::Tiles(mut request) = experiment else { panic!("tiles") };
    let said = too_few(&request);
    assert!(said.iter().any(|text| text.contains("of each idle") && text.contains("99.5 %")), "{said:?}");
    for limits in &mut request.limits {
        limits.within.iter_mut().for_each(|limit| limit.part = 0.1);
    }
    request.seconds = 600;
    assert_eq!(too_few(&request), Vec::<String>::new());
}
