//! Mail that a seed makes: users, and the messages in their inboxes. Server and driver are told them by the same numbers.

use crate::load::site::text;
use crate::random::Random;

/// The password of all users: they are on a server that was made for the run and is reached by nobody else.
pub const PASSWORD: &str = "nearmetal";
/// Words that subjects have one of, and that are searched for.
pub const WORDS: u32 = 32;

/// The mail of one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mail {
    /// What makes the messages.
    pub seed: u64,
    /// Users, each with an inbox.
    pub users: u32,
    /// Messages in each inbox at the beginning.
    pub messages: u32,
}

/// The name of a user.
pub fn user(number: u32) -> String {
    format!("user{number:04}")
}

/// The word with this number.
pub fn word(number: u32) -> String {
    format!("topic{:02}", number % WORDS)
}

impl Mail {
    /// A message of a user's, with lines that end as SMTP's do. Sizes are ours, for want of a published mix that is free: half
    /// of 2 to 8 KiB, four in ten of 8 to 32 KiB, one in ten of 32 to 128 KiB.
    pub fn message(&self, user_number: u32, number: u32) -> Vec<u8> {
        let own = (u64::from(user_number) << 32) | u64::from(number);
        message(user_number, &mut Random::new(self.seed ^ own.wrapping_mul(0xd6e8_feb8_6659_fd93)))
    }
}

/// A message to a user, drawn.
pub fn message(user_number: u32, random: &mut Random) -> Vec<u8> {
    let smallest = match random.below(10) {
        0..5 => 2 << 10,
        5..9 => 8 << 10,
        _ => 32 << 10,
    };
    let bytes = (smallest + random.below(3 * smallest)) as usize;
    let (id, word, to) = (random.next_u64(), word(random.below(WORDS)), user(user_number));
    let mut contents = format!(
        "From: load@nearmetal.invalid\r\nTo: {to}@nearmetal.invalid\r\nDate: Thu, 01 Jan 2026 00:00:00 +0000\r\n\
         Message-ID: <{id:016x}@nearmetal.invalid>\r\nSubject: {word} {id:016x}\r\nMIME-Version: 1.0\r\n\
         Content-Type: text/plain; charset=us-ascii\r\n\r\n"
    )
    .into_bytes();
    text(&mut contents, bytes, random);
    contents.extend_from_slice(b"\r\n");
    contents
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_is_another_one_of_a_sound_form() {
        let mail = Mail { seed: 3, users: 2, messages: 20 };
        let mut seen = std::collections::BTreeSet::new();
        for (user, number) in (0..mail.users).flat_map(|user| (0..mail.messages).map(move |number| (user, number))) {
            let contents = mail.message(user, number);
            assert_eq!(contents, mail.message(user, number), "the same numbers make the same");
            assert!((2 << 10..129 << 10).contains(&contents.len()), "{}", contents.len());
            let text = String::from_utf8(contents).unwrap();
            assert!(text.lines().all(|line| line.len() < 998), "RFC 5322, section 2.1.1");
            assert!(!text.replace("\r\n", "").contains(['\r', '\n']), "no line ends by half");
            assert!(seen.insert(text));
        }
    }
}
