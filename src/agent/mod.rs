//! Agents. A [`conversation`] runs a model with tools and a transcript. A [`member`] adds what the team needs:
//! mail, roster, approvals, budget, heartbeat, tasks, shutdown. The lead is a member too.
//!
//! Each input of a member is an [`Event`](event::Event) on one channel. Its event loop is `receive -> step ->
//! perform`. The state machines decide and are pure; the other parts perform the actions.
//!
//! *Invariant:* the state of a member can be rebuilt from its transcript and its inbox alone.

pub(crate) mod approval;
pub(crate) mod budget;
pub(crate) mod conversation;
pub(crate) mod event;
pub(crate) mod foreign;
pub(crate) mod heartbeat;
pub(crate) mod identity;
mod idle_check;
mod interrupt;
mod machine;
pub(crate) mod mail_ingest;
pub(crate) mod mail_watcher;
mod member;
mod member_host;
pub(crate) mod model_chain;
pub(crate) mod progress;
pub(crate) mod prompt;
pub(crate) mod reminders;
pub(crate) mod replay;
mod reports;
mod role;
pub(crate) mod saving;
mod situation;
pub(crate) mod status;
pub(crate) mod subagent;
mod task_claimer;
mod unsealed_mail;
mod urgent_mail;

pub(crate) use event::Events;
pub(crate) use member::{Agent, Finished, MemberStart, run, without_older_mail};
