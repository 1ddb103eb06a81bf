//! The code by which a host joins, and the proof that it has it.

use crate::trust::PublicKeys;
use agent_team::wire::carried::HostName;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use nkeys::{KeyPair, KeyPairType};
use ring::digest::{SHA256, digest};
use ring::hmac;
use serde::{Deserialize, Serialize};

/// A code: whom to ask, whom to trust, and a secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct JoinCode {
    /// The id of the team.
    #[serde(rename = "t")]
    pub(super) team: String,
    /// The name of the host that may join.
    #[serde(rename = "h")]
    pub(super) host: HostName,
    /// The authority of the team.
    #[serde(rename = "a")]
    pub(super) authority: HostName,
    /// Its public key.
    #[serde(rename = "k")]
    pub(super) key: String,
    /// The secret.
    #[serde(rename = "s")]
    pub(super) secret: String,
    /// The fingerprint of the server's certificate. With one, the host logs in by a key that the secret gives it.
    #[serde(rename = "p", default, skip_serializing_if = "Option::is_none")]
    pub(super) pin: Option<String>,
}

/// Returns the key by which a host with this secret logs in to ask to join.
pub(crate) fn login_of(secret: &str) -> Option<KeyPair> {
    let seed = digest(&SHA256, format!("team join key 1\n{secret}").as_bytes());
    KeyPair::new_from_raw(KeyPairType::User, seed.as_ref().try_into().ok()?).ok()
}

impl JoinCode {
    pub(super) fn text(&self) -> String {
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).unwrap_or_default())
    }

    /// Reads a code; `None` if it is none, or not whole.
    pub(super) fn parse(text: &str) -> Option<Self> {
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text.trim()).ok()?).ok()
    }
}

/// The question of a host that wants to join.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct JoinQuestion {
    pub(super) host: HostName,
    pub(super) keys: PublicKeys,
    /// The proof that it has the secret.
    pub(super) proof: String,
}

/// The answer to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub(super) enum JoinAnswer {
    /// The host is a member.
    Joined {
        /// Its membership.
        membership: agent_team::store::relay::Membership,
    },
    /// It is not.
    Refused {
        /// The reason.
        why: String,
    },
}

impl JoinAnswer {
    /// Returns the answer with the proof, in front, that it comes from the one that knows the secret.
    pub(super) fn seal(&self, secret: &str) -> Option<Vec<u8>> {
        let body = serde_json::to_vec(self).ok()?;
        let tag = hmac::sign(&key(secret), &answered(&body));
        Some([URL_SAFE_NO_PAD.encode(tag).as_bytes(), b"\n", &body].concat())
    }

    /// Reads an answer; `None` if it is none of the authority.
    pub(super) fn open(secret: &str, sealed: &[u8]) -> Option<Self> {
        let end = sealed.iter().position(|byte| *byte == b'\n')?;
        let (tag, body) = (sealed.get(..end)?, sealed.get(end + 1..)?);
        let tag = URL_SAFE_NO_PAD.decode(tag).ok()?;
        hmac::verify(&key(secret), &answered(body), &tag).ok()?;
        serde_json::from_slice(body).ok()
    }
}

fn answered(body: &[u8]) -> Vec<u8> {
    [b"team join answer 1\n", body].concat()
}

impl JoinQuestion {
    pub(super) fn new(secret: &str, team: &str, host: HostName, keys: PublicKeys) -> Self {
        let tag = hmac::sign(&key(secret), &proved(team, &host, &keys));
        Self { host, keys, proof: URL_SAFE_NO_PAD.encode(tag) }
    }

    /// Whether the host has the secret.
    pub(super) fn is_proved(&self, secret: &str, team: &str) -> bool {
        let Ok(proof) = URL_SAFE_NO_PAD.decode(&self.proof) else { return false };
        hmac::verify(&key(secret), &proved(team, &self.host, &self.keys), &proof).is_ok()
    }
}

fn key(secret: &str) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes())
}

fn proved(team: &str, host: &HostName, keys: &PublicKeys) -> Vec<u8> {
    format!("team join 1\n{team}\n{host}\n{}\n{}", keys.signing, keys.connection).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_read_again_and_the_proof_is_of_one_host_with_its_keys() {
        let host = HostName::parse("gpu1").unwrap();
        let [team, key, secret] = ["demo", "k", "0123"].map(str::to_owned);
        let pin = None;
        let code = JoinCode { team, host: host.clone(), authority: host.clone(), key, secret, pin };
        let text = code.text();
        assert!(JoinCode::parse(&format!(" {text}\n")).is_some_and(|read| read == code));
        assert!(JoinCode::parse(text.get(..text.len() - 3).unwrap()).is_none());
        assert!(JoinCode::parse("7F3").is_none());
        let keys = PublicKeys { signing: "s".into(), connection: "c".into() };
        let question = JoinQuestion::new("0123", "demo", host, keys);
        assert!(question.is_proved("0123", "demo"));
        assert!(!question.is_proved("0124", "demo") && !question.is_proved("0123", "other"));
        let mut other = question.clone();
        other.keys.signing = "t".into();
        assert!(!other.is_proved("0123", "demo"));
        let answer = JoinAnswer::Refused { why: "no".into() };
        let sealed = answer.seal("0123").unwrap();
        assert_eq!(JoinAnswer::open("0123", &sealed), Some(answer));
        assert_eq!(JoinAnswer::open("0124", &sealed), None);
        assert_eq!(JoinAnswer::open("0123", b"{}"), None);
        let mut other = question;
        other.host = HostName::parse("gpu2").unwrap();
        assert!(!other.is_proved("0123", "demo"));
    }
}
