//! Every host signs its messages by its own key, and one host of the team, its *authority*, signs the keys.
//!
//! The permissions of a server do not keep a host from writing in the name of another one: the server itself publishes
//! answers to any subject that a question names. So the relays trust signatures alone. Each message begins with a line of the
//! certificate of its host and the signature, over the subject and the rest: it proves its sender by itself, also after the
//! server has forgotten everything.

mod certificate;
mod keys;

pub use certificate::{Certificate, NotTrusted};
pub use keys::{KeyError, PublicKeys, new_keys, public_keys};

use agent_team::store::relay::{HostKeys, Membership, SignedInHost};
use agent_team::wire::carried::HostName;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use certificate::{message_bytes, verify};
use keys::signing_key;
use ring::signature::{Ed25519KeyPair, KeyPair};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The most certificates of other hosts that are remembered as verified.
const MOST_VERIFIED: usize = 4096;

/// The most bytes of the line in front of a message.
const MOST_HEAD: usize = 1024;

/// The keys of this host, and what it trusts.
pub struct Trust {
    team: String,
    key: Ed25519KeyPair,
    own_serial: u64,
    membership: Membership,
    authority_key: Vec<u8>,
    state: Mutex<TrustState>,
}

#[derive(Default)]
struct TrustState {
    least_serials: BTreeMap<HostName, u64>,
    /// The certificates that were verified, by their texts.
    verified: BTreeMap<String, Arc<Certificate>>,
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
        let authority_key =
            URL_SAFE_NO_PAD.decode(&membership.authority_key).map_err(|_| KeyError::Invalid)?;
        let own = Certificate::parse(team, &membership.certificate, &authority_key);
        let own = own.map_err(|_| KeyError::Invalid)?;
        let own_serial = own.serial;
        if least_serials.get(&own.host).is_some_and(|least| own_serial < *least) {
            return Err(KeyError::Withdrawn);
        }
        let state = Mutex::new(TrustState { least_serials, verified: BTreeMap::new() });
        Ok(Self { team: team.into(), key, own_serial, membership, authority_key, state })
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

    /// Signs a message. `context` says what it is, such as its subject: as anything else it is not accepted.
    pub fn seal(&self, context: &str, body: &[u8]) -> Bytes {
        let signature = self.key.sign(&message_bytes(&self.team, context, body));
        let mut sealed = self.membership.certificate.clone().into_bytes();
        sealed.push(b'.');
        sealed.extend(URL_SAFE_NO_PAD.encode(signature).into_bytes());
        sealed.push(b'\n');
        sealed.extend(body);
        sealed.into()
    }

    /// Verifies a message.
    ///
    /// # Errors
    /// It is not signed by a host that the authority has signed in, or not as what `context` says.
    pub fn open(&self, context: &str, sealed: &Bytes) -> Result<Opened, NotTrusted> {
        let end = sealed.iter().take(MOST_HEAD).position(|byte| *byte == b'\n');
        let head = end.and_then(|end| std::str::from_utf8(sealed.get(..end)?).ok());
        let parts = head.and_then(|head| head.rsplit_once('.'));
        let (Some(end), Some((certificate, signature))) = (end, parts) else {
            return Err(NotTrusted::Unsigned);
        };
        let certificate = self.certificate(certificate)?;
        let body = sealed.slice(end + 1..);
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| NotTrusted::Signature)?;
        let key = URL_SAFE_NO_PAD.decode(&certificate.key).map_err(|_| NotTrusted::Certificate)?;
        if !verify(&key, &message_bytes(&self.team, context, &body), &signature) {
            return Err(NotTrusted::Signature);
        }
        Ok(Opened { by: certificate.host.clone(), body })
    }

    /// Returns a certificate that was verified and not withdrawn.
    fn certificate(&self, text: &str) -> Result<Arc<Certificate>, NotTrusted> {
        let known = self.lock().verified.get(text).cloned();
        let certificate = match known {
            Some(known) => known,
            None => {
                let parsed = Certificate::parse(&self.team, text, &self.authority_key)?;
                let parsed = Arc::new(parsed);
                let mut state = self.lock();
                if state.verified.len() >= MOST_VERIFIED {
                    state.verified.clear();
                }
                state.verified.insert(text.to_owned(), Arc::clone(&parsed));
                parsed
            }
        };
        if certificate.serial < self.least_serial(&certificate.host) {
            return Err(NotTrusted::Withdrawn(certificate.host.clone()));
        }
        Ok(certificate)
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
        let sealed = b.seal("t.demo.mail.c.b", b"a frame");
        let opened = c.open("t.demo.mail.c.b", &sealed).unwrap();
        assert_eq!((opened.by, &opened.body[..]), (host("b"), &b"a frame"[..]));
        assert_eq!(a.open("t.demo.mail.c.b", &sealed).unwrap().by, host("b"));
        // At another place, it is nothing.
        assert_eq!(c.open("t.demo.mail.c.a", &sealed), Err(NotTrusted::Signature));
        let mut changed = sealed.to_vec();
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
        assert_eq!(b.open("x", &stranger.seal("x", b"")), Err(NotTrusted::Certificate));
        // The own certificate with the name of another host.
        let sealed = String::from_utf8(b.seal("x", b"").to_vec()).unwrap();
        let (payload, rest) = sealed.split_once('.').unwrap();
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
        a.open("x", &first.seal("x", b"")).unwrap();
        a.raise_least_serials(&BTreeMap::from([(host("b"), 2)]));
        assert_eq!(a.open("x", &first.seal("x", b"")), Err(NotTrusted::Withdrawn(host("b"))));
        a.open("x", &second.seal("x", b"")).unwrap();
        // A server that was put back lowers nothing.
        a.raise_least_serials(&BTreeMap::from([(host("b"), 1)]));
        assert_eq!(a.least_serial(&host("b")), 2);
    }

    #[test]
    fn keys_are_read_again_and_a_host_without_a_membership_is_refused() {
        let (a, keys) = founder();
        let again = Trust::new(TEAM, &keys, BTreeMap::new()).unwrap();
        again.open("x", &a.seal("x", b"")).unwrap();
        let alone = new_keys().unwrap();
        assert!(matches!(Trust::new(TEAM, &alone, BTreeMap::new()), Err(KeyError::NoMember)));
        assert!(keys.connection.starts_with("SU"));
        assert!(public_keys(&keys).unwrap().connection.starts_with('U'));
        assert!(!format!("{keys:?} {a:?}").contains(&keys.signing));
    }
}
