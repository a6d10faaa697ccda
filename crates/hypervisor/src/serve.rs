//! The helper's main loop, apart from what answers: tested without libvirt.

use std::io::{self, BufRead, Write};

use serde::Serialize;

use crate::lines::read_line;
use crate::protocol::{Hello, LONGEST_LINE, Outcome, PROTOCOL, ReplyLine, RequestLine};
use crate::{HypervisorError, Transport};

/// Answers requests until the input ends. A line that is no request gets an error as its reply, and the next line is
/// read; only a broken pipe or an endless line ends it early.
pub fn serve(mut input: impl BufRead, mut output: impl Write, transport: &mut impl Transport) -> io::Result<()> {
    let Some(line) = read_line(&mut input, LONGEST_LINE)? else {
        return Ok(());
    };
    // Said in any case: the other side judges the version, and words the error.
    write_line(&mut output, &Hello { protocol: PROTOCOL })?;
    if let Err(error) = serde_json::from_slice::<Hello>(&line) {
        return write_line(&mut output, &misunderstood(&line, &error));
    }
    while let Some(line) = read_line(&mut input, LONGEST_LINE)? {
        let reply = match serde_json::from_slice::<RequestLine>(&line) {
            Ok(RequestLine { id, request }) => {
                ReplyLine { id: Some(id), outcome: Outcome::from(transport.call(request)) }
            }
            Err(error) => misunderstood(&line, &error),
        };
        write_line(&mut output, &reply)?;
    }
    Ok(())
}

fn misunderstood(line: &[u8], error: &serde_json::Error) -> ReplyLine {
    let start: String = String::from_utf8_lossy(line).chars().take(80).collect();
    let reason = format!("`{start}` is not a request of protocol {PROTOCOL} ({error})");
    ReplyLine { id: None, outcome: Outcome::Error(HypervisorError::Protocol { reason }) }
}

fn write_line(output: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    output.write_all(&line)?;
    output.flush()
}
