//! The reference page, from the rules themselves.

use std::fmt::Write;

use crate::registry::RULES;
use crate::rule::{Evidence, Rule, Severity};
use crate::rules::ALL;
use crate::settings::{SETTINGS, Settings};
use crate::sources::source;

/// Advice that is known here and no rule, with the reason: what would decide it is in no file that is read.
pub const NOT_COVERED: [(&str, &str); 11] = [
    ("guest-fstrim-enabled", "whether a timer of systemd is on is in no file of /sys or /proc"),
    ("guest-irq-spread", "which PU an interrupt of a busy guest goes to most takes two readings of its counters"),
    ("guest-numa-balancing", "whether a guest's programs pin themselves is known to them alone"),
    ("guest-swap-idle", "whether a guest swaps now takes two readings of its counters"),
    ("image-distribution-cached", "it is about many hosts, and one is looked at"),
    ("image-fragmentation-low", "the extents of an image are told by a system call that reads all of its map"),
    (
        "blk-readahead-role",
        "the right read-ahead depends on whether guests read in sequence through the page cache, which nothing tells",
    ),
    (
        "core-scheduling-when-smt-shared",
        "whether a thread has a core scheduling cookie is told by a system call to its owner alone; guests pinned to one core are found by `vcpu-pin-sibling-pairs`",
    ),
    (
        "firmware-performance-profile",
        "power profile and memory channels are the firmware's; what the kernel shows of them has rules of its own",
    ),
    (
        "net-nic-rings",
        "the sizes of a card's rings are told by an ioctl of ethtool, and dropped packets need two readings",
    ),
    (
        "net-not-capped-by-qdisc",
        "queueing disciplines are told by netlink; shaping in the definition is `net-bandwidth-cap-known`",
    ),
];

/// One Markdown page of all rules.
pub fn reference() -> String {
    let mut page = String::from("# Rules of `nearmetal doctor`\n\n");
    page.push_str(
        "Generated from the rules; `UPDATE_GOLDENS=1 cargo test -p nearmetal-rules reference` rewrites it.\n\n",
    );
    page.push_str("## Severities\n\n| severity | what must happen next |\n|---|---|\n");
    for severity in Severity::ALL {
        let _ = writeln!(page, "| {} | {} |", severity.as_str(), severity.meaning());
    }
    page.push_str("\n## Evidence\n\n");
    for evidence in [Evidence::A, Evidence::B, Evidence::C] {
        let _ = writeln!(page, "- {}", evidence.meaning());
    }
    page.push_str("\n## Thresholds\n\n| setting | default | why |\n|---|---|---|\n");
    let defaults = printed(&Settings::default());
    for (setting, default) in SETTINGS.iter().zip(defaults) {
        let _ = writeln!(page, "| `{}` | {default} | {} |", setting.name, setting.reason);
    }
    let mut layer = None;
    for rule in RULES {
        if layer != Some(rule.layer) {
            layer = Some(rule.layer);
            let _ = write!(page, "\n## {}\n", rule.layer.as_str());
        }
        page.push_str(&section(rule));
    }
    page.push_str("\n## Not covered\n\nAdvice of the trade that no rule looks at.\n\n| advice | why |\n|---|---|\n");
    for (id, reason) in NOT_COVERED {
        let _ = writeln!(page, "| {id} | {reason} |");
    }
    page
}

/// Defaults as they are printed, in the order of the settings.
fn printed(settings: &Settings) -> [String; SETTINGS.len()] {
    [
        settings.queues_enough.to_string(),
        settings.large_memory_gib.to_string(),
        settings.hard_limit_margin_percent.to_string(),
        settings.vcpus_per_pu.to_string(),
        settings.local_memory_percent.to_string(),
        settings.hugetlb_coverage_percent.to_string(),
        settings.node_reserve_mib.to_string(),
        settings.command_line_percent.to_string(),
        settings.polling_ns.to_string(),
        settings.backing_depth.to_string(),
        settings.preallocated_percent.to_string(),
        settings.dedicated_steal_percent.to_string(),
        settings.shared_steal_percent.to_string(),
        settings.idle_exit_us.to_string(),
        settings.wait_dedicated_percent.to_string(),
        settings.wait_percent.to_string(),
        settings.throttled_percent.to_string(),
        settings.swappiness.to_string(),
        settings.passthrough_iops.to_string(),
    ]
}

fn section(rule: &Rule) -> String {
    let mut text = format!("\n### {}\n\n{}.\n\n", rule.id, rule.title);
    let mut line = |name: &str, value: &str| {
        if !value.is_empty() && value != "-" {
            let _ = writeln!(text, "- {name}: {value}");
        }
    };
    line("severity", rule.severity.as_str());
    line("classes", &rule.class_names());
    line("reads", &format!("`{}`", rule.reads.join("`, `")));
    line("good", rule.good);
    line("applies", rule.applies);
    line("does not apply", rule.not_applies);
    line("worth", rule.effect);
    line("fix while running", rule.fix.live.unwrap_or("none"));
    line("permanent fix", rule.fix.persistent);
    line("needs", &rule.needs());
    line("risk and undo", rule.fix.undo);
    line("evidence", rule.evidence.meaning());
    let sources = rule.sources.iter().filter_map(|key| source(key));
    line(
        "sources",
        &sources.map(|source| format!("{} ({})", source.title, source.site)).collect::<Vec<_>>().join("; "),
    );
    text
}

impl Rule {
    /// Its classes in words: `all`, or a list.
    pub fn class_names(&self) -> String {
        if self.classes.len() == ALL.len() {
            return "all".to_owned();
        }
        self.classes.iter().map(|class| class.word()).collect::<Vec<_>>().join(", ")
    }

    /// What its fix takes, in words.
    pub fn needs(&self) -> String {
        self.fix.needs.iter().map(|need| need.as_str()).collect::<Vec<_>>().join(" or ")
    }
}
