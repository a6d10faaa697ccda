//! The place of an element in a definition, as a text: the part of XPath 1.0 that [`DefinitionEdit`] documents.
//!
//! [`DefinitionEdit`]: crate::DefinitionEdit

use roxmltree::Node;

use crate::error::DomainError;
use crate::tree;

/// A longer place is none: the longest real one has some fifty characters.
const LONGEST: usize = 512;
/// libvirt's own elements nest less deeply.
const MOST_STEPS: usize = 16;
const WHAT: &str = "a place in a definition";

/// One element after the other, from below `<domain>` on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// Never empty.
    pub(crate) steps: Vec<Step>,
}

/// One element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) name: String,
    pub(crate) condition: Option<Condition>,
}

/// What an element of that name must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Condition {
    /// The child that has the attribute; `None` for the element itself.
    pub(crate) child: Option<String>,
    pub(crate) attribute: String,
    pub(crate) value: String,
}

impl Place {
    /// Reads a place.
    pub(crate) fn parse(text: &str) -> Result<Self, DomainError> {
        let refused = |rule| DomainError::argument(WHAT, text, rule);
        if text.len() > LONGEST {
            return Err(refused("it is longer than 512 bytes"));
        }
        let mut steps = Vec::new();
        let mut rest = text;
        loop {
            if steps.len() == MOST_STEPS {
                return Err(refused("more than 16 elements below each other are in no definition"));
            }
            let (step, after) = Step::parse(rest).map_err(refused)?;
            steps.push(step);
            match after.strip_prefix('/') {
                Some(after) => rest = after,
                None if after.is_empty() => return Ok(Self { steps }),
                None => return Err(refused("elements are parted by slashes")),
            }
        }
    }

    /// All elements at this place.
    pub(crate) fn find_all<'a, 'i>(&self, root: Node<'a, 'i>) -> Vec<Node<'a, 'i>> {
        self.steps.iter().fold(vec![root], |nodes, step| nodes.into_iter().flat_map(|node| step.find(node)).collect())
    }

    /// The first element at this place; else how many steps lead to an element, and the last of these.
    pub(crate) fn find<'a, 'i>(&self, root: Node<'a, 'i>) -> Result<Node<'a, 'i>, (usize, Node<'a, 'i>)> {
        let mut nodes = vec![root];
        for (depth, step) in self.steps.iter().enumerate() {
            let next: Vec<_> = nodes.iter().flat_map(|node| step.find(*node)).collect();
            if next.is_empty() {
                return Err((depth, nodes.first().copied().unwrap_or(root)));
            }
            nodes = next;
        }
        nodes.first().copied().ok_or((0, root))
    }
}

impl Step {
    fn parse(text: &str) -> Result<(Self, &str), &'static str> {
        let (name, rest) = name(text)?;
        let Some(rest) = rest.strip_prefix('[') else {
            return Ok((Self { name: name.to_owned(), condition: None }, rest));
        };
        let (child, rest) = match rest.strip_prefix('@') {
            Some(rest) => (None, rest),
            None => {
                let (child, rest) = self::name(rest)?;
                let rest = rest.strip_prefix("/@").ok_or("a condition is about an attribute: `[@name='value']`")?;
                (Some(child.to_owned()), rest)
            }
        };
        let (attribute, rest) = self::name(rest)?;
        let rest = rest.strip_prefix('=').ok_or("a condition compares an attribute with a value")?;
        let quote = rest.chars().next().filter(|c| matches!(c, '\'' | '"')).ok_or("a value stands between quotes")?;
        let (value, rest) = rest[1..].split_once(quote).ok_or("a value stands between quotes")?;
        let rest = rest.strip_prefix(']').ok_or("one condition, and `]` behind it")?;
        let condition = Condition { child, attribute: attribute.to_owned(), value: value.to_owned() };
        Ok((Self { name: name.to_owned(), condition: Some(condition) }, rest))
    }

    /// The children of an element that fit.
    fn find<'a, 'i>(&self, parent: Node<'a, 'i>) -> Vec<Node<'a, 'i>> {
        let fits = |node: &Node<'a, 'i>| {
            let Some(condition) = &self.condition else { return true };
            let is =
                |node: Node<'a, 'i>| node.attribute(condition.attribute.as_str()) == Some(condition.value.as_str());
            match &condition.child {
                Some(child) => tree::children(*node, child).any(is),
                None => is(*node),
            }
        };
        tree::children(parent, &self.name).filter(fits).collect()
    }
}

/// A name of an element or attribute as libvirt has them: ASCII, no prefix.
fn name(text: &str) -> Result<(&str, &str), &'static str> {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    is_name(name).then_some((name, rest)).ok_or("elements and attributes have names of ASCII letters, without a prefix")
}

/// Whether a text can be the name of an element or attribute that is made.
pub(crate) fn is_name(text: &str) -> bool {
    let starts = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let rest = text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'));
    // Names that begin so are XML's own: `xmlns` would move the element into a namespace.
    starts && rest && !text.to_ascii_lowercase().starts_with("xml")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_read_as_xpath_reads_them() {
        let place = Place::parse("devices/disk[target/@dev='vd/a]']/driver").unwrap();
        let names: Vec<_> = place.steps.iter().map(|step| step.name.as_str()).collect();
        assert_eq!(names, ["devices", "disk", "driver"]);
        let condition = place.steps[1].condition.clone().unwrap();
        assert_eq!(
            (condition.child.as_deref(), &*condition.attribute, &*condition.value),
            (Some("target"), "dev", "vd/a]")
        );
        let own = Place::parse("cputune/vcpupin[@vcpu=\"3\"]").unwrap().steps[1].condition.clone().unwrap();
        assert_eq!((own.child, &*own.attribute, &*own.value), (None, "vcpu", "3"));
    }

    #[test]
    fn what_is_no_place_is_refused() {
        let long = "a".repeat(513);
        let deep = vec!["a"; 17].join("/");
        let table = [
            "",
            "/",
            "a/",
            "/a",
            "a//b",
            "a b",
            "../a",
            "a/..",
            ".",
            "*",
            "q:a",
            "@type",
            "a/@b",
            "a[1]",
            "a[b]",
            "a[@b]",
            "a[@b=c]",
            "a[@b='c]",
            "a[@b='c'",
            "a[@b='c'][@d='e']",
            "a[@b='c' and @d='e']",
            "a[b/c/@d='e']",
            "a[@xmlns='urn:x']",
            "xmlns",
            "XML",
            "1a",
            "-a",
            "a>b",
            "a<b/>",
            "a\u{0}",
            "ä",
            "a[@ä='1']",
            &long,
            &deep,
        ];
        for text in table {
            let answer = Place::parse(text);
            assert!(matches!(answer, Err(DomainError::BadArgument { .. })), "{text}: {answer:?}");
        }
    }
}
