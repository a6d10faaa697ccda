//! A host and three domains with faults of every kind, and all that is written for them.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::disallowed_methods, reason = "the golden is written where the tests are")]

use std::collections::BTreeMap;

use nearmetal_domain::{DefinitionEdit, DomainXml};
use nearmetal_export::{ExportFile, Input, export};
use nearmetal_host::synthetic::{Numbering, Synthetic};
use nearmetal_host::{BlockDevice, FrequencyPolicy, Host, Interrupt, Setting};
use nearmetal_rules::Input as RuleInput;
use nearmetal_rules::{Cure, Domain, Examination, Finding, Object, RULES, Scope, Settings, Severity, Which, examine};
use nearmetal_units::{Bytes, CpuSet, PageSize};

/// Two packages of 4 cores with 2 PUs each, on bare metal, with most settings as nobody should have them.
fn host() -> Host {
    let machine = Synthetic::new().packages(2).cores_per_node(4).threads(2).numbering(Numbering::Split);
    let machine =
        machine.memory_per_node(Bytes::from_mib(64 << 10)).pool(PageSize::HUGE_1G, 2).nvme(0).network(1, 2, 0);
    let mut host = machine.build();
    let setting = |(name, value): (&str, &str)| Setting { name: name.to_owned(), value: value.to_owned() };
    let system = &mut host.system;
    system.hostname = Some("kvm7".to_owned());
    system.kernel = Some("6.12.48+deb13-amd64".to_owned());
    system.hypervisor = Some(false);
    system.command_line = Some("root=/dev/sda1 ro elevator=deadline isolcpus=7 transparent_hugepage=never".to_owned());
    system.transparent_hugepage = Some("never".to_owned());
    system.transparent_hugepage_defrag = Some("madvise".to_owned());
    system.ksm = Some(1);
    system.isolated = Some("7".parse().unwrap());
    system.nohz_full = Some(CpuSet::new());
    system.module_parameters =
        [("kvm.halt_poll_ns", "1000000"), ("kvm_intel.enable_apicv", "N"), ("kvm_intel.vpid", "N")]
            .map(setting)
            .to_vec();
    system.frequency = vec![FrequencyPolicy {
        driver: Some("acpi-cpufreq".to_owned()),
        governor: Some("ondemand".to_owned()),
        cpus: "0-15".parse().unwrap(),
    }];
    host.block_devices[0].scheduler = Some("mq-deadline".to_owned());
    let card = host.network_interfaces[0].pci;
    for (name, rotational) in [("sda", false), ("sdb", false)] {
        host.block_devices.push(BlockDevice {
            name: name.to_owned(),
            rotational: Some(rotational),
            scheduler: Some("bfq".to_owned()),
            pci: card,
            ..BlockDevice::default()
        });
    }
    host.interrupts = vec![Interrupt {
        number: 31,
        device: card,
        actions: vec!["eth0-TxRx-0".to_owned()],
        effective: Some("1".parse().unwrap()),
        ..Interrupt::default()
    }];
    host
}

fn definitions() -> BTreeMap<String, String> {
    let rt = include_str!("../../../fixtures/rules/rt.xml");
    let rt =
        rt.replace("vcpu='0' cpuset='4'", "vcpu='0' cpuset='1'").replace("vcpu='1' cpuset='5'", "vcpu='1' cpuset='2'");
    let gpu = include_str!("../../../fixtures/rules/gpu.xml");
    let gpu =
        gpu.replace("<numatune>", "<memtune>\n    <hard_limit unit='GiB'>4</hard_limit>\n  </memtune>\n  <numatune>");
    let web = include_str!("../../../fixtures/rules/web.xml").to_owned();
    [("rt".to_owned(), rt), ("gpu".to_owned(), gpu), ("web".to_owned(), web)].into()
}

fn examined(host: &Host, definitions: &BTreeMap<String, String>) -> Examination {
    let facts = |text: &String| DomainXml::parse(text).unwrap().facts().unwrap();
    let domains: Vec<Domain> =
        definitions.values().map(|text| Domain::new(Some(facts(text)), None, None).unwrap()).collect();
    let settings = Settings::default();
    examine(&RuleInput { host: Some(host), domains: &domains, settings: &settings }, RULES)
}

fn exported(host: &Host, findings: &[Finding], definitions: &BTreeMap<String, String>) -> Vec<ExportFile> {
    export(&Input { host, findings, cannot_tell: &[], definitions, is_missing: &|path| path.contains("missing") })
}

fn text_of<'a>(files: &'a [ExportFile], path: &str) -> &'a str {
    &files.iter().find(|file| file.path == path).unwrap_or_else(|| panic!("no {path}")).text
}

/// One finding of the host with these cures.
fn finding(cures: impl IntoIterator<Item = Cure>) -> Finding {
    let object = cures.into_iter().fold(Object::new("thing", "bad", "good"), Object::cured_by);
    Finding { rule: "some-rule".to_owned(), severity: Severity::Loss, scope: Scope::Host, objects: vec![object] }
}

#[test]
fn a_host_with_many_faults_is_written_as_in_the_golden() {
    let (host, definitions) = (host(), definitions());
    let examination = examined(&host, &definitions);
    let files = export(&Input {
        host: &host,
        findings: &examination.findings,
        cannot_tell: &examination.cannot_tell,
        definitions: &definitions,
        is_missing: &|_| false,
    });
    // Most of a whole definition is as it was; its difference says it all.
    let shown = files.iter().filter(|file| !file.path.ends_with(".xml"));
    let page: String = shown
        .map(|file| format!("==== {}{}\n{}", file.path, if file.private { " (private)" } else { "" }, file.text))
        .collect();
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/export.txt");
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        std::fs::create_dir_all(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data")).unwrap();
        std::fs::write(golden, &page).unwrap();
    }
    assert_eq!(page, std::fs::read_to_string(golden).unwrap_or_default(), "UPDATE_GOLDENS=1 rewrites {golden}");
}

#[test]
fn a_setting_of_the_profile_is_in_the_single_files_too() {
    let (host, definitions) = (host(), definitions());
    let files = exported(&host, &examined(&host, &definitions).findings, &definitions);
    let profile = text_of(&files, "tuned/nearmetal/tuned.conf");
    for (in_profile, path, in_file) in [
        ("/sys/kernel/mm/ksm/run=0", "tmpfiles.d/nearmetal.conf", "w /sys/kernel/mm/ksm/run - - - - 0\n"),
        (
            "transparent_hugepages=madvise",
            "tmpfiles.d/nearmetal.conf",
            "transparent_hugepage/enabled - - - - madvise\n",
        ),
        ("halt_poll_ns=200000", "modprobe.d/nearmetal.conf", "options kvm halt_poll_ns=200000\n"),
        ("kvm_intel=enable_apicv=Y", "modprobe.d/nearmetal.conf", "options kvm_intel enable_apicv=Y\n"),
        ("governor=performance", "tmpfiles.d/nearmetal.conf", "cpu*/cpufreq/scaling_governor - - - - performance\n"),
        ("/sys/block/nvme*n*/queue/scheduler=none", "udev/rules.d/90-nearmetal.rules", "KERNEL==\"nvme*n*\""),
    ] {
        assert!(profile.contains(in_profile), "{in_profile}:\n{profile}");
        assert!(text_of(&files, path).contains(in_file), "{in_file} in {path}");
    }
}

#[test]
fn definitions_are_for_their_owner_alone_and_nothing_else_is() {
    let (host, definitions) = (host(), definitions());
    let files = exported(&host, &examined(&host, &definitions).findings, &definitions);
    assert!(files.iter().any(|file| file.private));
    for file in &files {
        assert_eq!(file.private, file.path.starts_with("domains/"), "{}", file.path);
    }
}

#[test]
fn nothing_found_is_a_readme_alone() {
    let files = exported(&Host::default(), &[], &BTreeMap::new());
    assert_eq!(files.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), ["README.txt"]);
}

#[test]
fn a_file_the_host_lacks_is_left_out_and_named() {
    let cure = Cure::kernel_file("/sys/missing/file", "1");
    let files = exported(&Host::default(), &[finding([cure])], &BTreeMap::new());
    assert_eq!(files.len(), 1);
    let readme = text_of(&files, "README.txt");
    assert!(readme.contains("- /sys/missing/file (some-rule): this host has no such file"), "{readme}");
}

#[test]
fn names_that_would_mean_something_else_in_a_file_never_get_there() {
    for path in ["/sys/a\nb", "/sys/a b", "/sys/*/x", "/sys/a#b", "/proc/sys/a\"b", "/sys/../etc/passwd"] {
        let files = exported(&Host::default(), &[finding([Cure::kernel_file(path, "1")])], &BTreeMap::new());
        assert_eq!(files.len(), 1, "{path}");
        let readme = text_of(&files, "README.txt");
        assert!(readme.contains("it has characters that would mean something else in a file"), "{readme}");
        assert!(readme.lines().all(|line| line != "b = 1"), "{readme}");
    }
}

#[test]
fn of_two_findings_that_want_different_values_the_worse_has_its_way() {
    let cure = |value| Cure::kernel_file("/proc/sys/vm/swappiness", value);
    let mut second = finding([cure("60")]);
    second.rule = "other-rule".to_owned();
    let files = exported(&Host::default(), &[finding([cure("1")]), second], &BTreeMap::new());
    assert!(text_of(&files, "sysctl.d/90-nearmetal.conf").ends_with("\n# some-rule\nvm.swappiness = 1\n"));
    let readme = text_of(&files, "README.txt");
    assert!(
        readme.contains("/proc/sys/vm/swappiness as other-rule wants it: some-rule wants another value"),
        "{readme}"
    );
}

#[test]
fn two_guests_on_one_pool_get_the_larger_one() {
    let pool = |pages| Cure::HugepagePool { node: 1, size: PageSize::HUGE_2M, pages };
    let files = exported(
        &Host::default(),
        &[finding([pool(512)]), finding([pool(2048)]), finding([pool(64)])],
        &BTreeMap::new(),
    );
    let line = "w /sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages - - - - 2048\n";
    assert!(text_of(&files, "tmpfiles.d/nearmetal.conf").ends_with(line));
}

#[test]
fn large_pages_are_reserved_at_boot_only_where_no_words_are_in_the_way() {
    let pool = [finding([Cure::HugepagePool { node: 0, size: PageSize::HUGE_1G, pages: 40 }])];
    let mut host = host();
    for (line, kernel, reserved) in [
        ("ro", "6.12.48", true),
        ("ro", "5.10.0-28-amd64", false),
        ("ro default_hugepagesz=1G hugepages=4", "6.12.48", false),
    ] {
        host.system.command_line = Some(line.to_owned());
        host.system.kernel = Some(kernel.to_owned());
        let files = exported(&host, &pool, &BTreeMap::new());
        let list = files.iter().find(|file| file.path == "kernel-arguments.txt");
        let words = list.is_some_and(|file| {
            file.text.contains("+ hugepagesz=1G\n") && file.text.contains("+ hugepages=0:40,1:2\n")
        });
        assert_eq!(words, reserved, "{line}, {kernel}");
    }
}

#[test]
fn drives_of_two_kinds_behind_one_function_are_left_to_udev() {
    let mut host = host();
    host.block_devices.iter_mut().filter(|drive| drive.name == "sdb").for_each(|drive| drive.rotational = Some(true));
    let findings = [finding([Cure::kernel_file("/sys/class/block/sda/queue/scheduler", "none")])];
    let files = exported(&host, &findings, &BTreeMap::new());
    assert!(files.iter().all(|file| !file.path.starts_with("tuned")));
    assert!(text_of(&files, "udev/rules.d/90-nearmetal.rules").contains("ATTR{queue/rotational}==\"0\""));
    assert!(text_of(&files, "README.txt").contains("tuned cannot tell apart"));
}

#[test]
fn what_only_lasts_until_a_reboot_is_named() {
    let findings = [finding([Cure::kernel_file("/proc/irq/31/smp_affinity_list", "0-3")])];
    let readme = exported(&Host::default(), &findings, &BTreeMap::new()).remove(0).text;
    assert!(readme.contains("- some-rule host: thing: only while it runs: interrupts get new numbers"), "{readme}");
}

#[test]
fn a_transient_domain_and_a_definition_that_is_right_already_get_no_file() {
    let edit = Cure::Definition(DefinitionEdit::Remove { at: "memtune/hard_limit".to_owned() });
    let mut found = finding([edit]);
    found.scope = Scope::Domain { name: "web".to_owned(), which: Which::Running };
    let readme = exported(&Host::default(), &[found.clone()], &BTreeMap::new()).remove(0).text;
    assert!(readme.contains("the domain is transient"), "{readme}");
    let stored = BTreeMap::from([("web".to_owned(), "<domain type='kvm'><name>web</name></domain>".to_owned())]);
    let readme = exported(&Host::default(), &[found], &stored).remove(0).text;
    assert!(readme.contains("web: its stored definition is right already"), "{readme}");
}

#[test]
fn domains_whose_names_are_no_names_of_files_get_files_of_their_own() {
    let stored: BTreeMap<String, String> =
        ["a/b", "a_b"].map(|name| (name.to_owned(), "<domain type='kvm'><name>x</name></domain>".to_owned())).into();
    let edit = || Cure::Definition(DefinitionEdit::Ensure { at: "memoryBacking/locked".to_owned() });
    let findings: Vec<Finding> = stored
        .keys()
        .map(|name| {
            let scope = Scope::Domain { name: name.clone(), which: Which::Defined };
            Finding { scope, ..finding([edit()]) }
        })
        .collect();
    let files = exported(&Host::default(), &findings, &stored);
    let paths: Vec<&str> =
        files.iter().map(|file| file.path.as_str()).filter(|path| path.starts_with("domains")).collect();
    assert_eq!(paths, ["domains/a_b-2.diff", "domains/a_b-2.xml", "domains/a_b.diff", "domains/a_b.xml"]);
}
