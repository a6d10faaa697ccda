//! Arguments of the kernel command line: one list, and the commands of two families of distributions.

use std::collections::BTreeSet;
use std::fmt::Write;

use nearmetal_units::PageSize;

use crate::collect::Collected;
use crate::loose::WRITTEN;
use crate::plain::is_plain;
use crate::{ExportFile, Input};

/// Arguments to be added, each with its rules.
pub(crate) fn added(input: &Input<'_>, collected: &Collected) -> Vec<(String, String)> {
    let mut added: Vec<(String, String)> = collected
        .arguments
        .iter()
        .map(|(name, wanted)| match &wanted.value {
            Some(value) => (format!("{name}={value}"), wanted.why()),
            None => (name.clone(), wanted.why()),
        })
        .collect();
    added.extend(large_pages(input, collected));
    added
}

/// Pages of 1 GiB, which are found most surely while the machine boots. `hugepages=` by node needs Linux 5.16; where
/// the command line reserves pages already, words would have to go to their right places: the other files do it then.
fn large_pages(input: &Input<'_>, collected: &Collected) -> Vec<(String, String)> {
    let system = &input.host.system;
    let reserves = system.kernel_arguments().any(|(name, _)| name.contains("hugepages"));
    let by_node = system.kernel_version().is_some_and(|version| version >= (5, 16));
    let wanted = |node: u32| collected.pools.get(&(node, PageSize::HUGE_1G));
    let rules: BTreeSet<&str> = input
        .host
        .nodes
        .iter()
        .filter_map(|node| wanted(node.index))
        .flat_map(|wanted| wanted.rules.iter().map(String::as_str))
        .collect();
    if rules.is_empty() || reserves || !by_node {
        return Vec::new();
    }
    let pages = input.host.nodes.iter().filter_map(|node| {
        let present = node.pool(PageSize::HUGE_1G).map(|pool| pool.persistent());
        let pages = wanted(node.index).map(|wanted| wanted.value).or(present).filter(|pages| *pages > 0)?;
        Some(format!("{}:{pages}", node.index))
    });
    let (pages, why) = (pages.collect::<Vec<_>>().join(","), rules.into_iter().collect::<Vec<_>>().join(", "));
    vec![("hugepagesz=1G".to_owned(), why.clone()), (format!("hugepages={pages}"), why)]
}

/// Words of the command line as it is that go: those that are not wanted, and other values of what is added.
pub(crate) fn removed(input: &Input<'_>, collected: &Collected) -> Vec<(String, String)> {
    let mut removed = Vec::new();
    for (name, value) in input.host.system.kernel_arguments() {
        let word = value.map_or_else(|| name.to_owned(), |value| format!("{name}={value}"));
        let why = match (collected.removed.get(name), collected.arguments.get(name)) {
            (Some(wanted), _) => wanted.why(),
            (None, Some(wanted)) if wanted.value.as_deref() != value => wanted.why(),
            _ => continue,
        };
        if is_plain(&word) && !removed.iter().any(|(known, _)| *known == word) {
            removed.push((word, why));
        }
    }
    removed
}

/// The list, and a file for grub's directory where there is something to add.
pub(crate) fn files(input: &Input<'_>, collected: &Collected) -> Vec<ExportFile> {
    let (added, removed) = (added(input, collected), removed(input, collected));
    if added.is_empty() && removed.is_empty() {
        return Vec::new();
    }
    let words = |list: &[(String, String)]| list.iter().map(|(word, _)| word.as_str()).collect::<Vec<_>>().join(" ");
    let mut text = format!("{WRITTEN}# + is to be added, - is to go. In force after a reboot.\n");
    for (sign, list) in [('-', &removed), ('+', &added)] {
        for (word, why) in list {
            let _ = write!(text, "\n# {why}\n{sign} {word}\n");
        }
    }
    text.push_str("\n# Fedora, RHEL and their kin:\n#   grubby --update-kernel=ALL");
    if !removed.is_empty() {
        let _ = write!(text, " --remove-args=\"{}\"", words(&removed));
    }
    if !added.is_empty() {
        let _ = write!(text, " --args=\"{}\"", words(&added));
    }
    text.push_str("\n# and back:\n#   grubby --update-kernel=ALL");
    if !added.is_empty() {
        let _ = write!(text, " --remove-args=\"{}\"", words(&added));
    }
    if !removed.is_empty() {
        let _ = write!(text, " --args=\"{}\"", words(&removed));
    }
    text.push_str("\n\n# Debian, Ubuntu and their kin:\n");
    if !removed.is_empty() {
        let _ = writeln!(
            text,
            "#   in /etc/default/grub, take this out of GRUB_CMDLINE_LINUX and GRUB_CMDLINE_LINUX_DEFAULT: {}",
            words(&removed)
        );
    }
    if !added.is_empty() {
        text.push_str("#   cp default/grub.d/nearmetal.cfg /etc/default/grub.d/\n");
    }
    text.push_str("#   update-grub\n# and back: undo that, and update-grub\n");
    let mut files = vec![ExportFile::new("kernel-arguments.txt", text)];
    if !added.is_empty() {
        let line = format!("GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX {}\"\n", words(&added));
        files.push(ExportFile::new("default/grub.d/nearmetal.cfg", format!("{WRITTEN}{line}")));
    }
    files
}
