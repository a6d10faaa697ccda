//! A server of a tile, driven from outside: `nearmetal-probe load`.
//!
//! Requests are due at moments that are drawn beforehand, and their time counts from then, whatever the server does. A server
//! that is too slow is a result: its share of requests answered in time is low, down to none of them. A server that answers
//! something else, loses connections or is not there is a failed sample, and so is a generator that was late itself (the probe
//! then ends without figures).

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{At, Compared, Load, Measured, SLACK, Window};
use crate::cost::{Each, Middle};
use crate::error::LoadError;
use crate::tile::{Rate, Role, TileSize};

mod said;

/// Name of the rate.
const ANSWERED: &str = "answered";
/// Name of the metric that says how many requests a second were due.
pub const OFFERED: &str = "offered";
/// Requests of the application and how often they come, in hundredths: those of SPECjAppServer's dealers.
const PAGES: [(&str, u32); 3] = [("/browse", 50), ("/purchase", 25), ("/manage", 25)];
/// How long a request may be without an answer at least, ms: past every limit.
const TIMEOUT: u64 = 10_000;
/// The part of its shortest limit by which a generator may be late itself, since its lag is inside every time: a hundredth. In an
/// emulated machine, where it shares slow processors with the guests, a tenth.
const LAG: u64 = 100;
const LAG_EMULATED: u64 = 10;

/// One guest of a tile under load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServedJob {
    /// What it serves.
    pub role: Role,
    /// Where it is reached.
    pub address: IpAddr,
    /// Requests a second on average.
    pub rate: Rate,
    /// The tile that it is in: its contents, the measured seconds and those before them.
    pub size: TileSize,
    /// Milliseconds within which answers are counted, for the limits that are in force.
    pub within: Vec<u32>,
}

impl ServedJob {
    /// The job for a guest of this tile, with the usual limits of its role.
    pub fn of(role: Role, address: IpAddr, size: &TileSize) -> Self {
        let within = role.limits().iter().map(|limit| limit.within_ms).collect();
        Self { role, address, rate: size.rate(role), size: *size, within }
    }

    /// Where it serves. The server is ready once this port is open.
    pub fn endpoint(&self) -> SocketAddr {
        SocketAddr::new(self.address, self.role.port())
    }

    /// Connections: as many as are busy where each request takes a quarter of a second, and some to spare.
    fn connections(&self) -> u64 {
        let (least, most) = match self.role {
            Role::Web => (8, 256),
            // A process in the guest for each.
            Role::Mail => (4, 64),
            // Its server takes 300, those of the application included.
            Role::App | Role::Db | Role::Infra => (4, 64),
            Role::Idle => (2, 2),
        };
        ((self.rate.get() / 4.0).ceil() as u64).clamp(least, most)
    }

    /// How long a request may be without its answer, ms.
    fn timeout(&self) -> u64 {
        let longest = self.within.iter().copied().max().unwrap_or_default();
        TIMEOUT.max(2 * u64::from(longest))
    }

    /// How late the generator may see that a request is due, ms.
    fn most_lag(&self) -> u64 {
        let shortest = self.within.iter().copied().min().unwrap_or_default();
        (u64::from(shortest) / if self.size.emulated { LAG_EMULATED } else { LAG }).max(1)
    }

    /// What is asked for, and of which contents.
    fn what(&self) -> Vec<String> {
        let size = &self.size;
        let tile = size.tile.to_string();
        let site = |directories: u32, only: &[&str]| {
            let directories = directories.to_string();
            let words = ["http", "--site", &tile, "--directories", &directories];
            words.iter().chain(only).map(|word| (*word).to_owned()).collect()
        };
        match self.role {
            Role::Web => site(size.directories(), &[]),
            Role::Infra => site(size.directories(), &["--only", "below-1mb"]),
            Role::Idle => site(1, &["--only", "below-1kb"]),
            Role::App => {
                let pages = PAGES.iter().flat_map(|(path, weight)| ["--path".to_owned(), format!("{path}={weight}")]);
                std::iter::once("http".to_owned()).chain(pages).collect()
            }
            Role::Mail => with(
                "imap",
                &[("--mail", tile), ("--users", size.users().to_string()), ("--messages", size.messages().to_string())],
            ),
            Role::Db => with("sql", &[("--tables", size.tables().to_string()), ("--rows", size.rows().to_string())]),
        }
    }

    /// Another seed for each guest: no two are asked at the same moments.
    fn own_seed(&self, seed: u64) -> u64 {
        let place = Role::ALL.iter().position(|role| *role == self.role).unwrap_or_default() as u64;
        seed ^ ((u64::from(self.size.tile) << 8 | (place + 1)) << 32)
    }
}

fn with(first: &str, options: &[(&str, String)]) -> Vec<String> {
    let options = options.iter().flat_map(|(name, value)| [(*name).to_owned(), value.clone()]);
    std::iter::once(first.to_owned()).chain(options).collect()
}

impl Load for ServedJob {
    fn id(&self) -> String {
        format!("served.{}.{}", self.role, self.size.tile)
    }

    fn label(&self) -> String {
        format!("{} of tile {}, {} requests/s", self.role.title(), self.size.tile, self.rate)
    }

    /// All are offered the same, so the rates say who kept up and no more, and the shares say whether a tile counts.
    fn compared(&self, metric: &str) -> Compared {
        if metric.starts_with("latency.") { Compared::IfInEveryRound } else { Compared::Never }
    }

    fn rate(&self) -> Option<String> {
        Some(ANSWERED.to_owned())
    }

    fn command(&self, at: &At<'_>, seed: u64) -> Vec<String> {
        let numbers = [
            ("--address", self.endpoint().to_string()),
            ("--rate", self.rate.to_string()),
            ("--seconds", self.size.seconds.to_string()),
            ("--ramp", self.size.ramp.to_string()),
            ("--connections", self.connections().to_string()),
            ("--timeout", self.timeout().to_string()),
            ("--patience", self.size.patience().to_string()),
            ("--most-lag", self.most_lag().to_string()),
            ("--seed", self.own_seed(seed).to_string()),
        ];
        let mut words = vec![at.probe.to_owned(), "load".to_owned()];
        words.extend(self.what());
        words.extend(numbers.into_iter().flat_map(|(name, value)| [name.to_owned(), value]));
        words.extend(self.within.iter().flat_map(|limit| ["--within".to_owned(), limit.to_string()]));
        words
    }

    fn length(&self) -> Option<Duration> {
        Some(Duration::from_secs((self.size.ramp + self.size.seconds).into()))
    }

    fn limit(&self) -> Duration {
        // The last request may be answered late, and the server may take its time to be there.
        let patience = Duration::from_secs(self.size.patience().into());
        self.length().unwrap_or_default() + patience + Duration::from_millis(self.timeout()) + SLACK
    }

    fn middle(&self) -> Option<(Middle, Each)> {
        let (ramp, seconds) =
            (Duration::from_secs(self.size.ramp.into()), Duration::from_secs(self.size.seconds.into()));
        Some((Middle::after(ramp, seconds), Each::Transaction))
    }

    fn cold(&self) -> bool {
        false
    }

    fn read(&self, output: &str) -> Result<Measured, LoadError> {
        said::read(self, output)
    }

    fn window(&self, output: &str, ahead: f64) -> Result<Window, LoadError> {
        said::window(output, ahead)
    }

    fn provenance(&self) -> Option<(String, String)> {
        let command = self.command(&At::probe("nearmetal-probe"), 0);
        Some((format!("{} of tile {} command", self.role, self.size.tile), command.join(" ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tile::Scale;

    pub(super) fn job(role: Role, scale: f64) -> ServedJob {
        let scale = Scale::try_from(scale).unwrap();
        let size = TileSize { tile: 2, scale, seconds: 30, ramp: 5, emulated: scale < Scale::ONE };
        ServedJob::of(role, [192, 0, 2, 9].into(), &size)
    }

    fn line(role: Role, scale: f64) -> String {
        job(role, scale).command(&At::probe("/p"), 0).join(" ")
    }

    #[test]
    fn each_is_asked_for_what_its_server_has() {
        let seed = (2u64 << 8 | 3) << 32;
        assert_eq!(
            line(Role::Web, 1.0),
            format!(
                "/p load http --site 2 --directories 20 --address 192.0.2.9:80 --rate 500 --seconds 30 --ramp 5 \
                 --connections 125 --timeout 10000 --patience 120 --most-lag 30 --seed {seed} --within 3000 --within 5000"
            )
        );
        assert!(
            line(Role::Infra, 0.01).contains("--directories 1 --only below-1mb --address 192.0.2.9:80 --rate 0.2 ")
        );
        assert!(line(Role::Mail, 0.01).contains("load imap --mail 2 --users 4 --messages 10 --address 192.0.2.9:143"));
        assert!(line(Role::Db, 0.01).contains("load sql --tables 4 --rows 500 --address 192.0.2.9:3306 --rate 0.2"));
        assert!(line(Role::App, 1.0).contains("--path /browse=50 --path /purchase=25 --path /manage=25 --address"));
        assert!(line(Role::Idle, 0.01).contains("--directories 1 --only below-1kb --address 192.0.2.9:80 --rate 1 "));
    }

    #[test]
    fn no_two_guests_are_asked_at_the_same_moments_and_all_again_in_the_other_arm() {
        let mut seen = std::collections::BTreeSet::new();
        for tile in 1..50 {
            for role in Role::ALL {
                let mut job = job(role, 1.0);
                job.size.tile = tile;
                for seed in [0, 1, 99] {
                    assert_eq!(job.own_seed(seed), job.own_seed(seed));
                    assert!(seen.insert(job.own_seed(seed)), "{role} of {tile}");
                }
            }
        }
    }

    #[test]
    fn no_generator_may_be_late_by_more_than_a_tenth_of_a_limit() {
        for role in Role::ALL {
            for scale in [0.01, 1.0] {
                let job = job(role, scale);
                for limit in role.limits() {
                    assert!((1..=u64::from(limit.within_ms) / 10).contains(&job.most_lag()), "{role}");
                    assert!(job.timeout() >= 2 * u64::from(limit.within_ms));
                }
                assert!(job.connections() <= 256 && job.limit() > job.length().unwrap());
            }
        }
    }

    #[test]
    fn a_document_keeps_it() {
        let workload = super::super::Workload::from(job(Role::App, 0.25));
        let text = serde_json::to_string(&workload).unwrap();
        assert!(text.contains("\"kind\":\"served\"") && text.contains("\"rate\":12.5"), "{text}");
        assert_eq!(serde_json::from_str::<super::super::Workload>(&text).unwrap(), workload);
    }
}
