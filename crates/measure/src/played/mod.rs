//! A machine in memory that every experiment runs on from start to end: a kernel with files that change, libvirt with guests
//! that answer, programs that do on it what they do. It can fail, hang or die anywhere.

mod chosen;
mod experiments;
mod fate;
mod guests;
mod interrupted;
mod kernel;
mod killed;
mod network;
mod tests;
mod tuned;
mod world;

use std::sync::Arc;
use std::time::{Duration, Instant};

use nearmetal_domain::DomainXml;
use nearmetal_host::HostFs;
use nearmetal_hypervisor::protocol::{Reply, Request};
use nearmetal_hypervisor::{Definition, DomainState, Fake, Hypervisor, HypervisorError, Transport};
use nearmetal_results::{Environment, Measurement, Store};

pub(crate) use experiments::{Kind, in_huge_pages, on_scratch};
use fate::Fate;
pub(crate) use fate::Killed;
use kernel::{Behind, Kernel};
pub(crate) use world::{End, LOADS, RATE, RATE_OF_GUESTS, Sample, World};

use crate::conditions::Conditions;
use crate::engine::{Session, Site};
use crate::error::MeasureError;
use crate::experiment::Experiment;
use crate::leftovers::Leftovers;
use crate::program::scripted;

/// What somebody else does with libvirt.
type Deed = Box<dyn FnOnce(&mut Fake)>;

/// libvirt, with the world around its guests.
struct Played {
    fake: Fake,
    world: Arc<World>,
    requests: usize,
    /// From this request on, counted from 0, nobody answers.
    gone_from: Option<usize>,
    /// How many more requests to shut down guests hear; `None`: all.
    heard: Option<usize>,
    /// After how many more looks the guest is off by itself.
    off_in: Option<usize>,
    /// What somebody does before the first shutdown behind so many samples.
    meanwhile: Option<(usize, Deed)>,
    /// What libvirt starts behind the next look.
    late: Option<String>,
    /// What passes while a guest is started.
    boots_take: Duration,
}

impl Transport for Played {
    fn call(&mut self, request: Request) -> Result<Reply, HypervisorError> {
        self.world.fate.step(&format!("libvirt: {} {}", request.action(), request.subject()));
        self.requests += 1;
        if self.gone_from.is_some_and(|first| self.requests > first) {
            let reason = "the connection is gone".into();
            return Err(HypervisorError::HelperMissing { path: "nearmetal-libvirt".into(), reason });
        }
        if let (Request::Domain { .. }, Some(xml)) = (&request, &self.late) {
            // The look itself still sees it off.
            let (xml, reply) = (xml.clone(), self.fake.call(request)?);
            self.late = None;
            let create = Request::CreateTransient { xml, paused: false };
            self.fake.call(create.clone())?;
            self.world.follow(&create);
            return Ok(reply);
        }
        if matches!(request, Request::CreateTransient { .. }) {
            Transport::pause(&mut self.fake, self.boots_take);
        }
        let mut is_deaf = false;
        if let Request::Shutdown { name, .. } = &request {
            is_deaf = self.heard == Some(0);
            self.heard = self.heard.map(|left| left.saturating_sub(1));
            self.fake.set_shutdown(name, (!is_deaf).then_some(0));
        }
        let samples = self.world.state.lock().unwrap().samples.len();
        if matches!(request, Request::Shutdown { .. }) {
            let due = self.meanwhile.take_if(|(behind, _)| samples >= *behind);
            due.into_iter().for_each(|(_, deed)| deed(&mut self.fake));
        }
        if let Request::Domain { name } = &request {
            self.off_in = self.off_in.map(|left| left.saturating_sub(1));
            if self.off_in.take_if(|left| *left == 0).is_some() {
                self.fake.set_state(name, DomainState::ShutOff);
                self.world.follow(&Request::Destroy { name: name.clone() });
            }
        }
        let reply = self.fake.call(request.clone())?;
        if !is_deaf {
            self.world.follow(&request);
        }
        Ok(reply)
    }

    fn now(&self) -> Instant {
        Transport::now(&self.fake)
    }

    fn pause(&mut self, time: Duration) {
        Transport::pause(&mut self.fake, time);
    }
}

/// What a process came to.
pub(crate) enum Came {
    To(Box<Measurement>),
    Failed(MeasureError),
    /// It was killed.
    Dead,
}

impl Came {
    pub(crate) fn document(self) -> Measurement {
        match self {
            Self::To(document) => *document,
            Self::Failed(error) => panic!("{}", crate::engine::chain(&error)),
            Self::Dead => panic!("killed"),
        }
    }

    pub(crate) fn failed(self) -> String {
        match self {
            Self::Failed(error) => crate::engine::chain(&error),
            _ => panic!("it did not fail"),
        }
    }
}

/// A directory in memory, where there is such a thing: every run is synced to the disk.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// The machine.
pub(crate) struct Machine {
    fs: HostFs,
    libvirt: Played,
    pub(crate) world: Arc<World>,
    /// State directory, appliance and probe.
    state: tempfile::TempDir,
    _root: tempfile::TempDir,
    before: Vec<(String, String)>,
}

impl Machine {
    /// With these domains, which run.
    pub(crate) fn with(domains: &[String]) -> Self {
        let root = directory();
        let fate = Fate::default();
        let kernel = Arc::new(Kernel::new(root.path().to_owned(), fate.clone()));
        let fs = HostFs::at(root.path()).unwrap().with_kernel(Behind(Arc::clone(&kernel)));
        let world = Arc::new(World::new(kernel, fate));
        let mut fake = Fake::new("");
        for xml in domains {
            fake = fake.with_running_domain(xml);
            world.is_stored_and_runs(xml);
        }
        let answering = Arc::clone(&world);
        fake.on_agent(move |name, command| answering.agent(name, command));
        let playing = Arc::clone(&world);
        scripted::play(move |words, input| playing.program(words, input));
        let state = directory();
        for file in ["vmlinuz", "initramfs.cpio.gz", "probe"] {
            nearmetal_host::files::write(&state.path().join(file), file).unwrap();
        }
        let before = world.kernel.state();
        let libvirt = Played {
            fake,
            world: Arc::clone(&world),
            requests: 0,
            gone_from: None,
            heard: None,
            off_in: None,
            meanwhile: None,
            late: None,
            boots_take: Duration::ZERO,
        };
        Self { fs, libvirt, world, state, _root: root, before }
    }

    /// Under what everything is measured here.
    pub(crate) fn conditions(&self) -> Conditions {
        let state = self.state.path();
        Conditions {
            seed: 7,
            appliance: state.to_owned(),
            probe: state.join("probe"),
            state: state.to_owned(),
            guest_files: state.join("boot"),
            environment: Environment::Lab { machine: "quad".into() },
            loads: None,
            kit: None,
            pause: true,
            store: Some(state.join("results.sqlite")),
            plan: None,
            resume: None,
            stop: crate::Stop::default(),
        }
    }

    pub(crate) fn store(&self) -> Store {
        Store::open(&self.state.path().join("results.sqlite")).unwrap()
    }

    /// Decides what becomes of each sample, by its number from 0.
    pub(crate) fn spoil(&self, spoiler: impl FnMut(&Sample, usize) -> End + Send + 'static) {
        self.world.state.lock().unwrap().spoiler = Box::new(spoiler);
    }

    /// What each sample does a second, instead of [`RATE`] and [`RATE_OF_GUESTS`].
    pub(crate) fn rates(&self, rates: impl Fn(&Sample) -> u32 + Send + 'static) {
        self.world.state.lock().unwrap().rates = Box::new(rates);
    }

    /// libvirt without its world, as an administrator has it.
    pub(crate) fn libvirt(&mut self) -> &mut Fake {
        &mut self.libvirt.fake
    }

    /// Guests hear no more than so many requests to shut down; `None`: all.
    pub(crate) fn hear_shutdowns(&mut self, most: Option<usize>) {
        self.libvirt.heard = most;
    }

    /// The guest is off by itself after so many looks at it.
    pub(crate) fn goes_off_in(&mut self, looks: usize) {
        self.libvirt.off_in = Some(looks);
    }

    /// Somebody does this behind so many samples.
    pub(crate) fn meanwhile(&mut self, behind: usize, deed: impl FnOnce(&mut Fake) + 'static) {
        self.libvirt.meanwhile = Some((behind, Box::new(deed)));
    }

    /// So long does it take to start a guest from now on.
    pub(crate) fn boots_take(&mut self, time: Duration) {
        self.libvirt.boots_take = time;
    }

    /// libvirt starts this behind the next look.
    pub(crate) fn begins_late(&mut self, xml: String) {
        self.libvirt.late = Some(xml);
    }

    /// The kernel of another boot.
    pub(crate) fn boots_anew(&self) {
        self.world.kernel.put("/proc/sys/kernel/random/boot_id", "11111111-0000-4000-8000-000000000000");
    }

    /// A directory with room for files.
    pub(crate) fn scratch_directory(&self) -> String {
        let directory = self.state.path().join("scratch");
        nearmetal_host::files::create_dir_all(&directory).unwrap();
        directory.display().to_string()
    }

    pub(crate) fn samples(&self) -> Vec<Sample> {
        self.world.state.lock().unwrap().samples.clone()
    }

    /// How long was waited for guests so far.
    pub(crate) fn clock(&self) -> Instant {
        Transport::now(&self.libvirt)
    }

    /// Guests with this in their name never answer.
    pub(crate) fn never_answers(&self, name: &str) {
        self.world.state.lock().unwrap().mute = Some(name.to_owned());
    }

    /// Servers in guests run and never answer.
    pub(crate) fn mute_servers(&self, are_mute: bool) {
        self.world.state.lock().unwrap().mute_servers = are_mute;
    }

    /// The next program of the host with these words fails, once.
    pub(crate) fn fails_once(&self, words: &str) {
        self.world.state.lock().unwrap().fails_once = Some(words.to_owned());
    }

    /// libvirt leaves this tap out of its bridge.
    pub(crate) fn leaves_out_of_its_bridge(&self, tap: &str) {
        self.world.state.lock().unwrap().stray_tap = Some(tap.to_owned());
    }

    pub(crate) fn answers_again(&self) {
        self.world.state.lock().unwrap().mute = None;
    }

    /// What is done in a session of a new process.
    pub(crate) fn in_session<T>(
        &mut self,
        conditions: &Conditions,
        work: impl FnOnce(&mut Session<'_>) -> Result<T, MeasureError>,
    ) -> Result<T, MeasureError> {
        let site = Site { fs: &self.fs, hypervisor: &mut self.libvirt, tell: &mut |_| {} };
        Session::run(conditions, site, work)
    }

    /// A new process runs the experiment.
    pub(crate) fn perform(&mut self, experiment: &Experiment) -> Came {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            experiment.perform(&self.fs, &mut self.libvirt, &mut |_| {})
        }));
        match result {
            Ok(Ok(document)) => Came::To(Box::new(document)),
            Ok(Err(error)) => Came::Failed(error),
            Err(cause) if cause.is::<Killed>() => Came::Dead,
            Err(cause) => std::panic::resume_unwind(cause),
        }
    }

    /// What the process did that anything else could see.
    pub(crate) fn steps(&self) -> Vec<String> {
        self.world.fate.steps()
    }

    /// The next process is killed before its step of this number.
    pub(crate) fn kill_at(&self, step: Option<usize>) {
        self.world.fate.dies_at(step);
    }

    /// Requests to libvirt so far.
    pub(crate) fn requests(&self) -> usize {
        self.libvirt.requests
    }

    /// libvirt goes away before its request of this number, for good.
    pub(crate) fn lose_libvirt_at(&mut self, request: Option<usize>) {
        (self.libvirt.requests, self.libvirt.gone_from) = (0, request);
    }

    /// What `nearmetal rollback` does after a process that was killed.
    pub(crate) fn take_back(&mut self) {
        if let Some(old) = Leftovers::load(self.state.path(), &self.fs).unwrap() {
            old.clean_up(&self.fs, &mut self.libvirt).unwrap();
        }
    }

    /// What is not as it was before the first experiment.
    pub(crate) fn left(&mut self) -> Vec<String> {
        let mut left = Vec::new();
        for domain in self.libvirt.domains().unwrap() {
            if domain.name.contains("nearmetal") || domain.state != DomainState::Running {
                left.push(format!("{} is {}", domain.name, domain.state));
            }
            let live = self.libvirt.domain_xml(&domain.name, Definition::Live).unwrap();
            if let Some(arm) = DomainXml::parse(&live).unwrap().turn().unwrap() {
                left.push(format!("{} runs as {arm}", domain.name));
            }
        }
        for ((what, before), (_, now)) in self.before.iter().zip(self.world.kernel.state()) {
            if *before != now {
                left.push(format!("{what} is `{now}` and was `{before}`"));
            }
        }
        let state = self.world.state.lock().unwrap();
        left.extend(state.labels.keys().map(|device| format!("{device} is divided")));
        left.extend(state.up.iter().map(|name| format!("{name} is up")));
        left.extend(state.told.iter().map(|mac| format!("the port listens to {mac}")));
        left.extend(state.groups.iter().map(|group| format!("volume group {group}")));
        if self.state.path().join("scratch").read_dir().is_ok_and(|mut files| files.next().is_some()) {
            left.push("files in the scratch directory".to_owned());
        }
        if self.state.path().join("bench.json").exists() {
            left.push("the record of what was borrowed".to_owned());
        }
        left
    }
}
