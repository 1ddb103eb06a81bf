//! The rules that answers of the person have made, in the user's own state folder.
//!
//! They loosen permissions, so they are outside of the workspace, as trust is: a repository that is cloned cannot contain
//! them, and agents cannot write them behind their walls. The settings of the person stay as the person wrote them.

use super::environment::Environment;
use super::trust::{folder_key, replace};
use crate::wire::WallTime;
use crate::wire::permission::{GrantedAllow, RuleScope};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::{fs, io};
use tokio::sync::Mutex;

/// A rule that an answer has made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct GrantedRule {
    /// The number by which the person takes it back. It is never used again while the file exists.
    pub(crate) number: u64,
    pub(crate) rule: String,
    pub(crate) scope: RuleScope,
    /// The agent that asked.
    pub(crate) agent: String,
    pub(crate) at: WallTime,
}

/// The rules of one folder.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct GrantedRules {
    version: u32,
    folder: String,
    /// The incarnation of the lead that wrote the file.
    pub(crate) lead: String,
    /// The incarnation in which the conversation of that lead began.
    conversation: String,
    /// The number of the last rule.
    last: u64,
    pub(crate) rules: Vec<GrantedRule>,
}

impl GrantedRules {
    /// Removes the rules that do not hold for a lead that starts now.
    fn begin(&mut self, lead: &str, conversation: &str) {
        let is_resumed = self.conversation == conversation;
        self.rules.retain(|it| match it.scope {
            RuleScope::Good => true,
            RuleScope::Team => is_resumed,
            RuleScope::Agent | RuleScope::Session => false,
        });
        (self.lead, self.conversation) = (lead.to_owned(), conversation.to_owned());
    }

    fn add(&mut self, rule: &str, scope: RuleScope, agent: &str, at: WallTime) {
        let is_known = |it: &GrantedRule| {
            (it.rule.as_str(), it.scope) == (rule, scope)
                && (scope != RuleScope::Agent || it.agent == agent)
        };
        if self.rules.iter().any(is_known) {
            return;
        }
        self.last += 1;
        let (number, rule, agent) = (self.last, rule.to_owned(), agent.to_owned());
        self.rules.push(GrantedRule { number, rule, scope, agent, at });
    }

    /// Removes the rules with these numbers, and returns them.
    pub(crate) fn revoke(&mut self, numbers: &[u64]) -> Vec<GrantedRule> {
        let is_revoked = |it: &GrantedRule| numbers.contains(&it.number);
        let (gone, rest) = std::mem::take(&mut self.rules).into_iter().partition(is_revoked);
        self.rules = rest;
        gone
    }

    /// Returns the rules for the processes of agents.
    pub(crate) fn allows(&self) -> Vec<GrantedAllow> {
        let allow = |it: &GrantedRule| {
            let agent = (it.scope == RuleScope::Agent).then(|| it.agent.clone());
            GrantedAllow { rule: it.rule.clone(), agent }
        };
        self.rules.iter().map(allow).collect()
    }
}

/// The file with the rules of one folder.
#[derive(Debug, Clone)]
pub(crate) struct GrantedFile {
    file: Option<PathBuf>,
    folder: String,
}

impl GrantedFile {
    /// Names the file of a team folder; there is none without `HOME` and `XDG_STATE_HOME`.
    pub(crate) fn of(environment: &Environment, folder: &Path) -> Self {
        let folder = folder_key(folder).unwrap_or_default();
        let mut hasher = DefaultHasher::new();
        folder.hash(&mut hasher);
        let name = format!("team/rules/{:016x}.json", hasher.finish());
        let file = environment.state_home().filter(|_| !folder.is_empty());
        Self { file: file.map(|home| home.join(name)), folder }
    }

    /// Reads the rules. A missing file, or one of another folder, has none.
    pub(crate) fn read(&self) -> GrantedRules {
        let text = self.file.as_ref().and_then(|file| fs::read_to_string(file).ok());
        let known = text.and_then(|text| serde_json::from_str(&text).ok());
        known.filter(|it: &GrantedRules| it.folder == self.folder).unwrap_or_default()
    }

    /// Returns the rules that hold for every team in the folder.
    pub(crate) fn for_good(&self) -> GrantedRules {
        let mut known = self.read();
        known.rules.retain(|it| it.scope == RuleScope::Good);
        known
    }

    /// Replaces the file. Fails if it cannot be written.
    pub(crate) fn write(&self, rules: &GrantedRules) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let rules = GrantedRules { version: 1, folder: self.folder.clone(), ..rules.clone() };
        replace(file, &serde_json::to_string_pretty(&rules)?)
    }

    /// Whether there is a place for the file.
    pub(crate) fn is_kept(&self) -> bool {
        self.file.is_some()
    }
}

/// The rules in force in a running lead.
#[derive(Debug)]
pub(crate) struct RulesOfLead {
    pub(crate) file: GrantedFile,
    rules: RefCell<GrantedRules>,
    /// Held while the file is written.
    pub(crate) writing: Mutex<()>,
}

impl RulesOfLead {
    /// Reads the rules that hold for this lead, whose conversation began in the incarnation `conversation`.
    pub(crate) fn of(file: GrantedFile, lead: &str, conversation: &str) -> Self {
        let mut rules = file.read();
        rules.begin(lead, conversation);
        Self { file, rules: RefCell::new(rules), writing: Mutex::default() }
    }

    pub(crate) fn now(&self) -> GrantedRules {
        self.rules.borrow().clone()
    }

    pub(crate) fn add(&self, rules: &[String], scope: RuleScope, agent: &str, at: WallTime) {
        let mut known = self.rules.borrow_mut();
        for rule in rules {
            known.add(rule, scope, agent, at);
        }
    }

    pub(crate) fn revoke(&self, numbers: &[u64]) -> Vec<GrantedRule> {
        self.rules.borrow_mut().revoke(numbers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_decides_which_lead_still_has_the_rule() {
        let home = tempfile::tempdir().unwrap();
        let environment = Environment::of(&[("HOME", home.path().to_str().unwrap())]);
        let [here, there] = ["here", "there"].map(|name| home.path().join(name));
        for folder in [&here, &there] {
            fs::create_dir(folder).unwrap();
        }
        let file = GrantedFile::of(&environment, &here);
        let lead = RulesOfLead::of(file.clone(), "one", "one");
        for scope in RuleScope::ALL {
            let rule = [format!("bash({})", scope.word())];
            lead.add(&rule, scope, "alice", 5.0.into());
            lead.add(&rule, scope, "alice", 6.0.into());
        }
        lead.file.write(&lead.now()).unwrap();
        let left = |lead: &str, conversation: &str| -> Vec<u64> {
            let rules = RulesOfLead::of(file.clone(), lead, conversation).now().rules;
            rules.iter().map(|it| it.number).collect()
        };
        assert_eq!(left("two", "one"), [3, 4], "resumed");
        assert_eq!(left("two", "two"), [4]);
        assert_eq!(file.for_good().rules.len(), 1);
        assert_eq!(GrantedFile::of(&environment, &there).read(), GrantedRules::default());
        let allows = lead.now().allows();
        assert_eq!(allows[0].agent.as_deref(), Some("alice"));
        assert!(allows[1..].iter().all(|it| it.agent.is_none()), "{allows:?}");
        assert_eq!(lead.revoke(&[2, 9]).len(), 1);
        lead.add(&["bash(new)".to_owned()], RuleScope::Good, "bob", 7.0.into());
        let numbers: Vec<u64> = lead.now().rules.iter().map(|it| it.number).collect();
        assert_eq!(numbers, [1, 3, 4, 5], "a number is used once");
        assert!(!GrantedFile::of(&Environment::default(), &here).is_kept());
    }
}
