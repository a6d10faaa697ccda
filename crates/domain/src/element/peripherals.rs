//! Devices of which only the kind matters: controllers, balloon, inputs, sound, displays, shared folders.

use roxmltree::{Document, Node};
use serde::{Deserialize, Serialize};

use crate::edit::is_plain;
use crate::error::DomainError;
use crate::tree;

/// A device by its element and what is written about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeripheralFacts {
    /// Element: `controller`, `input`, `sound`, `redirdev`, `video`, `memballoon`, `filesystem`, `parallel`, ….
    pub element: String,
    /// Its `type`.
    pub kind: Option<String>,
    /// Its `model`, of an attribute or of the child `<model type>`.
    pub model: Option<String>,
    /// Its `bus`.
    pub bus: Option<String>,
    /// Its `index`, for controllers.
    pub index: Option<u32>,
    /// Iothread of a SCSI controller.
    pub iothread: Option<u32>,
    /// Queues of a controller.
    pub queues: Option<u32>,
    /// `<driver type>` of a file system: `virtiofs`, `path`, ….
    pub driver: Option<String>,
    /// `freePageReporting` of a balloon.
    pub free_page_reporting: Option<String>,
}

const ELEMENTS: [&str; 9] =
    ["controller", "input", "sound", "redirdev", "video", "memballoon", "filesystem", "parallel", "graphics"];

pub(crate) fn read(document: &Document<'_>) -> Result<Vec<PeripheralFacts>, DomainError> {
    let devices = tree::find_all(document, &["devices"]);
    let wanted = |node: &Node<'_, '_>| is_plain(*node) && ELEMENTS.contains(&node.tag_name().name());
    devices.iter().flat_map(|devices| devices.children()).filter(wanted).map(read_one).collect()
}

fn read_one(node: Node<'_, '_>) -> Result<PeripheralFacts, DomainError> {
    let driver = tree::child(node, "driver");
    let number = |name: &str| driver.map_or(Ok(None), |driver| tree::number(driver, name));
    Ok(PeripheralFacts {
        element: node.tag_name().name().to_owned(),
        kind: tree::attribute(node, "type"),
        model: tree::attribute(node, "model")
            .or_else(|| tree::child(node, "model").and_then(|model| tree::attribute(model, "type"))),
        bus: tree::attribute(node, "bus"),
        index: tree::number(node, "index")?,
        iothread: number("iothread")?,
        queues: number("queues")?,
        driver: driver.and_then(|driver| tree::attribute(driver, "type")),
        free_page_reporting: tree::attribute(node, "freePageReporting"),
    })
}
