//! What a case works with: the shared lab, and short ways to run things in it.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use nearmetal_lab::image::{Layer, Release, With};
use nearmetal_lab::machine::Count;
use nearmetal_lab::{Command, ExecOutput, Lab, LabError, LabName, Places, Progress, UpOptions};
use serde_json::Value;

/// A command in a case that takes longer has hung.
const LIMIT: Duration = Duration::from_secs(900);
/// The programs under test.
const PROGRAMS: [&str; 3] = ["nearmetal", "nearmetal-libvirt", "nearmetal-probe"];

thread_local! {
    /// Names of the labs that the case at hand has booted: any other is somebody's own, or another lane's.
    static OWN: RefCell<BTreeSet<LabName>> = const { RefCell::new(BTreeSet::new()) };
}

/// A case begins, which has booted nothing yet.
pub fn forget_own() {
    OWN.take();
}

/// Removes what a lab that was booted to be kept has left.
pub fn purge(name: &str) -> anyhow::Result<()> {
    nearmetal_lab::purge(&Places::standard(), &name.parse()?)?;
    Ok(())
}

/// A lab with the programs under test in it.
pub struct Bench {
    /// The lab.
    pub lab: Lab,
    /// The lab at the other end of its cable.
    pub(crate) peer: Option<Box<Bench>>,
}

/// How to boot one.
#[derive(Debug, Clone, Default)]
pub struct Boot {
    /// Disks outlive the lab.
    pub keep: bool,
    /// Kernel arguments.
    pub append: Vec<String>,
    /// Another machine than `quad`.
    pub machine: Option<&'static str>,
    /// End of a cable in its network card, `wire:a`.
    pub cable: Option<String>,
    /// What its processors count.
    pub count: Option<Count>,
    /// Whether it has the loads image.
    pub loads: bool,
    /// What that image has beside the programs that every one has.
    pub loads_with: Option<With>,
    /// Whose packages are laid over its operating system.
    pub layer: Option<Layer>,
    /// Release of Debian that it runs.
    pub release: Release,
}

/// Directory of the programs under test: that of this program.
pub fn programs() -> anyhow::Result<PathBuf> {
    let here = std::env::current_exe()?;
    Ok(here.parent().context("this program has no directory")?.to_owned())
}

/// Paths of the programs under test.
pub fn program_paths() -> anyhow::Result<Vec<PathBuf>> {
    let directory = programs()?;
    PROGRAMS
        .iter()
        .map(|name| {
            let path = directory.join(name);
            ensure!(path.exists(), "`{}` is missing: run ./dev build", path.display());
            Ok(path)
        })
        .collect()
}

impl Bench {
    /// Boots a lab and puts the programs and the guest as found into it.
    ///
    /// One that does not come up in time is booted once more, which is said on stderr: emulation loses an interrupt now and
    /// then, and nothing has been tried in it yet.
    pub fn up(name: &str, boot: &Boot) -> anyhow::Result<Self> {
        let places = Places::standard();
        let name: LabName = name.parse()?;
        let mut options = UpOptions { keep: boot.keep, append: boot.append.clone(), ..UpOptions::new(name) };
        if let Some(machine) = boot.machine {
            options.machine = machine.to_owned();
        }
        options.count = boot.count;
        options.loads = boot.loads;
        options.loads_with = boot.loads_with;
        options.layer = boot.layer;
        options.release = boot.release;
        options.cable = boot.cable.as_deref().map(str::parse).transpose().map_err(anyhow::Error::msg)?;
        let lab = Lab::up(&places, &options, &mut Aside).or_else(|error| match error {
            LabError::NotReady { .. } => {
                say_aside(&format!("a lab did not come up and is booted again: {error}"));
                Lab::up(&places, &options, &mut Aside)
            }
            other => Err(other),
        });
        // What failed may have left disks; what was there before is somebody else's.
        if !matches!(lab, Err(LabError::AlreadyUp { .. } | LabError::Kept { .. })) {
            OWN.with_borrow_mut(|own| own.insert(options.name));
        }
        let lab = lab?;
        Self::with_programs(lab)
    }

    /// The lab of that name if it is up, else a new one: while cases are written, the boot is spared.
    pub fn attach_or_up(name: &str, boot: &Boot) -> anyhow::Result<Self> {
        match Lab::open(&Places::standard(), &name.parse::<LabName>()?) {
            Ok(lab) => Self::with_programs(lab),
            Err(_) => Self::up(name, boot),
        }
    }

    fn with_programs(lab: Lab) -> anyhow::Result<Self> {
        let bench = Self { lab, peer: None };
        bench.install()?;
        Ok(bench)
    }

    /// The lab at the other end of the cable.
    pub fn peer(&self) -> anyhow::Result<&Self> {
        self.peer.as_deref().context("this case asks for labs on a cable, and was given one lab")
    }

    /// Whether it runs, and its peer too.
    pub fn is_alive(&self) -> bool {
        self.lab.is_alive() && self.peer.as_ref().is_none_or(|peer| peer.is_alive())
    }

    fn install(&self) -> anyhow::Result<()> {
        // A program that runs (beside a guest, from a case before) can be removed, and not written to.
        self.sh(&format!("cd /usr/local/bin && rm -f {}", PROGRAMS.join(" ")))?;
        for path in program_paths()? {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            self.lab.push(&path, &format!("/usr/local/bin/{name}"))?;
        }
        self.write("/root/found.xml", nearmetal_lab::domains::FOUND)
    }

    /// Runs a script; any exit code is fine.
    pub fn try_sh(&self, script: &str) -> anyhow::Result<ExecOutput> {
        Ok(self.lab.exec(&Command::shell(script).timeout(LIMIT))?)
    }

    /// Runs a script that must succeed, and gives its stdout.
    pub fn sh(&self, script: &str) -> anyhow::Result<String> {
        self.sh_within(LIMIT, script)
    }

    /// The same with a limit of its own, for what boots guests again and again.
    pub fn sh_within(&self, limit: Duration, script: &str) -> anyhow::Result<String> {
        let output = self.lab.exec(&Command::shell(script).timeout(limit))?;
        if output.success() {
            return Ok(output.text().trim_end().to_owned());
        }
        bail!("`{script}` ended with {}: {}{}", output.status, output.text(), String::from_utf8_lossy(&output.stderr))
    }

    /// Runs a script that must end with this code, and gives stdout and stderr together.
    pub fn ends_with(&self, code: i32, script: &str) -> anyhow::Result<String> {
        let output = self.try_sh(script)?;
        let text = output.text() + &String::from_utf8_lossy(&output.stderr);
        ensure!(output.status == code, "`{script}` ended with {}, not {code}: {text}", output.status);
        Ok(text)
    }

    /// Runs a script that must print JSON, whatever its exit code.
    pub fn json(&self, script: &str) -> anyhow::Result<Value> {
        read_json(script, &self.try_sh(script)?)
    }

    /// The text of a document that `bench` wrote in the lab, once `report` has made a page of it there: whatever a case
    /// measures must also be shown, with a headline, its guest and the words of the lab.
    pub fn document(&self, path: &str, guest: &str) -> anyhow::Result<String> {
        self.sh(&format!(
            "page=$(mktemp -d) && nearmetal report {path} -o $page >/dev/null && grep -q '<h1>' $page/report.html \
             && grep -qF 'lab: emulated time' $page/report.html && grep -qF '{guest}' $page/report.html && rm -r $page"
        ))?;
        self.sh(&format!("cat {path}"))
    }

    /// Writes a file in the lab.
    pub fn write(&self, path: &str, text: &str) -> anyhow::Result<()> {
        let input = nearmetal_lab::Input::Bytes(text.as_bytes().to_vec());
        let command = Command::shell(format!("cat > {path}")).input(input).timeout(LIMIT);
        ensure!(self.lab.exec(&command)?.success(), "cannot write `{path}` in the lab");
        Ok(())
    }
}

fn read_json(script: &str, output: &ExecOutput) -> anyhow::Result<Value> {
    serde_json::from_slice(&output.stdout).with_context(|| {
        format!("`{script}` printed no JSON: {}{}", output.text(), String::from_utf8_lossy(&output.stderr))
    })
}

/// Whether a lab of that name runs.
pub fn is_up(name: &str) -> bool {
    name.parse().is_ok_and(|name| Lab::open(&Places::standard(), &name).is_ok())
}

/// Takes down the lab of that name if it runs.
pub fn down(name: &str) -> anyhow::Result<()> {
    match Lab::open(&Places::standard(), &name.parse()?) {
        Ok(lab) => Ok(lab.down().map(drop)?),
        Err(LabError::NotUp { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Ends what a case that failed left of labs of its own, with the disks it kept: a second attempt begins afresh.
pub fn take_down_own(say: impl Fn(&str)) {
    for name in OWN.take() {
        if let Err(error) = down(name.as_str()).and_then(|()| purge(name.as_str())) {
            say(&format!("the lab `{name}` of a case that failed was not taken down: {error:#}"));
        }
    }
}

/// Whether labs that a case boots for itself stay when it ends, for somebody who wants to look: `./dev farm … --keep`. What
/// failed stays too, and is not tried again, which would boot other labs under their names.
pub fn keeps_own() -> bool {
    std::env::var_os("NEARMETAL_FARM_KEEP").is_some()
}

/// Says on stderr what a lab has to say while it boots.
struct Aside;

impl Progress for Aside {
    fn stage(&mut self, _: usize, _: usize, _: &str) {}
    fn note(&mut self, text: &str) {
        say_aside(text);
    }
}

/// What somebody who follows the run wants to know, and no result.
pub fn say_aside(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr().lock(), "note: {text}");
}
