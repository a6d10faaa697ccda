//! One self-contained page: no scripts, nothing loaded from elsewhere, light and dark, fit for print.
//!
//! Everything a reader sees passes through [`crate::text::clean`] and the template's escaping. A content security policy
//! in the page forbids scripts and loading, so that a mistake in either would still not run anything.

mod context;
mod experiment;
mod fleet;

pub use experiment::experiment_page;
pub(crate) use fleet::fleet_page;

use minijinja::{AutoEscape, Environment, UndefinedBehavior, Value};

use crate::palette::{FIGURE_STYLE, variables};
use crate::svg::{
    Moment, Surface, Width, arms_chart, by_nodes_chart, machine_svg, race_chart, sizes_chart, tiles_chart,
    together_chart,
};
use crate::text::clean;
use crate::view::JobReport;

/// The page could not be made: a fault of this program, not of the data.
#[derive(Debug, thiserror::Error)]
#[error("the report's page cannot be made")]
pub struct PageError(#[from] minijinja::Error);

/// The report as one HTML page.
pub fn html_page(view: &JobReport) -> Result<String, PageError> {
    let mut environment = environment();
    environment.add_template("page", include_str!("page.html"))?;
    environment.add_template("macros", include_str!("macros.html"))?;
    environment.add_template("measured", include_str!("measured.html"))?;
    environment.add_template("papers", include_str!("papers.html"))?;
    environment.add_template("race", include_str!("race.html"))?;
    environment.add_template("by_nodes", include_str!("by_nodes.html"))?;
    environment.add_template("tiles", include_str!("tiles.html"))?;
    environment.add_template("tenants", include_str!("tenants.html"))?;
    let page = cleaned(serde_json::to_value(context::page(view)).unwrap_or_default());
    let pictures = minijinja::context! {
        before => machine_svg(view, Moment::Before, Surface::Page).map(safe),
        after => machine_svg(view, Moment::After, Surface::Page).map(safe),
        race => both(|width| race_chart(view, width)),
        together => both(|width| together_chart(view, Surface::Page, width)),
        by_nodes => both(|width| by_nodes_chart(view, Surface::Page, width)),
        tiles => both(|width| tiles_chart(view, Surface::Page, width)),
        arms => arms_charts(view),
        sizes => both(|width| sizes_chart(view, Surface::Page, width)),
    };
    let own = if view.plan.is_none() { include_str!("measurement.css") } else { "" };
    let style = safe(style() + own);
    let context = minijinja::context! { page => Value::from_serialize(&page), style, pictures };
    Ok(environment.get_template("page")?.render(context)?)
}

/// What every page's template is rendered with: all is escaped, and a name that is missing is an error.
fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment
}

/// Palette, page and figures.
fn style() -> String {
    format!("{}{}{FIGURE_STYLE}", variables(), include_str!("page.css"))
}

/// One chart for each metric that was measured in pairs; single shots are in the chart over sizes.
fn arms_charts(view: &JobReport) -> Vec<Value> {
    let paired = |id: &str| view.comparisons.iter().any(|row| row.metric == id && !row.single_shot);
    let mut metrics: Vec<_> = view.metrics.iter().filter(|metric| paired(&metric.id)).collect();
    metrics.sort_by_key(|metric| view.headline_metric.as_deref() != Some(metric.id.as_str()));
    metrics
        .into_iter()
        .filter_map(|metric| {
            let chart = both(|width| arms_chart(view, &metric.id, Surface::Page, width))?;
            Some(minijinja::context! { label => clean(&metric.label), unit => clean(&metric.unit), chart })
        })
        .collect()
}

/// A chart at both widths; the style shows the one that fits.
fn both(chart: impl Fn(Width) -> Option<String>) -> Option<Value> {
    let (wide, narrow) = (chart(Width::Wide)?, chart(Width::Narrow)?);
    Some(safe(format!("<div class=\"if-wide\">{wide}</div><div class=\"if-narrow\">{narrow}</div>")))
}

/// Text this crate made and escaped itself.
fn safe(text: String) -> Value {
    Value::from_safe_string(text)
}

/// Cleans every text of the page's data.
fn cleaned(value: serde_json::Value) -> serde_json::Value {
    use serde_json::Value::{Array, Object, String};
    match value {
        String(text) => String(clean(&text)),
        Array(values) => Array(values.into_iter().map(cleaned).collect()),
        Object(fields) => Object(fields.into_iter().map(|(name, value)| (name, cleaned(value))).collect()),
        other => other,
    }
}
