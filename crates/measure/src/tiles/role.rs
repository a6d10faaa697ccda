//! What each guest of a tile is for: the server in it, its port, and how soon it must answer.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::TileSize;
use crate::load::At;

/// The part of a tile that a guest plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Files for the web server.
    Infra,
    /// Pages.
    Web,
    /// Mail.
    Mail,
    /// An application that asks the database.
    App,
    /// The database.
    Db,
    /// A guest that has next to nothing to do.
    Idle,
}

/// How soon which part of all requests has to be answered.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// Part of the requests that were due, from 0 to 1.
    pub part: f64,
    /// Milliseconds from when a request was due to the end of its answer.
    pub within_ms: u32,
    /// Whether it is nearmetal's choice; otherwise it is published.
    pub ours: bool,
}

impl Limit {
    const fn published(part: f64, within_ms: u32) -> Self {
        Self { part, within_ms, ours: false }
    }

    const fn ours(part: f64, within_ms: u32) -> Self {
        Self { part, within_ms, ours: true }
    }

    /// Name of the metric that says which part was answered within it: `within-3000`. The metric is missing if there was none.
    pub fn metric(&self) -> String {
        format!("within-{}", self.within_ms)
    }
}

/// Addresses of the guests of one tile, as they reach each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peers {
    /// The guest with the files of the web server.
    pub infra: IpAddr,
    /// The guest with the database of the application.
    pub db: IpAddr,
}

impl Role {
    /// All of them. Those that others ask come first: a guest that asks another is served only after that one.
    pub const ALL: [Self; 6] = [Self::Infra, Self::Db, Self::Web, Self::Mail, Self::App, Self::Idle];

    /// As documents and commands write it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Infra => "infra",
            Self::Web => "web",
            Self::Mail => "mail",
            Self::App => "app",
            Self::Db => "db",
            Self::Idle => "idle",
        }
    }

    /// What a person calls it.
    pub fn title(self) -> &'static str {
        match self {
            Self::Infra => "file server",
            Self::Web => "web server",
            Self::Mail => "mail server",
            Self::App => "application server",
            Self::Db => "database",
            Self::Idle => "idle guest",
        }
    }

    /// Port of all the guest's addresses at which it serves.
    pub fn port(self) -> u16 {
        match self {
            Self::Infra | Self::Web | Self::Idle => 80,
            Self::Mail => 143,
            Self::App => 8080,
            Self::Db => 3306,
        }
    }

    /// How soon it must answer; all of them have to hold.
    pub fn limits(self) -> &'static [Limit] {
        const WEB: [Limit; 2] = [Limit::published(0.95, 3_000), Limit::published(0.99, 5_000)];
        const APP: [Limit; 1] = [Limit::published(0.90, 2_000)];
        const MAIL: [Limit; 1] = [Limit::ours(0.95, 5_000)];
        const IDLE: [Limit; 1] = [Limit::ours(0.995, 1_000)];
        const DB: [Limit; 1] = [Limit::ours(0.90, 2_000)];
        const INFRA: [Limit; 1] = [Limit::ours(0.95, 3_000)];
        match self {
            Self::Infra => &INFRA,
            Self::Web => &WEB,
            Self::Mail => &MAIL,
            Self::App => &APP,
            Self::Db => &DB,
            Self::Idle => &IDLE,
        }
    }

    /// Whether its server is a program of the loads image.
    pub fn needs_loads_image(self) -> bool {
        self != Self::Idle
    }

    /// The roles whose servers it asks.
    pub fn asks(self) -> &'static [Self] {
        match self {
            Self::App => &[Self::Db],
            _ => &[],
        }
    }

    /// The words that run in the guest in the foreground and serve until they are killed. The port is open once everything that
    /// is served is there.
    pub(crate) fn server(self, at: &At<'_>, size: &TileSize, peers: &Peers) -> Vec<String> {
        let _ = (size, peers);
        [at.probe, "serve", self.word(), "--port", &self.port().to_string()].map(str::to_owned).to_vec()
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words = Self::ALL.map(Self::word).join(", ");
        let found = Self::ALL.into_iter().find(|role| role.word() == text);
        found.ok_or_else(|| format!("`{text}` is not a part of a tile: {words}"))
    }
}
