//! TLS to an own server: it has a certificate that it has made itself, and the other hosts know it by its fingerprint, the *pin*.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::digest::{SHA256, digest};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    WebPkiSupportedAlgorithms, ring as provider, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error as TlsError, SignatureScheme,
};
use std::sync::Arc;

/// The certificate of a server, and its secret key, as PEM.
pub(crate) struct ServerCertificate {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl ServerCertificate {
    /// Makes a certificate.
    pub(crate) fn new() -> Result<Self, rcgen::Error> {
        let key = rcgen::KeyPair::generate()?;
        let made = rcgen::CertificateParams::new(vec!["team".to_owned()])?.self_signed(&key)?;
        Ok(Self {
            certificate: pem("CERTIFICATE", made.der()),
            key: pem("PRIVATE KEY", &key.serialize_der()),
        })
    }
}

fn pem(kind: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<_> = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    format!("-----BEGIN {kind}-----\n{}\n-----END {kind}-----\n", lines.join("\n"))
}

/// Returns the pin of a certificate in PEM; `None` if it is none.
pub(crate) fn pin_of(pem: &str) -> Option<String> {
    let body = pem.split("-----").nth(2)?;
    let text: String = body.chars().filter(|letter| !letter.is_whitespace()).collect();
    Some(pin(&STANDARD.decode(text).ok()?))
}

fn pin(certificate: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA256, certificate))
}

/// Returns the settings of a client that talks only to the server with this pin.
pub(crate) fn pinned(pin: &str) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(provider::default_provider());
    let algorithms = provider.signature_verification_algorithms;
    let verifier = Arc::new(PinnedServer { pin: pin.into(), algorithms });
    let config =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(config.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())
}

/// The server with a pin. The handshake proves that it has the key of its certificate.
#[derive(Debug)]
struct PinnedServer {
    pin: String,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for PinnedServer {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        if pin(certificate) == self.pin {
            Ok(ServerCertVerified::assertion())
        } else {
            let why = CertificateError::ApplicationVerificationFailure;
            Err(TlsError::InvalidCertificate(why))
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_has_a_pin_and_another_one_has_another() {
        let [first, second] = [(); 2].map(|()| ServerCertificate::new().unwrap());
        let pin = pin_of(&first.certificate).unwrap();
        assert_eq!(pin_of(&first.certificate).as_ref(), Some(&pin));
        assert_ne!(pin_of(&second.certificate), Some(pin.clone()));
        assert!(first.key.starts_with("-----BEGIN PRIVATE KEY-----\n"));
        assert_eq!(pin_of("no certificate"), None);
        pinned(&pin).unwrap();
    }
}
