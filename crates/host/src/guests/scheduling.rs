//! Policy, priority and nice value of a thread.

use crate::facts::parsed;
use crate::parse::{Parsed, malformed};
use crate::{HostFs, ReadError, Scheduling, SchedulingPolicy};

/// Of proc_pid_stat(5): nice is field 19, rt_priority 40, policy 41. Counting begins after the name, with field 3.
const NICE: usize = 19 - 3;
const PRIORITY: usize = 40 - 3;
const POLICY: usize = 41 - 3;

/// A thread as the kernel shows it, for the fuzzer.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) const EXAMPLE: &str = "4712 (CPU 0/KVM) S 1 1 1 0 -1 0 0 0 0 0 1 1 0 0 20 0 5 0 77 0 0 0 0 0 0 0 0 0 0 0 0 0 \
                                  0 0 17 3 0 0 0 0 0\n";

/// Of a file `stat` of a thread.
///
/// # Errors
/// No such thread, or a text with fewer fields than Linux 2.6 prints.
pub(super) fn read(fs: &HostFs, path: &str) -> Result<Scheduling, ReadError> {
    parsed(path, &fs.read(path)?, of_stat)
}

pub(super) fn of_stat(text: &str) -> Parsed<Scheduling> {
    // The name in field 2 may hold spaces and parentheses.
    let Some((_, rest)) = text.rsplit_once(") ") else { return malformed("expected a name in parentheses") };
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let field = |index: usize, name: &str| -> Parsed<i32> {
        match fields.get(index).map(|field| field.parse::<i32>()) {
            Some(Ok(value)) => Ok(value),
            Some(Err(_)) => malformed(format!("{name} is not a number")),
            None => malformed(format!("expected at least 41 fields, and {} are there", fields.len() + 2)),
        }
    };
    let (nice, priority, policy) = (field(NICE, "nice")?, field(PRIORITY, "rt_priority")?, field(POLICY, "policy")?);
    let (Ok(priority), Ok(policy)) = (u32::try_from(priority), u32::try_from(policy)) else {
        return malformed("rt_priority and policy are never negative");
    };
    if !(-20..=19).contains(&nice) {
        return malformed(format!("nice is {nice}, and -20 to 19 is what there is"));
    }
    Ok(Scheduling { policy: SchedulingPolicy::of(policy), priority, nice })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_priority_and_nice_are_three_fields_of_stat() {
        assert_eq!(of_stat(EXAMPLE).unwrap(), Scheduling::DEFAULT);
        let fifo = EXAMPLE.replace("17 3 0 0", "17 3 1 1").replace("(CPU 0/KVM)", "(a) b)");
        assert_eq!(of_stat(&fifo).unwrap().to_string(), "SCHED_FIFO priority 1");
        let idle = EXAMPLE.replace("17 3 0 0", "17 3 0 5").replace(" 20 0 5 ", " 20 19 5 ");
        let found = of_stat(&idle).unwrap();
        assert_eq!((found.policy, found.nice, found.to_string().as_str()), (SchedulingPolicy::Idle, 19, "SCHED_IDLE"));
        let nice = EXAMPLE.replace(" 20 0 5 ", " 39 -7 5 ");
        assert_eq!(of_stat(&nice).unwrap().to_string(), "SCHED_OTHER nice -7");
        assert_eq!(of_stat(&EXAMPLE.replace("17 3 0 0", "17 3 0 9")).unwrap().to_string(), "policy 9");
    }

    #[test]
    fn what_is_cut_or_no_number_is_refused() {
        let cut = EXAMPLE.split(" 17 3").next().unwrap();
        let bad = EXAMPLE.replace("17 3 0 0", "17 3 x 0");
        let wild = EXAMPLE.replace(" 20 0 5 ", " 20 400 5 ");
        for junk in ["", "4712", cut, &bad, &wild] {
            assert!(of_stat(junk).is_err(), "{junk}");
        }
    }
}
