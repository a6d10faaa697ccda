//! What a paper says of the order of the modes over NUMA nodes, and what was found here: data/orders.toml.
//!
//! Only orders are compared. A percentage of another machine and another load says nothing of this one, and a lab says
//! nothing about time; both are said beside every statement.

mod rank;

use rank::{growth, ranked};
use serde::Deserialize;

use crate::text::{LAB_WORDS, capital, count, ratio};
use crate::view::{ArmRole, ArmView, ByNodesView, NodesQuantity, OrderSaid, mode};

const DATA: &str = include_str!("../../data/orders.toml");

/// The number of nodes beyond which the paper's wide VMs gain little.
const KNEE: u32 = 4;

#[derive(Deserialize)]
struct File {
    paper: Paper,
    statement: Vec<Statement>,
}

#[derive(Deserialize)]
struct Paper {
    name: String,
    note: String,
}

#[derive(Deserialize)]
struct Statement {
    section: String,
    said: String,
    modes: Modes,
}

/// What of a measurement stands beside a statement.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
enum Modes {
    #[serde(rename = "fastest-vm")]
    FastestVm,
    #[serde(rename = "beyond-4")]
    BeyondFour,
    #[serde(rename = "both-scale")]
    BothScale,
    #[serde(rename = "one-vm")]
    OneVm,
}

/// The paper's statements, each with what the view's figures show of it. The modes are known by the role of their arms, one
/// VM on each node and the pinned VM by the ids `per-node` and `pinned`.
pub fn order_said(view: &ByNodesView, arms: &[ArmView]) -> Vec<OrderSaid> {
    let Some(file) = read() else { return Vec::new() };
    let here = Here { view, arms };
    let said = |statement: Statement| {
        let mut sentences = match statement.modes {
            Modes::FastestVm => here.fastest_vm(),
            Modes::BeyondFour => here.beyond_four(),
            Modes::BothScale => here.both_scale(),
            Modes::OneVm => here.one_vm(),
        };
        if sentences.is_empty() {
            sentences.push("Not measured here".to_owned());
        } else {
            sentences.push(here.limits().to_owned());
        }
        let here = sentences.iter().map(|sentence| format!("{}.", capital(sentence))).collect::<Vec<_>>().join(" ");
        OrderSaid { section: statement.section, said: statement.said, here }
    };
    file.statement.into_iter().map(said).collect()
}

/// The paper behind the statements: its name, and what its text holds and lacks.
pub(crate) fn order_source() -> Option<(String, String)> {
    let Paper { name, note } = read()?.paper;
    Some((name, format!("{note}. Here, modes joined by \"or\" are not told apart")))
}

/// The data is part of the program; a test holds that it parses.
fn read() -> Option<File> {
    toml::from_str(DATA).ok()
}

/// The measurement, as the statements ask it. Every answer is a list of sentences, empty where nothing was measured.
struct Here<'a> {
    view: &'a ByNodesView,
    arms: &'a [ArmView],
}

impl<'a> Here<'a> {
    fn per_node(&self) -> Option<&'a ArmView> {
        mode(self.arms, ArmRole::Other, "per-node")
    }

    /// Whether the rate rests on the lab's clock.
    fn in_a_lab(&self) -> bool {
        self.view.rate().is_some_and(|rate| rate.emulated)
    }

    fn limits(&self) -> &'static str {
        if self.in_a_lab() {
            "In a lab only the order of what was counted holds; of time it shows nothing"
        } else {
            "Compare the order, not the percentages"
        }
    }

    /// `loads per second (lab: emulated time)`.
    fn rate_label(&self, rate: &NodesQuantity) -> String {
        if rate.emulated { format!("{} ({LAB_WORDS})", rate.label) } else { rate.label.clone() }
    }

    fn fastest_vm(&self) -> Vec<String> {
        let Some(most) = self.view.most_nodes() else { return Vec::new() };
        let mut sentences = Vec::new();
        let at = count(most as usize, "node");
        for quantity in [self.view.share(), self.view.rate()].into_iter().flatten() {
            let modes = quantity.best_first(self.arms, most);
            if !modes.is_empty() {
                let label = self.rate_label(quantity);
                sentences.push(format!("At {at}, best first by {label}: {}", ranked(quantity, &modes)));
            }
        }
        let rate = self.view.rate().filter(|rate| !rate.emulated);
        sentences.extend(rate.and_then(|rate| self.is_fastest_vm(rate, most)));
        sentences
    }

    /// Whether one VM on each node is shown faster than every other VM, by their intervals to native.
    fn is_fastest_vm(&self, rate: &NodesQuantity, most: u32) -> Option<String> {
        let split = self.per_node()?;
        let own = rate.point(&split.id, most)?.to_bare?.interval;
        let others = self.arms.iter().filter(|arm| arm.role != ArmRole::Bare && arm.id != split.id);
        let others: Vec<_> =
            others.filter_map(|arm| Some((arm, rate.point(&arm.id, most)?.to_bare?.interval))).collect();
        let names: Vec<&str> = others.iter().map(|(arm, _)| arm.name.as_str()).collect();
        if names.is_empty() {
            return None;
        }
        let faster: Vec<&str> =
            others.iter().filter(|(_, ends)| ends.low > own.high).map(|(arm, _)| arm.name.as_str()).collect();
        Some(if !faster.is_empty() {
            format!("The order is not the paper's: faster than {}: {}", split.name, faster.join(", "))
        } else if others.iter().all(|(_, ends)| ends.high < own.low) {
            // The paper had three beside it.
            match names.len() {
                0..=2 => {
                    format!("Of the paper's order this much: {} is faster than {}", split.name, names.join(" and "))
                }
                _ => format!("The order is the paper's: of the VMs, {} is the fastest", split.name),
            }
        } else {
            format!("No difference shown between {} and the next VM", split.name)
        })
    }

    fn beyond_four(&self) -> Vec<String> {
        let Some(most) = self.view.most_nodes() else { return Vec::new() };
        if most <= KNEE || !self.view.nodes.contains(&KNEE) {
            return Vec::new();
        }
        let mut sentences = Vec::new();
        if let Some(share) = self.view.share() {
            let wide = self.wide().into_iter().filter_map(|arm| {
                let (from, to) = (share.point(&arm.id, KNEE)?, share.point(&arm.id, most)?);
                Some(format!("{} {:.1} % to {:.1} %", arm.name, from.mean, to.mean))
            });
            let wide: Vec<String> = wide.collect();
            if !wide.is_empty() {
                sentences.push(format!("From {KNEE} to {most} nodes, {}: {}", share.label, wide.join(", ")));
            }
        }
        let Some(rate) = self.view.rate() else { return sentences };
        let gains = |arms: Vec<&'a ArmView>| -> Vec<(&'a ArmView, f64)> {
            arms.into_iter().filter_map(|arm| Some((arm, growth(rate, arm, KNEE, most)?))).collect()
        };
        let (wide, split) = (gains(self.wide()), gains(self.split()));
        let said: Vec<String> =
            wide.iter().chain(&split).map(|(arm, gain)| format!("{} {}", arm.name, ratio(Some(*gain)))).collect();
        if said.is_empty() {
            return sentences;
        }
        let times = f64::from(most) / f64::from(KNEE);
        sentences.push(format!(
            "{} from {KNEE} to {most} nodes, {times} times the nodes, by means alone: {}",
            self.rate_label(rate),
            said.join(", ")
        ));
        if !rate.emulated && !wide.is_empty() && !split.is_empty() {
            let most_wide = wide.iter().map(|(_, gain)| *gain).fold(f64::NEG_INFINITY, f64::max);
            let least_split = split.iter().map(|(_, gain)| *gain).fold(f64::INFINITY, f64::min);
            let is = if most_wide < least_split { "is" } else { "is not" };
            // The paper's is that of two wide VMs, and of native and one VM a node.
            let of = if wide.len() + split.len() < 4 { " of those measured" } else { "" };
            sentences.push(format!("By means alone, the order{of} {is} the paper's"));
        }
        sentences
    }

    /// The wide VMs of which nobody told the guest its nodes.
    fn wide(&self) -> Vec<&'a ArmView> {
        let wide = [mode(self.arms, ArmRole::AsFound, ""), mode(self.arms, ArmRole::Other, "pinned")];
        wide.into_iter().flatten().collect()
    }

    /// What runs on each node by itself.
    fn split(&self) -> Vec<&'a ArmView> {
        [self.per_node(), mode(self.arms, ArmRole::Bare, "")].into_iter().flatten().collect()
    }

    fn both_scale(&self) -> Vec<String> {
        let (Some(split), Some(rate)) = (self.per_node(), self.view.rate()) else { return Vec::new() };
        let mut sentences: Vec<String> = self.to_native(rate, split).into_iter().collect();
        sentences.extend(self.view.most_nodes().filter(|_| !rate.emulated).and_then(|most| {
            let ends = rate.point(&split.id, most)?.to_bare?.interval;
            let (at, native) = (count(most as usize, "node"), self.native());
            Some(if ends.high < 1.0 {
                format!("The order is the paper's: at {at}, {native} is faster")
            } else if ends.low > 1.0 {
                format!("The order is not the paper's: at {at}, {} is faster", split.name)
            } else {
                format!("At {at}, no difference shown")
            })
        }));
        let ends = self.view.nodes.first().copied().zip(self.view.most_nodes()).filter(|(first, most)| first < most);
        if let Some((first, most)) = ends {
            let grown = self
                .split()
                .into_iter()
                .filter_map(|arm| Some(format!("{} {}", arm.name, ratio(Some(growth(rate, arm, first, most)?)))));
            let grown: Vec<String> = grown.collect();
            if !grown.is_empty() {
                let linear = f64::from(most) / f64::from(first);
                sentences.push(format!(
                    "From {first} to {most} nodes, {linear} times the nodes, by means alone: {}",
                    grown.join(", ")
                ));
            }
        }
        sentences
    }

    fn one_vm(&self) -> Vec<String> {
        let (Some(cells), Some(rate)) = (mode(self.arms, ArmRole::Planned, ""), self.view.rate()) else {
            return Vec::new();
        };
        let mut sentences: Vec<String> = self.to_native(rate, cells).into_iter().collect();
        let intervals: Vec<_> =
            self.view.nodes.iter().filter_map(|nodes| Some(rate.point(&cells.id, *nodes)?.to_bare?.interval)).collect();
        if let ([first, .., last], false) = (intervals.as_slice(), rate.emulated) {
            sentences.push(if last.high < first.low {
                "The order is the paper's: the widest VM is further from native than the narrowest".to_owned()
            } else if first.high < last.low {
                "The order is not the paper's: the widest VM is nearer to native than the narrowest".to_owned()
            } else {
                "No difference shown between the narrowest and the widest VM".to_owned()
            });
        }
        sentences
    }

    /// `Loads per second, guest cells to native: 0.86× (0.83–0.89) at 1 node, …`.
    fn to_native(&self, rate: &NodesQuantity, arm: &ArmView) -> Option<String> {
        let at = |nodes: &u32| {
            let ratio = rate.point(&arm.id, *nodes)?.to_bare?;
            Some(format!("{ratio} at {}", count(*nodes as usize, "node")))
        };
        let ratios: Vec<String> = self.view.nodes.iter().filter_map(at).collect();
        (!ratios.is_empty())
            .then(|| format!("{}, {} to {}: {}", self.rate_label(rate), arm.name, self.native(), ratios.join(", ")))
    }

    fn native(&self) -> &'a str {
        mode(self.arms, ArmRole::Bare, "").map_or("native", |arm| arm.name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_parses() {
        let file: File = toml::from_str(DATA).unwrap();
        assert_eq!(file.statement.len(), 4);
        assert!(file.statement.iter().all(|statement| !statement.said.is_empty() && !statement.section.is_empty()));
    }
}
