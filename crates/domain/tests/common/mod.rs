//! The domains of `fixtures/domains/`.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a helper of tests fails like a test")]

use nearmetal_domain::{DomainFacts, DomainXml};

macro_rules! fixtures {
    ($($name:literal),* $(,)?) => {
        /// Name and text of every fixture.
        pub(crate) const FIXTURES: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../../../fixtures/domains/", $name, ".xml")))),*];
    };
}

fixtures!(
    "virt-install",
    "hand-written-minimal",
    "windows-hyperv",
    "passthrough-commandline",
    "guest-cells",
    "old-style",
    "one-line",
);

pub(crate) fn text(name: &str) -> &'static str {
    FIXTURES.iter().find(|(other, _)| *other == name).unwrap().1
}

pub(crate) fn domain(name: &str) -> DomainXml {
    DomainXml::parse(text(name)).unwrap()
}

pub(crate) fn facts(name: &str) -> DomainFacts {
    domain(name).facts().unwrap()
}
