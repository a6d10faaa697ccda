//! /proc/PID/numa_maps: policy and pages per node of every mapping.
//!
//! Counts are in pages of `kernelpagesize_kB`; transparent huge pages count as the base pages they hold
//! (Documentation/filesystems/proc.rst and fs/proc/task_mmu.c: gather_stats).

use nearmetal_units::PageSize;

use crate::parse::{Parsed, malformed, number, number_u32, page_size_kib};

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MappedPages {
    pub(super) start: u64,
    pub(super) policy: String,
    /// Unescaped; `None` for anonymous memory.
    pub(super) file: Option<String>,
    /// In a hugetlb pool's pages.
    pub(super) huge: bool,
    /// The kernel leaves this out where no page is mapped.
    pub(super) page_size: Option<PageSize>,
    /// As (node, pages).
    pub(super) pages: Vec<(u32, u64)>,
}

/// Parses the whole file.
pub(super) fn parse(text: &str) -> Parsed<Vec<MappedPages>> {
    text.lines().map(parse_line).collect()
}

fn parse_line(line: &str) -> Parsed<MappedPages> {
    let mut words = line.split_ascii_whitespace().peekable();
    let Some(start) = words.next().and_then(super::maps::address) else {
        return malformed(format!("expected an address first in `{line}`"));
    };
    let Some(first) = words.next() else { return malformed(format!("expected a policy in `{line}`")) };
    let mut policy = first.to_owned();
    // Two policies have a space in their name: `prefer (many)` and `weighted interleave` (mm/mempolicy.c).
    let second = match first {
        "prefer" => words.next_if(|word| word.starts_with("(many)")),
        "weighted" => words.next_if(|word| word.starts_with("interleave")),
        _ => None,
    };
    if let Some(second) = second {
        policy = format!("{policy} {second}");
    }
    let mut mapped = MappedPages { start, policy, file: None, huge: false, page_size: None, pages: Vec::new() };
    for word in words {
        match word.split_once('=') {
            None if word == "huge" => mapped.huge = true,
            Some(("file", path)) => mapped.file = Some(unescape(path)),
            Some(("kernelpagesize_kB", size)) => mapped.page_size = Some(page_size_kib(size)?),
            Some((key, pages)) if key.len() > 1 && key.starts_with('N') => {
                mapped.pages.push((number_u32(&key[1..])?, number(pages)?));
            }
            _ => {}
        }
    }
    if mapped.page_size.is_none() && !mapped.pages.is_empty() {
        return malformed(format!("pages without kernelpagesize_kB in `{line}`"));
    }
    Ok(mapped)
}

/// Undoes the kernel's `\ooo` for space, tab, newline, backslash and `=`.
fn unescape(path: &str) -> String {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let code = tail.get(..3).filter(|_| byte == b'\\').and_then(|digits| {
            let octal = digits.iter().all(|digit| (b'0'..=b'7').contains(digit));
            let value = digits.iter().fold(0u32, |sum, digit| sum * 8 + u32::from(digit.wrapping_sub(b'0')));
            u8::try_from(value).ok().filter(|_| octal)
        });
        bytes.push(code.unwrap_or(byte));
        rest = if code.is_some() { &tail[3..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_read_as_the_kernel_writes_them() {
        let text = "\
55d0c8a00000 default file=/usr/bin/qemu\\040x mapped=12 N0=8 N2=4 kernelpagesize_kB=4
7f1200000000 bind:1 anon=262144 dirty=262144 active=0 N1=262144 kernelpagesize_kB=4
7f1300000000 bind:3 file=/dev/hugepages/libvirt/qemu/1-a/ram\\040(deleted) huge dirty=512 N3=512 kernelpagesize_kB=2048
7f1400000000 prefer (many):0-1 anon=1 N0=1 kernelpagesize_kB=4
7f1500000000 weighted interleave:0-1
7f1600000000 default stack
";
        let lines = parse(text).unwrap();
        assert_eq!(lines[0].file.as_deref(), Some("/usr/bin/qemu x"));
        assert_eq!(lines[0].pages, [(0, 8), (2, 4)]);
        assert_eq!(lines[1].policy, "bind:1");
        assert!(lines[2].huge);
        assert_eq!(lines[2].page_size, Some(PageSize::HUGE_2M));
        assert_eq!(lines[3].policy, "prefer (many):0-1");
        assert_eq!(lines[4].policy, "weighted interleave:0-1");
        assert_eq!(lines[5].page_size, None);
    }

    #[test]
    fn junk_is_refused() {
        for junk in [
            "x default",
            "7f00",
            "7f00 default N0=x kernelpagesize_kB=4",
            "7f00 default N0=1",
            "7f00 default Nx=1 kernelpagesize_kB=4",
            "7f00 default N0=1 kernelpagesize_kB=5",
        ] {
            assert!(parse(junk).is_err(), "{junk}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[0-9a-f N=\\\\\n]{0,80}", path in "\\PC{0,20}") {
            let _ = parse(&text);
            let _ = unescape(&path);
        }
    }
}
