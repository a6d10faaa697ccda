use proptest::prelude::*;

use super::*;

const PLAIN: &[u8] = b"HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: 5\r\n\r\nhello";
const CHUNKED: &[u8] =
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;name=value\r\nhel\r\n2\r\nlo\r\n0\r\nX-Sum: 1\r\n\r\n";

/// All of it at once, then the end of the connection.
fn read(bytes: &[u8]) -> Result<(Response, usize), Failure> {
    let mut response = Response::default();
    let taken = response.receive(bytes)?;
    if !response.is_whole() {
        response.closed()?;
    }
    Ok((response, taken))
}

fn why(bytes: &[u8]) -> (Kind, String) {
    let failure = read(bytes).unwrap_err();
    (failure.kind, failure.why)
}

#[test]
fn bodies_of_every_framing_are_read() {
    for (bytes, reusable) in [
        (PLAIN, true),
        (CHUNKED, true),
        (b"HTTP/1.1 200 OK\r\nConnection: keep-alive, Close\r\nContent-Length: 5\r\n\r\nhello", false),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", false),
        (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello", true),
        (b"HTTP/1.1 200 OK\r\n\r\nhello", false),
        (b"HTTP/1.1 200\nContent-Length: 5\n\nhello", true),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", true),
    ] {
        let (response, taken) = read(bytes).unwrap();
        assert_eq!((response.kept(), taken), (&b"hello"[..], bytes.len()), "{}", shown(bytes));
        assert_eq!(
            (response.status(), response.body(), response.is_reusable()),
            (200, 5, reusable),
            "{}",
            shown(bytes)
        );
    }
    for bytes in [&b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"[..], b"HTTP/1.1 204 No\r\n\r\n"] {
        assert_eq!(read(bytes).unwrap().0.body(), 0);
    }
}

#[test]
fn what_follows_an_answer_is_not_taken_for_it() {
    for bytes in [PLAIN, CHUNKED] {
        let two = [bytes, b"HTTP/1.1 200"].concat();
        assert_eq!(Response::default().receive(&two).unwrap(), bytes.len());
    }
}

#[test]
fn nonsense_is_refused_in_words() {
    let nine_interim = b"HTTP/1.1 102 Processing\r\n\r\n".repeat(9);
    let endless = [b"HTTP/1.1 200 OK\r\nX: ", &vec![b'a'; HEAD_LIMIT][..]].concat();
    let many = [b"HTTP/1.1 200 OK\r\n".to_vec(), b"X: y\r\n".repeat(HEAD_LIMIT / 6 + 1)].concat();
    let chunk_line = [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", &vec![b'a'; 2000][..]].concat();
    let head = |rest: &str| format!("HTTP/1.1 200 OK\r\n{rest}").into_bytes();
    for (bytes, kind, words) in [
        (b"SSH-2.0-OpenSSH\r\n".to_vec(), Kind::Malformed, "`SSH-2.0-OpenSSH` is not the status line"),
        (b"HTTP/2 200\r\n".to_vec(), Kind::Malformed, "status line"),
        (b"HTTP/1.1 2000 OK\r\n".to_vec(), Kind::Malformed, "status line"),
        (b"HTTP/1.1 2x0 OK\r\n".to_vec(), Kind::Malformed, "status line"),
        (b"HTTP/1.1 000 OK\r\n".to_vec(), Kind::Malformed, "status line"),
        (head("nonsense\r\n"), Kind::Malformed, "`nonsense` is not a header"),
        (head("X: a\r\n continued\r\n"), Kind::Malformed, "not a header"),
        (head("Content-Length : 1\r\n"), Kind::Malformed, "not a header"),
        (head("Content-Length: -1\r\n"), Kind::Malformed, "`-1`, not a number"),
        (head("Content-Length: 1, 1\r\n"), Kind::Malformed, "not a number"),
        (head("Content-Length: 99999999999999999999\r\n"), Kind::Malformed, "not a number"),
        (head("Content-Length: 1\r\nContent-Length: 2\r\n"), Kind::Malformed, "differ"),
        (head("Content-Length: 268435457\r\n"), Kind::TooLarge, "longer than 268435456 bytes"),
        (head("Transfer-Encoding: gzip\r\n"), Kind::Malformed, "only `chunked`"),
        (head("Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n"), Kind::Malformed, "both"),
        (head("Transfer-Encoding: chunked\r\n\r\nxyz\r\n"), Kind::Malformed, "a chunk begins with `xyz`"),
        (head("Transfer-Encoding: chunked\r\n\r\n\r\n"), Kind::Malformed, "a chunk begins"),
        (head("Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n"), Kind::Malformed, "behind its end with `b`"),
        (head("Transfer-Encoding: chunked\r\n\r\nfffffffff\r\n"), Kind::TooLarge, "body"),
        (head("Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n"), Kind::Malformed, "a chunk begins"),
        (nine_interim, Kind::Malformed, "for the 9. time"),
        (b"HTTP/1.1 101 Switching\r\n\r\n".to_vec(), Kind::Malformed, "status 101"),
        (endless, Kind::TooLarge, "head is longer"),
        (many, Kind::TooLarge, "head is longer"),
        (chunk_line, Kind::TooLarge, "line before a chunk"),
        (Vec::new(), Kind::Closed, "without an answer"),
        (head("Content-Le"), Kind::Closed, "bytes of head and 0 of body"),
        (head("Content-Length: 5\r\n\r\nhel"), Kind::Closed, "and 3 of body"),
        (head("Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"), Kind::Closed, "and 5 of body"),
    ] {
        let (found, text) = why(&bytes);
        assert!(found == kind && text.contains(words), "{}: {found:?}, {text}", shown(&bytes));
    }
}

#[test]
fn an_endless_body_is_ended() {
    let mut response = Response::default();
    response.receive(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
    let piece = vec![0u8; 1 << 20];
    let ended = (0..=BODY_LIMIT >> 20).find_map(|_| response.receive(&piece).err());
    assert_eq!(ended.map(|failure| failure.kind), Some(Kind::TooLarge));
}

proptest! {
    #[test]
    fn it_does_not_matter_how_an_answer_is_cut_up(cuts in proptest::collection::vec(1usize..9, 1..200), chunked in any::<bool>()) {
        let bytes = if chunked { CHUNKED } else { PLAIN };
        let whole = read(bytes).unwrap().0;
        let (mut response, mut at, mut cuts) = (Response::default(), 0, cuts.into_iter().cycle());
        while at < bytes.len() {
            let end = (at + cuts.next().unwrap_or(1)).min(bytes.len());
            prop_assert!(!response.is_whole());
            prop_assert_eq!(response.receive(&bytes[at..end]).unwrap(), end - at);
            at = end;
        }
        prop_assert!(response.is_whole());
        prop_assert_eq!(response, whole);
    }

    #[test]
    fn whatever_comes_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300), head in any::<bool>()) {
        let bytes = if head { [PLAIN, &bytes].concat() } else { bytes };
        let mut response = Response::default();
        if let Ok(taken) = response.receive(&bytes) {
            prop_assert!(taken <= bytes.len());
            prop_assert!(taken == bytes.len() || response.is_whole());
        }
    }

    #[test]
    fn a_damaged_answer_is_read_or_refused(at in 0usize..110, byte in any::<u8>(), chunked in any::<bool>()) {
        let mut bytes = if chunked { CHUNKED } else { PLAIN }.to_vec();
        let at = at % bytes.len();
        bytes[at] = byte;
        let _ = read(&bytes);
    }
}
