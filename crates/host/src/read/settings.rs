//! Settings of the whole machine that come in lists: frequency, vulnerabilities, module parameters, hugepages.

use std::collections::BTreeMap;

use nearmetal_units::CpuSet;

use super::processors::ROOT;
use crate::facts::{Facts, index_after, parsed};
use crate::parse::{Malformed, Parsed, cpu_list, number, number_u32, word};
use crate::{FrequencyPolicy, HugepageTotal, Setting};

/// Modules whose parameters decide how guests run.
const MODULES: [&str; 8] =
    ["kvm", "kvm_intel", "kvm_amd", "vfio", "vfio_pci", "vfio_iommu_type1", "vhost_net", "haltpoll"];

/// Policies, joined where driver and governor are the same: a machine has one for each PU.
pub(super) fn frequency(facts: &mut Facts<'_>) -> Vec<FrequencyPolicy> {
    let root = format!("{ROOT}/cpufreq");
    let mut policies: BTreeMap<(Option<String>, Option<String>), CpuSet> = BTreeMap::new();
    for name in facts.list(&root) {
        let Some(index) = index_after(&name, "policy") else { continue };
        let directory = format!("{root}/{name}");
        let driver = facts.optional(&format!("{directory}/scaling_driver"), word);
        let governor = facts.optional(&format!("{directory}/scaling_governor"), word);
        let cpus = facts.optional(&format!("{directory}/affected_cpus"), spaced).unwrap_or_else(|| CpuSet::one(index));
        let all = policies.entry((driver, governor)).or_default();
        cpus.iter().for_each(|cpu| _ = all.insert(cpu));
    }
    policies.into_iter().map(|((driver, governor), cpus)| FrequencyPolicy { driver, governor, cpus }).collect()
}

/// `0 1 2 3`.
pub(super) fn spaced(text: &str) -> Parsed<CpuSet> {
    text.split_ascii_whitespace().map(number_u32).map(|cpu| cpu.and_then(in_range)).collect()
}

/// As CPU lists: a damaged text must not stand for four thousand million PUs.
fn in_range(cpu: u32) -> Parsed<u32> {
    if cpu <= 65_535 { Ok(cpu) } else { Err(Malformed("expected a PU below 65536".to_owned())) }
}

/// A list of PUs; `(null)` or a NUL where nothing was asked for, as nohz_full has on many kernels.
pub(super) fn list_or_null(text: &str) -> Parsed<CpuSet> {
    if matches!(text.trim(), "(null)" | "\0") { Ok(CpuSet::new()) } else { cpu_list(text) }
}

pub(super) fn vulnerabilities(facts: &mut Facts<'_>) -> Vec<Setting> {
    settings(facts, &format!("{ROOT}/vulnerabilities"), "")
}

pub(super) fn module_parameters(facts: &mut Facts<'_>) -> Vec<Setting> {
    MODULES
        .iter()
        .flat_map(|module| settings(facts, &format!("/sys/module/{module}/parameters"), &format!("{module}.")))
        .collect()
}

fn settings(facts: &mut Facts<'_>, root: &str, prefix: &str) -> Vec<Setting> {
    let mut settings = Vec::new();
    for name in facts.list(root) {
        let value = facts.optional(&format!("{root}/{name}"), |text| Ok(text.to_owned()));
        settings.extend(value.map(|value| Setting { name: format!("{prefix}{name}"), value }));
    }
    settings
}

/// Hugepages of the whole machine. Documentation/admin-guide/mm/hugetlbpage.rst.
pub(super) fn hugepages(facts: &mut Facts<'_>) -> Vec<HugepageTotal> {
    const POOLS: &str = "/sys/kernel/mm/hugepages";
    let mut totals = Vec::new();
    for name in facts.list(POOLS) {
        let Some(size) = name.strip_prefix("hugepages-") else { continue };
        let directory = format!("{POOLS}/{name}");
        let size = parsed(&directory, size, super::nodes::pool_size);
        let Some(size) = facts.noted(size) else { continue };
        let mut count = |file: &str| facts.optional(&format!("{directory}/{file}"), number);
        totals.push(HugepageTotal {
            size,
            total: count("nr_hugepages"),
            free: count("free_hugepages"),
            reserved: count("resv_hugepages"),
            surplus: count("surplus_hugepages"),
            overcommit: count("nr_overcommit_hugepages"),
        });
    }
    totals.sort_by_key(|total| total.size);
    totals
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_with_spaces_and_none_at_all() {
        assert_eq!(spaced("0 1 5").map(|set| set.to_string()).as_deref(), Ok("0-1,5"));
        assert!(spaced("0 x").is_err() && spaced("4294967295").is_err());
        assert_eq!(list_or_null(" (null)"), Ok(CpuSet::new()));
        assert_eq!(list_or_null("2-3").map(|set| set.len()), Ok(2));
        assert!(list_or_null("null").is_err());
    }
}
