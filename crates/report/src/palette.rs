//! The colours, once, for light and dark; and the style of every figure.
//!
//! Pages and standalone pictures use the same names. In a page they are CSS variables; in a standalone picture they are
//! written out, because most viewers other than browsers know no variables.

/// A name and its colour on light and on dark ground. Text colours keep a contrast of at least 4.5:1 on `paper`
/// (a test computes it).
pub const PALETTE: [(&str, &str, &str); 16] = [
    ("paper", "#fcfbf8", "#15171b"),
    ("raised", "#f4f2ec", "#1c1f24"),
    ("ink", "#1d1f23", "#e9e6e0"),
    ("muted", "#5f636a", "#a2a7af"),
    ("hairline", "#e0dcd2", "#30343b"),
    ("line", "#b5b0a4", "#545a64"),
    // Arms. Bare metal is ink: the reference is not a colour among others.
    ("planned", "#0a6375", "#62c4d4"),
    ("found", "#a84a18", "#f0955e"),
    ("other", "#6a5799", "#b6a5e8"),
    // Threads.
    ("vcpu", "#0a6375", "#62c4d4"),
    ("emulator", "#8a5d00", "#e3b850"),
    ("iothread", "#6a5799", "#b6a5e8"),
    ("vhost", "#a0386b", "#f08fbc"),
    // Outcomes.
    ("good", "#26703f", "#7fcc9d"),
    ("bad", "#b0251d", "#ff8d84"),
    ("unsure", "#805a00", "#e3b850"),
];

/// Style of the figures, by class; colours as variables.
pub(crate) const FIGURE_STYLE: &str = include_str!("svg/figure.css");

/// The variables, for a page: light, then dark by the reader's preference; print is always light.
pub(crate) fn variables() -> String {
    let set = |pick: fn(&(&str, &'static str, &'static str)) -> &'static str| -> String {
        PALETTE.iter().map(|row| format!("--{}:{};", row.0, pick(row))).collect()
    };
    format!(
        ":root{{color-scheme:light dark;{}}}\n@media screen and (prefers-color-scheme:dark){{:root{{{}}}}}\n",
        set(|row| row.1),
        set(|row| row.2)
    )
}

/// The figures' style with the colours written out, for a standalone picture.
pub(crate) fn standalone_style() -> String {
    let written = |dark: bool| {
        PALETTE.iter().fold(FIGURE_STYLE.to_owned(), |style, (name, light, night)| {
            style.replace(&format!("var(--{name})"), if dark { night } else { light })
        })
    };
    format!("{}\n@media screen and (prefers-color-scheme:dark){{{}}}", written(false), written(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Relative luminance, WCAG 2.2.
    fn luminance(colour: &str) -> f64 {
        let channel = |at: usize| {
            let value = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
    }

    fn contrast(one: &str, other: &str) -> f64 {
        let (one, other) = (luminance(one), luminance(other));
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    #[test]
    fn text_can_be_read_on_light_and_on_dark() {
        let grounds: Vec<_> = PALETTE.iter().filter(|row| ["paper", "raised"].contains(&row.0)).collect();
        for (name, light, dark) in PALETTE {
            if ["paper", "raised", "hairline", "line"].contains(&name) {
                continue;
            }
            for ground in &grounds {
                assert!(
                    contrast(light, ground.1) >= 4.5,
                    "{name} on light {}: {}",
                    ground.0,
                    contrast(light, ground.1)
                );
                assert!(contrast(dark, ground.2) >= 4.5, "{name} on dark {}: {}", ground.0, contrast(dark, ground.2));
            }
        }
    }

    #[test]
    fn a_standalone_picture_knows_no_variables() {
        assert!(!standalone_style().contains("var("));
    }
}
