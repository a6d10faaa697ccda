//! The helper's main loop, apart from what answers: tested without libvirt.

use std::io::{self, BufRead, Write};

use serde::Serialize;

use crate::lines::read_line;
use crate::protocol::{EventLine, Hello, LONGEST_LINE, Outcome, PROTOCOL, ReplyLine, Request, RequestLine};
use crate::{DomainEvent, HypervisorError, Transport};

/// Why there is nothing more to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Served {
    /// The input ended.
    All,
    /// Events were asked for, and can be had: they are all that is said from here on ([`write_event`]).
    UntilEvents,
}

/// Answers requests until the input ends, or events are asked for. A line that is no request gets an error as its reply,
/// and the next line is read; only a broken pipe or an endless line ends it early.
pub fn serve(mut input: impl BufRead, mut output: impl Write, transport: &mut impl Transport) -> io::Result<Served> {
    let Some(line) = read_line(&mut input, LONGEST_LINE)? else {
        return Ok(Served::All);
    };
    // Said in any case: the other side judges the version, and words the error.
    write_line(&mut output, &Hello { protocol: PROTOCOL })?;
    if let Err(error) = serde_json::from_slice::<Hello>(&line) {
        write_line(&mut output, &misunderstood(&line, &error))?;
        return Ok(Served::All);
    }
    while let Some(line) = read_line(&mut input, LONGEST_LINE)? {
        let mut events = false;
        let reply = match serde_json::from_slice::<RequestLine>(&line) {
            Ok(RequestLine { id, request }) => {
                let asked = request == Request::Events;
                let outcome = Outcome::from(transport.call(request));
                events = asked && matches!(outcome, Outcome::Reply(_));
                ReplyLine { id: Some(id), outcome }
            }
            Err(error) => misunderstood(&line, &error),
        };
        write_line(&mut output, &reply)?;
        if events {
            return Ok(Served::UntilEvents);
        }
    }
    Ok(Served::All)
}

/// Says what happened, after [`Served::UntilEvents`].
///
/// # Errors
/// Nobody reads any more.
pub fn write_event(output: impl Write, event: DomainEvent) -> io::Result<()> {
    write_line(output, &EventLine { event })
}

fn misunderstood(line: &[u8], error: &serde_json::Error) -> ReplyLine {
    let start: String = String::from_utf8_lossy(line).chars().take(80).collect();
    let reason = format!("`{start}` is not a request of protocol {PROTOCOL} ({error})");
    ReplyLine { id: None, outcome: Outcome::Error(HypervisorError::Protocol { reason }) }
}

fn write_line(mut output: impl Write, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    output.write_all(&line)?;
    output.flush()
}
