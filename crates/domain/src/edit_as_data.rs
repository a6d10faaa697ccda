//! Makes an edit that is data: elements are found by their place, and made in libvirt's order where they are missing.

use roxmltree::{Document, Node};

use crate::definition_edit::DefinitionEdit;
use crate::document::DomainXml;
use crate::edit::Edits;
use crate::error::DomainError;
use crate::fragment::Fragment;
use crate::place::{Place, Step, is_name};
use crate::{order, tree};

impl DomainXml {
    /// Makes one edit. True if the text changed: making it again changes nothing.
    ///
    /// # Errors
    /// The place is none, what is missing there cannot be made, or a name or value cannot stand in a definition. The
    /// text is then as it was.
    pub fn edit(&mut self, edit: &DefinitionEdit) -> Result<bool, DomainError> {
        self.rewrite(|document, edits| match edit {
            DefinitionEdit::SetAttribute { at, name, value } => {
                let place = Place::parse(at)?;
                check_attribute(&place, name, value)?;
                match place.find(document.root_element()) {
                    Ok(node) => {
                        edits.set_attribute(node, name, value);
                        Ok(())
                    }
                    Err(missing) => make(edits, at, &place, missing, |last| {
                        // The condition has written it already.
                        let written = place.steps.last().is_some_and(|step| names_attribute(step, name));
                        if written { last } else { last.attribute(name.clone(), value) }
                    }),
                }
            }
            DefinitionEdit::RemoveAttribute { at, name } => {
                let place = Place::parse(at)?;
                if !is_name(name) {
                    return Err(DomainError::argument("the name of an attribute", name, "ASCII letters, no prefix"));
                }
                place.find_all(document.root_element()).iter().for_each(|node| edits.remove_attribute(*node, name));
                Ok(())
            }
            DefinitionEdit::SetText { at, text } => set_text(document, edits, at, text),
            DefinitionEdit::Ensure { at } => {
                let place = Place::parse(at)?;
                match place.find(document.root_element()) {
                    Ok(_) => Ok(()),
                    Err(missing) => make(edits, at, &place, missing, |last| last),
                }
            }
            DefinitionEdit::Remove { at } => {
                let place = Place::parse(at)?;
                let gone = place.find_all(document.root_element());
                // An element inside another that goes too is gone with it.
                let inside = |node: &Node<'_, '_>| node.ancestors().skip(1).any(|outer| gone.contains(&outer));
                gone.iter().filter(|node| !inside(node)).for_each(|node| edits.remove(*node));
                Ok(())
            }
        })
    }
}

/// Whether the step's own condition is about this attribute.
fn names_attribute(step: &Step, name: &str) -> bool {
    step.condition.as_ref().is_some_and(|condition| condition.child.is_none() && condition.attribute == name)
}

fn check_attribute(place: &Place, name: &str, value: &str) -> Result<(), DomainError> {
    if !is_name(name) {
        return Err(DomainError::argument("the name of an attribute", name, "ASCII letters, no prefix"));
    }
    let condition = place.steps.last().and_then(|step| step.condition.as_ref());
    let own = condition.filter(|condition| condition.child.is_none() && condition.attribute == name);
    if own.is_some_and(|condition| condition.value != value) {
        let rule = "the place asks for another value of that attribute, and would not be found again";
        return Err(DomainError::argument("the value of an attribute", value, rule));
    }
    Ok(())
}

fn set_text(document: &Document<'_>, edits: &mut Edits<'_>, at: &str, text: &str) -> Result<(), DomainError> {
    let place = Place::parse(at)?;
    match place.find(document.root_element()) {
        Ok(node) if node.children().any(|child| child.is_element()) => {
            Err(DomainError::argument("the text of an element", text, "the element has others in it"))
        }
        Ok(node) if tree::text(node) == text.trim() => Ok(()),
        Ok(node) => {
            edits.set_text(node, text.trim());
            Ok(())
        }
        Err(missing) => make(edits, at, &place, missing, |last| last.text(text.trim())),
    }
}

/// Attributes without which libvirt's schema (domain.rng) refuses an element, each with what libvirt takes where the element
/// is missing: a definition that it has stored has them, a template that people wrote need not.
const REQUIRED: [(&str, &str, &str); 1] = [("clock", "offset", "utc")];

/// Makes the elements of a place from the first missing one on, each with the attribute its condition names.
fn make(
    edits: &mut Edits<'_>,
    at: &str,
    place: &Place,
    (depth, parent): (usize, Node<'_, '_>),
    finish: impl FnOnce(Fragment) -> Fragment,
) -> Result<(), DomainError> {
    let mut steps = place.steps[depth..].iter();
    let mut made: Option<Fragment> = None;
    let mut finish = Some(finish);
    while let Some(step) = steps.next_back() {
        let mut fragment = Fragment::new(step.name.clone());
        if let Some(condition) = &step.condition {
            if condition.child.is_some() {
                let why = "it is known by something inside it";
                return Err(DomainError::NoSuchPlace { place: crate::error::short(at), why });
            }
            fragment = fragment.attribute(condition.attribute.clone(), &condition.value);
        }
        let mut fragment = match (made, finish.take()) {
            (Some(inner), _) => fragment.child(inner),
            (None, Some(finish)) => finish(fragment),
            (None, None) => fragment,
        };
        for (_, attribute, value) in REQUIRED.iter().filter(|(element, ..)| *element == step.name) {
            fragment = if fragment.has(attribute) { fragment } else { fragment.attribute(*attribute, value) };
        }
        made = Some(fragment);
    }
    let (Some(fragment), Some(first)) = (made, place.steps.get(depth)) else { return Ok(()) };
    match order::before(parent.tag_name().name(), &first.name) {
        Some(before) => edits.insert_behind(parent, before, &fragment),
        None => edits.insert_last(parent, &fragment),
    }
    Ok(())
}
