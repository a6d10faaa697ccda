//! The report of a fleet's plan: words for the terminal, pictures of hosts before and after, one page.
//!
//! ```
//! use nearmetal_fleet::{CoreSupply, Fleet, FleetHost, NodeSupply, Options, Vm, plan};
//! use nearmetal_report::Style;
//! use nearmetal_report::fleet::{Details, FleetReport};
//! use nearmetal_units::Bytes;
//!
//! let cores = (0..4).map(|pu| CoreSupply { free: vec![pu], threads: 1, ..CoreSupply::default() }).collect();
//! let node = NodeSupply { cores, memory: Bytes::from_mib(8192), ..NodeSupply::default() };
//! let host = FleetHost { name: "one".to_owned(), nodes: vec![node], ..FleetHost::default() };
//! let fleet = Fleet { vms: vec![Vm::new("web", 2, Bytes::from_mib(4096))], hosts: vec![host], ..Fleet::default() };
//! let plan = plan(&fleet, &Options { budget: None, ..Options::default() })?;
//! let report = FleetReport::new(&fleet, &plan, &[]);
//! let text = report.text(&Details::new(Style { width: 100, colour: false, ascii: false }));
//! assert!(text.contains("1 of 1 VM placed"));
//! # Ok::<(), nearmetal_fleet::FleetError>(())
//! ```

use nearmetal_fleet::{Fleet, FleetHost, FleetPlan};
use nearmetal_host::Host;
use nearmetal_host::ledger::Ledger;

use crate::html::{self, PageError};
use crate::svg::{Surface, fleet_overview_svg, hosts_svg};
use crate::terminal::{Style, fleet_text, fleet_what_if};
use crate::view::fleet::{Alike, FleetView, HostSheet, alike};

/// Fleets of more hosts get an overview beside the sheets of single hosts.
pub(crate) const OVERVIEW_ABOVE: usize = 12;

/// Different hosts drawn in full; hosts that are alike and get the same count once.
pub const HOSTS_DRAWN: usize = 12;

/// Rows of a table that is not asked for whole.
const ROWS: usize = 20;

/// How much a text shows, and on what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Details {
    /// What the terminal can show.
    pub style: Style,
    /// Whether every VM, node and pool is listed with its reasons, however many there are: `--details`.
    pub all: bool,
    /// Rows of each table where not all are wanted. What is left out is counted, and where to find it is said.
    pub rows: usize,
}

impl Details {
    /// Summaries, 20 rows a table.
    pub fn new(style: Style) -> Self {
        Self { style, all: false, rows: ROWS }
    }

    /// How many of `count` rows are shown.
    pub(crate) fn shown(&self, count: usize) -> usize {
        if self.all { count } else { count.min(self.rows) }
    }
}

/// What pictures need of a host of the fleet beyond what the planner was given: all its PUs, and who holds them.
#[derive(Debug, Clone, Copy)]
pub struct HostPicture<'a> {
    pub(crate) name: &'a str,
    pub(crate) host: &'a Host,
    pub(crate) ledger: &'a Ledger,
}

impl<'a> HostPicture<'a> {
    /// `name` is the host's in the fleet. A picture of a host the fleet does not have is never drawn.
    pub fn new(name: &'a str, host: &'a Host, ledger: &'a Ledger) -> Self {
        Self { name, host, ledger }
    }
}

/// A plan and the fleet it is of, ready to be shown.
#[derive(Debug, Clone)]
pub struct FleetReport<'a> {
    fleet: &'a Fleet,
    plan: &'a FleetPlan,
    pictures: Vec<HostPicture<'a>>,
    pub(crate) view: FleetView,
}

impl<'a> FleetReport<'a> {
    /// Hosts without a picture are drawn from what they have left. A plan of another fleet makes no error: what the fleet
    /// does not know is told as the plan tells it.
    pub fn new(fleet: &'a Fleet, plan: &'a FleetPlan, pictures: &[HostPicture<'a>]) -> Self {
        Self { fleet, plan, pictures: pictures.to_vec(), view: FleetView::new(fleet, plan) }
    }

    /// For a terminal. Every line ends in a newline; none is wider than `details.style.width` (40 at least).
    pub fn text(&self, details: &Details) -> String {
        fleet_text(&self.view, details)
    }

    /// Hosts before and after, in a file of its own: [`HOSTS_DRAWN`] at most, which the picture says.
    pub fn svg(&self) -> String {
        hosts_svg(&self.view, &self.groups(|_| true), Surface::Standalone)
    }

    /// One host before and after; `None` if the fleet has none of this name.
    pub fn host_svg(&self, name: &str) -> Option<String> {
        let groups = self.groups(|host| host.name == name);
        (!groups.is_empty()).then(|| hosts_svg(&self.view, &groups, Surface::Standalone))
    }

    /// Every host as a small tile, and what is refused beside them.
    pub fn overview_svg(&self) -> String {
        fleet_overview_svg(&self.view, Surface::Standalone)
    }

    /// All of it as one page that loads nothing and runs nothing. `created` is any text that says when.
    ///
    /// # Errors
    /// A fault of this program, never of the plan.
    pub fn html(&self, title: &str, created: &str) -> Result<String, PageError> {
        html::fleet_page(&self.view, &self.groups(|_| true), title, created)
    }

    fn groups(&self, wanted: impl Fn(&FleetHost) -> bool) -> Vec<Alike> {
        let picture = |name: &str| self.pictures.iter().find(|picture| picture.name == name);
        let hosts = self.fleet.hosts.iter().filter(|host| wanted(host));
        alike(hosts.map(|host| HostSheet::new(self.fleet, self.plan, host, picture(&host.name))))
    }

    pub(crate) fn plan(&self) -> &FleetPlan {
        self.plan
    }
}

/// What a change does: the plan as it is beside the plan as it would be.
pub fn what_if_text(before: &FleetReport<'_>, after: &FleetReport<'_>, details: &Details) -> String {
    fleet_what_if(before, after, details)
}
