//! The tools by which agents work together, and [`TeamOps`], by which they reach processes.

use super::approval_queue::ApprovalQueue;
use super::hooks::Hooks;
use super::plan::{ReviewPlan, SubmitPlan};
use super::{Call, Registry, Tool, ToolError, ToolFuture, arguments};
use crate::bus::{Bus, BusError, Outgoing, new_id};
use crate::os::{Clock, SystemClock};
use crate::protocol::rate_limiter::{RateLimiter, SendPermit};
use crate::protocol::request::{
    PendingRequest, RequestAnswer, RequestKind, RequestLedger, RequestVerdict,
};
use crate::store::{Liveness, liveness, roster, unread};
use crate::wire::AgentName;
use crate::wire::chat::ToolSpec;
use crate::wire::hook::HookEvent;
use crate::wire::inbox_block::inbox_block;
use crate::wire::message::{Body, Correlation};
use crate::wire::permission::PermissionMode;
use crate::wire::roster::Status;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// What only the lead's program can do for its model.
pub(crate) trait TeamOps {
    /// Starts a teammate, or gives an idle one a new prompt; answers when it is ready.
    fn spawn(&self, order: SpawnOrder) -> OpsFuture<'_>;

    /// Takes a teammate down the shutdown ladder; answers when it is gone.
    fn shutdown(&self, name: AgentName, reason: String) -> OpsFuture<'_>;
}

/// What a lead has and a teammate has not.
pub(crate) struct Ops {
    /// The team's processes.
    pub(crate) team: Rc<dyn TeamOps>,
    /// What waits for a decision.
    pub(crate) approval_queue: Rc<ApprovalQueue>,
}

/// The future of a [`TeamOps`] call: what to tell the model.
pub(crate) type OpsFuture<'a> = Pin<Box<dyn Future<Output = Result<String, ToolError>> + 'a>>;

/// A teammate as a model orders it.
#[derive(Debug, Clone)]
pub(crate) struct SpawnOrder {
    /// Its name.
    pub(crate) name: AgentName,
    /// What it is for.
    pub(crate) role: String,
    /// What it is to do; delivered as a message.
    pub(crate) prompt: String,
    /// The id of that message, derived from the tool call: repeating the call cannot deliver twice.
    pub(crate) message_id: String,
    /// A model other than the lead's.
    pub(crate) model: Option<String>,
    /// A permission mode stricter than the lead's.
    pub(crate) mode: Option<PermissionMode>,
}

/// What an agent's team tools share with its loop.
pub(crate) struct TeamContext {
    me: AgentName,
    incarnation: String,
    bus: Arc<Bus>,
    /// Mail taken in since the model last called `read_inbox`.
    recent: RefCell<Vec<Map<String, Value>>>,
    /// Requests to shut down.
    shutdowns: RefCell<RequestLedger>,
    rate_limiter: RefCell<RateLimiter>,
    hooks: Hooks,
}

impl TeamContext {
    /// The team_context of an agent whose model may send so many messages in a minute.
    pub(crate) fn new(
        me: AgentName,
        incarnation: String,
        bus: Arc<Bus>,
        max_sends: usize,
        hooks: Hooks,
    ) -> Self {
        let (recent, shutdowns) = (RefCell::default(), RefCell::default());
        let rate_limiter = RefCell::new(RateLimiter::new(max_sends));
        Self { me, incarnation, bus, recent, shutdowns, rate_limiter, hooks }
    }

    /// What runs when something happens.
    pub(crate) fn hooks(&self) -> &Hooks {
        &self.hooks
    }

    /// Whether the model may send so many messages now. A sender that floods the others is refused,
    /// and the lead is told of it once.
    async fn ask_to_send(&self, count: usize) -> Result<(), ToolError> {
        let leave = self.rate_limiter.borrow_mut().ask(count, SystemClock.monotonic());
        let SendPermit::Wait { wait, first } = leave else { return Ok(()) };
        if first && !self.me.is_lead() {
            let content =
                format!("{} sends too many messages (max_sends) and was slowed down", self.me);
            let (bus, id) = (Arc::clone(&self.bus), new_id(&AgentName::system()));
            off_thread(move || bus.notify_lead(Body::text(), content, id)).await?;
        }
        Err(ToolError::Reply(format!(
            "you send too many messages: nothing was sent, the next one can be sent in {} s; do \
             something else, or end your turn",
            wait.as_secs() + 1
        )))
    }

    /// Whose team_context it is.
    pub(super) fn me(&self) -> &AgentName {
        &self.me
    }

    /// Mail was taken in.
    pub(crate) fn take_note(&self, message: &Map<String, Value>) {
        self.recent.borrow_mut().push(message.clone());
    }

    /// A valid shutdown request of `by` has come.
    pub(crate) fn open_shutdown(&self, request_id: String, by: String) {
        let request = PendingRequest {
            id: request_id,
            kind: RequestKind::Shutdown,
            owner: by,
            decider: self.me.to_string(),
            incarnation: self.incarnation.clone(),
            deadline: None,
        };
        if let Err(why) = self.shutdowns.borrow_mut().open(request) {
            tracing::warn!(%why, "a shutdown request was not taken up");
        }
    }

    /// Answers the shutdown requests that are open, each at most once.
    ///
    /// # Errors
    /// An answer could not be sent.
    pub(crate) async fn answer_shutdown(
        &self,
        approve: bool,
        reason: Option<String>,
    ) -> Result<(), ToolError> {
        let open: Vec<PendingRequest> = self.shutdowns.borrow().pending().cloned().collect();
        for PendingRequest { id, owner, .. } in open {
            let answer = RequestAnswer {
                id: Some(&id),
                kind: RequestKind::Shutdown,
                from: self.me.as_str(),
                incarnation: Some(&self.incarnation),
                verdict: RequestVerdict::of(approve),
            };
            let answered = self.shutdowns.borrow_mut().answer(&answer, Instant::now());
            answered.map_err(|why| ToolError::Reply(why.to_string()))?;
            let incarnation = self.incarnation.clone();
            let correlation = Correlation { request_id: id, incarnation };
            let (bus, me) = (Arc::clone(&self.bus), self.me.clone());
            let body = Body::ShutdownResponse { approve, reason: reason.clone() };
            let send = move || bus.control(&me, &AgentName::mailbox(&owner)?, body, correlation);
            off_thread(send).await?;
        }
        Ok(())
    }
}

/// Adds the team tools of a lead or (without `ops`) of a teammate.
pub(crate) fn add_team_tools(
    registry: &mut Registry,
    team_context: &Rc<TeamContext>,
    ops: Option<&Ops>,
) {
    registry.add(SendMessage(Rc::clone(team_context)));
    registry.add(Broadcast(Rc::clone(team_context)));
    registry.add(ReadInbox(Rc::clone(team_context)));
    registry.add(ListTeammates(Rc::clone(team_context)));
    match ops {
        Some(Ops { team, approval_queue }) => {
            registry.add(SpawnTeammate(Rc::clone(team_context), Rc::clone(team)));
            registry.add(ShutdownTeammate(Rc::clone(team)));
            registry.add(ReviewPlan(Rc::clone(approval_queue)));
        }
        None => {
            registry.add(ShutdownResponse(Rc::clone(team_context)));
            registry.add(SubmitPlan);
            registry.add(Idle);
        }
    }
}

/// Runs mailbox work, which may wait for a lock or the disk, beside the event loop.
pub(super) async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, BusError> + Send + 'static,
) -> Result<T, ToolError> {
    match crate::store::asynchronous::offload(work).await {
        Err(why) if why.is_without_team() => Err(ToolError::Fatal(why.to_string())),
        // The other hints are for a person with a shell.
        Err(BusError::Name(why)) => Err(ToolError::Reply(format!("{why}; {}", why.hint()))),
        done => done.map_err(|why| ToolError::Reply(why.to_string())),
    }
}

pub(super) fn spec(
    name: &str,
    description: &str,
    properties: &Value,
    required: &[&str],
) -> ToolSpec {
    let input_schema = json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    });
    ToolSpec { name: name.into(), description: description.into(), input_schema }
}

pub(super) fn text_property(description: &str) -> Value {
    json!({ "type": "string", "description": description })
}

fn member_name(given: &str) -> Result<AgentName, ToolError> {
    AgentName::member(given).map_err(|why| ToolError::Reply(format!("{why}; {}", why.hint())))
}

struct SendMessage(Rc<TeamContext>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SendMessageInput {
    to: String,
    content: String,
    msg_type: Option<String>,
}

impl Tool for SendMessage {
    fn spec(&self) -> ToolSpec {
        spec(
            "send_message",
            "Send a message to one agent by name (a teammate, or `lead`, or `user`). It is stored \
             at once and wakes the receiver. An unknown or ended receiver is an error.",
            &json!({
                "to": text_property("who gets it"),
                "content": text_property("the text"),
                "msg_type": { "type": "string", "enum": ["message"] },
            }),
            &["to", "content"],
        )
    }

    fn call<'a>(&'a self, call: &'a Call) -> ToolFuture<'a> {
        Box::pin(async move {
            let input: SendMessageInput = arguments(call)?;
            if let Some(kind) = input.msg_type.filter(|kind| kind != "message") {
                return Err(ToolError::Reply(wrong_type(&kind)));
            }
            self.0.ask_to_send(1).await?;
            let fields = json!({ "to": input.to, "content": input.content });
            self.0.hooks.ask(HookEvent::MessageSent, fields).await?;
            let (bus, me) = (Arc::clone(&self.0.bus), self.0.me.clone());
            let id = Some(format!("{me}:{}", call.id));
            let to = input.to.clone();
            let outgoing = Outgoing { id, ..Outgoing::text(input.content) };
            off_thread(move || bus.send(&me, &input.to, outgoing)).await?;
            Ok(format!("Sent to {to}."))
        })
    }
}

fn wrong_type(kind: &str) -> String {
    let instead = match kind {
        "broadcast" => "use the broadcast tool",
        "shutdown_request" => "use shutdown_teammate (the lead's tool)",
        "shutdown_response" => "use shutdown_response",
        "plan_approval_request" => "use submit_plan (a teammate's tool)",
        "plan_approval_response" => "use review_plan (the lead's tool)",
        "permission_response" | "permission_update" | "mode_set_request" => {
            "only the user grants permissions"
        }
        "result" => "end your turn with the text: the program sends it to the lead",
        _ => "leave msg_type out",
    };
    let kind: String = kind.chars().take(64).collect();
    format!("msg_type {kind:?} cannot be sent with send_message; {instead}")
}

struct Broadcast(Rc<TeamContext>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BroadcastInput {
    content: String,
}

impl Tool for Broadcast {
    fn spec(&self) -> ToolSpec {
        spec(
            "broadcast",
            "Send the same message to everybody on the team but yourself.",
            &json!({ "content": text_property("the text") }),
            &["content"],
        )
    }

    fn call<'a>(&'a self, call: &'a Call) -> ToolFuture<'a> {
        Box::pin(async move {
            let input: BroadcastInput = arguments(call)?;
            let bus = Arc::clone(&self.0.bus);
            // The sender is among those who can be written to, and so is the person.
            let receivers = off_thread(move || bus.reachable()).await?.len().saturating_sub(2);
            self.0.ask_to_send(receivers).await?;
            let fields = json!({ "to": "all", "content": input.content });
            self.0.hooks.ask(HookEvent::MessageSent, fields).await?;
            let (bus, me) = (Arc::clone(&self.0.bus), self.0.me.clone());
            let id = format!("{me}:{}", call.id);
            let sent = off_thread(move || bus.broadcast(&me, &input.content, Some(&id))).await?;
            if sent.is_empty() {
                return Err(ToolError::Reply(
                    "nobody else is on the team; nothing was sent".into(),
                ));
            }
            let mut lines = Vec::new();
            for (name, outcome) in &sent {
                match outcome {
                    Ok(_) => lines.push(format!("- {name}: sent")),
                    Err(why) => lines.push(format!("- {name}: NOT sent: {why}")),
                }
            }
            let reached = sent.iter().filter(|(_, outcome)| outcome.is_ok()).count();
            Ok(format!("Sent to {reached} of {}:\n{}", sent.len(), lines.join("\n")))
        })
    }
}

struct ReadInbox(Rc<TeamContext>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoInput {}

impl Tool for ReadInbox {
    fn spec(&self) -> ToolSpec {
        spec(
            "read_inbox",
            "Show your mail: what is unread, and what was taken in since you last looked. Mail is \
             also shown to you by itself before every step, so waiting with this tool is useless.",
            &json!({}),
            &[],
        )
    }

    fn call<'a>(&'a self, call: &'a Call) -> ToolFuture<'a> {
        Box::pin(async move {
            let NoInput {} = arguments(call)?;
            let unread = unread::waiting(self.0.bus.dir(), &self.0.me)
                .map_err(|why| ToolError::Reply(why.to_string()))?;
            let marked = |message: &Map<String, Value>, state: &str| {
                let mut message = message.clone();
                message.insert("state".into(), state.into());
                message
            };
            let recent = self.0.recent.take();
            let mut mail: Vec<_> = recent.iter().map(|mail| marked(mail, "taken_in")).collect();
            let unread = unread.iter().filter_map(|waiting| waiting.object.as_ref());
            mail.extend(unread.map(|mail| marked(mail, "unread")));
            if mail.is_empty() {
                return Ok("No mail: nothing is unread and nothing was taken in since you last \
                           looked."
                    .into());
            }
            Ok(inbox_block(&mail))
        })
    }
}

struct ListTeammates(Rc<TeamContext>);

impl Tool for ListTeammates {
    fn spec(&self) -> ToolSpec {
        spec(
            "list_teammates",
            "Show who is on the team: name, role, status, what each one does.",
            &json!({}),
            &[],
        )
    }

    fn call<'a>(&'a self, call: &'a Call) -> ToolFuture<'a> {
        Box::pin(async move {
            let NoInput {} = arguments(call)?;
            let dir = self.0.bus.dir();
            let roster = roster::read(dir).map_err(|why| ToolError::Reply(why.to_string()))?;
            let life_of = |name: &AgentName| liveness::probe(dir, name).unwrap_or(Liveness::Dead);
            let lead_life = life_of(&AgentName::lead());
            let mut lines = Vec::new();
            if let Some(lead) = &roster.lead {
                let status = if lead_life.is_alive() { lead.status.word() } else { "not running" };
                lines.push(format!("- lead: {status}"));
            }
            for member in &roster.members {
                let life =
                    AgentName::member(&member.name).map_or(Liveness::Dead, |name| life_of(&name));
                let status = roster::effective_status(member, &life, &lead_life);
                let activity = match &member.activity {
                    Some(activity) if status == Status::Working => format!(" ({activity})"),
                    _ => String::new(),
                };
                let you = if member.name == self.0.me.as_str() { " (you)" } else { "" };
                let (name, role, model) = (&member.name, &member.role, &member.model);
                let status = status.word();
                lines.push(format!("- {name}{you}: {status}{activity}, {role}, {model}"));
            }
            if roster.members.is_empty() {
                lines.push("There are no teammates yet.".into());
            }
            Ok(lines.join("\n"))
        })
    }
}

struct SpawnTeammate(Rc<TeamContext>, Rc<dyn TeamOps>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SpawnInput {
    name: String,
    role: String,
    prompt: String,
    model: Option<String>,
    mode: Option<PermissionMode>,
}

impl Tool for SpawnTeammate {
    fn spec(&self) -> ToolSpec {
        spec(
            "spawn_teammate",
            "Start a teammate: an agent with a name, a role and a memory of its own. Answers when it \
             is ready. A name that is idle gets the new prompt; a name that was shut down comes back \
             with its memory.",
            &json!({
                "name": text_property("lower-case, such as alice or db-expert"),
                "role": text_property("what it is for, such as coder or tester"),
                "prompt": text_property("what it is to do"),
                "model": text_property("another model, as provider/name"),
                "mode": {
                    "type": "string", "enum": PermissionMode::ALL.map(PermissionMode::word),
                    "description": "a stricter permission mode than yours; plan: it must submit a \
                                    plan to you before it changes anything",
                },
            }),
            &["name", "role", "prompt"],
        )
    }

    fn call<'a>(&'a self, call: &'a Call) -> ToolFuture<'a> {
        Box::pin(async move {
            let input: SpawnInput = arguments(call)?;
            let order = SpawnOrder {
                name: member_name(&input.name)?,
                role: input.role,
                prompt: input.prompt,
                message_id: format!("{}:{}", self.0.me, call.id),
                model: input.model,
                mode: input.mode,
            };
            self.1.spawn(order).await
        })
    }
}

struct ShutdownTeammate(Rc<dyn TeamOps>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ShutdownInput {
    name: String,
    reason: Option<String>,
}

impl Tool for ShutdownTeammate {
    fn spec(&self) -> ToolSpec {
        spec(
            "shutdown_teammate",
            "End a teammate: it is asked first, and ended by force when it does not go in time. \
             Answers when its process is gone and says how it ended.",
            &json!({
                "name": text_property("whom to end"),
                "reason": text_property("why; told to the teammate"),
            }),
            &["name"],
        )
    }

    fn call<'a>(&'a self, call: &'a Call) -> ToolFuture<'a> {
        Box::pin(async move {
            let input: ShutdownInput = arguments(call)?;
            let reason = input.reason.unwrap_or_else(|| "the lead no longer needs you".into());
            self.0.shutdown(member_name(&input.name)?, reason).await
        })
    }
}

struct ShutdownResponse(Rc<TeamContext>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ShutdownResponseInput {
    request_id: String,
    approve: bool,
    reason: Option<String>,
}

impl Tool for ShutdownResponse {
    fn spec(&self) -> ToolSpec {
        spec(
            "shutdown_response",
            "RequestAnswer an open shutdown request. Refusing is a wish: say why; the deadline stands.",
            &json!({
                "request_id": text_property("the request's id"),
                "approve": { "type": "boolean", "description": "true: end now" },
                "reason": text_property("why"),
            }),
            &["request_id", "approve"],
        )
    }

    fn call<'a>(&'a self, call: &'a Call) -> ToolFuture<'a> {
        Box::pin(async move {
            let input: ShutdownResponseInput = arguments(call)?;
            if self.0.shutdowns.borrow().pending_of(&input.request_id).is_none() {
                return Err(ToolError::Reply(
                    "no shutdown request with that id is open; there is nothing to answer".into(),
                ));
            }
            self.0.answer_shutdown(input.approve, input.reason).await?;
            Ok(if input.approve { "Ending." } else { "Your refusal was sent." }.into())
        })
    }
}

struct Idle;

impl Tool for Idle {
    fn spec(&self) -> ToolSpec {
        spec(
            "idle",
            "End your turn because there is nothing to do now; mail wakes you again.",
            &json!({}),
            &[],
        )
    }

    fn call<'a>(&'a self, call: &'a Call) -> ToolFuture<'a> {
        Box::pin(async move {
            let NoInput {} = arguments(call)?;
            Ok("Idle.".into())
        })
    }
}
