//! The code by which a host joins, and the proof that it has it.

use crate::trust::PublicKeys;
use agent_team::wire::carried::HostName;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
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
        let code = JoinCode { team, host: host.clone(), authority: host.clone(), key, secret };
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
        let mut other = question;
        other.host = HostName::parse("gpu2").unwrap();
        assert!(!other.is_proved("0123", "demo"));
    }
}
