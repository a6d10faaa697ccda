//! Where everything goes: boxes of one width, rows as high as their fullest box.

use crate::svg::canvas::Area;
use crate::view::{HostMap, MapNode, MapPu};

/// Space around the picture.
pub(super) const MARGIN: f64 = 26.0;
/// Space between boxes.
const GAP: f64 = 14.0;
/// Space inside a box.
pub(super) const PADDING: f64 = 11.0;
/// Height of the title above the boxes.
const HEAD: f64 = 86.0;
/// Height of a box's own title.
pub(super) const NODE_HEAD: f64 = 25.0;
/// Space inside an L3 domain's sheet, and between sheets.
pub(super) const SHEET: f64 = 5.0;
/// Height of the memory's part: its bar and a line of figures.
pub(super) const MEMORY: f64 = 38.0;
/// Height of a device's line.
pub(super) const DEVICE: f64 = 17.0;
/// Devices a box shows; the rest is counted.
pub(super) const DEVICES_SHOWN: usize = 6;

/// The arrangement.
pub(super) struct Layout {
    /// Width of the picture.
    pub(super) width: f64,
    /// Where the boxes end.
    pub(super) bottom: f64,
    /// One box a node.
    pub(super) boxes: Vec<Area>,
    /// Side of a PU's tile.
    pub(super) tile: f64,
}

impl Layout {
    pub(super) fn new(map: &HostMap) -> Self {
        let pus = |node: &MapNode| node.domains.iter().flatten().map(Vec::len).sum::<usize>();
        let most = map.nodes.iter().map(pus).max().unwrap_or(0);
        let (columns, box_width) = match map.nodes.len() {
            0 | 1 => (1, 620.0),
            2..=4 if most <= 16 => (2, 322.0),
            2..=4 => (2, 440.0),
            5..=16 => (4, 258.0),
            17..=36 => (6, 222.0),
            _ => (8, 186.0),
        };
        let tile = match (most, map.nodes.len()) {
            (0..=16, 0..=4) => 30.0,
            (0..=48, 0..=4) => 22.0,
            (_, 0..=4) => 17.0,
            (0..=16, 5..=36) => 19.0,
            (0..=32, _) => 15.0,
            _ => 10.0,
        };
        let mut layout = Self { width: 0.0, bottom: MARGIN + HEAD - GAP, boxes: Vec::new(), tile };
        layout.width = (columns as f64 * (box_width + GAP) - GAP + 2.0 * MARGIN).max(480.0);
        for row in map.nodes.chunks(columns) {
            let height = row.iter().map(|node| layout.node_height(node, box_width)).fold(0.0, f64::max);
            for column in 0..row.len() {
                let x = MARGIN + column as f64 * (box_width + GAP);
                layout.boxes.push(Area { x, y: layout.bottom + GAP, width: box_width, height });
            }
            layout.bottom += height + GAP;
        }
        layout.bottom += GAP;
        layout
    }

    fn node_height(&self, node: &MapNode, width: f64) -> f64 {
        let devices = node.devices.len().min(DEVICES_SHOWN) + usize::from(node.devices.len() > DEVICES_SHOWN);
        let gap = if devices > 0 { 5.0 } else { 0.0 };
        NODE_HEAD + self.sheets(node, width).1 + MEMORY + devices as f64 * DEVICE + gap + PADDING
    }

    /// The sheet of each L3 domain, from the corner below the node's title; and the height of all.
    pub(super) fn sheets(&self, node: &MapNode, width: f64) -> (Vec<Area>, f64) {
        let room = width - 2.0 * PADDING;
        let mut sheets: Vec<Area> = Vec::new();
        let (mut x, mut y, mut line) = (0.0, 0.0, 0.0f64);
        for domain in &node.domains {
            let (places, height) = self.cores(domain, room - 2.0 * SHEET);
            let wide = places.iter().map(|place| place.x + place.width).fold(0.0, f64::max) + 2.0 * SHEET;
            let alone = node.domains.len() == 1;
            if x > 0.0 && x + wide > room {
                (x, y, line) = (0.0, y + line + SHEET, 0.0);
            }
            sheets.push(Area { x, y, width: if alone { room } else { wide }, height: height + 2.0 * SHEET });
            x += wide + SHEET;
            line = line.max(height + 2.0 * SHEET);
        }
        // A node without PUs has a line that says so.
        (sheets, if node.domains.is_empty() { 20.0 } else { y + line })
    }

    /// Each core's frame inside its sheet; and the height of all.
    pub(super) fn cores(&self, domain: &[Vec<MapPu>], room: f64) -> (Vec<Area>, f64) {
        let (padding, gap) = (self.core_padding(), if self.tile < 16.0 { 2.0 } else { 4.0 });
        let height = self.tile + 2.0 * padding;
        let (mut x, mut y) = (0.0, 0.0);
        let mut places = Vec::new();
        for core in domain {
            let width = (core.len() as f64 * (self.tile + 1.0) - 1.0 + 2.0 * padding).min(room);
            if x > 0.0 && x + width > room {
                (x, y) = (0.0, y + height + gap);
            }
            places.push(Area { x, y, width, height });
            x += width + gap;
        }
        (places, y + height)
    }

    /// Space around the tiles of a core.
    pub(super) fn core_padding(&self) -> f64 {
        if self.tile < 16.0 { 1.0 } else { 2.0 }
    }
}
