//! An HTTP/1 response, read as it comes (RFC 9112). Whatever a server sends is read or refused; nothing of it is kept but the
//! first bytes of the body, by which an answer is told from another.

use crate::load::failure::{Failure, Kind, shown};

/// Bytes of status line, headers and trailers together.
pub const HEAD_LIMIT: usize = 64 << 10;
/// Bytes of a body.
pub const BODY_LIMIT: u64 = 256 << 20;
/// Bytes of the line that begins a chunk.
const CHUNK_LINE_LIMIT: usize = 1 << 10;
/// Interim responses before the final one.
const INTERIM_LIMIT: u32 = 8;
/// First bytes of the body that are kept.
pub const KEPT: usize = 64;

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Status,
    Header,
    Body(u64),
    UntilClosed,
    ChunkSize,
    Chunk(u64),
    ChunkEnd,
    Trailer,
    Nothing,
}

/// A response as far as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    next: Next,
    /// The line that is being read.
    line: Vec<u8>,
    head: usize,
    interim: u32,
    status: u16,
    /// Whether the server speaks 1.1, where connections stay open unless it says otherwise.
    is_1_1: bool,
    length: Option<u64>,
    is_chunked: bool,
    says_close: bool,
    says_keep_alive: bool,
    body: u64,
    kept: Vec<u8>,
}

impl Default for Response {
    fn default() -> Self {
        Self {
            next: Next::Status,
            line: Vec::new(),
            head: 0,
            interim: 0,
            status: 0,
            is_1_1: false,
            length: None,
            is_chunked: false,
            says_close: false,
            says_keep_alive: false,
            body: 0,
            kept: Vec::new(),
        }
    }
}

impl Response {
    /// Takes what came; gives how much of it was this response's. It is whole once [`Response::is_whole`] says so.
    ///
    /// # Errors
    /// It is no response of HTTP/1, or longer than one may be.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<usize, Failure> {
        let mut at = 0;
        while at < bytes.len() && self.next != Next::Nothing {
            let rest = &bytes[at..];
            at += match self.next {
                Next::Body(left) | Next::Chunk(left) => self.take_body(rest, left)?,
                Next::UntilClosed => self.take_body(rest, u64::MAX)?,
                _ => self.take_line(rest)?,
            };
        }
        Ok(at)
    }

    /// The server closed the connection.
    ///
    /// # Errors
    /// The response was not at its end.
    pub fn closed(&mut self) -> Result<(), Failure> {
        match self.next {
            Next::UntilClosed => {
                self.next = Next::Nothing;
                Ok(())
            }
            Next::Nothing => Ok(()),
            Next::Status if self.head == 0 => {
                Err(Failure::new(Kind::Closed, "the server closed the connection without an answer"))
            }
            _ => Err(Failure::new(
                Kind::Closed,
                format!("the server closed the connection after {} bytes of head and {} of body", self.head, self.body),
            )),
        }
    }

    /// Whether all of it came.
    pub fn is_whole(&self) -> bool {
        self.next == Next::Nothing
    }

    /// Its status code.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Bytes of its body.
    pub fn body(&self) -> u64 {
        self.body
    }

    /// Bytes of its head, trailers included.
    pub fn head(&self) -> usize {
        self.head
    }

    /// The first bytes of its body, [`KEPT`] at most.
    pub fn kept(&self) -> &[u8] {
        &self.kept
    }

    /// Whether the connection takes another request after it.
    pub fn is_reusable(&self) -> bool {
        let framed = self.is_chunked || self.length.is_some() || has_no_body(self.status);
        framed && !self.says_close && (self.is_1_1 || self.says_keep_alive)
    }

    fn take_body(&mut self, bytes: &[u8], left: u64) -> Result<usize, Failure> {
        let taken = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let more = KEPT.saturating_sub(self.kept.len()).min(taken);
        self.kept.extend_from_slice(&bytes[..more]);
        self.body += taken as u64;
        if self.body > BODY_LIMIT {
            return Err(too_large("body", BODY_LIMIT));
        }
        self.next = match (self.next, left - taken as u64) {
            (Next::Body(_), 0) => Next::Nothing,
            (Next::Body(_), left) => Next::Body(left),
            (Next::Chunk(_), 0) => Next::ChunkEnd,
            (Next::Chunk(_), left) => Next::Chunk(left),
            (next, _) => next,
        };
        Ok(taken)
    }

    /// Takes up to the end of a line, and the line where it is whole.
    fn take_line(&mut self, bytes: &[u8]) -> Result<usize, Failure> {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(bytes.len(), |end| end + 1);
        let is_chunk = matches!(self.next, Next::ChunkSize | Next::ChunkEnd);
        if !is_chunk {
            self.head += taken;
        }
        let limit = if is_chunk { CHUNK_LINE_LIMIT } else { HEAD_LIMIT };
        if self.head > HEAD_LIMIT || self.line.len() + taken > limit {
            return Err(too_large(if is_chunk { "line before a chunk" } else { "head" }, limit as u64));
        }
        self.line.extend_from_slice(&bytes[..taken]);
        if end.is_some() {
            let mut line = std::mem::take(&mut self.line);
            line.pop();
            if line.last() == Some(&b'\r') {
                line.pop();
            }
            self.line_came(&line)?;
            // Its room is used again.
            line.clear();
            self.line = line;
        }
        Ok(taken)
    }

    fn line_came(&mut self, line: &[u8]) -> Result<(), Failure> {
        match self.next {
            Next::Status => self.status_came(line)?,
            Next::Header if line.is_empty() => self.head_ended()?,
            Next::Header => self.header_came(line)?,
            Next::ChunkSize => {
                let size = chunk_size(line)?;
                if self.body.saturating_add(size) > BODY_LIMIT {
                    return Err(too_large("body", BODY_LIMIT));
                }
                self.next = if size == 0 { Next::Trailer } else { Next::Chunk(size) };
            }
            Next::ChunkEnd if line.is_empty() => self.next = Next::ChunkSize,
            Next::ChunkEnd => {
                return Err(Failure::malformed(format!("a chunk goes on behind its end with `{}`", shown(line))));
            }
            Next::Trailer if line.is_empty() => self.next = Next::Nothing,
            Next::Trailer => drop(field(line)?),
            Next::Body(_) | Next::Chunk(_) | Next::UntilClosed | Next::Nothing => {}
        }
        Ok(())
    }

    fn status_came(&mut self, line: &[u8]) -> Result<(), Failure> {
        let amiss = || Failure::malformed(format!("`{}` is not the status line of an HTTP/1 response", shown(line)));
        let rest = line.strip_prefix(b"HTTP/1.").ok_or_else(amiss)?;
        let (minor, digits) = match rest {
            [minor @ (b'0' | b'1'), b' ', digits @ ..] => (*minor, digits),
            _ => return Err(amiss()),
        };
        let code = match digits {
            [first @ b'1'..=b'5', second, third] | [first @ b'1'..=b'5', second, third, b' ', ..] => {
                [first, second, third]
            }
            _ => return Err(amiss()),
        };
        self.status = code.into_iter().try_fold(0u16, |sum, digit| match digit {
            b'0'..=b'9' => Ok(sum * 10 + u16::from(digit - b'0')),
            _ => Err(amiss()),
        })?;
        self.is_1_1 = minor == b'1';
        self.next = Next::Header;
        Ok(())
    }

    fn header_came(&mut self, line: &[u8]) -> Result<(), Failure> {
        let (name, value) = field(line)?;
        if name.eq_ignore_ascii_case(b"content-length") {
            let length = digits(value)
                .ok_or_else(|| Failure::malformed(format!("Content-Length is `{}`, not a number", shown(value))))?;
            if self.length.is_some_and(|before| before != length) {
                return Err(Failure::malformed("two headers Content-Length differ"));
            }
            if length > BODY_LIMIT {
                return Err(too_large("body", BODY_LIMIT));
            }
            self.length = Some(length);
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if self.is_chunked || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(Failure::malformed(format!(
                    "Transfer-Encoding is `{}`, and only `chunked` was offered",
                    shown(value)
                )));
            }
            self.is_chunked = true;
        } else if name.eq_ignore_ascii_case(b"connection") {
            for word in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                self.says_close |= word.eq_ignore_ascii_case(b"close");
                self.says_keep_alive |= word.eq_ignore_ascii_case(b"keep-alive");
            }
        }
        Ok(())
    }

    fn head_ended(&mut self) -> Result<(), Failure> {
        if self.is_chunked && self.length.is_some() {
            // RFC 9112, section 6.1: such a message may be an attempt to smuggle another one.
            return Err(Failure::malformed("the answer has both Transfer-Encoding and Content-Length"));
        }
        if (100..200).contains(&self.status) {
            self.interim += 1;
            if self.status == 101 || self.interim > INTERIM_LIMIT {
                return Err(Failure::malformed(format!(
                    "the server answers with status {} for the {}. time",
                    self.status, self.interim
                )));
            }
            *self = Self { head: self.head, interim: self.interim, ..Self::default() };
            return Ok(());
        }
        self.next = match self.length {
            _ if has_no_body(self.status) => Next::Nothing,
            _ if self.is_chunked => Next::ChunkSize,
            Some(0) => Next::Nothing,
            Some(length) => Next::Body(length),
            None => Next::UntilClosed,
        };
        Ok(())
    }
}

/// Responses to GET without a body (RFC 9112, section 6.3).
fn has_no_body(status: u16) -> bool {
    matches!(status, 204 | 304)
}

fn too_large(what: &str, limit: u64) -> Failure {
    Failure::new(Kind::TooLarge, format!("the answer's {what} is longer than {limit} bytes"))
}

/// Name and value of a header; a name is a token, so that neither a continued line nor a space before the colon passes.
fn field(line: &[u8]) -> Result<(&[u8], &[u8]), Failure> {
    let amiss = || Failure::malformed(format!("`{}` is not a header", shown(line)));
    let colon = line.iter().position(|byte| *byte == b':').ok_or_else(amiss)?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    if name.is_empty() || !name.iter().all(is_token) {
        return Err(amiss());
    }
    Ok((name, value.trim_ascii()))
}

/// Decimal digits and nothing else.
fn digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 19 {
        return None;
    }
    text.iter().try_fold(0u64, |sum, byte| byte.is_ascii_digit().then(|| sum * 10 + u64::from(byte - b'0')))
}

/// The size that begins a chunk; extensions behind it are passed over.
fn chunk_size(line: &[u8]) -> Result<u64, Failure> {
    let amiss = || Failure::malformed(format!("a chunk begins with `{}`, not with its size", shown(line)));
    let text = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    if text.is_empty() || text.len() > 15 {
        return Err(amiss());
    }
    text.iter().try_fold(0u64, |sum, byte| {
        let digit = char::from(*byte).to_digit(16).ok_or_else(amiss)?;
        Ok(sum * 16 + u64::from(digit))
    })
}

#[cfg(test)]
mod tests;
