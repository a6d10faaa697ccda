//! What each guest of a tile is for: its port, and how soon it must answer.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The part of a tile that a guest plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The large files of the web server (nginx over HTTP). In SPECvirt this guest exports them by NFS, and simulates a back end:
    /// what is served here is not NFS, and whoever compares must know. The appliance's kernel has neither nfsd nor NFS, and both
    /// would be in every guest's memory.
    Infra,
    /// Pages (nginx); the largest come from the guest with the files.
    Web,
    /// Mail (Dovecot): IMAP with messages read, searched, appended and logged into.
    Mail,
    /// An application (Java) of which each request is some statements on the database.
    App,
    /// The database (MariaDB), asked by the application and by transactions of its own.
    Db,
    /// A guest that answers a small request a second and does nothing else.
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

    /// Name of the metric that says which part was answered within it: `within-3000`. A sample of which no request was answered
    /// so soon does not have it: no metric is zero.
    pub fn metric(&self) -> String {
        Self::name(self.within_ms)
    }

    /// The same of a limit of so many milliseconds.
    pub fn name(milliseconds: u32) -> String {
        format!("within-{milliseconds}")
    }

    /// Requests without which nobody can tell: with fewer, a single late one breaks the limit.
    pub fn fewest_requests(&self) -> u64 {
        (1.0 / (1.0 - self.part)).round() as u64
    }
}

impl Role {
    /// All of them, those that others ask first: an application is there when its database is.
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

    /// Port at which the guest serves, at all its IPv4 addresses.
    pub fn port(self) -> u16 {
        match self {
            Self::Infra | Self::Web | Self::Idle => 80,
            Self::Mail => 143,
            Self::App => 8080,
            Self::Db => 3306,
        }
    }

    /// How soon it must answer; all of them have to hold.
    ///
    /// Those of the web server are the SR-IOV paper's (Worley: 95 % within 3 s, 99 % within 5 s), those of the application
    /// SPECjAppServer's for dealers. The others are ours: mail and idle guests as SPECvirt is said to have them, which we could not
    /// look up; the database as the application that waits for it, the files as the pages that they are a part of.
    pub fn limits(self) -> &'static [Limit] {
        const WEB: [Limit; 2] = [Limit::published(0.95, 3_000), Limit::published(0.99, 5_000)];
        const APP: [Limit; 1] = [Limit::published(0.90, 2_000)];
        const MAIL: [Limit; 1] = [Limit::ours(0.95, 5_000)];
        const IDLE: [Limit; 1] = [Limit::ours(0.995, 1_000)];
        const DB: [Limit; 1] = [Limit::ours(0.90, 2_000)];
        const INFRA: [Limit; 2] = [Limit::ours(0.95, 3_000), Limit::ours(0.99, 5_000)];
        match self {
            Self::Infra => &INFRA,
            Self::Web => &WEB,
            Self::Mail => &MAIL,
            Self::App => &APP,
            Self::Db => &DB,
            Self::Idle => &IDLE,
        }
    }

    /// The role without which it cannot serve.
    pub fn needs(self) -> Option<Self> {
        (self == Self::App).then_some(Self::Db)
    }

    /// Whether its program is in the loads image.
    pub fn needs_loads_image(self) -> bool {
        self != Self::Idle
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
        found.ok_or_else(|| format!("`{text}` is not a part of a tile, which are: {words}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_the_same_word_everywhere() {
        for role in Role::ALL {
            assert_eq!(role.word().parse(), Ok(role));
            assert_eq!(serde_json::to_string(&role).unwrap(), format!("\"{}\"", role.word()));
        }
        assert!("nfs".parse::<Role>().unwrap_err().contains("infra, db, web, mail, app, idle"));
    }

    #[test]
    fn the_limits_of_the_paper_are_its_own_and_all_can_be_met() {
        let web: Vec<(f64, u32)> = Role::Web.limits().iter().map(|limit| (limit.part, limit.within_ms)).collect();
        assert_eq!(web, [(0.95, 3_000), (0.99, 5_000)], "seed 002: Time_Good and Time_Tolerable");
        for limit in Role::ALL.iter().flat_map(|role| role.limits()) {
            assert!(limit.part > 0.5 && limit.part < 1.0 && limit.within_ms >= 1_000, "{limit:?}");
        }
        let fewest = |role: Role| role.limits().iter().map(Limit::fewest_requests).max().unwrap();
        assert_eq!([Role::Web, Role::App, Role::Idle].map(fewest), [100, 10, 200]);
    }
}
