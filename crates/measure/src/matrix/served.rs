//! Which thread of QEMU served a disk, by whose processor time moved while the disk worked.
//!
//! QMP would tell, and taints the domain. An iothread that serves no disk sleeps and its time stands still; the main loop
//! never does (the guest's agent talks through it), so it is what served the disk when no iothread moved.

use std::collections::BTreeMap;

use nearmetal_host::{HostFs, ThreadRole, guests};

/// Processor time that shows work, ns a request: a tenth of what the shortest way through QEMU takes on fast silicon.
const A_REQUEST: u64 = 500;

/// Processor time of the threads that can serve a disk: 0 is the main loop, else the iothread's number. Nanoseconds.
pub(super) type Times = BTreeMap<u32, u64>;

/// Reads them (/proc/PID/task/TID/schedstat, first field; Documentation/scheduler/sched-stats.rst).
pub(super) fn times(fs: &HostFs, pid: u32) -> Result<Times, String> {
    let threads = guests::threads(fs, pid).map_err(|error| error.to_string())?;
    let mut times = Times::new();
    for thread in threads {
        let number = match thread.role {
            ThreadRole::Emulator => 0,
            ThreadRole::Iothread(number) => number,
            _ => continue,
        };
        let path = format!("/proc/{pid}/task/{}/schedstat", thread.id);
        let text = fs.read(&path).map_err(|error| error.to_string())?;
        let time = text.split_whitespace().next().and_then(|word| word.parse().ok());
        times.insert(number, time.ok_or_else(|| format!("`{path}` holds no time"))?);
    }
    Ok(times)
}

/// The iothreads that moved with `requests` requests between two readings; none: the main loop served them.
pub(super) fn moved(before: &Times, after: &Times, requests: u64) -> Vec<u32> {
    let spent = |number: &u32, time: &u64| time.saturating_sub(before.get(number).copied().unwrap_or(0));
    let enough = requests.saturating_mul(A_REQUEST);
    let iothreads = after.iter().filter(|(number, _)| **number > 0);
    iothreads.filter(|(number, time)| spent(number, time) >= enough).map(|(number, _)| *number).collect()
}

/// `iothread 1`, `iothreads 1, 2`, `main loop`.
pub(super) fn words(iothreads: &[u32]) -> String {
    match iothreads {
        [] => "main loop".to_owned(),
        [one] => format!("iothread {one}"),
        several => format!("iothreads {}", several.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_iothread_that_slept_served_nothing_whatever_the_main_loop_did() {
        let before = Times::from([(0, 1_000_000), (1, 5_000), (2, 7_000)]);
        let table: [(&[(u32, u64)], &str); 4] = [
            (&[(0, 90_000_000), (1, 5_000), (2, 7_000)], "main loop"),
            (&[(0, 90_000_000), (1, 40_000_000), (2, 7_000)], "iothread 1"),
            (&[(0, 1_000_000), (1, 40_000_000), (2, 30_000_000)], "iothreads 1, 2"),
            // A wakeup that is none of the disk's.
            (&[(0, 90_000_000), (1, 25_000), (2, 7_000)], "main loop"),
        ];
        for (after, expected) in table {
            let after = after.iter().copied().collect();
            assert_eq!(words(&moved(&before, &after, 512)), expected);
        }
    }
}
