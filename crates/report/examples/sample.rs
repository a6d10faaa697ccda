//! Prints the sample report, to look at while working on the renderers: every figure in it is invented.
//!
//! `cargo run -p nearmetal-report --example sample -- page > /tmp/sample.html`
#![allow(clippy::print_stdout, clippy::unwrap_used)] // a developer's tool: its output is its purpose

#[path = "../tests/sample/mod.rs"]
mod sample;

use nearmetal_report::{
    Moment, Style, Surface, arms_svg, by_nodes_svg, html_page, machine_svg, sizes_svg, summary_json, terminal,
};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (view, words) = match words.as_slice() {
        ["large", rest @ ..] => (sample::large_sample(), rest),
        ["nodes", rest @ ..] => (sample::nodes::nodes(true), rest),
        ["silicon", rest @ ..] => (sample::nodes::nodes(false), rest),
        ["hostile", rest @ ..] => (sample::nodes::hostile_nodes(), rest),
        rest => (sample::sample(), rest),
    };
    let text = match words {
        ["page"] => html_page(&view).unwrap(),
        ["before"] => machine_svg(&view, Moment::Before, Surface::Standalone).unwrap(),
        ["after"] => machine_svg(&view, Moment::After, Surface::Standalone).unwrap(),
        ["arms"] => arms_svg(&view, "fio-randrw-4k-iops", Surface::Standalone).unwrap(),
        ["sizes"] => sizes_svg(&view, Surface::Standalone).unwrap(),
        ["by-nodes"] => by_nodes_svg(&view, Surface::Standalone).unwrap(),
        ["summary"] => summary_json(&view).unwrap(),
        ["terminal", width] => terminal(&view, &Style { width: width.parse().unwrap(), colour: false, ascii: false }),
        ["ascii", width] => terminal(&view, &Style { width: width.parse().unwrap(), colour: false, ascii: true }),
        ["small"] => machine_svg(&sample::small_sample(), Moment::After, Surface::Page).unwrap(),
        _ => "sample [large | nodes | silicon | hostile] page | before | after | arms | sizes | by-nodes | summary | small | \
              terminal WIDTH | ascii WIDTH\n"
            .to_owned(),
    };
    print!("{text}");
}
