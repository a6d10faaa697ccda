//! Draws a host, to look at while working on the pictures: from `nearmetal inspect --format json` on standard input, or
//! an invented one of 4 or 64 nodes.
//!
//! `nearmetal inspect --format json | cargo run -p nearmetal-report --example host -- svg > /tmp/host.svg`
#![allow(clippy::print_stdout, clippy::unwrap_used)] // a developer's tool: its output is its purpose

#[path = "../tests/invented/mod.rs"]
mod invented;

use nearmetal_host::Host;
use nearmetal_report::view::HostMap;
use nearmetal_report::{Style, Surface, host_picture, host_svg};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (host, words) = match words.as_slice() {
        ["four", rest @ ..] => (invented::four_nodes(), rest),
        ["sixty-four", rest @ ..] => (invented::sixty_four_nodes(), rest),
        rest => {
            let document: serde_json::Value = serde_json::from_reader(std::io::stdin()).unwrap();
            (serde_json::from_value::<Host>(document["host"].clone()).unwrap(), rest)
        }
    };
    let map = HostMap::new(&host);
    let text = match words {
        ["text", width] => host_picture(&map, &Style { width: width.parse().unwrap(), colour: true, ascii: false }),
        ["ascii", width] => host_picture(&map, &Style { width: width.parse().unwrap(), colour: false, ascii: true }),
        ["svg"] => host_svg(&map, Surface::Standalone),
        _ => "host [four | sixty-four] svg | text WIDTH | ascii WIDTH\n".to_owned(),
    };
    print!("{text}");
}
