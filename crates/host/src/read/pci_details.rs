//! What a PCI function is able to: link, regions, resets, access control.
//!
//! Documentation/ABI/testing/sysfs-bus-pci; flags of regions in include/linux/ioport.h.

use nearmetal_units::Bytes;

use crate::facts::{Facts, parsed};
use crate::parse::{Malformed, Parsed, hex, malformed, number_u32};
use crate::{AccessControl, PciBar, PciLink};

const PORTS: u64 = 0x100;
const MEMORY: u64 = 0x200;
const PREFETCHABLE: u64 = 0x2000;
const WIDE: u64 = 0x10_0000;

/// Regions 0 to 5 and the ROM; further lines are those of virtual functions and of bridges' windows.
const REGIONS: usize = 7;

pub(super) fn link(facts: &mut Facts<'_>, root: &str) -> Option<PciLink> {
    let speed = |facts: &mut Facts<'_>, name: &str| facts.optional(&format!("{root}/{name}"), speed).flatten();
    let width = |facts: &mut Facts<'_>, name: &str| facts.optional(&format!("{root}/{name}"), width).flatten();
    let link = PciLink {
        max_speed: speed(facts, "max_link_speed"),
        max_width: width(facts, "max_link_width"),
        speed: speed(facts, "current_link_speed"),
        width: width(facts, "current_link_width"),
    };
    (link != PciLink::default()).then_some(link)
}

/// `8.0 GT/s PCIe`, `8 GT/s`, `Unknown` or `Unknown speed`.
pub(super) fn speed(text: &str) -> Parsed<Option<u32>> {
    if text.starts_with("Unknown") {
        return Ok(None);
    }
    let wrong = || Malformed("expected a speed such as 8.0 GT/s PCIe".to_owned());
    let (amount, _) = text.split_once(" GT/s").ok_or_else(wrong)?;
    let (whole, tenth) = amount.split_once('.').unwrap_or((amount, "0"));
    let tenth = if tenth.len() == 1 { number_u32(tenth)? } else { return Err(wrong()) };
    let speed = number_u32(whole)?.checked_mul(1000).and_then(|whole| whole.checked_add(tenth * 100));
    speed.map(Some).ok_or_else(wrong)
}

/// 0 without a link; 63 and 255 from registers that answer nothing.
pub(super) fn width(text: &str) -> Parsed<Option<u32>> {
    Ok(Some(number_u32(text)?).filter(|width| (1..=32).contains(width)))
}

pub(super) fn resets(facts: &mut Facts<'_>, root: &str) -> Option<Vec<String>> {
    facts.optional(&format!("{root}/reset_method"), |text| {
        Ok(text.split_ascii_whitespace().map(str::to_owned).collect())
    })
}

pub(super) fn bars(facts: &mut Facts<'_>, root: &str) -> Vec<PciBar> {
    let path = format!("{root}/resource");
    let Some(text) = facts.text(&path) else { return Vec::new() };
    let bars = parsed(&path, &text, regions);
    facts.noted(bars).unwrap_or_default()
}

/// Lines of start, end and flags; zeros where there is no region.
pub(super) fn regions(text: &str) -> Parsed<Vec<PciBar>> {
    if !text.ends_with('\n') {
        return malformed("cut off: the last line has no newline");
    }
    let mut bars = Vec::new();
    for (index, line) in text.lines().take(REGIONS).enumerate() {
        let words: Vec<u64> = line.split_ascii_whitespace().map(hex).collect::<Parsed<_>>()?;
        let [start, end, flags] = words[..] else { return malformed("expected start, end and flags") };
        if flags & (PORTS | MEMORY) == 0 || end == 0 {
            continue;
        }
        let Some(size) = end.checked_sub(start).and_then(|length| length.checked_add(1)) else {
            return malformed("a region ends before it starts");
        };
        bars.push(PciBar {
            index: index as u32,
            size: Bytes::new(size),
            ports: flags & PORTS != 0,
            prefetchable: flags & PREFETCHABLE != 0,
            wide: flags & WIDE != 0,
        });
    }
    Ok(bars)
}

/// Access control of a bridge, out of its extended configuration space. Others than root get 64 bytes of it.
pub(super) fn access_control(facts: &mut Facts<'_>, root: &str) -> Option<AccessControl> {
    let path = format!("{root}/config");
    let bytes = facts.fs.read_bytes(&path);
    let bytes = facts.noted(bytes)?;
    if bytes.len() == 64 {
        facts.denied.push(path);
        return None;
    }
    // 256 bytes are all that conventional PCI has.
    (bytes.len() == 4096).then(|| find_access_control(&bytes))
}

/// Extended capabilities begin at 0x100: 16 bits identity, 4 version, 12 place of the next.
pub(super) fn find_access_control(config: &[u8]) -> AccessControl {
    const IDENTITY: u32 = 0x000d;
    let word = |at: usize| config.get(at..at + 2).map_or(0, |bytes| u16::from_le_bytes([bytes[0], bytes[1]]));
    let mut at = 0x100;
    // A damaged chain may go in a circle: no more capabilities than fit.
    for _ in 0..(4096 - 0x100) / 8 {
        let header = u32::from(word(at)) | (u32::from(word(at + 2)) << 16);
        if header & 0xffff == IDENTITY {
            return AccessControl::Present { able: word(at + 4), enabled: word(at + 6) };
        }
        at = (header >> 20) as usize & 0xffc;
        if at < 0x100 || header == 0 || header == u32::MAX {
            break;
        }
    }
    AccessControl::Absent
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn speeds_and_widths_are_numbers_or_unknown() {
        for (text, expected) in
            [("2.5 GT/s PCIe", Some(2500)), ("8 GT/s", Some(8000)), ("16.0 GT/s PCIe", Some(16_000)), ("Unknown", None)]
        {
            assert_eq!(speed(text), Ok(expected), "{text}");
        }
        assert_eq!((width("16"), width("0"), width("255")), (Ok(Some(16)), Ok(None), Ok(None)));
        for junk in ["", "8", "GT/s", "8.00 GT/s", "-8 GT/s", "9999999999 GT/s"] {
            assert!(speed(junk).is_err() && width(junk).is_err() || junk == "8", "{junk}");
        }
    }

    #[test]
    fn regions_have_sizes_and_kinds() {
        let text = "0x00000000febc0000 0x00000000febdffff 0x0000000000040200\n\
                    0x0000000000000000 0x0000000000000000 0x0000000000000000\n\
                    0x000000000000c040 0x000000000000c05f 0x0000000000040101\n\
                    0x000000e000000000 0x000000e3ffffffff 0x000000000014220c\n";
        let bars = regions(text).unwrap();
        let shown: Vec<_> = bars.iter().map(|bar| (bar.index, bar.size.to_string(), bar.ports, bar.wide)).collect();
        let expected = [(0, "128 KiB", false, false), (2, "32 B", true, false), (3, "16 GiB", false, true)];
        assert_eq!(shown, expected.map(|(index, size, ports, wide)| (index, size.to_owned(), ports, wide)));
        assert!(bars[2].prefetchable);
        for junk in ["", "0x1 0x2", "0x1 0x2\n", "0x5 0x1 0x200\n", "0x0 0xffffffffffffffff 0x200\n"] {
            assert!(regions(junk).is_err(), "{junk:?}");
        }
    }

    #[test]
    fn access_control_is_found_behind_other_capabilities() {
        let mut config = vec![0; 4096];
        config[0x100..0x104].copy_from_slice(&(0x0001_u32 | 1 << 16 | 0x148 << 20).to_le_bytes());
        config[0x148..0x14c].copy_from_slice(&(0x000d_u32 | 1 << 16).to_le_bytes());
        config[0x14c..0x150].copy_from_slice(&[0x1f, 0, 0x1d, 0]);
        assert_eq!(find_access_control(&config), AccessControl::Present { able: 0x1f, enabled: 0x1d });
        config[0x148] = 0x0e;
        assert_eq!(find_access_control(&config), AccessControl::Absent);
        // A circle.
        config[0x148..0x14c].copy_from_slice(&(0x0002_u32 | 0x100 << 20).to_le_bytes());
        assert_eq!(find_access_control(&config), AccessControl::Absent);
        assert_eq!(find_access_control(&[0xff; 4096]), AccessControl::Absent);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(text in "\\PC{0,60}\n?", bytes in proptest::collection::vec(any::<u8>(), 4096)) {
            let _ = (speed(&text), width(&text), regions(&text), find_access_control(&bytes));
        }
    }
}
