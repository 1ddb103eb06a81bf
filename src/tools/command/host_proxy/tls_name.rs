//! The name of the host in the greeting of a TLS client.

use super::request::Refusal;
use rustls::server::Acceptor;

/// The maximum size of a greeting.
const GREETING_BYTES: usize = 64 * 1024;

/// A greeting of TLS, as far as it has come.
#[derive(Default)]
pub(super) struct TlsGreeting {
    pub(super) bytes: Vec<u8>,
    acceptor: Acceptor,
    is_whole: bool,
    /// The name in it.
    name: Option<String>,
}

impl TlsGreeting {
    /// Adds bytes. Fails if they are no greeting.
    pub(super) fn add(&mut self, mut bytes: &[u8]) -> Result<(), Refusal> {
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() > GREETING_BYTES {
            return Err(Refusal::malformed("its greeting is too long"));
        }
        while !bytes.is_empty() && !self.is_whole {
            let read = self.acceptor.read_tls(&mut bytes).map_err(Refusal::malformed)?;
            match self.acceptor.accept() {
                Ok(Some(accepted)) => {
                    self.name = accepted.client_hello().server_name().map(ToOwned::to_owned);
                    self.is_whole = true;
                }
                Ok(None) if read == 0 => return Err(Refusal::malformed("its greeting is not one")),
                Ok(None) => {}
                Err((why, _)) => return Err(Refusal::malformed(why)),
            }
        }
        Ok(())
    }

    pub(super) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Whether the greeting names this host.
    pub(super) fn names(&self, host: &str) -> bool {
        let host = host.strip_suffix('.').unwrap_or(host);
        self.name.as_ref().is_some_and(|name| name.eq_ignore_ascii_case(host))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::ServerName;
    use rustls::{ClientConfig, ClientConnection, RootCertStore};
    use std::sync::Arc;

    /// Returns the greeting that a real client sends to a host.
    pub(in super::super) fn greeting(host: &str) -> Vec<u8> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config =
            config.unwrap().with_root_certificates(RootCertStore::empty()).with_no_client_auth();
        let name = ServerName::try_from(host.to_owned()).unwrap();
        let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn the_name_of_a_greeting_is_found_in_whatever_parts_it_comes() {
        let bytes = greeting("packages.example.com");
        for size in [1, 7, bytes.len()] {
            let mut found = TlsGreeting::default();
            for part in bytes.chunks(size) {
                assert!(!found.is_whole());
                found.add(part).unwrap();
            }
            assert!(
                found.is_whole()
                    && found.names("Packages.Example.COM.")
                    && !found.names("evil.example")
            );
            assert_eq!(found.bytes, bytes);
        }
        let mut unnamed = TlsGreeting::default();
        unnamed.add(&greeting("192.0.2.1")).unwrap();
        assert!(unnamed.is_whole() && !unnamed.names("192.0.2.1"), "an address is no name");
    }

    #[test]
    fn other_protocols_are_no_greeting() {
        for bytes in [&b"SSH-2.0-x\r\n"[..], b"GET / HTTP/1.1\r\n\r\n", b"\x00\x00\x00\x00\x00\x00"]
        {
            assert!(TlsGreeting::default().add(bytes).is_err(), "{bytes:?}");
        }
    }
}
