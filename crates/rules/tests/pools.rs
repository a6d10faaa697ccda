//! Hugepage pools that several cells, or several domains, take their pages from.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use nearmetal_domain::DomainXml;
use nearmetal_host::Host;
use nearmetal_host::synthetic::Synthetic;
use nearmetal_rules::{Domain, Input, Settings, examine, rule};
use nearmetal_units::{Bytes, PageSize};

/// Two nodes of 64 GiB with so many pages of 2 MiB each, all free.
fn host(pages: u64) -> Host {
    let machine = Synthetic::new().packages(2).memory_per_node(Bytes::from_mib(64 << 10));
    machine.pool(PageSize::HUGE_2M, pages).build()
}

/// A domain that does not run, in pages of 2 MiB.
fn domain(name: &str, mib: u64, parts: &str) -> Domain {
    let text = format!(
        "<domain type='kvm'><name>{name}</name><memory unit='MiB'>{mib}</memory>
         <memoryBacking><hugepages/></memoryBacking><vcpu>2</vcpu>{parts}</domain>"
    );
    Domain::new(Some(DomainXml::parse(&text).unwrap().facts().unwrap()), None, None).unwrap()
}

const NODE_0: &str = "<numatune><memory mode='strict' nodeset='0'/></numatune>";

fn early(name: &str, mib: u64) -> Domain {
    Domain { starts_with_host: true, ..domain(name, mib, NODE_0) }
}

/// What the rule finds, as `domain: object`, with its cures.
fn found(host: &Host, domains: &[Domain]) -> Vec<(String, Vec<String>)> {
    let settings = Settings::default();
    let input = Input { host: Some(host), domains, settings: &settings };
    let findings = examine(&input, [rule("hugetlb-pool-sized-per-node").unwrap()]).findings;
    let objects = findings.iter().flat_map(|finding| finding.objects.iter().map(|object| (finding.place(), object)));
    objects
        .map(|(place, object)| (format!("{place}: {object}"), object.cures.iter().map(ToString::to_string).collect()))
        .collect()
}

fn cell(id: u32, gib: u64) -> String {
    format!("<cell id='{id}' cpus='{id}' memory='{gib}' unit='GiB'/>")
}

#[test]
fn cells_of_the_same_nodes_have_their_pool_together() {
    let wide = |numatune: &str| {
        let cells = format!("<cpu><numa>{}{}</numa></cpu>", cell(0, 32), cell(1, 32));
        domain("wide", 64 << 10, &format!("{numatune}{cells}"))
    };
    let free = "20000 free pages of 2 MiB (wanted: 32768 for this domain)";
    assert_eq!(found(&host(10_000), &[wide("")]), [(format!("wide (defined): node 0-1: {free}"), vec![])]);
    assert_eq!(found(&host(16_384), &[wide("")]), []);
    let memnode = |cell: u32, node: u32| format!("<memnode cellid='{cell}' mode='strict' nodeset='{node}'/>");
    let bound = |second: u32| wide(&format!("<numatune>{}{}</numatune>", memnode(0, 0), memnode(1, second)));
    assert_eq!(found(&host(16_384), &[bound(1)]), []);
    let free = "16384 free pages of 2 MiB (wanted: 32768 for this domain)";
    let found = found(&host(16_384), &[bound(0)]);
    // The node has not so much memory.
    assert_eq!(found, [(format!("wide (defined): node 0: {free}"), vec![])]);
}

#[test]
fn domains_that_start_with_the_host_do_so_beside_each_other() {
    let pool = |pages: u64| vec![format!("hugepages of 2 MiB on node 0 = {pages}")];
    let line = |name: &str, wanted: &str| format!("{name} (defined): node 0: 0 free pages of 2 MiB (wanted: {wanted})");
    let beside = |others: &str| {
        format!("1024: 512 for this domain, the others for {others}, which libvirt starts with the host")
    };
    let both = [early("a", 1024), early("b", 1024)];
    let expected = [(line("a", &beside("`b`")), pool(1024)), (line("b", &beside("`a`")), pool(1024))];
    assert_eq!(found(&host(0), &both), expected);
    assert_eq!(found(&host(1024), &both), []);
    // One that somebody may start has to have room beside them, and one pool has one size.
    let three = [&both[..], &[domain("c", 512, NODE_0)]].concat();
    let cures: Vec<_> = found(&host(0), &three).into_iter().map(|(_, cures)| cures).collect();
    assert_eq!(cures, [pool(1280), pool(1280), pool(1280)]);
    assert_eq!(found(&host(1280), &three), []);
    // What the node has no memory for keeps no other from its pages.
    let vast = [&both[..], &[domain("c", 1 << 20, NODE_0)]].concat();
    let cures: Vec<_> = found(&host(0), &vast).into_iter().map(|(_, cures)| cures).collect();
    assert_eq!(cures, [pool(1024), pool(1024), vec![]]);
    // Those that nobody starts by itself are no load on others, nor is one elsewhere.
    let alone = [early("a", 1024), domain("c", 512, NODE_0), {
        let elsewhere = domain("d", 1024, "<numatune><memory mode='strict' nodeset='1'/></numatune>");
        Domain { starts_with_host: true, ..elsewhere }
    }];
    assert_eq!(found(&host(768), &alone), []);
}
