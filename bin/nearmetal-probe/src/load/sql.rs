//! Transactions on a MariaDB server over one connection.
//!
//! The tables are sysbench's, and a transaction has the statements of its `oltp_read_write` (1.0.20,
//! `/usr/share/sysbench/oltp_read_write.lua`): ten reads of a row, four of 100 rows, two updates, a row deleted and put back.
//! sysbench itself counts from when it took a transaction up, and at a few of them a second it looks for due ones seconds late.
//! Rows that a transaction writes are locked in the order of their numbers, so that no two wait for each other for ever.

use crate::load::dialogue::{Answer, Dialogue, Said};
use crate::load::failure::{Failure, Kind, shown};
use crate::load::mysql::{Answering, Outcome, Packet, Packets, Row, packet, refusal};
use crate::load::site::text;
use crate::random::Random;

/// Rows of a range.
const RANGE: u32 = 100;
/// Rows of a table at least.
pub const FEWEST_ROWS: u32 = 500;
/// Most rows of a table, and most tables.
pub const MOST: (u32, u32) = (100_000_000, 64);

/// Tables that were filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tables {
    /// How many.
    pub tables: u32,
    /// Rows of each.
    pub rows: u32,
}

/// What a server must run with, or a transaction need not be on the drive when it is committed: with another value, a server
/// could win by not writing.
pub const SETTINGS: [(&str, &str); 3] =
    [("innodb_flush_log_at_trx_commit", "1"), ("innodb_flush_method", "O_DIRECT"), ("innodb_doublewrite", "ON")];

/// What a client can do: long passwords, counts of the rows that were found (an update that finds a row as it should become
/// changes none), a database at login, the protocol of 4.1, transactions, its way to prove itself.
const CAPABILITIES: u32 = 0x1 | 0x2 | 0x8 | 0x200 | 0x2000 | 0x8000 | 0x8_0000;
/// utf8mb4_general_ci.
const LETTERS: u8 = 45;
const METHOD: &[u8] = b"mysql_native_password\0";

/// A statement, and what must come of it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Statement {
    words: String,
    must: Must,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Must {
    /// Be done.
    Done,
    /// Change so many rows.
    Change(u64),
    /// Give so many rows.
    Give(u64),
    /// Give some.
    GiveSome,
}

impl Must {
    fn is_met(self, outcome: &Outcome) -> bool {
        match (self, outcome) {
            (Self::Done, Outcome::Done(_)) => true,
            (Self::Change(asked), Outcome::Done(changed)) => asked == *changed,
            (Self::Give(asked), Outcome::Rows(rows, _)) => asked == *rows,
            (Self::GiveSome, Outcome::Rows(rows, _)) => *rows > 0,
            _ => false,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Greeting,
    LoggingIn,
    Checking,
    Idle,
    /// The number of the statement that waits for its answer.
    Waiting(usize),
}

/// One connection.
#[derive(Debug, Clone)]
pub struct Session {
    tables: Tables,
    packets: Packets,
    answering: Answering,
    last: Row,
    stage: Stage,
    statements: Vec<Statement>,
}

impl Session {
    /// To a server with these tables.
    pub fn new(tables: Tables) -> Self {
        Self {
            tables,
            packets: Packets::default(),
            answering: Answering::default(),
            last: Vec::new(),
            stage: Stage::Greeting,
            statements: Vec::new(),
        }
    }

    fn query(&mut self, words: &str, out: &mut Vec<u8>) {
        self.answering = Answering::default();
        // COM_QUERY
        packet(0, &[b"\x03", words.as_bytes()].concat(), out);
    }

    fn taken(&mut self, number: u8, contents: &[u8], out: &mut Vec<u8>) -> Result<Said, Failure> {
        match self.stage {
            Stage::Greeting => {
                if contents.first() != Some(&10) {
                    return Err(refused_at_login(contents));
                }
                packet(number.wrapping_add(1), &login(), out);
                self.stage = Stage::LoggingIn;
                Ok(Said::More)
            }
            Stage::LoggingIn => match contents.first() {
                // The server would rather have another way to prove oneself; there is no password in any.
                Some(0xfe) => {
                    packet(number.wrapping_add(1), b"", out);
                    Ok(Said::More)
                }
                Some(0) => {
                    let asked: Vec<String> = SETTINGS.iter().map(|(name, _)| format!("'{name}'")).collect();
                    let asked = format!(
                        "select group_concat(lower(variable_name), ' ', variable_value separator '\\n') from \
                         information_schema.global_variables where variable_name in ({})",
                        asked.join(", ")
                    );
                    self.stage = Stage::Checking;
                    self.query(&asked, out);
                    Ok(Said::More)
                }
                _ => Err(refused_at_login(contents)),
            },
            Stage::Checking => match self.answering.take(contents, &mut self.last)? {
                None => Ok(Said::More),
                Some(outcome) => {
                    check_settings(&outcome)?;
                    self.stage = Stage::Idle;
                    Ok(Said::Ready)
                }
            },
            Stage::Idle => {
                Err(Failure::malformed(format!("the server sent `{}`, which nobody asked for", shown(contents))))
            }
            Stage::Waiting(place) => match self.answering.take(contents, &mut self.last)? {
                None => Ok(Said::More),
                Some(outcome) => Ok(self.came(place, &outcome, out)),
            },
        }
    }

    /// A statement has its answer: the next one is sent, or the transaction is over.
    fn came(&mut self, place: usize, outcome: &Outcome, out: &mut Vec<u8>) -> Said {
        let Some(Statement { words, must }) = self.statements.get(place).cloned() else { return Said::More };
        let bytes = self.packets.received();
        let failed =
            |kind, why| Said::Answered(Answer { failure: Some(Failure::new(kind, why)), reusable: false, bytes });
        if let Outcome::Refused(code, said) = outcome {
            return failed(
                Kind::Refused,
                format!("the server refused `{}` (error {code}): {said}", shown(words.as_bytes())),
            );
        }
        if !must.is_met(outcome) {
            let why = format!("`{}` gave {}, and {must:?} was expected", shown(words.as_bytes()), amount(outcome));
            return failed(Kind::WrongAnswer, why);
        }
        match self.statements.get(place + 1).map(|next| next.words.clone()) {
            Some(next) => {
                self.stage = Stage::Waiting(place + 1);
                self.query(&next, out);
                Said::More
            }
            None => {
                self.stage = Stage::Idle;
                Said::Answered(Answer { failure: None, reusable: true, bytes })
            }
        }
    }
}

impl Dialogue for Session {
    fn open(&mut self, _: &mut Vec<u8>) -> bool {
        *self = Self::new(self.tables);
        false
    }

    fn request(&mut self, _class: usize, random: &mut Random, out: &mut Vec<u8>) {
        self.statements = transaction(self.tables, random);
        self.stage = Stage::Waiting(0);
        self.packets.begin();
        let first = self.statements.first().map(|statement| statement.words.clone()).unwrap_or_default();
        self.query(&first, out);
    }

    fn receive(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) -> Result<Said, Failure> {
        let mut said = Said::More;
        while !bytes.is_empty() {
            let (taken, packet) = self.packets.receive(bytes)?;
            bytes = &bytes[taken..];
            let Some(Packet { number, contents }) = packet else { continue };
            said = self.taken(number, &contents, out)?;
            if said != Said::More && !bytes.is_empty() {
                let rest = shown(bytes);
                return Err(Failure::malformed(format!("the server sent `{rest}` behind the answer's end")));
            }
        }
        Ok(said)
    }

    fn closed(&mut self) -> Result<Answer, Failure> {
        Err(Failure::new(Kind::Closed, "the server closed the connection within a transaction"))
    }
}

/// The user root without a password, in the database of the tables ("HandshakeResponse41").
fn login() -> Vec<u8> {
    let mut contents = CAPABILITIES.to_le_bytes().to_vec();
    contents.extend_from_slice(&(1u32 << 24).to_le_bytes());
    contents.push(LETTERS);
    contents.extend_from_slice(&[0; 23]);
    contents.extend_from_slice(b"root\0\0sbtest\0");
    contents.extend_from_slice(METHOD);
    contents
}

fn refused_at_login(contents: &[u8]) -> Failure {
    match refusal(contents) {
        Some((code, said)) => {
            Failure::new(Kind::Refused, format!("the server refuses the login (error {code}): {said}"))
        }
        None => Failure::malformed(format!("the server says `{}` at the login", shown(contents))),
    }
}

fn check_settings(outcome: &Outcome) -> Result<(), Failure> {
    let said = match outcome {
        Outcome::Rows(1, row) => row.first().cloned().flatten().unwrap_or_default(),
        Outcome::Refused(code, said) => {
            return Err(Failure::new(
                Kind::Refused,
                format!("it does not say what it runs with (error {code}): {said}"),
            ));
        }
        _ => Vec::new(),
    };
    let said = String::from_utf8_lossy(&said).into_owned();
    for (name, asked) in SETTINGS {
        let found = said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        if found != Some(asked) {
            let found = found
                .map_or_else(|| "does not say it".to_owned(), |found| format!("runs with {}", shown(found.as_bytes())));
            return Err(Failure::new(
                Kind::WrongAnswer,
                format!("{name} must be {asked}, or a transaction need not be on the drive; the server {found}"),
            ));
        }
    }
    Ok(())
}

fn amount(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Done(changed) => format!("{changed} changed rows"),
        Outcome::Rows(rows, _) => format!("{rows} rows"),
        Outcome::Refused(code, _) => format!("error {code}"),
    }
}

/// The statements of one transaction.
fn transaction(tables: Tables, random: &mut Random) -> Vec<Statement> {
    let table = |random: &mut Random| 1 + random.below(tables.tables);
    let row = |random: &mut Random| 1 + random.below(tables.rows);
    let statement = |words: String, must: Must| Statement { words, must };
    let mut all = vec![statement("begin".to_owned(), Must::Done)];
    for _ in 0..10 {
        let words = format!("select c from sbtest{} where id = {}", table(random), row(random));
        all.push(statement(words, Must::Give(1)));
    }
    let (sum, order) = ("sum(k)", " order by c");
    for (what, behind, must) in [
        ("c", "", Must::Give(RANGE.into())),
        (sum, "", Must::Give(1)),
        ("c", order, Must::Give(RANGE.into())),
        ("distinct c", order, Must::GiveSome),
    ] {
        let first = 1 + random.below(tables.rows.saturating_sub(RANGE - 1).max(1));
        let last = first + RANGE - 1;
        let words = format!("select {what} from sbtest{} where id between {first} and {last}{behind}", table(random));
        all.push(statement(words, must));
    }
    let mut rows = [(); 3].map(|()| (table(random), row(random)));
    rows.sort_unstable();
    // Which of them is put back anew is drawn, or it would always be one of the lowest.
    let replaced = random.below(3) as usize;
    let mut kinds = ["k = k + 1".to_owned(), format!("c = '{}'", letters(119, random))].into_iter();
    for (place, (table, row)) in rows.into_iter().enumerate() {
        if place == replaced {
            let (k, c, pad) = (1 + random.below(tables.rows), letters(119, random), letters(59, random));
            all.push(statement(format!("delete from sbtest{table} where id = {row}"), Must::Change(1)));
            let words = format!("insert into sbtest{table} (id, k, c, pad) values ({row}, {k}, '{c}', '{pad}')");
            all.push(statement(words, Must::Change(1)));
        } else {
            let what = kinds.next().unwrap_or_default();
            all.push(statement(format!("update sbtest{table} set {what} where id = {row}"), Must::Change(1)));
        }
    }
    all.push(statement("commit".to_owned(), Must::Done));
    all
}

/// Letters, digits and blanks that need no quoting.
fn letters(count: usize, random: &mut Random) -> String {
    let mut drawn = Vec::new();
    text(&mut drawn, count + count / 32 + 4, random);
    drawn.into_iter().filter(|byte| !byte.is_ascii_control()).take(count).map(char::from).collect()
}

#[cfg(test)]
mod tests;
