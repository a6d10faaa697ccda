//! From nothing to a lab whose libvirt answers.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use nearmetal_host::files;
use nearmetal_units::Bytes;

use crate::clock;
use crate::counting;
use crate::error::LabError;
use crate::exec::Command;
use crate::hang::Vigil;
use crate::identity::{LabName, token};
use crate::image::{self, Image};
use crate::keys;
use crate::lab::{Lab, UpOptions};
use crate::launch::{self, Launch, Process};
use crate::lock::Lock;
use crate::machine::{self, Accelerator, Boot, Extra, Machine};
use crate::places::Places;
use crate::progress::{Progress, Silent};
use crate::record::{BootTimes, DiskRecord, Record};
use crate::seed;
use crate::ssh;
use crate::sweep;
use crate::tools;

/// Room for what a lab writes to its disks while it runs.
const NEEDED: Bytes = Bytes::from_mib(2048);

/// How long the packages of a layer may take to copy.
const LAYING: Duration = Duration::from_secs(300);

/// How often a lab that hangs while it boots is started again.
const RESTARTS: usize = 3;

/// How long one attempt may take: key exchange takes seconds on a busy host, and libvirt starts when it is first called.
const ANSWER: Duration = Duration::from_secs(30);

/// How often a port that somebody else took meanwhile is replaced by another.
const PORTS: usize = 3;

pub(crate) fn up(places: &Places, options: &UpOptions, progress: &mut dyn Progress) -> Result<Lab, LabError> {
    tools::require_root("a lab")?;
    let machine = Machine::load_with(&options.machine, options.cable.as_ref(), options.count)?;
    tools::require(&[("unshare", "util-linux"), ("setsid", "util-linux")])?;
    let name = &options.name;
    let refuse_running = || {
        let running = Process::recorded(&places.state(name)).is_some_and(Process::is_alive);
        if running { Err(LabError::AlreadyUp { name: name.to_string() }) } else { Ok(()) }
    };
    refuse_running()?;
    let image = choose_image(places, options, progress)?;
    let loads = options.loads.then(|| image::ensure_loads(places, options.loads_with, progress)).transpose()?;
    let layer = options.layer.map(|layer| image::ensure_layer(places, layer, progress)).transpose()?;
    let extras = [loads.map(|path| (Extra::Loads(options.loads_with), path)), layer.map(|path| (Extra::Layer, path))];
    let extras: Vec<(Extra, PathBuf)> = extras.into_iter().flatten().collect();
    // One `up`, `down` or sweep at a time; building an image and booting happen outside the lock, since they take minutes.
    let lock = Lock::wait(&places.run().join(".lock"))?;
    refuse_running()?;
    sweep::dead(places, progress)?;
    crate::image::check_space("the disks of a lab", places.cache(), NEEDED)?;
    let result = start(places, options, &machine, &image, &extras);
    drop(lock);
    let booted = result.and_then(|(mut lab, started)| match ready(&mut lab, started, options.timeout, progress) {
        Ok(()) => seed::gather(&lab, &image).and_then(|()| lay(&lab)).map(|()| lab),
        Err(error) => lab.power_loss().and(Err(error)),
    });
    if booted.is_err() {
        sweep::keep_logs(places, name)?;
        // Another lab may just be starting, whose cables would go with those of nobody.
        let _lock = Lock::wait(&places.run().join(".lock"))?;
        sweep::discard(places, name)?;
    }
    booted
}

/// Lays the packages of its layer over the lab's operating system, once for its disks. Nothing of them is started.
fn lay(lab: &Lab) -> Result<(), LabError> {
    if lab.record.layer.is_none() {
        return Ok(());
    }
    let serial = Extra::Layer.serial();
    // Programs that run keep the libraries that they have: a file is replaced, and not written to.
    let script = format!(
        "[ ! -e /var/lib/lab-layer ] || exit 0
         set -e; mkdir -p /run/layer; mount -t erofs -o ro /dev/disk/by-id/virtio-{serial} /run/layer
         cp -a --remove-destination /run/layer/. /; umount /run/layer; touch /var/lib/lab-layer
         systemctl daemon-reload; systemd-tmpfiles --create"
    );
    let output = lab.exec(&Command::shell(script).timeout(LAYING))?;
    if output.success() {
        return Ok(());
    }
    let reason = tools::last_words(&String::from_utf8_lossy(&output.stderr));
    Err(LabError::Stopped { name: lab.name().to_string(), during: "laying the packages of its layer", reason })
}

/// The image of this program, or the one that kept disks stand on.
fn choose_image(places: &Places, options: &UpOptions, progress: &mut dyn Progress) -> Result<Image, LabError> {
    let kept = DiskRecord::read(&places.disks(&options.name));
    let Some(kept) = kept else { return image::ensure(places, options.release, progress) };
    let conflict = |what: String| Err(LabError::Kept { name: options.name.to_string(), what });
    if !options.keep {
        return conflict("an earlier run, and --keep is not given".to_owned());
    }
    if kept.machine != options.machine {
        return conflict(format!("machine `{}`, not `{}`", kept.machine, options.machine));
    }
    if kept.release != options.release {
        return conflict(format!("Debian {}, not {}", kept.release, options.release));
    }
    let image = Image::at(places.cache(), &kept.image);
    if !image.is_built() {
        return conflict(format!("image {}, which is gone", kept.image));
    }
    if kept.image != image::Recipe::of(options.release).hash() {
        progress.note(&format!("{}: its kept disks stand on an older image, {}", options.name, kept.image));
    }
    Ok(image)
}

fn start(
    places: &Places,
    options: &UpOptions,
    machine: &Machine,
    image: &Image,
    extras: &[(Extra, PathBuf)],
) -> Result<(Lab, Instant), LabError> {
    let name = &options.name;
    let (state, disks, cables) = (places.state(name), places.disks(name), places.cables());
    for directory in [&state, &disks, &cables] {
        files::create_dir_all(directory)?;
    }
    private(&state)?;
    if options.keep {
        let (image, machine) = (image.hash().to_owned(), options.machine.clone());
        let record = DiskRecord { image, machine, release: options.release };
        record.write(&disks)?;
    }
    for (extra, path) in extras {
        // A link: no bytes are copied, and the image outlives its removal from the cache.
        files::link(path, &disks.join(extra.file()))?;
    }
    keys::make(&state)?;
    let mut attempt = 1;
    loop {
        let started = Instant::now();
        let record = Record {
            name: name.clone(),
            token: token()?,
            machine: options.machine.clone(),
            image: image.hash().to_owned(),
            ssh_port: free_port()?,
            keep: options.keep,
            append: options.append.clone(),
            cable: options.cable.clone(),
            count: options.count,
            loads: options.loads,
            loads_with: options.loads_with,
            layer: options.layer,
            boot: None,
        };
        record.write(&state)?;
        match run(places, &record, machine, image) {
            Ok(process) => {
                let (places, process) = (places.clone(), Mutex::new(process));
                return Ok((Lab { places, state, record, process }, started));
            }
            Err(LabError::Stopped { reason, .. }) if reason.contains("host forwarding") && attempt < PORTS => {
                attempt += 1
            }
            Err(error) => return Err(error),
        }
    }
}

/// Starts the QEMU of a record, in directories that are there.
fn run(places: &Places, record: &Record, machine: &Machine, image: &Image) -> Result<Process, LabError> {
    let (state, disks, cables) = (places.state(&record.name), places.disks(&record.name), places.cables());
    // Of an earlier start: its end must not be taken for that of this one.
    for file in ["pid", "qmp.sock"] {
        files::remove(&state.join(file))?;
    }
    let boot = Boot {
        name: record.name.to_string(),
        machine: Path::new(&record.machine).file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        token: record.token.clone(),
        ssh_port: record.ssh_port,
        durable: record.keep,
        seeded: seed::plant(image, &record.machine, &state)?,
        counter_khz: clock::counter_khz(),
        extras: record.extras(),
        append: record.append.clone(),
    };
    if machine.count.is_some() {
        counting::prepare(&state)?;
    }
    launch::launch(&Launch {
        state: &state,
        image: image.directory(),
        emulator: &image.emulator(),
        disks: &disks,
        cables: &cables,
        machine,
        arguments: machine::arguments(machine, &boot),
    })?;
    started_process(&record.name, &state)
}

/// The process, once its control socket shows that QEMU accepted every argument.
fn started_process(name: &LabName, state: &Path) -> Result<Process, LabError> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let process = Process::recorded(state);
        // The script writes its number first; a launch that dies before that leaves only its words.
        let gone = process.is_some_and(|process| !process.is_alive());
        if gone || Instant::now() > deadline {
            return Err(stopped(name, state, "starting QEMU"));
        }
        if let Some(process) = process.filter(|_| state.join("qmp.sock").exists()) {
            return Ok(process);
        }
        thread::sleep(Duration::from_millis(50));
    }
}

fn stopped(name: &LabName, state: &Path, during: &'static str) -> LabError {
    let log = files::read_to_string(&state.join("qemu.log")).unwrap_or_default();
    LabError::Stopped { name: name.to_string(), during, reason: tools::last_words(&log) }
}

/// Waits for SSH, then for libvirt, and writes down how long it took.
fn ready(lab: &mut Lab, started: Instant, limit: Duration, progress: &mut dyn Progress) -> Result<(), LabError> {
    let ssh = lab.come_up(started, limit, progress)?;
    lab.record.boot = Some(BootTimes {
        ssh_seconds: ssh.duration_since(started).as_secs_f64(),
        libvirt_seconds: started.elapsed().as_secs_f64(),
        processor_seconds: lab.process().processor_seconds(),
    });
    lab.record.write(&lab.state)
}

impl Lab {
    /// Waits until commands run and libvirt answers, as after a reboot.
    ///
    /// # Errors
    /// The lab stopped, hung in each of its boots, or `limit` passed.
    pub fn wait_ready(&self, limit: Duration) -> Result<(), LabError> {
        self.come_up(Instant::now(), limit, &mut Silent).map(drop)
    }

    /// Waits until libvirt answers; gives when SSH did. A lab that hangs is started again, a few times.
    fn come_up(&self, started: Instant, limit: Duration, progress: &mut dyn Progress) -> Result<Instant, LabError> {
        let machine = self.record.machine()?;
        let emulated = machine.processors.accelerator == Accelerator::Tcg;
        for start in 0..=RESTARTS {
            if start > 0 {
                progress.note(&format!("lab {} hung while it booted and is started again", self.name()));
                // Between its end and its new start it looks like something to sweep.
                let _lock = Lock::wait(&self.places.run().join(".lock"))?;
                self.start_again()?;
            }
            // What earlier boots said is not about this one.
            let mut vigil = Vigil::new(Instant::now(), self.console_text()?.len(), emulated);
            let mut wait = |what, answers: &dyn Fn(Duration) -> Result<bool, LabError>| {
                self.wait(what, (started, limit), &mut vigil, answers)
            };
            progress.stage(1, 2, &format!("Booting lab {}", self.name()));
            // A cheap look first: the emulated network keeps a connection that comes too early waiting for seconds.
            if !wait("SSH", &|left| Ok(banner(self.ssh_port()) && ssh::connect(&self.state, self.ssh_port(), left)?))? {
                continue;
            }
            let ssh = Instant::now();
            progress.stage(2, 2, "Waiting for libvirt");
            if wait("libvirt", &|left| self.libvirt_answers(left))? {
                return Ok(ssh);
            }
        }
        Err(LabError::Stalled { name: self.name().to_string() })
    }

    /// Waits until something answers, each time at most as long as it is told; `false` if the lab hangs.
    fn wait(
        &self,
        what: &'static str,
        (started, limit): (Instant, Duration),
        vigil: &mut Vigil,
        answers: &dyn Fn(Duration) -> Result<bool, LabError>,
    ) -> Result<bool, LabError> {
        loop {
            if vigil.hangs(Instant::now(), &self.console_text()?, self.process().wanted_seconds()) {
                return Ok(false);
            }
            if !self.is_alive() {
                return Err(stopped(self.name(), &self.state, "booting"));
            }
            let left = limit.saturating_sub(started.elapsed());
            if left.is_zero() {
                return Err(self.not_ready(what, limit));
            }
            if answers(left.min(ANSWER))? {
                return Ok(true);
            }
            thread::sleep(Duration::from_millis(200));
        }
    }

    fn libvirt_answers(&self, limit: Duration) -> Result<bool, LabError> {
        let version = ["virsh", "--quiet", "--connect", "qemu:///system", "version"];
        match self.exec(&Command::new(version).timeout(limit)) {
            Ok(output) => Ok(output.success()),
            // Where a hung call could not be ended, the connection was.
            Err(LabError::TimedOut { .. } | LabError::Connection { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Cuts the power and switches it on again, with the disks as they are. The lock of all labs is held.
    pub(crate) fn start_again(&self) -> Result<(), LabError> {
        self.power_loss()?;
        let machine = self.record.machine()?;
        let image = Image::at(self.places.cache(), &self.record.image);
        let process = run(&self.places, &self.record, &machine, &image)?;
        self.set_process(process);
        Ok(())
    }

    fn not_ready(&self, what: &'static str, limit: Duration) -> LabError {
        let text = self.console_text().unwrap_or_default();
        LabError::NotReady { name: self.name().to_string(), what, limit, console: tools::last_words(&text) }
    }
}

/// Whether an SSH server says so within a second.
fn banner(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    let mut greeting = [0u8; 4];
    stream.set_read_timeout(Some(Duration::from_secs(1))).is_ok()
        && stream.read_exact(&mut greeting).is_ok()
        && &greeting == b"SSH-"
}

fn private(directory: &Path) -> Result<(), LabError> {
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o700))
        .map_err(|source| files::FileError { action: "restrict", path: directory.to_owned(), source }.into())
}

/// A port nobody listens on now. QEMU takes it a moment later, hence the retries.
fn free_port() -> Result<u16, LabError> {
    let address = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    address
        .map(|address| address.port())
        .map_err(|source| LabError::Start { program: "a listener on 127.0.0.1".to_owned(), source })
}
