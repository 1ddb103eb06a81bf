//! The `[permissions]` of the settings: how freely agents act.

use super::environment::Environment;
use super::trust::Risks;
use super::{Layer, Setting, Source, pick};
use crate::error::{Exit, Failure};
use crate::wire::permission::{PermissionMode, Permissions, PlanApproval, RuleLists};
use serde::Deserialize;

/// Seconds after which an unanswered question counts as denied.
const PATIENCE: u64 = 300;

/// `[permissions]` of one source.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PermissionLayer {
    pub(super) mode: Option<PermissionMode>,
    allow: Option<Vec<String>>,
    ask: Option<Vec<String>>,
    deny: Option<Vec<String>>,
    timeout: Option<u64>,
    plan_approval: Option<PlanApproval>,
}

/// `[permissions]` in force.
#[derive(Debug, Clone)]
pub(crate) struct PermissionSettings {
    /// The mode.
    pub(crate) mode: Setting<PermissionMode>,
    /// What runs without asking: the rules of all sources together, as of the next two.
    pub(crate) allow: Setting<Vec<String>>,
    /// What asks in spite of that.
    pub(crate) ask: Setting<Vec<String>>,
    /// What never runs.
    pub(crate) deny: Setting<Vec<String>>,
    /// Seconds until a question counts as denied.
    pub(crate) timeout: Setting<u64>,
    /// Who decides about plans.
    pub(crate) plan_approval: Setting<PlanApproval>,
}

impl PermissionLayer {
    /// A source that says only the mode, if anything.
    pub(super) fn of_mode(mode: Option<PermissionMode>) -> Self {
        Self { mode, ..Self::default() }
    }
}

impl PermissionSettings {
    pub(super) fn of(layers: &[(Source, Layer)]) -> Self {
        let (mode, timeout) = (PermissionMode::default(), PATIENCE);
        let who = PlanApproval::default();
        Self {
            mode: pick(layers, "permissions.mode", |layer| layer.permissions.mode, mode),
            allow: together(layers, |layer| layer.allow.as_ref()),
            ask: together(layers, |layer| layer.ask.as_ref()),
            deny: together(layers, |layer| layer.deny.as_ref()),
            timeout: pick(layers, "permissions.timeout", |it| it.permissions.timeout, timeout),
            plan_approval: pick(
                layers,
                "permissions.plan_approval",
                |layer| layer.permissions.plan_approval,
                who,
            ),
        }
    }

    /// As processes hand them on.
    pub(crate) fn permissions(&self) -> Permissions {
        Permissions {
            mode: self.mode.value,
            rules: RuleLists {
                allow: self.allow.value.clone(),
                ask: self.ask.value.clone(),
                deny: self.deny.value.clone(),
            },
            timeout: self.timeout.value,
            plan_approval: self.plan_approval.value,
        }
    }
}

/// The rules of all sources; the nearest one that has any is named.
fn together(
    layers: &[(Source, Layer)],
    get: impl Fn(&PermissionLayer) -> Option<&Vec<String>>,
) -> Setting<Vec<String>> {
    let mut found = Setting { value: Vec::new(), source: Source::Default };
    for (source, layer) in layers {
        let rules = get(&layer.permissions).into_iter().flatten();
        for rule in rules {
            if found.value.is_empty() {
                found.source = source.clone();
            }
            found.value.push(rule.clone());
        }
    }
    found
}

impl PermissionLayer {
    /// What of it needs trust when it stands in a folder.
    pub(super) fn risks(&self) -> Risks {
        let mut risks = Risks::new();
        if let Some(mode) = self.mode.filter(|mode| *mode > PermissionMode::Plan) {
            risks.insert("mode".into(), mode.word().into());
        }
        if let Some(rules) = self.allow.as_ref().filter(|rules| !rules.is_empty()) {
            risks.insert("allow".into(), rules.clone().into());
        }
        risks
    }

    /// Takes out of it what is looser than `without`; gives that.
    pub(super) fn strip_untrusted(&mut self, without: PermissionMode) -> Risks {
        let mut taken = self.risks();
        if self.mode.take_if(|mode| *mode > without).is_none() {
            taken.remove("mode");
        }
        self.allow = None;
        taken
    }
}

/// `TEAM_MODE`: what the person sets in the shell is the person's word, like the flag.
pub(super) fn from_environment(environment: &Environment) -> Result<PermissionLayer, Failure> {
    let mode = environment.get("TEAM_MODE").map(|word| mode("TEAM_MODE", word)).transpose()?;
    Ok(PermissionLayer::of_mode(mode))
}

/// A mode as somebody wrote it.
///
/// # Errors
/// There is none of that name.
pub(crate) fn mode(place: &str, word: &str) -> Result<PermissionMode, Failure> {
    PermissionMode::parse(word).ok_or_else(|| {
        let modes: Vec<String> =
            PermissionMode::ALL.iter().map(|mode| format!("{mode} ({})", mode.meaning())).collect();
        Failure::new(
            Exit::Usage,
            format!("{place} {word:?} is no permission mode"),
            format!("there are: {}", modes.join(", ")),
            "give one of these, or leave it out",
        )
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::trust::{TrustList, risks_in};
    use super::super::{Flags, Settings};
    use super::*;

    const FOLDER: &str = "[permissions]\nmode = \"bypass\"\nallow = [\"bash(ls:*)\"]\n\
        deny = [\"bash(rm:*)\"]\nask = [\"read_file(secrets/**)\"]\n";

    fn load(own: &str, trusted: &[&str], flag: Option<PermissionMode>) -> Settings {
        load_both(FOLDER, own, trusted, flag)
    }

    /// The settings of a folder and the user's own.
    pub(in super::super) fn load_both(
        of_folder: &str,
        own: &str,
        trusted: &[&str],
        flag: Option<PermissionMode>,
    ) -> Settings {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().display().to_string();
        let environment = Environment::of(&[("HOME", &path)]);
        let (folder, config) = (home.path().join("work/.team"), home.path().join(".config/team"));
        for folder in [&folder, &config] {
            std::fs::create_dir_all(folder).unwrap();
        }
        #[expect(clippy::disallowed_methods, reason = "a test fixture")]
        let write = |file: std::path::PathBuf, text: &str| std::fs::write(file, text).unwrap();
        write(folder.join("settings.toml"), of_folder);
        write(config.join("settings.toml"), own);
        for place in trusted {
            let place = home.path().join(place);
            let risks = risks_in(&place.join("settings.toml")).unwrap();
            TrustList::of(&environment).add(&place, risks).unwrap();
        }
        let flags = Flags { mode: flag, ..Flags::default() };
        Settings::load(&environment, &folder.join("settings.toml"), &flags).unwrap()
    }

    #[test]
    fn a_folder_loosens_nothing_before_it_is_trusted() {
        let settings = load("", &[], None);
        assert_eq!(settings.permissions.mode.value, PermissionMode::Default);
        assert!(settings.permissions.allow.value.is_empty());
        assert_eq!(settings.permissions.deny.value, ["bash(rm:*)"]);
        assert_eq!(settings.permissions.ask.value, ["read_file(secrets/**)"]);
        let told = settings.ignored.unwrap();
        assert!(
            told.contains("bypass") && told.contains("bash(ls:*)") && told.contains("team trust")
        );
        let settings = load("", &["work/.team"], None);
        assert_eq!(settings.permissions.mode.value, PermissionMode::Bypass);
        assert_eq!(settings.permissions.allow.value, ["bash(ls:*)"]);
        assert_eq!(settings.ignored, None);
    }

    #[test]
    fn the_persons_own_word_needs_no_trust_and_lists_add_up() {
        let own = "[permissions]\nmode = \"accept_edits\"\nallow = [\"bash(cargo test:*)\"]\n";
        let settings = load(own, &[], None);
        assert_eq!(settings.permissions.mode.value, PermissionMode::AcceptEdits);
        assert_eq!(settings.permissions.allow.value, ["bash(cargo test:*)"]);
        let settings = load(own, &["work/.team"], Some(PermissionMode::Plan));
        assert_eq!(settings.permissions.mode.value, PermissionMode::Plan);
        assert_eq!(settings.permissions.allow.value, ["bash(ls:*)", "bash(cargo test:*)"]);
    }
}
