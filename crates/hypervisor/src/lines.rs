//! Lines of bounded length.

use std::io::{self, BufRead};

/// Reads one line without its newline; `None` at the end. A line over the limit is an error of kind `InvalidData`: the
/// rest of it is still unread, so the stream is of no more use.
pub(crate) fn read_line(reader: &mut impl BufRead, limit: usize) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    loop {
        let available = match reader.fill_buf() {
            Ok(available) => available,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if available.is_empty() {
            return Ok(if line.is_empty() { None } else { Some(line) });
        }
        let newline = available.iter().position(|byte| *byte == b'\n');
        let length = newline.unwrap_or(available.len());
        if line.len() + length > limit {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a line is longer than {limit} bytes")));
        }
        line.extend_from_slice(&available[..length]);
        reader.consume(length + usize::from(newline.is_some()));
        if newline.is_some() {
            return Ok(Some(line));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    #[test]
    fn lines_come_without_newline_and_within_the_limit() {
        let mut reader = BufReader::with_capacity(3, &b"one\n\ntwenty\nend"[..]);
        for expected in ["one", "", "twenty", "end"] {
            assert_eq!(read_line(&mut reader, 6).unwrap().unwrap(), expected.as_bytes());
        }
        assert_eq!(read_line(&mut reader, 6).unwrap(), None);
        assert!(read_line(&mut &b"sevenseven\n"[..], 9).is_err());
    }
}
