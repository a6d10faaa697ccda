//! `nearmetal doctor --fix`: shows what is to be done, asks, does it through the journal, looks again.

use nearmetal_change::fix::{CureJob, Findings, FixPlan, cure, plan};
use nearmetal_change::{ChangeError, Faults, HostIdentity, Journal, Machine, fault_points};
use nearmetal_host::HostFs;
use nearmetal_hypervisor::{Hypervisor, Libvirt};
use nearmetal_rules::{Examination, Input, RULES, Rule, Settings, Severity, WorkloadClass, examine};

use super::fix_report::{Again, FixReport, json, text};
use super::named::known;
use super::{Gathered, gather};
use crate::consent::agreed;
use crate::exit_status::ExitStatus;
use crate::printer::Printer;
use crate::refusal::{NoLibvirt, refuse_beside, refuse_beside_a_measurement, refuse_dry_run_beside_a_measurement};
use crate::state::StateArgs;
use crate::style::Format;

/// How what was found is cured.
#[derive(Debug, clap::Args)]
pub(crate) struct FixArgs {
    /// Fix what was found, or only what these rules found; `nearmetal rollback` undoes it
    #[arg(long, value_name = "RULE", num_args = 0.., value_parser = known,
          conflicts_with_all = ["xml", "capture", "only", "list", "explain", "watch", "guest_capture", "guests", "image_info"])]
    fix: Option<Vec<&'static Rule>>,
    /// Show what --fix would change, and change nothing
    #[arg(long, requires = "fix")]
    dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long, short, requires = "fix")]
    yes: bool,
    /// For tests: print the points at which NEARMETAL_FAULT_AT (with NEARMETAL_TESTING=1) can end the process
    #[arg(long, requires = "fix", hide_short_help = true)]
    list_fault_points: bool,
    #[command(flatten)]
    state: StateArgs,
}

impl FixArgs {
    /// Whether anything is to be cured.
    pub(crate) fn is_wanted(&self) -> bool {
        self.fix.is_some()
    }

    /// Where changes of this machine are written down.
    pub(crate) fn journal(&self) -> Journal {
        self.state.journal()
    }
}

/// Runs the command.
pub(crate) fn fix(
    args: &FixArgs,
    class: Option<WorkloadClass>,
    settings: &Settings,
    fail_on: Option<Severity>,
    format: Format,
    printer: &mut Printer,
) -> ExitStatus {
    let mut run = Run { args, class, settings, fail_on, format, printer };
    match run.run() {
        Ok(status) => status,
        Err(error) => refuse_beside(run.printer, error, &run.args.journal()),
    }
}

struct Run<'a> {
    args: &'a FixArgs,
    class: Option<WorkloadClass>,
    settings: &'a Settings,
    fail_on: Option<Severity>,
    format: Format,
    printer: &'a mut Printer,
}

/// Reads this machine and runs all rules over it.
fn look(class: Option<WorkloadClass>, settings: &Settings) -> Result<(Gathered, Examination), ChangeError> {
    let gathered = gather(&[], None, class).map_err(ChangeError::Kernel)?;
    let examination = examine(&input(&gathered, settings), RULES);
    Ok((gathered, examination))
}

impl Run<'_> {
    fn run(&mut self) -> Result<ExitStatus, ChangeError> {
        let journal = self.args.state.journal();
        let (gathered, examination) = look(self.class, self.settings)?;
        for problem in &gathered.bad_domains {
            self.printer.important(&format!("error: {problem}"));
        }
        let files = HostFs::live();
        let mut libvirt: Box<dyn Hypervisor> = match &gathered.domains_unknown {
            None => Box::new(Libvirt::open(None)?),
            Some(why) => {
                self.printer.say(&format!("domains were not checked: {why}"));
                Box::new(NoLibvirt { reason: why.clone() })
            }
        };
        let mut machine = Machine::here(&files, &mut *libvirt, HostIdentity::of(&gathered.host))?;
        let rules: Vec<&str> = self.args.fix.iter().flatten().map(|rule| rule.id).collect();
        let input = input(&gathered, self.settings);
        let findings = Findings { input: &input, examination: &examination, rules: &rules };
        let state = journal.state_directory();
        let agreed_to = plan(&mut machine, findings, state)?;
        if self.args.list_fault_points {
            self.printer.data(&fault_points(&agreed_to.changes).join("\n"));
            return Ok(ExitStatus::Done);
        }
        if self.args.dry_run || agreed_to.changes.is_empty() {
            if !self.args.dry_run {
                self.printer.say("nothing to change");
            }
            let report = FixReport::planned(&agreed_to, self.fail_on);
            self.show(&report);
            if !agreed_to.changes.is_empty() {
                refuse_dry_run_beside_a_measurement(&journal, &files)?;
            }
            return Ok(report.status(&gathered));
        }
        refuse_beside_a_measurement(&journal, &files)?;
        self.announce(&agreed_to);
        if !agreed(self.args.yes, self.printer) {
            self.printer.important("nothing changed");
            return Ok(ExitStatus::WrongUse);
        }
        let mut plan_again = |machine: &mut Machine<'_>| plan(machine, findings, state);
        let (class, settings, fail_on) = (self.class, self.settings, self.fail_on);
        let mut read_back = |_: &mut Machine<'_>| {
            let again = look(class, settings).and_then(|(after, examination)| match &after.domains_unknown {
                Some(why) if gathered.domains_unknown.is_none() => Err(ChangeError::Kernel(why.clone())),
                _ => Ok(Again { examination, bad_domains: after.bad_domains }),
            });
            let report = FixReport::read_back(&agreed_to, &examination, again, fail_on);
            (report.mismatches(), report)
        };
        let faults = Faults::from_environment();
        let mut say = |text: &str| self.printer.say(text);
        let job = CureJob {
            journal: &journal,
            plan: &agreed_to,
            plan_again: &mut plan_again,
            read_back: &mut read_back,
            faults: &faults,
            say: &mut say,
        };
        let cured = cure(&mut machine, job)?;
        let report = cured.read_back.in_transaction(cured.transaction);
        for bad in report.unread().iter().filter(|bad| !gathered.is_bad(&bad.name)) {
            self.printer.important(&format!("error: {bad}"));
        }
        self.show(&report);
        self.printer.say(&format!("transaction {}: `nearmetal rollback` undoes it", cured.transaction));
        Ok(report.status(&gathered))
    }

    /// What is about to be done.
    fn announce(&mut self, plan: &FixPlan) {
        self.printer.say("changes to make:");
        for (number, change) in (1..).zip(&plan.changes) {
            self.printer.say(&format!("  {number}. {change}"));
        }
        for sentence in plan.lifetimes() {
            self.printer.say(&format!("  ({sentence})"));
        }
        let report = FixReport::planned(plan, self.fail_on);
        self.printer.say(text(&report).trim_end());
    }

    fn show(&mut self, report: &FixReport) {
        match self.format {
            Format::Text => self.printer.data(&text(report)),
            Format::Json => self.printer.data(&json(report)),
        }
    }
}

fn input<'a>(gathered: &'a Gathered, settings: &'a Settings) -> Input<'a> {
    Input { host: Some(&gathered.host), domains: &gathered.domains, settings }
}
