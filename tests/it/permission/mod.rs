//! Permissions: modes, rules, requests, plans, roles, hooks, and the protection of credentials.

mod approvals;
mod external_paths;
mod file_changes;
mod granted_rules;
mod hooks;
mod interrupted_requests;
mod modes_and_rules;
mod plans;
mod questions;
mod requests;
mod roles;
mod secrets;
mod settings_errors;
