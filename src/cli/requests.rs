//! `team requests`, `team approve ID` and `team deny ID`: what waits for a decision, and the user's answer.

use super::args::Json;
use crate::app::host_copies::HostCopies;
use crate::app::{context::Context, event_loop::block_on, output::print_result, requests};
use crate::error::{Exit, Failure};
use crate::protocol::request::RequestVerdict;
use crate::tools::approval_decision::ApprovalDecision;
use crate::wire::host_copy::CopyPart;
use crate::wire::permission::{PermissionMode, RuleScope};
use serde_json::{Value, json};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Show all of this request, or of the requests of this agent (default: the beginning and the end of each)
    #[arg(value_name = "ID")]
    id: Option<String>,
    #[command(flatten)]
    json: Json,
}

pub(super) fn run(context: &Context, args: Args) -> Result<Exit, Failure> {
    let team = context.team_to_view()?;
    HostCopies::of(&team, &[], &[CopyPart::Transcripts])?.wait();
    let shown = match &args.id {
        Some(id) => requests::meant(&team, id)?,
        None => requests::find(&team)?,
    };
    let as_json = || {
        let requests: Vec<Value> = shown.iter().map(requests::json).collect();
        json!({ "schema": 1, "requests": requests })
    };
    let as_text = || {
        let (is_whole, view) = (args.id.is_some(), context.view());
        let texts = shown.iter().map(|request| requests::render(&team, request, is_whole, &view));
        match shown.as_slice() {
            [] => "nothing waits for a decision".into(),
            _ => texts.collect::<Vec<_>>().join("\n"),
        }
    };
    Ok(print_result(args.json.json, as_json, as_text))
}

#[derive(Debug, clap::Args)]
struct Request {
    /// The request's id, or the name of an agent that has one open request
    #[arg(value_name = "ID")]
    id: String,
    /// Reason that the requester is told
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

impl Request {
    fn answer(
        self,
        context: &Context,
        verb: &str,
        answer: ApprovalDecision,
        Json { json }: Json,
    ) -> Result<Exit, Failure> {
        context.refuse_inside_agent(verb)?;
        let (bus, given) = (context.team_bus()?, self.id);
        // They are kept up to date as long as the command runs.
        let shown = HostCopies::of(bus.dir(), &[], &[CopyPart::Transcripts])?;
        shown.wait();
        let request = requests::one_meant(bus.dir(), &given)?;
        if answer.mode.is_some() && !request.is_plan() {
            let why = "--mode is for plans, and this request is not a plan";
            let hint = "leave --mode out; `team requests` shows what waits";
            return Err(Failure::new(Exit::Usage, format!("{given} was not answered"), why, hint));
        }
        let answer = ApprovalDecision { reason: self.reason, ..answer };
        let outcome = block_on(requests::decide(&bus, request.id(), answer))??;
        let as_json = || json!({ "schema": 1, "request_id": request.id(), "outcome": outcome });
        let as_text = || {
            // A name does not say which request was answered.
            let what = if given == request.id() { given.clone() } else { request.summary() };
            format!("{what} {outcome}")
        };
        Ok(print_result(json, as_json, as_text))
    }
}

pub(super) mod approve {
    use super::{
        ApprovalDecision, Context, Exit, Failure, Json, PermissionMode, Request, RequestVerdict,
        RuleScope,
    };

    #[derive(Debug, clap::Args)]
    pub(in crate::cli) struct Args {
        #[command(flatten)]
        request: Request,
        /// Allow the same from now on without asking, for the whole team
        #[arg(long)]
        always: bool,
        /// Allow the same from now on, for `agent` (the one that asks, until the lead ends), `session` (all agents, until the
        /// lead ends), `team` (all, also after --resume) or `good` (all in this folder, for good)
        #[arg(long, value_name = "SCOPE", conflicts_with = "always", value_parser = rule_scope)]
        scope: Option<RuleScope>,
        /// Permission mode in which the agent carries its plan out (default: `accept_edits`, if the lead's mode allows it)
        #[arg(long, value_name = "MODE", conflicts_with_all = ["always", "scope"], value_parser = mode)]
        mode: Option<PermissionMode>,
        #[command(flatten)]
        json: Json,
    }

    pub(in crate::cli) fn run(context: &Context, args: Args) -> Result<Exit, Failure> {
        let scope = args.scope.or(args.always.then_some(RuleScope::Team));
        let answer = match scope {
            Some(scope) => ApprovalDecision::with_rule(scope),
            None => ApprovalDecision::once(RequestVerdict::Approve, None),
        };
        let answer = ApprovalDecision { mode: args.mode, ..answer };
        args.request.answer(context, "approve", answer, args.json)
    }

    fn mode(word: &str) -> Result<PermissionMode, String> {
        let words = PermissionMode::WORDS.join(", ");
        PermissionMode::parse(word).ok_or_else(|| format!("give one of {words}"))
    }

    fn rule_scope(word: &str) -> Result<RuleScope, String> {
        let words = RuleScope::ALL.map(RuleScope::word).join(", ");
        RuleScope::parse(word).ok_or_else(|| format!("give one of {words}"))
    }
}

pub(super) mod deny {
    use super::{ApprovalDecision, Context, Exit, Failure, Json, Request, RequestVerdict};

    #[derive(Debug, clap::Args)]
    pub(in crate::cli) struct Args {
        #[command(flatten)]
        request: Request,
        #[command(flatten)]
        json: Json,
    }

    pub(in crate::cli) fn run(context: &Context, args: Args) -> Result<Exit, Failure> {
        let answer = ApprovalDecision::once(RequestVerdict::Reject, None);
        args.request.answer(context, "deny", answer, args.json)
    }
}
