//! One user's IMAP connection: LOGIN, SELECT, then FETCH, APPEND and SEARCH as they come.

use crate::load::dialogue::{Answer, Dialogue, Said};
use crate::load::failure::{Failure, Kind, shown};
use crate::load::imap::{Line, Reader, Status, number};
use crate::load::mailbox::{PASSWORD, WORDS, message, user, word};
use crate::random::Random;

/// What is asked for: its name in figures and how often, in hundredths. Ours, for want of a published mix that is free.
pub const CLASSES: [(&str, u32); 4] = [("fetch", 70), ("search", 10), ("append", 15), ("login", 5)];
const FETCH: usize = 0;
const SEARCH: usize = 1;
const APPEND: usize = 2;
const LOGIN: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Greeting,
    LoggingIn,
    Selecting,
    Idle,
    Waiting(usize),
}

/// One connection.
#[derive(Debug, Clone)]
pub struct ImapUser {
    user: u32,
    reader: Reader,
    stage: Stage,
    /// Number of the last command; its tag is made of it.
    tag: u32,
    /// Messages in the inbox, as the server last said.
    exists: u64,
    /// A message that waits for the server's word.
    appended: Vec<u8>,
    /// Whether what was asked for came before the answer's end.
    has_data: bool,
}

impl ImapUser {
    /// A user's.
    pub fn new(user: u32) -> Self {
        Self {
            user,
            reader: Reader::default(),
            stage: Stage::Greeting,
            tag: 0,
            exists: 0,
            appended: Vec::new(),
            has_data: false,
        }
    }

    fn command(&mut self, words: &str, out: &mut Vec<u8>) {
        self.tag = self.tag.wrapping_add(1);
        self.has_data = false;
        self.reader.begin();
        out.extend_from_slice(format!("a{} {words}\r\n", self.tag).as_bytes());
    }

    fn line(&mut self, line: Line, out: &mut Vec<u8>) -> Result<Said, Failure> {
        match line {
            Line::Untagged { text, literals } => self.untagged(&text, literals, out),
            Line::Continue if self.stage == Stage::Waiting(APPEND) && !self.appended.is_empty() => {
                out.append(&mut self.appended);
                out.extend_from_slice(b"\r\n");
                Ok(Said::More)
            }
            Line::Continue => Err(Failure::malformed("the server waits for more, and there is nothing more to send")),
            Line::Tagged { tag, status, words } => self.tagged(&tag, status, &words, out),
        }
    }

    fn untagged(&mut self, text: &[u8], literals: u64, out: &mut Vec<u8>) -> Result<Said, Failure> {
        let mut words = text.split(|byte| *byte == b' ');
        let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if first.eq_ignore_ascii_case(b"BYE") {
            return Err(Failure::new(Kind::Refused, format!("the server says `{}`", shown(text))));
        }
        if self.stage == Stage::Greeting {
            if !first.eq_ignore_ascii_case(b"OK") {
                return Err(Failure::malformed(format!("the server greets with `{}`", shown(text))));
            }
            self.stage = Stage::LoggingIn;
            self.command(&format!("LOGIN {} {PASSWORD}", user(self.user)), out);
            return Ok(Said::More);
        }
        match number(first) {
            Some(count) if second.eq_ignore_ascii_case(b"EXISTS") => self.exists = count,
            Some(_) if second.eq_ignore_ascii_case(b"EXPUNGE") => self.exists = self.exists.saturating_sub(1),
            Some(_) if second.eq_ignore_ascii_case(b"FETCH") => self.has_data |= literals > 0,
            _ => self.has_data |= first.eq_ignore_ascii_case(b"SEARCH") || first.eq_ignore_ascii_case(b"ESEARCH"),
        }
        Ok(Said::More)
    }

    fn tagged(&mut self, tag: &[u8], status: Status, words: &[u8], out: &mut Vec<u8>) -> Result<Said, Failure> {
        if tag != format!("a{}", self.tag).as_bytes() || matches!(self.stage, Stage::Greeting | Stage::Idle) {
            return Err(Failure::malformed(format!("the server answers `{}`, which was not asked", shown(tag))));
        }
        let refused = (status != Status::Ok)
            .then(|| Failure::new(Kind::Refused, format!("the server answers with {status:?}: {}", shown(words))));
        let stage = self.stage;
        match (stage, refused) {
            (Stage::LoggingIn | Stage::Selecting, Some(refused)) => Err(refused),
            (Stage::LoggingIn, None) => {
                self.stage = Stage::Selecting;
                self.command("SELECT INBOX", out);
                Ok(Said::More)
            }
            (Stage::Selecting, None) if self.exists == 0 => {
                Err(Failure::new(Kind::WrongAnswer, format!("the inbox of {} is empty", user(self.user))))
            }
            (Stage::Selecting, None) => {
                self.stage = Stage::Idle;
                Ok(Said::Ready)
            }
            (_, refused) => {
                self.stage = Stage::Idle;
                let lacks = matches!(stage, Stage::Waiting(FETCH | SEARCH)) && !self.has_data;
                let unsent = stage == Stage::Waiting(APPEND) && !std::mem::take(&mut self.appended).is_empty();
                let wrong = (lacks || unsent).then(|| {
                    Failure::new(Kind::WrongAnswer, "the server says that it is done, and it cannot be".to_owned())
                });
                Ok(Said::Answered(Answer { failure: refused.or(wrong), reusable: true, bytes: self.reader.received() }))
            }
        }
    }
}

impl Dialogue for ImapUser {
    fn open(&mut self, _: &mut Vec<u8>) -> bool {
        *self = Self::new(self.user);
        false
    }

    fn is_opening(&self, class: usize) -> bool {
        class == LOGIN
    }

    fn request(&mut self, class: usize, random: &mut Random, out: &mut Vec<u8>) {
        self.stage = Stage::Waiting(class);
        match class {
            SEARCH => self.command(&format!("SEARCH SUBJECT {}", word(random.below(WORDS))), out),
            APPEND => {
                self.appended = message(self.user, random);
                self.command(&format!("APPEND INBOX {{{}}}", self.appended.len()), out);
            }
            // A login is a connection's opening and never asked for here.
            _ => {
                let limit = u32::try_from(self.exists).unwrap_or(u32::MAX);
                self.command(&format!("FETCH {} BODY.PEEK[]", 1 + random.below(limit)), out);
            }
        }
    }

    fn receive(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) -> Result<Said, Failure> {
        let mut said = Said::More;
        while !bytes.is_empty() {
            let (taken, line) = self.reader.receive(bytes)?;
            bytes = &bytes[taken..];
            let Some(line) = line else { continue };
            match self.line(line, out)? {
                Said::More => {}
                more => said = more,
            }
        }
        Ok(said)
    }

    fn closed(&mut self) -> Result<Answer, Failure> {
        Err(Failure::new(Kind::Closed, "the server closed the connection before its answer's end"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(user: &mut ImapUser, bytes: &[u8]) -> (Result<Said, Failure>, String) {
        let mut out = Vec::new();
        let said = user.receive(bytes, &mut out);
        (said, String::from_utf8(out).unwrap())
    }

    fn opened() -> ImapUser {
        let mut user = ImapUser::new(7);
        assert!(!user.open(&mut Vec::new()));
        assert_eq!(said(&mut user, b"* OK ready\r\n"), (Ok(Said::More), "a1 LOGIN user0007 nearmetal\r\n".to_owned()));
        let (_, next) = said(&mut user, b"* CAPABILITY IMAP4rev1\r\na1 OK in\r\n");
        assert_eq!(next, "a2 SELECT INBOX\r\n");
        assert_eq!(said(&mut user, b"* 12 EXISTS\r\na2 OK [READ-WRITE] done\r\n").0, Ok(Said::Ready));
        user
    }

    fn requested(class: usize) -> (ImapUser, String) {
        let (mut user, mut out) = (opened(), Vec::new());
        user.request(class, &mut Random::new(1), &mut out);
        (user, String::from_utf8(out).unwrap())
    }

    fn failure(said: Result<Said, Failure>) -> Option<Kind> {
        match said {
            Ok(Said::Answered(answer)) => answer.failure.map(|failure| failure.kind),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_message_is_fetched_and_a_done_without_one_is_not_believed() {
        let (mut user, request) = requested(FETCH);
        assert!(request.starts_with("a3 FETCH ") && request.ends_with(" BODY.PEEK[]\r\n"), "{request}");
        let whole = said(&mut user.clone(), b"* 3 FETCH (BODY[] {5}\r\nhello)\r\na3 OK done\r\n").0;
        assert_eq!(failure(whole), None);
        assert_eq!(failure(said(&mut user.clone(), b"a3 OK done\r\n").0), Some(Kind::WrongAnswer));
        assert_eq!(failure(said(&mut user, b"a3 NO not today\r\n").0), Some(Kind::Refused));
    }

    #[test]
    fn a_message_is_sent_only_when_the_server_waits_for_it() {
        let (mut user, request) = requested(APPEND);
        let length: usize = request.split_once('{').unwrap().1.split_once('}').unwrap().0.parse().unwrap();
        assert_eq!(failure(said(&mut user.clone(), b"a3 OK done\r\n").0), Some(Kind::WrongAnswer));
        let (next, sent) = said(&mut user, b"+ go on\r\n");
        assert_eq!((next, sent.len()), (Ok(Said::More), length + 2));
        assert!(said(&mut user.clone(), b"+ more\r\n").0.is_err());
        assert_eq!(failure(said(&mut user, b"* 13 EXISTS\r\na3 OK done\r\n").0), None);
        assert_eq!(user.exists, 13);
    }

    #[test]
    fn what_a_server_may_not_say_ends_the_connection() {
        for bytes in [&b"* BYE shutting down\r\n"[..], b"a9 OK done\r\n", b"+ go on\r\n", b"nonsense\r\n"] {
            assert!(said(&mut requested(FETCH).0, bytes).0.is_err(), "{}", shown(bytes));
        }
        assert!(said(&mut opened(), b"a2 OK again\r\n").0.is_err(), "nothing was asked");
        assert_eq!(said(&mut opened(), b"* 14 EXISTS\r\n").0, Ok(Said::More), "news may come at any time");
        let mut fresh = ImapUser::new(1);
        assert!(said(&mut fresh, b"* PREAUTH hello\r\n").0.is_err());
    }

    #[test]
    fn a_login_that_fails_or_an_empty_inbox_opens_nothing() {
        let mut user = ImapUser::new(1);
        said(&mut user, b"* OK\r\n").0.unwrap();
        let mut empty = user.clone();
        assert_eq!(said(&mut user, b"a1 NO wrong password\r\n").0.unwrap_err().kind, Kind::Refused);
        said(&mut empty, b"a1 OK\r\n").0.unwrap();
        assert_eq!(said(&mut empty, b"* 0 EXISTS\r\na2 OK\r\n").0.unwrap_err().kind, Kind::WrongAnswer);
    }

    #[test]
    fn the_weights_are_hundredths() {
        assert_eq!(CLASSES.iter().map(|(_, weight)| weight).sum::<u32>(), 100);
        assert_eq!(
            [FETCH, SEARCH, APPEND, LOGIN].map(|class| CLASSES[class].0),
            ["fetch", "search", "append", "login"]
        );
    }
}
