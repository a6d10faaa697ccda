//! Guests of system mode for users without root: a program of root's that a socket starts, one for each connection.
//!
//! The user's `nearmetal run` [asks](Request) and stays in the foreground; root's does the run, and sends back [frames](Frame) of what
//! belongs on the user's stdout, stderr and among his events, and the code at last. What a user may choose is a flavour that its file
//! opens to one of his groups, an image of the store, and the command; every path is root's. Who asks, and what he was given, tells
//! the kernel ([`Peer`]), not the request. Nothing of the user's is opened: his files arrive as bytes.

mod frame;
mod peer;

use serde::{Deserialize, Serialize};

use crate::flavour::Flavour;
use crate::seed::MOST;
use crate::{RunError, accounts};

pub use frame::{Frames, FromService, FromUser, PIECE, WrongFrame, receive};
pub use peer::Peer;
#[cfg(feature = "fuzzing")]
pub(crate) use peer::user_and_groups as fuzzed_status;

/// Where the service listens (nearmetal-run.socket).
pub const SOCKET: &str = "/run/nearmetal/run.socket";
/// The schema of a request.
pub const SCHEMA: &str = "nearmetal.run-request/2";
/// Bytes of a request at most: a command and its arguments take 160 KiB on their way to the agent.
pub const LONGEST_REQUEST: usize = 1 << 20;
/// Bytes of a user's file at most.
pub(crate) const LONGEST_FILE: usize = MOST.get() as usize;

/// What a user asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// [`SCHEMA`].
    pub schema: String,
    /// The flavour.
    pub flavour: String,
    /// The image, as `--image` names it.
    pub image: Option<String>,
    /// Whether a frame with user data follows.
    pub user_data: bool,
    /// What the user calls his file of meta-data, of which a frame follows then.
    pub meta_data: Option<String>,
    /// Seconds that the command may take. The flavour's limit holds as well.
    pub time_limit: Option<u64>,
    /// Whether the guest's console is wanted.
    pub console: bool,
    /// Whether prose is wanted.
    pub quiet: bool,
    /// The command and its arguments.
    pub command: Vec<String>,
}

/// What every version of a request has.
#[derive(Deserialize)]
struct Named {
    schema: String,
}

impl Request {
    /// Reads a request.
    ///
    /// # Errors
    /// It is not one, in words that hold nothing of it beyond printable ASCII.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let plain = |text: String| -> String {
            text.chars().take(200).map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' }).collect()
        };
        // That of another version is named before its fields are missed.
        let named: Named = serde_json::from_slice(bytes).map_err(|error| plain(error.to_string()))?;
        if named.schema != SCHEMA {
            let schema = plain(named.schema);
            return Err(format!(
                "its schema is `{schema}`, and this service reads `{SCHEMA}`: install the same version"
            ));
        }
        let request: Self = serde_json::from_slice(bytes).map_err(|error| plain(error.to_string()))?;
        // It comes back in messages, of which the system's journal has some.
        if request.meta_data.as_ref().is_some_and(|path| path.contains(char::is_control)) {
            return Err("the name of its meta-data has control characters".to_owned());
        }
        if request.command.is_empty() {
            return Err("it has no command".to_owned());
        }
        Ok(request)
    }
}

/// Whether a flavour is open to whoever asks.
///
/// # Errors
/// [`RunError::FlavourClosed`].
pub fn open_to(flavour: &Flavour, peer: &Peer) -> Result<(), RunError> {
    let is_open = flavour
        .open_to
        .as_deref()
        .is_some_and(|group| accounts::number_of_group(group).is_some_and(|number| peer.groups.contains(&number)));
    if peer.uid == 0 || is_open {
        return Ok(());
    }
    Err(RunError::FlavourClosed {
        flavour: flavour.name.clone(),
        user: accounts::user(peer.uid),
        group: flavour.open_to.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flavour::Flavours;

    fn request() -> Request {
        Request {
            schema: SCHEMA.to_owned(),
            flavour: "small".to_owned(),
            image: None,
            user_data: false,
            meta_data: None,
            time_limit: Some(60),
            console: false,
            quiet: false,
            command: vec!["true".to_owned()],
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let request = request();
        assert_eq!(Request::parse(&serde_json::to_vec(&request).unwrap()), Ok(request));
    }

    #[test]
    fn what_is_no_request_is_refused_in_words_that_a_terminal_may_show() {
        let other = serde_json::to_string(&Request { schema: "x\u{1b}[2J/9".to_owned(), ..request() }).unwrap();
        let empty = serde_json::to_string(&Request { command: Vec::new(), ..request() }).unwrap();
        let meta = serde_json::to_string(&Request { meta_data: Some("x\n<4>y".to_owned()), ..request() }).unwrap();
        let more = serde_json::to_string(&request()).unwrap().replace("\"flavour\"", "\"\\u001b\":1,\"flavour\"");
        for (text, says) in [
            (other.as_str(), "install the same version"),
            (&empty, "no command"),
            (&meta, "control characters"),
            (&more, "unknown field `?`"),
            ("[]", "invalid"),
            ("", "EOF"),
        ] {
            let refused = Request::parse(text.as_bytes()).unwrap_err();
            assert!(refused.contains(says) && !refused.contains(char::is_control), "{refused}");
        }
    }

    #[test]
    fn a_flavour_is_open_to_the_group_that_its_file_names_and_to_root() {
        let flavour = |key: &str| {
            let text = format!("[[flavour]]\nname = \"a\"\nvcpus = 1\nmemory = \"1 GiB\"\n{key}\n");
            Flavours::parse("test", &text).unwrap().all()[0].clone()
        };
        let user = Peer { pid: 7, uid: 1000, groups: vec![1000, 77] };
        // A number is a group, whatever it is called here.
        open_to(&flavour("open-to = \"77\""), &user).unwrap();
        let other = open_to(&flavour("open-to = \"78\""), &user).unwrap_err().to_string();
        assert!(other.contains("`78`"), "{other}");
        let nobody = open_to(&flavour(""), &user).unwrap_err().to_string();
        assert!(nobody.contains("open-to"), "{nobody}");
        open_to(&flavour(""), &Peer { uid: 0, ..user }).unwrap();
    }
}
