//! The kinds of messages, each with its word, its handling, and its own fields.

use crate::wire::WallTime;
use crate::wire::words::words;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The handling of a kind of message by the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handling {
    /// The text is for the recipient's model, and starts a turn.
    Data,
    /// The recipient's program acts on it, and its model gets it, too.
    Control,
    /// Like [`Handling::Control`], and it starts a turn.
    WakingControl,
    /// Only the recipient's program acts on it; it is never sent to the model.
    ProgramOnly,
}

/// Declares [`Body`], [`KINDS`] and all that depends on the kind alone, so that a kind is one row. A field after
/// `optional` may be missing, and is an [`Option`].
macro_rules! kinds {
    ($(
        $(#[$doc:meta])*
        $variant:ident = $word:literal, $handling:ident { $($fields:tt)* }
        $(, optional { $( $(#[$about:meta])* $option:ident: $type:ty, )* } )?
    )*) => {
        /// The content of a message beside the common fields (SPEC 3.1).
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "type", rename_all = "snake_case")]
        pub enum Body {
            $( $(#[$doc])* $variant {
                $($fields)*
                $( $(
                    $(#[$about])*
                    #[serde(default, skip_serializing_if = "Option::is_none")]
                    $option: Option<$type>,
                )* )?
            }, )*
            /// A `type` that this version does not know, or a known one whose fields do not fit; delivered as data.
            #[serde(skip)]
            Unknown {
                /// The `type` of the line.
                kind: String,
            },
        }

        /// Every `type` of this version.
        pub const KINDS: &[&str] = &[$($word),*];

        impl Body {
            /// Returns the word in `type`.
            pub fn kind(&self) -> &str {
                match self {
                    $( Self::$variant { .. } => $word, )*
                    Self::Unknown { kind } => kind,
                }
            }

            fn handling(&self) -> Handling {
                match self {
                    $( Self::$variant { .. } => Handling::$handling, )*
                    Self::Unknown { .. } => Handling::Data,
                }
            }
        }
    };
}

kinds! {
    /// Text.
    Message = "message", Data {}, optional {
        /// A short form for views.
        summary: String,
    }
    /// The same text to every member but the sender.
    Broadcast = "broadcast", Data {}
    /// The last text of a finished turn.
    Result = "result", Data {
        /// The outcome of the turn.
        outcome: Outcome,
    }
    /// A change of a teammate's state, for the lead's program.
    IdleNotification = "idle_notification", ProgramOnly {
        /// The reason for the idle state.
        reason: IdleReason,
    }
    /// Asks a teammate to exit gracefully.
    ShutdownRequest = "shutdown_request", Control {}, optional {
        /// The reason, in words.
        reason: String,
        /// The time of the next rung of the shutdown ladder.
        deadline: WallTime,
    }
    /// Answers a shutdown request.
    ShutdownResponse = "shutdown_response", Control {
        /// Whether the teammate agrees.
        #[serde(alias = "approved")]
        approve: bool,
    }, optional {
        /// The reason for the answer.
        reason: String,
    }
    /// Asks a teammate to end its running turn; its process goes on.
    InterruptRequest = "interrupt_request", ProgramOnly {}, optional {
        /// The reason, in words.
        reason: String,
    }
    /// Asks for approval of a plan. Starts a turn unless a person decides on it.
    PlanApprovalRequest = "plan_approval_request", Control {
        /// The plan.
        plan: String,
    }, optional {
        /// `user` if a person decides; the lead's model decides when the field is absent.
        decider: String,
    }
    /// Answers a plan approval request.
    PlanApprovalResponse = "plan_approval_response", ProgramOnly {
        /// Whether the plan is approved.
        #[serde(alias = "approved")]
        approve: bool,
    }, optional {
        /// The changes that are asked for.
        feedback: String,
        /// The permission mode in which the teammate continues.
        mode: String,
    }
    /// Asks for permission to run a tool call.
    PermissionRequest = "permission_request", ProgramOnly {
        /// The name of the tool.
        tool: String,
        /// The arguments of the call.
        input: Value,
        /// The effect of the call, in words.
        description: String,
    }, optional {
        /// The subagent that asks, as `CALLER:NUMBER`.
        subagent: String,
    }
    /// Answers a permission request.
    PermissionResponse = "permission_response", ProgramOnly {
        /// Whether the call may run.
        #[serde(alias = "approved")]
        approve: bool,
        /// The time for which the answer holds.
        #[serde(default)]
        scope: Scope,
    }, optional {
        /// The reason for the answer.
        reason: String,
        /// `program` if nobody could be asked.
        decider: String,
        /// The agents and the time for which `always` holds: a word of [`crate::wire::permission::RuleScope`].
        rule_scope: String,
        /// Arguments that replace those of the call.
        updated_input: Value,
    }
    /// Sends the rules of an "always" answer to every member, or takes rules of such answers back.
    PermissionUpdate = "permission_update", ProgramOnly {
        /// The rules.
        rules: Value,
    }, optional {
        /// Rules of earlier answers that no longer hold.
        removed: Value,
        /// The numbers of the rules that the person takes back; from `user` to the lead.
        revoked: Vec<u64>,
    }
    /// Changes the permission mode of a teammate.
    ModeSetRequest = "mode_set_request", ProgramOnly {
        /// The new mode.
        mode: String,
    }
    /// Asks for permission to leave the workspace or the sandbox.
    SandboxPermissionRequest = "sandbox_permission_request", ProgramOnly {}, optional {
        /// The host to reach.
        host: String,
        /// The path to open.
        path: String,
        /// The name of the tool.
        tool: String,
        /// The arguments of the call.
        input: Value,
        /// The subagent that asks, as `CALLER:NUMBER`.
        subagent: String,
    }
    /// Answers a sandbox permission request.
    SandboxPermissionResponse = "sandbox_permission_response", ProgramOnly {
        /// Whether the call may run.
        #[serde(alias = "approved")]
        approve: bool,
        /// The time for which the answer holds.
        #[serde(default)]
        scope: Scope,
    }, optional {
        /// The reason for the answer.
        reason: String,
        /// `program` if nobody could be asked.
        decider: String,
        /// The agents and the time for which `always` holds: a word of [`crate::wire::permission::RuleScope`].
        rule_scope: String,
        /// Arguments that replace those of the call.
        updated_input: Value,
    }
    /// Assigns a task to its new owner.
    TaskAssignment = "task_assignment", Data {
        /// The id of the task.
        task_id: String,
        /// The title of the task.
        subject: String,
        /// The work to do.
        description: String,
        /// The name of the assigner.
        assigned_by: String,
        /// The tasks that must be completed first.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        blocked_by: Vec<String>,
    }
    /// Orders a teammate in the name of the user; the lead's program starts it.
    SpawnRequest = "spawn_request", ProgramOnly {
        /// The name of the teammate.
        name: String,
        /// Its role.
        role: String,
        /// Its first task.
        prompt: String,
    }, optional {
        /// A model other than the lead's, as `provider/name`.
        model: String,
        /// A stricter permission mode than the lead's.
        mode: String,
        /// The folder that it works in: `shared` or `clone`.
        isolation: String,
    }
    /// Answers a spawn request.
    SpawnResponse = "spawn_response", ProgramOnly {
        /// Whether the teammate has its first task.
        approve: bool,
    }, optional {
        /// The result, or the reason for which it was not started, in words.
        reason: String,
    }
    /// Tells the lead that a teammate's process has ended.
    TeammateTerminated = "teammate_terminated", WakingControl {
        /// The name of the teammate.
        name: String,
        /// The cause, a word of [`crate::wire::roster::ExitCause`].
        cause: String,
        /// The exit status for people: "exit 1", "signal 9".
        exit: String,
    }
}

words! {
    /// The outcome of a turn.
    pub enum Outcome {
        /// The model finished.
        Done = "done",
        /// An error ended the turn.
        Failed = "failed",
        /// A person, a signal or the shutdown ladder ended the turn.
        Interrupted = "interrupted",
    }
}

/// The reason for which a member is idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IdleReason {
    /// The turn is over.
    Available,
    /// The turn was interrupted.
    Interrupted,
    /// The turn failed.
    Failed,
}

/// The time for which a permission holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// For this call.
    #[default]
    Once,
    /// Until the process ends.
    Session,
    /// From now on.
    Always,
}

impl Body {
    /// Returns a plain message.
    pub fn text() -> Self {
        Self::Message { summary: None }
    }

    /// Whether the message starts a turn of the recipient's model.
    pub fn wakes(&self) -> bool {
        // The model cannot decide on a plan that a person reviews.
        if let Self::PlanApprovalRequest { decider, .. } = self {
            return decider.as_deref() != Some("user");
        }
        matches!(self.handling(), Handling::Data | Handling::WakingControl)
    }

    /// Whether it is a control message, which may use the reserve of a full inbox and reaches a stopping member.
    pub fn is_control(&self) -> bool {
        self.handling() != Handling::Data
    }

    /// Whether it says that a member rests or ends, which is no news once the team has ended.
    pub fn is_farewell(&self) -> bool {
        matches!(
            self,
            Self::ShutdownResponse { .. }
                | Self::TeammateTerminated { .. }
                | Self::IdleNotification { .. }
        )
    }

    /// Whether the recipient's program acts on it in the name of its sender, so that it counts only with a seal.
    pub fn needs_seal(&self) -> bool {
        match self {
            Self::ShutdownRequest { .. }
            | Self::ShutdownResponse { .. }
            | Self::InterruptRequest { .. }
            | Self::PlanApprovalRequest { .. }
            | Self::PlanApprovalResponse { .. }
            | Self::PermissionRequest { .. }
            | Self::PermissionResponse { .. }
            | Self::PermissionUpdate { .. }
            | Self::ModeSetRequest { .. }
            | Self::SandboxPermissionRequest { .. }
            | Self::SandboxPermissionResponse { .. }
            | Self::SpawnRequest { .. } => true,
            Self::Message { .. }
            | Self::Broadcast {}
            | Self::Result { .. }
            | Self::IdleNotification { .. }
            | Self::TaskAssignment { .. }
            | Self::SpawnResponse { .. }
            | Self::TeammateTerminated { .. }
            | Self::Unknown { .. } => false,
        }
    }

    /// Whether it is traffic between the programs, which views for people leave out unless they are asked for it.
    pub fn is_protocol(&self) -> bool {
        matches!(self.handling(), Handling::Control | Handling::ProgramOnly)
    }

    /// Whether it is never sent to the model, which learns of a permission by the result of the call that waited.
    pub fn is_for_program(&self) -> bool {
        self.handling() == Handling::ProgramOnly
    }
}
