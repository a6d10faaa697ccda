//! A database server under load: MariaDB of the loads image with its data on the scratch device, and sysbench's
//! `oltp_read_write` beside it.
//!
//! First as fast as the threads can (a closed loop), which gives transactions a second. Then, once the rate of bare metal is
//! known, half, 70 and 90 % of that rate are offered to every arm alike, and the time of a transaction is counted from when
//! it was due: what a closed loop calls latency is only the inverse of its rate.
//!
//! Every sample makes its own file system and fills it anew, so that no arm profits from what another wrote. The server says
//! what it runs with, and a sample whose server does not wait for its drive is no sample: no arm can win by not writing.
//! What the program prints is said in `lab/loads/database/oltp`; sysbench's part was checked against the source of 1.0.20.

use nearmetal_units::Bytes;
use serde::{Deserialize, Serialize};

use super::server::program;
use super::{At, Compared, Load, Measured, Named, Server, Window, Workload, WorksOn};
use crate::error::LoadError;

mod said;
mod shape;

/// What people call it.
pub(super) const NAMED: &[Named] = &[Named {
    word: "oltp",
    help: "MariaDB under sysbench's oltp_read_write on the scratch device: transactions, then latency at parts of bare metal's rate",
    sizes: &[],
    on: WorksOn::Database,
    make: |shape| OltpJob::of(shape).into(),
}];

/// Its place in the loads image.
const PROGRAM: &str = "/usr/lib/nearmetal/database/oltp";
/// Parts of bare metal's rate that are offered, in percent.
const OFFERED: [u32; 3] = [50, 70, 90];
/// Name of the rate.
const RATE: &str = "transactions";

/// A database of some size under load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OltpJob {
    /// Memory of the server for pages of its tables.
    pub pool: Bytes,
    /// Tables.
    pub tables: u32,
    /// Rows of each.
    pub rows: u32,
    /// Connections, each with a thread of sysbench.
    pub threads: u32,
    /// Seconds that preparing may take: making the file system, starting the server and filling the tables.
    pub prepare: u32,
    /// Seconds of load before a part is measured.
    pub ramp: u32,
    /// Measured seconds of each part.
    pub seconds: u32,
    /// What is offered, a part for each; empty for one part, as fast as the threads can.
    pub offered: Vec<Offered>,
}

/// A part of bare metal's rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offered {
    /// How large a part, in percent.
    pub percent: u32,
    /// Transactions a second: a whole number, as sysbench takes it.
    pub rate: u32,
}

impl OltpJob {
    fn is_closed_loop(&self) -> bool {
        self.offered.is_empty()
    }

    /// What the rows take, indexes included.
    fn data(&self) -> Bytes {
        shape::ROW.times(u64::from(self.tables) * u64::from(self.rows))
    }

    fn sample(&self) -> Server {
        let Self { prepare, ramp, seconds, .. } = *self;
        let parts = self.offered.len().max(1) as u32;
        Server { room: shape::room(self.data()), prepare, parts, ramp, seconds }
    }

    /// As the program takes it: 0 for as many as the threads can do.
    fn rates(&self) -> String {
        let rates: Vec<String> = self.offered.iter().map(|offered| offered.rate.to_string()).collect();
        if rates.is_empty() { "0".to_owned() } else { rates.join(",") }
    }

    fn arguments(&self, seed: u64) -> Vec<String> {
        let numbers = [
            self.pool.get(),
            self.tables.into(),
            self.rows.into(),
            self.threads.into(),
            self.prepare.into(),
            self.ramp.into(),
            self.seconds.into(),
            seed,
        ];
        let mut words = program(PROGRAM, numbers);
        // Large pages of the server's own would need a pool inside each guest, which no guest is given.
        words.extend(["off".to_owned(), self.rates()]);
        words
    }
}

impl OltpJob {
    /// A small one: tests of whatever runs loads have room for it.
    pub fn small() -> Self {
        Self {
            pool: Bytes::from_mib(64),
            tables: 4,
            rows: 500,
            threads: 2,
            prepare: 20,
            ramp: 3,
            seconds: 10,
            offered: Vec::new(),
        }
    }
}

impl Load for OltpJob {
    fn id(&self) -> String {
        let what = if self.is_closed_loop() { "oltp" } else { "oltp.offered" };
        format!("{what}.t{}.{}", self.threads, self.data().get())
    }

    fn label(&self) -> String {
        let most = if self.threads == shape::MOST_CONNECTIONS { " (the most)" } else { "" };
        let of = format!("OLTP, {} connections{most}, {} of rows", self.threads, self.data());
        let parts: Vec<String> = self.offered.iter().map(|one| one.percent.to_string()).collect();
        if parts.is_empty() { of } else { format!("{of}, {} % of bare metal's rate offered", parts.join(", ")) }
    }

    /// What was offered was the same for all arms, so the rates say who kept up and no more. Times of those rounds alone in
    /// which an arm kept up would be the times of its better rounds.
    fn compared(&self, metric: &str) -> Compared {
        match metric {
            _ if self.is_closed_loop() => Compared::ByRound,
            _ if metric.starts_with(RATE) => Compared::Never,
            _ => Compared::IfInEveryRound,
        }
    }

    fn rate(&self) -> Option<String> {
        self.is_closed_loop().then(|| RATE.to_owned())
    }

    fn command(&self, at: &At<'_>, seed: u64) -> Vec<String> {
        self.sample().command(at, self.arguments(seed))
    }

    fn server(&self) -> Option<Server> {
        Some(self.sample())
    }

    fn at_parts_of(&self, bare: f64) -> Option<Workload> {
        let offered = |percent: u32| {
            let rate = (bare * f64::from(percent) / 100.0).round();
            // sysbench takes whole numbers, and 0 for as many as it can.
            Offered { percent, rate: rate.clamp(1.0, f64::from(u32::MAX)) as u32 }
        };
        let of_bare = || Self { offered: OFFERED.map(offered).to_vec(), ..self.clone() };
        (self.is_closed_loop() && bare.is_finite()).then(|| of_bare().into())
    }

    fn read(&self, output: &str) -> Result<Measured, LoadError> {
        said::read(self, output)
    }

    fn window(&self, output: &str, ahead: f64) -> Result<Window, LoadError> {
        said::window(self, output, ahead)
    }

    fn provenance(&self) -> Option<(String, String)> {
        let asked: Vec<String> = said::ASKED.iter().map(|(name, value)| format!("{name} = {value}")).collect();
        let words = format!("{}; every sample's server said: {}", self.arguments(0).join(" "), asked.join(", "));
        Some(("oltp command".to_owned(), words))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::cost::Each;

    #[test]
    fn parts_of_bare_metals_rate_are_offered_to_every_arm_alike() {
        let Some(Workload::Oltp(rated)) = OltpJob::small().at_parts_of(101.0) else { panic!("nothing is offered") };
        let rates: Vec<(u32, u32)> = rated.offered.iter().map(|one| (one.percent, one.rate)).collect();
        assert_eq!(rates, [(50, 51), (70, 71), (90, 91)]);
        assert_eq!(rated.arguments(7).join(" "), format!("{PROGRAM} 67108864 4 500 2 20 3 10 7 off 51,71,91"));
        assert_eq!(rated.length(), Some(Duration::from_secs(3 * 13)));
        assert!(rated.at_parts_of(101.0).is_none(), "once");
        assert!(rated.rate().is_none() && rated.middle().is_none());
        assert_ne!(rated.id(), OltpJob::small().id());
        let Some(Workload::Oltp(slow)) = OltpJob::small().at_parts_of(0.4) else { panic!("nothing is offered") };
        assert!(slow.offered.iter().all(|one| one.rate == 1), "0 would offer all it can do");
        assert!(OltpJob::small().at_parts_of(f64::NAN).is_none());
    }

    #[test]
    fn what_is_counted_lies_within_the_load() {
        let (middle, each) = OltpJob::small().middle().unwrap();
        assert_eq!(
            (middle.begins, middle.ends, each),
            (Duration::from_secs(6), Duration::from_secs(11), Each::Transaction)
        );
        assert!(middle.ends < OltpJob::small().length().unwrap());
    }

    #[test]
    fn the_file_system_is_only_as_large_as_the_load_needs() {
        let at = At { device: "serial:nearmetal-region", loads: "serial:nearmetal-loads", ..At::probe("/p") };
        let words = OltpJob::small().command(&at, 7).join(" ");
        let (_, room) = OltpJob::small().files().unwrap();
        let expected = format!("--device serial:nearmetal-region --kind ext4 --size {} -- {PROGRAM} ", room.get());
        assert!(words.contains(&expected), "{words}");
        assert!(room < Bytes::from_mib(256), "{room}");
    }

    #[test]
    fn a_closed_loop_is_one_part_at_rate_0() {
        assert_eq!(OltpJob::small().arguments(7).join(" "), format!("{PROGRAM} 67108864 4 500 2 20 3 10 7 off 0"));
        assert_eq!(OltpJob::small().length(), Some(Duration::from_secs(13)));
        assert!(OltpJob::small().writes() && OltpJob::small().cold());
    }
}
