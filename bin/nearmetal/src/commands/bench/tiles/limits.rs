//! The limits file of `nearmetal bench tiles`: how soon each part of a tile has to answer. TOML in, plain data out.

use nearmetal_fleet::file::{FileErrors, Key, Notes, NumberPair, REQUIRED, Section, Table, key, read_text};
use nearmetal_load::{Limit, TileRole};
use nearmetal_results::RoleLimits;

/// Bytes of a limits file at most.
const MOST_TEXT: usize = 64 << 10;
/// Limits of a part at most.
const MOST_LIMITS: usize = 8;
/// Milliseconds of a limit: a driver waits twice as long for an answer, and 600000 ms at most.
const MILLISECONDS: std::ops::RangeInclusive<f64> = 1.0..=300_000.0;

const OF_A_PART: &[Key] = &[key(
    "within",
    "list of pairs",
    REQUIRED,
    "Parts of the requests, above 0 and up to 1, each with the milliseconds within which it has to be answered.",
    "within = [[0.95, 3000], [0.99, 5000]]",
)];

const EXAMPLE: &str = "[web]";

/// The tables of such a file: one for each part of a tile.
macro_rules! tables {
    ($($name:ident $word:literal $head:literal),+ $(,)?) => {
        static TOP: Table = Table {
            head: "the top of the file",
            about: "How soon each part of a tile has to answer.",
            keys: &[$(key($word, "table", "the usual limits", "The limits of this part.", $head)),+],
        };
        $(static $name: Table = Table { head: $head, about: "Limits of a part of the tile.", keys: OF_A_PART };)+
        static TABLES: [&Table; 7] = [&TOP, $(&$name),+];
        /// The table of a part.
        fn table(role: TileRole) -> (&'static str, &'static Table) {
            let all: [(&'static str, &'static Table); 6] = [$(($word, &$name)),+];
            let found = all.into_iter().find(|(word, _)| *word == role.word());
            found.unwrap_or(("web", &WEB))
        }
    };
}

tables! {
    INFRA "infra" "[infra]",
    DB "db" "[db]",
    WEB "web" "[web]",
    MAIL "mail" "[mail]",
    APP "app" "[app]",
    IDLE "idle" "[idle]",
}

/// Reads a limits file. `origin`: its name, for messages.
///
/// # Errors
/// Everything that is wrong with it, each with line and column.
pub(super) fn parse(origin: &str, text: &str) -> Result<Vec<RoleLimits>, FileErrors> {
    read_text(origin, text, (MOST_TEXT, "take away what is no limit"), &TABLES, read)
}

fn read(top: &Section<'_>, notes: &Notes) -> Vec<RoleLimits> {
    let mut all = Vec::new();
    for role in TileRole::ALL {
        let (word, table) = table(role);
        let Some(section) = top.table(word, table) else { continue };
        let section = section.owned_by(format!("part `{role}`"));
        match section.pairs("within") {
            Some(pairs) if pairs.value.is_empty() || pairs.value.len() > MOST_LIMITS => {
                let message = format!("`within` has {} limits", pairs.value.len());
                section.wrong(&pairs.span, message, format!("give 1 to {MOST_LIMITS}"));
            }
            Some(pairs) => {
                let within: Vec<Limit> = pairs.value.iter().filter_map(|pair| limit(&section, pair)).collect();
                all.push(RoleLimits { role, within });
            }
            None if section.has("within") => {}
            None => {
                section.wrong(&section.span, "`within` is missing", format!("for example: {}", OF_A_PART[0].example))
            }
        }
        section.finish();
    }
    top.finish();
    if all.is_empty() && !TileRole::ALL.iter().any(|role| top.has(role.word())) {
        notes.add(&(0..0), "the file has no limits", format!("add a table for a part, such as {EXAMPLE}"));
    }
    all
}

/// One limit, if it can be one.
fn limit(section: &Section<'_>, pair: &NumberPair) -> Option<Limit> {
    let (part, milliseconds) = pair.value;
    if !(part > 0.0 && part <= 1.0) {
        let message = format!("a part of {part} cannot be answered");
        section.wrong(&pair.span, message, "give a number above 0 and up to 1, such as 0.95 for 95 %");
        return None;
    }
    if !MILLISECONDS.contains(&milliseconds) || milliseconds.fract() != 0.0 {
        let message = format!("a limit of {milliseconds} ms cannot be counted");
        let (least, most) = (MILLISECONDS.start(), MILLISECONDS.end());
        section.wrong(&pair.span, message, format!("give {least} to {most} whole milliseconds"));
        return None;
    }
    Some(Limit { part, within_ms: milliseconds as u32, ours: true })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parts_have_the_limits_that_are_written_and_the_others_none() {
        let text = "[web]\nwithin = [[0.95, 3000], [0.99, 5000]]\n[db]\nwithin = [[1, 500]]\n";
        let read = parse("limits.toml", text).unwrap();
        let told: Vec<(&str, Vec<(f64, u32)>)> = read
            .iter()
            .map(|of| (of.role.word(), of.within.iter().map(|limit| (limit.part, limit.within_ms)).collect()))
            .collect();
        assert_eq!(told, [("db", vec![(1.0, 500)]), ("web", vec![(0.95, 3000), (0.99, 5000)])]);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (text, place, words) in [
            ("", "limits.toml:1:1", "no limits"),
            ("[web]\nwithin = [[95, 3000]]\n", "limits.toml:2:", "a part of 95"),
            ("[web]\nwithin = [[0.95, 0]]\n", "limits.toml:2:", "a limit of 0 ms"),
            ("[web]\nwithin = [[0.95, 300001]]\n", "limits.toml:2:", "1 to 300000"),
            ("[web]\nwithin = [[0.95, 1.5]]\n", "limits.toml:2:", "whole milliseconds"),
            ("[web]\nwithin = [[0.95]]\n", "limits.toml:2:", "not a pair"),
            ("[web]\nwithin = 3000\n", "limits.toml:2:", "a list of pairs"),
            ("[web]\nwithin = []\n", "limits.toml:2:", "has 0 limits"),
            ("[web]\n", "limits.toml:1:", "`within` is missing"),
            ("[wab]\nwithin = [[0.95, 3000]]\n", "limits.toml:1:", "web"),
            ("[web]\nwithn = [[0.95, 3000]]\n", "limits.toml:2:", "within"),
            ("[web\n", "limits.toml:1:", "TOML"),
        ] {
            let why = parse("limits.toml", text).unwrap_err().to_string();
            assert!(why.contains(place) && why.contains(words), "{text:?}: {why}");
        }
    }

    #[test]
    fn every_part_has_its_table() {
        for role in TileRole::ALL {
            let text = format!("[{role}]\nwithin = [[0.5, 10]]\n");
            assert_eq!(parse("x", &text).unwrap()[0].role, role);
        }
    }

    proptest! {
        /// Whatever is in the file: no panic, and only limits that a driver can count.
        #[test]
        fn no_file_gives_a_limit_that_cannot_be_counted(text in "(\\[(web|db|idle)\\]\n|within = \\[\\[[-0-9.e]{1,6}, [-0-9.e]{1,8}\\]\\]\n|\\PC{0,12}\n){0,6}") {
            for of in parse("x", &text).unwrap_or_default() {
                prop_assert!(!of.within.is_empty() && of.within.len() <= MOST_LIMITS);
                for limit in of.within {
                    prop_assert!(limit.part > 0.0 && limit.part <= 1.0);
                    prop_assert!(MILLISECONDS.contains(&f64::from(limit.within_ms)));
                }
            }
        }
    }
}
