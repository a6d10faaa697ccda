//! The shapes of arms: they differ by shape as well as by colour.

use super::canvas::Canvas;

/// Draws the shape of the arm at this position; after five they repeat.
pub(super) fn marker(canvas: &mut Canvas, position: usize, x: f64, y: f64, class: &str) {
    match position % 5 {
        0 => canvas.circle(x, y, 4.5, class),
        1 => canvas.polygon(&[(x - 4.2, y - 4.2), (x + 4.2, y - 4.2), (x + 4.2, y + 4.2), (x - 4.2, y + 4.2)], class),
        2 => canvas.polygon(&[(x, y - 5.4), (x + 5.2, y + 4.2), (x - 5.2, y + 4.2)], class),
        3 => canvas.polygon(&[(x, y - 5.6), (x + 5.6, y), (x, y + 5.6), (x - 5.6, y)], class),
        _ => canvas.polygon(&[(x, y + 5.4), (x + 5.2, y - 4.2), (x - 5.2, y - 4.2)], class),
    }
}
