//! How far the nodes are from each other: a matrix in shades, with its own legend.

use super::layout::MARGIN;
use crate::svg::canvas::{Area, Canvas};
use crate::view::HostMap;

/// Shades there are.
const SHADES: usize = 6;

/// Draws the matrix with its corner at (`left`, `top`); its width and height, zero where there is none.
pub(super) fn draw(canvas: &mut Canvas, map: &HostMap, left: f64, top: f64) -> (f64, f64) {
    let count = map.distances.len();
    if count == 0 {
        return (0.0, 0.0);
    }
    let cell = match count {
        0..=8 => 26.0,
        9..=24 => 20.0,
        25..=32 => 14.0,
        _ => 8.0,
    };
    let names: Vec<String> =
        map.nodes.iter().filter_map(|node| node.index).take(count).map(|index| index.to_string()).collect();
    let mut values: Vec<u32> = map.distances.iter().flatten().copied().collect();
    values.sort_unstable();
    values.dedup();
    let shade = |value: u32| {
        let rank = values.iter().position(|other| *other == value).unwrap_or(0);
        // The nearest is the darkest; equal steps by rank, since firmware's figures are ranks more than measures.
        if values.len() <= SHADES { rank } else { rank * (SHADES - 1) / (values.len() - 1) }
    };
    canvas.text(left, top + 10.0, "nm-bold", "Distances between nodes");
    let (x, y) = (left + MARGIN, top + 38.0);
    for (row, line) in map.distances.iter().enumerate() {
        for (column, value) in line.iter().enumerate() {
            let area =
                Area { x: x + column as f64 * cell, y: y + row as f64 * cell, width: cell - 1.0, height: cell - 1.0 };
            canvas.open(&format!("node {} to node {}: {value}", names[row], names[column]));
            canvas.rect(area, 1.5, &format!("nm-heat-{}", shade(*value)));
            if cell >= 20.0 {
                let class = if shade(*value) == 0 { "nm-onsmall" } else { "nm-tiny" };
                canvas.text(area.x + area.width / 2.0, area.y + area.height / 2.0 + 3.2, class, &value.to_string());
            }
            canvas.close();
        }
    }
    // On a large matrix every second or fourth node is named.
    let step = match cell as u32 {
        0..=9 => 4,
        10..=19 => 2,
        _ => 1,
    };
    for (position, name) in names.iter().enumerate().step_by(step) {
        let along = position as f64 * cell + cell / 2.0;
        canvas.text(x + along, y - 5.0, "nm-tiny nm-muted", name);
        canvas.text(x - 5.0, y + along + 3.2, "nm-small nm-end", name);
    }
    let height = y - top + count as f64 * cell;
    let mut along = x;
    for value in values.iter().take(8) {
        let swatch = Area { x: along, y: top + height + 8.0, width: 12.0, height: 12.0 };
        canvas.rect(swatch, 1.5, &format!("nm-heat-{}", shade(*value)));
        canvas.text(along + 16.0, top + height + 18.0, "nm-small", &value.to_string());
        along += 44.0;
    }
    ((MARGIN + count as f64 * cell).max(along - left), height + 24.0)
}
