//! The shapes of arms, which differ by shape as well as by colour, and where names at the ends of lines stand.

use super::canvas::Canvas;

/// The least that names at the ends of lines are apart.
const APART: f64 = 15.0;

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

/// Orders the names at the ends of lines from the top, and moves them apart where lines end close together.
pub(super) fn spread<T>(ends: &mut [(f64, T)], top: f64, bottom: f64) {
    ends.sort_by(|one, other| one.0.total_cmp(&other.0));
    // Down from the top, then up from the bottom: what does not fit above it moves up.
    let mut least = top;
    for (y, _) in ends.iter_mut() {
        *y = y.max(least);
        least = *y + APART;
    }
    let mut largest = bottom;
    for (y, _) in ends.iter_mut().rev() {
        *y = y.min(largest);
        largest = *y - APART;
    }
}
