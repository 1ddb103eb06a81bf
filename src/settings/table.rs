//! The table of all settings. A new setting is one row here, which determines its layers, `team config`, the
//! commented file, the manual's table and the hand-over to teammates.
//!
//! A row is the description that the files and the manual show, then a field with its type and default, then the
//! other fields of its [`SettingSpec`].

use super::agents::AgentSetting;
use super::endpoints::{BaseUrl, HeaderValue};
use super::environment::PassedNames;
use super::layers::{ConfigRow, Layers, Setting, SettingField, SettingMap, SettingSpec};
use super::mcp::McpServers;
use super::model_settings::{FallbackModels, ModelSetting};
use super::retention::RetentionLimit;
use super::sandbox::{AskInside, HiddenPaths, HostList, WritablePaths};
use super::value::{PromptProfile, TeamName};
use crate::error::Failure;
use crate::llm::registry::OpenAiApi;
use crate::wire::Fsync;
use crate::wire::RestartPolicy;
use crate::wire::budget::RunBudget;
use crate::wire::chat::Effort;
use crate::wire::hook::Hook;
use crate::wire::isolation::{CloneBase, Isolation};
use crate::wire::limits;
use crate::wire::money::{Money, Price};
use crate::wire::permission::{PermissionMode, PlanApproval};
use crate::wire::sandbox::{SandboxLevel, SandboxNetwork};
use serde::{Deserialize, Serialize};

macro_rules! settings {
    (lead { $($lead:tt)* } team { $($team:tt)* }) => {
        all_settings! { $($lead)* $($team)* }
        handed_over! { $($team)* }
    };
}

macro_rules! default {
    () => {
        Default::default()
    };
    ($default:expr) => {
        $default
    };
}

macro_rules! all_settings {
    ($($(#[doc = $doc:literal])+ $name:ident: $type:ty $(= $default:expr)?
        $(, $field:ident: $given:expr)*;)+) => {
        #[derive(Debug, Clone)]
        pub(crate) struct Settings {
            $($(#[doc = $doc])+ pub(crate) $name: $type,)+
            /// The values of the folder's file that are not in force without trust, as a sentence.
            pub(crate) ignored: Option<String>,
        }

        pub(super) mod specs {
            use crate::settings::layers::SettingSpec;
            $(
                #[expect(non_upper_case_globals, reason = "it is named as the field")]
                pub(in crate::settings) const $name: SettingSpec = SettingSpec {
                    $($field: $given,)*
                    ..SettingSpec::new(stringify!($name), concat!($($doc, "\n"),+))
                };
            )+

            pub(in crate::settings) const ALL: &[&SettingSpec] = &[$(&$name),+];
        }

        /// Reads single settings.
        pub(super) struct SettingReader;

        impl SettingReader {
            $(pub(super) fn $name(layers: &mut Layers<'_>) -> Result<$type, Failure> {
                SettingField::read(&specs::$name, default!($($default)?), layers)
            })+
        }

        impl Settings {
            /// Reads every setting. Fails with the first one that cannot be read.
            pub(super) fn read(layers: &mut Layers<'_>) -> Result<Self, Failure> {
                $(let $name = SettingReader::$name(layers)?;)+
                Ok(Self { $($name,)+ ignored: None })
            }

            /// Returns the failure of every setting that cannot be read.
            pub(super) fn failures(layers: &mut Layers<'_>) -> Vec<Failure> {
                let mut failures = Vec::new();
                $(failures.extend(SettingReader::$name(layers).err());)+
                failures
            }

            /// Returns every setting as `team config` shows it.
            pub(crate) fn rows(&self) -> Vec<ConfigRow> {
                [$(self.$name.rows(&specs::$name)),+].concat()
            }

            /// Returns every declaration with the value as TOML.
            pub(super) fn declared(&self) -> Vec<(&'static SettingSpec, Option<String>)> {
                vec![$((&specs::$name, self.$name.toml())),+]
            }
        }
    };
}

macro_rules! handed_over {
    ($($(#[doc = $doc:literal])+ $name:ident: Setting<$type:ty> $(= $default:expr)?
        $(, $field:ident: $given:expr)*;)+) => {
        /// The settings that a lead hands over to its teammates, so that the whole team keeps the same rules.
        #[derive(Debug, Clone, Copy, Serialize, Deserialize)]
        pub(crate) struct Rules {
            $($(#[doc = $doc])+ pub(crate) $name: $type,)+
            pub(crate) run: Option<RunBudget>,
        }

        impl Settings {
            /// Returns the settings that teammates take over.
            pub(crate) fn rules(&self) -> Rules {
                Rules { $($name: self.$name.value,)+ run: None }
            }

            /// The names of the settings in [`Rules`].
            #[cfg(test)]
            pub(super) const HANDED_OVER: &[&'static str] = &[$(specs::$name.key),+];
        }
    };
}

settings! {
    // Settings of the lead, or of an agent that is started by hand.
    lead {
        /// The model: `anthropic/NAME`, `openai/NAME`, `gemini/NAME`, `local` or `local/NAME` (a server on this machine),
        /// `rehearsal` (no key, no network), or `script:FILE`.
        model: Setting<Option<String>>, flag: Some("--model"), example: Some("\"rehearsal\"");

        /// The models that go on, in this order, while the model of an agent is overloaded, unreachable or gone, or the spend
        /// cap of its account is reached. The first model is tried again after `fallback_pause`. Each needs credentials. A role
        /// may have a list of its own (`fallbackModels`).
        fallback_models: Setting<FallbackModels>,
            flag: Some("--fallback-models"), example: Some("[\"openai/NAME\"]");

        /// The model that `model: sonnet` in a role file means. It is used if the lead's model is of the same
        /// provider; otherwise the teammate gets the lead's model. The same holds for the next two settings.
        model_aliases_sonnet: Setting<Option<String>> = Some("anthropic/claude-sonnet-5-5".into()),
            key: "model_aliases.sonnet";

        /// The model that `model: opus` in a role file means.
        model_aliases_opus: Setting<Option<String>> = Some("anthropic/claude-opus-5-5".into()),
            key: "model_aliases.opus";

        /// The model that `model: haiku` in a role file means.
        model_aliases_haiku: Setting<Option<String>> = Some("anthropic/claude-haiku-5-5".into()),
            key: "model_aliases.haiku";

        /// Loopback ports on which a local model server is looked for.
        local_ports: Setting<Vec<u16>> = vec![8080, 11434, 1234];

        /// The name of the team, for people; by default that of the workspace folder. A team keeps the name with
        /// which it began.
        team_name: Setting<Option<TeamName>>, is_file_only: true, unset: "(the folder's)", example: Some("\"website\"");

        /// The most teammates alive at once; four times as many may be started in one run.
        max_teammates: Setting<usize> = limits::DEFAULT_TEAMMATES;

        /// The ends of a teammate's process that are followed by a restart: `never`, `on-crash` (a crash, or
        /// the kill of a hung process), `always` (every end that was not asked for).
        restart: Setting<RestartPolicy> = RestartPolicy::OnCrash;

        /// On a host where a lead of another host has started teammates: the time without a sign of that lead after which they
        /// are ended, in seconds.
        lead_away: Setting<u64> = limits::DEFAULT_LEAD_AWAY.as_secs(), is_positive: true;

        /// Further environment variables that reach teammates and the commands of agents, besides a list that begins
        /// with `PATH`, `HOME` and the variables for proxies and certificates. A name that may hold a key is refused.
        /// A folder's names take effect only after `team trust`.
        pass_environment: Setting<PassedNames>, needs_trust: true, example: Some("[\"EDITOR\"]");

        /// The permission mode: `plan`, `default`, `accept_edits` or `bypass`. A folder's looser mode takes
        /// effect only after `team trust`.
        permissions_mode: Setting<PermissionMode> = PermissionMode::Default,
            key: "permissions.mode", flag: Some("--mode"), needs_trust: true;

        /// Rules for calls that run without a question: `tool` or `tool(pattern)`, such as
        /// `bash(cargo test:*)`, `write_file(src/**)`, `outside(/usr/include/**)`. `deny` wins, then `ask`,
        /// then `allow`, then the mode; the rules of all files apply. A folder's `allow` takes effect only
        /// after `team trust`.
        permissions_allow: Setting<Vec<String>>,
            key: "permissions.allow", is_file_only: true, needs_trust: true;

        /// Rules for calls that ask in spite of an `allow`.
        permissions_ask: Setting<Vec<String>>, key: "permissions.ask", is_file_only: true;

        /// Rules for calls that never run.
        permissions_deny: Setting<Vec<String>>, key: "permissions.deny", is_file_only: true;

        /// The time until an unanswered question counts as denied, in seconds. It does not pass while a person is at the
        /// terminal of the lead.
        permissions_timeout: Setting<u64> = limits::DEFAULT_PERMISSION_SECONDS,
            key: "permissions.timeout", is_file_only: true, is_positive: true;

        /// The reviewer of plans: `lead` (its model) or `person`.
        permissions_plan_approval: Setting<PlanApproval> = PlanApproval::Lead,
            key: "permissions.plan_approval", is_file_only: true;

        /// The walls around commands and hooks. A folder can only make them stricter without `team trust`, and a level
        /// that you set and this machine cannot keep ends the start. Take
        /// `workspace` if agents change this project: commands change files only in it and in temporary folders;
        /// `read-only` if agents review or explain: commands change files only in temporary folders;
        /// `off` if a container or virtual machine is around the team: commands can do all that you can.
        sandbox_level: Setting<SandboxLevel>,
            key: "sandbox.level", needs_trust: true;

        /// The network of walled commands: `open` if they download from anywhere, `hosts` if only from those of
        /// `sandbox.hosts`, `own` if tests start servers (a loopback that only the command sees; needs namespaces), `off`
        /// if nothing may get out. With `own` and `off`, agents fetch no pages of the web either. A folder can only make it
        /// stricter without `team trust`.
        sandbox_network: Setting<SandboxNetwork> = SandboxNetwork::Open,
            key: "sandbox.network", needs_trust: true;

        /// The hosts that walled commands reach without a question, with `sandbox.network = "hosts"`, which is the default
        /// once there are any: a name (`packages.example.com`) or all names below one (`*.example.com`), by HTTP and TLS
        /// and at public addresses only; with a port (`db.internal:5432`, `127.0.0.1:8080`) exactly that one, with any
        /// protocol. An agent asks for others. Those of all files count; a folder's only after `team trust`.
        sandbox_hosts: Setting<HostList>,
            key: "sandbox.hosts", is_file_only: true, needs_trust: true, example: Some("[\"*.example.com\"]");

        /// Further paths that walled commands may change, if builds fill a cache outside the workspace, as package
        /// managers do. Those of all files count; a folder's only after `team trust`.
        sandbox_write: Setting<WritablePaths>,
            key: "sandbox.write", is_file_only: true, needs_trust: true, example: Some("[\"~/.cargo/registry\"]");

        /// Paths that walled commands cannot read, if you keep secrets elsewhere than in the usual places, which are
        /// hidden anyway (`~/.ssh`, `~/.gnupg`, `~/.aws` and others). A trailing `*` completes a name; `!PATH` takes a
        /// path off that list, in a folder's file only after `team trust`.
        sandbox_hide: Setting<HiddenPaths>,
            key: "sandbox.hide", is_file_only: true, needs_trust: true, example: Some("[\"~/secrets\"]");

        /// Whether commands inside the walls ask as the permission mode says. With `false`, a command behind walls that
        /// all stand runs without a question in the modes `default` and `accept_edits`, unless a rule under `ask` or
        /// `deny` names it; one that is to run outside asks. A folder's `false` takes effect only after `team trust`.
        sandbox_ask_inside: Setting<AskInside> = AskInside(true),
            key: "sandbox.ask_inside", needs_trust: true;

        /// The folder that teammates work in: `shared` (the workspace), or `clone` (a clone of its repository, one for
        /// each teammate). A role or a spawn can ask for a clone, and a folder for it without `team trust`. Without git,
        /// a repository and a commit a spawn that needs a clone fails.
        isolation: Setting<Isolation> = Isolation::Shared, needs_trust: true;

        /// The files with which a clone begins: `snapshot` (those of the workspace, with changes that are not committed)
        /// or `head` (those of the last commit).
        clone_base: Setting<CloneBase> = CloneBase::Snapshot;

        /// The days since its last use for which an earlier session is kept; unset, for ever. A lead removes older ones in its
        /// first seconds, but never the last one. A folder's takes effect only after `team trust`.
        retention_sessions_days: Setting<RetentionLimit>,
            key: "retention.sessions_days", needs_trust: true, unset: "(for ever)", example: Some("365");

        /// The size of all earlier sessions together, in MiB, above which a lead removes those that were used longest ago. A
        /// folder's takes effect only after `team trust`.
        retention_sessions_mib: Setting<RetentionLimit>,
            key: "retention.sessions_mib", needs_trust: true, unset: "(any)", example: Some("2048");

        /// The address of the Messages API. A folder's takes effect only after `team trust`, since it sends
        /// conversations elsewhere. Keys belong in the environment.
        anthropic_base_url: Setting<Option<BaseUrl>>,
            key: "anthropic.base_url", unset: "(its own)",
            example: Some("\"https://api.anthropic.com\""), needs_trust: true;

        /// The header `anthropic-version`.
        anthropic_version: Setting<Option<String>>,
            key: "anthropic.version", unset: "(current)", example: Some("\"2026-10-21\"");

        /// Further headers. Those of all files are sent; those of `ANTHROPIC_CUSTOM_HEADERS` win. A folder's
        /// take effect only after `team trust`. A value is shown only if the name begins with `anthropic-`.
        anthropic_headers: SettingMap<HeaderValue>,
            key: "anthropic.headers", is_file_only: true, example: Some("{ anthropic-beta = \"NAME\" }"),
            needs_trust: true;

        /// The address of the provider, or of a server with chat completions. A folder's takes effect only after
        /// `team trust`.
        openai_base_url: Setting<Option<BaseUrl>>,
            key: "openai.base_url", unset: "(its own)", example: Some("\"https://api.openai.com/v1\""),
            needs_trust: true;

        /// The API of the models `openai/NAME`: `responses` or `chat_completions`. Unset, it is the Responses API at
        /// `api.openai.com`, and chat completions at any other address.
        openai_api: Setting<Option<OpenAiApi>>,
            key: "openai.api", unset: "(by address)", example: Some("\"chat_completions\"");

        /// Further headers, as for `anthropic.headers`; those of `OPENAI_CUSTOM_HEADERS` win.
        openai_headers: SettingMap<HeaderValue>,
            key: "openai.headers", is_file_only: true, example: Some("{ X-Gateway = \"NAME\" }"),
            needs_trust: true;

        /// The address of the Gemini API. A folder's takes effect only after `team trust`.
        gemini_base_url: Setting<Option<BaseUrl>>,
            key: "gemini.base_url", unset: "(its own)", also: Some("GOOGLE_GEMINI_BASE_URL"),
            example: Some("\"https://generativelanguage.googleapis.com\""), needs_trust: true;

        /// Further headers, as for `anthropic.headers`; those of `GEMINI_CUSTOM_HEADERS` win.
        gemini_headers: SettingMap<HeaderValue>,
            key: "gemini.headers", is_file_only: true, example: Some("{ X-Gateway = \"NAME\" }"),
            needs_trust: true;

        /// Agents of other vendors that teammates can run as `acp/NAME`, besides the known ones. `command` is the program and
        /// its arguments, `env` are variables for it, `pass` the names of variables of yours that it gets, such as that of
        /// its key, and `mode` is the mode in which it asks. A folder's take effect only after `team trust`.
        agents: SettingMap<AgentSetting>,
            is_file_only: true, needs_trust: true,
            block: Some("\
[agents.NAME]
command = [\"my-agent\", \"--acp\"]
pass = [\"MY_AGENT_KEY\"]");

        /// Your commands that run at an event: `teammate_idle`, `task_created`, `task_completed`,
        /// `message_sent`, `teammate_exited`. The event is JSON on standard input; exit code 2 refuses it. A
        /// folder's hooks run only after `team trust`.
        hooks: Setting<Vec<Hook>>,
            is_file_only: true, needs_trust: true,
            block: Some("\
[[hooks]]
event = \"task_completed\"
command = \"cargo test -q >&2 || exit 2\"
timeout = 60                # seconds");

        /// The MCP servers whose tools agents have, besides those of the workspace's `.mcp.json`: `command`, `args`, `env`,
        /// `cwd`, or `type = "http"`, `url`, `headers`; `timeout` of a call in seconds; `allow`: tools that run without a
        /// question; `agents`: the agents that have it. `${VAR}` stands for a variable. A folder's take effect only
        /// after `team trust`.
        mcp_servers: McpServers,
            key: "mcp.servers", is_file_only: true, needs_trust: true,
            block: Some("\
[mcp.servers.git]
command = \"uvx\"
args = [\"mcp-server-git\"]
allow = [\"git_status\", \"git_log\"]
agents = [\"lead\", \"reviewer\"]   # all, if left out");

        /// The size of the context of all models, in tokens, if each shall count as that large: a conversation is summarized
        /// when it is nearly full. Unset, it is what the endpoint lists or the table of the program says (`team models`).
        context_tokens: Setting<Option<u64>>,
            unset: "(by model)", is_positive: true, example: Some("200000");

        /// The facts about a model, each line instead of that of the table of the program: the sizes of its context and of
        /// its longest answer in tokens, its prices in dollars for a million tokens, and its abilities. An untrusted
        /// folder cannot change an entry of your own, nor a public price.
        models: SettingMap<ModelSetting>,
            is_file_only: true, needs_trust: true,
            block: Some("\
[models.\"openai/NAME\"]
context_tokens = 131072
answer_tokens = 32768
input = 3.0
output = 15.0
cache_read = 0.3            # as input, if left out
cache_write = 3.75          # as input, if left out
knows_patches = true        # it gets the tool apply_patch
sees_images = true");

        /// The price of a million tokens of a model, in dollars: an older form of `models`, which wins. An untrusted folder
        /// cannot change a price of your own, nor a public one.
        prices: SettingMap<Price>,
            is_file_only: true, needs_trust: true,
            block: Some("\
[prices.\"anthropic/NAME\"]
input = 3.0
output = 15.0
cache_read = 0.3            # as input, if left out
cache_write = 3.75          # as input, if left out");
    }

    // Settings of every agent: a lead hands them over to its teammates.
    team {
        /// The most model calls in one turn. A call that is repeated with the same result ends the turn at
        /// the tenth time (`bash`: only if it fails); the model is told from the third time on.
        max_rounds: Setting<u32> = limits::DEFAULT_ROUNDS, is_positive: true;

        /// The longest text of one message, in bytes.
        max_message_bytes: Setting<usize> = limits::DEFAULT_MESSAGE_BYTES, is_positive: true;

        /// The size of an inbox from which it refuses mail, in bytes.
        inbox_bytes: Setting<u64> = limits::DEFAULT_INBOX_BYTES, is_positive: true;

        /// The most tokens of one answer, with its thinking. Every model has a limit of its own.
        max_answer_tokens: Setting<u32> = limits::DEFAULT_ANSWER_TOKENS, is_positive: true;

        /// The effort of the model: `off` (no thinking), `low`, `medium` or `high`; unset, the model decides. Sent to
        /// the Messages API as `thinking` (adaptive) and `output_config.effort`, to the Responses API as
        /// `reasoning.effort`, to the Gemini API as `thinkingLevel`, or as `thinkingBudget` for Gemini 2.5, to others as
        /// `reasoning_effort`. A model that does not know it refuses the request.
        effort: Setting<Option<Effort>>, unset: "(by model)", example: Some("\"medium\"");

        /// The most tokens of thinking, for models of the Messages API and the Gemini API that need a budget instead of an
        /// effort: at least 1024 and below `max_answer_tokens`.
        thinking_tokens: Setting<Option<u32>>,
            unset: "(by model)", is_positive: true, example: Some("8192");

        /// The time after which an agent that goes on with one of `fallback_models` tries its own model again, in seconds. It
        /// doubles with each further failure, up to an hour.
        fallback_pause: Setting<u64> = limits::DEFAULT_FALLBACK_PAUSE.as_secs(), is_positive: true;

        /// The prompt that a model gets: `full`, `compact` (a short prompt, and the tools that the agent can use
        /// now, with the arguments they need), or `auto`: compact for a local model.
        prompt_profile: Setting<PromptProfile> = PromptProfile::Auto;

        /// `always`: a send that succeeded survives power loss. `never`: it survives `kill -9` only.
        fsync: Setting<Fsync> = Fsync::Always;

        /// The time without a heartbeat after which a teammate is killed as hung, in seconds; 0: never.
        hung_after: Setting<u64> = limits::DEFAULT_HUNG_AFTER.as_secs();

        /// The idle time after which the process of an agent of another vendor is ended, in seconds; 0: never. Its next mail
        /// starts it again.
        agents_sleep_after: Setting<u64> = 300, key: "agents.sleep_after";

        /// The most agents of other vendors that have a process at once, in the team; 0: any number. One with work waits for
        /// an idle one to end.
        agents_max_awake: Setting<u32> = 4, key: "agents.max_awake";

        /// The time without any sign of an agent of another vendor at work after which it is interrupted and started again, in
        /// seconds; 0: never. A call of a tool, a question and a queue count as signs, a call for 30 minutes at most.
        agents_hung_after: Setting<u64> = 300, key: "agents.hung_after";

        /// The most turns that two agents may give each other without any work in between.
        max_exchanges: Setting<u32> = limits::DEFAULT_EXCHANGES, is_positive: true;

        /// The most messages that one agent's model may send in a minute.
        max_sends: Setting<usize> = limits::DEFAULT_SENDS, is_positive: true;

        /// The most subagents that one agent lets work at the same time; further ones wait for a free place.
        max_subagents: Setting<usize> = limits::DEFAULT_SUBAGENTS, is_positive: true;

        /// The time without a call after which an MCP server of an agent ends, in seconds; it starts again at the next call.
        mcp_idle_after: Setting<u64> = limits::DEFAULT_MCP_IDLE.as_secs(), key: "mcp.idle_after", is_positive: true;

        /// Whether idle teammates take the next task of the list by themselves.
        auto_claim: Setting<bool> = false;

        /// Whether a question that comes while the window of the lead's terminal has no focus rings the bell and
        /// notifies the desktop.
        notify: Setting<bool> = true;

        /// The tokens that the team may use, in and out, the lead's included. At 80 % of a limit there is a
        /// warning, at 100 % work stops. An untrusted folder cannot raise a limit of your own; both hold for
        /// all limits below.
        budget_team_tokens: Setting<Option<u64>>,
            key: "budget.team.tokens", is_positive: true, needs_trust: true, example: Some("2_000_000");

        /// The money that the team may use, in dollars.
        budget_team_money: Setting<Option<Money>>,
            key: "budget.team.money", needs_trust: true, example: Some("20.0");

        /// The turns that the team may take.
        budget_team_turns: Setting<Option<u64>>,
            key: "budget.team.turns", is_positive: true, needs_trust: true, example: Some("400");

        /// The minutes that a lead may run.
        budget_team_minutes: Setting<Option<u64>>,
            key: "budget.team.minutes", is_positive: true, needs_trust: true, example: Some("240");

        /// The tokens that each teammate may use, in and out.
        budget_member_tokens: Setting<Option<u64>>,
            key: "budget.member.tokens", is_positive: true, needs_trust: true, example: Some("300_000");

        /// The money that each teammate may use.
        budget_member_money: Setting<Option<Money>>,
            key: "budget.member.money", needs_trust: true, example: Some("3.0");

        /// The turns that each teammate may take.
        budget_member_turns: Setting<Option<u64>>,
            key: "budget.member.turns", is_positive: true, needs_trust: true, example: Some("60");

        /// The minutes that each teammate's processes may run.
        budget_member_minutes: Setting<Option<u64>>,
            key: "budget.member.minutes", is_positive: true, needs_trust: true, example: Some("60");
    }
}
