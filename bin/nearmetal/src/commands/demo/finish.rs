//! The report of a demo: made, and looked at before anybody is told where it is.

use std::path::Path;

use anyhow::bail;
use nearmetal_host::files;
use nearmetal_report::{Summary, summary_violations};
use nearmetal_results::{Environment, Results};

use super::course::Course;
use super::job::{GUEST, Job};
use super::length::{Length, shortened};
use crate::commands::report;
use crate::exit_status::ExitStatus;
use crate::job::manifest::{JOB_SCHEMA, Manifest};
use crate::printer::Printer;

/// The lab's machine, where no results name it.
const MACHINE: &str = "quad";

/// Makes the report of what there is. Trouble is in the course, an arm that lost samples among it.
pub(super) fn finish(job: &Job<'_>, course: &mut Course<'_>) {
    let page = job.output.join("report.html");
    let page = std::path::absolute(&page).unwrap_or(page);
    // Without a plan there is nothing to report on, and the stage that gave none has said why.
    if !job.output.join("plan.json").is_file() {
        return course.next(format!("there is no report: the job ended before `{GUEST}` had a plan"));
    }
    let manifest = manifest(job, course);
    let made = course.stage("report", |printer| {
        manifest.save(job.output)?;
        render(job.output, printer)
    });
    let Some(summary) = made else {
        course.next(format!("once its cause is gone, `nearmetal report {}` makes the report", job.output.display()));
        return;
    };
    for arm in &summary.incomplete {
        let (name, failed, samples, why) = (&arm.arm, arm.failed, arm.samples, &arm.why);
        course.found(format!("the arm `{name}` is incomplete: {failed} of {samples} samples failed: {why}"));
    }
    if summary.rolled_back == Some(false) {
        course.found("the rollback did not find the former state again: see `Rolled back` in the report".to_owned());
    }
    course.printer.say(&format!("the report: {}", page.display()));
}

/// Makes the report, and reads back what was written.
fn render(output: &Path, printer: &mut Printer) -> anyhow::Result<Summary> {
    match report::report(report::Args::of_job(output), printer)? {
        ExitStatus::Done => {}
        _ => bail!("`nearmetal report {}` made no report; its words are above", output.display()),
    }
    let page = output.join("report.html");
    if !files::read_to_string(&page)?.trim_end().ends_with("</html>") {
        bail!("`{}` is cut off: is there room on its disk?", page.display());
    }
    let summary = output.join("summary.json");
    let text = files::read_to_string(&summary)?;
    if let Some(violation) = summary_violations(&text).first() {
        bail!("`{}` does not keep its schema: {violation}", summary.display());
    }
    Ok(serde_json::from_str(&text)?)
}

fn manifest(job: &Job<'_>, course: &Course<'_>) -> Manifest {
    // What is wrong with the results is the report's to say: it names the field.
    let results = files::read_to_string(&job.output.join("results.json")).ok();
    let results = results.and_then(|text| Results::parse(&text).ok());
    let environment = match &results {
        Some(results) => results.environment.clone(),
        None => Environment::Lab { machine: MACHINE.to_owned() },
    };
    let place = match &environment {
        Environment::Lab { machine } => machine.clone(),
        Environment::Silicon => "silicon".to_owned(),
    };
    let short = if *job.length == Length::SHORT { " --short" } else { "" };
    Manifest {
        schema: JOB_SCHEMA.to_owned(),
        title: format!("{GUEST} on {place}"),
        created: nearmetal_change::timestamp::now(),
        environment,
        quick: true,
        shortened: results.as_ref().map(shortened).unwrap_or_default(),
        stages: course.stages.clone(),
        reproduce: vec![format!("./dev demo{short}")],
        caveats: course.trouble().map(|what| format!("Trouble in this job: {what}")).collect(),
        sample_data: false,
    }
}
