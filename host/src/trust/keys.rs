//! The keys of a host. One signs, another one logs in at the server: the server chooses what a login signs.

use agent_team::store::relay::HostKeys;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde::{Deserialize, Serialize};

/// The reason for which the keys of a host cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The system gives no random bytes.
    #[error("the system gives no random bytes")]
    NoRandomness,
    /// A key cannot be read.
    #[error("a key in run/.state/relay/keys.json cannot be read")]
    Invalid,
    /// The certificate of the host was withdrawn.
    #[error("the certificate of this host was withdrawn: it is no host of the team any more")]
    Withdrawn,
    /// The host has keys, and no host has signed it in.
    #[error("no host has signed this one in")]
    NoMember,
}

/// The public keys of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublicKeys {
    /// The key by which it signs.
    pub signing: String,
    /// The key by which it logs in at the server, as nkeys write it.
    pub connection: String,
}

impl PublicKeys {
    /// Whether both are keys. Others would spoil the configuration of the server.
    pub(crate) fn are_valid(&self) -> bool {
        let connection = nkeys::KeyPair::from_public_key(&self.connection);
        let signing = URL_SAFE_NO_PAD.decode(&self.signing);
        connection.is_ok_and(|key| key.key_pair_type() == nkeys::KeyPairType::User)
            && signing.is_ok_and(|key| key.len() == 32)
    }
}

/// Makes the keys of a host.
///
/// # Errors
/// The system has no randomness.
pub fn new_keys() -> Result<HostKeys, KeyError> {
    let connection = nkeys::KeyPair::new_from_raw(nkeys::KeyPairType::User, random()?);
    let connection = connection.and_then(|key| key.seed()).map_err(|_| KeyError::Invalid)?;
    let signing = URL_SAFE_NO_PAD.encode(random()?);
    Ok(HostKeys { signing, connection, membership: None })
}

fn random() -> Result<[u8; 32], KeyError> {
    let mut bytes = [0; 32];
    SystemRandom::new().fill(&mut bytes).map_err(|_| KeyError::NoRandomness)?;
    Ok(bytes)
}

/// Returns the public keys of a host.
///
/// # Errors
/// A key cannot be read.
pub fn public_keys(keys: &HostKeys) -> Result<PublicKeys, KeyError> {
    let connection =
        nkeys::KeyPair::from_seed(&keys.connection).map_err(|_| KeyError::Invalid)?.public_key();
    let signing = URL_SAFE_NO_PAD.encode(signing_key(&keys.signing)?.public_key());
    Ok(PublicKeys { signing, connection })
}

pub(super) fn signing_key(seed: &str) -> Result<Ed25519KeyPair, KeyError> {
    let seed = URL_SAFE_NO_PAD.decode(seed).map_err(|_| KeyError::Invalid)?;
    Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| KeyError::Invalid)
}
