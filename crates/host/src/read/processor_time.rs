//! What processors did since boot, all together: the first line of /proc/stat (proc_stat(5)).

use crate::ProcessorTime;
use crate::facts::{Facts, parsed};
use crate::parse::{Parsed, malformed, number};

const PATH: &str = "/proc/stat";

/// Ten numbers of 20 digits fit. The file has a line for each PU, and one with a number for each interrupt.
const FIRST_LINE: usize = 512;

pub(super) fn read(facts: &mut Facts<'_>) -> Option<ProcessorTime> {
    let head = facts.fs.read_head(PATH, FIRST_LINE);
    let head = facts.noted(head)?;
    let time = parsed(PATH, &head, processor_time);
    facts.noted(time)
}

/// `cpu  user nice system idle iowait irq softirq steal guest guest_nice`, in ticks. Time of guests is in user and nice.
pub(super) fn processor_time(text: &str) -> Parsed<ProcessorTime> {
    let Some((line, _)) = text.split_once('\n') else { return malformed("its first line is cut off") };
    let Some(fields) = line.strip_prefix("cpu ") else { return malformed("expected a first line for `cpu`") };
    let fields: Vec<u64> = fields.split_ascii_whitespace().map(number).collect::<Parsed<_>>()?;
    match fields[..] {
        [_, _, _, idle, waiting, _, _, stolen, ..] => Ok(ProcessorTime {
            total: fields[..8].iter().fold(0, |total: u64, ticks| total.saturating_add(*ticks)),
            idle: idle.saturating_add(waiting),
            stolen,
        }),
        _ => malformed(format!("{} numbers where at least 8 were expected", fields.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_is_all_processors_together() {
        let time = processor_time("cpu  10 0 20 60 5 0 0 5 9 0\ncpu0 1 2\n").unwrap();
        assert_eq!(time, ProcessorTime { total: 100, idle: 65, stolen: 5 });
        assert_eq!(time.stolen_percent(), Some(5.0));
        assert_eq!(ProcessorTime { total: 0, idle: 0, stolen: 0 }.stolen_percent(), None);
        for junk in ["", "cpu  1 2 3", "cpu  1 2 3 4 5 6 7\n", "cpu0 1 2 3 4 5 6 7 8\n", "cpu  1 2 3 4 5 6 7 x\n"] {
            assert!(processor_time(junk).is_err(), "{junk:?}");
        }
    }
}
