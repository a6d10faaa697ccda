//! What would lift a guest: for each kind of exit it often makes, what spares it.
//!
//! Exits are what a guest pays and bare metal does not, so their kinds say where there is something to gain. What is named
//! here is what kernel and processor offer; whether this host has it in force is the doctor's work, whose rule is named.

use nearmetal_load::Cost;

use super::CostRow;
use super::table::count_text;

/// Part of all exits from which a kind is worth a word.
const OFTEN: f64 = 0.05;

/// A kind of exit, and what spares it.
struct Lift {
    /// As KVM counts it, and as processors call it.
    kinds: &'static [&'static str],
    what: &'static str,
    /// The doctor's rule that looks for it.
    rule: Option<&'static str>,
}

/// Sources: Linux Documentation/virt/kvm/halt-polling.rst and virt/guest-halt-polling.rst (halt), KVM's APICv and AVIC
/// (Intel SDM vol. 3 ch. 31, AMD64 APM vol. 2 ch. 15.29), VT-d ch. 9 "Interrupt Posting", Virtio 1.2 ch. 2.7.10.
const LIFTS: [Lift; 6] = [
    Lift {
        kinds: &["halt", "hlt"],
        what: "its vCPUs slept and were woken: polling before they sleep spares that (kvm.halt_poll_ns on the host, the \
               governor haltpoll in the guest), at the price of processor time",
        rule: Some("guest-haltpoll-governor"),
    },
    Lift {
        kinds: &["irq", "interrupt"],
        what: "interrupts came to its PUs while it ran: posted interrupts (VT-d, AVIC with its IOMMU) reach a guest without \
               an exit, and lines and ticks that are not its own belong on other PUs",
        rule: Some("irq-affinity-off-isolated"),
    },
    Lift {
        kinds: &["irq_window", "interrupt-window"],
        what: "KVM waited until the guest could take an interrupt: APICv or AVIC delivers it without that",
        rule: Some("kvm-apicv-avic-active"),
    },
    Lift {
        kinds: &["msr", "msr-read", "msr-write", "apic-access", "apic-write", "virtualized-eoi"],
        what: "it ended interrupts and set timers by registers that trap: APICv, or AVIC in x2APIC mode, keeps most of them \
               in the guest",
        rule: Some("kvm-apicv-avic-active"),
    },
    Lift {
        kinds: &["io", "mmio", "io-port", "ept-misconfiguration"],
        what: "it wrote registers that the host emulates: more requests for each notification (depth, larger blocks), and \
               in place of a device that QEMU emulates a function by passthrough",
        rule: None,
    },
    Lift {
        kinds: &["nested-page-fault", "ept-violation"],
        what: "it touched memory that had no translation yet: huge pages, allocated before it starts",
        rule: Some("mem-hugepages"),
    },
];

/// The doctor's rules that are named.
pub fn lift_rules() -> impl Iterator<Item = &'static str> {
    LIFTS.iter().filter_map(|lift| lift.rule)
}

/// A guest with what it cost.
#[derive(Debug, Clone, PartialEq)]
pub struct CostsOf<'a> {
    /// The guest, as a person calls it.
    pub who: String,
    /// Group, name and value for each I/O (transaction, gigabit).
    pub costs: Vec<(Cost, &'a str, f64)>,
}

/// The guests of an experiment, with what each cost in the first workload whose costs were counted.
pub fn costs_of_guests(rows: &[CostRow]) -> Vec<CostsOf<'_>> {
    let mut guests: Vec<CostsOf<'_>> = Vec::new();
    let first = rows.first().map(|row| &row.workload);
    for row in rows.iter().filter(|row| Some(&row.workload) == first && !row.arm.is_bare()) {
        let (who, cost) = (row.arm.title.as_str(), (row.cost, row.name.as_str(), row.per_io));
        match guests.iter_mut().find(|own| own.who == who) {
            Some(own) => own.costs.push(cost),
            None => guests.push(CostsOf { who: who.to_owned(), costs: vec![cost] }),
        }
    }
    guests
}

/// One thing that would lift guests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lifting {
    /// The exits that say so: "planned msr 0.610 of 1.130".
    pub seen: String,
    /// What spares them.
    pub what: &'static str,
    /// The doctor's rule that looks for it.
    pub rule: Option<&'static str>,
}

/// What would lift these guests, most exits first; nothing where no exits were counted.
///
/// Where exits were counted by the processor's reason that decides, else KVM's own kinds: one exit is in both.
pub fn liftings(guests: &[CostsOf<'_>]) -> Vec<Lifting> {
    let mut found: Vec<(&Lift, f64, Vec<String>)> = Vec::new();
    for CostsOf { who, costs } in guests {
        let value = |group: Cost, name: &str| costs.iter().find(|one| (one.0, one.1) == (group, name)).map(|one| one.2);
        let Some(all) = value(Cost::Exits, "all").filter(|all| *all > 0.0) else { continue };
        let by_reason = costs.iter().any(|(group, ..)| *group == Cost::Reasons);
        let group = if by_reason { Cost::Reasons } else { Cost::Exits };
        for lift in &LIFTS {
            let kinds: Vec<(&str, f64)> =
                lift.kinds.iter().filter_map(|kind| Some((*kind, value(group, kind)?))).collect();
            let each: f64 = kinds.iter().map(|(_, each)| each).sum();
            if each < OFTEN * all {
                continue;
            }
            let kinds: Vec<String> = kinds.iter().map(|(kind, each)| format!("{kind} {}", count_text(*each))).collect();
            let words = format!("{who} {} of {}", kinds.join(", "), count_text(all));
            match found.iter_mut().find(|(own, ..)| std::ptr::eq(*own, lift)) {
                Some((_, most, said)) => {
                    *most = most.max(each / all);
                    said.push(words);
                }
                None => found.push((lift, each / all, vec![words])),
            }
        }
    }
    found.sort_by(|left, right| right.1.total_cmp(&left.1));
    let lifting = |(lift, _, said): (&Lift, f64, Vec<String>)| Lifting {
        seen: said.join("; "),
        what: lift.what,
        rule: lift.rule,
    };
    found.into_iter().map(lifting).collect()
}

/// [`liftings`] for a terminal, a line each.
pub fn lift_text(guests: &[CostsOf<'_>]) -> String {
    let line = |lifting: &Lifting| {
        let rule = lifting.rule.map_or_else(String::new, |rule| format!(" (nearmetal doctor --explain {rule})"));
        format!("  {}: {}{rule}\n", lifting.seen, lifting.what)
    };
    let lines: String = liftings(guests).iter().map(line).collect();
    if lines.is_empty() { lines } else { format!("what would lift it, by the exits counted:\n{lines}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_with_most_exits_comes_first_and_rare_ones_are_left_out() {
        let of =
            |who: &str, costs: &[(Cost, &'static str, f64)]| CostsOf { who: who.to_owned(), costs: costs.to_vec() };
        let exits = Cost::Exits;
        let guests = [
            of("planned", &[(exits, "all", 10.0), (exits, "halt", 2.0), (exits, "irq", 5.0), (exits, "io", 0.1)]),
            of("found", &[(exits, "all", 4.0), (exits, "halt", 3.0)]),
        ];
        let text = lift_text(&guests);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(
            lines[1].starts_with("  planned halt 2.000 of 10.0; found halt 3.000 of 4.000: its vCPUs slept"),
            "{text}"
        );
        assert!(lines[2].contains("posted interrupts") && !text.contains("passthrough"), "{text}");
    }

    #[test]
    fn reasons_decide_where_they_were_counted_and_nothing_is_said_of_bare_metal() {
        let costs = vec![(Cost::Exits, "all", 2.0), (Cost::Exits, "halt", 1.0), (Cost::Reasons, "msr", 1.5)];
        let text = lift_text(&[CostsOf { who: "planned".to_owned(), costs }]);
        assert!(text.contains("msr 1.500 of 2.000") && !text.contains("halt 1.000"), "{text}");
        let bare = vec![(Cost::Interrupts, "all", 3.0), (Cost::Cpu, "pus-of-the-slice", 9.0)];
        assert_eq!(lift_text(&[CostsOf { who: "bare slice".to_owned(), costs: bare }]), "");
    }
}
