//! docs/reference/fleet-file.md is what the parser knows.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fmt::Write;
use std::path::Path;

use nearmetal_fleet::file::{EXAMPLE, TABLES};
use nearmetal_host::files;

const HEAD: &str = "\
# The fleet file

Generated from the parser's own list of keys; `UPDATE_GOLDENS=1 cargo test -p nearmetal-fleet reference` rewrites it.

A fleet file says which VMs you want and on which hosts they may go. It is TOML: `key = value` on a line of its own,
`[table]` once, `[[table]]` for each of several, `#` for remarks.

```
nearmetal fleet example > fleet.toml     a file that shows every key
nearmetal fleet init -o fleet.toml       a file from the domains this machine has
nearmetal fleet check fleet.toml         what is understood, or everything that is wrong, with its line
```

- **Amounts** are texts with a binary unit: \"512 MiB\", \"16 GiB\", \"1 TiB\". Whole numbers only.
- **Names** are libvirt's: anything but a slash and control characters, at most 200 bytes; `.` and `..` are none.
- **Paths** of `template` and `capture` count from the fleet file's directory. Paths of disks are paths on the VM's host.
- `{name}` in `template`, `device`, `file` and `volume` stands for the VM's name.
- A key that is not listed here is a mistake, and so is one that contradicts another: nothing is ignored.

**A VM that runs stays where it runs** unless it is `movable`. If each of its vCPUs is bound to a PU (a hardware thread)
of its own, it keeps these PUs, its nodes and its devices. If its vCPUs float inside nodes, it keeps these nodes. If they
float over the machine, or it runs otherwise than the file says, it keeps its host, and the plan finds the place there.
It is known by `uuid` where that is given, else by its name. Domains that are not in the file are nobody's business: what
they hold is not to be had.
";

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn reference() -> String {
    let mut text = HEAD.to_owned();
    for table in TABLES {
        let head = if table.head.starts_with('[') || table.head.contains(' ') {
            table.head.to_owned()
        } else {
            format!("`{} = {{ … }}`", table.head)
        };
        write!(
            text,
            "\n## {head}\n\n{}\n\n| key | value | without it | meaning | example |\n|---|---|---|---|---|\n",
            table.about
        )
        .unwrap();
        for key in table.keys {
            let default = match (table.head, key.default) {
                ("[defaults]", "required") => "each VM must say",
                (_, default) => default,
            };
            let (kind, default, about) = (cell(key.kind), cell(default), cell(key.about));
            writeln!(text, "| `{}` | {kind} | {default} | {about} | `{}` |", key.name, cell(key.example)).unwrap();
        }
    }
    write!(text, "\n## All of it in use\n\nWhat `nearmetal fleet example` prints.\n\n```toml\n{EXAMPLE}```\n").unwrap();
    text
}

#[test]
fn the_reference_says_what_the_parser_knows() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/fleet-file.md");
    let text = reference();
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        files::write(&path, &text).unwrap();
    }
    assert!(
        files::read_to_string(&path).unwrap_or_default() == text,
        "{} is stale: UPDATE_GOLDENS=1 cargo test -p nearmetal-fleet reference",
        path.display()
    );
}
