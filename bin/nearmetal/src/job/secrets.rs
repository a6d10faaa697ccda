//! Definitions may hold a password of VNC or SPICE (`passwd` of `<graphics>`); a report is for showing around.

/// What stands in place of a secret.
const MASK: &str = "…not shown…";

/// Replaces the value of every `passwd` attribute. Lines stay lines, so that two masked texts still compare.
pub(crate) fn mask(xml: &str) -> String {
    let mut masked = String::with_capacity(xml.len());
    let mut rest = xml;
    while let Some(found) = rest.find("passwd") {
        let behind = found + "passwd".len();
        let own_word = rest[..found].ends_with(|c: char| c.is_ascii_whitespace());
        let Some((start, end)) = value(&rest[behind..]).filter(|_| own_word) else {
            masked.push_str(&rest[..behind]);
            rest = &rest[behind..];
            continue;
        };
        masked.push_str(&rest[..behind + start]);
        masked.push_str(MASK);
        rest = &rest[behind + end..];
    }
    masked.push_str(rest);
    masked
}

/// Where the value stands in ` = 'value'`; an unclosed quote reaches to the end.
fn value(text: &str) -> Option<(usize, usize)> {
    let equals = text.len() - text.trim_start().len();
    let behind = text[equals..].strip_prefix('=')?;
    let quote_at = equals + 1 + (behind.len() - behind.trim_start().len());
    let quote = text[quote_at..].chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let start = quote_at + 1;
    Some((start, text[start..].find(quote).map_or(text.len(), |length| start + length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_do_not_leave() {
        let table = [
            (
                "<graphics type='vnc' passwd='geheim' port='-1'/>",
                "<graphics type='vnc' passwd='…not shown…' port='-1'/>",
            ),
            ("<graphics\n passwd = \"a'b\"/>", "<graphics\n passwd = \"…not shown…\"/>"),
            ("<g passwd='unclosed", "<g passwd='…not shown…"),
            ("<name>passwd</name>", "<name>passwd</name>"),
            ("<g x='1' passwdValidTo='2030'/>", "<g x='1' passwdValidTo='2030'/>"),
            ("passwd", "passwd"),
        ];
        for (before, after) in table {
            assert_eq!(mask(before), after);
        }
    }
}
