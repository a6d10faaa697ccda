//! `<memory>`, `<currentMemory>` and libvirt's units.

use nearmetal_units::Bytes;
use roxmltree::{Document, Node};

use crate::error::DomainError;
use crate::tree;

/// Memory the guest has at most, and what it starts with.
pub(crate) fn read(document: &Document<'_>) -> Result<(Bytes, Bytes), DomainError> {
    let root = document.root_element();
    let memory = match tree::child(root, "memory") {
        Some(node) => scaled(node, "<memory>", &tree::text(node))?,
        // libvirt sums the cells where <memory> is missing.
        None => {
            let cells = super::cells::read(document)?;
            if cells.is_empty() {
                return Err(DomainError::Missing { position: tree::position(root), what: "<memory>".to_owned() });
            }
            cells.iter().fold(Bytes::ZERO, |sum, cell| sum.plus(cell.memory))
        }
    };
    let current = tree::child(root, "currentMemory")
        .map(|node| scaled(node, "<currentMemory>", &tree::text(node)))
        .transpose()?
        // libvirt takes zero or too much as "all of it".
        .filter(|current| *current != Bytes::ZERO && *current <= memory);
    Ok((memory, current.unwrap_or(memory)))
}

/// An amount with the element's `unit` attribute, KiB without one, rounded up to whole KiB as libvirt does.
///
/// A unit is one of k m g t p e, alone or with `iB` for powers of 1024, with `B` for powers of 1000; or `b`, `byte`,
/// `bytes`; in any case (virScaleInteger in libvirt's src/util/virutil.c).
pub(crate) fn scaled(node: Node<'_, '_>, what: &str, value: &str) -> Result<Bytes, DomainError> {
    let amount: u64 = tree::whole_number(node, what, value)?;
    let unit = node.attribute("unit").unwrap_or("KiB");
    let unknown =
        || tree::bad_value(node, &format!("{what} unit"), unit, "use b, KiB, MiB, GiB, TiB or KB, MB, GB, TB");
    let scale = scale(unit).ok_or_else(unknown)?;
    let bytes = amount
        .checked_mul(scale)
        .and_then(|bytes| bytes.checked_next_multiple_of(1024))
        .ok_or_else(|| tree::bad_value(node, what, value, "too large to count in bytes"))?;
    Ok(Bytes::new(bytes))
}

fn scale(unit: &str) -> Option<u64> {
    let unit = unit.to_ascii_lowercase();
    if matches!(unit.as_str(), "b" | "byte" | "bytes") {
        return Some(1);
    }
    let mut letters = unit.chars();
    let power = 1 + "kmgtpe".find(letters.next()?)? as u32;
    match letters.as_str() {
        "" | "ib" => 1024u64.checked_pow(power),
        "b" => 1000u64.checked_pow(power),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::scale;

    #[test]
    fn units_are_libvirts() {
        let table = [
            ("b", 1),
            ("BYTES", 1),
            ("KB", 1000),
            ("kb", 1000),
            ("k", 1024),
            ("KiB", 1024),
            ("MB", 1_000_000),
            ("M", 1 << 20),
            ("MiB", 1 << 20),
            ("GB", 1_000_000_000),
            ("g", 1 << 30),
            ("TiB", 1 << 40),
            ("e", 1 << 60),
        ];
        for (unit, size) in table {
            assert_eq!(scale(unit), Some(size), "{unit}");
        }
        for junk in ["", "x", "KiBi", "pages", "iB", "ki"] {
            assert_eq!(scale(junk), None, "{junk}");
        }
    }
}
