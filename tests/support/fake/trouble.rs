//! Faults of a network and of an endpoint that end immediately. Lasting faults, such as a stalled answer, are
//! programmed by the tests themselves.

use super::{Api, Reply};

/// The faults of an answer.
pub(crate) const FAULTS: [fn(Reply) -> Reply; 14] = [
    |whole| cut(whole, 0),
    |_| Reply::error(429, "rate_limit_error", "slow down").header("retry-after-ms", "5"),
    |whole| whole.cut_after(1),
    |whole| cut(whole, 4).until_close(),
    |_| Reply::error(529, "overloaded_error", "busy").header("retry-after-ms", "1"),
    |whole| whole.error_event("overloaded_error"),
    |_| Reply::error(500, "api_error", "oops").header("retry-after", "0"),
    |whole| cut(whole, 9),
    |_| Reply::raw(503, "text/html", b"<h1>gone for lunch</h1>").header("retry-after-ms", "1"),
    |whole| cut(whole, 11),
    |whole| whole.error_event("api_error"),
    |whole| cut(whole, 13).until_close(),
    |_| Reply::raw(200, "text/event-stream", b"data: {broken\n\n"),
    |whole| cut(whole, 14),
];

/// Cuts an answer off after this many sixteenths of its bytes.
fn cut(whole: Reply, sixteenths: usize) -> Reply {
    let length = whole.stream_bytes(Api::Messages, "fake").len();
    whole.cut_after(length * sixteenths / 16)
}
