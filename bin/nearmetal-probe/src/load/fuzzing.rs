//! The readers of what servers answer, for `examples/fuzz.rs`. No interface.

use crate::load::dialogue::Dialogue;
use crate::load::mail::ImapUser;
use crate::load::mysql::packet;
use crate::load::sql::{Session, Tables};
use crate::load::web::{Pages, Web};
use crate::random::Random;

/// A name, an input that is understood, and the reader.
pub type Reader = (&'static str, Vec<u8>, fn(&[u8]));

/// Every reader of this program.
pub fn fuzz_targets() -> Vec<Reader> {
    let http = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nServer: nginx\r\nTransfer-Encoding: chunked\r\n\r\n\
                 5;a=b\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
    let imap = b"* OK [CAPABILITY IMAP4rev1] ready\r\na1 OK in\r\n* 3 EXISTS\r\na2 OK [READ-WRITE] done\r\n\
                 * 2 FETCH (BODY[] {5}\r\nhello FLAGS (\\Seen))\r\na3 OK done\r\n+ go on\r\n* SEARCH 1 2\r\na4 NO no\r\n";
    let mut sql = Vec::new();
    let said =
        [&b"\x0a11.8.6-MariaDB\0"[..], b"\x00\x00\x00\x02\x00", b"\x01", b"\x03def", b"\xfe\x00\x00\x02\x00", b"\x01x"];
    said.iter().enumerate().for_each(|(number, contents)| packet(number as u8, contents, &mut sql));
    packet(9, b"\xff\xbd\x04#40001Deadlock found", &mut sql);
    vec![
        ("HTTP response", http.to_vec(), http_response),
        ("IMAP answer", imap.to_vec(), imap_answer),
        ("SQL answer", sql, sql_answer),
    ]
}

/// Cut into pieces, as a network does, by the input's own bytes.
fn pieces(mut bytes: &[u8], mut each: impl FnMut(&[u8]) -> bool) {
    while let Some(first) = bytes.first() {
        let (piece, rest) = bytes.split_at((usize::from(*first) + 1).min(bytes.len()));
        bytes = rest;
        if !each(piece) {
            return;
        }
    }
}

fn http_response(bytes: &[u8]) {
    let mut web = Web::new("x", Pages::Paths(vec!["/".to_owned()]));
    let (mut random, mut out) = (Random::new(1), Vec::new());
    web.open(&mut out);
    web.request(0, &mut random, &mut out);
    pieces(bytes, |piece| match web.receive(piece, &mut out) {
        Ok(crate::load::dialogue::Said::Answered(_)) => {
            web.request(0, &mut random, &mut out);
            true
        }
        Ok(_) => true,
        Err(_) => false,
    });
    let _ = web.closed();
}

fn imap_answer(bytes: &[u8]) {
    let mut user = ImapUser::new(1);
    let (mut random, mut out, mut class) = (Random::new(1), Vec::new(), 0);
    user.open(&mut out);
    pieces(bytes, |piece| match user.receive(piece, &mut out) {
        Ok(crate::load::dialogue::Said::More) => true,
        Ok(_) => {
            user.request(class % 3, &mut random, &mut out);
            class += 1;
            out.clear();
            true
        }
        Err(_) => false,
    });
    let _ = user.closed();
}

/// As a login, and as the answers within a transaction, whose statements are not checked.
fn sql_answer(bytes: &[u8]) {
    let mut session = Session::new(Tables { tables: 2, rows: 500 });
    let (mut random, mut out) = (Random::new(1), Vec::new());
    session.open(&mut out);
    pieces(bytes, |piece| session.receive(piece, &mut out).is_ok());
    session.open(&mut out);
    session.request(0, &mut random, &mut out);
    pieces(bytes, |piece| match session.receive(piece, &mut out) {
        Ok(crate::load::dialogue::Said::Answered(_)) => {
            session.request(0, &mut random, &mut out);
            out.clear();
            true
        }
        Ok(_) => true,
        Err(_) => false,
    });
    let _ = session.closed();
}
