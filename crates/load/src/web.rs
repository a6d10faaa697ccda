//! A web server under load: nginx of the loads image with a site on the scratch device, and wrk beside it.
//!
//! Each connection asks for its next file as soon as it has the one before (a closed loop), over a loopback interface that the run
//! has for itself. What the connections come to a second is the result. How long an answer took is told too, as what it is: the
//! service time of a closed loop, which is not asked while it stands still, and no promise to anybody.
//!
//! Every sample makes its own file system and writes the site anew: the files that tiles serve, with contents by the sample's seed.
//! They are in the page cache once they are written, so the drive has no part in the rate. What the programs print is said in
//! `lab/loads/web/load` and `lab/loads/web/wrk.lua`; wrk's part was checked against the source of 4.1.0.

use nearmetal_units::Bytes;
use serde::{Deserialize, Serialize};

use super::server::program;
use super::{At, Load, Measured, Named, Server, Shape, Window, WorksOn};
use crate::error::LoadError;
use crate::tile::{DIRECTORY, MOST_DIRECTORIES};

mod said;

pub use self::said::OF_ITS_NETWORK;

/// What people call it.
pub(super) const NAMED: &[Named] = &[Named {
    word: "web",
    help: "nginx under wrk, with its files on the scratch device: requests a second, and the service time of a closed loop",
    sizes: &[],
    on: WorksOn::Site,
    make: |shape| WebJob::of(shape).into(),
}];

/// Its place in the loads image.
const PROGRAM: &str = "/usr/lib/nearmetal/web/load";
/// Name of the rate.
const RATE: &str = "requests";

/// Connections for each vCPU: while one's answer is on its way another is asked.
const CONNECTIONS: u32 = 8;
/// Workers at most, and threads of wrk: so that all their connections are fewer than a program may have open.
const MOST_WORKERS: u32 = 512;
/// The part of a guest's memory that the site takes at most: what does not fit into the page cache would measure the drive.
const PART_OF_MEMORY: u64 = 4;
/// What is beside the files: the file system's journal and tables, and the list of paths.
const BESIDE: Bytes = Bytes::from_mib(96);

/// Seconds for making the file system, starting the server and all else before the load at most, and bytes of the site that are
/// written in one at least; in a lab, where processors are emulated, both are another matter.
const PREPARED: (u32, Bytes) = (60, Bytes::from_mib(10));
const PREPARED_IN_A_LAB: (u32, Bytes) = (180, Bytes::from_kib(170));
/// Seconds of load before it is measured, at least; the last of them is for wrk to end and start once more. In a lab what runs
/// for the first time takes some.
const RAMP: u32 = 3;
const RAMP_IN_A_LAB: u32 = 8;

/// A web server under load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebJob {
    /// Workers of the server, and threads of wrk: one a vCPU.
    pub workers: u32,
    /// Connections.
    pub connections: u32,
    /// Directories of the site, of 36 files and 5 MB each.
    pub directories: u32,
    /// Seconds that preparing may take: making the file system, writing the site and starting the server.
    pub prepare: u32,
    /// Seconds of load before it is measured.
    pub ramp: u32,
    /// Measured seconds.
    pub seconds: u32,
}

impl WebJob {
    /// For a guest of this shape: a site that its page cache holds.
    fn of(shape: &Shape) -> Self {
        let ((starts, written), ramp) =
            if shape.emulated { (PREPARED_IN_A_LAB, RAMP_IN_A_LAB) } else { (PREPARED, RAMP) };
        let site = shape.span.min(Bytes::new(shape.memory.get() / PART_OF_MEMORY));
        let directories = (site.get() / DIRECTORY.get()).clamp(1, MOST_DIRECTORIES.into()) as u32;
        let writes = DIRECTORY.times(directories.into()).get().div_ceil(written.get());
        let workers = shape.vcpus.clamp(1, MOST_WORKERS);
        Self {
            workers,
            connections: workers * CONNECTIONS,
            directories,
            prepare: starts + writes as u32,
            ramp: shape.ramp.max(ramp),
            seconds: shape.seconds,
        }
    }

    /// The same with so many seconds to prepare.
    pub(super) fn starting_within(&self, seconds: u32) -> Self {
        Self { prepare: seconds, ..self.clone() }
    }

    /// What the files take.
    fn site(&self) -> Bytes {
        DIRECTORY.times(self.directories.into())
    }

    /// What the file system needs: the files, of which each ends within a block.
    fn room(&self) -> Bytes {
        let files = self.site();
        files.plus(Bytes::new(files.get() / 8)).plus(BESIDE)
    }

    fn arguments(&self, seed: u64) -> Vec<String> {
        let numbers = [self.workers, self.connections, self.directories, self.prepare, self.ramp, self.seconds];
        program(PROGRAM, numbers.map(u64::from).into_iter().chain([seed]))
    }

    fn sample(&self) -> Server {
        let Self { prepare, ramp, seconds, .. } = *self;
        Server { room: self.room(), prepare, parts: 1, ramp, seconds }
    }
}

impl WebJob {
    /// A small one: tests of whatever runs loads have room for it.
    pub fn small() -> Self {
        Self { workers: 2, connections: 16, directories: 2, prepare: 20, ramp: 3, seconds: 4 }
    }
}

impl Load for WebJob {
    fn id(&self) -> String {
        format!("web.c{}.{}", self.connections, self.site().get())
    }

    fn label(&self) -> String {
        let workers = if self.workers == 1 { "worker" } else { "workers" };
        format!("web, {} {workers}, {} connections, {} of files", self.workers, self.connections, self.site())
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

    fn read(&self, output: &str) -> Result<Measured, LoadError> {
        said::read(self, output)
    }

    fn window(&self, output: &str, ahead: f64) -> Result<Window, LoadError> {
        said::window(output, ahead)
    }

    fn provenance(&self) -> Option<(String, String)> {
        Some(("web command".to_owned(), self.arguments(0).join(" ")))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::cost::Each;

    fn shape(span: Bytes, memory: Bytes, emulated: bool) -> Shape {
        Shape { seconds: 30, span, vcpus: 4, memory, emulated, ..Shape::of_a_lab() }
    }

    fn of(span: u64, memory: u64, emulated: bool) -> WebJob {
        WebJob::of(&shape(Bytes::from_mib(span), Bytes::from_mib(memory), emulated))
    }

    #[test]
    fn the_command_is_the_same_on_both_sides_but_for_where_they_have_the_image_and_the_device() {
        let at = At { device: "serial:nearmetal-region", loads: "serial:nearmetal-loads", ..At::probe("/p") };
        let job = WebJob::small();
        let (_, room) = job.files().unwrap();
        assert_eq!(
            job.command(&at, 7).join(" "),
            format!(
                "/p programs --image serial:nearmetal-loads --device serial:nearmetal-region --kind ext4 --size {} -- {PROGRAM} \
                 2 16 2 20 3 4 7",
                room.get()
            )
        );
        assert!(room > job.site() && room < Bytes::from_mib(128), "{room}");
        assert!(job.writes() && job.needs_loads_image() && job.cold());
    }

    #[test]
    fn what_is_counted_lies_within_the_measured_part() {
        let (middle, each) = WebJob::small().middle().unwrap();
        assert_eq!(
            (middle.begins, middle.ends, each),
            (Duration::from_millis(4200), Duration::from_millis(6200), Each::Transaction)
        );
        assert_eq!(WebJob::small().length(), Some(Duration::from_secs(7)));
    }

    #[test]
    fn the_site_fits_into_the_page_cache_and_has_a_directory_at_least() {
        for (span, memory) in [(64, 4096), (1 << 20, 4096), (64, 128), (1, 64), (u64::MAX >> 21, u64::MAX >> 21)] {
            let job = of(span, memory, false);
            assert!((1..=99_999).contains(&job.directories), "{job:?}");
            assert!(job.directories == 1 || job.site() <= Bytes::from_mib(memory / 4), "{job:?}");
            assert!(job.directories == 1 || job.site() <= Bytes::from_mib(span), "{job:?}");
        }
        assert_eq!(of(64, 4096, false).directories, 13);
    }

    #[test]
    fn a_lab_has_more_time_to_begin_and_the_same_work() {
        let (silicon, lab) = (of(8, 512, false), of(8, 512, true));
        assert!(lab.prepare > silicon.prepare && lab.ramp > silicon.ramp);
        assert_eq!(WebJob { prepare: 0, ramp: 0, ..silicon.clone() }, WebJob { prepare: 0, ramp: 0, ..lab });
        assert!(of(512, 4096, false).prepare > silicon.prepare, "more files take longer to write");
        // The script's load before the measured one is a second shorter, and lasts one at least.
        assert!(silicon.ramp >= 2);
    }

    #[test]
    fn each_vcpu_has_a_worker_and_no_guest_more_connections_than_programs_may_have() {
        let of = |vcpus| WebJob::of(&Shape { vcpus, ..shape(Bytes::from_mib(64), Bytes::from_mib(4096), false) });
        assert_eq!([0, 1, 64, u32::MAX].map(|vcpus| of(vcpus).workers), [1, 1, 64, 512]);
        // wrk gives each thread as many connections, and leaves the rest out.
        assert!([0, 1, 3, 511, 4096].map(of).iter().all(|job| job.connections == job.workers * 8));
    }

    #[test]
    fn a_document_keeps_it() {
        let workload = crate::Workload::from(WebJob::small());
        let text = serde_json::to_string(&workload).unwrap();
        assert!(text.contains("\"kind\":\"web\"") && text.contains("\"directories\":2"), "{text}");
        assert_eq!(serde_json::from_str::<crate::Workload>(&text).unwrap(), workload);
        assert_eq!(workload.starting_within(75), Some(WebJob { prepare: 75, ..WebJob::small() }.into()));
    }
}
