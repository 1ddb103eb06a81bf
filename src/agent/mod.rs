//! Agents. A [`conversation`] runs a model with tools and a transcript; a [`member`] makes it a member of
//! the team: mail, roster, approvals, budget, heartbeat, tasks, shutdown. The lead is a member too.
//!
//! Everything that happens to a member becomes an [`Event`](event::Event) on one channel; its loop is
//! `receive -> step -> perform`. The machines decide and are pure; the parts perform.
//!
//! *Invariant:* the state of a member can be rebuilt from its transcript and its inbox alone.

pub(crate) mod approval;
pub(crate) mod budget;
pub(crate) mod conversation;
pub(crate) mod event;
pub(crate) mod heartbeat;
pub(crate) mod identity;
mod machine;
mod mail_intake;
pub(crate) mod mail_watcher;
mod member;
mod member_host;
pub(crate) mod progress;
pub(crate) mod prompt;
mod reports;
mod role;
mod situation;
pub(crate) mod status;
mod task_claimer;

pub(crate) use event::Events;
pub(crate) use member::{Agent, Finished, run};
