//! A licensed kit that the user has: SPECjbb2005 or SPECjbb2015, on the JVM of the loads image.
//!
//! nearmetal has neither of them, and what it makes of them is no result of SPEC's: warehouses, lengths and the report are not
//! those that its rules ask for, and every sample says so. The user's directory is an image of its own beside the loads image,
//! with the same bytes on all sides. The JVM's settings are those of the load `jvm`.
//!
//! - 2005: one point, with a warehouse on each vCPU. Everything else is what the kit's own `SPECjbb.props` says.
//! - 2015: the composite run as the kit's own properties have it, to its end.
//!
//! What the program prints is said in `lab/loads/java/kit`.

use std::time::Duration;

use nearmetal_units::Bytes;
use serde::{Deserialize, Serialize};

use super::jvm::{JAVA, JavaPages, Settings};
use super::{At, Compared, Load, Measured, Named, SLACK, Shape, WorksOn};
use crate::error::LoadError;

mod kit;
mod said;

pub use self::kit::{Kit, KitEdition, KitHash};

/// What people call it.
pub(super) const NAMED: &[Named] = &[Named {
    word: "specjbb",
    help: "a licensed SPECjbb2005 or SPECjbb2015 of yours (--kit); not a compliant run, so not a result of SPEC's",
    sizes: &[],
    on: WorksOn::Processors,
    make: |shape| SpecJbbJob::of(shape).into(),
}];

/// Its place in the loads image.
const PROGRAM: &str = "/usr/lib/nearmetal/java/kit";
/// Seconds for a kit of 2005 to start and to make its data.
const START: u32 = 60;
/// The same where the machine is emulated, which takes a second to touch some 100 MiB.
const START_EMULATED: u32 = 600;
/// Seconds of load before the measured part: what runs often is compiled.
const RAMP: u32 = 15;
const RAMP_EMULATED: u32 = 45;
/// When a run of 2015 has hung: the properties it comes with take some two hours.
const LONGEST: Duration = Duration::from_secs(6 * 3600);
/// Name of the rate.
const SCORE: &str = "score";

/// One run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpecJbbJob {
    /// What is run.
    pub kit: Kit,
    /// Warehouses of a kit of 2005, a thread each, and the processors that the JVM of any kit reckons with.
    pub warehouses: u32,
    /// Size of the heap, from its start to its end.
    pub heap: Bytes,
    /// Seconds for a kit of 2005 to start and to make its data.
    pub start: u32,
    /// Seconds of its load that do not count.
    pub ramp: u32,
    /// Seconds of it that do.
    pub seconds: u32,
    /// Whether the JVM spreads its heap over the nodes that it sees.
    pub numa: bool,
    /// Whether only the first compiler is used: an emulated machine is long at what the second one does.
    pub emulated: bool,
}

impl SpecJbbJob {
    /// The job for a guest of this shape.
    pub(crate) fn of(shape: &Shape) -> Self {
        let Settings { heap, processors, numa, emulated, .. } = Settings::of(shape, JavaPages::OfTheMachine);
        let (start, ramp) = if shape.emulated { (START_EMULATED, RAMP_EMULATED) } else { (START, RAMP) };
        Self {
            kit: shape.kit.unwrap_or_default(),
            warehouses: processors,
            heap,
            start,
            ramp: ramp.max(shape.ramp).max(shape.seconds),
            seconds: shape.seconds,
            numa,
            emulated,
        }
    }

    /// The same with so many seconds to start; `None` of a kit whose run is not timed.
    pub(super) fn starting_within(&self, seconds: u32) -> Option<Self> {
        self.is_timed().then(|| Self { start: seconds, ..self.clone() })
    }

    /// Whether it runs for as long as it is told.
    fn is_timed(&self) -> bool {
        self.kit.edition.is_timed()
    }

    /// How its JVM is run.
    fn settings(&self) -> Settings {
        let Self { heap, warehouses, numa, emulated, .. } = *self;
        Settings { heap, processors: warehouses, pages: JavaPages::OfTheMachine, numa, emulated }
    }

    fn arguments(&self) -> Vec<String> {
        let mut words = vec![PROGRAM.to_owned(), self.kit.edition.word().to_owned()];
        words.extend([self.warehouses, self.ramp, self.seconds].map(|number| number.to_string()));
        words.push(JAVA.to_owned());
        words.extend(self.settings().flags());
        words
    }
}

impl Load for SpecJbbJob {
    fn id(&self) -> String {
        match self.is_timed() {
            true => format!("kit.jbb{}.w{}", self.kit.edition.word(), self.warehouses),
            false => format!("kit.jbb{}", self.kit.edition.word()),
        }
    }

    fn label(&self) -> String {
        let edition = self.kit.edition.title();
        match (self.is_timed(), self.warehouses) {
            (true, 1) => format!("non-compliant run of a {edition} kit, 1 warehouse, {} heap", self.heap),
            (true, all) => format!("non-compliant run of a {edition} kit, {all} warehouses, {} heap", self.heap),
            (false, _) => format!("non-compliant run of a {edition} kit, {} heap", self.heap),
        }
    }

    /// Some runs of 2015 meet no time limit and have no score under one: that of those which do would be that of the better ones.
    fn compared(&self, metric: &str) -> Compared {
        if metric == SCORE { Compared::ByRound } else { Compared::IfInEveryRound }
    }

    fn rate(&self) -> Option<String> {
        Some(SCORE.to_owned())
    }

    fn command(&self, at: &At<'_>, _: u64) -> Vec<String> {
        at.in_the_image(&["--kit", at.kit], self.arguments())
    }

    /// At least: how long a kit takes to start it does not say.
    fn length(&self) -> Option<Duration> {
        self.is_timed().then(|| Duration::from_secs((self.ramp + self.seconds).into()))
    }

    fn reckoned(&self) -> Duration {
        self.length().map(|length| length + Duration::from_secs(self.start.into())).unwrap_or_default()
    }

    fn limit(&self) -> Duration {
        match self.is_timed() {
            true => self.reckoned() + SLACK,
            false => LONGEST,
        }
    }

    fn cold(&self) -> bool {
        false
    }

    fn needs_loads_image(&self) -> bool {
        true
    }

    fn needs_kit(&self) -> bool {
        true
    }

    fn read(&self, output: &str) -> Result<Measured, LoadError> {
        said::read(self, output)
    }

    fn provenance(&self) -> Option<(String, String)> {
        let words = format!("{}; the kit's files have the hash {}", self.arguments().join(" "), self.kit.hash);
        Some(("kit command".to_owned(), words))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Workload;

    pub(super) fn job(edition: KitEdition) -> SpecJbbJob {
        let kit = Kit { edition, hash: KitHash([0xab; 8]) };
        SpecJbbJob::of(&Shape { kit: Some(kit), ..Shape::of_a_lab() })
    }

    #[test]
    fn the_jvm_is_run_as_the_warehouses_of_our_own_are() {
        let at = At { loads: "/l", kit: "serial:nearmetal-kit", ..At::probe("/p") };
        let words = job(KitEdition::Of2005).command(&at, 7).join(" ");
        let begin = "/p programs --image /l --kit serial:nearmetal-kit -- /usr/lib/nearmetal/java/kit 2005 2 45 5 \
                     /usr/lib/nearmetal/java/runtime/bin/java ";
        let flags = words.strip_prefix(begin).unwrap_or_else(|| panic!("{words}"));
        let own = Workload::named().into_iter().find(|load| load.word == "jvm").unwrap();
        let shape = Shape::of_a_lab();
        let own = (own.make)(&shape).load().command(&at, 7).join(" ");
        assert!(flags.starts_with("-Xms128m -Xmx128m") && own.contains(flags), "{flags} is not in {own}");
        assert!(job(KitEdition::Of2015).command(&at, 7).join(" ").contains("/kit 2015 2 45 5 "));
    }

    #[test]
    fn a_run_of_2005_is_timed_and_one_of_2015_ends_by_itself() {
        let (timed, free) = (job(KitEdition::Of2005), job(KitEdition::Of2015));
        assert_eq!(timed.length(), Some(Duration::from_secs(50)));
        assert!(timed.limit() > Duration::from_secs(600) && free.length().is_none() && free.limit() == LONGEST);
        assert_eq!(timed.reckoned(), Duration::from_secs(50 + u64::from(START_EMULATED)));
        assert_eq!(timed.starting_within(7).map(|job| job.start), Some(7));
        assert_eq!(free.starting_within(7), None);
    }

    #[test]
    fn no_name_of_it_is_that_of_a_result_of_specs() {
        for edition in KitEdition::ALL {
            let job = job(edition);
            assert!(job.label().starts_with("non-compliant run of a SPECjbb20"), "{}", job.label());
            assert!(!job.id().contains("spec") && job.provenance().unwrap().1.ends_with("abababababababab"));
            assert!(job.needs_kit() && job.needs_loads_image() && !job.writes());
        }
    }
}
