//! What `nearmetal apply` tells programs: the changes before they are made, and each step as it happens.

use nearmetal_change::{Applied, Change};
use nearmetal_domain::diff;

use crate::job::mask;
use crate::job::outputs::{APPLY_EVENT_SCHEMA, ApplyEvent, CHANGES_SCHEMA, ChangeOutput, ChangesOutput, Event};
use crate::printer::Printer;

/// The changes that would be made, as a document.
pub(crate) fn dry_run(list: &[Change]) -> String {
    let output = ChangesOutput { schema: CHANGES_SCHEMA.to_owned(), changes: list.iter().map(change).collect() };
    serde_json::to_string_pretty(&output).unwrap_or_default()
}

fn change(change: &Change) -> ChangeOutput {
    let (domain, before, after) = match change {
        Change::DefineDomain { domain, old_xml, new_xml, .. } => (Some(domain), old_xml.as_str(), new_xml.as_str()),
        Change::NewDomain { domain, xml, .. } => (Some(domain), "", xml.as_str()),
        _ => (None, "", ""),
    };
    ChangeOutput { what: change.to_string(), domain: domain.cloned(), diff: diff(&mask(before), &mask(after)) }
}

/// The steps of an apply, a line of JSON each.
#[derive(Debug)]
pub(crate) struct Steps {
    /// Changes in words, in the order in which they are made.
    changes: Vec<String>,
    /// How many have begun.
    begun: usize,
}

impl Steps {
    /// Says what is going to be done.
    pub(crate) fn begin(list: &[Change], printer: &mut Printer) -> Self {
        let changes: Vec<String> = list.iter().map(ToString::to_string).collect();
        print(Event::Begun { changes: changes.clone() }, printer);
        Self { changes, begun: 0 }
    }

    /// Says what is done now: the next change, or something beside the changes.
    pub(crate) fn say(&mut self, text: &str, printer: &mut Printer) {
        print(self.event(text), printer);
    }

    fn event<'a>(&mut self, text: &'a str) -> Event<'a> {
        if self.changes.get(self.begun).is_some_and(|next| next == text) {
            self.begun += 1;
            return Event::Change { number: self.begun, what: text };
        }
        Event::Note { text }
    }
}

/// Says how it ended.
pub(crate) fn end(applied: &Applied, mismatches: usize, printer: &mut Printer) {
    let event = Event::Ended {
        transaction: applied.transaction,
        rolled_back: applied.taken_back,
        mismatches,
        verifications: &applied.verifications,
    };
    print(event, printer);
}

fn print(event: Event<'_>, printer: &mut Printer) {
    let line = ApplyEvent { schema: APPLY_EVENT_SCHEMA, event };
    printer.data(&serde_json::to_string(&line).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_has_its_number_and_everything_else_is_a_note() {
        let mut steps = Steps { changes: vec!["a".to_owned(), "b".to_owned()], begun: 0 };
        let said: Vec<Event<'_>> = ["a", "shutting down `a`", "b", "a"].map(|text| steps.event(text)).into();
        let wanted = [
            Event::Change { number: 1, what: "a" },
            Event::Note { text: "shutting down `a`" },
            Event::Change { number: 2, what: "b" },
            Event::Note { text: "a" },
        ];
        assert_eq!(said, wanted);
    }

    #[test]
    fn passwords_of_a_definition_are_not_in_the_changes() {
        let new_xml = "<domain>\n<graphics type='vnc' passwd='hunter2'/>\n</domain>\n".to_owned();
        let change = Change::NewDomain { domain: "a<b".to_owned(), uuid: String::new(), xml: new_xml };
        let text = dry_run(&[change]);
        assert!(text.contains("not shown") && !text.contains("hunter2"), "{text}");
        let document: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(document["changes"][0]["domain"], "a<b");
    }
}
