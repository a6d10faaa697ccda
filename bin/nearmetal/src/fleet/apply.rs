//! A fleet's plan in force: ask every host whether it can, then change one after the other.

use nearmetal_change::FleetPlanFile;

use super::over_hosts::{self, Errand};
use crate::consent::agreed;
use crate::exit_status::ExitStatus;
use crate::printer::Printer;
use crate::style::Format;

/// What `nearmetal apply` was asked for, as far as hosts are told of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Order {
    /// Nothing is to be changed.
    pub(crate) dry_run: bool,
    /// Guests may be restarted.
    pub(crate) restart: bool,
    /// Guests are left running, and the rest comes with their next start.
    pub(crate) live_only: bool,
    /// Guests that are off are started.
    pub(crate) start: bool,
    /// Seconds a guest may take to shut down.
    pub(crate) shutdown_timeout: u64,
    /// Seconds a started guest may take until its agent answers.
    pub(crate) agent_timeout: u64,
    /// Nobody is asked.
    pub(crate) yes: bool,
    /// How the read-back is shown.
    pub(crate) format: Format,
}

/// Runs `nearmetal apply` with the plan of a fleet.
pub(crate) fn run(order: &Order, plan: &FleetPlanFile, printer: &mut Printer) -> ExitStatus {
    if plan.hosts.is_empty() {
        printer.say("this plan changes no host: nothing to do");
        return ExitStatus::Done;
    }
    // All are asked before any is changed: a host that cannot should not leave half a fleet behind.
    let errand = Errand { arguments: arguments(order, &["--dry-run"]), reverse: false, stop_at_first: false };
    let able = over_hosts::run(plan, &errand, printer);
    if order.dry_run || over_hosts::status(&able) != ExitStatus::Done {
        over_hosts::show(&able, "ready", "not ready", order.format, printer);
        if !order.dry_run {
            printer.important("nothing changed on any host");
        }
        return over_hosts::status(&able);
    }
    if !order.yes {
        over_hosts::show(&able, "ready", "not ready", Format::Text, printer);
    }
    if !agreed(order.yes, printer) {
        printer.important("nothing changed");
        return ExitStatus::WrongUse;
    }
    let mut options = vec!["--yes", "--rollback-on-mismatch"];
    options.extend((order.format == Format::Json).then_some("--format=json"));
    let errand = Errand { arguments: arguments(order, &options), reverse: false, stop_at_first: true };
    let outcomes = over_hosts::run(plan, &errand, printer);
    over_hosts::show(
        &outcomes,
        "in force",
        "not as planned; nothing that this changed is left there",
        order.format,
        printer,
    );
    let status = over_hosts::status(&outcomes);
    let restart = if order.restart || order.start { " --restart" } else { "" };
    if status == ExitStatus::Done {
        printer.say(&format!("applied on all hosts; `nearmetal rollback --plan FILE{restart}` undoes it"));
        printer.say("to check later that it still holds: nearmetal verify --plan FILE");
    } else {
        printer.important(&format!(
            "hosts already changed keep the plan; `nearmetal rollback --plan FILE{restart}` rolls them back too"
        ));
    }
    status
}

/// What each host is asked, with the options that concern it.
fn arguments(order: &Order, more: &[&str]) -> Vec<String> {
    let mut words = vec!["apply".to_owned(), "-".to_owned()];
    for (given, option) in [(order.restart, "--restart"), (order.live_only, "--live-only"), (order.start, "--start")] {
        words.extend(given.then(|| option.to_owned()));
    }
    words.push(format!("--shutdown-timeout={}", order.shutdown_timeout));
    words.push(format!("--agent-timeout={}", order.agent_timeout));
    words.extend(more.iter().map(|word| (*word).to_owned()));
    words
}
