//! The page: one document that contains its style and its script.
//!
//! Each response has a new nonce, so that only this style and this script run, whatever a message contains.

use super::reply::{ResponseBody, text};
use super::request_auth::Access;
use hyper::header::{self, HeaderValue};
use hyper::{Response, StatusCode};

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPT: [&str; 5] = [
    include_str!("page/base.js"),
    include_str!("page/flow.js"),
    include_str!("page/chart.js"),
    include_str!("page/panes.js"),
    include_str!("page/main.js"),
];

/// The page for a visitor with this access.
pub(super) fn page(access: Access) -> Response<ResponseBody> {
    let nonce = uuid::Uuid::new_v4().simple().to_string();
    let access = match access {
        Access::Look => "look",
        Access::Control => "control",
    };
    // Style and script last: no placeholder is replaced inside them.
    let document = PAGE
        .replace("{{nonce}}", &nonce)
        .replace("{{access}}", access)
        .replace("{{style}}", STYLE)
        .replace("{{script}}", &SCRIPT.concat());
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; \
         connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'; require-trusted-types-for 'script'"
    );
    let mut response = text(StatusCode::OK, "text/html; charset=utf-8", document);
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_loads_nothing_from_other_hosts_and_creates_no_markup_from_text() {
        let script = SCRIPT.concat();
        for word in
            ["innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "import("]
        {
            assert!(!script.contains(word), "the script uses {word}");
        }
        for text in [PAGE, STYLE, script.as_str()] {
            let outside = text.replace("http://www.w3.org/2000/svg", "");
            for word in ["http://", "https://", "//cdn", "@import", "url("] {
                assert!(!outside.contains(word), "the page names {word}");
            }
        }
        for handler in ["onclick", "onload", "onerror", "style=\""] {
            assert!(!PAGE.contains(handler), "the page has an inline {handler}");
        }
    }

    #[test]
    fn each_response_has_a_new_nonce() {
        let policy = || {
            let response = page(Access::Look);
            response.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap().to_owned()
        };
        assert_ne!(policy(), policy());
        assert!(!policy().contains("unsafe"));
    }
}
