//! The two ends of a data port prove to each other that they know the transfer's key, and make a key for each direction.
//!
//! ```text
//! downstream: "NMIMAGE1"  its number in the fleet: u32  nonce: 32 bytes
//! upstream:   nonce: 32 bytes  keyed BLAKE3 of both, as upstream
//! downstream: keyed BLAKE3 of both, as downstream
//! ```

const MAGIC: &[u8; 8] = b"NMIMAGE1";
/// Bytes of the first message.
pub(crate) const HELLO: usize = 8 + 4 + 32;
/// Bytes of the answer.
pub(crate) const ANSWER: usize = 64;
/// Bytes of the last message.
pub(crate) const CLOSE: usize = 32;

/// The transfer's key: made by `push`, told to each host through ssh.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key(pub(crate) [u8; 32]);

/// A peer that does not know the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the other end of the connection does not know the key of this transfer")]
pub(crate) struct Stranger;

/// Keys of a connection.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Keys {
    /// For frames that go down.
    pub(crate) down: [u8; 32],
    /// For frames that go up.
    pub(crate) up: [u8; 32],
}

/// The first message.
pub(crate) fn hello(host: u32, nonce: &[u8; 32]) -> [u8; HELLO] {
    let mut bytes = [0; HELLO];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&host.to_le_bytes());
    bytes[12..].copy_from_slice(nonce);
    bytes
}

/// Upstream's answer to a first message, what it expects then, and the keys. `None`: no first message of ours.
pub(crate) fn answer(key: &Key, hello: &[u8; HELLO], nonce: &[u8; 32]) -> Option<([u8; ANSWER], [u8; CLOSE], Keys)> {
    if &hello[..8] != MAGIC {
        return None;
    }
    let mut bytes = [0; ANSWER];
    bytes[..32].copy_from_slice(nonce);
    bytes[32..].copy_from_slice(&proof(key, b"upstream", hello, nonce));
    Some((bytes, proof(key, b"downstream", hello, nonce), keys(key, hello, nonce)))
}

/// Downstream's last message to an answer, and the keys.
///
/// # Errors
/// The answer is not from somebody who knows the key.
pub(crate) fn close(key: &Key, hello: &[u8; HELLO], answer: &[u8; ANSWER]) -> Result<([u8; CLOSE], Keys), Stranger> {
    let mut nonce = [0; 32];
    nonce.copy_from_slice(&answer[..32]);
    let mut given = [0; 32];
    given.copy_from_slice(&answer[32..]);
    same(&given, &proof(key, b"upstream", hello, &nonce))?;
    Ok((proof(key, b"downstream", hello, &nonce), keys(key, hello, &nonce)))
}

/// Compares in constant time.
pub(crate) fn same(given: &[u8; 32], expected: &[u8; 32]) -> Result<(), Stranger> {
    if blake3::Hash::from_bytes(*given) == blake3::Hash::from_bytes(*expected) { Ok(()) } else { Err(Stranger) }
}

fn proof(key: &Key, role: &[u8], hello: &[u8; HELLO], nonce: &[u8; 32]) -> [u8; 32] {
    *blake3::Hasher::new_keyed(&key.0).update(hello).update(nonce).update(role).finalize().as_bytes()
}

fn keys(key: &Key, hello: &[u8; HELLO], nonce: &[u8; 32]) -> Keys {
    Keys { down: proof(key, b"key down", hello, nonce), up: proof(key, b"key up", hello, nonce) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_ends_with_one_key_agree_and_a_stranger_is_told_apart() {
        let (ours, theirs) = (Key([1; 32]), Key([2; 32]));
        let hello = hello(7, &[3; 32]);
        let (reply, expected, above) = answer(&ours, &hello, &[4; 32]).unwrap();
        let (last, below) = close(&ours, &hello, &reply).unwrap();
        assert!(above == below && same(&last, &expected).is_ok());
        assert!(close(&theirs, &hello, &reply).is_err());
        let (foreign, ..) = answer(&theirs, &hello, &[4; 32]).unwrap();
        assert!(close(&ours, &hello, &foreign).is_err());
        assert!(answer(&ours, &[0; HELLO], &[4; 32]).is_none());
    }

    #[test]
    fn neither_end_can_send_back_what_it_was_sent() {
        let hello = hello(7, &[3; 32]);
        let (reply, expected, keys) = answer(&Key([1; 32]), &hello, &[4; 32]).unwrap();
        assert!(reply[32..] != expected && keys.up != keys.down);
    }
}
