//! What is declared about one setting besides its type and default.

/// The declaration of one setting: a row of [`super::table`].
#[derive(Debug)]
pub(crate) struct SettingSpec {
    /// The dotted name in a settings file, such as `permissions.mode`.
    pub(super) key: &'static str,
    /// The lines of the documentation comment.
    pub(super) description: &'static str,
    /// Whether no environment variable sets it.
    pub(super) is_file_only: bool,
    pub(super) flag: Option<&'static str>,
    /// What `team config` shows while no value is set.
    pub(super) unset: &'static str,
    /// The value that the commented file shows when there is no default.
    pub(super) example: Option<&'static str>,
    /// The lines that the commented file shows instead of `key = value`.
    pub(super) block: Option<&'static str>,
    /// Whether 0 is refused.
    pub(super) is_positive: bool,
    /// Whether the value in a team folder's file needs `team trust`.
    pub(super) needs_trust: bool,
}

impl SettingSpec {
    /// A setting of this field name; its documentation comment is the description.
    pub(super) const fn new(field: &'static str, description: &'static str) -> Self {
        Self {
            key: field,
            description,
            is_file_only: false,
            flag: None,
            unset: "(none)",
            example: None,
            block: None,
            is_positive: false,
            needs_trust: false,
        }
    }

    /// The environment variable that sets it, if any.
    pub(super) fn variable(&self) -> Option<String> {
        let name = self.trust_key().replace('.', "_").to_uppercase();
        let is_providers_own = name.starts_with("ANTHROPIC_") || name.starts_with("OPENAI_");
        (!self.is_file_only).then(|| if is_providers_own { name } else { format!("TEAM_{name}") })
    }

    /// The name in the list of trusted settings.
    pub(super) fn trust_key(&self) -> &'static str {
        self.key.strip_prefix("permissions.").unwrap_or(self.key)
    }

    pub(super) fn description_lines(&self) -> impl Iterator<Item = &'static str> {
        self.description.lines().map(str::trim)
    }
}
