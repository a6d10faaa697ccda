//! What SVG needs of a drawing: shapes by class, text escaped, titles for those who cannot see it.

use std::fmt::Write;

use super::Surface;
use crate::palette::standalone_style;
use crate::text::{escape, one_line};

/// A rectangle, in user units.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Area {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

impl Area {
    /// The area grown by `by` on every side.
    pub(crate) fn grown(self, by: f64) -> Self {
        Self { x: self.x - by, y: self.y - by, width: self.width + 2.0 * by, height: self.height + 2.0 * by }
    }
}

/// A drawing in the making.
pub(crate) struct Canvas {
    body: String,
    id: String,
}

impl Canvas {
    /// `id` makes the names inside unique in a page.
    pub(crate) fn new(id: &str) -> Self {
        Self { body: String::new(), id: id.to_owned() }
    }

    pub(crate) fn rect(&mut self, area: Area, radius: f64, class: &str) {
        let Area { x, y, width, height } = area;
        let (x, y, width, height) = (Number(x), Number(y), Number(width.max(0.0)), Number(height.max(0.0)));
        self.write(format_args!(
            r#"<rect class="{class}" x="{x}" y="{y}" width="{width}" height="{height}" rx="{radius}"/>"#
        ));
    }

    /// A rectangle filled with one of [`PATTERNS`].
    pub(crate) fn patterned(&mut self, area: Area, radius: f64, class: &str, pattern: &str) {
        self.rect(area, radius, class);
        let Area { x, y, width, height } = area;
        let (x, y, width, height) = (Number(x), Number(y), Number(width.max(0.0)), Number(height.max(0.0)));
        let id = self.id.clone();
        self.write(format_args!(
            r#"<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="{radius}" fill="url(#{id}-{pattern})"/>"#
        ));
    }

    pub(crate) fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        let (x1, y1, x2, y2) = (Number(from.0), Number(from.1), Number(to.0), Number(to.1));
        self.write(format_args!(r#"<line class="{class}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>"#));
    }

    pub(crate) fn circle(&mut self, x: f64, y: f64, radius: f64, class: &str) {
        let (x, y) = (Number(x), Number(y));
        self.write(format_args!(r#"<circle class="{class}" cx="{x}" cy="{y}" r="{radius}"/>"#));
    }

    /// A closed shape through the points.
    pub(crate) fn polygon(&mut self, points: &[(f64, f64)], class: &str) {
        let points = points_text(points);
        self.write(format_args!(r#"<polygon class="{class}" points="{points}"/>"#));
    }

    /// An open line through the points.
    pub(crate) fn polyline(&mut self, points: &[(f64, f64)], class: &str) {
        let points = points_text(points);
        self.write(format_args!(r#"<polyline class="{class}" points="{points}"/>"#));
    }

    pub(crate) fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        let (x, y, text) = (Number(x), Number(y), escape(&one_line(text)));
        self.write(format_args!(r#"<text class="{class}" x="{x}" y="{y}">{text}</text>"#));
    }

    /// Opens a group whose title is shown on hovering and read aloud.
    pub(crate) fn open(&mut self, title: &str) {
        let title = escape(&one_line(title));
        self.write(format_args!("<g><title>{title}</title>"));
    }

    pub(crate) fn close(&mut self) {
        self.write(format_args!("</g>"));
    }

    /// One line of text in parts, each with its class and the space before it.
    pub(crate) fn parts(&mut self, x: f64, y: f64, parts: &[(&str, f64, &str)]) {
        let mut spans = String::new();
        for (class, space, text) in parts {
            let _ = write!(spans, r#"<tspan class="{class}" dx="{space}">{}</tspan>"#, escape(&one_line(text)));
        }
        let (x, y) = (Number(x), Number(y));
        self.write(format_args!(r#"<text x="{x}" y="{y}">{spans}</text>"#));
    }

    /// The picture as one element.
    pub(crate) fn finish(self, size: (f64, f64), title: &str, description: &str, surface: Surface) -> String {
        let (width, height, id) = (Number(size.0), Number(size.1), &self.id);
        let (title, description) = (escape(&one_line(title)), escape(&one_line(description)));
        let (style, ground) = match surface {
            Surface::Page => (String::new(), String::new()),
            Surface::Standalone => (
                format!("<style>{}</style>", standalone_style()),
                format!(r#"<rect class="nm-ground" width="{width}" height="{height}"/>"#),
            ),
        };
        // Only a file of its own gets a size: in a page the column decides.
        let fixed = match surface {
            Surface::Page => String::new(),
            Surface::Standalone => format!(r#" width="{width}" height="{height}""#),
        };
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"nm-figure\" viewBox=\"0 0 {width} {height}\"{fixed} \
             role=\"img\" aria-labelledby=\"{id}-title {id}-description\">\n\
             <title id=\"{id}-title\">{title}</title>\n<desc id=\"{id}-description\">{description}</desc>\n\
             {style}<defs>{}</defs>\n{ground}{}</svg>\n",
            patterns(id),
            self.body
        )
    }

    fn write(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = self.body.write_fmt(text);
        self.body.push('\n');
    }
}

/// Patterns say without colour what colours say: slanted for floating, dots for free hugepages, lines for other memory.
fn patterns(id: &str) -> String {
    let pattern = |name: &str, size: u32, turn: &str, inside: &str| {
        format!(
            r#"<pattern id="{id}-{name}" width="{size}" height="{size}" patternUnits="userSpaceOnUse"{turn}>{inside}</pattern>"#
        )
    };
    let slanted = r#" patternTransform="rotate(45)""#;
    [
        pattern("floating", 6, slanted, r#"<line class="nm-slant" x1="0" y1="0" x2="0" y2="6"/>"#),
        pattern("hugefree", 4, "", r#"<circle class="nm-dot" cx="2" cy="2" r="0.9"/>"#),
        pattern("otherused", 4, slanted, r#"<line class="nm-thin" x1="0" y1="0" x2="0" y2="4"/>"#),
    ]
    .concat()
}

fn points_text(points: &[(f64, f64)]) -> String {
    let mut text = String::new();
    for (x, y) in points {
        let _ = write!(text, "{},{} ", Number(*x), Number(*y));
    }
    text.trim_end().to_owned()
}

/// One decimal at most; a figure that is no number is drawn at the edge rather than breaking the file.
struct Number(f64);

impl std::fmt::Display for Number {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let number = if self.0.is_finite() { (self.0 * 10.0).round() / 10.0 } else { 0.0 };
        write!(formatter, "{}", if number == 0.0 { 0.0 } else { number })
    }
}
