//! The command that puts a plan in force, as a planner's last words name it: one that works.

use std::path::Path;

use nearmetal_change::{DomainChange, DomainInput};

/// Guests that the command names; of more it tells how many.
const NAMED: usize = 6;

/// Guests of a plan that run now and get a part of it only when they start again.
pub(crate) fn restarted<'a>(domains: &'a [DomainChange], inputs: &[DomainInput]) -> Vec<&'a str> {
    let runs = |name: &str| inputs.iter().any(|input| input.name == name && input.live_xml.is_some());
    let of = domains.iter().filter(|domain| !domain.needs_restart.is_empty() && runs(&domain.name));
    of.map(|domain| domain.name.as_str()).collect()
}

/// What applies the plan at `path`, with what it does to the guests that must start again for it.
pub(crate) fn to_apply(path: &Path, restarted: &[&str]) -> String {
    let apply = format!("to apply it: nearmetal apply {}", path.display());
    if restarted.is_empty() {
        return apply;
    }
    let shown = &restarted[..restarted.len().min(NAMED)];
    let mut names = shown.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    if shown.len() < restarted.len() {
        names.push_str(&format!(" and {} more", restarted.len() - shown.len()));
    }
    format!(
        "{apply} --restart (as root; shuts down and starts again {names}; --live-only instead changes only what can change \
         while guests run)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(needs_restart: bool, runs: bool) -> String {
        let part = serde_json::json!({"what": "page size", "change": "a -> b", "why": "c"});
        let parts = if needs_restart { vec![part] } else { Vec::new() };
        let domain = serde_json::json!({
            "name": "web1", "uuid": "", "xml_before": "", "xml_after": "", "needs_restart": parts, "live_now": [],
        });
        let domains = [serde_json::from_value(domain).unwrap()];
        let live_xml = runs.then(String::new);
        let inputs = [DomainInput { name: "web1".to_owned(), inactive_xml: String::new(), live_xml }];
        to_apply(Path::new("p.json"), &restarted(&domains, &inputs))
    }

    #[test]
    fn the_command_that_is_named_is_one_that_works() {
        let plain = "to apply it: nearmetal apply p.json";
        assert_eq!((command(false, true), command(true, false)), (plain.to_owned(), plain.to_owned()));
        let restart = command(true, true);
        assert!(
            restart.starts_with(&format!("{plain} --restart (as root; shuts down and starts again `web1`")),
            "{restart}"
        );
    }

    #[test]
    fn of_a_fleets_guests_a_few_are_named() {
        let names: Vec<String> = (0..8).map(|number| format!("w{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let command = to_apply(Path::new("p.json"), &names);
        assert!(command.contains("`w5` and 2 more; --live-only") && !command.contains("w6"), "{command}");
    }
}
