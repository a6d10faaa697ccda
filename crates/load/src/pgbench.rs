//! PostgreSQL under pgbench: the server and the program of the loads image that has them, with its data on the scratch device.
//!
//! pgbench's TPC-B-like script as fast as the clients can, prepared: transactions a second, and their average time, which in a
//! closed loop is only the inverse of that rate. Every sample makes its own file system and fills it anew, so that no arm profits
//! from what another wrote. The server says what it runs with, and a sample whose server does not wait for its drive is no sample.
//! What the program prints is said in `lab/loads/with/postgresql/pgbench`.

use nearmetal_units::Bytes;
use serde::{Deserialize, Serialize};

use super::server::program;
use super::{At, Compared, Load, Measured, Named, Server, Shape, Window, WorksOn};
use crate::error::LoadError;

mod said;

/// What people call it.
pub(super) const NAMED: &[Named] = &[Named {
    word: "pgbench",
    help: "PostgreSQL under pgbench's TPC-B-like script on the scratch device; needs the loads image with it (loads-image --with \
           postgresql)",
    sizes: &[],
    on: WorksOn::Database,
    make: |shape| PgbenchJob::of(shape).into(),
}];

/// Its place in the loads image.
const PROGRAM: &str = "/usr/lib/nearmetal/postgresql/pgbench";
/// Name of the rate.
const RATE: &str = "transactions";

/// What the rows of one unit of scale take with their indexes: pgbench's manual has 15 MB for its 100,000 accounts.
const SCALE: Bytes = Bytes::from_mib(16);
/// Rows of accounts of one unit of scale.
const ACCOUNTS: u64 = 100_000;
/// What a cluster has beside its tables: the log (`max_wal_size` in `server.conf`, which it exceeds by what is written during a
/// checkpoint), the system's own tables, and the file system's journal.
const BESIDE: Bytes = Bytes::from_mib(192);
/// Clients for each vCPU: while one waits for the drive another works.
const CLIENTS: u32 = 4;
/// Clients at most: below the 300 of `max_connections` in `server.conf`.
const MOST_CLIENTS: u32 = 256;
/// The part of a guest's memory that is the server's for pages: a quarter, as PostgreSQL's manual has it. It reads through the page
/// cache, which has the rest.
const BUFFERS_PART: u64 = 4;
/// The part that its rows take at most: what did not fit into the page cache would measure how much memory a host has.
const ROWS_PART: u64 = 4;
/// What a second of load adds at most: a row of history for each transaction, and their log until the next checkpoint takes it away.
const ADDED: Bytes = Bytes::from_mib(4);
/// The least that can hold what transactions have open.
const FEWEST_BUFFERS: Bytes = Bytes::from_mib(16);

/// Seconds in which a unit of scale is filled at most, and those for making the file system, starting the server and all else before
/// the load; in a lab, where processors are emulated, both are another matter.
const FILLED: (u32, u32) = (3, 60);
const FILLED_IN_A_LAB: (u32, u32) = (180, 270);
/// Seconds of load before it is measured, at least.
const RAMP: u32 = 3;
const RAMP_IN_A_LAB: u32 = 10;

/// A database of some size under load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PgbenchJob {
    /// The server's memory for pages.
    pub buffers: Bytes,
    /// pgbench's scale: branches, with 100,000 accounts each.
    pub scale: u32,
    /// Clients, each with a connection.
    pub clients: u32,
    /// Threads of pgbench that drive them.
    pub threads: u32,
    /// Seconds that preparing may take: making the file system, starting the server and filling the tables.
    pub prepare: u32,
    /// Seconds of load before what is measured.
    pub ramp: u32,
    /// Measured seconds.
    pub seconds: u32,
}

impl PgbenchJob {
    /// For a guest of this shape.
    fn of(shape: &Shape) -> Self {
        let buffers = Bytes::new((shape.memory.get() / BUFFERS_PART) >> 20 << 20).max(FEWEST_BUFFERS);
        let ((each, beside), ramp) = if shape.emulated { (FILLED_IN_A_LAB, RAMP_IN_A_LAB) } else { (FILLED, RAMP) };
        let clients = shape.vcpus.max(1).saturating_mul(CLIENTS).min(MOST_CLIENTS);
        // With fewer branches than clients they wait for each other's rows. In a lab, to fill them takes longer than to measure.
        let branches = if shape.emulated { 0 } else { SCALE.times(clients.into()).get() };
        let rows = shape.span.get().max(branches).min(shape.memory.get() / ROWS_PART);
        let scale = (rows / SCALE.get()).clamp(1, u64::from(u32::MAX)) as u32;
        Self {
            buffers,
            scale,
            clients,
            // pgbench refuses more threads than clients.
            threads: shape.vcpus.clamp(1, clients),
            prepare: scale.saturating_mul(each).saturating_add(beside),
            ramp: shape.ramp.max(ramp),
            seconds: shape.seconds,
        }
    }

    /// The same with so many seconds to start and to fill its tables.
    pub(super) fn starting_within(&self, seconds: u32) -> Self {
        Self { prepare: seconds, ..self.clone() }
    }

    /// What the rows take, indexes included.
    fn data(&self) -> Bytes {
        SCALE.times(self.scale.into())
    }

    /// Room that they need on a device: old versions of rows stay, since nothing cleans up behind a sample.
    fn room(&self) -> Bytes {
        self.data().times(2).plus(BESIDE).plus(ADDED.times(u64::from(self.ramp) + u64::from(self.seconds)))
    }

    fn arguments(&self, seed: u64) -> Vec<String> {
        let numbers = [
            self.buffers.get(),
            self.scale.into(),
            self.clients.into(),
            self.threads.into(),
            self.prepare.into(),
            self.ramp.into(),
            self.seconds.into(),
            seed,
        ];
        program(PROGRAM, numbers)
    }

    fn sample(&self) -> Server {
        let Self { prepare, ramp, seconds, .. } = *self;
        Server { room: self.room(), prepare, parts: 1, ramp, seconds }
    }
}

impl Load for PgbenchJob {
    fn id(&self) -> String {
        format!("pgbench.c{}.s{}", self.clients, self.scale)
    }

    fn label(&self) -> String {
        let most = if self.clients == MOST_CLIENTS { " (the most)" } else { "" };
        format!("pgbench, {} clients{most}, scale {} ({} of rows)", self.clients, self.scale, self.data())
    }

    /// In a closed loop the time is the inverse of the rate: it is shown, and compared would say the same twice.
    fn compared(&self, metric: &str) -> Compared {
        if metric == RATE { Compared::ByRound } else { Compared::Never }
    }

    fn rate(&self) -> Option<String> {
        Some(RATE.to_owned())
    }

    fn command(&self, at: &At<'_>, seed: u64) -> Vec<String> {
        self.sample().command(at, self.arguments(seed))
    }

    fn server(&self) -> Option<Server> {
        Some(self.sample())
    }

    fn needs_postgresql(&self) -> bool {
        true
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
        Some(("pgbench command".to_owned(), words))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn shape(span: u64, memory: u64, vcpus: u32, emulated: bool) -> Shape {
        let (span, memory) = (Bytes::from_mib(span), Bytes::from_mib(memory));
        Shape { seconds: 30, span, vcpus, memory, emulated, ..Shape::of_a_lab() }
    }

    #[test]
    fn each_client_has_a_branch_and_the_rows_fit_into_the_page_cache() {
        // 8 clients.
        for (span, memory, scale) in
            [(1, 4096, 8), (64, 4096, 8), (512, 4096, 32), (8192, 4096, 64), (64, 256, 4), (64, 32, 1)]
        {
            let job = PgbenchJob::of(&shape(span, memory, 2, false));
            assert_eq!((job.scale, job.data()), (scale, Bytes::from_mib(u64::from(scale) * 16)), "{span} of {memory}");
            assert!(job.room() > job.data().times(2));
        }
        for (span, scale) in [(1, 1), (31, 1), (64, 4)] {
            assert_eq!(PgbenchJob::of(&shape(span, 4096, 2, true)).scale, scale, "a lab has what was asked for");
        }
    }

    #[test]
    fn a_longer_sample_has_more_room_for_what_it_writes() {
        let job = PgbenchJob::of(&shape(64, 4096, 2, false));
        let longer = PgbenchJob { seconds: job.seconds + 600, ..job.clone() };
        assert_eq!(longer.room(), job.room().plus(Bytes::from_mib(2400)));
    }

    #[test]
    fn the_servers_memory_is_a_quarter_of_the_guests() {
        let buffers = |memory| PgbenchJob::of(&shape(16, memory, 2, false)).buffers;
        assert_eq!([4096, 384, 32].map(buffers), [1024, 96, 16].map(Bytes::from_mib));
    }

    #[test]
    fn a_large_guest_has_no_more_clients_than_the_server_takes() {
        let of = |vcpus| PgbenchJob::of(&shape(16, 4096, vcpus, false));
        assert_eq!([0, 1, 64, 65, u32::MAX].map(|vcpus| of(vcpus).clients), [4, 4, 256, 256, 256]);
        assert!([0, 1, 64, u32::MAX].iter().all(|vcpus| (1..=of(*vcpus).clients).contains(&of(*vcpus).threads)));
        assert!(of(65).label().contains("256 clients (the most)") && !of(63).label().contains("the most"));
        let server = include_str!("../../../lab/loads/with/postgresql/server.conf");
        let taken = server.lines().find_map(|line| line.strip_prefix("max_connections = ")).unwrap();
        assert!(taken.parse::<u32>().unwrap() > MOST_CLIENTS);
    }

    #[test]
    fn the_server_is_told_what_it_must_say() {
        let server = include_str!("../../../lab/loads/with/postgresql/server.conf");
        for (name, value) in said::ASKED {
            assert!(server.lines().any(|line| line == format!("{name} = {value}")), "{name}");
        }
    }

    #[test]
    fn what_is_counted_lies_within_the_load() {
        let job = PgbenchJob::of(&shape(64, 4096, 2, false));
        let (middle, _) = job.middle().unwrap();
        assert!(middle.begins > Duration::from_secs(job.ramp.into()));
        assert!(middle.ends < job.length().unwrap() && job.limit() > job.length().unwrap());
        assert_eq!(job.starting_within(75).prepare, 75);
    }

    #[test]
    fn the_file_system_is_only_as_large_as_the_load_needs() {
        let job = PgbenchJob::of(&shape(16, 4096, 2, true));
        let at = At { device: "serial:nearmetal-region", loads: "serial:nearmetal-loads", ..At::probe("/p") };
        let words = job.command(&at, 7).join(" ");
        let end = format!(
            "--device serial:nearmetal-region --kind ext4 --size {} -- {PROGRAM} 1073741824 1 8 2 450 10 30 7",
            Bytes::from_mib(224 + 4 * 40).get()
        );
        assert!(words.ends_with(&end), "{words}");
        assert!(job.writes() && job.cold() && job.needs_postgresql());
    }
}
