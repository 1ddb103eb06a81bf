//! Permissions: modes, rules, questions, plans, roles, hooks, and what credentials may reach.

mod approvals;
mod external_paths;
mod hooks;
mod interrupted_requests;
mod modes_and_rules;
mod plans;
mod roles;
mod secrets;
