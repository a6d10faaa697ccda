//! GET requests over one connection.

use crate::load::dialogue::{Answer, Dialogue, Said};
use crate::load::failure::{Failure, Kind, shown};
use crate::load::http::{KEPT, Response};
use crate::load::site::Site;
use crate::random::Random;

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pages {
    /// A generated site: every answer is held against what it must be. A class is a size of files.
    Site(Site),
    /// Paths that somebody named, one a class: an answer counts if its status is below 400.
    Paths(Vec<String>),
}

/// One connection.
#[derive(Debug, Clone)]
pub struct Web {
    host: String,
    pages: Pages,
    response: Response,
    /// What the answer must be: bytes of it, and how it begins.
    expected: Option<(u64, Vec<u8>)>,
    is_waiting: bool,
}

impl Web {
    /// To this host, as its header `Host` says.
    pub fn new(host: &str, pages: Pages) -> Self {
        Self { host: host.to_owned(), pages, response: Response::default(), expected: None, is_waiting: false }
    }

    fn answer(&mut self) -> Answer {
        let response = std::mem::take(&mut self.response);
        self.is_waiting = false;
        let failure = match (response.status(), self.expected.take()) {
            (status @ ..400, None) if status >= 200 => None,
            (200, Some((bytes, mark))) if response.body() == bytes && response.kept().starts_with(&mark) => None,
            (200, Some((bytes, mark))) => Some(Failure::new(
                Kind::WrongAnswer,
                format!(
                    "the answer has {} bytes and begins with `{}`; it should have {bytes} and begin with `{}`: does the \
                     server have the site of this seed?",
                    response.body(),
                    shown(response.kept()),
                    shown(&mark)
                ),
            )),
            (status, _) => Some(Failure::new(Kind::Refused, format!("the server answered with status {status}"))),
        };
        Answer { failure, reusable: response.is_reusable(), bytes: response.body() + response.head() as u64 }
    }
}

impl Dialogue for Web {
    fn open(&mut self, _: &mut Vec<u8>) -> bool {
        self.response = Response::default();
        (self.expected, self.is_waiting) = (None, false);
        true
    }

    fn request(&mut self, class: usize, random: &mut Random, out: &mut Vec<u8>) {
        let path = match &self.pages {
            Pages::Site(site) => {
                let file = site.draw(class, random);
                let mut mark = site.mark(&file);
                mark.truncate(KEPT);
                self.expected = Some((file.bytes(), mark));
                file.path()
            }
            Pages::Paths(paths) => paths.get(class).cloned().unwrap_or_else(|| "/".to_owned()),
        };
        self.is_waiting = true;
        out.extend_from_slice(format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.host).as_bytes());
    }

    fn receive(&mut self, bytes: &[u8], _: &mut Vec<u8>) -> Result<Said, Failure> {
        if !self.is_waiting {
            return Err(Failure::malformed(format!("the server sent `{}`, which nobody asked for", shown(bytes))));
        }
        let taken = self.response.receive(bytes)?;
        if !self.response.is_whole() {
            return Ok(Said::More);
        }
        if taken < bytes.len() {
            let rest = shown(&bytes[taken..]);
            return Err(Failure::malformed(format!("the server sent `{rest}` behind the answer's end")));
        }
        Ok(Said::Answered(self.answer()))
    }

    fn closed(&mut self) -> Result<Answer, Failure> {
        self.response.closed()?;
        Ok(self.answer())
    }
}

/// Whether a path can stand in a request line: it begins with `/`, and has neither spaces nor control characters.
pub fn is_path(path: &str) -> bool {
    path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(pages: Pages) -> (Web, String) {
        let (mut web, mut out) = (Web::new("h:80", pages), Vec::new());
        assert!(web.open(&mut out) && out.is_empty());
        web.request(0, &mut Random::new(3), &mut out);
        (web, String::from_utf8(out).unwrap())
    }

    fn path_in(request: &str) -> &str {
        request.strip_prefix("GET ").unwrap().split(' ').next().unwrap()
    }

    fn response(body: &[u8]) -> Vec<u8> {
        [format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).as_bytes(), body].concat()
    }

    #[test]
    fn an_answer_is_held_against_the_file_that_was_asked_for() {
        let site = Site { seed: 5, directories: 3 };
        let (mut web, request) = asked(Pages::Site(site));
        assert!(request.ends_with(" HTTP/1.1\r\nHost: h:80\r\n\r\n"), "{request}");
        let file = crate::load::site::SiteFile::of_path(path_in(&request)).unwrap();
        let right = site.contents(&file);
        let Ok(Said::Answered(answer)) = web.clone().receive(&response(&right), &mut Vec::new()) else { panic!() };
        assert_eq!((answer.failure, answer.reusable), (None, true));
        let other = Site { seed: 6, ..site }.contents(&file);
        for wrong in [&right[1..], &other, b""] {
            let Ok(Said::Answered(answer)) = web.clone().receive(&response(wrong), &mut Vec::new()) else { panic!() };
            assert_eq!(answer.failure.map(|failure| failure.kind), Some(Kind::WrongAnswer));
        }
        let refused = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
        let Ok(Said::Answered(answer)) = web.receive(refused, &mut Vec::new()) else { panic!() };
        assert!(answer.failure.is_some_and(|failure| failure.kind == Kind::Refused && failure.why.contains("404")));
    }

    #[test]
    fn bytes_nobody_asked_for_end_the_connection() {
        let (mut web, _) = asked(Pages::Paths(vec!["/a".into()]));
        let two = [response(b"x"), response(b"y")].concat();
        assert!(web.clone().receive(&two, &mut Vec::new()).unwrap_err().why.contains("behind the answer's end"));
        assert!(matches!(web.receive(&response(b"x"), &mut Vec::new()), Ok(Said::Answered(_))));
        assert!(web.receive(b"z", &mut Vec::new()).unwrap_err().why.contains("nobody asked for"));
    }

    #[test]
    fn a_path_cannot_smuggle_a_request() {
        assert!(is_path("/a/b?c=d"));
        for path in ["", "a", "/a b", "/a\r\nX: y", "/\u{e4}"] {
            assert!(!is_path(path), "{path:?}");
        }
    }
}
