//! One turn over HTTP, tried again where that helps, whichever API the endpoint speaks.
//!
//! *Invariant:* an attempt either ends with the last event of its API and gives a whole reply, or leaves
//! nothing behind: the next attempt asks the same. Knows neither the environment nor who else calls; a
//! shared back-off is handed in.

use super::http::{Answer, Endpoint, HttpError};
use super::report::Report;
use super::retry::{
    AttemptFailure, Backoff, Jitter, NoSharedBackoff, RetryDecision, RetryPolicy, retry_after,
    stagger,
};
use super::sse::TooLong;
use super::stream_parser::{Assemble, Fault, StreamParser};
use super::{Delta, ModelError};
use crate::os::{Clock, SystemClock};
use crate::wire::chat::{Reply, Request};
use serde_json::Value;
use tokio::time::{Instant, sleep};

/// Bytes of an error body that are looked at.
const ERROR_BODY: usize = 64 << 10;

/// What is particular to one API. Pure.
pub(super) trait Api {
    /// Puts its answers together.
    type Assembler: Assemble;

    /// The body of a call.
    fn body(&self, request: &Request) -> Value;

    /// Something that takes in the answer to this request.
    fn assembler(&self, request: &Request) -> Self::Assembler;

    /// The last word about an attempt that gave no reply.
    fn after_miss(&self, miss: &AttemptError) -> Next;

    /// Puts what this API says differently into the words of [`Report`].
    fn translate(&self, report: Report) -> Report {
        report
    }
}

/// What an API makes of a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// As the retry policy says.
    AsJudged,
    /// The body is a different one now: ask again at once.
    AskDifferently,
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
    /// A client that waits alone.
    pub(super) fn new(api: A, endpoint: Endpoint, retry: RetryPolicy, jitter_seed: u64) -> Self {
        let jitter = Jitter::seeded(jitter_seed);
        Self { api, endpoint, retry, jitter, backoff: Box::new(NoSharedBackoff) }
    }

    /// From now on it waits together with others.
    pub(super) fn share(&mut self, backoff: Box<dyn Backoff>) {
        self.backoff = backoff;
    }

    /// What is particular to it.
    pub(super) fn api(&self) -> &A {
        &self.api
    }

    /// Where it calls.
    #[cfg(test)]
    pub(super) fn url(&self) -> &str {
        self.endpoint.url()
    }

    /// One whole reply, or why there is none.
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
            let miss = match self.attempt(request, body.clone(), sink).await {
                Ok(reply) => return Ok(reply),
                Err(miss) => miss,
            };
            if self.api.after_miss(&miss) == Next::AskDifferently {
                body = self.api.body(request).to_string().into_bytes();
                continue;
            }
            let why = self.endpoint.shown(&format!("{}: {}", self.endpoint.url(), miss.words()));
            let Some(failure) = miss.failure() else { return Err(miss.error(why)) };
            match self.retry.judge(failure, tries, start.elapsed(), self.jitter.draw()) {
                RetryDecision::Final => return Err(miss.error(why)),
                RetryDecision::Exhausted => {
                    let seconds = start.elapsed().as_secs();
                    return Err(
                        miss.error(format!("{why}; gave up after {tries} tries in {seconds} s"))
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

    /// Waits as long as the endpoint has asked anybody to.
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
            assembler.take_whole(&body, sink).map_err(|fault| self.miss(fault))?;
            return Ok(assembler.finish());
        }
        if media.starts_with("text/html") {
            return Err(AttemptError::NotTheApi);
        }
        let mut stream_parser = StreamParser::new(assembler);
        while let Some(piece) = answer.piece().await? {
            if stream_parser.push(&piece, sink).map_err(|fault| self.miss(fault))? {
                return Ok(stream_parser.finish());
            }
        }
        stream_parser.close().map_err(|fault| self.miss(fault))
    }

    fn miss(&self, fault: Fault) -> AttemptError {
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

/// Reads what an error answer says, as far as it can be read.
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

/// Why an attempt gave no reply.
#[derive(Debug)]
pub(super) enum AttemptError {
    Http(HttpError),
    Garbled(String),
    Oversized(TooLong),
    /// The answer is at its end and says nothing.
    Empty,
    /// The stream ended before its last event.
    Cut,
    /// A web page: somebody else answers at this address.
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

    /// For the retry policy; nothing where a further attempt would only repeat the same.
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
    fn a_broken_setup_and_oversize_are_not_repeated() {
        assert_eq!(AttemptError::Http(HttpError::TooLarge(1)).failure(), None);
        assert_eq!(AttemptError::Oversized(TooLong).failure(), None);
        assert_eq!(
            AttemptError::Http(HttpError::Silence(Duration::ZERO)).failure(),
            Some(AttemptFailure::Broken)
        );
    }
}
