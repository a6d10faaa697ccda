//! Edits as a list of byte ranges and their replacements. What no range covers is copied, byte for byte.

use std::ops::Range;

use roxmltree::Node;

use crate::fragment::{Fragment, Layout, escape_attribute, escape_text};
use crate::tag::WrittenElement;

/// The edits of one setter, against one text.
pub(crate) struct Edits<'text> {
    text: &'text str,
    replacements: Vec<(Range<usize>, String)>,
}

impl<'text> Edits<'text> {
    /// No edits yet.
    pub(crate) fn new(text: &'text str) -> Self {
        Self { text, replacements: Vec::new() }
    }

    /// Sets an attribute of an element without namespace prefix; nothing happens where it has that value already.
    pub(crate) fn set_attribute(&mut self, node: Node<'_, '_>, name: &str, value: &str) {
        if node.attribute(name) == Some(value) {
            return;
        }
        let element = WrittenElement::of(self.text, node);
        match element.attribute(name) {
            Some(written) => {
                self.replacements.push((written.value.clone(), escape_attribute(value, written.quote)));
            }
            None => {
                let end = element.attributes_end;
                self.replacements.push((end..end, format!(" {name}='{}'", escape_attribute(value, '\''))));
            }
        }
    }

    /// Removes an attribute, if it is there.
    pub(crate) fn remove_attribute(&mut self, node: Node<'_, '_>, name: &str) {
        if let Some(written) = WrittenElement::of(self.text, node).attribute(name) {
            self.replacements.push((written.with_space.clone(), String::new()));
        }
    }

    /// Sets the text of an element, keeping the white space around it and comments beside it.
    pub(crate) fn set_text(&mut self, node: Node<'_, '_>, value: &str) {
        let element = WrittenElement::of(self.text, node);
        let Some(content) = element.content else {
            let replacement = format!(">{}</{}>", escape_text(value), element.name);
            let end = element.start_tag.end;
            self.replacements.push((end - 2..end, replacement));
            return;
        };
        let written = &self.text[content.clone()];
        // Text pieces beside comments and CDATA are replaced as a whole: which piece is the value is not decidable.
        let range = if written.contains('<') {
            content
        } else {
            let start = content.start + (written.len() - written.trim_start().len());
            start..(start + written.trim().len())
        };
        self.replacements.push((range, escape_text(value)));
    }

    /// Removes an element, and the line it stood on if it had one to itself.
    pub(crate) fn remove(&mut self, node: Node<'_, '_>) {
        let range = node.range();
        let before = &self.text[..range.start];
        let blank = before.trim_end_matches([' ', '\t']);
        let line_start = blank.strip_suffix('\n').map(|rest| rest.strip_suffix('\r').unwrap_or(rest).len());
        let rest_of_line = self.text[range.end..].split(['\n', '\r']).next().unwrap_or_default();
        let start = match line_start {
            Some(start) if rest_of_line.trim().is_empty() || rest_of_line.trim_start().starts_with("</") => start,
            _ => range.start,
        };
        self.replacements.push((start..range.end, String::new()));
    }

    /// Inserts an element right after a sibling.
    pub(crate) fn insert_after(&mut self, sibling: Node<'_, '_>, fragment: &Fragment) {
        let layout = self.layout_of(sibling);
        let end = sibling.range().end;
        self.replacements.push((end..end, print_all(std::slice::from_ref(fragment), layout.as_ref())));
    }

    /// Inserts elements as the first children; no elements, no edit.
    fn insert_all_first(&mut self, parent: Node<'_, '_>, fragments: &[Fragment]) {
        if fragments.is_empty() {
            return;
        }
        let element = WrittenElement::of(self.text, parent);
        let outer = self.layout_of(parent);
        let layout = match parent.children().find(Node::is_element) {
            Some(child) => self.layout_of(child),
            None => outer.clone().map(|outer| Layout { indent: format!("{}{}", outer.indent, outer.step), ..outer }),
        };
        let mut text = print_all(fragments, layout.as_ref());
        let close = |text: &mut String| {
            if let Some(outer) = &outer {
                outer.break_line(text, 0);
            }
        };
        let end = element.start_tag.end;
        match element.content {
            None => {
                close(&mut text);
                self.replacements.push((end - 2..end, format!(">{text}</{}>", element.name)));
            }
            Some(content) if self.text[content.clone()].trim().is_empty() => {
                close(&mut text);
                self.replacements.push((content, text));
            }
            Some(content) => self.replacements.push((content.start..content.start, text)),
        }
    }

    /// Inserts an element as the first child.
    pub(crate) fn insert_first(&mut self, parent: Node<'_, '_>, fragment: &Fragment) {
        self.insert_all_first(parent, std::slice::from_ref(fragment));
    }

    /// Inserts an element as the last child.
    pub(crate) fn insert_last(&mut self, parent: Node<'_, '_>, fragment: &Fragment) {
        match parent.children().rfind(Node::is_element) {
            Some(sibling) => self.insert_after(sibling, fragment),
            None => self.insert_first(parent, fragment),
        }
    }

    /// Inserts an element behind the last of the children named, or as the first child where there is none of them.
    pub(crate) fn insert_behind(&mut self, parent: Node<'_, '_>, names: &[&str], fragment: &Fragment) {
        self.insert_all_behind(parent, names, std::slice::from_ref(fragment));
    }

    /// The same with several elements, in their order.
    pub(crate) fn insert_all_behind(&mut self, parent: Node<'_, '_>, names: &[&str], fragments: &[Fragment]) {
        match parent.children().rfind(|child| is_plain(*child) && names.contains(&child.tag_name().name())) {
            Some(sibling) => fragments.iter().for_each(|fragment| self.insert_after(sibling, fragment)),
            None => self.insert_all_first(parent, fragments),
        }
    }

    /// The layout of a new sibling of this element: `None` where elements follow each other on one line.
    fn layout_of(&self, node: Node<'_, '_>) -> Option<Layout> {
        let start = node.range().start;
        let line_start = self.text[..start].rfind('\n').map(|index| index + 1);
        let newline = if self.text.contains("\r\n") { "\r\n" } else { "\n" };
        let step = self.step(node);
        let Some(line_start) = line_start else {
            // The first line of a text that has more of them is a line of its own too.
            return self.text[start..].contains('\n').then(|| Layout { newline, indent: String::new(), step });
        };
        let indent = &self.text[line_start..start];
        indent.trim().is_empty().then(|| Layout { newline, indent: indent.to_owned(), step })
    }

    /// The white space one level adds: as the root's first child shows, or two spaces as libvirt prints.
    fn step(&self, node: Node<'_, '_>) -> String {
        let first = node.document().root_element().children().find(Node::is_element);
        let shown = first.and_then(|child| {
            let before = &self.text[..child.range().start];
            let indent = &before[before.rfind('\n')? + 1..];
            (!indent.is_empty() && indent.trim().is_empty()).then(|| indent.to_owned())
        });
        shown.unwrap_or_else(|| "  ".to_owned())
    }

    /// The text with all edits done; `None` if there are none.
    pub(crate) fn finish(mut self) -> Option<String> {
        if self.replacements.is_empty() {
            return None;
        }
        // Stable: insertions at one place stay in the order they were asked for.
        self.replacements.sort_by_key(|(range, _)| (range.start, range.end));
        let mut out = String::with_capacity(self.text.len() + 256);
        let mut copied = 0;
        for (range, replacement) in &self.replacements {
            debug_assert!(range.start >= copied, "edits of one setter do not overlap");
            out.push_str(&self.text[copied..range.start.max(copied)]);
            out.push_str(replacement);
            copied = copied.max(range.end);
        }
        out.push_str(&self.text[copied..]);
        Some(out)
    }
}

/// Elements one behind the other, each on a line of its own if there is a layout.
fn print_all(fragments: &[Fragment], layout: Option<&Layout>) -> String {
    let mut text = String::new();
    for fragment in fragments {
        if let Some(layout) = layout {
            layout.break_line(&mut text, 0);
        }
        text.push_str(&fragment.print(layout));
    }
    text
}

/// Whether a node is an element in no namespace: libvirt's own.
pub(crate) fn is_plain(node: Node<'_, '_>) -> bool {
    node.is_element() && node.tag_name().namespace().is_none()
}
