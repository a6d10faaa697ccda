//! New elements to write into a domain: built as a small tree, printed as libvirt prints.

use std::borrow::Cow;

/// An element to be inserted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fragment {
    name: Cow<'static, str>,
    attributes: Vec<(Cow<'static, str>, String)>,
    text: String,
    children: Vec<Fragment>,
}

impl Fragment {
    /// An empty element.
    pub(crate) fn new(name: impl Into<Cow<'static, str>>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// With an attribute.
    pub(crate) fn attribute(mut self, name: impl Into<Cow<'static, str>>, value: impl ToString) -> Self {
        self.attributes.push((name.into(), value.to_string()));
        self
    }

    /// Whether it has an attribute of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.attributes.iter().any(|(own, _)| own == name)
    }

    /// With text inside; children are then not printed.
    pub(crate) fn text(mut self, text: impl ToString) -> Self {
        self.text = text.to_string();
        self
    }

    /// With a child.
    pub(crate) fn child(mut self, child: Fragment) -> Self {
        self.children.push(child);
        self
    }

    /// With children.
    pub(crate) fn children(mut self, children: impl IntoIterator<Item = Fragment>) -> Self {
        self.children.extend(children);
        self
    }

    /// Prints it; `Some` layout puts each child on a line of its own.
    pub(crate) fn print(&self, layout: Option<&Layout>) -> String {
        let mut out = String::new();
        self.print_into(&mut out, layout, 0);
        out
    }

    fn print_into(&self, out: &mut String, layout: Option<&Layout>, depth: usize) {
        out.push('<');
        out.push_str(&self.name);
        for (name, value) in &self.attributes {
            out.push_str(&format!(" {name}='{}'", escape_attribute(value, '\'')));
        }
        if !self.text.is_empty() {
            out.push_str(&format!(">{}</{}>", escape_text(&self.text), self.name));
        } else if self.children.is_empty() {
            out.push_str("/>");
        } else {
            out.push('>');
            for child in &self.children {
                if let Some(layout) = layout {
                    layout.break_line(out, depth + 1);
                }
                child.print_into(out, layout, depth + 1);
            }
            if let Some(layout) = layout {
                layout.break_line(out, depth);
            }
            out.push_str(&format!("</{}>", self.name));
        }
    }
}

/// How the text around an insertion is laid out.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    /// `\n` or `\r\n`.
    pub(crate) newline: &'static str,
    /// White space before the inserted element.
    pub(crate) indent: String,
    /// White space one level adds.
    pub(crate) step: String,
}

impl Layout {
    /// Starts a new line `depth` levels below the inserted element.
    pub(crate) fn break_line(&self, out: &mut String, depth: usize) {
        out.push_str(self.newline);
        out.push_str(&self.indent);
        for _ in 0..depth {
            out.push_str(&self.step);
        }
    }
}

/// A value as it stands between quotes. Line breaks and tabs become references, since a parser would turn them into
/// spaces.
pub(crate) fn escape_attribute(value: &str, quote: char) -> String {
    let mut out = String::with_capacity(value.len());
    for c in value.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '\'' if quote == '\'' => out.push_str("&apos;"),
            '"' if quote == '"' => out.push_str("&quot;"),
            '\n' => out.push_str("&#10;"),
            '\r' => out.push_str("&#13;"),
            '\t' => out.push_str("&#9;"),
            other => out.push(other),
        }
    }
    out
}

/// A text as it stands between tags.
pub(crate) fn escape_text(value: &str) -> String {
    value.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('\r', "&#13;")
}
