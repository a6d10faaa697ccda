//! GET, and nothing else.

use std::io::{self, BufRead, Write};

use super::line;
use crate::load::http::HEAD_LIMIT;
use crate::load::site::{Site, SiteFile};

/// Answers requests until the client leaves.
pub(super) fn serve(
    from: &mut impl BufRead,
    mut to: impl Write,
    page: impl Fn(&str) -> Option<Vec<u8>>,
) -> io::Result<()> {
    while let Some(request) = line(from, HEAD_LIMIT)? {
        let mut head = request.len();
        while let Some(header) = line(from, HEAD_LIMIT)? {
            head += header.len();
            if head > HEAD_LIMIT {
                return Err(io::Error::from(io::ErrorKind::InvalidData));
            }
            if header.is_empty() {
                break;
            }
        }
        let path = request.strip_prefix("GET ").and_then(|rest| rest.strip_suffix(" HTTP/1.1"));
        let (status, body) = match path.map(&page) {
            Some(Some(body)) => ("200 OK", body),
            Some(None) => ("404 Not Found", Vec::new()),
            None => ("400 Bad Request", Vec::new()),
        };
        let mut answer = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
        answer.extend_from_slice(&body);
        to.write_all(&answer)?;
    }
    Ok(())
}

/// The file of a site that a path names.
pub(super) fn of_site(site: &Site, path: &str) -> Option<Vec<u8>> {
    let file = SiteFile::of_path(path).filter(|file| file.directory < site.directories)?;
    Some(site.contents(&file))
}
