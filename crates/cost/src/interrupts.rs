//! /proc/interrupts: a count for each PU and line. Linux fs/proc/interrupts.c; Documentation/filesystems/proc.rst.

use std::collections::BTreeMap;

/// Interrupts of each line on all PUs together, since boot. A numbered line is called after who listens to it (`nvme1q1`,
/// `vfio-msix[1](0000:3a:00.1)`), the others have names (`LOC`, `RES`, `PIN`). Lines that share a name are added up. Text
/// that is none of this gives fewer lines, never an error: what is missing is not counted.
pub(super) fn parse(text: &str) -> BTreeMap<String, u64> {
    let mut lines = text.lines();
    let pus = lines.next().unwrap_or_default().split_ascii_whitespace().filter(|word| word.starts_with("CPU")).count();
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for line in lines {
        let Some((label, rest)) = line.split_once(':') else { continue };
        let label = label.trim();
        let mut words = rest.split_ascii_whitespace();
        let mut sum: u64 = 0;
        let mut complete = true;
        for _ in 0..pus {
            match words.next().and_then(|word| word.parse::<u64>().ok()) {
                Some(count) => sum = sum.saturating_add(count),
                None => complete = false,
            }
        }
        // ERR and MIS have one number, for the whole machine.
        if !complete || pus == 0 {
            continue;
        }
        let name = if label.bytes().all(|digit| digit.is_ascii_digit()) {
            // Chip, number in the chip and trigger stand before the names; nobody listens where they are the last.
            match words.next_back() {
                Some(name) if !name.ends_with("-edge") && !name.ends_with("-fasteoi") => name,
                _ => continue,
            }
        } else {
            label
        };
        let slot = counts.entry(name.to_owned()).or_default();
        *slot = slot.saturating_add(sum);
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "           CPU0       CPU1
  1:          0          9   IO-APIC   1-edge      i8042
 35:          0         12  PCI-MSIX-0000:3a:00.1   1-edge      nvme1q1
 36:          4          3  PCI-MSIX-0000:3a:00.2   0-edge      vfio-msix[0](0000:3a:00.2)
 37:          4          3  PCI-MSIX-0000:3a:00.3   0-edge
LOC:        100        200   Local timer interrupts
PIN:          0          0   Posted-interrupt notification event
ERR:          7
";

    #[test]
    fn lines_are_called_after_who_listens() {
        let counts = parse(TEXT);
        assert_eq!(counts["nvme1q1"], 12);
        assert_eq!(counts["vfio-msix[0](0000:3a:00.2)"], 7);
        assert_eq!((counts["LOC"], counts["PIN"], counts["i8042"]), (300, 0, 9));
        assert_eq!(counts.len(), 5, "{counts:?}");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(CPU0 CPU1\n)?[ -~\n]{0,200}") {
            let _ = parse(&text);
        }
    }
}
