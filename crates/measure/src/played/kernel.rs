//! The kernel of the machine in memory: its files, and what writing to them does.

use std::path::{Path, PathBuf};

use nearmetal_host::{TestKernel, files, tree_text};
use rustix::fs::CWD;

use super::fate::Fate;

/// The machine under everything, and what experiments need beside it.
const BASE: &str = include_str!("../../../../fixtures/hosts/4p-1n-2c-2t-offline/tree.txt");
const MORE: &str = include_str!("machine.txt");

const TRIGGER: &str = "/sys/kernel/tracing/events/kvm/kvm_exit/trigger";
const UUID: &str = "/proc/sys/kernel/random/uuid";
const DEVICES: &str = "/sys/bus/pci/devices";

/// /sys and /proc in a directory, which programs and guests change.
#[derive(Debug)]
pub(crate) struct Kernel {
    root: PathBuf,
    fate: Fate,
    uuids: std::sync::atomic::AtomicU32,
}

impl Kernel {
    pub(super) fn new(root: PathBuf, fate: Fate) -> Self {
        tree_text::unpack(BASE, &root).unwrap();
        tree_text::unpack(MORE, &root).unwrap();
        let kernel = Self { root, fate, uuids: std::sync::atomic::AtomicU32::new(1) };
        for function in ["0000:51:00.0", "0000:52:00.0"] {
            kernel.bind(function, "nvme");
        }
        kernel
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    pub(super) fn exists(&self, path: &str) -> bool {
        self.at(path).symlink_metadata().is_ok()
    }

    pub(super) fn text(&self, path: &str) -> String {
        files::read_to_string(&self.at(path)).unwrap_or_default().trim().to_owned()
    }

    pub(super) fn put(&self, path: &str, text: &str) {
        let path = self.at(path);
        files::create_dir_all(path.parent().unwrap_or(Path::new("/"))).unwrap();
        files::write(&path, format!("{text}\n")).unwrap();
    }

    pub(super) fn link(&self, path: &str, target: &str) {
        let path = self.at(path);
        files::create_dir_all(path.parent().unwrap_or(Path::new("/"))).unwrap();
        let _ = files::remove(&path);
        rustix::fs::symlinkat(target, CWD, &path).unwrap();
    }

    /// Removes a file, a link, or a directory with all in it.
    pub(super) fn remove(&self, path: &str) {
        let path = self.at(path);
        match path.symlink_metadata() {
            Ok(found) if found.is_dir() => files::remove_dir_all(&path).unwrap(),
            Ok(_) => files::remove(&path).unwrap(),
            Err(_) => {}
        }
    }

    pub(super) fn names(&self, path: &str) -> Vec<String> {
        let found = files::list(&self.at(path)).unwrap_or_default();
        found.iter().filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect()
    }

    /// Whether a link leads to something of this name.
    pub(super) fn leads_to(&self, path: &str, name: &str) -> bool {
        let target = rustix::fs::readlinkat(CWD, self.at(path), Vec::new());
        target.is_ok_and(|target| target.to_str().is_ok_and(|target| target.rsplit('/').next() == Some(name)))
    }

    /// The driver of a PCI function.
    pub(super) fn driver(&self, function: &str) -> Option<String> {
        let link = rustix::fs::readlinkat(CWD, self.at(&format!("{DEVICES}/{function}/driver")), Vec::new()).ok()?;
        link.to_str().ok()?.rsplit('/').next().map(str::to_owned)
    }

    /// Whether the drive of a function answers the host's driver: `false` for one that never comes up.
    fn bind(&self, function: &str, driver: &str) {
        self.link(&format!("{DEVICES}/{function}/driver"), &format!("../../../bus/pci/drivers/{driver}"));
        if driver != "nvme" {
            return;
        }
        let number = &function[5..7];
        let (controller, place) = (format!("nvme{number}"), format!("devices/pci0000:50/{function}/nvme/nvme{number}"));
        let block = format!("{controller}n1");
        self.put(&format!("/sys/{place}/state"), "live");
        self.put(&format!("/sys/{place}/{block}/nsid"), "1");
        self.put(&format!("/sys/{place}/{block}/size"), "4194304");
        self.link(&format!("/sys/class/nvme/{controller}"), &format!("../../{place}"));
        for class in ["class/block", "block"] {
            let up = "../".repeat(class.split('/').count());
            self.link(&format!("/sys/{class}/{block}"), &format!("{up}{place}/{block}"));
        }
    }

    fn unbind(&self, function: &str) {
        let number = &function[5..7];
        self.remove(&format!("{DEVICES}/{function}/driver"));
        self.remove(&format!("/sys/devices/pci0000:50/{function}/nvme"));
        for gone in
            [format!("class/nvme/nvme{number}"), format!("class/block/nvme{number}n1"), format!("block/nvme{number}n1")]
        {
            self.remove(&format!("/sys/{gone}"));
        }
    }

    /// What an experiment may have changed, to compare before and after.
    pub(super) fn state(&self) -> Vec<(String, String)> {
        let mut paths: Vec<String> = ["enabled", "nr_hugepages", "trigger", "mountinfo", "scheduler"]
            .iter()
            .zip([
                "/sys/kernel/mm/transparent_hugepage",
                "/sys/devices/system/node/node0/hugepages/hugepages-2048kB",
                "/sys/kernel/tracing/events/kvm/kvm_exit",
                "/proc/self",
                "/sys/class/block/nvme8n1/queue",
            ])
            .map(|(file, directory)| format!("{directory}/{file}"))
            .collect();
        let functions = ["0000:51:00.0", "0000:52:00.0", "0000:39:10.0", "0000:39:10.2"];
        paths.extend(functions.map(|function| format!("{DEVICES}/{function}/driver_override")));
        let mut state: Vec<(String, String)> = paths.into_iter().map(|path| (path.clone(), self.text(&path))).collect();
        let drivers =
            functions.map(|function| (format!("driver of {function}"), format!("{:?}", self.driver(function))));
        state.extend(drivers);
        for directory in ["/sys/class/block", "/sys/class/nvme", "/sys/class/net", "/run/netns"] {
            let mut names = self.names(directory);
            names.sort();
            state.push((directory.to_owned(), names.join(" ")));
        }
        let in_a_bridge = self.exists("/sys/class/net/enp57s0/master");
        state.push(("enp57s0 in a bridge".to_owned(), in_a_bridge.to_string()));
        let guests = self.names("/proc").into_iter().filter(|name| name.starts_with('5')).count();
        state.push(("processes of guests".to_owned(), guests.to_string()));
        state
    }
}

/// The kernel as the readers and writers of the host meet it.
#[derive(Debug)]
pub(super) struct Behind(pub(super) std::sync::Arc<Kernel>);

impl TestKernel for Behind {
    fn reads(&self, path: &str) {
        if path == UUID {
            let number = self.0.uuids.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            self.0.put(UUID, &format!("00000000-0000-4000-8000-{number:012}"));
        }
    }

    fn writes(&self, path: &str, value: &str) -> std::io::Result<()> {
        let kernel = &self.0;
        kernel.fate.step(&format!("write {value:?} to {path}"));
        if !kernel.exists(path) {
            return Err(std::io::ErrorKind::NotFound.into());
        }
        let (directory, file) = path.rsplit_once('/').unwrap_or_default();
        match file {
            "nr_hugepages" => {
                kernel.put(path, value);
                kernel.put(&format!("{directory}/free_hugepages"), value);
            }
            "unbind" => kernel.unbind(value),
            "driver_override" => kernel.put(path, if value == "\n" { "(null)" } else { value }),
            "drivers_probe" => {
                let only = kernel.text(&format!("{DEVICES}/{value}/driver_override"));
                kernel.bind(value, if only == "(null)" { "nvme" } else { &only });
            }
            "trigger" if value.starts_with('!') => kernel.put(TRIGGER, "# Available triggers:"),
            _ if kernel.text(path).contains('[') => {
                let choices = kernel.text(path).replace(['[', ']'], "");
                let chosen = |word: &str| if word == value { format!("[{word}]") } else { word.to_owned() };
                kernel.put(path, &choices.split(' ').map(chosen).collect::<Vec<_>>().join(" "));
            }
            _ => kernel.put(path, value),
        }
        Ok(())
    }
}
