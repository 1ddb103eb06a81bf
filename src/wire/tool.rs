//! Tool specifications: everything that the program needs to know about a tool except its implementation.
//!
//! The specs are defined next to the tools. Layers below get them as arguments and never compare names of tools.

use super::chat::ToolDefinition;
use super::limits::CALL_SECONDS;
use serde_json::{Map, Value, json};

/// The specification of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToolSpec {
    /// The name by which models call it and rules mention it.
    pub name: &'static str,
    /// Names of the same tool in role files of other programs.
    pub aliases: &'static [&'static str],
    /// A description of the tool's effect and of its proper use, for the model.
    pub description: &'static str,
    /// The arguments.
    pub parameters: &'static [Parameter],
    /// The agents that have it.
    pub audience: Audience,
    /// Its place in the compact prompt profile; `None` if that profile never offers it.
    pub compact: Option<CompactOffer>,
    /// The effect, by which permission modes judge a call.
    pub effect: Effect,
    /// The argument that permission rules match and that a question shows.
    pub subject: SubjectArgument,
    /// Whether a role's allow-list must name it.
    pub role_access: RoleAccess,
    /// The tool that a role must have for it, in place of itself.
    pub part_of: Option<&'static str>,
    /// The purpose, which decides whether a turn that only calls such tools counts as talk.
    pub purpose: Purpose,
    /// The repeated results that end a turn.
    pub repetition: Repetition,
    /// The earlier results that a successful call makes useless.
    pub supersedes: Supersedes,
    /// The answer to a call that a crash interrupted.
    pub after_crash: AfterCrash,
    /// The signal of a call to the agent's loop.
    pub signal: Signal,
    /// The argument with the time limit of a call, in seconds.
    pub time_limit: Option<&'static str>,
    /// Its place in the list of a model of another program.
    pub served: Served,
    /// Whether the subagents of an agent have it as well.
    pub of_subagents: bool,
}

/// Finds a tool by name.
pub type ToolLookup = fn(&str) -> Option<&'static ToolSpec>;

/// The agents that have a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    /// The lead.
    Lead,
    /// Teammates.
    Teammate,
    /// Every agent.
    Both,
}

impl Audience {
    /// Whether `other` is part of this audience.
    pub fn includes(self, other: Self) -> bool {
        self == Self::Both || self == other
    }
}

/// The place of a tool in the compact prompt profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactOffer {
    /// The agents that get it.
    pub audience: Audience,
    /// The state of the agent in which it gets it.
    pub condition: OfferCondition,
    /// The description for the model.
    pub description: &'static str,
    /// The line below the result of a successful call, without which a small model makes the call again.
    pub next_step: Option<&'static str>,
}

impl CompactOffer {
    /// Returns the offer of a tool to these agents in every state.
    pub const fn always(audience: Audience, description: &'static str) -> Self {
        Self::when(OfferCondition::Always, audience, description)
    }

    /// Returns the offer of a tool to these agents in one state.
    pub const fn when(
        condition: OfferCondition,
        audience: Audience,
        description: &'static str,
    ) -> Self {
        Self { audience, condition, description, next_step: None }
    }

    /// Returns the offer with a line below the result of a successful call.
    #[must_use]
    pub const fn followed_by(self, next_step: &'static str) -> Self {
        Self { next_step: Some(next_step), ..self }
    }

    /// Returns the end of the result of a successful call, if there is one.
    pub(crate) fn result_end(&self) -> Option<String> {
        self.next_step.map(|line| format!("\n[team: {line}]"))
    }
}

/// A state of an agent in which a compact prompt offers certain tools. Several can hold at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfferCondition {
    /// Every state.
    Always,
    /// The team has a teammate that has not ended.
    Teammates,
    /// The agent has a task that it can work on.
    OwnTask,
    /// The agent has no such task, but there are open tasks, or idle teammates claim tasks by themselves.
    OpenTasks,
    /// The agent is in mode plan, in which tools that may change something are not offered.
    PlanMode,
    /// A plan waits for a decision of the agent.
    PlanToReview,
    /// MCP servers have tools, which the agent finds by words, and no plan waits.
    ToolsToFind,
}

impl OfferCondition {
    /// Every condition.
    pub const ALL: [Self; 7] = [
        Self::Always,
        Self::Teammates,
        Self::OwnTask,
        Self::OpenTasks,
        Self::PlanMode,
        Self::PlanToReview,
        Self::ToolsToFind,
    ];
}

/// The place of a tool in the list of a model that another program runs, which calls the tools over MCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Served {
    /// Such a model does not get it: it works with the tools of its own program.
    Never,
    /// In the list. The program may show the model its definition later than its name.
    Listed,
    /// In the list, with a definition that the model gets at once.
    Loaded,
}

/// The effect of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Changes nothing; runs in every permission mode.
    Reads,
    /// Changes the state of the team, not the workspace; runs in every permission mode.
    Talks,
    /// Changes nothing here, but tells another machine something: it asks in every mode but `bypass`.
    Reaches,
    /// May change the workspace or the machine; the permission mode decides.
    Changes,
}

/// The argument of a call that permission rules match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubjectArgument {
    /// No argument: a rule covers every call of the tool.
    None,
    /// The shell command in this argument.
    Command(&'static str),
    /// The path in this argument; a call that changes anything changes only this file.
    File(&'static str),
    /// The files that the patch in this argument names; a call changes only these.
    Patch(&'static str),
    /// The address in this argument; a rule matches its host.
    Url(&'static str),
}

/// The access that a role gives to a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoleAccess {
    /// An allow-list must name it.
    Named,
    /// Part of every role that does not disallow it: mail.
    Granted,
    /// Part of every role: without it an agent could not exit or become idle.
    Always,
}

/// The purpose of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Work: it resets the count of `max_exchanges`.
    Work,
    /// Communication only.
    Talk,
}

/// The repeated results of the same call that end a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repetition {
    /// Successes and failures.
    Any,
    /// Failures: a repeated success may be polling for a change elsewhere.
    Failures,
}

/// The earlier results that a successful call makes useless, so that a long conversation goes on without them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Supersedes {
    /// None.
    Nothing,
    /// Those of calls with the same arguments.
    SameCall,
    /// Like [`Supersedes::SameCall`]; without an argument beside the file, those of all reads of this file.
    WholeRead,
    /// Those of all reads of the file, which the call has written anew.
    WholeWrite,
}

/// The answer to a call that a crash interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterCrash {
    /// The state of the call is unknown; the model decides.
    Report,
    /// The call runs again, because the same call id has its effect only once.
    Repeat,
    /// The call goes on where it was cut off, as a part of the resumed turn.
    Continue,
}

/// The signal of a call to the agent's loop, besides its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// No signal.
    None,
    /// A message: `content` for the agent in `to`.
    SendsMessage,
    /// The turn ends.
    EndsTurn,
    /// A shutdown request is answered: `approve`, perhaps with a `reason`.
    AnswersShutdown,
    /// A `plan` is submitted for approval.
    SubmitsPlan,
    /// A subagent works. Such calls of one reply run at the same time.
    RunsSubagent,
}

/// An argument of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameter {
    /// The name.
    pub name: &'static str,
    /// The type.
    pub kind: ParameterType,
    /// The meaning, for the model; may be empty.
    pub description: &'static str,
    /// Whether a call must have it.
    pub is_required: bool,
    /// Whether a compact definition shows it, as if a call must have it.
    pub is_compact: bool,
}

/// The type of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParameterType {
    /// Text.
    Text,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A list of texts.
    TextList,
    /// A list of replacements: objects with `old_text` and `new_text`.
    TextEdits,
    /// `true` or `false`.
    Boolean,
    /// A whole number of at least 1.
    Count {
        /// The largest number that is permitted; `None` means no limit.
        most: Option<u64>,
    },
}

impl Parameter {
    /// Returns an argument that a call must have.
    pub const fn required(name: &'static str, kind: ParameterType, about: &'static str) -> Self {
        Self { name, kind, description: about, is_required: true, is_compact: true }
    }

    /// Returns an argument that may be left out, except by a model with compact definitions.
    pub const fn recommended(name: &'static str, kind: ParameterType, about: &'static str) -> Self {
        Self { is_compact: true, ..Self::optional(name, kind, about) }
    }

    /// Returns an argument that may be left out.
    pub const fn optional(name: &'static str, kind: ParameterType, about: &'static str) -> Self {
        Self { name, kind, description: about, is_required: false, is_compact: false }
    }

    fn schema(&self, is_described: bool) -> Value {
        let mut schema = match self.kind {
            ParameterType::Text => json!({ "type": "string" }),
            ParameterType::Word(words) => json!({ "type": "string", "enum": words }),
            ParameterType::TextList => json!({ "type": "array", "items": { "type": "string" } }),
            ParameterType::TextEdits => {
                let text = json!({ "type": "string" });
                json!({ "type": "array", "items": {
                    "type": "object",
                    "properties": { "old_text": text, "new_text": text },
                    "required": ["old_text", "new_text"],
                } })
            }
            ParameterType::Boolean => json!({ "type": "boolean" }),
            ParameterType::Count { most: None } => json!({ "type": "integer", "minimum": 1 }),
            ParameterType::Count { most } => {
                json!({ "type": "integer", "minimum": 1, "maximum": most })
            }
        };
        if let Some(fields) = schema.as_object_mut().filter(|_| is_described) {
            fields.insert("description".into(), self.description.into());
        }
        schema
    }
}

impl ToolSpec {
    /// The strictest values. A tool states only the fields that differ, so a forgotten field never permits anything.
    pub const STRICT: Self = Self {
        name: "",
        aliases: &[],
        description: "",
        parameters: &[],
        audience: Audience::Both,
        compact: None,
        effect: Effect::Changes,
        subject: SubjectArgument::None,
        role_access: RoleAccess::Named,
        part_of: None,
        purpose: Purpose::Work,
        repetition: Repetition::Any,
        supersedes: Supersedes::Nothing,
        after_crash: AfterCrash::Report,
        signal: Signal::None,
        time_limit: None,
        served: Served::Never,
        of_subagents: false,
    };

    /// Whether the tool acts on the team rather than on the work.
    pub fn acts_on_team(&self) -> bool {
        let is_talk = self.effect == Effect::Talks || self.purpose == Purpose::Talk;
        is_talk || self.served != Served::Never
    }

    /// Returns the name of the argument with the command that the tool runs; `None` if it runs none.
    pub(crate) fn command_argument(&self) -> Option<&'static str> {
        match self.subject {
            SubjectArgument::Command(argument) => Some(argument),
            SubjectArgument::File(_)
            | SubjectArgument::Patch(_)
            | SubjectArgument::Url(_)
            | SubjectArgument::None => None,
        }
    }

    /// Returns the time limit of a call in seconds.
    pub(crate) fn time_limit_s(&self, input: &Value) -> u64 {
        let given = self.time_limit.and_then(|argument| input.get(argument)?.as_u64());
        given.unwrap_or(CALL_SECONDS)
    }

    /// Whether `name` is the name of the tool or an alias.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.aliases.contains(&name)
    }

    /// Returns the tool as it is announced to a model.
    pub fn definition(&self) -> ToolDefinition {
        self.announce(true)
    }

    /// Whether a compact prompt offers it to an agent for which these conditions hold.
    pub fn is_offered(&self, audience: Audience, state: &[OfferCondition]) -> bool {
        let is_useless =
            self.effect == Effect::Changes && state.contains(&OfferCondition::PlanMode);
        !is_useless
            && self.compact.is_some_and(|offer| {
                offer.audience.includes(audience) && state.contains(&offer.condition)
            })
    }

    /// Returns the tool with only the names and types of the arguments that matter, because small models fill in
    /// every argument that is shown.
    pub fn compact_definition(&self) -> ToolDefinition {
        self.announce(false)
    }

    fn announce(&self, is_full: bool) -> ToolDefinition {
        let parameters = self.parameters.iter();
        let is_needed = |it: &&Parameter| if is_full { it.is_required } else { it.is_compact };
        let required: Vec<Value> =
            parameters.clone().filter(is_needed).map(|it| it.name.into()).collect();
        let shown = parameters.filter(|it| is_full || it.is_compact);
        let schema = |it: &Parameter| it.schema(is_full && !it.description.is_empty());
        let properties = shown.map(|it| (it.name.to_owned(), schema(it)));
        let mut fields = Map::from_iter([
            ("type".to_owned(), "object".into()),
            ("properties".into(), properties.collect()),
        ]);
        // Every prompt has the definition, so it says nothing in vain.
        if !(is_full && required.is_empty()) {
            fields.insert("required".into(), required.into());
        }
        let compact = self.compact.filter(|_| !is_full);
        ToolDefinition {
            name: self.name.into(),
            description: compact.map_or(self.description, |offer| offer.description).into(),
            input_schema: fields.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: ToolSpec = ToolSpec {
        name: "paint",
        aliases: &["Paint"],
        description: "Paints.",
        parameters: &[
            Parameter::required("color", ParameterType::Word(&["red", "blue"]), "which"),
            Parameter::required("where", ParameterType::Text, ""),
            Parameter::optional("coats", ParameterType::Count { most: Some(9) }, "how often"),
            Parameter::recommended("from", ParameterType::Count { most: None }, "first"),
            Parameter::optional("tags", ParameterType::TextList, "words"),
            Parameter::optional("dry", ParameterType::Boolean, "wait"),
        ],
        compact: Some(CompactOffer::when(OfferCondition::OwnTask, Audience::Lead, "Paint.")),
        ..ToolSpec::STRICT
    };

    #[test]
    fn a_compact_tool_is_offered_in_its_state_unless_it_changes_something_in_mode_plan() {
        use OfferCondition::{Always, OwnTask, PlanMode};
        assert!(SPEC.is_offered(Audience::Lead, &[Always, OwnTask]));
        assert!(!SPEC.is_offered(Audience::Lead, &[Always]));
        assert!(!SPEC.is_offered(Audience::Teammate, &[Always, OwnTask]));
        assert!(!SPEC.is_offered(Audience::Lead, &[Always, OwnTask, PlanMode]));
        let reads = ToolSpec { effect: Effect::Reads, ..SPEC };
        assert!(reads.is_offered(Audience::Lead, &[Always, OwnTask, PlanMode]));
        assert!(
            !ToolSpec { compact: None, ..SPEC }.is_offered(Audience::Lead, &OfferCondition::ALL)
        );
    }

    #[test]
    fn a_definition_has_the_schema_of_every_argument_and_a_compact_one_of_those_that_matter() {
        let definition = SPEC.definition();
        assert_eq!((&*definition.name, &*definition.description), ("paint", "Paints."));
        let expected = json!({
            "type": "object",
            "properties": {
                "color": { "type": "string", "enum": ["red", "blue"], "description": "which" },
                "where": { "type": "string" },
                "coats": { "type": "integer", "minimum": 1, "maximum": 9, "description": "how often" },
                "from": { "type": "integer", "minimum": 1, "description": "first" },
                "tags": { "type": "array", "items": { "type": "string" }, "description": "words" },
                "dry": { "type": "boolean", "description": "wait" },
            },
            "required": ["color", "where"],
        });
        assert_eq!(definition.input_schema.to_string(), expected.to_string());
        // The compact one has the arguments that matter, without their descriptions.
        let color = json!({ "type": "string", "enum": ["red", "blue"] });
        let from = json!({ "type": "integer", "minimum": 1 });
        let properties = json!({ "color": color, "where": { "type": "string" }, "from": from });
        let required = ["color", "where", "from"];
        let expected = json!({ "type": "object", "properties": properties, "required": required });
        let compact = SPEC.compact_definition();
        assert_eq!(compact.input_schema.to_string(), expected.to_string());
        assert_eq!(compact.description, "Paint.");
    }

    #[test]
    fn an_audience_includes_itself_and_a_name_or_an_alias_calls_a_tool() {
        assert!(SPEC.is_called("paint") && SPEC.is_called("Paint") && !SPEC.is_called("PAINT"));
        let [lead, teammate, both] = [Audience::Lead, Audience::Teammate, Audience::Both];
        assert!([lead, teammate, both].iter().all(|one| both.includes(*one) && one.includes(*one)));
        assert!(!lead.includes(teammate) && !teammate.includes(lead));
    }
}
