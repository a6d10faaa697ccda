//! Where everything goes: nodes of equal size in a grid, packages kept together.

use super::facts::{Machine, Node};
use crate::svg::canvas::Area;

/// Width of a node's box; on a machine of many nodes, of a compact one.
const NODE_WIDTH: f64 = 248.0;
const COMPACT_WIDTH: f64 = 212.0;
/// From this many nodes on, boxes are compact.
const MANY_NODES: usize = 9;
/// Space inside a box.
pub(super) const PADDING: f64 = 12.0;
/// Space between boxes: room for the outline and its tab.
const GAP: f64 = 22.0;
/// Space around the picture.
const MARGIN: f64 = 20.0;
/// Devices a node shows; the rest is counted.
pub(super) const DEVICES_SHOWN: usize = 4;
/// Height of a device's line.
pub(super) const DEVICE_HEIGHT: f64 = 24.0;
/// Boxes side by side: more would be too small to read on a page.
const COLUMNS: usize = 4;

/// The arrangement.
pub(super) struct Layout {
    pub(super) width: f64,
    /// Height without the legend.
    pub(super) height: f64,
    /// Frames of packages with more than one node, and their titles.
    pub(super) frames: Vec<(Area, String)>,
    /// One box per node, in the machine's order.
    pub(super) boxes: Vec<Area>,
    /// Width of a node's box.
    pub(super) node_width: f64,
    /// Side of a PU's tile.
    pub(super) tile: f64,
    /// Height of the cores' part, the same in every box.
    pub(super) cores_height: f64,
    /// Whether any node holds pages of the VM: all boxes then keep a line for it.
    pub(super) guest_line: bool,
    columns: usize,
}

impl Layout {
    /// Boxes side by side.
    pub(super) fn columns(&self) -> usize {
        self.columns
    }
}

/// Arranges the machine.
pub(super) fn arrange(machine: &Machine) -> Layout {
    let nodes = || machine.packages.iter().flat_map(|package| &package.nodes);
    let pus = nodes().map(|node| node.cores.iter().map(Vec::len).sum::<usize>()).max().unwrap_or(0);
    let compact = nodes().count() >= MANY_NODES;
    let tile = match pus {
        0..=4 if !compact => 44.0,
        0..=12 if !compact => 36.0,
        0..=24 if !compact => 30.0,
        25..=48 if !compact => 22.0,
        0..=8 => 28.0,
        9..=16 => 22.0,
        _ => 15.0,
    };
    let node_width = if compact { COMPACT_WIDTH } else { NODE_WIDTH };
    let cores_height = nodes().map(|node| core_places(node, tile, node_width).1).fold(20.0, f64::max);
    let devices = nodes().map(|node| device_lines(node.devices.len())).max().unwrap_or(0);
    let guest_line = nodes().any(|node| !node.memory.guest_sizes.is_empty());
    let memory = 40.0 + if guest_line { 16.0 } else { 0.0 };
    let height = PADDING + 22.0 + cores_height + memory + devices as f64 * DEVICE_HEIGHT + PADDING;
    let mut layout = Layout {
        width: 0.0,
        height: 0.0,
        frames: Vec::new(),
        boxes: Vec::new(),
        node_width,
        tile,
        cores_height,
        guest_line,
        columns: 0,
    };
    place(machine, height, &mut layout);
    layout
}

/// Places packages row by row; each is a block of its nodes.
fn place(machine: &Machine, node_height: f64, layout: &mut Layout) {
    let most = machine.packages.iter().map(|package| package.nodes.len()).max().unwrap_or(1).max(1);
    let framed = most > 1;
    // Eight nodes of a package read better as two rows of four than as three of three.
    let inner_columns = if most > 4 { COLUMNS } else { square(most) };
    let inner_rows = most.div_ceil(inner_columns);
    let outer_columns = square(machine.packages.len().max(1)).min((COLUMNS / inner_columns).max(1));
    let (frame, head) = if framed { (14.0, 20.0) } else { (0.0, 0.0) };
    let package_width = inner_columns as f64 * (layout.node_width + GAP) - GAP + 2.0 * frame;
    let package_height = inner_rows as f64 * (node_height + GAP) - GAP + 2.0 * frame + head;
    for (position, package) in machine.packages.iter().enumerate() {
        let x = MARGIN + (position % outer_columns) as f64 * (package_width + GAP);
        let y = MARGIN + (position / outer_columns) as f64 * (package_height + GAP);
        if framed {
            let title = package.number.map_or("no socket known".to_owned(), |number| format!("socket {number}"));
            layout.frames.push((Area { x, y, width: package_width, height: package_height }, title));
        }
        for inner in 0..package.nodes.len() {
            layout.boxes.push(Area {
                x: x + frame + (inner % inner_columns) as f64 * (layout.node_width + GAP),
                y: y + frame + head + (inner / inner_columns) as f64 * (node_height + GAP),
                width: layout.node_width,
                height: node_height,
            });
        }
    }
    let rows = machine.packages.len().div_ceil(outer_columns).max(1);
    layout.columns = outer_columns.min(machine.packages.len().max(1)) * inner_columns;
    layout.width = outer_columns as f64 * (package_width + GAP) - GAP + 2.0 * MARGIN;
    layout.height = rows as f64 * (package_height + GAP) - GAP + 2.0 * MARGIN;
}

/// Columns of the most nearly square grid.
fn square(count: usize) -> usize {
    (1..).find(|side| side * side >= count).unwrap_or(1)
}

/// Lines the devices take, the line that counts the rest included.
fn device_lines(count: usize) -> usize {
    count.min(DEVICES_SHOWN) + usize::from(count > DEVICES_SHOWN)
}

/// Space around the tiles of a core.
pub(super) fn core_padding(tile: f64) -> f64 {
    if tile < 20.0 { 1.5 } else { 3.0 }
}

/// Where each core of a node starts, from the corner of the cores' part; and the part's height.
pub(super) fn core_places(node: &Node, tile: f64, node_width: f64) -> (Vec<Area>, f64) {
    let (padding, gap) = (core_padding(tile), if tile < 20.0 { 3.0 } else { 6.0 });
    let (mut x, mut y) = (0.0, 0.0);
    let height = tile + 2.0 * padding;
    let room = node_width - 2.0 * PADDING;
    let mut places = Vec::new();
    for core in &node.cores {
        // A core of more PUs than fit in a line (8-way SMT with large tiles) keeps its tiles at a narrower pitch.
        let width = (core.len() as f64 * (tile + 2.0) - 2.0 + 2.0 * padding).min(room);
        if x > 0.0 && x + width > room {
            x = 0.0;
            y += height + gap;
        }
        places.push(Area { x, y, width, height });
        x += width + gap;
    }
    let total = if places.is_empty() { 0.0 } else { y + height };
    (places, total)
}
