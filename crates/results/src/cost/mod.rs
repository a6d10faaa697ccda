//! Where the time goes, out of a document's runs: a table of what each request cost, and what would lift a guest.

mod lift;
mod table;

pub use lift::{CostsOf, Lifting, costs_of_guests, lift_rules, lift_text, liftings};
pub use table::{CostRow, cost_figures, cost_table, cost_text};
