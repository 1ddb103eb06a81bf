//! The beginning of a session, as an editor asks for it, and the requests that need no session.

use crate::acp::served::PROTOCOL_VERSION;
use crate::acp::served::incoming::{ClientRequest, INTERNAL_ERROR, METHOD_NOT_FOUND, RpcError};
use crate::acp::served::params::{SessionPlace, no_such_session, session_id};
use crate::app::context::Context;
use crate::app::lead::conversation::ConversationChoice;
use crate::app::lead::lead_app::LeadApp;
use crate::app::lead::options::{Front, LeadOptions, LeadRequest};
use crate::app::lead::past;
use crate::app::sessions;
use crate::error::Failure;
use crate::settings::Flags;
use crate::store::TeamDir;
use crate::store::asynchronous::offload;
use crate::wire::WallTime;
use crate::wire::budget::Budget;
use crate::wire::permission::PermissionMode;
use serde_json::{Value, json};

/// The conversation with which a session begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum OpeningKind {
    New,
    /// This one, which is told to the editor again.
    Load(String),
    /// This one, which the editor knows.
    Resume(String),
}

/// A request to open a session.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Opening {
    /// The id of the editor's request.
    pub(super) request: Value,
    pub(super) kind: OpeningKind,
    pub(super) place: SessionPlace,
}

impl Opening {
    /// Reads a request; `None` if it opens no session. Fails if its parameters are wrong.
    pub(super) fn read(request: &ClientRequest) -> Option<Result<Self, RpcError>> {
        let id = || session_id(&request.params).map(ToOwned::to_owned);
        let kind = match request.method.as_str() {
            "session/new" => Ok(OpeningKind::New),
            "session/load" => id().map(OpeningKind::Load),
            "session/resume" => id().map(OpeningKind::Resume),
            _ => return None,
        };
        let place = SessionPlace::read(&request.params);
        Some(kind.and_then(|kind| Ok(Self { request: request.id.clone(), kind, place: place? })))
    }

    /// Returns the id of the conversation that goes on.
    pub(super) fn conversation(&self) -> Option<&str> {
        match &self.kind {
            OpeningKind::New => None,
            OpeningKind::Load(id) | OpeningKind::Resume(id) => Some(id),
        }
    }
}

/// A lead that is ready for its session.
pub(super) struct OpenedLead {
    pub(super) context: Context,
    pub(super) app: LeadApp,
}

/// Starts the lead of a session. Fails as `team lead` does, for example if a lead runs in the folder.
pub(super) async fn start(
    base: &Context,
    flags: &Flags,
    opening: &Opening,
) -> Result<OpenedLead, Failure> {
    let context = base.in_folder(&opening.place.cwd)?;
    let conversation = opening.conversation().map(ToOwned::to_owned);
    let mut request = LeadRequest {
        prompt: None,
        front: Front::Editor,
        flags: flags.clone(),
        timeout: None,
        budget: Budget::default(),
        conversation: conversation.map_or(ConversationChoice::New, ConversationChoice::Chosen),
        takeover: false,
    };
    // The disk is read, and the model's server may be asked for its models.
    let (context, options, team) = offload(move || {
        past::settle(&context, &mut request)?;
        let options = LeadOptions::resolve(&context, request)?;
        let team = context.make_team()?;
        Ok::<_, Failure>((context, options, team))
    })
    .await?;
    let (app, _entry) = Box::pin(LeadApp::start(&context, &team, options, None)).await?;
    Ok(OpenedLead { context, app })
}

/// Returns a failure as the error of an answer.
pub(super) fn failed(why: &Failure) -> RpcError {
    let parts = [why.what.as_str(), &why.why, &why.hint];
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    RpcError::new(INTERNAL_ERROR, parts.join("; "))
}

/// Returns the modes of a session, of which `current` is in force.
pub(super) fn modes(current: PermissionMode) -> Value {
    let mode = |mode: PermissionMode| json!({ "id": mode.word(), "name": name_of(mode), "description": mode.meaning() });
    let all: Vec<Value> = PermissionMode::ALL.into_iter().map(mode).collect();
    json!({ "currentModeId": current.word(), "availableModes": all })
}

fn name_of(mode: PermissionMode) -> &'static str {
    match mode {
        PermissionMode::Plan => "Plan",
        PermissionMode::Default => "Ask",
        PermissionMode::AcceptEdits => "Accept edits",
        PermissionMode::Bypass => "Bypass permissions",
    }
}

/// Answers a request that needs no open session.
pub(super) async fn answer(base: &Context, request: &ClientRequest) -> Result<Value, RpcError> {
    match request.method.as_str() {
        "initialize" => Ok(json!({
            "protocolVersion": PROTOCOL_VERSION,
            "agentInfo": { "name": "team", "title": "team", "version": env!("CARGO_PKG_VERSION") },
            "agentCapabilities": {
                "loadSession": true,
                "promptCapabilities": { "image": false, "audio": false, "embeddedContext": true },
                "mcpCapabilities": { "http": false, "sse": false },
                "sessionCapabilities": { "list": {}, "resume": {}, "close": {} },
            },
            "authMethods": [],
        })),
        // The credentials of the models are in the environment and the settings.
        "authenticate" => Ok(json!({})),
        "session/list" => list(base, &request.params).await,
        "session/prompt" | "session/set_mode" | "session/close" => {
            Err(no_such_session(session_id(&request.params)?, None))
        }
        other => {
            let other: String = other.chars().take(80).collect();
            Err(RpcError::new(METHOD_NOT_FOUND, format!("this agent does not offer {other:?}")))
        }
    }
}

/// Lists the sessions of the team in a folder: in that of the request, else in that of this process.
async fn list(base: &Context, params: &Value) -> Result<Value, RpcError> {
    let given = params.get("cwd").and_then(Value::as_str).map(ToOwned::to_owned);
    let folder = given.clone().map_or_else(|| base.cwd.clone(), Into::into);
    let context = base.in_folder(&folder).map_err(|why| failed(&why))?;
    // A folder without a team has no sessions.
    let Some(team) = context.team_to_view().ok().filter(TeamDir::has_state) else {
        return Ok(json!({ "sessions": [] }));
    };
    let cwd = given.unwrap_or_else(|| team.workspace().display().to_string());
    let found = offload(move || sessions::list_of(&context, &team)).await;
    let found = found.map_err(|why| failed(&why))?;
    let one = |it: &crate::store::conversations::Conversation| json!({ "sessionId": it.id, "cwd": cwd, "title": it.title, "updatedAt": iso(it.last_used_at) });
    Ok(json!({ "sessions": found.iter().map(one).collect::<Vec<_>>() }))
}

/// Returns a time as ISO 8601, in UTC.
fn iso(time: WallTime) -> Option<String> {
    let millis = std::time::Duration::try_from_secs_f64(time.as_secs()).ok()?.as_millis();
    let time = jiff::Timestamp::from_millisecond(i64::try_from(millis).ok()?).ok()?;
    Some(time.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, params: Value) -> ClientRequest {
        ClientRequest { id: json!(1), method: method.into(), params }
    }

    #[test]
    fn only_three_requests_open_a_session() {
        let params = || json!({ "cwd": "/w", "mcpServers": [], "sessionId": "s" });
        for (method, kind) in [
            ("session/new", OpeningKind::New),
            ("session/load", OpeningKind::Load("s".into())),
            ("session/resume", OpeningKind::Resume("s".into())),
        ] {
            let opening = Opening::read(&request(method, params())).unwrap().unwrap();
            assert_eq!(opening.kind, kind);
            assert!(Opening::read(&request(method, json!({ "sessionId": "s" }))).unwrap().is_err());
        }
        assert!(Opening::read(&request("session/load", json!({ "cwd": "/w" }))).unwrap().is_err());
        assert!(Opening::read(&request("session/prompt", params())).is_none());
    }

    #[test]
    fn a_time_is_told_in_utc() {
        assert_eq!(iso(1_763_690_000.25.into()).as_deref(), Some("2025-11-21T01:53:20.25Z"));
    }
}
