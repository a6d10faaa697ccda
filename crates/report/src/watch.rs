//! A fleet as it is now, drawn in the terminal: what is taken of each host, its guests, its images, and those on their way.
//!
//! ```
//! use nearmetal_report::Style;
//! use nearmetal_report::watch::{HostState, WatchHost, WatchView, picture};
//!
//! let silent = HostState::Silent { problem: "no answer within 10 s".to_owned(), answered: None };
//! let host = WatchHost { name: "alpha".to_owned(), state: silent };
//! let view = WatchView { title: "fleet.toml".to_owned(), time: "t".to_owned(), hosts: vec![host], vms: None };
//! let text = picture(&view, &Style { width: 60, colour: false, ascii: false }, None);
//! assert!(text.contains("alpha") && text.contains("✗ no answer within 10 s"));
//! ```

use nearmetal_units::Bytes;

pub use crate::terminal::watch_picture as picture;

/// All that is drawn.
#[derive(Debug, Clone, PartialEq)]
pub struct WatchView {
    /// What is watched: the fleet file, as a rule.
    pub title: String,
    /// When it was looked.
    pub time: String,
    /// Hosts, in the order of the file.
    pub hosts: Vec<WatchHost>,
    /// The VMs of the fleet file; `None`: there is no file, or none in it.
    pub vms: Option<WatchVms>,
}

/// VMs that somebody wants.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WatchVms {
    /// How many.
    pub wanted: usize,
    /// Those that no host was seen to run.
    pub missing: Vec<String>,
    /// Those that several hosts run, with the hosts.
    pub several: Vec<(String, Vec<String>)>,
}

/// A host.
#[derive(Debug, Clone, PartialEq)]
pub struct WatchHost {
    /// Its name.
    pub name: String,
    /// What is known of it.
    pub state: HostState,
}

/// What is known of a host.
#[derive(Debug, Clone, PartialEq)]
pub enum HostState {
    /// No answer yet.
    Asked,
    /// It did not answer.
    Silent {
        /// Why.
        problem: String,
        /// When it answered last; `None`: never.
        answered: Option<String>,
    },
    /// It answered.
    Answered(WatchAnswer),
}

/// What a host says.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct WatchAnswer {
    /// PUs that are online; `None`: not known.
    pub pus: Option<usize>,
    /// PUs that runs have; `None`: not known.
    pub runs: Option<usize>,
    /// Other PUs that vCPUs are bound to; all of these, where those of runs are not known.
    pub bound: usize,
    /// All memory; `None`: not known.
    pub memory: Option<Bytes>,
    /// What guests to come can have; `None`: not known.
    pub memory_free: Option<Bytes>,
    /// What running guests were given; `None`: not known.
    pub memory_guests: Option<Bytes>,
    /// Guests, those that are off included.
    pub guests: Vec<WatchGuest>,
    /// Readable names of whole images; `None`: not known.
    pub images: Option<Vec<String>>,
    /// Images on their way; `None`: not known.
    pub transfers: Option<Vec<WatchTransfer>>,
    /// What it could not tell, and what somebody should look after.
    pub notes: Vec<String>,
}

/// A guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchGuest {
    /// Its name.
    pub name: String,
    /// What is said of it: `run, PUs 1-2, 512 MiB`.
    pub words: String,
    /// Whether it runs.
    pub running: bool,
    /// Whether a `nearmetal run` looks after it.
    pub is_run: bool,
}

/// An image on its way.
#[derive(Debug, Clone, PartialEq)]
pub struct WatchTransfer {
    /// Its readable name, or the beginning of its hash.
    pub name: String,
    /// Which part of it is there, from 0 to 1; `None`: not known.
    pub share: Option<f64>,
    /// What its push does.
    pub words: String,
    /// Whether it comes nearer, as far as anybody knows.
    pub running: bool,
}
