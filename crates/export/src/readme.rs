//! README.txt: what each file is, how it is put in place and taken away, and what none of them covers.

use std::fmt::Write;

use crate::collect::Collected;
use crate::plain::one_line;
use crate::tuned::includes_virtual_host;
use crate::{ExportFile, Input};

/// First line: it tells a directory of ours from others.
pub const FIRST_LINE: &str = "What `nearmetal doctor` found, in forms that outlive a reboot";

/// One kind of file: path, what it is, how it is put in place, how it is taken away.
struct Place {
    path: &'static str,
    what: &'static str,
    put: &'static str,
    take: &'static str,
}

const LOOSE: [Place; 5] = [
    Place {
        path: "sysctl.d/90-nearmetal.conf",
        what: "files of /proc/sys",
        put: "cp sysctl.d/90-nearmetal.conf /etc/sysctl.d/ && sysctl --system",
        take: "rm /etc/sysctl.d/90-nearmetal.conf",
    },
    Place {
        path: "tmpfiles.d/nearmetal.conf",
        what: "files of /sys, written at boot",
        put: "cp tmpfiles.d/nearmetal.conf /etc/tmpfiles.d/ && systemd-tmpfiles --create nearmetal.conf",
        take: "rm /etc/tmpfiles.d/nearmetal.conf",
    },
    Place {
        path: "udev/rules.d/90-nearmetal.rules",
        what: "schedulers of drives, as drives appear",
        put: "cp udev/rules.d/90-nearmetal.rules /etc/udev/rules.d/ && udevadm control --reload && \
              udevadm trigger --subsystem-match=block",
        take: "rm /etc/udev/rules.d/90-nearmetal.rules && udevadm control --reload",
    },
    Place {
        path: "modprobe.d/nearmetal.conf",
        what: "parameters of modules, in force when a module is loaded next; one built into the kernel takes \
               MODULE.PARAMETER=VALUE on its command line instead",
        put: "cp modprobe.d/nearmetal.conf /etc/modprobe.d/",
        take: "rm /etc/modprobe.d/nearmetal.conf",
    },
    Place {
        path: "modules-load.d/nearmetal.conf",
        what: "modules to load at boot",
        put: "cp modules-load.d/nearmetal.conf /etc/modules-load.d/ && systemctl restart systemd-modules-load",
        take: "rm /etc/modules-load.d/nearmetal.conf",
    },
];

/// The text.
pub(crate) fn readme(input: &Input<'_>, collected: &Collected, files: &[ExportFile]) -> ExportFile {
    let has = |path: &str| files.iter().any(|file| file.path == path);
    let system = &input.host.system;
    let hostname = one_line(system.hostname.as_deref().unwrap_or("unknown"));
    let kernel = one_line(system.kernel.as_deref().unwrap_or("unknown"));
    let mut text = format!(
        "{FIRST_LINE}\n\nHost: {hostname}, kernel {kernel}, read from: {}\nFindings: {}\n\nNothing here is in force yet. \
         Commands are meant for root, in this directory.\n`nearmetal doctor --explain RULE` tells why a rule is there, \
         what it is worth, and what can go wrong.\n",
        one_line(&input.host.source),
        input.findings.len()
    );
    let loose: Vec<&Place> = LOOSE.iter().filter(|place| has(place.path)).collect();
    if has("tuned/nearmetal/tuned.conf") {
        tuned(&mut text, input, !loose.is_empty());
    }
    if !loose.is_empty() {
        text.push_str("\n\nSINGLE FILES\n\nFor hosts without tuned: the settings of the profile, each where its own tool looks.\n");
        for place in loose {
            let Place { path, what, put, take } = place;
            let _ = write!(text, "\n{path}\n  {what}\n  put in place  {put}\n  take away     {take}\n");
        }
        text.push_str("\nTaking a file away changes nothing at once: the values before are back after a reboot.\n");
    }
    if has("kernel-arguments.txt") {
        text.push_str(
            "\n\nKERNEL ARGUMENTS\n\nkernel-arguments.txt lists what is to be added and what is to go, with the commands \
             of both families of\ndistributions and the way back. Check its length: the kernel cuts off what is beyond 2047 \
             characters.\nAfter the reboot run `nearmetal doctor` again: some rules can only then say something.\n",
        );
    }
    definitions(&mut text, files);
    section(&mut text, "NOT COVERED", "What was found and stays as it is, and why.", &collected.uncovered);
    section(&mut text, "LEFT OUT", "Settings that are in none of these files, and why.", &collected.skipped);
    section(&mut text, "NOTES", "", &collected.notes);
    let missing = input.cannot_tell.iter().map(|entry| format!("{}: {}", entry.rule, entry.missing.join(", ")));
    let title = "What could not be read here, so that rules have no answer and no setting.";
    section(&mut text, "NOT LOOKED AT", title, &missing.collect::<Vec<_>>());
    ExportFile::new("README.txt", text)
}

fn tuned(text: &mut String, input: &Input<'_>, loose: bool) {
    text.push_str("\n\nTUNED\n\ntuned/nearmetal/tuned.conf\n  a profile for tuned, with every setting it can keep\n");
    if loose {
        text.push_str("  Use one of the two: this profile, or the single files below. They hold the same settings.\n");
    }
    text.push_str(
        "  put in place  cp -r tuned/nearmetal /etc/tuned/profiles/ && tuned-adm profile nearmetal\n\
        \x20               (before tuned 2.23, where /etc/tuned/profiles is not there: cp -r tuned/nearmetal /etc/tuned/)\n\
        \x20 check         tuned-adm verify\n\
        \x20 take away     tuned-adm profile PROFILE_BEFORE && rm -r /etc/tuned/profiles/nearmetal\n",
    );
    text.push_str(if includes_virtual_host(input) {
        "  It includes tuned's own profile virtual-host, which also sets what no rule asked for; take the line\n\
         \x20 `include=` out if you do not want that.\n"
    } else {
        "  It sets nothing but what was found. To keep the profile in use beside it: tuned-adm profile PROFILE nearmetal\n"
    });
    text.push_str(
        "  tuned adds kernel arguments to grub's configuration; it takes none away: see kernel-arguments.txt, if it is there.\n",
    );
}

fn definitions(text: &mut String, files: &[ExportFile]) {
    let new: Vec<&str> =
        files.iter().filter_map(|file| file.path.strip_prefix("domains/")?.strip_suffix(".xml")).collect();
    if new.is_empty() {
        return;
    }
    text.push_str(
        "\n\nDEFINITIONS OF DOMAINS\n\nNAME.xml is the whole new definition, NAME.diff what is different in it. They may hold \
         passwords: only their\nowner may read them. In force when the guest is started next.\n\
         \x20 put in place  virsh define domains/NAME.xml\n\
         \x20 take away     patch -R -o before.xml domains/NAME.xml domains/NAME.diff && virsh define before.xml\n\
         If a definition was changed since, put the difference on top of it:\n\
         \x20 virsh dumpxml --inactive --security-info NAME > now.xml && patch now.xml domains/NAME.diff && virsh define now.xml\n\n",
    );
    for name in new {
        let _ = writeln!(text, "domains/{name}.xml, domains/{name}.diff");
    }
}

fn section(text: &mut String, title: &str, words: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    let _ = write!(text, "\n\n{title}\n\n");
    if !words.is_empty() {
        let _ = writeln!(text, "{words}\n");
    }
    for line in lines {
        let _ = writeln!(text, "- {}", one_line(line));
    }
}
