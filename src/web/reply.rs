//! HTTP responses: the page, a text, or a stream of server-sent events.

use super::request_auth::Refusal;
use futures_util::stream::poll_fn;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::header::{self, HeaderValue};
use hyper::{Response, StatusCode};
use serde::Serialize;
use serde_json::{Value, json};
use std::convert::Infallible;
use tokio::sync::mpsc;

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPT: [&str; 6] = [
    include_str!("page/base.js"),
    include_str!("page/flow.js"),
    include_str!("page/chart.js"),
    include_str!("page/panes.js"),
    include_str!("page/lessons.js"),
    include_str!("page/main.js"),
];

pub(super) type ResponseBody = UnsyncBoxBody<Bytes, Infallible>;

/// Returns the page: one document that contains its style and its script. Each response has a new nonce, so that
/// only this style and this script run, regardless of the content of messages.
pub(super) fn page(has_control: bool) -> Response<ResponseBody> {
    let nonce = uuid::Uuid::new_v4().simple().to_string();
    let access = if has_control { "control" } else { "look" };
    // Style and script are inserted last, so that no placeholder is replaced inside them.
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

/// Returns a text with the headers that every response has.
pub(super) fn text(status: StatusCode, kind: &'static str, text: String) -> Response<ResponseBody> {
    response(status, kind, Full::from(text).boxed_unsync())
}

pub(super) fn json(status: StatusCode, value: &Value) -> Response<ResponseBody> {
    text(status, "application/json", value.to_string())
}

/// Returns the reason of a refusal, as JSON.
pub(super) fn refused(refusal: &Refusal) -> Response<ResponseBody> {
    let status = match refusal {
        Refusal::Access(_) | Refusal::ReadOnly => StatusCode::FORBIDDEN,
        Refusal::Unknown => StatusCode::NOT_FOUND,
        Refusal::WrongMethod => StatusCode::METHOD_NOT_ALLOWED,
        Refusal::BadOrder(_) => StatusCode::BAD_REQUEST,
    };
    json(status, &json!({ "error": refusal.to_string() }))
}

/// Streams events as they arrive, until either side ends.
pub(super) fn stream(mut events: mpsc::Receiver<Bytes>) -> Response<ResponseBody> {
    let next = poll_fn(move |context| {
        events.poll_recv(context).map(|event| event.map(|event| Ok(Frame::data(event))))
    });
    response(StatusCode::OK, "text/event-stream", StreamBody::new(next).boxed_unsync())
}

pub(super) fn event(value: &impl Serialize) -> Bytes {
    // Only a raw line end could end the event early, and JSON has none.
    let value = serde_json::to_string(value).unwrap_or_default();
    format!("data: {value}\n\n").into()
}

fn response(status: StatusCode, kind: &'static str, body: ResponseBody) -> Response<ResponseBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, kind),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'"),
        (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
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
}
