//! What QEMU was told at its start, from /proc/PID/cmdline.

use std::collections::BTreeMap;

use nearmetal_units::{Bytes, CpuSet, NodeSet};

/// Nodes of the kernel have 10 bits (MAX_NUMNODES of Linux is at most 1024).
const LARGEST_NODE: u32 = 1023;

/// The parts of a QEMU command line that say who the guest is and how large. Later changes (hotplug) are not in it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommandLine {
    /// `-name guest=NAME,…` or `-name NAME`.
    pub name: Option<String>,
    /// `-uuid …`, in lower case.
    pub uuid: Option<String>,
    /// `-m …`.
    pub memory: Option<Bytes>,
    /// Sizes of `-object memory-backend-*`, in order: one per guest NUMA cell.
    pub backends: Vec<Bytes>,
    /// `-numa node,…`, in order: the NUMA the guest sees.
    pub cells: Vec<QemuCell>,
    /// `-numa dist,…`, as (from, to, distance); what is not there QEMU fills in.
    pub distances: Vec<(u32, u32, u32)>,
}

/// One NUMA node of a guest, as QEMU was told of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QemuCell {
    /// Its number.
    pub id: u32,
    /// Its vCPUs.
    pub vcpus: CpuSet,
    /// Its memory; `None` where it has no backend of its own.
    pub memory: Option<Bytes>,
    /// Host nodes its backend is bound to; `None` where QEMU was told of none.
    pub nodes: Option<NodeSet>,
}

impl CommandLine {
    /// Parses arguments that end in NUL; `None` if the program is not QEMU. What it does not know it skips.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(bytes);
        let mut arguments = text.split('\0');
        let program = arguments.next()?.rsplit('/').next()?;
        // qemu-kvm: Red Hat's and SUSE's name; kvm: Proxmox's.
        if !program.starts_with("qemu-system-") && program != "qemu-kvm" && program != "kvm" {
            return None;
        }
        let mut line = Self::default();
        let mut backends = BTreeMap::new();
        let mut cells = Vec::new();
        while let Some(argument) = arguments.next() {
            // QEMU takes -option and --option alike.
            match argument.strip_prefix("--").or(argument.strip_prefix('-')) {
                Some("name") => line.name = arguments.next().and_then(|value| property(value, "guest", true)),
                Some("uuid") => {
                    line.uuid = arguments.next().filter(|uuid| !uuid.is_empty()).map(str::to_ascii_lowercase);
                }
                Some("m") => {
                    let size = arguments.next().and_then(|value| property(value, "size", true));
                    line.memory = size.and_then(|size| qemu_size(&size, 1 << 20));
                }
                Some("object") => {
                    let value = arguments.next().unwrap_or_default();
                    line.backends.extend(backend_size(value));
                    backends.extend(backend(value).map(|backend| (backend.name.clone(), backend)));
                }
                Some("numa") => {
                    let value = arguments.next().unwrap_or_default();
                    cells.extend(cell(value));
                    line.distances.extend(distance(value));
                }
                _ => {}
            }
        }
        // A cell may name a backend that comes behind it.
        line.cells = cells
            .into_iter()
            .map(|(cell, backend)| {
                let backend = backend.and_then(|name| backends.get(&name));
                let memory = backend.map(|backend| backend.size).or(cell.memory);
                QemuCell { memory, nodes: backend.and_then(|backend| backend.nodes.clone()), ..cell }
            })
            .collect();
        Some(line)
    }

    /// All guest memory: the backends if there are any, `-m` otherwise.
    pub fn guest_memory(&self) -> Option<Bytes> {
        if self.backends.is_empty() {
            self.memory
        } else {
            Some(self.backends.iter().fold(Bytes::ZERO, |sum, size| sum.plus(*size)))
        }
    }

    /// Sizes a mapping of guest memory may have, smallest first.
    pub fn memory_sizes(&self) -> Vec<Bytes> {
        let mut sizes: Vec<Bytes> =
            if self.backends.is_empty() { self.memory.into_iter().collect() } else { self.backends.clone() };
        sizes.retain(|size| *size > Bytes::ZERO);
        sizes.sort_unstable();
        sizes
    }
}

/// The size of a `memory-backend-*`, in either spelling (JSON since QEMU 6.0).
fn backend_size(value: &str) -> Option<Bytes> {
    if value.trim_start().starts_with('{') {
        let object: serde_json::Value = serde_json::from_str(value).ok()?;
        if !object.get("qom-type")?.as_str()?.starts_with("memory-backend-") {
            return None;
        }
        return match object.get("size")? {
            serde_json::Value::String(text) => qemu_size(text, 1),
            number => number.as_u64().map(Bytes::new),
        };
    }
    if !value.starts_with("memory-backend-") {
        return None;
    }
    qemu_size(&property(value, "size", false)?, 1)
}

/// A `memory-backend-*`.
struct Backend {
    name: String,
    size: Bytes,
    nodes: Option<NodeSet>,
}

/// A backend in either spelling; `None` for other objects, and where it has no name or size.
fn backend(value: &str) -> Option<Backend> {
    let size = backend_size(value)?;
    if value.trim_start().starts_with('{') {
        let object: serde_json::Value = serde_json::from_str(value).ok()?;
        let nodes = object.get("host-nodes").and_then(|nodes| nodes.as_array());
        let nodes = nodes.map(|nodes| {
            nodes.iter().filter_map(|node| node.as_u64().and_then(|node| u32::try_from(node).ok())).collect::<Vec<_>>()
        });
        // A number this large is no node, and would make a large set.
        let nodes = nodes.filter(|nodes| nodes.iter().all(|node| *node <= LARGEST_NODE));
        let name = object.get("id")?.as_str()?.to_owned();
        return Some(Backend { name, size, nodes: nodes.map(|nodes| nodes.into_iter().collect()) });
    }
    let nodes = joined(value, "host-nodes").and_then(|list| list.parse().ok());
    Some(Backend { name: property(value, "id", false)?, size, nodes })
}

/// `node,nodeid=0,cpus=0-3,cpus=8,memdev=ram-node0`, and the name of its backend.
fn cell(value: &str) -> Option<(QemuCell, Option<String>)> {
    let rest = value.strip_prefix("node,")?;
    let id = property(rest, "nodeid", false)?.parse().ok()?;
    let vcpus = joined(rest, "cpus").and_then(|list| list.parse().ok()).unwrap_or_default();
    let memory = property(rest, "mem", false).and_then(|size| qemu_size(&size, 1 << 20));
    Some((QemuCell { id, vcpus, memory, nodes: None }, property(rest, "memdev", false)))
}

/// `dist,src=0,dst=1,val=21`.
fn distance(value: &str) -> Option<(u32, u32, u32)> {
    let rest = value.strip_prefix("dist,")?;
    let number = |key| property(rest, key, false)?.parse().ok();
    Some((number("src")?, number("dst")?, number("val")?))
}

/// All values of a property that may be there several times, parted by commas as in a list of CPUs.
fn joined(value: &str, key: &str) -> Option<String> {
    let items = value.split(',').filter_map(|item| item.split_once('='));
    let values: Vec<&str> = items.filter(|(name, _)| *name == key).map(|(_, text)| text).collect();
    (!values.is_empty()).then(|| values.join(","))
}

/// One property of `first,key=value,…`, where `,,` is a comma. The first item may leave out the key if `implied`.
fn property(value: &str, key: &str, implied: bool) -> Option<String> {
    const COMMA: char = '\u{1}';
    let value = value.replace(",,", &COMMA.to_string());
    let found = value.split(',').enumerate().find_map(|(position, item)| match item.split_once('=') {
        Some((name, text)) if name == key => Some(text),
        None if position == 0 && implied => Some(item),
        _ => None,
    })?;
    (!found.is_empty()).then(|| found.replace(COMMA, ","))
}

/// A size as QEMU reads it: `1048576k`, `4G`, `1.5G`, `4096` (times `default_unit`).
fn qemu_size(text: &str, default_unit: u64) -> Option<Bytes> {
    let (digits, unit) = match text.char_indices().last()? {
        (_, last) if last.is_ascii_digit() => (text, default_unit),
        (at, last) => {
            let shift = "bkmgtpe".find(last.to_ascii_lowercase())?;
            (&text[..at], 1u64 << (shift * 10))
        }
    };
    if !digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return None;
    }
    if let Ok(count) = digits.parse::<u64>() {
        return count.checked_mul(unit).map(Bytes::new);
    }
    let count: f64 = digits.parse().ok()?;
    Some(Bytes::new((count * unit as f64) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(arguments: &[&str]) -> Option<CommandLine> {
        CommandLine::parse(format!("{}\0", arguments.join("\0")).as_bytes())
    }

    #[test]
    fn libvirts_command_line_is_understood() {
        let line = parse(&[
            "/usr/bin/qemu-system-x86_64",
            "-name",
            "guest=db,,one,debug-threads=on",
            "-S",
            "-m",
            "size=2097152k",
            "-object",
            r#"{"qom-type":"memory-backend-ram","id":"ram-node0","size":1073741824,"host-nodes":[1],"policy":"bind"}"#,
            "-object",
            "memory-backend-file,id=ram-node1,mem-path=/dev/hugepages/libvirt/qemu/1-db,size=1G",
            "-object",
            r#"{"qom-type":"iothread","id":"iothread1"}"#,
            "-uuid",
            "C7A5FDBD-EDAF-9455-926A-D65C16DB1809",
        ])
        .unwrap();
        assert_eq!(line.name.as_deref(), Some("db,one"));
        assert_eq!(line.uuid.as_deref(), Some("c7a5fdbd-edaf-9455-926a-d65c16db1809"));
        assert_eq!(line.memory, Some(Bytes::from_mib(2048)));
        assert_eq!(line.backends, [Bytes::from_mib(1024), Bytes::from_mib(1024)]);
        assert_eq!(line.guest_memory(), Some(Bytes::from_mib(2048)));
    }

    #[test]
    fn cells_are_read_with_the_memory_they_name() {
        let line = parse(&[
            "qemu-system-x86_64",
            "-numa",
            "node,nodeid=0,cpus=0-1,cpus=4,memdev=ram-node0",
            "-object",
            r#"{"qom-type":"memory-backend-memfd","id":"ram-node0","size":1073741824,"host-nodes":[2],"policy":"bind"}"#,
            "-object",
            "memory-backend-ram,id=ram-node1,size=512M,host-nodes=0,host-nodes=3,policy=bind",
            "-numa",
            "node,nodeid=1,cpus=2-3,memdev=ram-node1",
            "-numa",
            "node,nodeid=2,cpus=5,mem=256",
            "-numa",
            "dist,src=0,dst=1,val=21",
            "-numa",
            "hmat-lb,initiator=0",
            "-numa",
        ])
        .unwrap();
        let cell = |id, vcpus: &str, mib, nodes: Option<&str>| QemuCell {
            id,
            vcpus: vcpus.parse().unwrap(),
            memory: Some(Bytes::from_mib(mib)),
            nodes: nodes.map(|nodes| nodes.parse().unwrap()),
        };
        let wanted = [cell(0, "0-1,4", 1024, Some("2")), cell(1, "2-3", 512, Some("0,3")), cell(2, "5", 256, None)];
        assert_eq!(line.cells, wanted);
        assert_eq!(line.distances, [(0, 1, 21)]);
        assert_eq!(line.backends.len(), 2);
    }

    #[test]
    fn hand_written_command_lines_are_understood() {
        for (memory, bytes) in [
            ("512", Some(512 << 20)),
            ("4G", Some(4 << 30)),
            ("size=1.5G,slots=2,maxmem=8G", Some(3 << 29)),
            ("slots=2,size=65536k", Some(64 << 20)),
            ("lots", None),
            ("99999999999999999999", Some(u64::MAX)),
            ("17179869184G", None),
        ] {
            let line = parse(&["qemu-kvm", "--name", "plain", "-m", memory]).unwrap();
            let expected = bytes.map(Bytes::new);
            assert!(line.memory == expected || memory.starts_with("999"), "{memory}: {:?}", line.memory);
            assert_eq!(line.name.as_deref(), Some("plain"));
        }
    }

    #[test]
    fn other_programs_are_not_guests() {
        for program in ["/bin/sh", "qemu-img", "", "virtiofsd", "/usr/bin/kvmtool"] {
            assert_eq!(parse(&[program, "-name", "guest=x"]), None, "{program}");
        }
        assert_eq!(CommandLine::parse(b""), None);
        assert_eq!(parse(&["qemu-system-x86_64", "-uuid"]).unwrap().uuid, None);
    }

    proptest! {
        #[test]
        fn no_arguments_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), size in "\\PC{0,12}") {
            for option in ["-object\0", "-numa\0node,", "-numa\0dist,"] {
                let mut line = format!("kvm\0{option}").into_bytes();
                line.extend(&bytes);
                let _ = CommandLine::parse(&line);
            }
            let _ = qemu_size(&size, 1);
        }
    }
}
