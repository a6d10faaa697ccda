//! Where everything of a host goes: both panels have one layout, so that the eye finds the same PU in the same place.

use crate::svg::canvas::Area;
use crate::view::fleet::{HostSheet, SheetDevice, SheetNode, SheetPu};

/// Width of a picture inside its margins.
pub(super) const WIDTH: f64 = 1240.0;
/// Height of a panel's title.
pub(super) const PANEL_HEAD: f64 = 20.0;
/// Height of a node's title.
pub(super) const NODE_HEAD: f64 = 23.0;
/// Space inside a node.
pub(super) const PADDING: f64 = 10.0;
/// Space inside an L3 domain's sheet, and between sheets.
pub(super) const SHEET: f64 = 5.0;
/// Height of the line of VMs that float.
pub(super) const FLOATS: f64 = 20.0;
/// Height of the memory's bar and its line of figures.
pub(super) const MEMORY: f64 = 36.0;
/// Height of the line of pools.
pub(super) const POOLS: f64 = 13.0;
/// Height of a device's line.
pub(super) const DEVICE: f64 = 18.0;
/// Devices a node shows; the rest is counted.
pub(super) const DEVICES_SHOWN: usize = 5;

/// Space between boxes, and inside a package's frame.
const GAP: f64 = 10.0;
const FRAME: f64 = 8.0;
/// Height of a package's title.
const PACKAGE_HEAD: f64 = 18.0;
/// Space between two panels beside each other.
const BETWEEN: f64 = 28.0;

/// A package's frame and its nodes, relative to the panel below its title.
pub(super) struct PackagePlace {
    pub(super) frame: Area,
    pub(super) nodes: Vec<Area>,
}

/// The arrangement.
pub(super) struct Layout {
    /// Whether the two panels stand beside each other.
    pub(super) beside: bool,
    pub(super) panel_width: f64,
    pub(super) panel_height: f64,
    pub(super) packages: Vec<PackagePlace>,
    pub(super) strays_height: f64,
    /// Side of a PU's tile.
    pub(super) tile: f64,
    box_width: f64,
}

impl Layout {
    pub(super) fn new(sheet: &HostSheet) -> Self {
        let nodes = sheet.nodes().count();
        let pus = |node: &SheetNode| node.domains.iter().flatten().map(Vec::len).sum::<usize>();
        let most = sheet.nodes().map(pus).max().unwrap_or(0);
        let (beside, columns): (bool, usize) = match nodes {
            0..=1 => (true, 1),
            2..=4 => (true, 2),
            5..=16 => (false, 4),
            17..=36 => (false, 6),
            _ => (false, 8),
        };
        let panel_width = if beside { (WIDTH - BETWEEN) / 2.0 } else { WIDTH };
        // As many packages in a row as the smallest allows; each costs a frame.
        let smallest = sheet.packages.iter().map(|package| package.nodes.len()).min().unwrap_or(1).max(1);
        let frames = columns.div_ceil(smallest).min(sheet.packages.len().max(1)) as f64;
        let box_width = (panel_width - (columns - 1) as f64 * GAP - frames * 2.0 * FRAME) / columns as f64;
        let tile = match (columns, most) {
            (1, 0..=32) | (2 | 4, 0..=16) => 26.0,
            (1, 0..=96) | (2 | 4, 0..=40) => 20.0,
            (1, 0..=256) | (2 | 4, 0..=96) | (6, 0..=16) => 16.0,
            (1 | 2 | 4, _) | (6 | 8, 0..=32) => 12.0,
            _ => 9.0,
        };
        let mut layout =
            Self { beside, panel_width, panel_height: 0.0, packages: Vec::new(), strays_height: 0.0, tile, box_width };
        let bottom = layout.place(sheet, columns);
        if !sheet.strays.is_empty() {
            layout.strays_height = 16.0 + devices_height(&sheet.strays);
        }
        layout.panel_height = PANEL_HEAD + bottom + layout.strays_height;
        layout
    }

    /// Packages from left to right as long as there is room; the end of the last row.
    fn place(&mut self, sheet: &HostSheet, columns: usize) -> f64 {
        let (mut x, mut y, mut row_height, mut row) = (0.0, 0.0, 0.0f64, 0);
        for package in &sheet.packages {
            let across = columns.min(package.nodes.len()).max(1);
            let width = across as f64 * (self.box_width + GAP) - GAP + 2.0 * FRAME;
            if x > 0.0 && x + width > self.panel_width + 0.5 {
                self.level(row, row_height);
                (x, y, row_height, row) = (0.0, y + row_height + GAP, 0.0, self.packages.len());
            }
            let head = if package.name.is_empty() { FRAME } else { PACKAGE_HEAD };
            let mut nodes = Vec::new();
            let mut top = y + head;
            for nodes_beside in package.nodes.chunks(across) {
                let height = nodes_beside.iter().map(|node| self.node_height(node)).fold(0.0, f64::max);
                for column in 0..nodes_beside.len() {
                    let x = x + FRAME + column as f64 * (self.box_width + GAP);
                    nodes.push(Area { x, y: top, width: self.box_width, height });
                }
                top += height + GAP;
            }
            let height = top - GAP + FRAME - y;
            self.packages.push(PackagePlace { frame: Area { x, y, width, height }, nodes });
            x += width + GAP;
            row_height = row_height.max(height);
        }
        self.level(row, row_height);
        y + row_height + 4.0
    }

    /// Packages of a row end on one line, and so do the nodes of those that have one row of them.
    fn level(&mut self, first: usize, height: f64) {
        for place in &mut self.packages[first..] {
            let missing = height - place.frame.height;
            place.frame.height = height;
            let one_row = place.nodes.first().map(|node| node.y) == place.nodes.last().map(|node| node.y);
            if one_row {
                place.nodes.iter_mut().for_each(|node| node.height += missing);
            }
        }
    }

    fn node_height(&self, node: &SheetNode) -> f64 {
        let floats = if floats(node) { FLOATS } else { 0.0 };
        let pools = if pools(node) { POOLS } else { 0.0 };
        NODE_HEAD + self.sheets(node).1 + floats + MEMORY + pools + devices_height(&node.devices) + PADDING - 4.0
    }

    /// The sheet of each L3 domain, from the corner below the node's title; and the height of all.
    pub(super) fn sheets(&self, node: &SheetNode) -> (Vec<Area>, f64) {
        let room = self.box_width - 2.0 * PADDING;
        let mut sheets: Vec<Area> = Vec::new();
        let (mut x, mut y, mut line) = (0.0, 0.0, 0.0f64);
        for domain in &node.domains {
            let (places, height) = self.cores(domain);
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
        (sheets, if node.domains.is_empty() { 18.0 } else { y + line })
    }

    /// Each core's frame inside its sheet, in rows of nearly the same length; and the height of all.
    pub(super) fn cores(&self, domain: &[Vec<SheetPu>]) -> (Vec<Area>, f64) {
        let room = self.box_width - 2.0 * PADDING - 2.0 * SHEET;
        let (padding, gap) = (self.core_padding(), if self.tile < 16.0 { 2.0 } else { 3.0 });
        let height = self.tile + 2.0 * padding;
        let width = |core: &Vec<SheetPu>| (core.len() as f64 * (self.tile + 1.0) - 1.0 + 2.0 * padding).min(room);
        let widest = domain.iter().map(width).fold(1.0, f64::max);
        let most = (((room + gap) / (widest + gap)) as usize).max(1);
        let rows = domain.len().div_ceil(most).max(1);
        let across = domain.len().div_ceil(rows).max(1);
        let mut places = Vec::new();
        for (row, cores) in domain.chunks(across).enumerate() {
            let mut x = 0.0;
            for core in cores {
                places.push(Area { x, y: row as f64 * (height + gap), width: width(core), height });
                x += width(core) + gap;
            }
        }
        (places, rows as f64 * (height + gap) - gap)
    }

    /// Space around the tiles of a core.
    pub(super) fn core_padding(&self) -> f64 {
        if self.tile < 16.0 { 1.0 } else { 2.0 }
    }
}

/// Whether VMs float on the node at either moment: both panels keep a line for them then.
pub(super) fn floats(node: &SheetNode) -> bool {
    !node.floats.before.is_empty() || !node.floats.after.is_empty()
}

/// Whether the node has pools at either moment.
pub(super) fn pools(node: &SheetNode) -> bool {
    !node.memory.before.pools.is_empty() || !node.memory.after.pools.is_empty()
}

fn devices_height(devices: &[SheetDevice]) -> f64 {
    let lines = devices.len().min(DEVICES_SHOWN) + usize::from(devices.len() > DEVICES_SHOWN);
    lines as f64 * DEVICE + if lines > 0 { 3.0 } else { 0.0 }
}
