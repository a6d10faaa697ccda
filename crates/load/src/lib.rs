//! What is measured: one file a load, and one line in the list below.
//!
//! A load is the same program with the same arguments on both sides of every comparison. It knows its command, the
//! reader of what the program prints, its unit and its length; where it runs, and in which order, is the engine's.

mod command;
mod cost;
mod error;
mod files;
mod fio;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod jvm;
mod memory;
mod metric;
mod named;
mod net;
mod oltp;
mod pgbench;
mod served;
mod server;
mod specjbb;
mod tile;
mod web;
mod window;
mod work;
mod zstd;

use std::time::Duration;

use nearmetal_units::Bytes;
use serde::{Deserialize, Serialize};

pub use self::command::CommandJob;
pub use self::cost::{Cost, Each, Middle, PREFIX};
pub use self::error::LoadError;
pub use self::files::missing_file_system;
pub use self::files::{FileJob, FileStep, FileSystem};
pub use self::fio::{FioEngine, FioJob, Order, fio_filename};
pub use self::jvm::{JavaPages, JvmJob};
pub use self::memory::{MemoryBandwidth, MemoryJob, MemoryLatency, Pattern, ProbePages};
pub use self::metric::{Metric, Unit};
pub use self::named::{Named, Shape, WorksOn};
pub use self::net::{NetJob, NetTest, greeting};
pub use self::oltp::OltpJob;
pub use self::pgbench::PgbenchJob;
pub use self::served::{OFFERED as SERVED_OFFERED, ServedJob};
pub use self::server::Server;
pub use self::specjbb::{Kit, KitEdition, KitHash, SpecJbbJob};
pub use self::tile::{Limit, Peers, Rate, Role as TileRole, Scale, TileSize};
pub use self::web::OF_ITS_NETWORK;
pub use self::web::WebJob;
pub use self::window::Window;
pub use self::window::overlap;
pub use self::work::WorkJob;

/// What a run may take beyond its own seconds: starting the program, flushing, an emulated machine.
pub const SLACK: Duration = Duration::from_secs(60);

/// The limit of preparing, in multiples of what it is expected to take.
const OF_WHICH_IT_TAKES: u32 = 3;

/// What a finished run gave.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Measured {
    /// Values.
    pub metrics: Vec<Metric>,
    /// What the program said of itself.
    pub notes: Vec<String>,
}

/// Where a load runs, as far as its command needs to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct At<'a> {
    /// Path of the probe there.
    pub probe: &'a str,
    /// Block device it works on, as that side calls it; empty where there is none.
    pub device: &'a str,
    /// The loads image, as that side's probe takes it; empty where there is none.
    pub loads: &'a str,
    /// The image of the user's kit, likewise.
    pub kit: &'a str,
    /// The gate at which it waits once it is ready, if it prepares something ([`Load::prepares`]).
    pub gate: Option<Gate<'a>>,
}

/// Where a program waits to be told to begin (`nearmetal-probe programs --gate`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gate<'a> {
    /// Its name there.
    pub name: &'a str,
    /// How long the program waits; then nobody is left who could tell it.
    pub patience: Duration,
}

impl<'a> At<'a> {
    /// Where there is neither device nor image.
    pub fn probe(probe: &'a str) -> Self {
        Self { probe, device: "", loads: "", kit: "", gate: None }
    }

    /// The words that run a program of the loads image, by its path there. `options` are the probe's own.
    pub fn in_the_image(&self, options: &[&str], program: impl IntoIterator<Item = String>) -> Vec<String> {
        let words =
            [self.probe, "programs", "--image", self.loads].into_iter().chain(options.iter().copied()).chain(["--"]);
        words.map(str::to_owned).chain(program).collect()
    }
}

/// Whether and how arms are compared in a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compared {
    /// In each round in which both arms have it.
    ByRound,
    /// Only where both arms have it in every sample that was measured.
    IfInEveryRound,
    /// Not at all: it is shown of each arm.
    Never,
}

/// What a program printed, where it cannot be read.
fn unreadable(what: &str, why: &str, text: &str) -> LoadError {
    LoadError::Unreadable { what: what.into(), why: why.into(), text: text.chars().take(300).collect() }
}

/// What runs.
pub trait Load {
    /// A short id, stable over versions.
    fn id(&self) -> String;
    /// What a person calls it.
    fn label(&self) -> String;
    /// How a metric of it is compared.
    fn compared(&self, _metric: &str) -> Compared {
        Compared::ByRound
    }
    /// Name of the metric that says how much it did each second; `None` where it has no rate, as a latency.
    fn rate(&self) -> Option<String> {
        None
    }
    /// The command, program first. `seed` is the same on both sides of a pair and differs between pairs.
    fn command(&self, at: &At<'_>, seed: u64) -> Vec<String>;
    /// What it is if it is a server of the loads image with its data on the device: several of the answers below follow from that.
    fn server(&self) -> Option<Server> {
        None
    }
    /// How long it may take to prepare what it works on, before it waits to be told to begin; `None`: it begins when it is started.
    fn prepares(&self) -> Option<Duration> {
        self.server().map(|server| server.prepares())
    }
    /// From its beginning to its end; `None`: as long as it takes.
    fn length(&self) -> Option<Duration> {
        self.server().map(|server| server.length())
    }
    /// What is reckoned with before it ran: its length, and what preparing is expected to take.
    fn reckoned(&self) -> Duration {
        self.length().unwrap_or_default() + self.prepares().unwrap_or_default() / OF_WHICH_IT_TAKES
    }
    /// When it has hung, from its beginning.
    fn limit(&self) -> Duration {
        self.length().unwrap_or_default() + SLACK
    }
    /// The part of its time in which costs are counted, and what they are given for; `None`: they are not counted.
    fn middle(&self) -> Option<(Middle, Each)> {
        Some((self.server()?.middle()?, Each::Transaction))
    }
    /// Whether the page cache is written back and dropped before it runs, so that no sample pays for or profits from the one
    /// before.
    fn cold(&self) -> bool {
        true
    }
    /// Whether it writes to the device it is given.
    fn writes(&self) -> bool {
        self.server().is_some()
    }
    /// The file system it needs on the device, and how much room on it; `None`: none.
    fn files(&self) -> Option<(FileSystem, Bytes)> {
        self.server().map(|server| server.files())
    }
    /// What is run in pairs once it is known what bare metal did a second: the same work, offered at parts of that rate.
    fn at_parts_of(&self, _bare: f64) -> Option<Workload> {
        None
    }
    /// Whether its program is in the loads image.
    fn needs_loads_image(&self) -> bool {
        self.server().is_some()
    }
    /// Whether its program is a licensed kit of the user's, which its image holds.
    fn needs_kit(&self) -> bool {
        false
    }
    /// Whether its program is PostgreSQL, which not every loads image has.
    fn needs_postgresql(&self) -> bool {
        false
    }
    /// Whether the program does not say when it ran, so that the probe has to print the moments around it.
    fn stamp(&self) -> bool {
        false
    }
    /// What the program printed, as values.
    ///
    /// # Errors
    /// It failed, did nothing, or printed something else. A failure never becomes a number.
    fn read(&self, output: &str) -> Result<Measured, LoadError>;
    /// When it measured; `ahead` is how far the clock it ran on is before the host's, ms.
    ///
    /// # Errors
    /// The program does not say.
    fn window(&self, _output: &str, _ahead: f64) -> Result<Window, LoadError> {
        Err(LoadError::Unfit(format!("{} does not say when it ran, so it cannot run in several guests", self.label())))
    }
    /// Whether its output says what was done by when ([`Load::done`]).
    fn says_what_was_done_when(&self) -> bool {
        false
    }
    /// How many of what costs are given for it did in a part of its time, in ms of the host's clock since 1970; `ahead` is how far
    /// the clock it ran on is before that, ms. A machine that others slow down does not run it evenly, and its rate over all of
    /// its time is not that of a part. `None` where the program does not say.
    fn done(&self, _output: &str, _part: Window, _ahead: f64) -> Option<f64> {
        None
    }
    /// Its arguments, for the record: name and value.
    fn provenance(&self) -> Option<(String, String)> {
        None
    }
}

/// The list of loads: a variant of [`Workload`] each, by the name it has in documents, and the names people ask for it by.
macro_rules! loads {
    ($($(#[$doc:meta])* $name:ident($job:ty): $named:expr),+ $(,)?) => {
        /// One load with its parameters, as documents keep it.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(tag = "kind", rename_all = "kebab-case")]
        pub enum Workload { $($(#[$doc])* $name($job)),+ }

        impl Workload {
            /// The load itself.
            pub fn load(&self) -> &dyn Load {
                match self { $(Self::$name(job) => job),+ }
            }

            /// Loads that people ask for by name.
            pub fn named() -> Vec<&'static Named> {
                let all: &[&'static [Named]] = &[$($named),+];
                all.iter().copied().flatten().collect()
            }
        }
        $(impl From<$job> for Workload {
            fn from(job: $job) -> Self { Self::$name(job) }
        })+
    };
}

loads! {
    /// fio on a block device.
    Fio(FioJob): fio::NAMED,
    /// The IOzone set by fio, in a file system made on the device.
    FileSystem(FileJob): files::NAMED,
    /// `nearmetal-probe memory latency`.
    MemoryLatency(MemoryLatency): &[],
    /// `nearmetal-probe memory bandwidth`.
    MemoryBandwidth(MemoryBandwidth): &[],
    /// netperf or sockperf against a peer.
    Net(NetJob): &[],
    /// zstd's benchmark.
    Zstd(zstd::ZstdJob): zstd::NAMED,
    /// `nearmetal-probe memory work`.
    MemoryWork(WorkJob): &[],
    /// Warehouses in Java.
    Jvm(JvmJob): jvm::NAMED,
    /// A licensed kit of the user's.
    SpecJbb(SpecJbbJob): specjbb::NAMED,
    /// A database under load.
    Oltp(OltpJob): oltp::NAMED,
    /// PostgreSQL under pgbench.
    Pgbench(PgbenchJob): pgbench::NAMED,
    /// A web server with its files on a device, asked from beside it.
    Web(WebJob): web::NAMED,
    /// A server of a tile, driven from outside.
    Served(ServedJob): &[],
    /// A command of the user's in his own guest.
    Command(CommandJob): &[],
}

impl Workload {
    /// A short id, stable over versions: the first part of every metric's id.
    pub fn id(&self) -> String {
        self.load().id()
    }

    /// What a person calls it.
    pub fn label(&self) -> String {
        self.load().label()
    }

    /// When it measured, by what its program printed ([`Load::window`]).
    ///
    /// # Errors
    /// The program does not say, or no clock shows what it says.
    pub fn window(&self, output: &str, ahead: f64) -> Result<Window, LoadError> {
        let window = self.load().window(output, ahead)?;
        match window.began.is_finite() && window.ended.is_finite() {
            true => Ok(window),
            false => Err(unreadable(&self.label(), "the times at which it ran are not finite numbers", output)),
        }
    }

    /// What its costs are given for, in words: `IO`, `transaction`, `Gbit`.
    pub fn each(&self) -> &'static str {
        self.load().middle().map_or(Each::Io, |(_, each)| each).title()
    }

    /// The same with so many seconds for its program to start, before its load begins; `None` if its program starts at once.
    pub fn starting_within(&self, seconds: u32) -> Option<Self> {
        match self {
            Self::Jvm(job) => Some(job.starting_within(seconds).into()),
            Self::SpecJbb(job) => job.starting_within(seconds).map(Into::into),
            Self::Oltp(job) => Some(OltpJob { prepare: seconds, ..job.clone() }.into()),
            Self::Pgbench(job) => Some(job.starting_within(seconds).into()),
            Self::Web(job) => Some(job.starting_within(seconds).into()),
            _ => None,
        }
    }

    /// The same for so many times its seconds; `None` if nobody has to wait longer for more of its requests.
    pub fn longer(&self, times: u32) -> Option<Self> {
        match self {
            Self::Fio(job) => Some(FioJob { seconds: job.seconds.saturating_mul(times), ..job.clone() }.into()),
            Self::MemoryWork(job) => Some(WorkJob { seconds: job.seconds.saturating_mul(times), ..job.clone() }.into()),
            _ => None,
        }
    }

    /// Whether its program makes what it works on before it begins, in a time that hangs on how fast the machine is.
    pub fn fills_first(&self) -> bool {
        matches!(self, Self::MemoryWork(_))
    }

    /// The same whatever time its program had to start: of a server, or a kit, that is no part of what is measured.
    pub fn but_for_its_start(&self) -> Self {
        let started = match self {
            Self::SpecJbb(_) | Self::Oltp(_) | Self::Pgbench(_) | Self::Web(_) => self.starting_within(0),
            _ => None,
        };
        started.unwrap_or_else(|| self.clone())
    }

    /// Name of the metric that says how much it did each second, if it has one.
    pub fn rate(&self) -> Option<String> {
        self.load().rate()
    }
}
