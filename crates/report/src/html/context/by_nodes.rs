//! One guest over more and more NUMA nodes, as texts.

use serde::Serialize;

use super::measured::tone;
use crate::orders::order_source;
use crate::text::{capital, count, lab_words, value};
use crate::view::{ArmRole, ArmView, ByNodesView, JobReport, ModePoint, NodesQuantity, OrderSaid};

#[derive(Serialize)]
pub(super) struct ByNodesPage {
    load: String,
    modes: Vec<Mode>,
    quantities: Vec<Quantity>,
    paper: String,
    note: String,
    orders: Vec<OrderSaid>,
}

#[derive(Serialize)]
struct Mode {
    name: String,
    tone: &'static str,
}

#[derive(Serialize)]
struct Quantity {
    label: String,
    /// Empty where the label says it already.
    unit: String,
    less_is_better: bool,
    /// The words of the lab; empty on silicon.
    lab: &'static str,
    emulated: bool,
    paired: bool,
    rows: Vec<Row>,
}

/// One number of nodes.
#[derive(Serialize)]
struct Row {
    nodes: String,
    cells: Vec<Cell>,
}

/// What one mode did there.
#[derive(Serialize)]
struct Cell {
    mode: String,
    mean: String,
    range: String,
    ratio: String,
}

pub(super) fn by_nodes(view: &JobReport) -> Option<ByNodesPage> {
    let by_nodes = view.by_nodes.as_ref()?;
    let measured = |arm: &&ArmView| {
        by_nodes.quantities.iter().any(|quantity| quantity.series.iter().any(|series| series.arm == arm.id))
    };
    let arms: Vec<&ArmView> = view.arms.iter().filter(measured).collect();
    let (paper, note) = order_source().unwrap_or_default();
    Some(ByNodesPage {
        load: by_nodes.load.clone(),
        modes: arms.iter().map(|arm| Mode { name: arm.name.clone(), tone: tone(Some(arm.role)) }).collect(),
        quantities: by_nodes.shown().into_iter().map(|one| quantity(view, by_nodes, one, &arms)).collect(),
        paper,
        note,
        orders: by_nodes.papers.clone(),
    })
}

fn quantity(view: &JobReport, by_nodes: &ByNodesView, quantity: &NodesQuantity, arms: &[&ArmView]) -> Quantity {
    let row = |nodes: &u32| Row {
        nodes: count(*nodes as usize, "node"),
        cells: arms.iter().map(|arm| cell(arm, quantity.point(&arm.id, *nodes), quantity.is_paired())).collect(),
    };
    Quantity {
        label: capital(&quantity.label),
        unit: quantity.unit_beside().unwrap_or_default().to_owned(),
        less_is_better: !quantity.higher_is_better,
        lab: lab_words(quantity, view.is_lab()).unwrap_or_default(),
        emulated: quantity.emulated,
        paired: quantity.is_paired(),
        rows: by_nodes.nodes.iter().map(row).collect(),
    }
}

fn cell(arm: &ArmView, point: Option<&ModePoint>, paired: bool) -> Cell {
    let mode = arm.name.clone();
    let Some(point) = point else {
        return Cell { mode, mean: "not measured".to_owned(), range: String::new(), ratio: String::new() };
    };
    Cell {
        mode,
        mean: value(Some(point.mean)),
        range: match point.samples {
            0 | 1 => "one sample".to_owned(),
            _ => format!("{}–{}", value(Some(point.low)), value(Some(point.high))),
        },
        ratio: match point.to_bare {
            Some(ratio) => ratio.to_string(),
            None if arm.role == ArmRole::Bare || !paired => String::new(),
            None => "fewer than two pairs".to_owned(),
        },
    }
}
