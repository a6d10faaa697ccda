//! The machine with the VM's slice in it.

mod draw;
mod facts;
mod layout;

use super::Surface;
use super::canvas::Canvas;
use crate::view::JobReport;

/// Which picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The VM as found.
    Before,
    /// After the change, as read back.
    After,
}

/// The machine as SVG: nodes by package, cores and PUs by owner, memory, devices, and the slice outlined; `None` if the
/// report describes no host.
pub fn machine_svg(view: &JobReport, moment: Moment, surface: Surface) -> Option<String> {
    let found = view.host.as_ref()?;
    let (host, slice, id, when) = match moment {
        Moment::Before => (found, &view.slice_before, "before", "as found"),
        Moment::After => (view.host_after.as_ref().unwrap_or(found), &view.slice_after, "after", "as placed"),
    };
    let machine = facts::gather(host, slice);
    let layout = layout::arrange(&machine);
    let mut canvas = Canvas::new(id);
    let height = draw::draw(&mut canvas, &machine, &layout, &view.guest.name);
    let title = format!("{} {when} on its host", view.guest.name);
    Some(canvas.finish((layout.width, height), &title, &facts::describe(&machine, &view.guest.name), surface))
}

/// Whether the picture needs the whole width of a page: two of them do not fit beside each other.
pub(crate) fn is_wide(view: &JobReport) -> bool {
    let columns = |host| layout::arrange(&facts::gather(host, &view.slice_before)).columns();
    view.host.as_ref().is_some_and(|host| columns(host) > 2)
}
