//! `[[host]]`.

use std::collections::BTreeMap;

use super::entry::{HostEntry, HostReach};
use super::error::shown;
use super::keys;
use super::section::{At, Notes, Section};
use crate::supply::Reserve;

/// Hosts of a file at most.
const MOST_HOSTS: usize = 10_000;
/// Bytes of a name at most, as libvirt has it for domains that leave log files.
const MOST_NAME: usize = 200;

/// Reads all hosts; those that make no sense are noted and left out. The place of each is its name's.
pub(super) fn read(sections: &[Section<'_>], notes: &Notes) -> Vec<At<HostEntry>> {
    if let Some(section) = sections.get(MOST_HOSTS) {
        notes.add(&section.span, format!("the file has {} hosts; {MOST_HOSTS} at most", sections.len()), "split it");
        return Vec::new();
    }
    let mut hosts: Vec<At<HostEntry>> = Vec::new();
    let mut names: BTreeMap<String, ()> = BTreeMap::new();
    let mut reached: BTreeMap<HostReach, String> = BTreeMap::new();
    for section in sections {
        let Some(host) = one(section) else { continue };
        let name = &host.value.name;
        if names.insert(name.clone(), ()).is_some() {
            let message = format!("another host is called \"{}\" already", shown(name));
            section.wrong(&host.span, message, "names of hosts are unique: rename one");
        }
        if let Some(other) = reached.get(&host.value.reach) {
            let message =
                format!("host `{}` is read as host `{}` is: they are the same machine", shown(name), shown(other));
            section.wrong(&reach_place(section), message, "keep one of the two");
        } else {
            reached.insert(host.value.reach.clone(), name.clone());
        }
        hosts.push(host);
    }
    hosts
}

fn one(section: &Section<'_>) -> Option<At<HostEntry>> {
    let name = name_of(section);
    let section = &with_name(section, "host", name.as_ref());
    let reach = reach(section);
    let labels = section.texts("labels").into_iter().map(|(key, value)| (key.value, value.value)).collect();
    let failure_domain = section.line("failure-domain").map(|domain| domain.value);
    let reserve = section.table("keep", &keys::KEEP).map(|keep| reserve(&keep)).unwrap_or_default();
    section.finish();
    let (name, reach) = (name?, reach?);
    let entry = HostEntry { name: name.value, reach, labels, failure_domain, reserve };
    Some(At { value: entry, span: name.span })
}

/// The same table, with its owner's name for messages.
pub(super) fn with_name<'a>(section: &Section<'a>, what: &str, name: Option<&At<String>>) -> Section<'a> {
    let whose = match name {
        Some(name) => format!("{what} `{}`", shown(&name.value)),
        None => format!("{what} without a name"),
    };
    section.owned_by(whose)
}

/// A name libvirt and file names can bear.
pub(super) fn name_of(section: &Section<'_>) -> Option<At<String>> {
    if !section.has("name") {
        let help = format!("add one: {}", section.example("name"));
        section.wrong(&section.span, format!("{} has no `name`", section.head()), help);
        return None;
    }
    let name = section.line("name")?;
    let text = &name.value;
    let reason = match text.as_str() {
        "." | ".." => "no name files could bear",
        text if text.contains('/') => "a slash is in it",
        text if text.trim() != text => "a space is at its end or beginning",
        text if text.len() > MOST_NAME => {
            section.wrong(&name.span, format!("`name` has {} bytes", text.len()), format!("{MOST_NAME} at most"));
            return None;
        }
        _ => return Some(name),
    };
    let message = format!("`name` is \"{}\": {reason}", shown(text));
    section.wrong(&name.span, message, "libvirt refuses it too: letters, digits, `-`, `_` and `.` are safe");
    None
}

fn reach_place(section: &Section<'_>) -> std::ops::Range<usize> {
    let key = ["local", "ssh", "uri", "capture"].into_iter().find(|key| section.has(key));
    section.place(key.unwrap_or("name"))
}

fn reach(section: &Section<'_>) -> Option<HostReach> {
    let given: Vec<&str> = ["local", "ssh", "uri", "capture"].into_iter().filter(|key| section.has(key)).collect();
    let local = section.boolean("local");
    let ssh = section.line("ssh");
    let command = section.line("ssh-command");
    let uri = section.line("uri");
    let capture = section.line("capture");
    if let Some(command) = command.as_ref().filter(|_| !section.has("ssh")) {
        let help = "add ssh = \"root@NAME\", or take `ssh-command` away";
        section.wrong(&command.span, "`ssh-command` without `ssh`", help);
    }
    match given.as_slice() {
        [] => {
            let help = "add one of: local = true, ssh = \"root@NAME\", uri = \"qemu+ssh://NAME/system\", \
                        capture = \"FILE\"";
            section.wrong(&section.place("name"), "nothing says how it is read", help);
            return None;
        }
        [_] => {}
        [first, second, ..] => {
            let help = "a host is read in one way: keep one of local, ssh, uri and capture";
            section.wrong(&section.place(second), format!("both `{first}` and `{second}` are given"), help);
            return None;
        }
    }
    if let Some(local) = local {
        if !local.value {
            section.wrong(&local.span, "`local` is false", "write local = true, or another way to read it");
            return None;
        }
        return Some(HostReach::Local);
    }
    if let Some(ssh) = ssh {
        // As an option to ssh, some of which run programs here.
        if ssh.value.starts_with('-') || ssh.value.contains(char::is_whitespace) {
            let message = format!("`ssh` is \"{}\", which is not a host", shown(&ssh.value));
            section.wrong(&ssh.span, message, "write NAME or USER@NAME; options go into `ssh-command`");
            return None;
        }
        return Some(HostReach::Ssh { destination: ssh.value, command: command.map(|command| command.value) });
    }
    if let Some(uri) = uri {
        if !uri.value.contains("://") || uri.value.contains(char::is_whitespace) {
            let message = format!("`uri` is \"{}\", which is not a libvirt URI", shown(&uri.value));
            section.wrong(&uri.span, message, "write it as virsh -c takes it: \"qemu+ssh://NAME/system\"");
            return None;
        }
        return Some(HostReach::Libvirt(uri.value));
    }
    capture.map(|capture| HostReach::Capture(capture.value.into()))
}

fn reserve(keep: &Section<'_>) -> Reserve {
    let mut reserve = Reserve::default();
    if let Some(cores) = keep.integer("cores-per-node", 0..=4096, "cores") {
        reserve.cores_per_node = cores.value as u32;
    }
    if let Some(first) = keep.boolean("first-core") {
        reserve.first_core = first.value;
    }
    reserve.memory_per_node = keep.bytes("memory-per-node").map(|memory| memory.value);
    if let Some(grow) = keep.boolean("pools-grow") {
        reserve.pools_grow = grow.value;
    }
    keep.finish();
    reserve
}
