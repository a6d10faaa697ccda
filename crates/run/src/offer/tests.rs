use super::*;
use nearmetal_host::synthetic::Synthetic;
use nearmetal_host::{assignable, ledger};
use nearmetal_image::ImageId;

/// Two nodes of four cores, 8 GiB each, and a card with two virtual functions on node 1.
fn host() -> Host {
    let machine = Synthetic::new().packages(2).cores_per_node(4).memory_per_node(Bytes::from_mib(8192));
    machine.pool(PageSize::HUGE_2M, 0).network(1, 7, 2).build()
}

fn flavours() -> Flavours {
    let one = |name: &str, rest: &str| format!("[[flavour]]\nname = \"{name}\"\n{rest}\n");
    let text = one("small", "vcpus = 2\nmemory = \"1 GiB\"\nboot = \"appliance\"")
        + &one("wide", "vcpus = 64\nmemory = \"1 GiB\"\nboot = \"appliance\"")
        + &one("disk", "vcpus = 1\nmemory = \"1 GiB\"\nimage = \"debian.qcow2\"")
        + &one("gone", "vcpus = 1\nmemory = \"1 GiB\"\nimage = \"other.qcow2\"")
        + &one(
            "pages",
            "vcpus = 1\nmemory = \"1 GiB\"\nboot = \"appliance\"\npage-size = \"2 MiB\"\nopen-to = \"physics\"",
        );
    Flavours::parse("test", &text).unwrap()
}

fn images() -> Vec<StoredImage> {
    let image = |byte: u8, name: &str| {
        let (name, stored) = (Some(name.to_owned()), Some(7));
        StoredImage { image: ImageId::from_bytes([byte; 32]), name, length: 7, allocated: 7, stored }
    };
    vec![image(1, "debian.qcow2"), image(2, "a, \"b\"")]
}

fn given(cpus: &str) -> Given {
    Given { cpus: cpus.parse().unwrap(), nodes: "0-1".parse().unwrap(), memory: Vec::new() }
}

/// An offer with everything in it, for the reference too.
fn offer(runs: Option<&[Reservation]>) -> Offer {
    offer_of(runs, &flavours(), &BTreeMap::new())
}

fn offer_of(runs: Option<&[Reservation]>, flavours: &Flavours, lacks: &BTreeMap<String, String>) -> Offer {
    let (host, images, given) = (host(), images(), given("0-5"));
    let functions = assignable::examine(&host, &ledger::of(&host, &[]));
    let sources = Sources {
        host: &host,
        given: Some(&given),
        runs,
        flavours: Some(flavours),
        store: &Store::at("/images"),
        images: Some(&images),
        lacks,
        functions: &functions,
    };
    Offer::of(&sources, Vec::new())
}

fn one<'a>(offer: &'a Offer, name: &str) -> &'a OfferedFlavour {
    offer.flavours.as_ref().unwrap().iter().find(|flavour| flavour.name == name).unwrap()
}

#[test]
fn a_flavour_is_counted_with_runs_and_without() {
    let run = crate::reservation::tests::reservation("run-a", "0-3");
    let offer = offer(Some(&[run]));
    let small = one(&offer, "small");
    assert!(small.fit.unwrap() > small.fit_now.unwrap(), "{small:?}");
    assert!(small.fit.unwrap() >= 2 && small.fit_now.unwrap() >= 1, "{small:?}");
    assert_eq!(offer.free_cpus.as_ref().unwrap().to_string(), "4-5");
}

#[test]
fn what_does_not_fit_and_what_has_no_image_is_told_with_the_reason() {
    let offer = offer(Some(&[]));
    for (name, says) in [("wide", "64 PUs"), ("gone", "`other.qcow2` is not in the store")] {
        let flavour = one(&offer, name);
        assert_eq!((flavour.fit, flavour.fit_now), (Some(0), Some(0)), "{name}");
        assert!(flavour.problem.as_ref().unwrap().contains(says), "{flavour:?}");
    }
    assert_eq!(one(&offer, "disk").problem, None);
}

#[test]
fn an_image_is_found_by_the_rule_of_runs_and_what_the_host_lacks_is_no_offer() {
    let one = |name: &str, image: &str| {
        format!("[[flavour]]\nname = \"{name}\"\nvcpus = 1\nmemory = \"1 GiB\"\nimage = \"{image}\"\n")
    };
    // Five digits name no image, six do.
    let text = one("five", "01010") + &one("six", "010101") + &one("bridge", "debian.qcow2");
    let lacks = BTreeMap::from([("bridge".to_owned(), "no such bridge".to_owned())]);
    let offer = offer_of(Some(&[]), &Flavours::parse("test", &text).unwrap(), &lacks);
    let fits: Vec<_> =
        offer.flavours.iter().flatten().map(|flavour| (flavour.fit > Some(0), &flavour.problem)).collect();
    assert!(!fits[0].0 && fits[0].1.as_ref().unwrap().contains("`01010` is not in the store"), "{fits:?}");
    assert_eq!((fits[1], fits[2]), ((true, &None), (false, &Some("no such bridge".to_owned()))));
    assert_eq!(offer.slurm(), "Features=nearmetal,flavour.six,image.debian.qcow2,image.020202020202,function.network");
    // Two of a name.
    let mut images = images();
    images[1].name = images[0].name.clone();
    let (host, given, flavours, none) = (host(), given("0-5"), flavours(), BTreeMap::new());
    let sources = Sources {
        host: &host,
        given: Some(&given),
        runs: None,
        flavours: Some(&flavours),
        store: &Store::at("/images"),
        images: Some(&images),
        lacks: &none,
        functions: &[],
    };
    let offer = Offer::of(&sources, Vec::new());
    let disk = self::one(&offer, "disk");
    assert!(disk.fit == Some(0) && disk.problem.as_ref().unwrap().contains("may be any of"), "{disk:?}");
}

#[test]
fn a_flavour_with_a_function_is_counted_by_those_of_its_port_that_are_free() {
    let text =
        "[[flavour]]\nname = \"vf\"\nvcpus = 1\nmemory = \"256 MiB\"\nboot = \"appliance\"\nfunction = \"eth0\"\n";
    let flavours = Flavours::parse("test", text).unwrap();
    let counts = |runs: &[Reservation]| {
        let offer = offer_of(Some(runs), &flavours, &BTreeMap::new());
        let vf = one(&offer, "vf");
        assert!(!vf.session);
        (vf.fit, vf.fit_now, vf.problem.clone())
    };
    assert_eq!(counts(&[]), (Some(2), Some(2), None));
    let host = host();
    let card = host.pci_devices.iter().find_map(|device| device.sriov.as_ref()).unwrap();
    let run = |name: &str, number: usize, cpus: &str| Reservation {
        functions: vec![crate::function::Lent::nothing_known(card.functions[number])],
        ..crate::reservation::tests::reservation(name, cpus)
    };
    assert_eq!(counts(&[run("run-a", 0, "0")]), (Some(2), Some(1), None));
    let (fit, now, problem) = counts(&[run("run-a", 0, "0"), run("run-b", 1, "1")]);
    assert_eq!((fit, now), (Some(2), Some(0)));
    assert!(problem.as_ref().unwrap().contains("the run `run-b` (process 7) has it"), "{problem:?}");
}

#[test]
fn engines_get_words_that_they_can_hold() {
    let offer = offer(Some(&[]));
    let functions: Vec<String> = offer.functions.iter().map(|one| one.function.to_string()).collect();
    assert_eq!(functions.len(), 2, "the virtual functions, not their card");
    assert_eq!(
        offer.classad(),
        format!(
            "Nearmetal = true\nNearmetalFlavours = \"small,disk\"\nNearmetalFlavoursNow = \"small,disk\"\n\
             NearmetalFlavoursOfService = \"pages\"\nNearmetalImages = \"debian.qcow2,020202020202\"\nNearmetalNodes = \"0,1\"\nNearmetalFunctions = \"{}\"\n\
             NearmetalFunctionKinds = \"network\"\nNearmetalPUs = 6\nNearmetalFreePUs = 6",
            functions.join(",")
        )
    );
    assert_eq!(
        offer.slurm(),
        "Features=nearmetal,flavour.small,flavour.disk,flavour.pages,image.debian.qcow2,image.020202020202,function.network"
    );
}

#[test]
fn what_is_unknown_is_left_out_and_nothing_else_is() {
    let offer = offer(None);
    assert_eq!((one(&offer, "small").fit_now, &offer.free_cpus), (None, &None));
    let text = offer.classad();
    assert!(text.contains("NearmetalFlavours = \"small,disk\"") && text.contains("NearmetalPUs = 6"), "{text}");
    // What is missing for want of an image is known.
    assert!(!text.contains("NearmetalFreePUs"), "{text}");
    let host = host();
    let nothing = Sources {
        host: &host,
        given: None,
        runs: None,
        flavours: None,
        store: &Store::at("/images"),
        images: None,
        lacks: &BTreeMap::new(),
        functions: &[],
    };
    let offer = Offer::of(&nothing, vec!["why".to_owned()]);
    assert_eq!(offer.slurm(), "Features=nearmetal");
    assert!(!offer.classad().contains("NearmetalFlavours") && !offer.classad().contains("NearmetalImages"));
}
