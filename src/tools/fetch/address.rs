//! Addresses of pages: which may be asked for, and to which machines a connection may go.
//!
//! *Invariant:* a host is named, and is public. What an address says is judged before anybody is asked; what a name
//! server says of it, before a connection is made, which then goes to that very address.

use crate::wire::host::{HostPattern, WEB_PORTS, is_address, is_public};
use hyper_util::client::proxy::matcher::Matcher;
use reqwest::Url;
use std::net::SocketAddr;
use tokio::net::lookup_host;

/// The maximum length of an address, in bytes.
const MAX_URL_BYTES: usize = 4096;

/// The maximum length of an address that is shown, in characters.
const SHOWN_CHARS: usize = 2000;

/// The ends of names that mean this machine or a local network for every resolver (RFC 6761, 6762, 8375, and the
/// metadata services of clouds).
const LOCAL_ENDS: [&str; 10] = [
    "localhost",
    "localdomain",
    "local",
    "internal",
    "intranet",
    "private",
    "corp",
    "home",
    "lan",
    "home.arpa",
];

/// The address of a page of a public host, as far as the address alone tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PageUrl {
    url: Url,
    host: HostPattern,
}

impl PageUrl {
    /// Reads an address.
    ///
    /// # Errors
    /// It is none, or none that is fetched: the reason, and what to do.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MAX_URL_BYTES {
            return Err(format!("the url is longer than {MAX_URL_BYTES} bytes"));
        }
        let url = Url::parse(text.trim()).map_err(|why| {
            format!(
                "the url is invalid ({why}); write it whole, such as https://docs.example.com/page"
            )
        })?;
        Self::judge(url)
    }

    /// Returns the address to which this one redirects.
    pub(super) fn join(&self, location: &str) -> Result<Self, String> {
        if location.len() > MAX_URL_BYTES {
            return Err(format!("the url is longer than {MAX_URL_BYTES} bytes"));
        }
        let url = self.url.join(location).map_err(|why| format!("the url is invalid: {why}"))?;
        Self::judge(url)
    }

    fn judge(mut url: Url) -> Result<Self, String> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(format!("only http and https are fetched, not {}", url.scheme()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(
                "a url with a user name or a password is not fetched; leave them out".into()
            );
        }
        let Some(name) = url.domain().map(|name| name.strip_suffix('.').unwrap_or(name)) else {
            return Err(not_public(
                url.host_str().unwrap_or_default(),
                "it is an address, not a name",
            ));
        };
        let name = name.to_owned();
        // One spelling is judged, resolved and asked: a resolver may take further dots for the same name.
        if name.split('.').any(str::is_empty) {
            return Err(format!("{name:?} is not the name of a host: a part of it is empty"));
        }
        let is_local = !name.contains('.') || LOCAL_ENDS.iter().any(|end| is_below(&name, end));
        if is_local || is_address(&name) {
            return Err(not_public(
                &name,
                "its name belongs to this machine or to a local network",
            ));
        }
        let Ok(host) = HostPattern::parse(&name) else {
            return Err(format!("{name:?} is not the name of a host; correct the url"));
        };
        let port = url.port_or_known_default().unwrap_or_default();
        if !WEB_PORTS.contains(&port) {
            let [http, https] = WEB_PORTS;
            return Err(format!("only the ports {http} and {https} are fetched, not {port}"));
        }
        let renamed = url.set_host(Some(&name));
        renamed.map_err(|why| format!("{name:?} is not the name of a host: {why}"))?;
        url.set_fragment(None);
        Ok(Self { url, host })
    }

    /// Returns an address that was not judged.
    #[cfg(test)]
    pub(super) fn unjudged(url: &str) -> Self {
        let url = Url::parse(url).unwrap();
        let host = HostPattern::parse(url.host_str().unwrap()).unwrap();
        Self { url, host }
    }

    pub(super) fn url(&self) -> &Url {
        &self.url
    }

    pub(super) fn as_str(&self) -> &str {
        self.url.as_str()
    }

    /// Returns the address as it stands outside a page. A server may have chosen it: it has no brackets, which begin the
    /// words of this program.
    pub(super) fn shown(&self) -> String {
        let mut shown = self.as_str().replace('[', "%5B");
        if let Some((end, _)) = shown.char_indices().nth(SHOWN_CHARS) {
            shown.truncate(end);
            shown.push_str(" (cut)");
        }
        shown
    }

    pub(super) fn host(&self) -> &HostPattern {
        &self.host
    }

    pub(super) fn host_name(&self) -> &str {
        self.url.host_str().unwrap_or_default()
    }

    pub(super) fn port(&self) -> u16 {
        self.url.port_or_known_default().unwrap_or_default()
    }

    /// Returns the scheme, host and port, to which the rules for programs apply.
    pub(super) fn origin(&self) -> String {
        self.url.origin().ascii_serialization()
    }

    /// Returns the path with the query.
    pub(super) fn path(&self) -> String {
        let query = self.url.query().map(|query| format!("?{query}")).unwrap_or_default();
        format!("{}{query}", self.url.path())
    }

    /// Whether a redirect from here to there is followed: the host is the same, and what was encrypted stays so.
    pub(super) fn leads_on_to(&self, next: &Self) -> bool {
        let is_safe = self.url.scheme() == next.url.scheme() || next.url.scheme() == "https";
        self.host == next.host && is_safe
    }

    /// Whether the environment names a proxy for this address. A proxy resolves the name itself.
    pub(super) fn has_proxy(&self) -> bool {
        let uri = self.as_str().parse::<hyper::Uri>();
        uri.is_ok_and(|uri| Matcher::from_env().intercept(&uri).is_some())
    }

    /// Resolves the name of the host, and returns its public addresses. Their port is 0, for that of the address.
    ///
    /// # Errors
    /// There are none.
    pub(super) async fn resolve(&self) -> Result<Vec<SocketAddr>, String> {
        let name = self.host_name();
        let found = lookup_host((name, 0)).await;
        let found: Vec<_> = found.map_err(|why| format!("{name} is not found: {why}"))?.collect();
        let public: Vec<_> = found.iter().copied().filter(|it| is_public(it.ip())).collect();
        if public.is_empty() {
            return Err(not_public(
                name,
                "it has only addresses of this machine or of a local network",
            ));
        }
        Ok(public)
    }
}

/// Whether a name is `end`, or below it.
fn is_below(name: &str, end: &str) -> bool {
    name.strip_suffix(end).is_some_and(|head| head.is_empty() || head.ends_with('.'))
}

fn not_public(host: &str, why: &str) -> String {
    format!(
        "{host} is not fetched: {why}, and only public hosts are, by their names. For a server of this machine use bash \
         (curl), if you have it"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_public_host_is_fetched_by_its_name() {
        for (text, url, host) in [
            ("https://docs.example.com", "https://docs.example.com/", "docs.example.com"),
            (
                "  HTTP://Docs.Example.COM:80/A?b=c#d ",
                "http://docs.example.com/A?b=c",
                "docs.example.com",
            ),
            ("https://docs.example.com.:443/", "https://docs.example.com/", "docs.example.com"),
            ("http://docs.example.com:443/", "http://docs.example.com:443/", "docs.example.com"),
            ("https://bücher.example/", "https://xn--bcher-kva.example/", "xn--bcher-kva.example"),
            (
                "https://localhost.example.com/",
                "https://localhost.example.com/",
                "localhost.example.com",
            ),
            (
                "https://10.0.0.1.example.com/",
                "https://10.0.0.1.example.com/",
                "10.0.0.1.example.com",
            ),
        ] {
            let page = PageUrl::parse(text).unwrap();
            assert_eq!((page.as_str(), page.host().to_string().as_str()), (url, host), "{text}");
        }
    }

    #[test]
    fn addresses_and_local_names_are_refused_in_every_spelling() {
        for text in [
            "http://127.0.0.1/",
            "http://127.0.0.1./",
            "http://127.1/",
            "http://2130706433/",
            "http://0x7f000001/",
            "http://0x7f.0.0.1/",
            "http://0177.0.0.1/",
            "http://017700000001/",
            "http://%31%32%37.0.0.1/",
            "http://１２７.０.０.１/",
            "http://①②⑦.⓪.⓪.①/",
            "http://127。0。0。1/",
            "http://[::1]/",
            "http://[0:0:0:0:0:0:0:1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://[::ffff:7f00:1]/",
            "http://[64:ff9b::7f00:1]/",
            "http://[2002:7f00:1::]/",
            "http://0/",
            "http://0.0.0.0/",
            "http://[::]/",
            "http://10.1.2.3/",
            "http://169.254.169.254/latest/meta-data/",
            "http://8.8.8.8/",
            "http://localhost/",
            "http://LOCALHOST./",
            "http://loc%61lhost/",
            "http://ｌｏｃａｌｈｏｓｔ/",
            "http://a.localhost/",
            "http://localhost.localdomain/",
            "http://printer.local/",
            "http://metadata.google.internal/",
            "http://router.home.arpa/",
            "http://intranet/",
        ] {
            let why = PageUrl::parse(text).unwrap_err();
            assert!(
                why.contains(" is not fetched: ") || why.contains("is invalid"),
                "{text}: {why}"
            );
        }
    }

    #[test]
    fn other_urls_are_refused_with_a_reason() {
        let long = format!("https://docs.example.com/{}", "a".repeat(MAX_URL_BYTES));
        for (text, why) in [
            ("docs.example.com", "write it whole"),
            ("/page", "write it whole"),
            ("", "write it whole"),
            ("https://", "is invalid"),
            ("http://[::1%25lo]/", "is invalid"),
            ("http://127.0.0.1:99999/", "is invalid"),
            ("file:///etc/passwd", "not file"),
            ("ftp://docs.example.com/", "not ftp"),
            ("javascript:alert(1)", "not javascript"),
            ("https://me@docs.example.com/", "a user name"),
            ("https://docs.example.com:secret@evil.example/", "a user name"),
            ("https://docs.example.com:8443/", "not 8443"),
            ("http://docs.example.com:22/", "not 22"),
            ("http://docs.example.com:0/", "not 0"),
            ("https://-docs.example.com/", "not the name of a host"),
            ("https://docs.example.com../", "not the name of a host"),
            ("https://docs.example.com%2e./", "not the name of a host"),
            ("https://docs.example.com。。/", "not the name of a host"),
            ("https://docs.example.com.../", "not the name of a host"),
            ("https://docs..example.com/", "not the name of a host"),
            ("https://.docs.example.com/", "not the name of a host"),
            ("http://localhost../", "not the name of a host"),
            ("http://127.0.0.1../", "not the name of a host"),
            (&long, "longer than"),
        ] {
            let refused = PageUrl::parse(text).unwrap_err();
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }

    #[test]
    fn a_redirect_is_followed_on_the_same_host_unless_it_gives_up_tls() {
        let leads = |from: &str, to: &str| {
            let from = PageUrl::parse(from).unwrap();
            from.join(to).map(|to| from.leads_on_to(&to))
        };
        for (from, to, is_followed) in [
            ("https://a.example.com/x/y", "z?q", true),
            ("http://a.example.com/", "https://a.example.com/", true),
            ("https://a.example.com/", "//A.example.com./x", true),
            ("https://a.example.com/", "http://a.example.com/", false),
            ("https://a.example.com/", "https://b.example.com/", false),
            ("https://a.example.com/", "https://www.a.example.com/", false),
        ] {
            assert_eq!(leads(from, to), Ok(is_followed), "{from} {to}");
        }
        for bad in [
            "http://127.0.0.1/",
            "file:///etc/passwd",
            "https://a.example.com:8443/",
            "//u:p@b.example/",
            "//a.example.com../",
        ] {
            assert!(leads("https://a.example.com/", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_name_with_local_addresses_alone_is_refused_before_a_connection() {
        // This name is in the table of hosts of every machine.
        let local = PageUrl::unjudged("http://localhost/");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let why = runtime.block_on(local.resolve()).unwrap_err();
        assert!(why.contains("only addresses of this machine"), "{why}");
    }
}
