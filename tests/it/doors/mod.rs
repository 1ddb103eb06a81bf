//! Agents and tools of other vendors in a team.

mod acp_failures;
mod acp_mail;
mod acp_member;
