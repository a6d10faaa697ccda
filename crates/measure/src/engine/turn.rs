//! The programs of a sample, on the host or in guests: those that prepare something are ready before anything is counted, all begin at
//! one moment where there are several, and each is waited for.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use nearmetal_hypervisor::{HypervisorError, agent};
use nearmetal_load::{At, Gate, SLACK, Workload};
use nearmetal_units::NodeSet;

use super::Session;
use super::path::{Pus, Seat};
use super::sample::Tenant;
use super::session::{failed, stdout_of};
use crate::barrier::{Ahead, now, waiting};
use crate::clones::{kit_in_guest, loads_in_guest};
use crate::error::MeasureError;
use crate::program::{self, Started};

/// How long a program may take to end of which nothing more is expected.
const TO_END: Duration = Duration::from_secs(2);

/// What one tenant gave: the program's words, and how far its clock is before the host's.
pub(super) struct Told {
    pub(super) output: String,
    pub(super) clock: Ahead,
}

/// What all of a sample do.
pub(super) struct Turn<'a> {
    pub(super) tenants: &'a [Tenant],
    pub(super) seats: &'a [Seat],
    pub(super) loads: &'a [&'a Workload],
    /// The first tenant's; the others have the next ones.
    pub(super) seed: u64,
    /// How long after now they begin; `None`: at once, since one waits for nobody.
    pub(super) lead: Option<Duration>,
    /// What the names of its gates begin with, which no other run of this machine has: one that is ended is gone only a moment later.
    pub(super) gates: String,
}

/// The programs that are ready, by tenant; `None` of a load that prepares nothing.
#[derive(Default)]
pub(super) struct Prepared(Vec<Option<Running>>);

impl Prepared {
    /// Ends those that are ready, since nothing will be measured.
    pub(super) fn end(self, turn: &Turn<'_>, session: &mut Session<'_>) {
        for (number, running) in self.0.into_iter().enumerate() {
            running.into_iter().for_each(|running| running.close(turn, number, session));
        }
    }
}

/// A tenant's program.
struct Running {
    program: Program,
    started: Instant,
}

enum Program {
    OfTheHost(Started),
    OfAGuest(agent::Running),
}

impl Running {
    /// What it prints until its end, `limit` from now at most.
    fn wait(
        self,
        turn: &Turn<'_>,
        number: usize,
        limit: Duration,
        session: &mut Session<'_>,
    ) -> Result<String, MeasureError> {
        let limit = session.hypervisor.now().duration_since(self.started) + limit;
        match self.program {
            Program::OfTheHost(program) => program::judged(turn.title(number), program.wait(limit)),
            Program::OfAGuest(program) => {
                let output = program.wait(session.hypervisor, limit).map_err(failed(turn.guest(number)))?;
                stdout_of(&output, || turn.title(number))
            }
        }
    }

    /// Tells one that waits at its gate to end, so that it gives its device back; one that does not is killed. What it says of its end is
    /// no news.
    fn close(self, turn: &Turn<'_>, number: usize, session: &mut Session<'_>) {
        let words = turn.of_the_gate(number, &["close", &turn.gate(number)], session);
        let told = turn.start(number, words, session).and_then(|told| told.wait(turn, number, SLACK, session));
        let _ = match told {
            Ok(_) => self.wait(turn, number, SLACK, session).err(),
            Err(_) => self.end(turn, number, session),
        };
    }

    /// Ends it, if it does not do so by itself; gives what it says of a failure of its own.
    fn end(self, turn: &Turn<'_>, number: usize, session: &mut Session<'_>) -> Option<MeasureError> {
        let limit = session.hypervisor.now().duration_since(self.started) + TO_END;
        match self.program {
            Program::OfTheHost(program) => match program.wait(limit) {
                Err(error) if error.kind() == std::io::ErrorKind::TimedOut => None,
                output => program::judged(turn.title(number), output).err(),
            },
            Program::OfAGuest(program) => match program.wait(session.hypervisor, limit) {
                Err(HypervisorError::GuestCommandTimedOut { .. }) => None,
                Err(error) => Some(failed(turn.guest(number))(error)),
                Ok(output) => stdout_of(&output, || turn.title(number)).err(),
            },
        }
    }
}

impl Turn<'_> {
    /// With the guests that take part running: starts the programs that prepare something, and waits until all of them are ready.
    ///
    /// # Errors
    /// One fails or takes too long, in its own words. The others are ended.
    pub(super) fn prepared(&self, session: &mut Session<'_>) -> Result<Prepared, MeasureError> {
        // Who is ready first waits for the last, and then for the moment.
        let longest = self.loads.iter().filter_map(|load| load.load().prepares()).max().unwrap_or_default();
        let patience = longest + self.lead.unwrap_or_default() + SLACK;
        let mut programs: Vec<Option<Running>> = Vec::new();
        let mut problem = None;
        for (number, load) in self.loads.iter().enumerate() {
            let started = load.load().prepares().map(|_| {
                let name = self.gate(number);
                self.start(number, self.words(number, Some(Gate { name: &name, patience }), session), session)
            });
            match started.transpose() {
                Ok(running) => programs.push(running),
                Err(error) => {
                    problem = Some(error);
                    break;
                }
            }
        }
        let (mut prepared, mut asked) = (Prepared(programs), Vec::new());
        let ready = problem.map_or_else(|| self.wait_until_ready(&mut prepared, &mut asked, session), Err);
        let Err(problem) = ready else { return Ok(prepared) };
        prepared.end(self, session);
        // What still asked is done with its gate.
        for (number, asked) in asked.into_iter().enumerate() {
            asked.map(|asked| asked.end(self, number, session));
        }
        Err(problem)
    }

    /// `asked`: what asks the gates, by tenant, until it has answered.
    fn wait_until_ready(
        &self,
        prepared: &mut Prepared,
        asked: &mut Vec<Option<Running>>,
        session: &mut Session<'_>,
    ) -> Result<(), MeasureError> {
        // All at once: one that is asked about when the others are ready may be gone by then.
        for (number, load) in self.loads.iter().enumerate() {
            let asks = load.load().prepares().map(|prepares| {
                let seconds = (prepares + SLACK).as_secs().to_string();
                let words = self.of_the_gate(number, &["wait", &self.gate(number), "--seconds", &seconds], session);
                self.start(number, words, session)
            });
            asked.push(asks.transpose()?);
        }
        for (number, load) in self.loads.iter().enumerate() {
            let Some(asks) = asked[number].take() else { continue };
            let limit = load.load().prepares().unwrap_or_default() + SLACK * 2;
            if let Err(error) = asks.wait(self, number, limit, session) {
                let own = prepared.0[number].take().and_then(|running| running.end(self, number, session));
                return Err(own.unwrap_or(error));
            }
        }
        Ok(())
    }

    /// With the guests that take part running: all begin, and all are waited for.
    ///
    /// # Errors
    /// A program fails or hangs.
    pub(super) fn taken(&self, prepared: Prepared, session: &mut Session<'_>) -> Result<Vec<Told>, MeasureError> {
        let clocks = match self.clocks(session) {
            Ok(clocks) => clocks,
            Err(problem) => {
                prepared.end(self, session);
                return Err(problem);
            }
        };
        let moment = self.lead.map(|lead| now() + lead.as_nanos() as i128);
        let lead = self.lead.unwrap_or_default();
        let began = session.hypervisor.now();
        let mut begun = Vec::new();
        let mut problem = None;
        for (number, ready) in prepared.0.into_iter().enumerate() {
            let at = moment.map(|moment| (moment, clocks[number]));
            let started = match problem {
                Some(_) => None,
                None => self.begin(number, ready.is_some(), at, session).map_err(|error| problem = Some(error)).ok(),
            };
            begun.push((started, ready));
        }
        if self.seats.iter().any(|seat| seat.guest.is_some()) && problem.is_none() {
            // Nobody is asked before the end, since each answer is work for a guest.
            let longest = self.loads.iter().filter_map(|load| load.load().length()).max().unwrap_or_default();
            session.hypervisor.pause(lead + longest);
        }
        // Waited for in any case: one left behind would disturb the next sample.
        let mut told = Vec::new();
        for ((number, (started, ready)), clock) in begun.into_iter().enumerate().zip(clocks) {
            let until = began + lead + self.loads[number].load().limit();
            match self.wait(number, started, ready, until, session) {
                Ok(Some(output)) => told.push(Told { output, clock }),
                Ok(None) => {}
                Err(error) => problem = problem.or(Some(error)),
            }
        }
        problem.map_or(Ok(told), Err)
    }

    /// Tells one that is ready to begin, or starts it.
    fn begin(
        &self,
        number: usize,
        is_ready: bool,
        at: Option<(i128, Ahead)>,
        session: &mut Session<'_>,
    ) -> Result<Running, MeasureError> {
        let (words, stamp) = match is_ready {
            true => (self.of_the_gate(number, &["open", &self.gate(number)], session), false),
            false => (self.words(number, None, session), self.loads[number].load().stamp()),
        };
        let words = match at {
            Some((moment, clock)) => waiting(&self.probe(number, session), moment, clock, stamp, &words),
            None => words,
        };
        self.start(number, words, session)
    }

    /// What one printed; `None` of one that did not begin. `started`: what was started to begin it.
    fn wait(
        &self,
        number: usize,
        started: Option<Running>,
        ready: Option<Running>,
        until: Instant,
        session: &mut Session<'_>,
    ) -> Result<Option<String>, MeasureError> {
        let left = |session: &Session<'_>| until.saturating_duration_since(session.hypervisor.now());
        match (started, ready) {
            (Some(started), None) => started.wait(self, number, left(session), session).map(Some),
            (Some(opens), Some(ready)) => match opens.wait(self, number, left(session), session) {
                Ok(_) => ready.wait(self, number, left(session), session).map(Some),
                Err(error) => Err(ready.end(self, number, session).unwrap_or(error)),
            },
            (None, ready) => {
                ready.into_iter().for_each(|ready| ready.close(self, number, session));
                Ok(None)
            }
        }
    }

    /// How far the clock of each is before the host's, where that is needed.
    fn clocks(&self, session: &mut Session<'_>) -> Result<Vec<Ahead>, MeasureError> {
        let is_needed = self.lead.is_some() || says_what_was_done_when(self.loads);
        let clock = |seat: &Seat| match &seat.guest {
            Some(name) if is_needed => Ahead::of_guest(session.hypervisor, name).map_err(failed(name)),
            _ => Ok(Ahead::HOST),
        };
        self.seats.iter().map(clock).collect()
    }

    /// The command of one tenant, where it is.
    fn words(&self, number: usize, gate: Option<Gate<'_>>, session: &Session<'_>) -> Vec<String> {
        let (seat, load) = (&self.seats[number], self.loads[number].load());
        let shown =
            |image: &Option<PathBuf>| image.as_ref().map_or_else(String::new, |image| image.display().to_string());
        let (loads, kit) = match &seat.guest {
            Some(_) => (loads_in_guest(), kit_in_guest()),
            None => (shown(&session.conditions.loads), shown(&session.conditions.kit)),
        };
        let probe = self.probe(number, session);
        let at = At { probe: &probe, device: &seat.device, loads: &loads, kit: &kit, gate };
        load.command(&at, self.seed + number as u64)
    }

    /// What asks its gate.
    fn of_the_gate(&self, number: usize, asks: &[&str], session: &Session<'_>) -> Vec<String> {
        let probe = self.probe(number, session);
        [probe.as_str(), "gate"].iter().chain(asks).map(|word| (*word).to_owned()).collect()
    }

    /// The name of its gate.
    fn gate(&self, number: usize) -> String {
        format!("{}-{number}", self.gates)
    }

    fn probe(&self, number: usize, session: &Session<'_>) -> String {
        let seat = &self.seats[number];
        seat.guest.as_ref().map_or_else(|| session.conditions.probe.display().to_string(), |_| seat.probe.clone())
    }

    /// Starts a command of one tenant: in its guest, or on the host, bound to its slice or to the PUs that it has instead.
    fn start(&self, number: usize, words: Vec<String>, session: &mut Session<'_>) -> Result<Running, MeasureError> {
        let (tenant, seat) = (&self.tenants[number], &self.seats[number]);
        let mut all = seat.around.clone();
        if seat.guest.is_none() {
            // This process keeps off the slices, and what it starts inherits that: even "anywhere" has to be said.
            let (cpus, nodes) = match &seat.on {
                Pus::All => {
                    let nodes: NodeSet = session.host.nodes.iter().map(|node| node.index).collect();
                    (session.host.online(), nodes)
                }
                Pus::OfTheSlice => (tenant.slice.cpus.clone(), tenant.slice.nodes.clone()),
                Pus::These(cpus, nodes) => (cpus.clone(), nodes.clone()),
            };
            let probe = self.probe(number, session);
            let bind = [&probe, "bind", "--cpus", &cpus.to_string(), "--nodes", &nodes.to_string(), "--"];
            all.extend(bind.map(str::to_owned));
        }
        all.extend(words);
        let started = session.hypervisor.now();
        let program = match &seat.guest {
            Some(name) => {
                let words: Vec<&str> = all.iter().map(String::as_str).collect();
                Program::OfAGuest(agent::start(session.hypervisor, name, &words, None).map_err(failed(name))?)
            }
            None => {
                let (first, rest) =
                    all.split_first().map_or((String::new(), &[][..]), |(first, rest)| (first.clone(), rest));
                Program::OfTheHost(program::spawn(Command::new(first).args(rest))?)
            }
        };
        Ok(Running { program, started })
    }

    fn guest(&self, number: usize) -> &str {
        self.seats[number].guest.as_deref().unwrap_or_default()
    }

    /// What an error calls the program of a tenant.
    fn title(&self, number: usize) -> String {
        let (load, guest, seat) = (self.loads[number].label(), &self.tenants[number].guest, &self.seats[number]);
        match (&seat.guest, &seat.asks) {
            (Some(_), _) => format!("{load} in `{guest}`"),
            (None, Some(_)) => format!("{load}, which asks `{guest}`"),
            (None, None) => format!("{load} on the bare slice of `{guest}`"),
        }
    }
}

pub(super) fn says_what_was_done_when(loads: &[&Workload]) -> bool {
    loads.iter().any(|load| load.load().says_what_was_done_when())
}

#[cfg(test)]
mod tests;
