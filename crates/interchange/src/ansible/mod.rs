//! Ansible: a role that installs nearmetal's programs, copies each host its plan, applies it, verifies it, and rolls it back
//! on a tag; with a playbook that asks all hosts before it changes one, and an inventory.
//!
//! The role's files are texts: nothing of a plan is in them. Ansible reads `{{ }}` in an inventory as code, so names of hosts
//! and destinations come from a plan only where they are plain.

use std::fmt::Write;

use nearmetal_change::{AnyPlan, Reach};
use serde_json::{Map, Value, json};

use crate::names::{Taken, file_name};
use crate::{ExportFile, Exported, Limit};

/// The files that are the same for every plan.
const FILES: [(&str, &str); 8] = [
    ("site.yml", include_str!("site.yml")),
    ("roles/nearmetal/tasks/main.yml", include_str!("role/tasks/main.yml")),
    ("roles/nearmetal/tasks/prepare.yml", include_str!("role/tasks/prepare.yml")),
    ("roles/nearmetal/tasks/apply.yml", include_str!("role/tasks/apply.yml")),
    ("roles/nearmetal/tasks/verify.yml", include_str!("role/tasks/verify.yml")),
    ("roles/nearmetal/tasks/rollback.yml", include_str!("role/tasks/rollback.yml")),
    ("roles/nearmetal/defaults/main.yml", include_str!("role/defaults/main.yml")),
    ("roles/nearmetal/meta/main.yml", include_str!("role/meta/main.yml")),
];

/// The files.
pub(crate) fn export(plan: &AnyPlan) -> Exported {
    let mut exported = Exported::default();
    FILES.iter().for_each(|(path, text)| exported.add(*path, (*text).to_owned()));
    let local = Reach::Local;
    let (parts, steps): (Vec<_>, usize) = match plan {
        AnyPlan::Host(plan) => (vec![(plan.host.hostname.as_str(), &local, plan.as_ref())], 0),
        AnyPlan::Fleet(fleet) => {
            let parts = fleet.hosts.iter().map(|part| (part.name.as_str(), &part.reach, &part.plan));
            (parts.collect(), fleet.steps.len())
        }
    };
    let mut names = Taken::default();
    let mut hosts = Vec::new();
    for (host, reach, plan) in parts {
        let name = names.free(file_name(host, "host"), 100);
        let text = plan.to_json() + "\n";
        exported.files.push(ExportFile { path: format!("plans/{name}.json"), text, private: true });
        match variables(reach) {
            Ok(variables) => hosts.push((name, variables)),
            Err(why) => {
                let by_hand = format!("add the host `{name}` to inventory.json by hand");
                exported.limits.push(limit(Some(host), "how it is reached", &why, &by_hand));
            }
        }
    }
    if steps > 0 {
        let planned = "the order in which running VMs move";
        let why = "Ansible goes host by host";
        exported.limits.push(limit(
            None,
            planned,
            why,
            "apply this plan with `nearmetal apply`, which keeps the order",
        ));
    }
    exported.add("inventory.json", inventory(&hosts));
    exported
}

fn limit(host: Option<&str>, what: &str, why: &str, by_hand: &str) -> Limit {
    Limit {
        host: host.map(str::to_owned),
        vm: None,
        what: what.to_owned(),
        planned: String::new(),
        why: why.to_owned(),
        by_hand: by_hand.to_owned(),
    }
}

/// The hosts in their order, which is that of the plan.
fn inventory(hosts: &[(String, Map<String, Value>)]) -> String {
    let mut text = "{\n  \"nearmetal\": {\n    \"hosts\": {".to_owned();
    for (number, (name, variables)) in hosts.iter().enumerate() {
        let comma = if number == 0 { "" } else { "," };
        let _ = write!(text, "{comma}\n      {}: {}", json!(name), Value::Object(variables.clone()));
    }
    text.push_str("\n    }\n  }\n}\n");
    text
}

/// How Ansible reaches a host; or why that cannot be written.
fn variables(reach: &Reach) -> Result<Map<String, Value>, String> {
    let mut variables = Map::new();
    let mut set = |key: &str, value: &str| _ = variables.insert(key.to_owned(), json!(value));
    match reach {
        Reach::Local => set("ansible_connection", "local"),
        Reach::Ssh { destination, command } => {
            if !is_plain(destination) {
                return Err("its destination has characters that mean something to Ansible".to_owned());
            }
            let (user, host) = destination.rsplit_once('@').map_or((None, destination.as_str()), |(u, h)| (Some(u), h));
            set("ansible_host", host);
            if let Some(user) = user {
                set("ansible_user", user);
            }
            if let Some(command) = command {
                if !command.split(' ').all(|word| word.is_empty() || is_plain(word)) {
                    return Err("its ssh command has characters that mean something to Ansible".to_owned());
                }
                let (program, options) = command.trim().split_once(' ').unwrap_or((command.trim(), ""));
                if program != "ssh" {
                    set("ansible_ssh_executable", program);
                }
                if !options.is_empty() {
                    set("ansible_ssh_common_args", options);
                }
            }
        }
        Reach::Nowhere { known_by } => return Err(format!("it is known by {known_by} alone")),
    }
    Ok(variables)
}

/// Whether a text means itself to Ansible, to Jinja and to a shell.
fn is_plain(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"/_.:+@=-".contains(&byte);
    !text.is_empty() && text.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_that_ansible_would_run_is_refused() {
        let ssh = |destination: &str, command: Option<&str>| Reach::Ssh {
            destination: destination.to_owned(),
            command: command.map(str::to_owned),
        };
        for reach in
            [ssh("{{lookup('pipe','x')}}", None), ssh("a", Some("ssh -o ProxyCommand={{x}}")), ssh("a$(b)", None)]
        {
            assert!(variables(&reach).is_err(), "{reach:?}");
        }
        let plain = variables(&ssh("root@alpha", Some("ssh -p 2201 -i key"))).unwrap();
        let wanted =
            json!({ "ansible_host": "alpha", "ansible_user": "root", "ansible_ssh_common_args": "-p 2201 -i key" });
        assert_eq!(Value::Object(plain), wanted);
    }
}
