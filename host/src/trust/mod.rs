//! Every host signs its messages by its own key, and one host of the team, its *authority*, signs the keys.
//!
//! The permissions of a server do not keep a host from writing in the name of another one: the server itself publishes
//! answers to any subject that a question names. So the relays trust signatures alone. Each message begins with a line of the
//! certificate of its host and the signature, over the subject and the rest: it proves its sender by itself, also after the
//! server has forgotten everything.
//!
//! A message for one host alone is encrypted for it, too ([`Trust::encrypt`]). Those that all hosts read, the values of the bucket and the
//! signs of life, are signed only.

mod certificate;
mod encryption;
mod keys;

pub use certificate::{Certificate, NotTrusted};
pub use keys::{KeyError, PublicKeys, new_keys, public_keys};

use agent_team::store::relay::{HostKeys, Membership, SignedInHost};
use agent_team::wire::carried::HostName;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use certificate::{Form, message_bytes, verify};
use encryption::{Cipher, DecryptionKey};
use keys::signing_key;
use ring::signature::{Ed25519KeyPair, KeyPair};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The most certificates of other hosts that are remembered as verified.
const MOST_VERIFIED: usize = 4096;

/// The most bytes of the line in front of a message.
const MOST_HEAD: usize = 1024;

/// The end of the line in front of a message that is encrypted.
const ENCRYPTED: &str = ".encrypted";

/// The keys of this host, and what it trusts.
pub struct Trust {
    team: String,
    key: Ed25519KeyPair,
    decryption: DecryptionKey,
    own_serial: u64,
    membership: Membership,
    authority_key: Vec<u8>,
    state: Mutex<TrustState>,
}

#[derive(Default)]
struct TrustState {
    least_serials: BTreeMap<HostName, u64>,
    /// The certificates that were verified, by their texts.
    verified: BTreeMap<String, Arc<Signer>>,
    /// Of each host, the latest of them.
    latest: BTreeMap<HostName, Arc<Signer>>,
}

/// A host with a certificate that was verified.
struct Signer {
    certificate: Certificate,
    /// Its public key.
    key: Vec<u8>,
    /// Encrypts for it, and decrypts what it has encrypted; `None` if its key is none for that.
    cipher: Option<Cipher>,
}

/// A message whose signature was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// The host that has signed it.
    pub by: HostName,
    /// The message without its first line.
    pub body: Bytes,
}

impl fmt::Debug for Trust {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Trust").field("membership", &self.membership).finish_non_exhaustive()
    }
}

impl Trust {
    /// Makes the trust of a host that is a member of a team. `least_serials` are those of withdrawn certificates.
    ///
    /// # Errors
    /// A key cannot be read, or the host is no member.
    pub fn new(
        team: &str,
        keys: &HostKeys,
        least_serials: BTreeMap<HostName, u64>,
    ) -> Result<Self, KeyError> {
        let membership = keys.membership.clone().ok_or(KeyError::NoMember)?;
        let key = signing_key(&keys.signing)?;
        let decryption = DecryptionKey::of_seed(&keys.signing)?;
        let authority_key =
            URL_SAFE_NO_PAD.decode(&membership.authority_key).map_err(|_| KeyError::Invalid)?;
        let own = Certificate::parse(team, &membership.certificate, &authority_key);
        let own = own.map_err(|_| KeyError::Invalid)?;
        let own_serial = own.serial;
        if least_serials.get(&own.host).is_some_and(|least| own_serial < *least) {
            return Err(KeyError::Withdrawn);
        }
        let state = Mutex::new(TrustState { least_serials, ..TrustState::default() });
        let team = team.into();
        Ok(Self { team, key, decryption, own_serial, membership, authority_key, state })
    }

    /// Makes the keys of a host the membership of a team whose authority it is itself.
    ///
    /// # Errors
    /// A key cannot be read.
    pub fn found(team: &str, host: &HostName, keys: &HostKeys) -> Result<Membership, KeyError> {
        let key = signing_key(&keys.signing)?;
        let public = URL_SAFE_NO_PAD.encode(key.public_key());
        let own = Certificate { host: host.clone(), key: public.clone(), serial: 1 };
        Ok(Membership {
            authority: host.clone(),
            authority_key: public,
            certificate: own.sign(team, &key),
            is_limited: false,
            least_serials: BTreeMap::new(),
        })
    }

    /// The host that signs the others in.
    pub fn authority(&self) -> &HostName {
        &self.membership.authority
    }

    /// The public key of the authority.
    pub(crate) fn authority_key(&self) -> &str {
        &self.membership.authority_key
    }

    /// Whether the server lets this host do only what it needs.
    pub fn is_limited(&self) -> bool {
        self.membership.is_limited
    }

    /// The serial number of the certificate of this host.
    pub fn own_serial(&self) -> u64 {
        self.own_serial
    }

    /// Makes the membership of a host that this one, the authority, has signed in.
    pub fn sign_in(&self, signed: &SignedInHost, is_limited: bool) -> Membership {
        let certificate = Certificate {
            host: signed.host.clone(),
            key: signed.signing.clone(),
            serial: signed.serial,
        };
        Membership {
            authority: self.membership.authority.clone(),
            authority_key: self.membership.authority_key.clone(),
            certificate: certificate.sign(&self.team, &self.key),
            is_limited,
            least_serials: self.lock().least_serials.clone(),
        }
    }

    /// Trusts only certificates with these serial numbers or later ones from now on. Lower numbers than are known change nothing.
    pub fn raise_least_serials(&self, least: &BTreeMap<HostName, u64>) {
        let mut state = self.lock();
        for (host, serial) in least {
            let known = state.least_serials.entry(host.clone()).or_default();
            *known = (*serial).max(*known);
        }
    }

    /// Returns the least serial number of a host; 0 if none of its certificates was withdrawn.
    pub fn least_serial(&self, host: &HostName) -> u64 {
        self.lock().least_serials.get(host).copied().unwrap_or_default()
    }

    /// Signs a message for all hosts. `context` says what it is, such as its subject: as anything else it is not accepted.
    pub fn sign(&self, context: &str, body: &[u8]) -> Bytes {
        let signature = self.key.sign(&message_bytes(Form::Clear, &self.team, context, body));
        self.signed(signature.as_ref(), "", body)
    }

    /// Encrypts and signs a message for one host; `None` if nothing that this one has signed was seen yet, so that its key is
    /// not known.
    pub fn encrypt(&self, to: &HostName, context: &str, body: &[u8]) -> Option<Bytes> {
        let body = self.latest_of(to)?.cipher.as_ref()?.encrypt(body)?;
        let signature = self.key.sign(&message_bytes(Form::Encrypted, &self.team, context, &body));
        Some(self.signed(signature.as_ref(), ENCRYPTED, &body))
    }

    fn signed(&self, signature: &[u8], end: &str, body: &[u8]) -> Bytes {
        let mut signed = self.membership.certificate.clone().into_bytes();
        signed.push(b'.');
        signed.extend(URL_SAFE_NO_PAD.encode(signature).into_bytes());
        signed.extend(end.as_bytes());
        signed.push(b'\n');
        signed.extend(body);
        signed.into()
    }

    /// Verifies a message, and decrypts it.
    ///
    /// # Errors
    /// It is not signed by a host that the authority has signed in, or not as what `context` says, or encrypted for another host.
    pub fn open(&self, context: &str, signed: &Bytes) -> Result<Opened, NotTrusted> {
        let end = signed.iter().take(MOST_HEAD).position(|byte| *byte == b'\n');
        let head = end.and_then(|end| std::str::from_utf8(signed.get(..end)?).ok());
        let (head, form) = match head.map(|head| (head.strip_suffix(ENCRYPTED), head)) {
            Some((Some(head), _)) => (Some(head), Form::Encrypted),
            Some((None, head)) => (Some(head), Form::Clear),
            None => (None, Form::Clear),
        };
        let parts = head.and_then(|head| head.rsplit_once('.'));
        let (Some(end), Some((certificate, signature))) = (end, parts) else {
            return Err(NotTrusted::Unsigned);
        };
        let signer = self.signer(certificate)?;
        let body = signed.slice(end + 1..);
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| NotTrusted::Signature)?;
        if !verify(&signer.key, &message_bytes(form, &self.team, context, &body), &signature) {
            return Err(NotTrusted::Signature);
        }
        let by = signer.certificate.host.clone();
        let body = match form {
            Form::Clear => body,
            Form::Encrypted => {
                let decrypted = signer.cipher.as_ref().and_then(|cipher| cipher.decrypt(&body));
                decrypted.ok_or_else(|| NotTrusted::Encrypted(by.clone()))?.into()
            }
        };
        Ok(Opened { by, body })
    }

    /// Returns the host of a certificate that was verified and not withdrawn.
    fn signer(&self, text: &str) -> Result<Arc<Signer>, NotTrusted> {
        let known = self.lock().verified.get(text).cloned();
        let signer = match known {
            Some(known) => known,
            None => {
                let certificate = Certificate::parse(&self.team, text, &self.authority_key)?;
                let signer = Arc::new(self.signer_of(certificate)?);
                self.remember(text, &signer);
                signer
            }
        };
        let Certificate { host, serial, .. } = &signer.certificate;
        if *serial < self.least_serial(host) {
            return Err(NotTrusted::Withdrawn(host.clone()));
        }
        Ok(signer)
    }

    fn signer_of(&self, certificate: Certificate) -> Result<Signer, NotTrusted> {
        let key = URL_SAFE_NO_PAD.decode(&certificate.key).map_err(|_| NotTrusted::Certificate)?;
        let cipher = self.decryption.cipher_with(&key);
        Ok(Signer { certificate, key, cipher })
    }

    fn remember(&self, text: &str, signer: &Arc<Signer>) {
        let mut state = self.lock();
        if state.verified.len() >= MOST_VERIFIED {
            state.verified.clear();
        }
        state.verified.insert(text.to_owned(), Arc::clone(signer));
        let Certificate { host, serial, .. } = &signer.certificate;
        if state.latest.get(host).is_none_or(|known| known.certificate.serial <= *serial) {
            state.latest.insert(host.clone(), Arc::clone(signer));
        }
    }

    /// Returns a host by the latest certificate of it that was seen and not withdrawn. That of the authority is known from the start.
    fn latest_of(&self, host: &HostName) -> Option<Arc<Signer>> {
        let seen = self.lock().latest.get(host).cloned();
        let signer = match seen {
            Some(seen) => seen,
            None if host == self.authority() => {
                let key = self.membership.authority_key.clone();
                let certificate = Certificate { host: host.clone(), key, serial: 0 };
                let signer = Arc::new(self.signer_of(certificate).ok()?);
                self.lock().latest.insert(host.clone(), Arc::clone(&signer));
                return Some(signer);
            }
            None => return None,
        };
        let is_withdrawn = signer.certificate.serial < self.least_serial(host);
        (!is_withdrawn).then_some(signer)
    }

    fn lock(&self) -> MutexGuard<'_, TrustState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEAM: &str = "demo";

    fn host(name: &str) -> HostName {
        HostName::parse(name).unwrap()
    }

    fn founder() -> (Trust, HostKeys) {
        let mut keys = new_keys().unwrap();
        keys.membership = Some(Trust::found(TEAM, &host("a"), &keys).unwrap());
        (Trust::new(TEAM, &keys, BTreeMap::new()).unwrap(), keys)
    }

    fn member(authority: &Trust, name: &str, serial: u64) -> Trust {
        let mut keys = new_keys().unwrap();
        let public = public_keys(&keys).unwrap();
        let (signing, connection) = (public.signing, public.connection);
        let entry = SignedInHost { host: host(name), signing, connection, serial };
        keys.membership = Some(authority.sign_in(&entry, true));
        Trust::new(TEAM, &keys, BTreeMap::new()).unwrap()
    }

    #[test]
    fn hosts_of_a_team_accept_what_they_tell_each_other_and_nothing_else() {
        let (a, _) = founder();
        let (b, c) = (member(&a, "b", 1), member(&a, "c", 1));
        let signed = b.sign("t.demo.mail.c.b", b"a frame");
        let opened = c.open("t.demo.mail.c.b", &signed).unwrap();
        assert_eq!((opened.by, &opened.body[..]), (host("b"), &b"a frame"[..]));
        assert_eq!(a.open("t.demo.mail.c.b", &signed).unwrap().by, host("b"));
        // At another place, it is nothing.
        assert_eq!(c.open("t.demo.mail.c.a", &signed), Err(NotTrusted::Signature));
        let mut changed = signed.to_vec();
        *changed.last_mut().unwrap() ^= 1;
        assert_eq!(c.open("t.demo.mail.c.b", &changed.into()), Err(NotTrusted::Signature));
        for unsigned in ["", "{}", "{}\n", "a\n", "\n{}"] {
            let refused = c.open("x", &Bytes::from(unsigned)).unwrap_err();
            assert_eq!(refused, NotTrusted::Unsigned, "{unsigned:?}");
        }
    }

    #[test]
    fn a_host_of_another_authority_or_with_a_changed_certificate_is_refused() {
        let (a, _) = founder();
        let b = member(&a, "b", 1);
        let (other, _) = founder();
        let stranger = member(&other, "b", 1);
        assert_eq!(b.open("x", &stranger.sign("x", b"")), Err(NotTrusted::Certificate));
        // The own certificate with the name of another host.
        let signed = String::from_utf8(b.sign("x", b"").to_vec()).unwrap();
        let (payload, rest) = signed.split_once('.').unwrap();
        let payload = String::from_utf8(URL_SAFE_NO_PAD.decode(payload).unwrap()).unwrap();
        let forged = payload.replace(r#""host":"b""#, r#""host":"a""#);
        let forged = format!("{}.{rest}", URL_SAFE_NO_PAD.encode(forged));
        assert_eq!(b.open("x", &forged.into()), Err(NotTrusted::Certificate));
        // A member is no authority.
        let mut keys = new_keys().unwrap();
        let public = public_keys(&keys).unwrap();
        let (signing, connection) = (public.signing, public.connection);
        let entry = SignedInHost { host: host("d"), signing, connection, serial: 1 };
        keys.membership = Some(b.sign_in(&entry, true));
        assert!(matches!(Trust::new(TEAM, &keys, BTreeMap::new()), Err(KeyError::Invalid)));
    }

    #[test]
    fn a_withdrawn_certificate_counts_no_more_and_a_later_one_does() {
        let (a, _) = founder();
        let (first, second) = (member(&a, "b", 1), member(&a, "b", 2));
        a.open("x", &first.sign("x", b"")).unwrap();
        a.raise_least_serials(&BTreeMap::from([(host("b"), 2)]));
        assert_eq!(a.open("x", &first.sign("x", b"")), Err(NotTrusted::Withdrawn(host("b"))));
        a.open("x", &second.sign("x", b"")).unwrap();
        // A server that was put back lowers nothing.
        a.raise_least_serials(&BTreeMap::from([(host("b"), 1)]));
        assert_eq!(a.least_serial(&host("b")), 2);
    }

    #[test]
    fn keys_are_read_again_and_a_host_without_a_membership_is_refused() {
        let (a, keys) = founder();
        let again = Trust::new(TEAM, &keys, BTreeMap::new()).unwrap();
        again.open("x", &a.sign("x", b"")).unwrap();
        let alone = new_keys().unwrap();
        assert!(matches!(Trust::new(TEAM, &alone, BTreeMap::new()), Err(KeyError::NoMember)));
        assert!(keys.connection.starts_with("SU"));
        assert!(public_keys(&keys).unwrap().connection.starts_with('U'));
        assert!(!format!("{keys:?} {a:?}").contains(&keys.signing));
    }

    #[test]
    fn what_is_for_one_host_is_read_by_that_one_alone() {
        let (a, _) = founder();
        let (b, c) = (member(&a, "b", 1), member(&a, "c", 1));
        let (subject, text) = ("t.demo.mail.c.b", b"the canary sings");
        // The authority is known from the start, others once they were seen.
        let encrypted = b.encrypt(&host("a"), "x", text).unwrap();
        assert_eq!(
            a.open("x", &encrypted).unwrap(),
            Opened { by: host("b"), body: text[..].into() }
        );
        assert_eq!(b.encrypt(&host("c"), subject, text), None);
        b.open("x", &c.sign("x", b"")).unwrap();
        let encrypted = b.encrypt(&host("c"), subject, text).unwrap();
        let has_canary = |bytes: &[u8]| bytes.windows(6).any(|part| part == b"canary");
        assert!(!has_canary(&encrypted) && has_canary(&b.sign(subject, text)));
        assert_eq!(c.open(subject, &encrypted).unwrap().body, &text[..]);
        // The authority has signed the key of c, and has not the key itself.
        assert_eq!(a.open(subject, &encrypted), Err(NotTrusted::Encrypted(host("b"))));
        assert_eq!(c.open("t.demo.mail.c.a", &encrypted), Err(NotTrusted::Signature));
        // Two messages of one text differ.
        assert_ne!(b.encrypt(&host("c"), subject, text).unwrap()[..], encrypted[..]);
        // The signature of one form is none of the other one.
        let clear = String::from_utf8_lossy(&encrypted).find(ENCRYPTED).unwrap();
        let end = clear + ENCRYPTED.len();
        let as_clear = [&encrypted[..clear], &encrypted[end..]].concat();
        assert_eq!(c.open(subject, &as_clear.into()), Err(NotTrusted::Signature));
    }

    #[test]
    fn another_host_cannot_pass_off_what_one_has_encrypted_as_its_own() {
        let (a, _) = founder();
        let (b, c) = (member(&a, "b", 1), member(&a, "c", 1));
        b.open("x", &c.sign("x", b"")).unwrap();
        c.open("x", &b.sign("x", b"")).unwrap();
        let encrypted = b.encrypt(&host("a"), "x", b"text").unwrap();
        let end = encrypted.iter().position(|byte| *byte == b'\n').unwrap();
        let stolen = &encrypted[end + 1..];
        let bytes = message_bytes(Form::Encrypted, TEAM, "x", stolen);
        let again = c.signed(c.key.sign(&bytes).as_ref(), ENCRYPTED, stolen);
        assert_eq!(a.open("x", &again), Err(NotTrusted::Encrypted(host("c"))));
    }

    #[test]
    fn a_host_that_has_joined_anew_gets_what_only_its_new_key_reads() {
        let (a, _) = founder();
        let (first, second) = (member(&a, "b", 1), member(&a, "b", 2));
        a.open("x", &second.sign("x", b"")).unwrap();
        // An old value does not bring the old key back.
        a.open("x", &first.sign("x", b"")).unwrap();
        let encrypted = a.encrypt(&host("b"), "y", b"text").unwrap();
        assert_eq!(second.open("y", &encrypted).unwrap().body, &b"text"[..]);
        assert_eq!(first.open("y", &encrypted), Err(NotTrusted::Encrypted(host("a"))));
        // A host that was removed gets nothing.
        a.raise_least_serials(&BTreeMap::from([(host("b"), 3)]));
        assert_eq!(a.encrypt(&host("b"), "y", b"text"), None);
    }
}
