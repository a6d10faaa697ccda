//! What names one machine among all of its kind: serial numbers, hardware addresses, secrets. Equal ones get equal masks.

use std::collections::BTreeMap;

/// Masks given so far.
#[derive(Debug, Default)]
pub(crate) struct Mask {
    addresses: BTreeMap<Vec<u8>, usize>,
    serials: BTreeMap<Vec<u8>, usize>,
}

/// Files whose whole content is a serial number or a worldwide name.
const NAMES: [&str; 16] = [
    "serial",
    "serial_number",
    "device_serial",
    "product_uuid",
    "wwid",
    "wwn",
    "nguid",
    "eui",
    "unique_id",
    "vpd",
    "vpd_pg80",
    "vpd_pg83",
    "node_guid",
    "sys_image_guid",
    "phys_switch_id",
    "phys_port_id",
];

/// Whether a file holds nothing but what names one machine. `path` is its whole path, `name` its last part.
pub(crate) fn is_secret_name(path: &str, name: &str) -> bool {
    let dmi = path.contains("/dmi/id/") && (name.ends_with("_serial") || name.ends_with("_asset_tag"));
    // The uuid of a namespace names a drive; that of a device-mapper table is needed to know what kind it is.
    dmi || NAMES.contains(&name) || (name == "uuid" && path.contains("/nvme"))
}

/// Parts of QEMU's arguments whose value is nobody's business: `serial=…` and `"serial":"…"`.
const KEYS: [&str; 6] = ["serial", "data", "password", "secret", "wwn", "asset"];

impl Mask {
    /// In place of a whole value; its newline stays.
    pub(crate) fn whole(&mut self, bytes: &[u8]) -> Vec<u8> {
        let value = bytes.trim_ascii();
        if value.is_empty() {
            return bytes.to_vec();
        }
        let mut text = self.serial(value).into_bytes();
        if bytes.ends_with(b"\n") {
            text.push(b'\n');
        }
        text
    }

    fn serial(&mut self, value: &[u8]) -> String {
        let next = self.serials.len() + 1;
        format!("masked-{}", self.serials.entry(value.to_vec()).or_insert(next))
    }

    /// Masks runs of six or more pairs of hex digits with colons between: Ethernet and InfiniBand addresses.
    pub(crate) fn addresses(&mut self, bytes: &[u8]) -> Vec<u8> {
        // Most files have no five colons.
        if bytes.iter().filter(|byte| **byte == b':').count() < 5 {
            return bytes.to_vec();
        }
        let mut out = Vec::with_capacity(bytes.len());
        let mut at = 0;
        while at < bytes.len() {
            let starts = at == 0 || !bytes[at - 1].is_ascii_hexdigit();
            let pairs = if starts { pairs(&bytes[at..]) } else { 0 };
            if pairs >= 6 {
                let end = at + pairs * 3 - 1;
                let address = self.address(&bytes[at..end], pairs);
                out.extend_from_slice(address.as_bytes());
                at = end;
            } else {
                out.push(bytes[at]);
                at += 1;
            }
        }
        out
    }

    /// A locally administered address (the second-lowest bit of its first byte is set), numbered; all-zero and
    /// broadcast addresses name nobody and stay.
    fn address(&mut self, text: &[u8], pairs: usize) -> String {
        let digits = |digit: u8| text.iter().all(|byte| matches!(*byte, b':') || byte.eq_ignore_ascii_case(&digit));
        if digits(b'0') || digits(b'f') {
            return String::from_utf8_lossy(text).into_owned();
        }
        let next = self.addresses.len() + 1;
        let number = *self.addresses.entry(text.to_ascii_lowercase()).or_insert(next);
        let mut parts = vec!["00".to_owned(); pairs];
        parts[0] = "02".to_owned();
        for (place, part) in parts.iter_mut().rev().take(3).enumerate() {
            *part = format!("{:02x}", (number >> (8 * place)) & 0xff);
        }
        parts.join(":")
    }

    /// A command line of QEMU: arguments that end in NUL, each a list of `key=value` or JSON.
    pub(crate) fn command_line(&mut self, bytes: &[u8]) -> Vec<u8> {
        let bytes = self.addresses(bytes);
        let mut out = Vec::with_capacity(bytes.len());
        let mut at = 0;
        while at < bytes.len() {
            match self.value_at(&bytes, at) {
                Some((from, to)) => {
                    out.extend_from_slice(&bytes[at..from]);
                    let mask = self.serial(&bytes[from..to]);
                    out.extend_from_slice(mask.as_bytes());
                    at = to;
                }
                None => {
                    out.push(bytes[at]);
                    at += 1;
                }
            }
        }
        out
    }

    /// The value of a key that begins at `at`: where it starts and ends.
    fn value_at(&self, bytes: &[u8], at: usize) -> Option<(usize, usize)> {
        let before = at.checked_sub(1).map_or(0, |before| bytes[before]);
        let rest = &bytes[at..];
        let key = KEYS.iter().find(|key| rest.starts_with(key.as_bytes()))?;
        let after = &rest[key.len()..];
        let (skip, end): (usize, fn(&u8) -> bool) = match after {
            [b'"', b':', b'"', ..] if before == b'"' => (3, |byte| *byte == b'"' || *byte == 0),
            [b'=', ..] if matches!(before, b',' | b'.' | b'-' | 0) => (1, |byte| *byte == b',' || *byte == 0),
            _ => return None,
        };
        let from = at + key.len() + skip;
        let length = bytes[from..].iter().position(end).unwrap_or(bytes.len() - from);
        (length > 0).then_some((from, from + length))
    }
}

/// How many pairs of hex digits, colons between, `bytes` begins with.
fn pairs(bytes: &[u8]) -> usize {
    let mut count = 0;
    let mut rest = bytes;
    loop {
        match rest {
            [a, b, ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => {
                count += 1;
                rest = &rest[2..];
            }
            _ => return count,
        }
        match rest {
            [b':', a, b, ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => rest = &rest[1..],
            // `52:54:00:12:34:567` is no address.
            [a, ..] if a.is_ascii_hexdigit() => return 0,
            _ => return count,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_addresses_get_equal_masks() {
        let mut mask = Mask::default();
        let text = "eth0:52:54:00:12:34:56 br 52:54:00:AB:34:56;52:54:00:ab:34:56 lo 00:00:00:00:00:00";
        let expected = "eth0:02:00:00:00:00:01 br 02:00:00:00:00:02;02:00:00:00:00:02 lo 00:00:00:00:00:00";
        assert_eq!(String::from_utf8(mask.addresses(text.as_bytes())).unwrap(), expected);
        let infiniband = "80:00:00:02:fe:80:00:00:00:00:00:00:00:02:c9:03:00:00:00:11\n";
        let masked = String::from_utf8(mask.addresses(infiniband.as_bytes())).unwrap();
        assert_eq!((masked.len(), masked.ends_with("00:00:03\n")), (infiniband.len(), true), "{masked}");
    }

    #[test]
    fn pci_addresses_and_clock_times_are_left() {
        let mut mask = Mask::default();
        for text in ["0000:00:05.0 0000:81:00.1", "12:30:59", "52:54:00:12:34:567", "abc52:54:00:12:34", ""] {
            assert_eq!(mask.addresses(text.as_bytes()), text.as_bytes(), "{text}");
        }
    }

    #[test]
    fn secrets_of_a_command_line_are_masked_in_both_forms() {
        let mut mask = Mask::default();
        let line = concat!(
            "qemu\0-object\0{\"qom-type\":\"secret\",\"id\":\"k\",\"data\":\"hush\"}\0",
            "-device\0nvme,serial=S1,drive=d,id=serial0\0-smbios\0type=1,serial=S1,uuid=7\0-spice\0password=hush\0"
        );
        let masked = String::from_utf8(mask.command_line(line.as_bytes())).unwrap();
        let expected = concat!(
            "qemu\0-object\0{\"qom-type\":\"secret\",\"id\":\"k\",\"data\":\"masked-1\"}\0",
            "-device\0nvme,serial=masked-2,drive=d,id=serial0\0-smbios\0type=1,serial=masked-2,uuid=7\0",
            "-spice\0password=masked-1\0"
        );
        assert_eq!(masked, expected);
    }
}
