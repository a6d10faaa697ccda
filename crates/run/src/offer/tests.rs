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
        + &one("gone", "vcpus = 1\nmemory = \"1 GiB\"\nimage = \"other.qcow2\"");
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
    let (host, flavours, images, given) = (host(), flavours(), images(), given("0-5"));
    let functions = assignable::examine(&host, &ledger::of(&host, &[]));
    let sources = Sources {
        host: &host,
        given: Some(&given),
        runs,
        flavours: Some(&flavours),
        images: Some(&images),
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
fn engines_get_words_that_they_can_hold() {
    let offer = offer(Some(&[]));
    let functions: Vec<String> = offer.functions.iter().map(|one| one.function.to_string()).collect();
    assert_eq!(functions.len(), 2, "the virtual functions, not their card");
    assert_eq!(
        offer.classad(),
        format!(
            "Nearmetal = true\nNearmetalFlavours = \"small,disk\"\nNearmetalFlavoursNow = \"small,disk\"\n\
             NearmetalImages = \"debian.qcow2,020202020202\"\nNearmetalNodes = \"0,1\"\nNearmetalFunctions = \"{}\"\n\
             NearmetalFunctionKinds = \"network\"\nNearmetalPUs = 6\nNearmetalFreePUs = 6",
            functions.join(",")
        )
    );
    assert_eq!(
        offer.slurm(),
        "Features=nearmetal,flavour.small,flavour.disk,image.debian.qcow2,image.020202020202,function.network"
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
    let nothing = Sources { host: &host, given: None, runs: None, flavours: None, images: None, functions: &[] };
    let offer = Offer::of(&nothing, vec!["why".to_owned()]);
    assert_eq!(offer.slurm(), "Features=nearmetal");
    assert!(!offer.classad().contains("NearmetalFlavours") && !offer.classad().contains("NearmetalImages"));
}
