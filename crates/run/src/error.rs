//! Why a run did not come to the end of its command.

use std::path::PathBuf;

use nearmetal_change::ChangeError;
use nearmetal_domain::DomainError;
use nearmetal_fleet::file::FileErrors;
use nearmetal_host::files::FileError;
use nearmetal_hypervisor::HypervisorError;
use nearmetal_image::{FindError, LayerError};
use nearmetal_units::Bytes;

use crate::flavour::UnknownFlavour;

/// An error of this crate: names the thing, the value, the limit and what to do next.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The user may not.
    #[error(
        "system mode takes root, and no service listens at `{}` for users without: run this as root, have root run `systemctl \
         enable --now nearmetal-run.socket`, or leave `--mode system` out for a guest inside this job's control group",
        socket.display()
    )]
    NotRoot {
        /// Where the service would listen.
        socket: PathBuf,
    },
    /// An option that names a path of root's.
    #[error("{option} is the service's to say, which runs as root: leave it out, or leave `--mode system` out")]
    ServiceDecides {
        /// The option.
        option: &'static str,
    },
    /// The flavour is not one for this user.
    #[error(
        "user `{user}` may not have the flavour `{flavour}` from the service: {}",
        match group {
            Some(group) => format!(
                "its `open-to` is the group `{group}`, of which the user is not a member. Take another flavour, or, as root, run \
                 `usermod -aG {group} {user}`"
            ),
            None => "it has no `open-to`, so only root may have it. Take another flavour, or, as root, name a group there".to_owned(),
        }
    )]
    FlavourClosed {
        /// Its name.
        flavour: String,
        /// Who may not.
        user: String,
        /// Whom it is open to.
        group: Option<String>,
    },
    /// The service does not do what it is for.
    #[error("the service that runs guests for users: {0}")]
    Service(String),
    /// Root has no session of libvirt.
    #[error("session mode is for users without root, and libvirt has no session of root: leave `--mode session` out")]
    RootHasNoSession,
    /// Something that a user without root cannot have.
    #[error(
        "the flavour `{flavour}` wants {wanted}, which only root can give it: run this as root (system mode), or {instead}"
    )]
    NotInASession {
        /// Its name.
        flavour: String,
        /// The thing.
        wanted: String,
        /// What to change in the flavour.
        instead: &'static str,
    },
    /// KVM is missing.
    #[error(
        "`{}` is missing: load `kvm_intel` or `kvm_amd`, and if the module does not load, turn virtualisation on in the \
         firmware; in a container, hand the device in",
        device.display()
    )]
    NoKvm {
        /// The device.
        device: PathBuf,
    },
    /// KVM, the directory of reservations or the service's socket is closed to the user.
    #[error(
        "user `{user}` may not use `{}`. As root, run `usermod -aG {group} {user}`, then log in again",
        path.display()
    )]
    Closed {
        /// It.
        path: PathBuf,
        /// The group it is open to.
        group: String,
        /// Who may not.
        user: String,
    },
    /// Nobody has made the directory of reservations for users.
    #[error(
        "session runs register their PUs in `{0}`, which does not exist or only root may use. As root, run: `systemd-tmpfiles \
         --create nearmetal.conf`; without the package, after each boot: `install -d -m 755 {1} && install -d -m 3770 -g {group} \
         {0} && {{ [ -e {0}/lock ] || install /dev/null {0}/lock; }} && chmod 640 {0}/lock && chgrp {group} {0}/lock`",
        path.display(),
        path.parent().unwrap_or(path).display()
    )]
    NoDesk {
        /// It.
        path: PathBuf,
        /// Whom it is opened to.
        group: &'static str,
    },
    /// Somebody else's lock.
    #[error("`{}` belongs to the user `{user}` and not to the owner of its directory: remove it as root", path.display())]
    ForeignLock {
        /// The lock.
        path: PathBuf,
        /// Its owner.
        user: String,
    },
    /// The private daemon does not come up, or its directory cannot be made.
    #[error("cannot start a libvirt daemon for this run: {0}")]
    Session(String),
    /// There is no such flavour.
    #[error(transparent)]
    Flavour(#[from] UnknownFlavour),
    /// There is no flavours file.
    #[error(
        "there is no flavours file `{}`: write one, which may be as short as\n\n    [[flavour]]\n    name = \"tiny\"\n    vcpus = 1\n    \
         memory = \"512 MiB\"\n    boot = \"appliance\"\n\nor name another one (--flavours)",
        path.display()
    )]
    NoFlavoursFile {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The flavours file has mistakes.
    #[error(transparent)]
    FlavoursFile(#[from] FileErrors),
    /// There is no such image.
    #[error(transparent)]
    Image(#[from] FindError),
    /// The image is not one to give to a guest.
    #[error(transparent)]
    Layer(#[from] LayerError),
    /// A guest that boots its disk has none.
    #[error("the flavour `{flavour}` boots its disk, and has no image: name one with --image, or in the flavours file")]
    NoImage {
        /// Its name.
        flavour: String,
    },
    /// An image for a guest that takes none.
    #[error("the flavour `{flavour}` boots the appliance, which has no disk: leave --image out")]
    ImageNotWanted {
        /// Its name.
        flavour: String,
    },
    /// What was given cannot be told.
    #[error("cannot tell what this process was given of the machine: {0}")]
    Given(String),
    /// The limit of memory is below the guest.
    #[error(
        "the flavour `{flavour}` has {memory} of memory{}, and this process was given {limit} (`{file}`), of which other runs \
         leave {left}: ask your batch system for more than {wanted}, or take a smaller flavour",
        if *beside == Bytes::ZERO { String::new() } else { format!(" and needs {beside} beside it") }
    )]
    MemoryLimit {
        /// Its name.
        flavour: String,
        /// Guest memory.
        memory: Bytes,
        /// What QEMU and its daemon need beside it, below the same limit.
        beside: Bytes,
        /// Both.
        wanted: Bytes,
        /// The limit.
        limit: Bytes,
        /// What is left of it beside the guests of other runs under it.
        left: Bytes,
        /// Who sets it.
        file: String,
    },
    /// The PUs given hold too few whole cores.
    #[error(
        "the flavour `{flavour}` wants {wanted} PUs in whole cores, and of PUs {given} {whole} are in cores that are given \
         whole and used by nobody{holders}: ask your batch system for whole cores, or leave `whole-cores` out"
    )]
    WholeCores {
        /// Its name.
        flavour: String,
        /// PUs it wants.
        wanted: u32,
        /// PUs that were given.
        given: String,
        /// PUs in whole cores that are free.
        whole: usize,
        /// Who has others.
        holders: String,
    },
    /// It does not fit.
    #[error("no room for the flavour `{flavour}`: {problem}{holders}; it takes {remedy}")]
    NoRoom {
        /// Its name.
        flavour: String,
        /// What is missing, with both numbers.
        problem: String,
        /// Runs that have PUs.
        holders: String,
        /// The smallest change that would make room.
        remedy: String,
    },
    /// The machine has no such pool.
    #[error(
        "the flavour `{flavour}` wants pages of {wanted}, and this machine has no pool of them: take another `page-size`, or \
         boot with hugepagesz={wanted}"
    )]
    NoPool {
        /// Its name.
        flavour: String,
        /// Their size.
        wanted: Bytes,
    },
    /// A reservation of another version, or a damaged one.
    #[error(
        "cannot read the reservation `{}` of user `{user}`: it is damaged, or from another version of nearmetal. Wait until its \
         run has ended; if its guest (named as the file) and its process are gone, remove the file",
        path.display()
    )]
    UnknownReservation {
        /// Its file.
        path: PathBuf,
        /// Its owner.
        user: String,
    },
    /// Others hold the lock.
    #[error(
        "another process has held `{0}` for {seconds} s. `lslocks` or, as root, `fuser -v {0}` shows which",
        path.display()
    )]
    Locked {
        /// The lock.
        path: PathBuf,
        /// How long was waited.
        seconds: u64,
    },
    /// A file of nearmetal's own.
    #[error(transparent)]
    File(#[from] FileError),
    /// User data for a guest that has no cloud-init.
    #[error("the flavour `{flavour}` boots the appliance, which reads no user data: leave --user-data out")]
    UserDataNotWanted {
        /// Its name.
        flavour: String,
    },
    /// Meta-data that an instance cannot be set ahead of.
    #[error("cannot use the meta-data in `{}`: {reason}", path.display())]
    MetaData {
        /// Its file.
        path: PathBuf,
        /// Why, and what to do.
        reason: String,
    },
    /// The bridge that it hangs on is missing.
    #[error(
        "the flavour `{flavour}` hangs on the bridge `{bridge}`, {problem}: make it (`ip link add NAME type bridge`), or name \
         another in the flavours file"
    )]
    Bridge {
        /// Its name.
        flavour: String,
        /// The bridge's.
        bridge: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The port whose virtual function it wants has none to give.
    #[error("the flavour `{flavour}` wants a virtual function of the port `{port}`, {problem}")]
    Port {
        /// Its name.
        flavour: String,
        /// The port's.
        port: String,
        /// What is wrong with it, and what to do.
        problem: String,
    },
    /// Others have all virtual functions of the port.
    #[error(
        "no virtual function of the port `{port}` is free for the flavour `{flavour}` ({taken}): wait until one is given back, or \
         name another port in the flavours file"
    )]
    NoFunction {
        /// Its name.
        flavour: String,
        /// The port's.
        port: String,
        /// Who has each, or what else is in the way of it.
        taken: String,
    },
    /// A signal came before there was a guest.
    #[error("signal {0} ended the run before it had a guest")]
    Interrupted(i32),
    /// A disk of the guest cannot be made, or not opened as it must be.
    #[error("cannot use {what} in `{}`: {reason}", directory.display())]
    Disk {
        /// What it was to be.
        what: &'static str,
        /// Where.
        directory: PathBuf,
        /// Why, and what to do.
        reason: String,
    },
    /// The definition cannot be made.
    #[error("cannot define the guest: {0}")]
    Definition(#[from] DomainError),
    /// Planning, or a pool.
    #[error(transparent)]
    Change(#[from] ChangeError),
    /// libvirt or the agent.
    #[error(transparent)]
    Hypervisor(#[from] HypervisorError),
    /// The guest is not as planned.
    #[error("the guest does not run as it was planned, and was ended:\n  {}", differences.join("\n  "))]
    ReadBack {
        /// Each thing that differs.
        differences: Vec<String>,
    },
    /// The guest is gone.
    #[error("the guest ended before {before}: QEMU was killed, the guest shut itself down, or it crashed{console}")]
    GuestEnded {
        /// What had not happened yet.
        before: &'static str,
        /// Where to look.
        console: String,
    },
    /// Its console was wanted.
    #[error("cannot follow the guest's console: {0}; without --console the run does without it")]
    Console(String),
    /// Its agent never answered.
    #[error(
        "the guest's agent did not answer within {seconds} s: is qemu-guest-agent in the image, and is `boot-limit` long \
         enough? ({last})"
    )]
    NoAgent {
        /// The limit.
        seconds: u64,
        /// What was heard last.
        last: String,
    },
    /// The agent answers no more.
    #[error(
        "the guest's agent has not answered for {seconds} s while the command ran; how that ended is unknown ({last})"
    )]
    AgentLost {
        /// How long.
        seconds: u64,
        /// What was heard last.
        last: String,
    },
    /// The command does not reach the guest.
    #[error(
        "the command and its arguments take {bytes} bytes on their way to the guest's agent, and {limit} is the limit: put \
         them into a file of the guest, or into its user data"
    )]
    CommandTooLong {
        /// As JSON, with what nearmetal adds.
        bytes: usize,
        /// The most.
        limit: usize,
    },
    /// The command has no code.
    #[error("the command gave no exit code: {0}")]
    NoCode(String),
    /// Something of the run is still there.
    #[error("{what} could not be given back: {reason}; the next `nearmetal run` tries again")]
    NotGivenBack {
        /// The thing.
        what: String,
        /// Why.
        reason: String,
    },
}

impl RunError {
    /// Whether it is about what the user named, and not about this machine.
    pub fn is_wrong_use(&self) -> bool {
        match self {
            Self::Flavour(_)
            | Self::NoFlavoursFile { .. }
            | Self::FlavoursFile(_)
            | Self::Image(_)
            | Self::NoImage { .. }
            | Self::ImageNotWanted { .. }
            | Self::UserDataNotWanted { .. }
            | Self::MetaData { .. }
            | Self::CommandTooLong { .. } => true,
            Self::File(error) => error.action == "read",
            _ => false,
        }
    }

    /// Whether libvirt, or the way to it, was lost: another connection must give the guest back.
    pub fn lost_libvirt(&self) -> bool {
        matches!(
            self,
            Self::Hypervisor(
                HypervisorError::ConnectionLost { .. }
                    | HypervisorError::HelperStopped { .. }
                    | HypervisorError::Timeout { .. }
                    | HypervisorError::Protocol { .. }
                    | HypervisorError::Unreachable { .. }
            )
        )
    }
}
