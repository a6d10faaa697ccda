//! What each experiment takes on the command line, and the measurements it is made of.
//!
//! Longer than most files, so that the options of each experiment and its steps are in one place.
//!
//! A step is a command of `nearmetal bench`, word for word: whoever wants one of them alone can run it, and whatever that
//! command refuses, the experiment refuses too.

use std::path::PathBuf;

use nearmetal_measure::Mode;

use crate::commands::bench::{one_of, percent, same_arm_pairs};

/// One measurement of an experiment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    /// Names its files, and is where data/papers of the report looks for our figures.
    pub id: &'static str,
    /// For people.
    pub title: &'static str,
    /// The words behind `nearmetal bench`.
    pub words: Vec<String>,
}

impl Step {
    /// The command, as a shell takes it.
    pub(super) fn command(&self) -> String {
        format!("nearmetal bench {}", shell_words(&self.words))
    }
}

/// Words as a shell takes them: quoted where it would see more than a word.
pub(super) fn shell_words(words: &[String]) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,=@%+".contains(c);
    let quoted = |word: &String| match !word.is_empty() && word.chars().all(is_plain) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// Seconds of a race with --quick.
const QUICK_BUDGET: u32 = 600;
/// Seconds of a race otherwise: as `bench disk race`.
const BUDGET: u32 = 1800;
/// Sizes of a request that the paper measured, and the two of them that are measured with --quick.
const SIZES: [&str; 5] = ["512B", "1KiB", "2KiB", "4KiB", "8KiB"];
const QUICK_SIZES: [&str; 2] = ["4KiB", "8KiB"];
/// The size at which the paper's guests ran together.
const TOGETHER_SIZE: &str = "8KiB";
/// Ways left out where containers are compared: everything but cache none, native AIO and an iothread.
const ONLY_CONTAINERS: [&str; 12] = [
    "threads",
    "io_uring",
    "directsync",
    "writeback",
    "writethrough",
    "main-loop",
    "2-iothreads",
    "virtio-scsi",
    "q1",
    "discard",
    "sectors-4096",
    "lvm",
];

/// What every experiment takes.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Common {
    /// Take minutes instead of hours: fewer and shorter samples
    #[arg(long)]
    pub(super) quick: bool,
    /// Allow the VMs themselves to be paused while their slices are measured
    #[arg(long)]
    pause: bool,
    /// Pairs of each comparison, and fresh pairs of a race's winner [default: those of each step's command]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(2..=1000))]
    pairs: Option<u32>,
    /// Seconds of one sample; a set of files takes as long as it takes [default: those of each step's command]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: Option<u32>,
    /// The plan of the VMs [default: the one that was last applied to each]
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// The journal's directory [default: $NEARMETAL_STATE, or /var/lib/nearmetal]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Directory of the measuring appliance [default: /usr/share/nearmetal/appliance]
    #[arg(long, value_name = "DIR")]
    appliance: Option<PathBuf>,
    /// Seed of the order; the same seed gives the same order
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Write the page and all documents here; run the same command again to go on after an interruption [default:
    /// experiment-NAME]
    #[arg(long, short, value_name = "DIR")]
    pub(super) output: Option<PathBuf>,
    /// Print the commands it would run, and run nothing
    #[arg(long)]
    pub(super) dry_run: bool,
    /// What is printed
    #[arg(long, value_enum, default_value_t = crate::style::Format::Text)]
    pub(super) format: crate::style::Format,
}

/// What a race takes.
#[derive(Debug, clap::Args)]
pub(super) struct Race {
    /// Seconds for a race of ways [default: 1800, with --quick 600]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(60..=86_400))]
    budget: Option<u32>,
    /// Leave out the ways with this word, as in `bench disk race` and `bench net race`; repeat it for more words
    #[arg(long, value_name = "WORD")]
    without: Vec<String>,
}

/// What a race of ways to a disk takes beside that.
#[derive(Debug, clap::Args)]
pub(super) struct Disk {
    /// How much storage each way works on [default: 256MiB]
    #[arg(long, value_name = "SIZE")]
    span: Option<String>,
}

/// What measurements with several programs at once take.
#[derive(Debug, clap::Args)]
pub(super) struct AtOnce {
    /// A/A pairs of an arm with itself, for the noise floor of each comparison in pairs: 0, or 2 and more [default: 2]
    #[arg(long, value_name = "NUMBER", value_parser = same_arm_pairs)]
    same_arm_pairs: Option<u32>,
    /// Percent of a sample's time during which all must have run, where several programs run at once [default: 80]
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    overlap: Option<f64>,
}

/// What a measurement over nodes takes.
#[derive(Debug, clap::Args)]
pub(super) struct Over {
    /// The nodes, as 0-3 or 0,2 [default: all that have PUs]
    #[arg(long, value_name = "NODES")]
    nodes: Option<String>,
    /// Numbers of nodes to measure [default: 1, 2, 4 and so on, and all]
    #[arg(long, value_name = "NUMBER,…")]
    counts: Option<String>,
    /// A mode to compare with native; repeat --mode for more [default: all four]
    #[arg(long, value_name = "MODE", value_parser = one_of(&Mode::WITH_GUESTS, Mode::id))]
    mode: Vec<Mode>,
    #[command(flatten)]
    at_once: AtOnce,
}

/// The experiments.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Which {
    /// How close guests with drives of their own come to bare metal; THE CONTENTS OF THEIR NAMESPACES ARE LOST
    PassthroughIo {
        /// The VMs, each with an NVMe drive or virtual function of its own; the first also alone
        #[arg(value_name = "VM", required = true)]
        vms: Vec<String>,
        #[command(flatten)]
        at_once: AtOnce,
        #[command(flatten)]
        common: Common,
    },
    /// Which cache mode, engine and elevator suit a disk, for one guest and several
    VirtioIo {
        /// The VMs; the first also alone
        #[arg(value_name = "VM", required = true)]
        vms: Vec<String>,
        /// Whole block device for one VM; ITS CONTENTS ARE LOST. Once for each VM, in the same order
        #[arg(long, value_name = "DEVICE", required = true)]
        scratch: Vec<String>,
        #[command(flatten)]
        disk: Disk,
        #[command(flatten)]
        race: Race,
        #[command(flatten)]
        at_once: AtOnce,
        #[command(flatten)]
        common: Common,
    },
    /// What user space, vhost-net and SR-IOV make of a network
    NetPaths {
        /// The VMs; the first also alone
        #[arg(value_name = "VM", required = true)]
        vms: Vec<String>,
        /// The port that is measured; it must have no address
        #[arg(long, value_name = "INTERFACE")]
        port: String,
        /// Address of the machine at the other end of the port's cable, on which netserver runs
        #[arg(long, value_name = "ADDRESS")]
        peer: String,
        /// A free address in the peer's network, with its prefix; several VMs have it and the ones behind it
        #[arg(long, value_name = "ADDRESS/PREFIX")]
        address: String,
        #[command(flatten)]
        race: Race,
        #[command(flatten)]
        at_once: AtOnce,
        #[command(flatten)]
        common: Common,
    },
    /// How a guest should be spread over NUMA nodes, and what each way costs
    NumaModes {
        /// The VM
        #[arg(value_name = "VM")]
        vm: String,
        /// Whole block device for memory and files; ITS CONTENTS ARE LOST. Without it that step is left out
        #[arg(long, value_name = "DEVICE")]
        scratch: Option<String>,
        /// Total size of the files on the scratch device, at least 4MiB [default: 256MiB]
        #[arg(long, value_name = "SIZE", requires = "scratch")]
        span: Option<String>,
        #[command(flatten)]
        over: Over,
        #[command(flatten)]
        common: Common,
    },
    /// How far a JVM scales over NUMA nodes, as one or as one on each node
    JvmScaling {
        /// The VM
        #[arg(value_name = "VM")]
        vm: String,
        #[command(flatten)]
        over: Over,
        /// Seconds for a JVM to start, before its load begins; if it takes longer the sample fails [default: as many as a slow
        /// machine needs]
        #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=1800))]
        start: Option<u32>,
        #[command(flatten)]
        common: Common,
    },
    /// What huge pages and pins are worth to a database
    OltpMemory {
        /// The VM
        #[arg(value_name = "VM")]
        vm: String,
        /// Whole block device for the database; ITS CONTENTS ARE LOST
        #[arg(long, value_name = "DEVICE")]
        scratch: String,
        /// Size of all rows together [default: 64MiB, in a lab 1MiB]
        #[arg(long, value_name = "SIZE")]
        rows: Option<String>,
        #[command(flatten)]
        common: Common,
    },
    /// What the container of a disk costs: raw file, qcow2, backing file, snapshot
    ImagesIo {
        /// The VM
        #[arg(value_name = "VM")]
        vm: String,
        /// A directory on the drive in question
        #[arg(long, value_name = "DIR")]
        directory: String,
        #[command(flatten)]
        disk: Disk,
        #[command(flatten)]
        race: Race,
        #[command(flatten)]
        common: Common,
    },
    /// How many tiles of VMs this host holds over a bridge and over virtual functions
    Tiles {
        /// The VMs of one tile, such as web=w1,mail=m1,db=d1,idle=i1; once for each tile, each with the same parts
        #[arg(long = "tile", value_name = "PART=VM,…", required = true)]
        tiles: Vec<String>,
        /// The port that all VMs share; it must have no address, and a virtual function for each VM
        #[arg(long, value_name = "INTERFACE")]
        port: String,
        /// How much a tile holds and is asked: 0.001 to 100 times the usual [default: 1; 0.01 in a lab]
        #[arg(long, value_name = "FACTOR")]
        scale: Option<String>,
        #[command(flatten)]
        common: Common,
    },
}

/// A command of `bench` as it grows.
struct Words(Vec<String>);

impl Words {
    fn new(words: &[&str]) -> Self {
        Self(words.iter().map(|word| (*word).to_owned()).collect())
    }

    fn with(mut self, words: &[&str]) -> Self {
        self.0.extend(words.iter().map(|word| (*word).to_owned()));
        self
    }

    /// `--flag value` for each.
    fn each<'a>(self, flag: &str, values: impl IntoIterator<Item = &'a str>) -> Self {
        values.into_iter().fold(self, |words, value| words.with(&[flag, value]))
    }

    /// What every experiment takes, for a command that takes pairs.
    fn paired(self, common: &Common) -> Self {
        let pairs = common.pairs.map(|pairs| pairs.to_string());
        let words = if common.quick { self.with(&["--quick"]) } else { self };
        words.each("--pairs", pairs.as_deref()).common(common)
    }

    /// What several programs at once take beside that.
    fn at_once(self, at_once: &AtOnce) -> Self {
        let overlap = at_once.overlap.map(|percent| percent.to_string());
        self.same_arm(at_once).each("--overlap", overlap.as_deref())
    }

    /// A/A pairs alone.
    fn same_arm(self, at_once: &AtOnce) -> Self {
        let pairs = at_once.same_arm_pairs.map(|pairs| pairs.to_string());
        self.each("--same-arm-pairs", pairs.as_deref())
    }

    /// The same for a race.
    fn raced(self, race: &Race, common: &Common) -> Self {
        let budget = race.budget.unwrap_or(if common.quick { QUICK_BUDGET } else { BUDGET }).to_string();
        let pairs = common.pairs.map(|pairs| pairs.to_string());
        self.each("--without", race.without.iter().map(String::as_str))
            .with(&["--budget", &budget])
            .each("--pairs", pairs.as_deref())
            .common(common)
    }

    fn common(self, common: &Common) -> Self {
        let seed = (common.seed != 1).then(|| common.seed.to_string());
        let seconds = common.seconds.map(|seconds| seconds.to_string());
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let words = if common.pause { self.with(&["--pause"]) } else { self };
        words
            .each("--seconds", seconds.as_deref())
            .each("--plan", path(&common.plan).as_deref())
            .each("--state", path(&common.state).as_deref())
            .each("--appliance", path(&common.appliance).as_deref())
            .each("--seed", seed.as_deref())
    }

    fn step(self, id: &'static str, title: &'static str) -> Step {
        Step { id, title, words: self.0 }
    }
}

fn names(vms: &[String]) -> Vec<&str> {
    vms.iter().map(String::as_str).collect()
}

impl Which {
    /// Its name, as `list` gives it.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::PassthroughIo { .. } => "passthrough-io",
            Self::VirtioIo { .. } => "virtio-io",
            Self::NetPaths { .. } => "net-paths",
            Self::NumaModes { .. } => "numa-modes",
            Self::JvmScaling { .. } => "jvm-scaling",
            Self::OltpMemory { .. } => "oltp-memory",
            Self::ImagesIo { .. } => "images-io",
            Self::Tiles { .. } => "tiles",
        }
    }

    /// What every experiment takes.
    pub(super) fn common(&self) -> &Common {
        match self {
            Self::PassthroughIo { common, .. }
            | Self::VirtioIo { common, .. }
            | Self::NetPaths { common, .. }
            | Self::NumaModes { common, .. }
            | Self::JvmScaling { common, .. }
            | Self::OltpMemory { common, .. }
            | Self::ImagesIo { common, .. }
            | Self::Tiles { common, .. } => common,
        }
    }

    /// The VMs.
    pub(super) fn guests(&self) -> Vec<String> {
        match self {
            Self::PassthroughIo { vms, .. } | Self::VirtioIo { vms, .. } | Self::NetPaths { vms, .. } => vms.clone(),
            Self::NumaModes { vm, .. }
            | Self::JvmScaling { vm, .. }
            | Self::OltpMemory { vm, .. }
            | Self::ImagesIo { vm, .. } => vec![vm.clone()],
            Self::Tiles { tiles, .. } => {
                let parts = tiles.iter().flat_map(|tile| tile.split(','));
                parts.filter_map(|part| Some(part.split_once('=')?.1.to_owned())).collect()
            }
        }
    }

    /// The measurements, in the order they run. What takes several VMs is left out with one.
    pub(super) fn steps(&self) -> Vec<Step> {
        match self {
            Self::PassthroughIo { vms, at_once, common } => passthrough_io(vms, at_once, common),
            Self::VirtioIo { vms, scratch, disk, race, at_once, common } => {
                virtio_io(vms, scratch, disk, race, at_once, common)
            }
            Self::NetPaths { vms, port, peer, address, race, at_once, common } => {
                let on = ["--port", port, "--peer", peer, "--address", address];
                net_paths(vms, &on, race, at_once, common)
            }
            Self::NumaModes { vm, scratch, span, over, common } => {
                let modes =
                    modes(vm, over, false).at_once(&over.at_once).paired(common).step("modes", "Modes over nodes");
                let files = scratch.as_ref().map(|device| {
                    let files = Words::new(&["slice", vm, "--scratch", device, "--workload", "iozone-xfs"]);
                    // What virt-install writes of a disk has no part in the question.
                    let files = files.each("--arm", ["as-found", "planned"]).each("--span", span.as_deref());
                    // The set's steps run to their end, so it takes no --seconds.
                    let common = Common { seconds: None, ..common.clone() };
                    files.same_arm(&over.at_once).paired(&common).step("memory-and-files", "Memory and files")
                });
                [Some(modes), files].into_iter().flatten().collect()
            }
            Self::JvmScaling { vm, start, over, common } => {
                let start = start.map(|seconds| seconds.to_string());
                let of = |single: bool| {
                    let modes = modes(vm, over, single).with(&["--workload", "jvm"]);
                    let modes = if single { modes.with(&["--single"]) } else { modes };
                    modes.each("--start", start.as_deref()).at_once(&over.at_once).paired(common)
                };
                // A VM on each node alone leaves nothing to one JVM over all of them.
                let one = over.mode.is_empty() || over.mode.iter().any(|mode| *mode != Mode::PerNode);
                let mut steps = vec![of(false).step("a-jvm-a-node", "A JVM on each node")];
                steps.extend(one.then(|| of(true).step("one-jvm", "One JVM over all nodes")));
                steps
            }
            Self::OltpMemory { vm, scratch, rows, common } => {
                let words = Words::new(&["pages", vm, "--scratch", scratch, "--workload", "oltp", "--no-memory"]);
                let words = words.each("--span", rows.as_deref());
                vec![words.paired(common).step("pages", "Huge pages and pins")]
            }
            Self::ImagesIo { vm, directory, disk, race, common } => {
                let words = Words::new(&["disk", "race", vm, "--scratch", directory, "--workload", "iozone-ext4"]);
                let words = words.each("--span", disk.span.as_deref());
                let common = Common { seconds: None, ..common.clone() };
                vec![words.each("--without", ONLY_CONTAINERS).raced(race, &common).step("containers", "Containers")]
            }
            Self::Tiles { tiles, port, scale, common } => {
                let words = Words::new(&["tiles"]).each("--tile", names(tiles)).with(&["--port", port]);
                let words = words.each("--scale", scale.as_deref());
                // A sample stands for a pair: it has no other side in the same moment.
                let samples = common.pairs.map(|pairs| pairs.to_string());
                let quick = if common.quick { &["--quick"][..] } else { &[] };
                let words = words.with(quick).each("--samples", samples.as_deref());
                vec![words.common(common).step("tiles", "Tiles both ways")]
            }
        }
    }
}

/// One guest over nodes, in each mode. `single`: with one program, which is not in several guests.
fn modes(vm: &str, over: &Over, single: bool) -> Words {
    Words::new(&["modes", vm])
        .each("--nodes", over.nodes.as_deref())
        .each("--counts", over.counts.as_deref())
        .each("--mode", over.mode.iter().filter(|mode| !single || **mode != Mode::PerNode).map(|mode| mode.id()))
}

fn passthrough_io(vms: &[String], at_once: &AtOnce, common: &Common) -> Vec<Step> {
    let sizes = if common.quick { &QUICK_SIZES[..] } else { &SIZES[..] };
    let first = names(vms).into_iter().take(1);
    let alone = Words::new(&["drive"]).with(&first.collect::<Vec<_>>());
    let mut steps = vec![
        alone.each("--block-size", sizes.iter().copied()).paired(common).step("one-guest", "One guest, its drive"),
    ];
    if vms.len() > 1 {
        let words = Words::new(&["together"]).with(&names(vms));
        let words = words.with(&["--drives", "--scaling", "--block-size", TOGETHER_SIZE]);
        steps.push(words.at_once(at_once).paired(common).step("together", "Guests at once, a drive each"));
    }
    steps
}

fn virtio_io(
    vms: &[String],
    scratch: &[String],
    disk: &Disk,
    race: &Race,
    at_once: &AtOnce,
    common: &Common,
) -> Vec<Step> {
    let (first, device) = (names(vms).into_iter().take(1), names(scratch).into_iter().take(1));
    let words = Words::new(&["disk", "race"]).with(&first.collect::<Vec<_>>()).each("--scratch", device);
    let words = words.each("--span", disk.span.as_deref());
    let mut steps = vec![words.raced(race, common).step("ways", "Ways to a disk")];
    if vms.len() > 1 {
        let words = Words::new(&["together"]).with(&names(vms)).each("--scratch", names(scratch)).with(&["--scaling"]);
        steps.push(words.at_once(at_once).paired(common).step("together", "Guests at once, a device each"));
    }
    steps
}

fn net_paths(vms: &[String], on: &[&str], race: &Race, at_once: &AtOnce, common: &Common) -> Vec<Step> {
    let first = names(vms).into_iter().take(1);
    let words = Words::new(&["net", "race"]).with(&first.collect::<Vec<_>>()).with(on);
    let mut steps = vec![words.raced(race, common).step("ways", "Ways to a network")];
    if vms.len() > 1 {
        for (id, title, way) in [
            ("bridge", "Guests at once over a bridge", "bridge.vhost.q1"),
            ("functions", "Guests at once with virtual functions", "vf-hostdev"),
        ] {
            let words = Words::new(&["together"]).with(&names(vms)).with(on);
            let words = words.with(&["--way", way, "--test", "tcp-stream", "--scaling"]);
            steps.push(words.at_once(at_once).paired(common).step(id, title));
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    #[command(no_binary_name = true)]
    struct Alone {
        #[command(subcommand)]
        which: Which,
    }

    fn steps(words: &str) -> Vec<Step> {
        Alone::try_parse_from(words.split(' ')).map(|alone| alone.which.steps()).unwrap()
    }

    const ALL: [&str; 8] = [
        "passthrough-io a b --quick --pause --same-arm-pairs 0 --overlap 50",
        "virtio-io a b --scratch /dev/x --scratch /dev/y --budget 300 --pairs 4 --same-arm-pairs 3 --overlap 60",
        "net-paths a b --port p0 --peer 192.0.2.1 --address 192.0.2.10/24 --without macvtap --same-arm-pairs 0 --overlap 50",
        "numa-modes a --scratch /dev/x --span 32MiB --nodes 0-3 --counts 1,4 --mode default --mode cells --seconds 2 --seed 7 --same-arm-pairs 0 --overlap 62.5",
        "jvm-scaling a --counts 1,2 --mode cells --mode per-node --quick --start 40 --same-arm-pairs 3",
        "oltp-memory a --scratch /dev/x --rows 64MiB --quick --pause",
        "images-io a --directory /srv/scratch --quick",
        "tiles --tile web=a,idle=b --tile web=c,idle=d --port p0 --scale 0.5 --pairs 4 --quick --pause",
    ];

    #[test]
    fn every_step_is_a_command_that_bench_takes() {
        for words in ALL {
            for step in steps(words) {
                let asked = crate::commands::bench::parses(&step.words);
                assert!(asked.is_ok(), "{}: {asked:?}", step.words.join(" "));
            }
        }
    }

    #[test]
    fn one_jvm_is_in_no_vm_on_each_node() {
        let words = |modes: &str| {
            let steps = steps(&format!("jvm-scaling a --mode {modes}"));
            steps.into_iter().map(|step| step.words.join(" ")).collect::<Vec<_>>()
        };
        let both = words("cells --mode per-node");
        assert!(both[0].contains("--mode per-node") && !both[1].contains("per-node"), "{both:?}");
        assert!(both[1].contains("--mode cells") && both[1].contains("--single"), "{both:?}");
        assert_eq!(words("per-node").len(), 1);
    }

    #[test]
    fn every_figure_of_a_paper_is_looked_for_in_a_step_there_is() {
        for words in ALL {
            let name = words.split(' ').next().unwrap();
            let ids: Vec<&str> = steps(words).iter().map(|step| step.id).collect();
            for asked in nearmetal_report::papers::steps_asked(name) {
                assert!(ids.contains(&asked.as_str()), "{name} has no step `{asked}`: {ids:?}");
            }
        }
    }

    #[test]
    fn a_command_can_be_pasted_into_a_shell() {
        let words = ["a", "/srv/a b", "it's", "", "x=1"].map(str::to_owned);
        assert_eq!(shell_words(&words), "a '/srv/a b' 'it'\\''s' '' x=1");
    }

    #[test]
    fn one_vm_alone_runs_nothing_at_once() {
        assert_eq!(steps("passthrough-io a").len(), 1);
        assert_eq!(steps("net-paths a --port p --peer 192.0.2.1 --address 192.0.2.9/24").len(), 1);
        assert_eq!(steps("numa-modes a").len(), 1);
        assert_eq!(steps("jvm-scaling a").len(), 2);
    }

    #[test]
    fn the_names_are_those_of_the_list() {
        let names: Vec<String> = nearmetal_report::papers::experiments().into_iter().map(|words| words.name).collect();
        let own: Vec<&str> =
            ALL.iter().map(|words| Alone::try_parse_from(words.split(' ')).unwrap().which.name()).collect();
        assert_eq!(own, names);
    }
}
