//! `./dev bench image`: real pushes between network namespaces, each with a link of its own, with and without faults.
//!
//! Needs root, `ip` and `tc` (iproute2), and a built `nearmetal`. Nothing of the program is replaced but `ssh`: a script
//! that reaches a stand-in for sshd through the same shaped links. Faults come from outside: signals, links, disks, and a
//! proxy that flips a byte. All namespaces share one machine's processors and memory, which real hosts do not.
#![allow(clippy::print_stdout, clippy::print_stderr, clippy::exit, clippy::disallowed_methods, missing_docs)]
#![allow(clippy::unwrap_used, reason = "a rig: what fails ends it")]

mod cases;
mod network;
mod openssh;
mod peers;
mod run;
mod stand_ins;
mod updated;

use std::path::PathBuf;

use network::Network;

pub(crate) struct Options {
    pub(crate) hosts: usize,
    pub(crate) mebibytes: u64,
    pub(crate) mbit: u64,
    pub(crate) repeat: usize,
    pub(crate) only: Option<String>,
    pub(crate) program: PathBuf,
    /// A base image, and the same after an upgrade: these two instead of the cases.
    pub(crate) upgrade: Option<(PathBuf, PathBuf)>,
}

const USAGE: &str = "./dev bench image [--hosts 4] [--mib 64] [--mbit 100] [--repeat 1] [--only CASE] [--program nearmetal] [--upgrade BASE UPGRADED]";

fn main() {
    let mut words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    if let Some(role) = words.first().cloned().filter(|word| !word.starts_with("--")) {
        words.remove(0);
        return stand_ins::run(&role, &words);
    }
    let here = std::env::current_exe().unwrap();
    // target/PROFILE/deps/image-… beside target/debug/nearmetal.
    let built = here.ancestors().nth(3).map(|target| target.join("debug/nearmetal"));
    let program = built.unwrap_or_default();
    let mut options = Options { hosts: 4, mebibytes: 64, mbit: 100, repeat: 1, only: None, program, upgrade: None };
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().unwrap_or_else(|| fail(USAGE));
        match word.as_str() {
            "--hosts" => options.hosts = value().parse().unwrap_or_else(|_| fail(USAGE)),
            "--mib" => options.mebibytes = value().parse().unwrap_or_else(|_| fail(USAGE)),
            "--mbit" => options.mbit = value().parse().unwrap_or_else(|_| fail(USAGE)),
            "--repeat" => options.repeat = value().parse().unwrap_or_else(|_| fail(USAGE)),
            "--only" => options.only = Some(value()),
            "--upgrade" => options.upgrade = Some((value().into(), value().into())),
            "--program" => options.program = value().into(),
            _ => fail(USAGE),
        }
    }
    if !rustix::process::geteuid().is_root() {
        fail("this makes network namespaces: run it as root");
    }
    if !(4..=200).contains(&options.hosts) {
        fail("--hosts: from 4 to 200");
    }
    if !options.program.is_file() {
        fail(&format!("`{}` is missing: run ./dev build first", options.program.display()));
    }
    let network = Network::up(&options);
    let good = match &options.upgrade {
        Some((base, upgraded)) => updated::both(&network, base, upgraded),
        None => cases::all(&options, &network),
    };
    drop(network);
    std::process::exit(i32::from(!good));
}

pub(crate) fn fail(why: &str) -> ! {
    eprintln!("error: {why}");
    std::process::exit(2);
}
