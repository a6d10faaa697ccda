//! A server in a guest, driven from outside: requests that are due at their own moments, whatever the server does.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{At, Compared, Load, Measured, Window};
use crate::error::MeasureError;
use crate::metric::{Metric, Unit};
use crate::tiles::{Rate, Role, TileSize};

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
    /// The job for a guest of this tile.
    pub fn of(role: Role, address: IpAddr, size: &TileSize) -> Self {
        let within = role.limits().iter().map(|limit| limit.within_ms).collect();
        Self { role, address, rate: size.rate(role), size: *size, within }
    }

    /// Where it serves.
    pub fn endpoint(&self) -> SocketAddr {
        SocketAddr::new(self.address, self.role.port())
    }
}

impl Load for ServedJob {
    fn id(&self) -> String {
        format!("served.{}", self.role)
    }

    fn label(&self) -> String {
        format!("{} of tile {}, {} requests/s offered", self.role.title(), self.size.tile, self.rate)
    }

    fn compared(&self, _: &str) -> Compared {
        Compared::Never
    }

    fn rate(&self) -> Option<String> {
        Some("answered".to_owned())
    }

    fn command(&self, at: &At<'_>, seed: u64) -> Vec<String> {
        let what = if self.role == Role::Mail { "imap" } else { "http" };
        let mut words = [at.probe, "load", what, "--address", &self.endpoint().to_string()].map(str::to_owned).to_vec();
        let numbers = [
            ("--rate", self.rate.to_string()),
            ("--seconds", self.size.seconds.to_string()),
            ("--ramp", self.size.ramp.to_string()),
            ("--seed", seed.to_string()),
        ];
        let within = self.within.iter().map(|limit| ("--within", limit.to_string()));
        words.extend(numbers.into_iter().chain(within).flat_map(|(name, value)| [name.to_owned(), value]));
        words
    }

    fn length(&self) -> Option<Duration> {
        Some(Duration::from_secs((self.size.ramp + self.size.seconds).into()))
    }

    fn cold(&self) -> bool {
        false
    }

    fn read(&self, output: &str) -> Result<Measured, MeasureError> {
        let document: serde_json::Value =
            serde_json::from_str(output).map_err(|error| super::unreadable("load", &error.to_string(), output))?;
        let number = |path: &str| document.pointer(path).and_then(serde_json::Value::as_f64).unwrap_or_default();
        let mut metrics = Vec::new();
        metrics.extend(Metric::new(
            "answered",
            Unit::TransactionsPerSecond,
            number("/result/answered") / number("/result/seconds"),
        ));
        metrics.extend(Metric::new(
            "offered",
            Unit::TransactionsPerSecond,
            number("/result/offered") / number("/result/seconds"),
        ));
        for (place, limit) in self.within.iter().enumerate() {
            metrics.extend(Metric::new(
                &format!("within-{limit}"),
                Unit::Share,
                number(&format!("/result/within/{place}/share")),
            ));
        }
        Ok(Measured { metrics, notes: Vec::new() })
    }

    fn window(&self, output: &str, ahead: f64) -> Result<Window, MeasureError> {
        let document: serde_json::Value =
            serde_json::from_str(output).map_err(|error| super::unreadable("load", &error.to_string(), output))?;
        let number = |path: &str| document.pointer(path).and_then(serde_json::Value::as_f64).unwrap_or_default();
        Ok(Window { began: number("/result/began_ms") - ahead, ended: number("/result/ended_ms") - ahead })
    }
}
