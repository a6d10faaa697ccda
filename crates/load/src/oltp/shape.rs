//! How large the database is, and how long it takes to fill.

use nearmetal_units::Bytes;

use super::OltpJob;
use crate::Shape;

/// What a row takes on its drive, its place in the second index included: tables of 50,000 were 19.0 MiB each when MariaDB
/// 11.8 had just filled them.
pub(super) const ROW: Bytes = Bytes::new(400);
/// What the server has beside its tables: the redo log (32 MiB), the system tablespace with the doublewrite buffer, temporary
/// tables, undo, the system tables, and the file system's journal.
const BESIDE: Bytes = Bytes::from_mib(128);

/// Tables: enough that two transactions seldom meet.
const TABLES: u32 = 4;
/// Connections for each vCPU: while one waits for the drive another works.
const CONNECTIONS: u32 = 4;
/// Connections at most: below the 300 of max-connections in `lab/loads/database/server.cnf`.
pub(super) const MOST_CONNECTIONS: u32 = 256;
/// Rows of each table at least: with fewer, transactions wait for each other's rows more than for the machine.
const FEWEST_ROWS: u64 = 500;
/// The server's memory for pages, beside which a guest needs some for all else.
const POOL_PART: u64 = 2;
/// The least a pool can be and hold what transactions have open.
const SMALLEST_POOL: Bytes = Bytes::from_mib(32);

/// Rows a second that fill tables at least, and seconds for making the file system, starting the server and all else before the
/// load at most; in a lab, where processors are emulated, both are another matter.
const FILLED: (u64, u32) = (3000, 60);
const FILLED_IN_A_LAB: (u64, u32) = (20, 210);
/// Seconds of load before it is measured, at least: in a lab what runs for the first time takes some.
const RAMP: u32 = 3;
const RAMP_IN_A_LAB: u32 = 10;

/// Room that rows of this size need on a device: pages split, and old versions of rows stay for a while.
pub(super) fn room(data: Bytes) -> Bytes {
    data.times(2).plus(BESIDE)
}

impl OltpJob {
    /// For a guest of this shape: rows that fit into the server's memory, so that what is written waits for the drive and what
    /// is read does not.
    pub(super) fn of(shape: &Shape) -> Self {
        let pool = Bytes::new((shape.memory.get() / POOL_PART) >> 20 << 20).max(SMALLEST_POOL);
        let (filled, ramp) = if shape.emulated { (FILLED_IN_A_LAB, RAMP_IN_A_LAB) } else { (FILLED, RAMP) };
        let most = Bytes::new(pool.get() / 4 * 3);
        let data = shape.span.min(most);
        let rows = (data.get() / ROW.get() / u64::from(TABLES)).clamp(FEWEST_ROWS, u64::from(u32::MAX));
        let fills = rows * u64::from(TABLES) / filled.0;
        Self {
            pool,
            tables: TABLES,
            rows: rows as u32,
            threads: shape.vcpus.max(1).saturating_mul(CONNECTIONS).min(MOST_CONNECTIONS),
            prepare: filled.1 + fills as u32,
            ramp: shape.ramp.max(ramp),
            seconds: shape.seconds,
            offered: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(span: Bytes, memory: Bytes, emulated: bool) -> Shape {
        Shape { seconds: 30, ramp: 5, span, memory, emulated, ..Shape::of_a_lab() }
    }

    #[test]
    fn the_rows_fit_into_the_servers_memory_and_that_into_the_guests() {
        for (span, memory) in [(256, 4096), (1 << 20, 4096), (256, 128), (1, 64)] {
            let job = OltpJob::of(&shape(Bytes::from_mib(span), Bytes::from_mib(memory), false));
            assert!(job.data() < job.pool, "{job:?}");
            assert!(job.pool <= Bytes::from_mib(memory / 2), "{job:?}");
            assert!(job.data() <= Bytes::from_mib(span) && job.rows >= 500, "{job:?}");
        }
    }

    #[test]
    fn a_large_guest_has_no_more_connections_than_the_server_takes() {
        let of = |vcpus| OltpJob::of(&Shape { vcpus, ..shape(Bytes::from_mib(64), Bytes::from_mib(4096), false) });
        assert_eq!([1, 63, 64, 65, u32::MAX].map(|vcpus| of(vcpus).threads), [4, 252, 256, 256, 256]);
        use crate::Load as _;
        assert!(of(65).label().contains("256 connections (the most)") && !of(63).label().contains("the most"));
        let server = include_str!("../../../../lab/loads/database/server.cnf");
        let taken = server.lines().find_map(|line| line.strip_prefix("max-connections = ")).unwrap();
        assert!(taken.parse::<u32>().unwrap() > MOST_CONNECTIONS);
    }

    #[test]
    fn a_lab_has_more_time_to_begin_and_the_same_work() {
        let of = |emulated| OltpJob::of(&shape(Bytes::from_mib(4), Bytes::from_mib(512), emulated));
        let (silicon, lab) = (of(false), of(true));
        assert!(lab.prepare > silicon.prepare && lab.ramp > silicon.ramp);
        assert_eq!(OltpJob { prepare: 0, ramp: 0, ..silicon }, OltpJob { prepare: 0, ramp: 0, ..lab });
    }
}
