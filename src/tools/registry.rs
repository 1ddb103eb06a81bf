//! The `Tool` trait, the parts that tools work with, and the registry: the tools of one agent, limited by its
//! role.

use super::call::{Call, ToolError, ToolFuture, ToolOutput, arguments};
use super::command::{BackgroundCommands, OutputStore};
use super::command_turn::CommandTurn;
use super::files::{FileAccess, NestedInstructions, NestedLimits, UsedFiles};
use super::mcp::McpTools;
use super::ops::{Ops, SubagentOps};
use super::served::ServedModel;
use super::skills::Skills;
use super::team_context::TeamContext;
use crate::os::command::CommandSetup;
use crate::os::spawn::spawn_blocking;
use crate::protocol::permission::PermissionSubject;
use crate::protocol::tasks::is_in_hand;
use crate::store::asynchronous::offload;
use crate::store::instructions::FolderInstructions;
use crate::store::roster;
use crate::tasks::{TaskError, Tasks};
use crate::undo::recorder::Recorder;
use crate::wire::AgentName;
use crate::wire::chat::ToolDefinition;
use crate::wire::file_view::{ContentHash, FileView};
use crate::wire::limits::CALL_SECONDS;
use crate::wire::message::Message;
use crate::wire::model_abilities::ModelAbilities;
use crate::wire::permission::PermissionMode;
use crate::wire::role::Role;
use crate::wire::tool::{
    Audience, Effect, OfferCondition, Parameter, Served, Signal, SubjectArgument, ToolSpec,
};
use crate::wire::transcript::Entry;
use crate::work::save::Saver;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// The maximum number of characters of a tool's name that an error repeats.
const NAME_CHARS: usize = 64;

/// A tool. The type holds the arguments of one call.
pub(super) trait Tool: Parameters + DeserializeOwned + 'static {
    /// The spec of the tool, without its parameters.
    const SPEC: ToolSpec;

    /// Returns the part of a call that permission rules match. Fails if the call cannot run, so that no approval
    /// is asked for.
    fn subject(call: &Call, parts: &ToolParts) -> Result<PermissionSubject, ToolError> {
        let SubjectArgument::File(argument) = Self::SPEC.subject else {
            return Ok(PermissionSubject::Nothing);
        };
        arguments::<Self>(call)?;
        let path = call.input.get(argument).and_then(Value::as_str).unwrap_or_default();
        parts.files.judge(call, path, Self::SPEC.effect)
    }

    /// Whether an agent with these parts has the tool.
    fn is_available(_: &ToolParts) -> bool {
        true
    }

    /// Whether the tool is of use now, to an agent that has it.
    fn is_offered(_: &ToolParts) -> bool {
        true
    }

    /// The names of the parameters that are of no use now, so that no definition has them. A call may still give them.
    fn hidden_parameters(_: &ToolParts) -> &'static [&'static str] {
        &[]
    }

    async fn run(self, call: &Call, parts: &ToolParts) -> Result<String, ToolError>;
}

/// The description of a tool's arguments for the model.
pub(super) trait Parameters {
    const PARAMETERS: &[Parameter];
}

/// Returns the name of a field without the mark of a keyword (`r#in`).
pub(super) const fn plain_name(field: &'static str) -> &'static str {
    match field.as_bytes() {
        [b'r', b'#', ..] => field.split_at(2).1,
        _ => field,
    }
}

/// Declares a tool by its arguments. Each line is a field, into which a call is read, and a parameter, which is
/// described to the model. Unknown arguments are refused.
macro_rules! parameters {
    ($tool:ident { $(
        $(#[$attribute:meta])?
        $public:vis $name:ident: $type:ty = $presence:ident($kind:expr, $meaning:expr)
    ),* $(,)? }) => {
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(in crate::tools) struct $tool {
            $($(#[$attribute])? $public $name: $type,)*
        }

        impl crate::tools::registry::Parameters for $tool {
            const PARAMETERS: &[crate::wire::tool::Parameter] = &[
                $(crate::wire::tool::Parameter::$presence(
                    crate::tools::registry::plain_name(stringify!($name)),
                    $kind,
                    $meaning,
                )),*
            ];
        }
    };
}
pub(super) use parameters;

/// The common part of the specs of tools that change the state of the team, not the workspace.
pub(super) const TALKS: ToolSpec = ToolSpec { effect: Effect::Talks, ..ToolSpec::STRICT };

/// A tool in the list of all tools.
#[derive(Debug)]
pub(super) struct Registration {
    pub(super) spec: &'static ToolSpec,
    subject: fn(&Call, &ToolParts) -> Result<PermissionSubject, ToolError>,
    run: for<'a> fn(&'a Call, &'a ToolParts) -> ToolFuture<'a>,
    is_available: fn(&ToolParts) -> bool,
    is_offered: fn(&ToolParts) -> bool,
    hidden_parameters: fn(&ToolParts) -> &'static [&'static str],
}

impl Registration {
    pub(super) const fn of<T: Tool>() -> Self {
        Self {
            spec: const { &ToolSpec { parameters: T::PARAMETERS, ..T::SPEC } },
            subject: T::subject,
            is_available: T::is_available,
            is_offered: T::is_offered,
            hidden_parameters: T::hidden_parameters,
            run: |call, parts| {
                Box::pin(async move { arguments::<T>(call)?.run(call, parts).await })
            },
        }
    }
}

pub(crate) struct ToolParts {
    pub(crate) commands: CommandSetup,
    pub(crate) output_store: OutputStore,
    pub(crate) background: Rc<BackgroundCommands>,
    pub(crate) files: FileAccess,
    pub(crate) skills: Skills,
    pub(crate) instructions: NestedInstructions,
    pub(crate) team: Rc<TeamContext>,
    pub(crate) tasks: Arc<Tasks>,
    /// The clone in which the agent works; `None` for the workspace.
    pub(crate) work: Option<Arc<Saver>>,
    /// The tools of MCP servers; `None` without a server.
    pub(crate) mcp: Option<Rc<McpTools>>,
    /// The role of the agent, which limits its tools.
    pub(crate) role: RefCell<Role>,
    /// The lead's operations; a teammate has none.
    pub(crate) ops: Option<Ops>,
    /// The abilities of the agent's model.
    pub(crate) model: Cell<ModelAbilities>,
    /// The circumstances of a model that another program runs; `None` for a model of this program.
    pub(crate) served: Option<ServedModel>,
    /// The subagents of the agent; `None` if it can have none.
    pub(crate) subagents: Option<Rc<dyn SubagentOps>>,
    pub(crate) command_turn: CommandTurn,
}

/// The parts that the team tools of every member need.
pub(crate) struct TeamToolParts {
    pub(crate) commands: CommandSetup,
    pub(crate) output_store: OutputStore,
    pub(crate) files: FileAccess,
    pub(crate) team: Rc<TeamContext>,
    pub(crate) tasks: Arc<Tasks>,
}

impl ToolParts {
    /// Returns the parts of a member whose model runs in another program: it has team tools alone.
    pub(crate) fn served(parts: TeamToolParts, served: ServedModel) -> Self {
        let TeamToolParts { commands, output_store, files, team, tasks } = parts;
        let no_room = NestedLimits { each: 0, total: 0 };
        Self {
            commands,
            background: BackgroundCommands::none(Rc::clone(&team), output_store.clone()),
            output_store,
            files,
            instructions: NestedInstructions::new(no_room, None),
            skills: Skills::default(),
            team,
            tasks,
            work: None,
            mcp: None,
            role: RefCell::default(),
            ops: None,
            model: Cell::default(),
            served: Some(served),
            subagents: None,
            command_turn: CommandTurn::default(),
        }
    }

    /// Returns the parts of a subagent in this role: those of the agent, with a record of its own of what was read.
    fn for_subagent(&self, role: Role) -> Self {
        let skills = self.skills.clone();
        skills.limit(&role);
        let mcp = self.mcp.as_ref().and_then(|mcp| mcp.for_subagent(role.mcp_servers.as_deref()));
        let output_store = OutputStore { show_line: None, ..self.output_store.clone() };
        Self {
            commands: self.commands.clone(),
            background: BackgroundCommands::none(Rc::clone(&self.team), output_store.clone()),
            output_store,
            files: self.files.for_subagent(),
            instructions: self.instructions.for_subagent(),
            skills,
            team: Rc::clone(&self.team),
            tasks: Arc::clone(&self.tasks),
            work: self.work.clone(),
            mcp,
            role: RefCell::new(role),
            ops: None,
            model: Cell::new(self.model.get()),
            served: None,
            subagents: None,
            command_turn: self.command_turn.clone(),
        }
    }

    pub(super) fn audience(&self) -> Audience {
        if self.ops.is_some() { Audience::Lead } else { Audience::Teammate }
    }

    /// Returns the lead's operations. Fails for a teammate.
    pub(super) fn ops(&self) -> Result<&Ops, ToolError> {
        self.ops.as_ref().ok_or_else(|| ToolError::reply("only the lead can do that"))
    }

    /// Runs work on the task list as this agent, on another thread. The error is fatal if the team folder is gone.
    pub(super) async fn with_tasks<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Tasks, &AgentName) -> Result<T, TaskError> + Send + 'static,
    ) -> Result<T, ToolError> {
        let (tasks, me) = (Arc::clone(&self.tasks), self.team.me.clone());
        match spawn_blocking(move || work(&tasks, &me)).await {
            Ok(done) => Ok(done?),
            Err(why) => Err(ToolError::Reply(format!("the task list was not reached: {why}"))),
        }
    }
}

/// Runs a judged call of a tool of an MCP server.
pub(super) type RunOfServer = for<'a> fn(&'a Call, &'a ToolParts) -> ToolFuture<'a>;

pub(crate) struct Registry {
    tools: BTreeMap<&'static str, &'static Registration>,
    run_of_server: RunOfServer,
    parts: ToolParts,
    mode: Cell<PermissionMode>,
    /// Set if the model gets only the tools that it can use in its state, in compact definitions.
    compact: Option<CompactProfile>,
}

struct CompactProfile {
    auto_claim: bool,
    /// The state of the agent at the last model call.
    state: RefCell<Vec<OfferCondition>>,
}

impl Registry {
    /// Creates a registry of those tools of `all` that are for the agent with these parts.
    pub(super) fn new(
        all: impl Iterator<Item = &'static Registration>,
        run_of_server: RunOfServer,
        parts: ToolParts,
    ) -> Self {
        let audience = parts.audience();
        let is_served = parts.served.is_some();
        let tools = all.filter(|tool| tool.spec.audience.includes(audience));
        let tools = tools.filter(|tool| !is_served || tool.spec.served != Served::Never);
        let tools = tools.filter(|tool| (tool.is_available)(&parts));
        let tools = tools.map(|tool| (tool.spec.name, tool)).collect();
        let mode = Cell::new(PermissionMode::Default);
        Self { tools, run_of_server, parts, mode, compact: None }
    }

    /// Follows a change of the agent's model.
    pub(crate) fn set_model(&self, abilities: ModelAbilities) {
        self.parts.model.set(abilities);
    }

    pub(crate) fn set_mode(&self, mode: PermissionMode) {
        self.mode.set(mode);
    }

    /// Returns the tools of a subagent in a role, within that of the agent.
    pub(crate) fn for_subagent(&self, role: Role) -> Self {
        let own = self.tools.values().copied().filter(|tool| tool.spec.of_subagents);
        let role = role.within(&self.parts.role.borrow());
        Self::new(own, self.run_of_server, self.parts.for_subagent(role))
    }

    /// Returns the recorder of the changes of this agent's files.
    pub(crate) fn recorder(&self) -> &Arc<Recorder> {
        self.parts.files.recorder()
    }

    /// Returns the background commands of this agent.
    pub(crate) fn background(&self) -> &Rc<BackgroundCommands> {
        &self.parts.background
    }

    /// Notes the plans in mail that wait for a decision of this agent's model.
    pub(crate) fn note_plans(&self, mail: &[Message]) {
        if let Some(ops) = &self.parts.ops {
            for message in mail {
                ops.approval_queue.note_plan(message);
            }
        }
    }

    pub(crate) fn limit(&self, role: Role) {
        self.parts.skills.limit(&role);
        *self.parts.role.borrow_mut() = role;
    }

    /// Returns the skills and the role of this agent.
    pub(crate) fn skills(&self) -> (Skills, Role) {
        (self.parts.skills.clone(), self.parts.role.borrow().clone())
    }

    /// Gives the model compact definitions of the tools that it can use in its state. `auto_claim` says whether idle
    /// teammates claim tasks.
    pub(crate) fn use_compact_profile(&mut self, auto_claim: bool) {
        self.compact = Some(CompactProfile { auto_claim, state: RefCell::default() });
    }

    /// Returns the tools for a model call. In the compact profile they are a function of the agent's state, so that a
    /// resumed agent gets the same ones.
    pub(crate) async fn definitions(&self) -> Vec<ToolDefinition> {
        if let Some(mcp) = &self.parts.mcp {
            mcp.load().await;
        }
        if let Some(compact) = &self.compact {
            let state = self.state(compact).await;
            *compact.state.borrow_mut() = state;
        }
        let define = match self.compact {
            Some(_) => ToolSpec::compact_definition,
            None => ToolSpec::definition,
        };
        let role = self.parts.role.borrow();
        let offered = self.offered(&role).into_iter();
        let mut definitions: Vec<_> =
            offered.map(|spec| self.without_hidden(spec, define(spec))).collect();
        let of_servers =
            self.parts.mcp.iter().flat_map(|mcp| mcp.definitions(|spec| role.has(spec)));
        definitions.extend(of_servers);
        definitions
    }

    /// Removes the parameters that are of no use now from a definition.
    fn without_hidden(&self, spec: &ToolSpec, mut definition: ToolDefinition) -> ToolDefinition {
        let tool = self.tools.get(spec.name);
        let hidden = tool.map(|tool| (tool.hidden_parameters)(&self.parts)).unwrap_or_default();
        if let Some(shown) = definition.input_schema.get_mut("properties")
            && let Some(shown) = shown.as_object_mut()
        {
            shown.retain(|name, _| !hidden.contains(&name.as_str()));
        }
        definition
    }

    /// Returns the specs of the tools, by name, for a model that another program runs.
    pub(crate) fn served(&self) -> Vec<&'static ToolSpec> {
        self.offered(&self.parts.role.borrow())
    }

    /// Returns the conditions that hold for the agent. What cannot be read counts as absent.
    async fn state(&self, compact: &CompactProfile) -> Vec<OfferCondition> {
        let (tasks, me) = (Arc::clone(&self.parts.tasks), self.parts.team.me.clone());
        let (board, roster) = offload(move || {
            let board = tasks.snapshot().map(|seen| seen.board);
            let roster = roster::read(tasks.dir());
            let board = board.inspect_err(|why| tracing::warn!(%why, "the task list was not read"));
            let roster = roster.inspect_err(|why| tracing::warn!(%why, "the roster was not read"));
            (board.unwrap_or_default(), roster.unwrap_or_default())
        })
        .await;
        let has_own = board.values().any(|task| is_in_hand(&board, task, &me));
        let is_open = compact.auto_claim || board.values().any(|task| !task.status.is_over());
        let queue = self.parts.ops.as_ref().map(|ops| &ops.approval_queue);
        let has_plan = queue.is_some_and(|queue| queue.has_plan_for_model());
        // A plan is decided first: the prompt has no room for both.
        let has_many_tools = self.parts.mcp.as_ref().is_some_and(|mcp| mcp.is_deferred());
        let holds = |condition: &OfferCondition| match condition {
            OfferCondition::Always => true,
            OfferCondition::Teammates => roster.members.iter().any(|it| !it.status.is_over()),
            OfferCondition::OwnTask => has_own,
            OfferCondition::OpenTasks => is_open && !has_own,
            OfferCondition::PlanMode => self.mode.get() == PermissionMode::Plan,
            OfferCondition::PlanToReview => has_plan,
            OfferCondition::ToolsToFind => has_many_tools && !has_plan,
        };
        OfferCondition::ALL.into_iter().filter(holds).collect()
    }

    /// Runs a call. If the agent has no such tool, the error lists the tools that it has.
    pub(crate) async fn call(&self, call: &Call) -> Result<ToolOutput, ToolError> {
        let Some(stage) = &self.parts.team.stage else { return self.run(call).await };
        let tool = self.tools.get(call.name.as_str());
        let is_of_team = tool.is_some_and(|tool| tool.spec.acts_on_team());
        let recorded = stage.before_call(call, is_of_team).await;
        let result = match recorded {
            Some(recorded) => recorded,
            None => self.run(call).await,
        };
        stage.after_call(call).await;
        result
    }

    async fn run(&self, call: &Call) -> Result<ToolOutput, ToolError> {
        self.parts.team.forget_command_mail();
        let text = match self.find_of_server(call) {
            Some(_) => (self.run_of_server)(call, &self.parts).await?,
            None => {
                let tool = self.find(call)?;
                let text = (tool.run)(call, &self.parts).await?;
                self.with_next_step(tool.spec, text)
            }
        };
        let has_sent_mail = self.parts.team.take_command_mail();
        let UsedFiles { views: files, images, changes } = self.parts.files.take_uses(call);
        Ok(ToolOutput { text, files, images, has_sent_mail, changes })
    }

    /// Adds to a result what a small model needs to go on.
    fn with_next_step(&self, spec: &ToolSpec, text: String) -> String {
        let offer = spec.compact.filter(|it| it.audience.includes(self.parts.audience()));
        let end = offer.filter(|_| self.compact.is_some()).and_then(|it| it.result_end());
        text + end.as_deref().unwrap_or_default()
    }

    /// Whether the agent's model sees images.
    pub(crate) fn sees_images(&self) -> bool {
        self.parts.model.get().sees_images
    }

    /// Returns the content of an image that the agent was shown; `None` if it is not kept any more.
    pub(crate) async fn image(&self, hash: &ContentHash) -> Option<Vec<u8>> {
        self.parts.files.load_image(hash).await
    }

    /// Restores a file that the agent has seen, from its transcript.
    pub(crate) fn restore_view(&self, view: &FileView) {
        self.parts.files.restore(view);
    }

    /// Follows an entry of the agent's transcript.
    pub(crate) fn follow(&self, entry: &Entry) {
        self.parts.instructions.follow(entry);
    }

    /// Returns the instructions of folders in which the agent has used files, as entries for its transcript, each once.
    pub(crate) async fn new_instructions(&self) -> Vec<FolderInstructions> {
        self.parts.instructions.next(&self.parts.files.workspace).await
    }

    /// Returns a note about files that the agent has read and that were changed since, once for each change.
    pub(crate) async fn file_changes(&self) -> Option<String> {
        self.parts.files.changes().await
    }

    /// Returns the spec of a call's tool, and the part of the call that permission rules match. Fails if the call
    /// cannot run.
    pub(crate) fn inspect(
        &self,
        call: &Call,
    ) -> Result<(&'static ToolSpec, PermissionSubject), ToolError> {
        if let Some((spec, mcp)) = self.find_of_server(call) {
            return Ok((spec, mcp.judge(call)));
        }
        let tool = self.find(call)?;
        Ok((tool.spec, (tool.subject)(call, &self.parts)?))
    }

    /// Whether the role lets the agent have tools that this program does not know.
    pub(crate) fn may_have_others(&self) -> bool {
        self.parts.role.borrow().tools.is_none()
    }

    /// Returns the time limit of a call, in seconds.
    pub(crate) fn time_limit_s(&self, call: &Call) -> u64 {
        let own = self.tools.get(call.name.as_str()).map(|it| it.spec.time_limit_s(&call.input));
        let of_server = || self.parts.mcp.as_ref()?.time_limit(&call.name);
        own.or_else(|| Some(of_server()?.as_secs())).unwrap_or(CALL_SECONDS)
    }

    /// Restores what an earlier result of a tool has changed for later calls.
    pub(crate) fn restore_result(&self, content: &str) {
        if let Some(mcp) = &self.parts.mcp {
            mcp.restore(content);
        }
    }

    /// Returns the spec of a tool of an MCP server; `None` if the call names none that the role has.
    fn find_of_server(&self, call: &Call) -> Option<(&'static ToolSpec, &McpTools)> {
        let mcp = self.parts.mcp.as_deref()?;
        let spec = mcp.find(&call.name)?;
        self.parts.role.borrow().has(spec).then_some((spec, mcp))
    }

    /// Returns the tools that the last model call offered to an agent in this role.
    fn offered(&self, role: &Role) -> Vec<&'static ToolSpec> {
        let audience = self.parts.audience();
        let is_offered = |spec: &&'static ToolSpec| {
            let compact = self.compact.as_ref();
            compact.is_none_or(|compact| spec.is_offered(audience, &compact.state.borrow()))
        };
        let is_of_use = |tool: &&&Registration| {
            (tool.is_available)(&self.parts) && (tool.is_offered)(&self.parts)
        };
        let tools = self.tools.values().filter(is_of_use);
        let specs = tools.map(|tool| tool.spec).filter(|spec| role.has(spec));
        specs.filter(is_offered).filter(|spec| self.fits_mode(spec)).collect()
    }

    /// Whether a tool is of use in the mode of the agent: a lead submits a plan only in mode plan.
    fn fits_mode(&self, spec: &ToolSpec) -> bool {
        let is_of_plans = spec.signal == Signal::SubmitsPlan;
        let is_lead = self.parts.audience() == Audience::Lead;
        !(is_of_plans && is_lead) || self.mode.get() == PermissionMode::Plan
    }

    /// Returns the name of the tool that submits a plan, if the agent has it.
    pub(crate) fn plan_tool(&self) -> Option<&'static str> {
        let role = self.parts.role.borrow();
        let mut specs = self.tools.values().map(|tool| tool.spec).filter(|spec| role.has(spec));
        specs.find(|spec| spec.signal == Signal::SubmitsPlan).map(|spec| spec.name)
    }

    fn is_of_server(&self, name: &str) -> bool {
        self.parts.mcp.as_ref().is_some_and(|mcp| mcp.find(name).is_some())
    }

    fn find(&self, call: &Call) -> Result<&'static Registration, ToolError> {
        let role = self.parts.role.borrow();
        let name: String = call.name.chars().take(NAME_CHARS).collect();
        let known = self.tools.get(call.name.as_str());
        // The skills of another role may be none.
        let why = match known.filter(|tool| (tool.is_available)(&self.parts)) {
            Some(tool) if role.has(tool.spec) => return Ok(tool),
            None if !self.is_of_server(&name) => format!("there is no tool {name:?}"),
            Some(_) | None => format!("your role ({}) does not have the tool {name:?}", role.name),
        };
        let mut given: Vec<&str> = self.offered(&role).iter().map(|spec| spec.name).collect();
        let of_servers = self.parts.mcp.iter().flat_map(|mcp| mcp.definitions(|it| role.has(it)));
        let of_servers: Vec<String> = of_servers.map(|it| it.name).collect();
        given.extend(of_servers.iter().map(String::as_str));
        Err(ToolError::Reply(format!("{why}; use one of: {}", given.join(", "))))
    }
}
