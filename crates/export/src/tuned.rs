//! A profile of tuned: tuned.conf(5), and what its plugins say in their sources (2.20 and 2.25 were read).

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::collect::Collected;
use crate::drives::{Pattern, schedulers};
use crate::kernel_arguments;
use crate::loose::{WRITTEN, governors, pool_file};
use crate::target::Target;
use crate::{ExportFile, Input};

/// Sections in the order they are written, each with its lines.
#[derive(Default)]
struct Profile {
    sections: Vec<(String, String)>,
}

impl Profile {
    fn add(&mut self, section: &str, why: &str, line: &str) {
        let text = format!("# {why}\n{line}\n");
        match self.sections.iter_mut().find(|(name, _)| name == section) {
            Some((_, lines)) => lines.push_str(&text),
            None => self.sections.push((section.to_owned(), text)),
        }
    }
}

/// Whether tuned's own profile for such hosts is the ground to build on: it is what tuned recommends on bare metal. In
/// a virtual machine it would set what only hardware has.
pub(crate) fn includes_virtual_host(input: &Input<'_>) -> bool {
    input.host.system.hypervisor == Some(false)
}

/// The profile, if anything goes into it.
pub(crate) fn profile(input: &Input<'_>, collected: &mut Collected) -> Option<ExportFile> {
    let mut profile = Profile::default();
    for (target, wanted) in &collected.files {
        let (why, value) = (wanted.why(), &wanted.value);
        match target {
            Target::Sysctl(name) => profile.add("sysctl", &why, &format!("{name}={value}")),
            Target::HugepagesEnabled => profile.add("vm", &why, &format!("transparent_hugepages={value}")),
            Target::HugepagesDefrag => profile.add("vm", &why, &format!("transparent_hugepage.defrag={value}")),
            Target::Sysfs(path) => profile.add("sysfs", &why, &format!("{path}={value}")),
            Target::Parameter { module, parameter } => {
                profile.add("sysfs", &why, &format!("/sys/module/{module}/parameters/{parameter}={value}"));
            }
            Target::Scheduler(_) | Target::Governor(_) | Target::LiveOnly(_) => {}
        }
    }
    for ((node, size), wanted) in &collected.pools {
        profile.add("sysfs", &wanted.why(), &format!("{}={}", pool_file(*node, *size), wanted.value));
    }
    add_governors(input, collected, &mut profile);
    let notes = add_drives(input, collected, &mut profile);
    collected.notes.extend(notes);
    add_modules(collected, &mut profile);
    let arguments: Vec<String> = kernel_arguments::added(input, collected).into_iter().map(|(word, _)| word).collect();
    if !arguments.is_empty() {
        let why = "in force after a reboot; tuned writes them into grub's configuration";
        profile.add("bootloader", why, &format!("cmdline_nearmetal=+{}", arguments.join(" ")));
    }
    if profile.sections.is_empty() {
        return None;
    }
    let mut text = format!("{WRITTEN}\n[main]\nsummary=What the rules of nearmetal found on this host\n");
    if includes_virtual_host(input) {
        text.push_str(
            "# tuned's own profile for such hosts; what is below has its way over it.\ninclude=virtual-host\n",
        );
    }
    for (name, lines) in profile.sections {
        let _ = write!(text, "\n[{name}]\n{lines}");
    }
    Some(ExportFile::new("tuned/nearmetal/tuned.conf", text))
}

fn add_governors(input: &Input<'_>, collected: &Collected, profile: &mut Profile) {
    for (number, governors) in governors(input.host, collected).into_iter().enumerate() {
        let section = if number == 0 { "cpu".to_owned() } else { format!("cpu_{number}") };
        let mut line = format!("governor={}", governors.value);
        if let Some(pus) = governors.pus {
            let names: Vec<String> = pus.iter().map(|pu| format!("cpu{pu}")).collect();
            line = format!("type=cpu\ndevices={}\n{line}", names.join(","));
        }
        profile.add(&section, &governors.why, &line);
    }
}

/// Drives by what udev knows of their place. Where that does not tell two kinds apart, or tuned would pass the drives
/// over, nothing is written; gives what is to be said about that.
fn add_drives(input: &Input<'_>, collected: &Collected, profile: &mut Profile) -> Vec<String> {
    let (schedulers, nameless) = schedulers(input.host, collected);
    let mut notes: Vec<String> = nameless
        .iter()
        .map(|name| format!("drive {name}: nothing that outlives a boot tells it from others"))
        .collect();
    for (pattern, wanted) in schedulers {
        match pattern {
            // tuned's [disk] passes over namespaces under multipath, whose parent is no controller.
            Pattern::Nvme => {
                let line = format!("/sys/block/nvme*n*/queue/scheduler={}", wanted.value);
                profile.add("sysfs", &wanted.why(), &line);
            }
            Pattern::Behind { function, alone: false, .. } => notes.push(format!(
                "drives behind {function}: there are spinning ones and others, which tuned cannot tell apart; only the \
                 udev rule sets their scheduler, also beside the profile"
            )),
            Pattern::Behind { function, .. } => {
                let place = function.to_string().replace('.', r"\.");
                let line = format!(
                    "type=disk\ndevices_udev_regex=^ID_PATH=(virtio-)?pci-{place}(-|$)\n\
                     # before other sections for disks, which would take these too\npriority=-1\nelevator={}",
                    wanted.value
                );
                let section = format!("disk_{}", function.to_string().replace([':', '.'], "_"));
                profile.add(&section, &wanted.why(), &line);
            }
        }
    }
    notes
}

/// One line for each module: its parameters, and `+r` where tuned is to load it.
fn add_modules(collected: &Collected, profile: &mut Profile) {
    let mut modules: BTreeMap<&str, (Vec<String>, Vec<String>)> = BTreeMap::new();
    for (module, wanted) in &collected.modules {
        modules.insert(module, (vec![wanted.why()], vec!["+r".to_owned()]));
    }
    for ((module, parameter), wanted) in &collected.parameters {
        let (why, words) = modules.entry(module).or_default();
        why.push(wanted.why());
        words.push(format!("{parameter}={}", wanted.value));
    }
    for (module, (mut why, words)) in modules {
        why.dedup();
        profile.add("modules", &why.join(", "), &format!("{module}={}", words.join(" ")));
    }
}
