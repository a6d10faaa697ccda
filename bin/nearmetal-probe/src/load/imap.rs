//! What an IMAP server sends, read as it comes (RFC 9051, RFC 3501): lines, and the literals in them, of which only the length
//! is kept. Whatever a server sends is read or refused.

use crate::load::failure::{Failure, Kind, shown};

/// Bytes of one line, literals left out.
pub const LINE_LIMIT: usize = 64 << 10;
/// Bytes that may come for one answer, literals included.
pub const ANSWER_LIMIT: u64 = 256 << 20;

/// One thing that a server said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// `* …`: the text without the star, and how many bytes of literals stood in it.
    Untagged {
        /// Text, the literals left out.
        text: Vec<u8>,
        /// Bytes of its literals together.
        literals: u64,
    },
    /// `+ …`: it waits for more.
    Continue,
    /// `TAG OK …`, `TAG NO …`, `TAG BAD …`.
    Tagged {
        /// Its tag.
        tag: Vec<u8>,
        /// What became of the command.
        status: Status,
        /// The words behind it.
        words: Vec<u8>,
    },
}

/// What became of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Done.
    Ok,
    /// Refused.
    No,
    /// Not understood.
    Bad,
}

/// The reader: what came of the line so far.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reader {
    line: Vec<u8>,
    /// Where the part of the line behind its last literal begins.
    part: usize,
    /// Bytes of a literal that are still to come.
    literal: u64,
    literals: u64,
    /// Bytes since the answer began.
    received: u64,
}

impl Reader {
    /// A new answer begins: its limit counts from here.
    pub fn begin(&mut self) {
        self.received = 0;
    }

    /// Bytes since the answer began.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Takes bytes up to the end of a line, or all of them; gives how many, and the line if it is whole.
    ///
    /// # Errors
    /// They are nothing that an IMAP server says, or longer than it may be.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(usize, Option<Line>), Failure> {
        if self.literal > 0 {
            let taken = bytes.len().min(usize::try_from(self.literal).unwrap_or(usize::MAX));
            self.literal -= taken as u64;
            self.count(taken)?;
            return Ok((taken, None));
        }
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(bytes.len(), |end| end + 1);
        self.count(taken)?;
        if self.line.len() + taken > LINE_LIMIT {
            return Err(Failure::new(
                Kind::TooLarge,
                format!("a line of the answer is longer than {LINE_LIMIT} bytes"),
            ));
        }
        self.line.extend_from_slice(&bytes[..taken]);
        if end.is_none() {
            return Ok((taken, None));
        }
        self.line.pop();
        if self.line.last() == Some(&b'\r') {
            self.line.pop();
        }
        if let Some(length) = self.literal_announced()? {
            (self.literal, self.literals) = (length, self.literals.saturating_add(length));
            self.part = self.line.len();
            return Ok((taken, None));
        }
        let line = std::mem::take(&mut self.line);
        let literals = std::mem::take(&mut self.literals);
        self.part = 0;
        read(&line, literals).map(|line| (taken, Some(line)))
    }

    fn count(&mut self, taken: usize) -> Result<(), Failure> {
        self.received = self.received.saturating_add(taken as u64);
        if self.received <= ANSWER_LIMIT {
            return Ok(());
        }
        Err(Failure::new(Kind::TooLarge, format!("the answer is longer than {ANSWER_LIMIT} bytes")))
    }

    /// The length of the literal that follows, if the line ends with one; the announcement is taken off the line.
    fn literal_announced(&mut self) -> Result<Option<u64>, Failure> {
        // Only data has literals; words for people may well end with a brace.
        if !self.line.starts_with(b"* ") || is_for_people(&self.line[2..]) || !self.line.ends_with(b"}") {
            return Ok(None);
        }
        let part = &self.line[self.part..];
        let Some(open) = part.iter().rposition(|byte| *byte == b'{') else { return Ok(None) };
        let digits = &part[open + 1..part.len() - 1];
        // LITERAL+ and LITERAL- are for clients; a server may still say it, with the same meaning.
        let digits = digits.strip_suffix(b"+").unwrap_or(digits);
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return Ok(None);
        }
        let length = number(digits).filter(|length| *length <= ANSWER_LIMIT).ok_or_else(|| {
            Failure::new(
                Kind::TooLarge,
                format!("a literal of {} bytes is announced; {ANSWER_LIMIT} are the most", shown(digits)),
            )
        })?;
        let end = self.part + open;
        self.line.truncate(end);
        Ok(Some(length))
    }
}

/// Whether an untagged line is a status with words for people.
fn is_for_people(text: &[u8]) -> bool {
    let first = text.split(|byte| *byte == b' ').next().unwrap_or_default();
    [&b"OK"[..], b"NO", b"BAD", b"BYE", b"PREAUTH"].iter().any(|word| first.eq_ignore_ascii_case(word))
}

/// Decimal digits as a number; `None` where there are none, others among them, or too many.
pub fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 18 {
        return None;
    }
    digits.iter().try_fold(0u64, |sum, byte| byte.is_ascii_digit().then(|| sum * 10 + u64::from(byte - b'0')))
}

fn read(line: &[u8], literals: u64) -> Result<Line, Failure> {
    if let Some(text) = line.strip_prefix(b"* ") {
        return Ok(Line::Untagged { text: text.to_vec(), literals });
    }
    if line == b"+" || line.starts_with(b"+ ") {
        return Ok(Line::Continue);
    }
    let amiss = || Failure::malformed(format!("`{}` is not a line of an IMAP server", shown(line)));
    let mut words = line.splitn(3, |byte| *byte == b' ');
    let tag =
        words.next().filter(|tag| !tag.is_empty() && tag.iter().all(u8::is_ascii_alphanumeric)).ok_or_else(amiss)?;
    let status = match words.next() {
        Some(word) if word.eq_ignore_ascii_case(b"OK") => Status::Ok,
        Some(word) if word.eq_ignore_ascii_case(b"NO") => Status::No,
        Some(word) if word.eq_ignore_ascii_case(b"BAD") => Status::Bad,
        _ => return Err(amiss()),
    };
    Ok(Line::Tagged { tag: tag.to_vec(), status, words: words.next().unwrap_or_default().to_vec() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines(bytes: &[u8], cut: usize) -> Result<Vec<Line>, Failure> {
        let (mut reader, mut found) = (Reader::default(), Vec::new());
        for mut piece in bytes.chunks(cut.max(1)) {
            while !piece.is_empty() {
                let (taken, line) = reader.receive(piece)?;
                assert!(taken > 0, "it goes on");
                found.extend(line);
                piece = &piece[taken..];
            }
        }
        Ok(found)
    }

    const ANSWER: &[u8] = b"* 3 FETCH (BODY[HEADER] {7}\r\nab\r\ncd\n BODY[TEXT] {2}\r\n\r\n FLAGS (\\Seen))\r\n+ go on\r\n* OK a brace {5}\r\na1 OK [READ-WRITE] done {3}\r\n";

    #[test]
    fn literals_are_passed_over_and_words_for_people_have_none() {
        let found = lines(ANSWER, usize::MAX).unwrap();
        let fetch = b"3 FETCH (BODY[HEADER]  BODY[TEXT]  FLAGS (\\Seen))".to_vec();
        assert_eq!(found[0], Line::Untagged { text: fetch, literals: 9 });
        assert_eq!(found[1], Line::Continue);
        assert_eq!(found[2], Line::Untagged { text: b"OK a brace {5}".to_vec(), literals: 0 });
        let words = b"[READ-WRITE] done {3}".to_vec();
        assert_eq!(found[3], Line::Tagged { tag: b"a1".to_vec(), status: Status::Ok, words });
        assert_eq!(found.len(), 4);
    }

    #[test]
    fn nonsense_is_refused_in_words() {
        let long = vec![b'a'; LINE_LIMIT + 1];
        for (bytes, kind, words) in [
            (&b"HTTP/1.1 400 Bad Request\r\n"[..], Kind::Malformed, "is not a line of an IMAP server"),
            (b"\r\n", Kind::Malformed, "is not a line"),
            (b"a1\r\n", Kind::Malformed, "`a1` is not a line"),
            (b"a1 PERHAPS\r\n", Kind::Malformed, "is not a line"),
            (b"* 1 FETCH (BODY[] {999999999999}\r\n", Kind::TooLarge, "999999999999 bytes is announced"),
            (b"* 1 FETCH (BODY[] {99999999999999999999999}\r\n", Kind::TooLarge, "is announced"),
            (&long, Kind::TooLarge, "a line of the answer is longer"),
        ] {
            let failure = lines(bytes, usize::MAX).unwrap_err();
            assert!(failure.kind == kind && failure.why.contains(words), "{failure:?}");
        }
    }

    #[test]
    fn lines_without_end_are_ended() {
        let piece = b"* 1 EXISTS\r\n".repeat(100_000);
        let mut reader = Reader::default();
        let mut ended = None;
        'all: for _ in 0..=ANSWER_LIMIT / piece.len() as u64 {
            let mut rest = &piece[..];
            while !rest.is_empty() {
                match reader.receive(rest) {
                    Ok((taken, _)) => rest = &rest[taken..],
                    Err(failure) => {
                        ended = Some(failure.kind);
                        break 'all;
                    }
                }
            }
        }
        assert_eq!(ended, Some(Kind::TooLarge));
        reader.begin();
        assert_eq!(reader.received(), 0, "the next answer has its own limit");
    }

    proptest! {
        #[test]
        fn it_does_not_matter_how_an_answer_is_cut_up(cut in 1usize..80) {
            prop_assert_eq!(lines(ANSWER, cut), lines(ANSWER, usize::MAX));
        }

        #[test]
        fn whatever_comes_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300), cut in 1usize..40) {
            let _ = lines(&bytes, cut);
        }

        #[test]
        fn a_damaged_answer_is_read_or_refused(at in 0usize..ANSWER.len(), byte in any::<u8>(), cut in 1usize..40) {
            let mut bytes = ANSWER.to_vec();
            bytes[at] = byte;
            let _ = lines(&bytes, cut);
        }
    }
}
