//! The rules that answers of the person make: granted, listed, and taken back in all running agents.

use super::runtime::LeadRuntime;
use crate::agent::event::ApprovalEvent;
use crate::os::spawn::spawn_local;
use crate::os::{Clock, SystemClock};
use crate::protocol::permission::Policy;
use crate::settings::granted::GrantedRule;
use crate::store::asynchronous::offload;
use crate::wire::AgentName;
use crate::wire::message::{Body, Message};
use crate::wire::permission::{PermissionMode, RuleLists, RuleScope};
use serde_json::{Map, Value, json};

fn allow(rules: Vec<String>) -> RuleLists {
    RuleLists { allow: rules, ..RuleLists::default() }
}

impl LeadRuntime {
    /// Adds rules for an answer to a question of `owner`, in this process, in the running teammates that the scope
    /// covers, and for those that start later. Fails with a text for the person if a rule is not understood, or is not
    /// kept for good.
    pub(super) async fn grant(
        &self,
        owner: &AgentName,
        scope: RuleScope,
        rules: &[String],
    ) -> Result<(), String> {
        let lists = allow(rules.to_vec());
        // A question may name an unknown tool; a member that starts with a rule for it would fail.
        Policy::new(PermissionMode::Default, &lists).map_err(|why| why.to_string())?;
        self.rules.add(rules, scope, owner.as_str(), SystemClock.now());
        self.supervisor.set_granted(self.rules.now().allows());
        // The agent that asked makes its own rule of the answer.
        if scope != RuleScope::Agent {
            self.send(ApprovalEvent::AddRules(lists.clone()).into());
            let update =
                Body::PermissionUpdate { rules: json!(lists), removed: None, revoked: None };
            self.approval_queue.fan_out(update, |_, _| true).await;
        }
        self.keep().await?;
        if scope == RuleScope::Good && !self.rules.file.is_kept() {
            return Err(
                "the rule holds until the lead ends: neither HOME nor XDG_STATE_HOME is set".into(),
            );
        }
        Ok(())
    }

    /// Takes rules back: their calls ask again, in every running agent. Returns the rules that were in force.
    pub(super) async fn revoke(&self, numbers: &[u64]) -> Vec<GrantedRule> {
        let gone = self.rules.revoke(numbers);
        if gone.is_empty() {
            return gone;
        }
        let left = self.rules.now().allows();
        self.supervisor.set_granted(left.clone());
        // The same rule may have been granted twice: for one agent, and for all.
        let still_holds = |rule: &str, agent: &str| {
            left.iter()
                .any(|it| it.rule == rule && it.agent.as_deref().is_none_or(|only| only == agent))
        };
        let no_longer = |agent: &str| -> Vec<String> {
            let rules = gone.iter().map(|it| it.rule.clone());
            rules.filter(|rule| !still_holds(rule, agent)).collect()
        };
        self.send(ApprovalEvent::RevokeRules(no_longer(AgentName::lead().as_str())).into());
        for name in self.member_names() {
            let removed = no_longer(&name);
            if !removed.is_empty() {
                let update = Body::PermissionUpdate {
                    rules: json!(RuleLists::default()),
                    removed: Some(json!(allow(removed))),
                    revoked: None,
                };
                self.approval_queue.fan_out(update, |member, _| member == name).await;
            }
        }
        if let Err(why) = self.keep().await {
            tracing::warn!(
                why,
                "revoked rules could not be removed: the next lead uses them again"
            );
        }
        let rules: Vec<&str> = gone.iter().map(|it| it.rule.as_str()).collect();
        tracing::info!(rules = rules.join(", "), "the user revoked rules");
        gone
    }

    /// Takes back the rules that a message of the person names.
    pub(super) fn revoke_by_mail(&self, message: &Message) {
        let Body::PermissionUpdate { revoked: Some(numbers), .. } = &message.body else { return };
        let is_bound = message.is_verified()
            && message.from == AgentName::user().as_str()
            && message.request_id.is_some()
            && message.incarnation.as_deref() == Some(self.incarnation.as_str());
        if !is_bound {
            tracing::warn!(
                from = message.from,
                "rules were not revoked: the request is not the user's"
            );
            return;
        }
        // A number means one rule for ever, so a message that comes twice has one effect.
        let (runtime, numbers) = (self.clone(), numbers.clone());
        spawn_local(async move { runtime.revoke(&numbers).await });
    }

    /// Searches mail that the lead has not drained yet, as a turn delays the drain, for rules to take back.
    pub(super) fn search_revocations(&self) {
        let mut found = Vec::new();
        let mut unread = self.unread_mail.borrow_mut();
        let read = unread.fresh().and_then(|mut fresh| {
            while let Some(line) = fresh.next_line()? {
                found.extend(self.revocation_in(line));
            }
            Ok(())
        });
        drop(unread);
        if let Err(why) = read {
            tracing::warn!(%why, "undrained mail was not searched");
        }
        for message in &found {
            self.revoke_by_mail(message);
        }
    }

    fn revocation_in(&self, line: &[u8]) -> Option<Message> {
        let text = str::from_utf8(line).ok()?.trim();
        if !text.contains("permission_update") {
            return None;
        }
        let object: Map<String, Value> = serde_json::from_str(text).ok()?;
        let mut message = Message::read(&object).ok()?;
        message.verification = self.bus.keyring().verify(&message, text);
        message.is_verified().then_some(message)
    }

    fn member_names(&self) -> Vec<String> {
        let roster = crate::store::roster::read(self.team()).unwrap_or_default();
        roster.members.iter().map(|member| member.name.clone()).collect()
    }

    /// Writes the rules, for later leads and for `team permissions`.
    pub(super) async fn keep(&self) -> Result<(), String> {
        // Two answers at once must not write the same file at once, and the later rules must stay.
        let _writing = self.rules.writing.lock().await;
        let (file, rules) = (self.rules.file.clone(), self.rules.now());
        let written = offload(move || file.write(&rules)).await;
        written.map_err(|why| format!("the rules are not kept: {why}"))
    }
}
