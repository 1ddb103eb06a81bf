//! Clients for HTTP: TLS by ring, no redirects, no proxy on the way to this machine.
//!
//! *Invariant:* a header with a secret is sent to the given host only.

use reqwest::{Client, ClientBuilder, Url};
use std::error::Error;
use std::net::IpAddr;

/// Returns a builder of a client for the host of `url`.
pub(crate) fn builder(url: &Url) -> ClientBuilder {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // The installation fails only if another thread has installed a provider, which serves as well.
        drop(rustls::crypto::ring::default_provider().install_default());
    }
    let mut builder = Client::builder()
        .user_agent(concat!("agent-team/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .referer(false);
    if is_loopback(url) {
        builder = builder.no_proxy();
    }
    if url.scheme() == "http" {
        // A loopback endpoint needs no certificates, and the machine may have none.
        builder = builder.tls_certs_only([]);
    }
    builder
}

/// Whether an address is one of this machine.
pub(crate) fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// Joins an error and its causes: the outermost error alone says only "error sending request".
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    causes(error).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Returns an error, its cause, and so on.
pub(crate) fn causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&cause| cause.source())
}
