//! Answers as they go over the wire: a text, or a stream of events.

use super::request_auth::Refusal;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::header::{self, HeaderValue};
use hyper::{Response, StatusCode};
use serde::Serialize;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// What an answer says.
pub(super) enum Reply {
    /// All of it at once.
    Whole(Option<Bytes>),
    /// Events as they come, until one side ends.
    Stream(mpsc::Receiver<Bytes>),
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Stream(told) => {
                told.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => {
                let length = bytes.as_ref().map_or(0, Bytes::len);
                SizeHint::with_exact(u64::try_from(length).unwrap_or(u64::MAX))
            }
            Self::Stream(_) => SizeHint::default(),
        }
    }
}

/// A text with the headers that every answer has.
pub(super) fn text(status: StatusCode, kind: &'static str, text: String) -> Response<Reply> {
    answer(status, kind, Reply::Whole(Some(text.into())))
}

/// A JSON value.
pub(super) fn json(status: StatusCode, value: &Value) -> Response<Reply> {
    text(status, "application/json", value.to_string())
}

/// Why it was refused.
pub(super) fn refused(refusal: &Refusal) -> Response<Reply> {
    let status = match refusal {
        Refusal::ForeignHost | Refusal::ForeignOrigin | Refusal::WrongToken | Refusal::ReadOnly => {
            StatusCode::FORBIDDEN
        }
        Refusal::Unknown => StatusCode::NOT_FOUND,
        Refusal::WrongMethod => StatusCode::METHOD_NOT_ALLOWED,
        Refusal::BadOrder(_) => StatusCode::BAD_REQUEST,
    };
    json(status, &json!({ "error": refusal.to_string() }))
}

/// Events as they come.
pub(super) fn stream(told: mpsc::Receiver<Bytes>) -> Response<Reply> {
    answer(StatusCode::OK, "text/event-stream", Reply::Stream(told))
}

/// One event with a JSON value.
pub(super) fn events(value: &impl Serialize) -> Bytes {
    // JSON has no raw line ends, which alone could break out of an event.
    let value = serde_json::to_string(value).unwrap_or_default();
    format!("data: {value}\n\n").into()
}

fn answer(status: StatusCode, kind: &'static str, reply: Reply) -> Response<Reply> {
    let mut response = Response::new(reply);
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
