//! What users and groups are called on this host, for messages: by /etc/passwd and /etc/group (passwd(5), group(5)). One that
//! comes from elsewhere, a directory service say, is called by its number.

use std::path::Path;

use nearmetal_host::files;

/// Bytes of such a file that are read.
const MOST: usize = 4 << 20;

/// A user's name, or number.
pub fn user(uid: u32) -> String {
    named("/etc/passwd", uid)
}

/// A group's name, or number.
pub fn group(gid: u32) -> String {
    named("/etc/group", gid)
}

/// A group's number, by its name in /etc/group; a number is itself.
pub fn number_of_group(group: &str) -> Option<u32> {
    let text = files::read_to_string_up_to(Path::new("/etc/group"), MOST).unwrap_or_default();
    group.parse().ok().or_else(|| number_in(&text, group))
}

fn named(file: &str, number: u32) -> String {
    let text = files::read_to_string_up_to(Path::new(file), MOST).unwrap_or_default();
    name_in(&text, number).unwrap_or_else(|| number.to_string())
}

/// The first name with this number in the third field.
fn name_in(text: &str, number: u32) -> Option<String> {
    let number = number.to_string();
    let mut lines = text.lines().map(|line| line.split(':'));
    lines.find_map(|mut fields| {
        let name = fields.next()?;
        let plain = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic());
        (plain && fields.nth(1)? == number).then(|| name.to_owned())
    })
}

/// The number, in the third field, of the first line with this name.
fn number_in(text: &str, name: &str) -> Option<u32> {
    let mut lines = text.lines().map(|line| line.split(':'));
    lines.find_map(|mut fields| if fields.next()? == name { fields.nth(1)?.parse().ok() } else { None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_its_name_and_one_without_is_itself() {
        let text =
            "root:x:0:0::/root:/bin/sh\nbroken\n:x:7:\nalice:x:1000:1000::/home/alice:/bin/sh\n\u{1b}[2J:x:8:8\n";
        assert_eq!(name_in(text, 1000).as_deref(), Some("alice"));
        assert_eq!(name_in(text, 0).as_deref(), Some("root"));
        for without in [7, 8, 100] {
            assert_eq!(name_in(text, without), None);
        }
        assert_eq!(user(4_294_967_000), "4294967000");
        assert_eq!(
            (number_in(text, "alice"), number_in(text, "bob"), number_in(text, "broken")),
            (Some(1000), None, None)
        );
        assert_eq!(number_of_group("4294967000"), Some(4_294_967_000));
    }
}
