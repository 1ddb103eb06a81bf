//! The certificate of a host: its name and public key, signed by the authority of the team.

use agent_team::wire::carried::HostName;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{ED25519, Ed25519KeyPair, UnparsedPublicKey};
use serde::{Deserialize, Serialize};

/// The reason for which a message is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotTrusted {
    /// It has no signature: its host is of an older version, or none.
    #[error("it is not signed")]
    Unsigned,
    /// The authority of this team has not signed its host in.
    #[error("the authority of this team has not signed its host in")]
    Certificate,
    /// The certificate of its host was withdrawn.
    #[error("the certificate of host {0} was withdrawn")]
    Withdrawn(HostName),
    /// The signature is of another message.
    #[error("its signature does not fit")]
    Signature,
    /// The server has delivered it to a subject on which its host has not sent it.
    #[error("it was sent on another subject")]
    Subject,
    /// The question was asked before: a server has repeated it.
    #[error("it was asked before")]
    Repeated,
    /// It is encrypted for another key than that of this host.
    #[error("host {0} has encrypted it for another key than that of this host")]
    Encrypted(HostName),
    /// Another host than the one that it names has signed it.
    #[error("host {0} has signed it, in the name of another one")]
    Sender(HostName),
}

/// A certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certificate {
    /// The name of the host.
    pub host: HostName,
    /// The public key by which it signs.
    pub key: String,
    /// The number of the certificate: a later one of the same host is greater.
    pub serial: u64,
}

impl Certificate {
    /// Returns the certificate as text, signed by the key of the authority.
    pub(super) fn sign(&self, team: &str, authority: &Ed25519KeyPair) -> String {
        let payload = serde_json::to_vec(self).unwrap_or_default();
        let signature = authority.sign(&certificate_bytes(team, &payload));
        format!("{}.{}", URL_SAFE_NO_PAD.encode(payload), URL_SAFE_NO_PAD.encode(signature))
    }

    /// Reads a certificate that the authority of a team has signed.
    ///
    /// # Errors
    /// It has not.
    pub(super) fn parse(team: &str, text: &str, authority: &[u8]) -> Result<Self, NotTrusted> {
        let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).ok();
        let parts = text.split_once('.');
        let parts = parts.and_then(|(payload, it)| Some((decode(payload)?, decode(it)?)));
        let Some((payload, signature)) = parts else { return Err(NotTrusted::Unsigned) };
        if !verify(authority, &certificate_bytes(team, &payload), &signature) {
            return Err(NotTrusted::Certificate);
        }
        serde_json::from_slice(&payload).map_err(|_| NotTrusted::Certificate)
    }
}

/// Returns the bytes of a certificate that are signed.
fn certificate_bytes(team: &str, payload: &[u8]) -> Vec<u8> {
    joined(&["team certificate 1", team], payload)
}

/// The form of the body of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Everybody can read it.
    Clear,
    /// It is encrypted for one host.
    Encrypted,
}

/// Returns the bytes of a message that are signed. A signature of one form is none of the other one.
pub(super) fn message_bytes(form: Form, team: &str, context: &str, body: &[u8]) -> Vec<u8> {
    let kind = match form {
        Form::Clear => "team message 1",
        Form::Encrypted => "team encrypted message 1",
    };
    joined(&[kind, team, context], body)
}

/// Joins texts that have no line feed, and a body.
fn joined(texts: &[&str], body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(128 + body.len());
    for text in texts {
        bytes.extend(text.bytes().filter(|byte| *byte != b'\n'));
        bytes.push(b'\n');
    }
    bytes.extend(body);
    bytes
}

/// Whether a signature is that of a key over some bytes.
pub(super) fn verify(key: &[u8], bytes: &[u8], signature: &[u8]) -> bool {
    UnparsedPublicKey::new(&ED25519, key).verify(bytes, signature).is_ok()
}
