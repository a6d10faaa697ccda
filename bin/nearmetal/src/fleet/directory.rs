//! `--directory`: a fleet's plan as files for people: the report, pictures, definitions and the commands of each host.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use nearmetal_change::{FleetPlanFile, HostPart, private_files};
use nearmetal_host::files::{self, FileError};

/// What is written beside the plan.
pub(crate) struct Pages {
    /// The report as text.
    pub(crate) text: String,
    /// The report as a page.
    pub(crate) html: String,
    /// Hosts before and after.
    pub(crate) hosts: String,
    /// All hosts as tiles.
    pub(crate) overview: String,
}

/// Writes everything and gives the number of files.
///
/// # Errors
/// The directory cannot be made or written.
pub(crate) fn write(directory: &Path, plan: &FleetPlanFile, pages: &Pages) -> Result<usize, FileError> {
    files::create_dir_all(directory)?;
    let mut written = 0;
    let mut put = |path: PathBuf, text: &str| -> Result<(), FileError> {
        // Definitions may hold passwords: all of it is for its owner alone.
        private_files::write(&path, text.as_bytes())?;
        written += 1;
        Ok(())
    };
    put(directory.join("plan.json"), &plan.to_json())?;
    put(directory.join("report.txt"), &pages.text)?;
    put(directory.join("report.html"), &pages.html)?;
    put(directory.join("hosts.svg"), &pages.hosts)?;
    put(directory.join("overview.svg"), &pages.overview)?;
    let mut taken = BTreeSet::new();
    for part in &plan.hosts {
        let own = directory.join(fresh(&part.name, &mut taken));
        files::create_dir_all(&own)?;
        let mut names = BTreeSet::new();
        let mut definitions = Vec::new();
        for domain in &part.plan.domains {
            let name = format!("{}.xml", fresh(&domain.name, &mut names));
            put(own.join(&name), &domain.xml_after)?;
            definitions.push(name);
        }
        put(own.join("host.sh"), &commands(part, &definitions))?;
    }
    Ok(written)
}

/// What `nearmetal apply` does on a host, as a script to read, or to run where nearmetal is not wanted.
fn commands(part: &HostPart, definitions: &[String]) -> String {
    let mut script = format!(
        "#!/bin/sh\n# Host {}: what `nearmetal apply` does there. `apply` also keeps a journal, reads everything back and can undo it.\n\
         # Run this in its directory, as root. Running guests pick up the changes at their next start.\nset -eu\n",
        one_line(&part.name)
    );
    for pool in part.plan.plan.pools.iter().filter(|pool| pool.after != pool.before) {
        let path = format!(
            "/sys/devices/system/node/node{}/hugepages/hugepages-{}kB/nr_hugepages",
            pool.node,
            pool.size.bytes().get() >> 10
        );
        script.push_str(&format!(
            "\n# Pages of {} on node {}: {} now. The kernel gives as many as it can: check that it gave all.\n",
            pool.size, pool.node, pool.before
        ));
        script.push_str(&format!("echo {} > {path}\ntest \"$(cat {path})\" -ge {}\n", pool.after, pool.after));
    }
    for (domain, file) in part.plan.domains.iter().zip(definitions) {
        script.push_str(&format!("\n# {}\n", one_line(&domain.name)));
        for change in domain.needs_restart.iter().chain(&domain.live_now) {
            script.push_str(&format!("#   {}: {}\n", one_line(&change.what), one_line(&change.change)));
        }
        script.push_str(&format!("virsh define {}\n", quoted(file)));
    }
    script
}

/// A comment ends with its line.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// A word for sh, whatever is in it.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A file name that is nobody else's yet and leads nowhere else.
fn fresh(name: &str, taken: &mut BTreeSet<String>) -> String {
    let kept = |c: char| if c.is_ascii_alphanumeric() || "._+-".contains(c) { c } else { '_' };
    let base: String = name.chars().take(200).map(kept).collect();
    let base = if base.is_empty() || base.starts_with(['.', '-']) { format!("_{base}") } else { base };
    let mut candidate = base.clone();
    let mut number = 2;
    while !taken.insert(candidate.clone()) {
        candidate = format!("{base}~{number}");
        number += 1;
    }
    candidate
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_stay_in_their_directory() {
        let mut taken = BTreeSet::new();
        assert_eq!(fresh("db-1", &mut taken), "db-1");
        assert_eq!(fresh("../x", &mut taken), "_.._x");
        assert_eq!(fresh("", &mut taken), "_");
        assert_eq!(fresh("-rf", &mut taken), "_-rf");
        assert_eq!((fresh("a b", &mut taken), fresh("a/b", &mut taken)), ("a_b".to_owned(), "a_b~2".to_owned()));
    }

    #[test]
    fn a_name_is_one_word_for_sh() {
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(one_line("a\nrm -rf /"), "a rm -rf /");
    }
}
