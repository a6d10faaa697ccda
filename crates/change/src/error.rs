//! What can go wrong while a plan is read, put in force or taken back.

use std::path::PathBuf;

use nearmetal_hypervisor::HypervisorError;

/// An error of this crate: names the thing, the value, the limit and what to do next.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// The plan file is not one.
    #[error(
        "{origin} is not a plan that this version understands: {problem}; write one with `nearmetal plan DOMAIN -o \
         FILE`"
    )]
    PlanUnreadable {
        /// The file, or where else the text came from.
        origin: String,
        /// What is wrong in it.
        problem: String,
    },
    /// The plan was made for another machine.
    #[error(
        "this plan is for the host `{planned_name}` (fingerprint {planned}), but this host is `{found_name}` \
         (fingerprint {found}): run `nearmetal plan` here"
    )]
    OtherHost {
        /// Host name in the plan.
        planned_name: String,
        /// Fingerprint in the plan, shortened.
        planned: String,
        /// This host's name.
        found_name: String,
        /// This host's fingerprint, shortened.
        found: String,
    },
    /// Something the plan needs is not so; nothing was changed.
    #[error("nothing changed:\n  {}", problems.join("\n  "))]
    Preconditions {
        /// All that is in the way, each with what to do.
        problems: Vec<String>,
    },
    /// A running guest would have to stop.
    #[error(
        "nothing changed: {}; add --restart to let nearmetal shut the guest down (guest agent, then ACPI, never by \
         force) and start it again{}",
        .reasons.join("; "),
        if *.live_possible { ", or --live-only to change the rest now and this at the guest's next start" } else { "" }
    )]
    RestartNeeded {
        /// One line per guest: its name and the parts that need it.
        reasons: Vec<String>,
        /// Whether `--live-only` would be an answer.
        live_possible: bool,
    },
    /// A domain cannot be composed into a plan.
    #[error("cannot plan `{domain}`: {problem}")]
    Compose {
        /// Its name.
        domain: String,
        /// What is missing or contradictory.
        problem: String,
    },
    /// Another process writes.
    #[error("another nearmetal is changing this machine (process {holder}): wait until it ends, then try again")]
    Busy {
        /// Its process id, as it left it in the lock file.
        holder: String,
    },
    /// An earlier transaction did not end.
    #[error(
        "transaction {transaction}, started {started}, is unfinished (a crash, a kill or a power loss): run `nearmetal \
         rollback --restart` to restore the former state, or `nearmetal rollback --forget` to leave things as they are"
    )]
    Unfinished {
        /// Its number.
        transaction: u32,
        /// When it began.
        started: String,
    },
    /// The journal cannot be used.
    #[error("the journal `{}` is damaged at line {line}: {problem}; the lines before it are intact: keep a copy of \
        the file and ask for help", path.display())]
    JournalDamaged {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// What is wrong.
        problem: String,
    },
    /// No transaction of that number, or none at all.
    #[error("{0}")]
    NothingToRollBack(String),
    /// A later transaction changed the same things, or stands on them.
    #[error(
        "cannot roll back transaction {transaction} before transaction {later}, which changed or uses {object} too: \
         roll back {later} first"
    )]
    LaterTransaction {
        /// The one asked for.
        transaction: u32,
        /// The later one.
        later: u32,
        /// What both are about.
        object: String,
    },
    /// Rolling back means stopping a guest.
    #[error(
        "nothing changed: {} with the definition that you want to undo, and only a restart brings the old one back; \
         add --restart, or --keep-running to leave that to the next start", .guests.join(" and ")
    )]
    RollbackNeedsRestart {
        /// "`name` runs", one each.
        guests: Vec<String>,
    },
    /// The kernel gave fewer pages than asked.
    #[error(
        "node {node} gave {got} of {wanted} pages of {size} after {attempts} attempts with memory compaction in \
         between: free memory on that node, or reserve the pages on the kernel command line"
    )]
    PoolTooSmall {
        /// Node.
        node: u32,
        /// Page size.
        size: nearmetal_units::PageSize,
        /// Persistent pages asked for.
        wanted: u64,
        /// Persistent pages it has.
        got: u64,
        /// How often it was tried.
        attempts: u32,
    },
    /// A written value reads back as something else.
    #[error("`{object}` was set to `{wanted}` and reads back as `{found}`")]
    NotTaken {
        /// What was written.
        object: String,
        /// What was to be.
        wanted: String,
        /// What is.
        found: String,
    },
    /// A kernel value is missing or makes no sense.
    #[error("{0}")]
    Kernel(String),
    /// A kernel value cannot be written.
    #[error(transparent)]
    KernelWrite(#[from] nearmetal_host::WriteError),
    /// An own file failed.
    #[error(transparent)]
    File(#[from] nearmetal_host::files::FileError),
    /// libvirt, QEMU or the agent.
    #[error(transparent)]
    Hypervisor(#[from] HypervisorError),
    /// apply failed and took everything back.
    #[error("{cause}; everything was rolled back (transaction {transaction})")]
    TakenBack {
        /// The failure.
        cause: Box<ChangeError>,
        /// The transaction.
        transaction: u32,
    },
    /// apply failed, and so did taking it back.
    #[error(
        "{cause}; the rollback failed too: {second}; remove the cause, then run `nearmetal rollback --restart`, or \
         `nearmetal rollback --keep-running` for a guest that does not shut down (transaction {transaction})"
    )]
    NotTakenBack {
        /// The first failure.
        cause: Box<ChangeError>,
        /// The failure of the rollback.
        second: Box<ChangeError>,
        /// The transaction.
        transaction: u32,
    },
    /// A test asked for it.
    #[error("stopped at the fault point `{point}`")]
    Fault {
        /// Its name.
        point: String,
    },
}
