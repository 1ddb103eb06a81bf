//! The client of a model behind an HTTP API. One call makes one or more attempts.
//!
//! *Invariant:* an attempt either ends with the last event of its API and gives a complete reply, or has no
//! effect: the next attempt sends the same request. The client does not know other callers; a shared back-off is
//! passed in.
//!
//! If a server of chat completions answers a streamed request with an empty response (some do when tools are
//! offered), the client retries once without streaming, and never streams from that server again. If an endpoint of the
//! Responses API refuses reasoning, the client retries once without it. If the Gemini API refuses a signature of the
//! conversation, as after a change of the key, the client retries once without the signatures of the messages so far; if it
//! refuses the wish for thinking, without that from then on.

use super::anthropic::reply::Assembler as MessageAssembler;
use super::anthropic::request::body as message_body;
use super::attempt_error::{AttemptError, ErrorReport};
use super::config::{Api, ClientConfig};
use super::gemini::model::path as model_path;
use super::gemini::refusals::Refusals;
use super::gemini::reply::Assembler as GeminiAssembler;
use super::gemini::request::body as gemini_body;
use super::http::{Answer, ConfigError, Endpoint};
use super::model_list::ask;
use super::openai::api_error::{hint_at_chat, translate};
use super::openai::chat::reply::Assembler as CompletionAssembler;
use super::openai::chat::request::body as completion_body;
use super::openai::responses::reasoning::ReasoningUse;
use super::openai::responses::reply::Assembler as ResponseAssembler;
use super::openai::responses::request::body as response_body;
use super::provider::{Delta, ModelError, Provider, Sink, TurnFuture};
use super::registry::{Access, ConnectError, Connected, Connection, ListFuture, ProviderSpec};
use super::retry::{Backoff, Jitter, RetryPolicy, retry_after, stagger, wait_in_words};
use super::stream_parser::{Assemble, StreamParser};
use crate::os::{Clock, SystemClock};
use crate::wire::chat::{Reply, Request};
use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// The size at which the client stops reading an error body, in bytes.
const ERROR_BODY: usize = 64 << 10;

/// A client of one endpoint for one model.
#[derive(Debug)]
pub struct Client {
    config: ClientConfig,
    endpoint: Endpoint,
    jitter: Jitter,
    backoff: Option<Box<dyn Backoff>>,
    is_streamed: Cell<bool>,
    reasoning: ReasoningUse,
    refusals: Refusals,
    warning: Option<&'static str>,
}

impl Client {
    /// Creates a client, which connects at its first call. Fails if the base URL or a header cannot be used.
    pub fn new(config: ClientConfig) -> Result<Self, ConfigError> {
        let path = match config.api {
            Api::Messages => "/messages".to_owned(),
            Api::ChatCompletions => "/chat/completions".to_owned(),
            Api::Responses => "/responses".to_owned(),
            Api::Gemini => {
                format!("{}:streamGenerateContent?alt=sse", model_path(&config.model)?)
            }
        };
        let (endpoint, warning) = config.endpoint(&path)?;
        let (jitter, is_streamed) = (Jitter::seeded(config.jitter_seed), Cell::new(true));
        let (reasoning, refusals) = (ReasoningUse::default(), Refusals::default());
        Ok(Self {
            config,
            endpoint,
            jitter,
            backoff: None,
            is_streamed,
            reasoning,
            refusals,
            warning,
        })
    }

    /// Shares a back-off with other callers.
    #[must_use]
    pub fn with_backoff(self, backoff: Box<dyn Backoff>) -> Self {
        Self { backoff: Some(backoff), ..self }
    }

    async fn complete(&self, request: &Request, sink: Sink<'_>) -> Result<Reply, ModelError> {
        let start = Instant::now();
        let mut tries = 0;
        loop {
            self.wait_with_others(start, sink).await?;
            tries += 1;
            let mut error = match self.attempt(request, sink).await {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            if self.changes_request(&mut error, request) {
                continue;
            }
            let why = self.why(&error);
            if !error.is_retryable() {
                return Err(error.model_error(why));
            }
            let (elapsed, draw) = (start.elapsed(), self.jitter.draw());
            let Some(wait) = self.config.retry.wait(&error, tries, elapsed, draw) else {
                let end = self.config.retry.end_in_words(&error, tries, elapsed, SystemClock.now());
                return Err(error.model_error(format!("{why}; {end}")));
            };
            if let (Some(backoff), AttemptError::Reported(report)) = (&self.backoff, &error)
                && (report.status == 429 || report.is_overloaded())
            {
                backoff.hold(wait);
            }
            let left = self.config.retry.left(&error, tries, elapsed, wait);
            sink(Delta::Retry { wait, left, why: self.why(&error.without_id()) });
            sleep(wait).await;
        }
    }

    /// Handles an error in the way of the API. Returns whether the request is changed and sent again at once.
    fn changes_request(&self, error: &mut AttemptError, request: &Request) -> bool {
        match self.config.api {
            Api::Messages => false,
            Api::ChatCompletions => {
                let is_changed = *error == AttemptError::Empty && self.is_streamed.replace(false);
                translate(error);
                is_changed
            }
            Api::Responses => {
                let is_changed = self.reasoning.learn(error, request);
                translate(error);
                hint_at_chat(error);
                is_changed
            }
            Api::Gemini => self.refusals.learn(error, request),
        }
    }

    /// Returns the error with the endpoint, as a text for the user.
    fn why(&self, error: &AttemptError) -> String {
        let (url, origin) = (self.endpoint.url(), self.endpoint.origin());
        self.endpoint.shown(&if let AttemptError::NoAnswer(limit) = error {
            no_first_byte(&origin, *limit)
        } else if *error == AttemptError::Refused {
            format!("{error} by {origin}")
        } else {
            format!("{url}: {error}")
        })
    }

    /// Sends the request. Notifies the caller if the endpoint does not answer for long.
    async fn post(&self, body: Vec<u8>, sink: Sink<'_>) -> Result<Answer<'_>, AttemptError> {
        let limits = self.endpoint.limits();
        let mut answer = pin!(self.endpoint.post(body));
        if let Ok(answer) = timeout(limits.first_byte_notice, &mut answer).await {
            return answer;
        }
        let why = no_first_byte(&self.endpoint.origin(), limits.first_byte_notice);
        let left = limits.first_byte.saturating_sub(limits.first_byte_notice);
        sink(Delta::Silent { left, why });
        answer.await
    }

    /// Waits until the shared back-off is over.
    async fn wait_with_others(&self, start: Instant, sink: Sink<'_>) -> Result<(), ModelError> {
        loop {
            let pending = self.backoff.as_ref().map_or(Duration::ZERO, |it| it.pending());
            if pending.is_zero() {
                return Ok(());
            }
            let wait = pending + stagger(pending, self.jitter.draw());
            let why = "the endpoint asked another member of the team to wait".to_owned();
            if start.elapsed() + wait > self.config.retry.within {
                let wait = wait_in_words(wait, SystemClock.now());
                return Err(ModelError::Unavailable(format!("{why} {wait}")));
            }
            sink(Delta::Retry { wait, left: wait, why });
            sleep(wait).await;
        }
    }

    async fn attempt(&self, request: &Request, sink: Sink<'_>) -> Result<Reply, AttemptError> {
        let ClientConfig { api, model, .. } = &self.config;
        let body = match api {
            Api::Messages => {
                let mut body = message_body(request, model);
                let temperature = self.config.temperature_of(request);
                if let (Some(temperature), Some(fields)) = (temperature, body.as_object_mut()) {
                    fields.insert("temperature".into(), temperature.into());
                }
                body
            }
            Api::ChatCompletions => {
                completion_body(request, model, self.endpoint.host(), self.is_streamed.get())
            }
            Api::Responses => {
                let cache_key = self.config.cache_key.as_deref();
                response_body(request, model, cache_key, &self.reasoning)
            }
            Api::Gemini => gemini_body(request, model, &self.refusals),
        };
        let mut answer = self.post(body.to_string().into_bytes(), sink).await?;
        if !(200..300).contains(&answer.status()) {
            return Err(AttemptError::Reported(report(answer).await));
        }
        let mut assembler: Box<dyn Assemble> = match api {
            Api::Messages => Box::new(MessageAssembler::new(request, model)),
            Api::ChatCompletions => Box::new(CompletionAssembler::new(request, model)),
            Api::Responses => Box::new(ResponseAssembler::new(request, model)),
            Api::Gemini => Box::new(GeminiAssembler::new(request, model)),
        };
        let media = answer.header("content-type").unwrap_or_default().to_lowercase();
        if media.starts_with("application/json") {
            assembler.take_whole(&answer.rest().await?, sink)?;
            return Ok(assembler.finish());
        }
        if media.starts_with("text/html") {
            return Err(AttemptError::NotTheApi);
        }
        let mut stream_parser = StreamParser::new(assembler);
        while let Some(piece) = answer.piece().await? {
            if stream_parser.push(&piece, sink)? {
                break;
            }
        }
        stream_parser.close()
    }
}

impl Provider for Client {
    fn label(&self) -> String {
        format!("{}/{}", self.config.provider, self.config.model)
    }

    fn turn<'a>(&'a self, request: &'a Request, sink: Sink<'a>) -> TurnFuture<'a> {
        Box::pin(self.complete(request, sink))
    }
}

fn no_first_byte(origin: &str, after: Duration) -> String {
    format!("no first byte from {origin} after {} s", after.as_secs())
}

/// Reads the report of an error response from its headers and the readable part of its body.
async fn report(mut answer: Answer<'_>) -> ErrorReport {
    let mut body = Vec::new();
    while let (true, Ok(Some(piece))) = (body.len() < ERROR_BODY, answer.piece().await) {
        body.extend(piece);
    }
    let mut report = ErrorReport::from_body(answer.status(), &body);
    if let Some(target) = answer.header("location") {
        report.message =
            format!("it redirects to {target}, and redirects are not followed: check the base URL");
    }
    let given_id = || answer.header("request-id").or_else(|| answer.header("x-request-id"));
    report.request_id = report.request_id.or_else(|| given_id().map(str::to_owned));
    report.should_retry = answer.header("x-should-retry").and_then(|word| word.parse().ok());
    let now = SystemClock.now();
    let asked = retry_after(answer.header("retry-after-ms"), answer.header("retry-after"), now);
    report.retry_after = asked.or(report.retry_after);
    report
}

pub(super) fn connect(
    spec: &ProviderSpec,
    api: Api,
    connection: &Connection<'_>,
) -> Result<Connected, ConnectError> {
    let config = ClientConfig::of(spec, api, &connection.access)?;
    let backoff = (connection.backoff)(&config.base_url);
    let (model, jitter_seed) = (connection.model.into(), connection.jitter_seed);
    let cache_key = Some(connection.conversation.to_owned()).filter(|key| !key.is_empty());
    let retry = if connection.has_fallback { RetryPolicy::before_fallback() } else { config.retry };
    let config = ClientConfig { model, cache_key, retry, jitter_seed, ..config };
    let client = Client::new(config)?.with_backoff(backoff);
    Ok(Connected { warning: client.warning, provider: Rc::new(client) })
}

pub(super) fn list_models(
    spec: &ProviderSpec,
    api: Api,
    access: &Access,
    limit: Duration,
) -> ListFuture {
    // The Gemini API lists only some of its models at once if nothing is said.
    let path = if api == Api::Gemini { "/models?pageSize=1000" } else { "/models" };
    let endpoint = ClientConfig::of(spec, api, access).and_then(|it| it.endpoint(path));
    Box::pin(async move { ask(&endpoint.map_err(|why| why.to_string())?.0, limit).await })
}

#[cfg(test)]
mod tests {
    use super::super::config::Credentials;
    use super::super::secret::Secret;
    use super::*;

    #[test]
    fn no_secret_in_debug_output() {
        for (api, label) in [
            (Api::Messages, "anthropic/m"),
            (Api::ChatCompletions, "openai/m"),
            (Api::Responses, "openai/m"),
            (Api::Gemini, "gemini/m"),
        ] {
            let token = Credentials::Bearer(Secret::new("canary-token-1").unwrap());
            let mut config = ClientConfig::new(api, "https://h/x", token, "m");
            let gateway = Secret::new("canary-gateway-1").unwrap();
            config.extra_headers.push(("x-gateway".into(), gateway));
            let client = Client::new(config).unwrap();
            assert_eq!(client.label(), label);
            let debug = format!("{client:?}");
            assert!(!debug.contains("canary"), "{debug}");
        }
    }
}
