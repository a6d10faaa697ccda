use super::*;
use crate::image::With;

fn boot() -> Boot {
    Boot {
        name: "quad".into(),
        machine: "quad".into(),
        token: "00000000-0000-0000-0000-000000000001".into(),
        ssh_port: 2200,
        durable: false,
        seeded: false,
        counter_khz: Some(2_300_000),
        extras: Vec::new(),
        append: vec!["hugepages=64".into()],
    }
}

/// One option a line, so that a change of the golden reads as what it is.
fn lines(arguments: &[String]) -> String {
    let mut text = String::new();
    for argument in arguments {
        text += if argument.starts_with('-') && !text.is_empty() {
            "\n"
        } else if text.is_empty() {
            ""
        } else {
            " "
        };
        text += argument;
    }
    text
}

#[test]
fn arguments_of_every_embedded_machine() {
    for (name, _) in BUILTIN {
        let machine = Machine::load(name).unwrap();
        insta::assert_snapshot!(name, lines(&arguments(&machine, &boot())));
    }
}

#[test]
fn an_image_beside_its_disks_is_one_that_nobody_writes() {
    let machine = Machine::load("quad").unwrap();
    let with = lines(&arguments(&machine, &Boot { extras: vec![Extra::Loads(None), Extra::Layer], ..boot() }));
    let drive = with.lines().find(|line| line.contains("id=loads")).unwrap();
    assert!(drive.contains("readonly=on") && drive.contains("file=/lab/disks/loads.erofs"), "{drive}");
    assert!(with.contains("drive=layer,serial=layer"), "{with}");
    // Who looks for PostgreSQL finds it, or finds that it is not there, by the disk's name.
    let extras = vec![Extra::Loads(Some(With::Postgresql))];
    let more = lines(&arguments(&machine, &Boot { extras, ..boot() }));
    assert!(more.contains("file=/lab/disks/loads.erofs") && more.contains("serial=loads-postgresql"), "{more}");
    assert!(!lines(&arguments(&machine, &boot())).contains("loads"), "a lab that did not ask for it has none");
}

#[test]
fn kept_disks_are_flushed_to_the_host() {
    let machine = Machine::load("quad").unwrap();
    let line = lines(&arguments(&machine, &Boot { durable: true, ..boot() }));
    assert!(line.contains("root.qcow2,format=qcow2,cache=writeback"), "{line}");
    assert!(!line.contains("unsafe"), "{line}");
}

#[test]
fn a_cable_joins_two_machines_by_its_ends() {
    let text = QUAD.replace("node = 1\n", "node = 1\ncable = { name = \"wire\", end = \"b\" }\n");
    let line = lines(&arguments(&Machine::parse("peer.toml", &text).unwrap(), &boot()));
    let near = "local.path=/lab/cables/wire.b,remote.type=unix,remote.path=/lab/cables/wire.a";
    assert!(line.contains(near), "{line}");
}

const QUAD: &str = include_str!("../../machines/quad.toml");

#[test]
fn a_cable_given_beside_the_machine_goes_into_its_first_card() {
    let cable: Cable = "wire:a".parse().unwrap();
    let machine = Machine::load_with("peer", Some(&cable), None).unwrap();
    assert!(lines(&arguments(&machine, &boot())).contains("local.path=/lab/cables/wire.a,"));
    for junk in ["wire", "wire:c", ":"] {
        assert!(junk.parse::<Cable>().unwrap_err().contains("wire:a"));
    }
    let error = Machine::load_with("peer", Some(&"../x:b".parse().unwrap()), None).unwrap_err().to_string();
    assert!(error.contains("cable.name") && error.contains("`../x`"), "{error}");
}

#[test]
fn processors_count_when_they_are_told_to_and_are_emulated() {
    let machine = Machine::load_with("quad", None, Some(Count::Locality)).unwrap();
    let line = lines(&arguments(&machine, &boot()));
    let plugin =
        "-plugin file=/lab/state/counter.so,counters=/lab/state/counters,count=locality,nodes=2048:2048:2048:2048";
    assert!(line.contains(plugin) && line.contains("-device ivshmem-plain,memdev=counters"), "{line}");
    let text = QUAD.replace("\"tcg\"", "\"kvm\"").replace("[processors]", "count = \"work\"\n[processors]");
    let error = Machine::parse("mine.toml", &text).unwrap_err().to_string();
    assert!(error.contains("`count` is `work`, but only emulated processors count"), "{error}");
}

#[test]
fn a_machine_without_a_model_of_time_hands_none_in() {
    let begins = QUAD.find("[time_model]").unwrap();
    let ends = begins + QUAD[begins..].find("\n\n").unwrap();
    let text = format!("{}{}", &QUAD[..begins], &QUAD[ends..]);
    let line = |text: &str| lines(&arguments(&Machine::parse("own.toml", text).unwrap(), &boot()));
    assert!(line(QUAD).contains("org.nearmetal/time_model"));
    assert!(!line(&text).contains("org.nearmetal/time_model"));
}

#[test]
fn errors_name_file_field_value_and_limit() {
    let cases = [
        ("sockets = 4", "sockets = 40", "`processors` is 120 hardware threads, but 1 to 64 are possible"),
        ("sockets = 4", "sockets = 3", "`node` is given 4 times, but 9 hardware threads do not split evenly over them"),
        (
            "distances = [10, 16, 22, 22]",
            "distances = [10, 16]",
            "`node[0].distances` is 2 distances, but there are 4 nodes",
        ),
        (
            "distances = [16, 10, 22, 22]",
            "distances = [16, 11, 22, 22]",
            "`node[1].distances[1]` is 11, but it must be exactly 10",
        ),
        (
            "distances = [10, 16, 22, 22]",
            "distances = [10, 9, 22, 22]",
            "`node[0].distances[1]` is 9, but it must be above 10",
        ),
        (
            "memory = \"2 GiB\"",
            "memory = \"64 MiB\"",
            "`node[0].memory` is 64 MiB, but it is whole MiB, at least 256 MiB",
        ),
        ("node = 1", "node = 4", "`network[0].node` is 4, but nodes are numbered 0 to 3"),
        (
            "virtual_functions = 4",
            "virtual_functions = 99",
            "`nvme[0].virtual_functions` is 99, but at most 16 are possible",
        ),
        ("size = \"8 GiB\"", "size = \"0 GiB\"", "`nvme[0].namespace[1].size` is 0 B, but it is whole MiB"),
        ("name = \"plain\"", "name = \"nic0\"", "`disk.name` is `nic0`, but that name is taken"),
        ("name = \"plain\"", "name = \"a,b\"", "`disk.name` is `a,b`, but a name has"),
        ("\"iommu=pt\"", "\"iommu=pt quiet\"", "`kernel_arguments` is `iommu=pt quiet`, but one entry is one argument"),
        ("local_latency = 113", "local_latency = 0", "`time_model.local_latency` is 0, but 10 to 10000 are possible"),
        ("model = \"EPYC-Rome\"", "model = \"\"", "`processors.model` is ``, but it is a name"),
    ];
    for (from, to, expected) in cases {
        assert!(QUAD.contains(from), "{from}");
        let error = Machine::parse("mine.toml", &QUAD.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.starts_with("mine.toml: ") && error.contains(expected), "{error}");
    }
}

#[test]
fn unknown_fields_and_bad_units_point_at_the_line() {
    for (from, to, expected) in [
        ("cores_per_socket = 3", "cores_per_socket = 3\nspeed = 3", "unknown field `speed`"),
        ("memory = \"2 GiB\"", "memory = \"2 GB\"", "GiB"),
        ("model = \"igb\"", "model = \"e1000\"", "unknown variant `e1000`"),
    ] {
        let error = Machine::parse("mine.toml", &QUAD.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.starts_with("mine.toml: ") && error.contains(" line ") && error.contains(expected), "{error}");
    }
}

#[test]
fn a_machine_nobody_knows() {
    let error = Machine::load("octo").unwrap_err().to_string();
    assert!(
        error.contains("no machine `octo`") && error.contains("known: quad, quad-4nvme, quad-tiles, quad-wide, peer"),
        "{error}"
    );
}
