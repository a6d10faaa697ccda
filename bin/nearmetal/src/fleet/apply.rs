//! A fleet's plan in force: ask every host whether it can, then change one after the other.

use nearmetal_change::FleetPlanFile;

use super::over_hosts::{self, Errand};
use crate::commands::apply::Args;
use crate::commands::shared::{Format, agreed};
use crate::exit_status::ExitStatus;
use crate::printer::Printer;

/// Runs `nearmetal apply` with the plan of a fleet.
pub(crate) fn run(args: &Args, plan: &FleetPlanFile, printer: &mut Printer) -> ExitStatus {
    if plan.hosts.is_empty() {
        printer.say("no host changes by this plan: nothing was done");
        return ExitStatus::Done;
    }
    // All are asked before any is changed: a host that cannot should not leave half a fleet behind.
    let errand = Errand { arguments: arguments(args, &["--dry-run"]), reverse: false, stop_at_first: false };
    let able = over_hosts::run(plan, &errand, printer);
    if args.is_dry_run() || over_hosts::status(&able) != ExitStatus::Done {
        over_hosts::show(&able, "can be done", "cannot be done", args.format, printer);
        if !args.is_dry_run() {
            printer.important("nothing was changed on any host");
        }
        return over_hosts::status(&able);
    }
    if !args.yes {
        over_hosts::show(&able, "can be done", "cannot be done", Format::Text, printer);
    }
    if !agreed(args.yes, printer) {
        printer.important("nothing was changed");
        return ExitStatus::WrongUse;
    }
    let mut options = vec!["--yes", "--rollback-on-mismatch"];
    options.extend((args.format == Format::Json).then_some("--format=json"));
    let errand = Errand { arguments: arguments(args, &options), reverse: false, stop_at_first: true };
    let outcomes = over_hosts::run(plan, &errand, printer);
    over_hosts::show(&outcomes, "in force", "not as planned, and taken back", args.format, printer);
    let status = over_hosts::status(&outcomes);
    if status == ExitStatus::Done {
        printer.say("in force on all hosts; `nearmetal rollback --plan FILE` takes it back");
    } else {
        printer.important("hosts that are in force stay so; `nearmetal rollback --plan FILE` takes them back too");
    }
    status
}

/// What each host is asked, with the options that concern it.
fn arguments(args: &Args, more: &[&str]) -> Vec<String> {
    let mut words = vec!["apply".to_owned(), "-".to_owned()];
    for (given, option) in [(args.restart, "--restart"), (args.live_only, "--live-only"), (args.start, "--start")] {
        words.extend(given.then(|| option.to_owned()));
    }
    words.push(format!("--shutdown-timeout={}", args.shutdown_timeout));
    words.push(format!("--agent-timeout={}", args.agent_timeout));
    words.extend(more.iter().map(|word| (*word).to_owned()));
    words
}
