//! The secret of a cluster: what programs of it know and nobody else, and how it is proved without being sent.
//!
//! Both sides send 32 random bytes and then an HMAC-SHA256 under the secret. What goes into it is the proving side's label, the
//! whole `Hello` as it was sent, the node's random bytes, its id and its incarnation. So a proof is of use on one connection
//! only, in one direction only, and neither side's words can be changed on the way. What follows on the connection is not
//! protected by it: that is for TLS.

use base::env::Random;
use base::error::{Error, ErrorKind, Result};
use base::id::{ClusterId, NodeId};
use bytes::Bytes;
use ring::hmac;

/// Bytes of a secret.
const SECRET_LENGTH: usize = 32;

/// Bytes of each side's random contribution.
pub(crate) const NONCE_LENGTH: usize = 32;

/// 256 bits that the programs of one cluster share. It shows itself nowhere.
#[derive(Clone)]
pub struct Secret(hmac::Key);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

impl Secret {
    /// The secret written as 64 hexadecimal digits; white space around them does not count. `Invalid`: it is none. The refusal
    /// does not repeat it.
    pub fn from_hex(text: &str) -> Result<Secret> {
        let digits = text.trim();
        let mut bytes = [0; SECRET_LENGTH];
        if digits.len() != 2 * SECRET_LENGTH || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "a secret is {} hexadecimal digits, not these {} characters; `stormwell init` makes one",
                    2 * SECRET_LENGTH,
                    digits.chars().count()
                ),
            ));
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks(2)) {
            let digit = |at: usize| (pair[at] as char).to_digit(16).unwrap_or_default() as u8;
            *byte = digit(0) << 4 | digit(1);
        }
        Ok(Secret(hmac::Key::new(hmac::HMAC_SHA256, &bytes)))
    }
}

/// What a program knows of its cluster. Nothing, unless said: then it connects to whoever needs no proof.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    /// The cluster that is meant; none: whichever answers.
    pub cluster: Option<ClusterId>,
    /// Its secret. Who has one speaks only to those who prove the same.
    pub secret: Option<Secret>,
}

/// Who is at the asking end of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Asker {
    /// A command, or another program that uses the store.
    #[default]
    Client,
    /// A node of the cluster.
    Node {
        /// Which one.
        node: NodeId,
        /// Rises with every start of it.
        incarnation: u64,
        /// The term in which it leads the keepers and orders over this connection; zero: none.
        term: u64,
    },
}

/// Which side proves. A proof of one side is none of the other, so that nobody is answered with their own.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    /// The node that was connected to.
    Answering,
    /// Whoever connected.
    Asking,
}

/// What both sides know of one greeting before anything is proved.
pub(crate) struct Transcript {
    /// The encoded `Hello`.
    pub(crate) hello: Bytes,
    /// The node's random bytes.
    pub(crate) nonce: Bytes,
    pub(crate) node: NodeId,
    pub(crate) incarnation: u64,
}

impl Transcript {
    /// What is authenticated. Fields of a fixed length but for the greeting, which has its length before it, so that no two
    /// greetings give the same bytes.
    fn bytes(&self, side: Side) -> Vec<u8> {
        let label: &[u8; 32] = match side {
            Side::Answering => b"stormwell greeting 1: node      ",
            Side::Asking => b"stormwell greeting 1: caller    ",
        };
        let mut bytes = label.to_vec();
        bytes.extend_from_slice(&(self.hello.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&self.hello);
        bytes.extend_from_slice(&(self.nonce.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&self.nonce);
        bytes.extend_from_slice(&self.node.to_bytes());
        bytes.extend_from_slice(&self.incarnation.to_le_bytes());
        bytes
    }

    /// That `side` knows the secret.
    pub(crate) fn prove(&self, secret: &Secret, side: Side) -> Bytes {
        Bytes::copy_from_slice(hmac::sign(&secret.0, &self.bytes(side)).as_ref())
    }

    /// Whether `proof` shows that `side` knows the secret. Takes as long for any wrong proof.
    pub(crate) fn proves(&self, secret: &Secret, side: Side, proof: &[u8]) -> bool {
        hmac::verify(&secret.0, &self.bytes(side), proof).is_ok()
    }
}

/// One side's random bytes.
pub(crate) fn nonce(random: &dyn Random) -> Bytes {
    let mut bytes = Vec::with_capacity(NONCE_LENGTH);
    while bytes.len() < NONCE_LENGTH {
        bytes.extend_from_slice(&random.next().to_le_bytes());
    }
    Bytes::from(bytes)
}

/// An error about who somebody is.
pub(crate) fn refused(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Refused, text)
}

#[cfg(test)]
mod tests {
    use super::{Secret, Side, Transcript};
    use base::id::NodeId;
    use bytes::Bytes;

    /// A secret is 64 hexadecimal digits in either case, and neither it nor a refused one is ever shown.
    #[test]
    fn secrets_are_read_and_not_shown() {
        let text = "0123456789abcdefABCDEF".repeat(3)[..64].to_string();
        let secret = Secret::from_hex(&format!(" {text}\n")).expect("a secret");
        assert!(!format!("{secret:?}").contains("0123"));
        for bad in ["", &text[1..], &format!("{text}0"), &text.replace('a', "x"), &"é".repeat(32)] {
            let refusal = Secret::from_hex(bad).expect_err(bad);
            assert!(bad.is_empty() || !refusal.text().contains(bad), "{refusal}");
        }
    }

    /// A proof holds for one side, one secret and exactly these words.
    #[test]
    fn a_proof_holds_for_what_it_says() {
        let secret = |digit: &str| Secret::from_hex(&digit.repeat(64)).expect("a secret");
        let transcript = |hello: &'static [u8], nonce: &'static [u8], node, incarnation| Transcript {
            hello: Bytes::from_static(hello),
            nonce: Bytes::from_static(nonce),
            node: NodeId(node),
            incarnation,
        };
        let proof = transcript(b"ab", b"c", 1, 2).prove(&secret("a"), Side::Asking);
        let holds = |transcript: Transcript, digit| transcript.proves(&secret(digit), Side::Asking, &proof);
        assert!(holds(transcript(b"ab", b"c", 1, 2), "a"));
        assert!(!holds(transcript(b"ab", b"c", 1, 2), "b"));
        assert!(!holds(transcript(b"a", b"bc", 1, 2), "a"));
        assert!(!holds(transcript(b"ab", b"c", 2, 2), "a"));
        assert!(!holds(transcript(b"ab", b"c", 1, 3), "a"));
        assert!(!transcript(b"ab", b"c", 1, 2).proves(&secret("a"), Side::Answering, &proof));
        assert!(!transcript(b"ab", b"c", 1, 2).proves(&secret("a"), Side::Asking, &proof[..31]));
    }
}
