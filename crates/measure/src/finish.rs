//! The end of every experiment: its runs and what is known of them, as one document.

use nearmetal_cost::MODELLED_TIME;
use nearmetal_hypervisor::Hypervisor;
use nearmetal_load::Workload;
use nearmetal_results::{Arm, Begun, Environment, Results, Run, SCHEMA, Slice, as_json};
use serde::Serialize;

use crate::conditions::Conditions;
use crate::engine::{Design, Path, Session, Site, Subject, Tenant, carry_out};
use crate::error::MeasureError;
use crate::log::Log;

/// What a reader of figures from a lab must know.
pub(crate) fn lab_caveat(environment: &Environment) -> Option<String> {
    let Environment::Lab { machine } = environment else { return None };
    Some(format!(
        "lab: emulated time. The machine `{machine}` is software; its figures show instruction paths, not silicon"
    ))
}

/// How modelled time was reckoned, where a run has it.
fn model_caveat(runs: &[Run], session: &Session<'_>) -> Option<String> {
    let is_there = runs.iter().any(|run| run.value(MODELLED_TIME).is_some());
    let model = session.fs.lab_time_model().filter(|_| is_there)?.ok()?;
    Some(format!("`{MODELLED_TIME}` is reckoned, not measured: {}", model.formula()))
}

/// What a guest uses beside its slice.
pub(crate) fn on_top_caveat(slice: &Slice, for_what: &str) -> Option<String> {
    (!slice.cpus_on_top.is_empty()).then(|| {
        format!(
            "the guest also uses PUs {} for its emulator thread and {for_what}: what virtualization costs on top of the slice",
            slice.cpus_on_top
        )
    })
}

/// What an experiment is asked to do: plain data, which the store keeps so that the experiment can go on.
pub(crate) trait Request: Serialize {
    /// What it leaves.
    type Outcome: Serialize;

    /// Under what it is made.
    fn conditions(&self) -> &Conditions;

    /// The guests it is about.
    fn guests(&self) -> Vec<String>;

    /// What a plan finds its result by: the model of what was measured.
    fn device(&self, _: &Session<'_>) -> Option<String> {
        None
    }

    /// What can be seen before anything is touched.
    ///
    /// # Errors
    /// It cannot be done, and why.
    fn check(&self) -> Result<(), MeasureError> {
        Ok(())
    }

    /// Does it.
    ///
    /// # Errors
    /// Its own; everything is put back all the same.
    fn measure(&self, session: &mut Session<'_>) -> Result<Self::Outcome, MeasureError>;

    /// The arm that won, by its id, where arms raced.
    fn winner(_: &Self::Outcome) -> Option<&str> {
        None
    }

    /// What is left to do once everything was put back, whatever came of it.
    fn afterwards(&self, _: &mut dyn Hypervisor) {}
}

/// Runs an experiment in a session, with every run written down as the conditions say, and its document at the end.
///
/// # Errors
/// The experiment's own, which the store keeps beside what was written down until then.
pub(crate) fn in_a_session<R: Request>(word: &str, request: &R, site: Site<'_>) -> Result<R::Outcome, MeasureError> {
    request.check()?;
    let conditions = request.conditions();
    let Site { fs, hypervisor, tell } = site;
    let site = Site { fs, hypervisor: &mut *hypervisor, tell };
    let result = Session::run(conditions, site, |session| {
        let versions = session.versions();
        let begun = Begun {
            created: nearmetal_change::timestamp::now(),
            experiment: word,
            guests: request.guests(),
            environment: &conditions.environment,
            kernel: session.host.system.kernel.clone().unwrap_or_else(|| "unknown".to_owned()),
            qemu: versions.map_or_else(|| "unknown".to_owned(), |versions| versions.hypervisor),
            device: request.device(session),
            plan: conditions.plan.clone(),
            request: as_json(request),
        };
        if let Some(log) = Log::open(conditions, &begun)? {
            session.log_to(log);
        }
        let result = request.measure(session);
        match (&result, session.log()) {
            (Ok(outcome), Some(log)) => log.finish(&as_json(outcome), R::winner(outcome))?,
            (Err(error), Some(log)) => log.give_up(&crate::engine::chain(error))?,
            (_, None) => {}
        }
        result
    });
    request.afterwards(hypervisor);
    result
}

impl From<Tenant> for nearmetal_results::Tenant {
    fn from(tenant: Tenant) -> Self {
        Self { guest: tenant.guest, slice: tenant.slice, placement: tenant.placement, load: tenant.load }
    }
}

/// Carries out a design and makes the document of it.
pub(crate) struct Experiment<'s> {
    /// Which.
    pub experiment: &'static str,
    /// Guests stay up between rounds.
    pub quick: bool,
    /// The arms as they run; taken once all have run, since some are booted for their turn.
    pub arms: Vec<Arm>,
    /// The tenants.
    pub tenants: Vec<Tenant>,
    /// The least overlap of a sample of several tenants that counts.
    pub least_overlap: Option<f64>,
    /// What a reader must know, beside the session's notes.
    pub caveats: Vec<String>,
    /// What runs, for the record of arguments.
    pub workloads: Vec<Workload>,
    /// Facts for the record beside those of every experiment.
    pub facts: Vec<(String, String)>,
    /// How the tenants get to what they work on.
    pub path: &'s mut dyn Path,
}

impl Experiment<'_> {
    /// The runs of one design.
    pub(crate) fn runs(
        &mut self,
        design: &mut dyn Design,
        session: &mut Session<'_>,
    ) -> Result<Vec<Run>, MeasureError> {
        let mut subject = Subject {
            arms: self.arms.iter().map(|arm| arm.name.clone()).collect(),
            tenants: self.tenants.clone(),
            path: &mut *self.path,
            least_overlap: self.least_overlap.unwrap_or(0.0),
        };
        let runs = carry_out(design, &mut subject, session)?;
        self.path.read_back(&mut self.arms);
        Ok(runs)
    }

    /// The document, written into the store where the session has one.
    pub(crate) fn document(self, runs: Vec<Run>, session: &mut Session<'_>) -> Result<Results, MeasureError> {
        let conditions = session.conditions.clone();
        let caveats =
            [self.caveats, model_caveat(&runs, session).into_iter().collect(), std::mem::take(&mut session.notes)];
        let results = Results {
            schema: SCHEMA.to_owned(),
            experiment: self.experiment.to_owned(),
            created: nearmetal_change::timestamp::now(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            provenance: session.provenance(&self.workloads).into_iter().chain(self.facts).collect(),
            environment: conditions.environment,
            quick: self.quick,
            seed: conditions.seed,
            tenants: self.tenants.into_iter().map(Into::into).collect(),
            least_overlap: self.least_overlap,
            arms: self.arms,
            runs,
            caveats: caveats.concat(),
            tune: None,
            tiles: None,
        };
        Ok(results)
    }
}
