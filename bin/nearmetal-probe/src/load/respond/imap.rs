//! As much of IMAP as the generator asks for.

use std::io::{self, BufRead, Read, Write};

use super::line;
use crate::load::imap::LINE_LIMIT;
use crate::load::mailbox::Mail;

/// Bytes that may be appended at once.
const MOST: u64 = 1 << 20;

/// Answers commands until the client leaves.
pub(super) fn serve(from: &mut impl BufRead, mut to: impl Write, mail: &Mail) -> io::Result<()> {
    to.write_all(b"* OK nearmetal-probe\r\n")?;
    let mut user = 0;
    while let Some(command) = line(from, LINE_LIMIT)? {
        let words: Vec<&str> = command.split(' ').collect();
        let [tag, verb, rest @ ..] = &words[..] else { return Ok(()) };
        let mut answer = Vec::new();
        let mut status = "OK";
        match (verb.to_ascii_uppercase().as_str(), rest) {
            ("LOGIN", [name, _]) => match name.strip_prefix("user").and_then(|digits| digits.parse().ok()) {
                Some(number) if number < mail.users => user = number,
                _ => status = "NO",
            },
            ("SELECT", _) => answer.extend(format!("* {} EXISTS\r\n", mail.messages).into_bytes()),
            ("FETCH", [number, ..]) => match number.parse::<u32>().ok().filter(|one| (1..=mail.messages).contains(one))
            {
                Some(number) => {
                    let message = mail.message(user, number - 1);
                    answer.extend(format!("* {number} FETCH (BODY[] {{{}}}\r\n", message.len()).into_bytes());
                    answer.extend(message);
                    answer.extend(b")\r\n");
                }
                None => status = "NO",
            },
            ("SEARCH", _) => answer.extend(b"* SEARCH 1\r\n"),
            ("APPEND", [_, literal]) => {
                let digits = literal.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
                let Some(length) =
                    digits.and_then(|digits| digits.parse::<u64>().ok()).filter(|length| *length <= MOST)
                else {
                    return Ok(());
                };
                to.write_all(b"+ go on\r\n")?;
                // The message, and the end of its line.
                if io::copy(&mut from.by_ref().take(length + 2), &mut io::sink())? < length + 2 {
                    return Ok(());
                }
            }
            _ => status = "BAD",
        }
        answer.extend(format!("{tag} {status} done\r\n").into_bytes());
        to.write_all(&answer)?;
    }
    Ok(())
}
