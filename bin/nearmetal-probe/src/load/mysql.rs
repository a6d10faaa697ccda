//! What a MariaDB or MySQL server sends, read as it comes ("Client/Server Protocol", mariadb.com/kb, "Packets"): packets, and the
//! answers they make. Whatever a server sends is read or refused; of rows, only the last one's text is kept.

use crate::load::failure::{Failure, Kind, shown};

/// Bytes of one packet's contents.
pub const PACKET_LIMIT: usize = 1 << 20;
/// Bytes that may come for one answer.
pub const ANSWER_LIMIT: u64 = 64 << 20;
/// Columns of an answer.
const COLUMNS: u64 = 4_096;
/// Bytes of a packet's head: three of its length, one of its number.
const HEAD: usize = 4;

/// Puts a packet together.
pub fn packet(number: u8, contents: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(contents.len() as u32).to_le_bytes()[..3]);
    out.push(number);
    out.extend_from_slice(contents);
}

/// What a server sent in one piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// Its number in the answer.
    pub number: u8,
    /// Its contents.
    pub contents: Vec<u8>,
}

/// Values of a row as text, `None` for NULL.
pub type Row = Vec<Option<Vec<u8>>>;

/// The reader of packets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Packets {
    packet: Vec<u8>,
    received: u64,
}

impl Packets {
    /// A new answer begins: its limit counts from here.
    pub fn begin(&mut self) {
        self.received = 0;
    }

    /// Bytes since the answer began.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Takes bytes up to the end of a packet; gives how many it took, and the packet.
    ///
    /// # Errors
    /// It is larger than it may be.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(usize, Option<Packet>), Failure> {
        let mut taken = self.fill(bytes, HEAD);
        if self.packet.len() >= HEAD {
            let length = u32::from_le_bytes([self.packet[0], self.packet[1], self.packet[2], 0]) as usize;
            if length > PACKET_LIMIT {
                let why = format!("the server sends a packet of {length} bytes, and {PACKET_LIMIT} are the most");
                return Err(Failure::new(Kind::TooLarge, why));
            }
            taken += self.fill(&bytes[taken..], HEAD + length);
            if self.packet.len() == HEAD + length {
                let contents = self.packet.split_off(HEAD);
                let number = self.packet[3];
                self.packet.clear();
                return self.counted(taken).map(|()| (taken, Some(Packet { number, contents })));
            }
        }
        self.counted(taken).map(|()| (taken, None))
    }

    /// Takes bytes until the packet has so many.
    fn fill(&mut self, bytes: &[u8], until: usize) -> usize {
        let taken = until.saturating_sub(self.packet.len()).min(bytes.len());
        self.packet.extend_from_slice(&bytes[..taken]);
        taken
    }

    fn counted(&mut self, taken: usize) -> Result<(), Failure> {
        self.received += taken as u64;
        match self.received <= ANSWER_LIMIT {
            true => Ok(()),
            false => {
                Err(Failure::new(Kind::TooLarge, format!("the server's answer has more than {ANSWER_LIMIT} bytes")))
            }
        }
    }
}

/// The whole answer to one statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It was done, and changed so many rows.
    Done(u64),
    /// It gave so many rows; and this is the last one.
    Rows(u64, Row),
    /// The server refused it: its number, and what it said.
    Refused(u16, String),
}

/// Reads the packets of one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Answering {
    /// None came.
    #[default]
    Nothing,
    /// So many columns are still to be described, of so many.
    Columns(u64, u64),
    /// The end of the columns is to come.
    EndOfColumns(u64),
    /// So many rows came, of so many columns.
    Rows(u64, u64),
}

impl Answering {
    /// Takes a packet; `last` holds the row before it. Gives the outcome where it was the last packet.
    ///
    /// # Errors
    /// It is not of an answer.
    pub fn take(&mut self, contents: &[u8], last: &mut Row) -> Result<Option<Outcome>, Failure> {
        let malformed = || Failure::malformed(format!("the server answers with `{}`", shown(contents)));
        let first = *contents.first().ok_or_else(malformed)?;
        if first == 0xff {
            *self = Self::Nothing;
            let (code, words) = refusal(contents).ok_or_else(malformed)?;
            return Ok(Some(Outcome::Refused(code, words)));
        }
        let is_end = first == 0xfe && contents.len() < 9;
        match *self {
            Self::Nothing if first == 0 => {
                let (changed, _) = length(&contents[1..]).ok_or_else(malformed)?;
                Ok(Some(Outcome::Done(changed)))
            }
            Self::Nothing => {
                let (columns, rest) = length(contents).ok_or_else(malformed)?;
                if !rest.is_empty() || !(1..=COLUMNS).contains(&columns) {
                    return Err(malformed());
                }
                last.clear();
                *self = Self::Columns(columns, columns);
                Ok(None)
            }
            Self::Columns(left, all) => {
                *self = if left == 1 { Self::EndOfColumns(all) } else { Self::Columns(left - 1, all) };
                Ok(None)
            }
            Self::EndOfColumns(all) if is_end => {
                *self = Self::Rows(0, all);
                Ok(None)
            }
            Self::EndOfColumns(_) => Err(malformed()),
            Self::Rows(rows, _) if is_end => {
                *self = Self::Nothing;
                Ok(Some(Outcome::Rows(rows, std::mem::take(last))))
            }
            Self::Rows(rows, columns) => {
                *last = row(contents, columns).ok_or_else(malformed)?;
                *self = Self::Rows(rows + 1, columns);
                Ok(None)
            }
        }
    }
}

/// A length-encoded number, and what follows it.
fn length(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (first, rest) = bytes.split_first()?;
    let more = match first {
        0..=0xfa => return Some((u64::from(*first), rest)),
        0xfc => 2,
        0xfd => 3,
        0xfe => 8,
        // NULL, a file that the server asks for, an error: no numbers.
        _ => return None,
    };
    let (number, rest) = rest.split_at_checked(more)?;
    let mut whole = [0; 8];
    whole[..more].copy_from_slice(number);
    Some((u64::from_le_bytes(whole), rest))
}

/// So many values, and nothing behind them.
fn row(mut bytes: &[u8], columns: u64) -> Option<Row> {
    let mut values = Vec::new();
    for _ in 0..columns {
        if let [0xfb, rest @ ..] = bytes {
            values.push(None);
            bytes = rest;
            continue;
        }
        let (size, rest) = length(bytes)?;
        let (value, rest) = rest.split_at_checked(usize::try_from(size).ok()?)?;
        values.push(Some(value.to_vec()));
        bytes = rest;
    }
    bytes.is_empty().then_some(values)
}

/// An error's number and words: `ff`, two bytes, perhaps `#` with five letters of SQLSTATE, words.
pub fn refusal(contents: &[u8]) -> Option<(u16, String)> {
    let [0xff, low, high, words @ ..] = contents else { return None };
    let words = match words {
        [b'#', rest @ ..] => rest.get(5..)?,
        _ => words,
    };
    Some((u16::from_le_bytes([*low, *high]), shown(words)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// `select 1, null`, as MariaDB 11.8 answers: columns, their ends, a row, its end.
    fn answer() -> Vec<u8> {
        let column = b"\x03def\x00\x00\x00\x011\x00\x0c\x3f\x00\x01\x00\x00\x00\x03\x81\x00\x00\x00\x00";
        let mut bytes = Vec::new();
        for (number, contents) in
            [&b"\x02"[..], column, column, b"\xfe\x00\x00\x02\x00", b"\x011\xfb", b"\xfe\x00\x00\x02\x00"]
                .into_iter()
                .enumerate()
        {
            packet(number as u8 + 1, contents, &mut bytes);
        }
        bytes
    }

    fn read(mut bytes: &[u8], each: usize) -> Result<Vec<Outcome>, Failure> {
        let (mut packets, mut answering, mut last) = (Packets::default(), Answering::default(), Vec::new());
        let mut found = Vec::new();
        while !bytes.is_empty() {
            let (taken, packet) = packets.receive(&bytes[..each.min(bytes.len())])?;
            bytes = &bytes[taken..];
            if let Some(Packet { contents, .. }) = packet {
                found.extend(answering.take(&contents, &mut last)?);
            }
        }
        Ok(found)
    }

    #[test]
    fn rows_are_counted_and_the_last_is_kept_however_the_network_cuts() {
        for each in [1, 2, 7, 1000] {
            let twice = [answer(), answer()].concat();
            let one = Outcome::Rows(1, vec![Some(b"1".to_vec()), None]);
            assert_eq!(read(&twice, each).unwrap(), [one.clone(), one]);
        }
    }

    #[test]
    fn what_was_done_and_what_was_refused_are_told_apart() {
        let mut bytes = Vec::new();
        packet(1, b"\x00\x05\x00\x02\x00\x00\x00", &mut bytes);
        packet(1, b"\xff\x48\x04#HY000No tables used", &mut bytes);
        let refused = Outcome::Refused(1096, "No tables used".to_owned());
        assert_eq!(read(&bytes, 3).unwrap(), [Outcome::Done(5), refused]);
    }

    #[test]
    fn what_is_not_of_an_answer_is_refused() {
        for contents in [&b""[..], b"\xfb/etc/passwd", b"\x02x", b"\xff", b"\xff\x01", b"\x00", b"\xfc\x01"] {
            let mut bytes = Vec::new();
            packet(1, contents, &mut bytes);
            assert!(read(&bytes, 100).is_err(), "{contents:?}");
        }
        let error = read(&[0xff, 0xff, 0xff, 0], 100).unwrap_err();
        assert_eq!(error.kind, Kind::TooLarge);
    }

    proptest! {
        #[test]
        fn nothing_a_server_sends_is_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400), each in 1usize..50) {
            let _ = read(&bytes, each);
            // The same behind a head that fits.
            let mut whole = answer();
            packet(7, &bytes, &mut whole);
            let _ = read(&whole, each);
        }
    }
}
