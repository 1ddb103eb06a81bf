//! One model call over HTTP with retries, for any API.
//!
//! *Invariant:* an attempt either ends with the last event of its API and gives a complete reply, or has no
//! effect: the next attempt sends the same request. The client does not read the environment and does not know other
//! callers; a shared back-off is passed in.

use super::http::{Answer, Endpoint, HttpError};
use super::provider::{Delta, ModelError};
use super::report::Report;
use super::retry::{
    AttemptFailure, Backoff, Jitter, NoSharedBackoff, RetryDecision, RetryPolicy, retry_after,
    stagger,
};
use super::sse::TooLong;
use super::stream_parser::{Assemble, Fault, StreamParser};
use crate::os::{Clock, SystemClock};
use crate::wire::chat::{Reply, Request};
use serde_json::Value;
use tokio::time::{Instant, sleep};

/// The longest part of an error body that is read, in bytes.
const ERROR_BODY: usize = 64 << 10;

/// The parts of a call that depend on the API. Pure.
pub(super) trait Api {
    /// Assembles replies of this API.
    type Assembler: Assemble;

    /// Returns the body of a call.
    fn body(&self, request: &Request) -> Value;

    /// Returns the assembler of the reply to a request.
    fn assembler(&self, request: &Request) -> Self::Assembler;

    /// Decides about an attempt that gave no reply.
    fn on_failed_attempt(&self, error: &AttemptError) -> NextAttempt;

    /// Translates an error report of this API into the terms of the Messages API.
    fn translate(&self, report: Report) -> Report {
        report
    }
}

/// The decision of an API about a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NextAttempt {
    /// The retry policy decides.
    AsPolicy,
    /// The body changed: retry at once.
    Resend,
}

/// A client of one endpoint.
#[derive(Debug)]
pub(super) struct Client<A> {
    api: A,
    endpoint: Endpoint,
    retry: RetryPolicy,
    jitter: Jitter,
    backoff: Box<dyn Backoff>,
}

impl<A: Api> Client<A> {
    /// Creates a client with a back-off of its own.
    pub(super) fn new(api: A, endpoint: Endpoint, retry: RetryPolicy, jitter_seed: u64) -> Self {
        let jitter = Jitter::seeded(jitter_seed);
        Self { api, endpoint, retry, jitter, backoff: Box::new(NoSharedBackoff) }
    }

    /// Shares the back-off with other callers from now on.
    pub(super) fn share(&mut self, backoff: Box<dyn Backoff>) {
        self.backoff = backoff;
    }

    /// Returns the API.
    pub(super) fn api(&self) -> &A {
        &self.api
    }

    /// Returns the URL of the endpoint.
    #[cfg(test)]
    pub(super) fn url(&self) -> &str {
        self.endpoint.url()
    }

    /// Requests one complete reply.
    pub(super) async fn complete(
        &self,
        request: &Request,
        sink: &mut dyn FnMut(Delta),
    ) -> Result<Reply, ModelError> {
        let mut body = self.api.body(request).to_string().into_bytes();
        let start = Instant::now();
        let mut tries = 0;
        loop {
            self.wait_with_others(start, sink).await?;
            tries += 1;
            let error = match self.attempt(request, body.clone(), sink).await {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            if self.api.on_failed_attempt(&error) == NextAttempt::Resend {
                body = self.api.body(request).to_string().into_bytes();
                continue;
            }
            let why = self.endpoint.shown(&format!("{}: {}", self.endpoint.url(), error.words()));
            let Some(failure) = error.failure() else { return Err(error.error(why)) };
            match self.retry.judge(failure, tries, start.elapsed(), self.jitter.draw()) {
                RetryDecision::Final => return Err(error.error(why)),
                RetryDecision::Exhausted => {
                    let seconds = start.elapsed().as_secs();
                    return Err(
                        error.error(format!("{why}; gave up after {tries} tries in {seconds} s"))
                    );
                }
                RetryDecision::Retry(wait) => {
                    if matches!(failure, AttemptFailure::Status { status: 429 | 529, .. }) {
                        self.backoff.hold(wait);
                    }
                    sink(Delta::Retry { wait, why });
                    sleep(wait).await;
                }
            }
        }
    }

    /// Waits until the shared back-off is over.
    async fn wait_with_others(
        &self,
        start: Instant,
        sink: &mut dyn FnMut(Delta),
    ) -> Result<(), ModelError> {
        loop {
            let pending = self.backoff.pending();
            if pending.is_zero() {
                return Ok(());
            }
            let wait = pending + stagger(pending, self.jitter.draw());
            let why = "the endpoint asked another member of the team to wait".to_owned();
            if start.elapsed() + wait > self.retry.within {
                return Err(ModelError::Unavailable(why));
            }
            sink(Delta::Retry { wait, why });
            sleep(wait).await;
        }
    }

    async fn attempt(
        &self,
        request: &Request,
        body: Vec<u8>,
        sink: &mut dyn FnMut(Delta),
    ) -> Result<Reply, AttemptError> {
        let mut answer = self.endpoint.post(body).await?;
        if !(200..300).contains(&answer.status()) {
            return Err(AttemptError::Reported(self.api.translate(report(answer).await)));
        }
        let mut assembler = self.api.assembler(request);
        let media = answer.header("content-type").unwrap_or_default().to_lowercase();
        if media.starts_with("application/json") {
            let body = answer.rest().await?;
            assembler.take_whole(&body, sink).map_err(|fault| self.attempt_error(fault))?;
            return Ok(assembler.finish());
        }
        if media.starts_with("text/html") {
            return Err(AttemptError::NotTheApi);
        }
        let mut stream_parser = StreamParser::new(assembler);
        while let Some(piece) = answer.piece().await? {
            if stream_parser.push(&piece, sink).map_err(|fault| self.attempt_error(fault))? {
                return Ok(stream_parser.finish());
            }
        }
        stream_parser.close().map_err(|fault| self.attempt_error(fault))
    }

    fn attempt_error(&self, fault: Fault) -> AttemptError {
        match fault {
            Fault::Garbled(what) => AttemptError::Garbled(what),
            Fault::Empty => AttemptError::Empty,
            Fault::Cut => AttemptError::Cut,
            Fault::Oversized(cause) => AttemptError::Oversized(cause),
            Fault::Error(event) => {
                AttemptError::Reported(self.api.translate(Report::from_event(&event)))
            }
        }
    }
}

/// Reads the report of an error response, as far as it is readable.
async fn report(mut answer: Answer<'_>) -> Report {
    let mut body = Vec::new();
    while let (true, Ok(Some(piece))) = (body.len() < ERROR_BODY, answer.piece().await) {
        body.extend(piece);
    }
    let mut report = Report::from_body(answer.status(), &body);
    if let Some(target) = answer.header("location") {
        report.message =
            format!("it redirects to {target}, which is not followed: is the base url right?");
    }
    let given_id = || answer.header("request-id").or_else(|| answer.header("x-request-id"));
    report.request_id = report.request_id.or_else(|| given_id().map(str::to_owned));
    report.should_retry = answer.header("x-should-retry").and_then(|word| word.parse().ok());
    let now = SystemClock.now();
    report.retry_after =
        retry_after(answer.header("retry-after-ms"), answer.header("retry-after"), now);
    report
}

/// The reason that an attempt gave no reply.
#[derive(Debug)]
pub(super) enum AttemptError {
    Http(HttpError),
    Garbled(String),
    Oversized(TooLong),
    /// The response ended without content.
    Empty,
    /// The stream ended before its last event.
    Cut,
    /// The response is a web page: another server answers at this address.
    NotTheApi,
    Reported(Report),
}

impl AttemptError {
    fn words(&self) -> String {
        match self {
            Self::Http(cause) => cause.to_string(),
            Self::Garbled(what) => format!("the answer breaks the format: {what}"),
            Self::Oversized(cause) => cause.to_string(),
            Self::Empty => "the answer is empty".into(),
            Self::Cut => "the stream ended before the message did".into(),
            Self::NotTheApi => {
                "a web page answers there, not the api: is the base url right?".into()
            }
            Self::Reported(report) => report.words(),
        }
    }

    /// Returns the failure for the retry policy, or `None` if a retry would repeat it.
    fn failure(&self) -> Option<AttemptFailure> {
        match self {
            Self::Http(HttpError::Setup(_) | HttpError::TooLarge(_))
            | Self::Oversized(_)
            | Self::NotTheApi => None,
            Self::Http(_) | Self::Garbled(_) | Self::Empty | Self::Cut => {
                Some(AttemptFailure::Broken)
            }
            Self::Reported(report) => Some(report.failure()),
        }
    }

    fn error(&self, shown: String) -> ModelError {
        match self {
            Self::Reported(report) => report.error(shown),
            Self::NotTheApi => ModelError::Rejected(shown),
            Self::Http(_) | Self::Garbled(_) | Self::Oversized(_) | Self::Empty | Self::Cut => {
                ModelError::Unavailable(shown)
            }
        }
    }
}

impl From<HttpError> for AttemptError {
    fn from(cause: HttpError) -> Self {
        Self::Http(cause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_setup_error_and_an_oversized_response_are_not_retried() {
        assert_eq!(AttemptError::Http(HttpError::TooLarge(1)).failure(), None);
        assert_eq!(AttemptError::Oversized(TooLong).failure(), None);
        assert_eq!(
            AttemptError::Http(HttpError::Silence(Duration::ZERO)).failure(),
            Some(AttemptFailure::Broken)
        );
    }
}
