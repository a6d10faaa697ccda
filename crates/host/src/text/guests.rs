//! Running guests: threads with their affinity, memory with its pages.

use std::collections::BTreeMap;

use nearmetal_units::PageSize;

use super::shown;
use super::table::Table;
use crate::{GuestProcess, Host, Thread, ThreadRole};

pub(super) fn render(host: &Host) -> String {
    host.guests.iter().map(guest).collect::<Vec<_>>().join("\n")
}

fn guest(guest: &GuestProcess) -> String {
    let name = guest.name.as_deref().unwrap_or("?");
    let uuid = guest.uuid.as_deref().map_or_else(String::new, |uuid| format!(", UUID {uuid}"));
    let title = super::printable(format!("GUEST {name} (process {}{uuid}), {} memory", guest.pid, shown(guest.memory)));
    let mut table = Table::new(&title, &["thread", ">count", "may run on PUs", "thread ids"]);
    let mut threads: Vec<&Thread> = guest.threads.iter().collect();
    threads.sort_by_key(|thread| (thread.role.clone(), thread.affinity.clone(), thread.id));
    for run in threads.chunk_by(|left, right| alike(left, right)) {
        let ids: Vec<String> = run.iter().map(|thread| thread.id.to_string()).collect();
        table.row(vec![roles(run), run.len().to_string(), shown(run[0].affinity.as_ref()), ids.join(" ")]);
    }
    format!("{}{}", table.render(), memory(guest))
}

/// Threads that share a row: same affinity and same kind; vCPUs only if their numbers follow each other.
fn alike(left: &Thread, right: &Thread) -> bool {
    left.affinity == right.affinity
        && match (&left.role, &right.role) {
            (ThreadRole::Vcpu(one), ThreadRole::Vcpu(two)) => one.checked_add(1) == Some(*two),
            (one, two) => one == two,
        }
}

fn roles(run: &[&Thread]) -> String {
    match (&run[0].role, &run[run.len() - 1].role) {
        (ThreadRole::Vcpu(first), ThreadRole::Vcpu(last)) if first != last => format!("vCPU {first}-{last}"),
        (ThreadRole::Vcpu(number), _) => format!("vCPU {number}"),
        (ThreadRole::Emulator, _) => "emulator".to_owned(),
        (ThreadRole::Iothread(number), _) => format!("iothread {number}"),
        (ThreadRole::Vhost, _) => "vhost worker".to_owned(),
        (ThreadRole::Worker, _) => "block worker".to_owned(),
        (ThreadRole::Other, _) => "other".to_owned(),
    }
}

fn memory(guest: &GuestProcess) -> String {
    if let Some(reason) = &guest.residency_error {
        return format!("guest memory: ? ({reason})\n");
    }
    let mappings = || guest.residency.iter().filter(|mapping| mapping.guest_memory);
    if mappings().next().is_none() {
        return "guest memory: ? (no mapping of its size)\n".to_owned();
    }
    let mut sums: BTreeMap<(&str, PageSize, u32), u64> = BTreeMap::new();
    for mapping in mappings() {
        for (node, pages) in &mapping.pages {
            *sums.entry((&mapping.policy, mapping.page_size, *node)).or_default() += pages;
        }
    }
    let mut table = Table::new("guest memory", &[">node", ">pages", ">page size", ">amount", "policy"]);
    for ((policy, size, node), pages) in sums {
        let amount = size.bytes().times(pages);
        table.row(vec![node.to_string(), pages.to_string(), size.to_string(), amount.to_string(), policy.to_owned()]);
    }
    let text = table.render();
    if text.is_empty() { "guest memory: no page touched yet\n".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use nearmetal_units::{Bytes, CpuSet};

    use super::*;
    use crate::Residency;

    fn thread(id: u32, role: ThreadRole, cpus: &str) -> Thread {
        Thread { id, name: String::new(), role, affinity: Some(cpus.parse::<CpuSet>().unwrap()), scheduling: None }
    }

    #[test]
    fn threads_alike_share_a_row_and_pages_are_summed_by_node() {
        let mapping = Residency {
            start: 0,
            page_size: PageSize::HUGE_2M,
            length: Bytes::from_mib(1024),
            guest_memory: true,
            pages: vec![(1, 511), (3, 1)],
            policy: "bind:1".to_owned(),
            file: None,
        };
        let mut host = GuestProcess {
            pid: 7,
            start_time: Some(1),
            name: Some("db\u{1b}".to_owned()),
            uuid: None,
            memory: Some(Bytes::from_mib(1024)),
            threads: vec![
                thread(7, ThreadRole::Emulator, "8"),
                thread(10, ThreadRole::Vcpu(0), "2"),
                thread(11, ThreadRole::Vcpu(1), "3"),
                thread(12, ThreadRole::Vcpu(2), "3"),
                thread(13, ThreadRole::Other, "8"),
                thread(14, ThreadRole::Other, "8"),
            ],
            residency: vec![mapping],
            ..GuestProcess::default()
        };
        let expected = "\
GUEST db\\u{1b} (process 7), 1 GiB memory
thread    count  may run on PUs  thread ids
vCPU 0        1  2               10
vCPU 1-2      2  3               11 12
emulator      1  8               7
other         2  8               13 14
guest memory
node  pages  page size    amount  policy
   1    511      2 MiB  1022 MiB  bind:1
   3      1      2 MiB     2 MiB  bind:1
";
        assert_eq!(guest(&host), expected, "\n{}", guest(&host));
        host.residency_error = Some("denied".to_owned());
        assert!(guest(&host).ends_with("guest memory: ? (denied)\n"));
    }
}
