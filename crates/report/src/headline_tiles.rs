//! The headline of tiles: how many each arm held.

use crate::headline::{Headline, Piece, Stress};
use crate::text::{LAB_WORDS, capital};
use crate::view::{ArmRole, JobReport, TilesHeld, TilesView};

/// One sentence. In a lab it begins with what is emulated: nobody is to take a verdict on quality of service for a real one.
pub(crate) fn headline_tiles(view: &JobReport, tiles: &TilesView) -> Headline {
    let mut pieces = Vec::new();
    let mut say = |text: String, stress| pieces.push(Piece { text, stress });
    if tiles.emulated {
        say(format!("Emulated, at {} times the usual rates: ", tiles.scale), Stress::Result);
    }
    let name = |held: &TilesHeld| view.arm(&held.arm).map_or(held.arm.clone(), |arm| arm.name.clone());
    for (number, held) in tiles.held.iter().enumerate() {
        let role = view.arm(&held.arm).map(|arm| arm.role);
        let stress = if role == Some(ArmRole::Planned) { Stress::Result } else { Stress::Before };
        let most = if held.open_ended && !held.without_figures && held.tiles > 0 { "all " } else { "" };
        let name = if number == 0 && !tiles.emulated { capital(&name(held)) } else { name(held) };
        say(format!("{}{name} held ", if number > 0 { "; " } else { "" }), Stress::Plain);
        say(format!("{most}{}", held.many()), stress);
        if let Some(score) = held.score {
            say(format!(" (score {score:.1})"), Stress::Quiet);
        }
    }
    if tiles.held.is_empty() {
        say("Nothing was measured".to_owned(), Stress::Plain);
    }
    if view.is_lab() {
        say(format!(" — {LAB_WORDS}"), Stress::Quiet);
    }
    let ended = tiles.held.iter().map(|held| format!("{}: {}", capital(&name(held)), held.why));
    Headline { pieces, below: std::iter::once(tiles.over.load.clone()).chain(ended).collect() }
}
