//! /proc/PID/maps: where mappings begin, end, and what file is behind them.

use nearmetal_units::Bytes;

use crate::parse::{Parsed, malformed};

/// One mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mapping {
    pub(super) start: u64,
    pub(super) end: u64,
    /// `rw-p`.
    pub(super) permissions: String,
    /// File or `[name]`; empty for anonymous memory. A newline in it stands as `\012`.
    pub(super) path: String,
}

impl Mapping {
    pub(super) fn length(&self) -> Bytes {
        Bytes::new(self.end.saturating_sub(self.start))
    }

    /// Readable and writable, not executable: guest memory is; QEMU's code buffer and libraries are not.
    pub(super) fn is_plain_data(&self) -> bool {
        self.permissions.starts_with("rw-")
    }
}

/// Parses the whole file.
pub(super) fn parse(text: &str) -> Parsed<Vec<Mapping>> {
    text.lines().map(parse_line).collect()
}

fn parse_line(line: &str) -> Parsed<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let (Some(range), Some(permissions), Some(_offset), Some(_device), Some(inode)) =
        (fields.next(), fields.next(), fields.next(), fields.next(), fields.next())
    else {
        return malformed(format!("expected range, permissions, offset, device, inode in `{line}`"));
    };
    let bounds = range.split_once('-').and_then(|(low, high)| Some((address(low)?, address(high)?)));
    let Some((start, end)) = bounds.filter(|(start, end)| start < end) else {
        return malformed(format!("expected an address range, found `{range}`"));
    };
    if permissions.len() != 4 || inode.is_empty() || !inode.bytes().all(|byte| byte.is_ascii_digit()) {
        return malformed(format!("expected permissions and an inode in `{line}`"));
    }
    let path = fields.next().unwrap_or("").trim_start().to_owned();
    Ok(Mapping { start, end, permissions: permissions.to_owned(), path })
}

/// A hexadecimal address without 0x.
pub(super) fn address(digits: &str) -> Option<u64> {
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u64::from_str_radix(digits, 16).ok().filter(|_| plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "\
55d0c8a00000-55d0c8b00000 r-xp 00000000 08:01 1048602                    /usr/bin/qemu-system-x86_64
7f1200000000-7f1240000000 rw-p 00000000 00:00 0 \n\
7f1300000000-7f1340000000 rw-s 00000000 00:0f 4711                       /dev/hugepages/libvirt/qemu/1-a b (deleted)
7f13aa000000-7f13aa001000 rw-s 00000000 00:11 9001                       /[aio] (deleted)
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
";

    #[test]
    fn mappings_read_as_the_kernel_writes_them() {
        let mappings = parse(TEXT).unwrap();
        assert_eq!(mappings.len(), 5);
        assert_eq!(mappings[1].length(), Bytes::from_mib(1024));
        assert_eq!(mappings[1].path, "");
        assert_eq!(mappings[2].path, "/dev/hugepages/libvirt/qemu/1-a b (deleted)");
        assert!(mappings[2].is_plain_data() && !mappings[0].is_plain_data());
        assert_eq!(parse(""), Ok(vec![]));
    }

    #[test]
    fn junk_is_refused() {
        for junk in
            ["x", "10-20", "20-10 rw-p 0 0:0 0 ", "10-20 rw 0 0:0 0", "10-20 rw-p 0 0:0 x", "+1-20 rw-p 0 0:0 0"]
        {
            assert!(parse(junk).is_err(), "{junk}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[0-9a-f rw\\-\n/]{0,80}") {
            let _ = parse(&text);
        }
    }
}
