//! The encryption of what one host tells another one: the server sees who talks to whom, and how much.
//!
//! It is the `crypto_box` of `NaCl` (X25519, `XSalsa20`, `Poly1305`), by the keys with which the hosts sign: both are points of one curve, in
//! two forms, and the conversion is that of `crypto_sign_ed25519_pk_to_curve25519` of libsodium. So a certificate that says the
//! key by which a host signs also says that by which one encrypts for it.

use super::keys::KeyError;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use crypto_box::aead::Aead;
use crypto_box::{Nonce, PublicKey, SalsaBox, SecretKey};
use curve25519_dalek::edwards::CompressedEdwardsY;
use ring::digest::{SHA512, digest};
use ring::rand::{SecureRandom, SystemRandom};

/// The bytes of the number that is used once, in front of the encrypted ones.
const NONCE_BYTES: usize = 24;

/// The secret key of this host for what is encrypted.
pub(super) struct DecryptionKey(SecretKey);

/// Encrypts for one host, and decrypts what it has encrypted for this one.
pub(super) struct Cipher(SalsaBox);

impl DecryptionKey {
    /// Makes the key from the seed of the one by which this host signs.
    ///
    /// # Errors
    /// The seed cannot be read.
    pub(super) fn of_seed(seed: &str) -> Result<Self, KeyError> {
        let seed = URL_SAFE_NO_PAD.decode(seed).map_err(|_| KeyError::Invalid)?;
        let expanded = digest(&SHA512, &seed);
        let half = expanded.as_ref().first_chunk::<32>().ok_or(KeyError::Invalid)?;
        Ok(Self(SecretKey::from_bytes(*half)))
    }

    /// Returns the cipher between this host and the one that signs with this public key; `None` if it is no key.
    pub(super) fn cipher_with(&self, key: &[u8]) -> Option<Cipher> {
        let point = CompressedEdwardsY::from_slice(key).ok()?.decompress()?;
        let key = PublicKey::from_bytes(point.to_montgomery().to_bytes());
        Some(Cipher(SalsaBox::new(&key, &self.0)))
    }
}

impl Cipher {
    /// Encrypts a body; `None` if the system gives no random bytes.
    pub(super) fn encrypt(&self, body: &[u8]) -> Option<Vec<u8>> {
        let mut nonce = [0; NONCE_BYTES];
        SystemRandom::new().fill(&mut nonce).ok()?;
        let encrypted = self.0.encrypt(&Nonce::from(nonce), body).ok()?;
        Some([nonce.as_slice(), &encrypted].concat())
    }

    /// Decrypts a body; `None` if it was changed, or encrypted for or by another key.
    pub(super) fn decrypt(&self, body: &[u8]) -> Option<Vec<u8>> {
        let (nonce, encrypted) = body.split_first_chunk::<NONCE_BYTES>()?;
        self.0.decrypt(&Nonce::from(*nonce), encrypted).ok()
    }
}
