//! Reads the settings from all layers, and decides whether a folder's file is trusted.

use super::endpoints::untrusted;
use super::environment::Environment;
use super::layers::{self, Flags, Layers, Setting, SettingsFile};
use super::mcp_json::WorkspaceServers;
use super::table::{SettingReader, Settings, specs};
use super::trust::{Risks, TrustList};
use crate::error::{Exit, Failure};
use crate::wire::chat::Effort;
use crate::wire::limits;
use crate::wire::sandbox::SandboxNetwork;
use std::path::{Path, PathBuf};

/// The settings that limit mail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MailSettings {
    pub(crate) max_message_bytes: usize,
    pub(crate) inbox_bytes: u64,
}

/// Returns the settings files, the nearest first, with their texts.
fn texts_of(
    environment: &Environment,
    folder_file: &Path,
) -> Result<Vec<(PathBuf, String)>, Failure> {
    let files = [Some(folder_file.to_owned()), Settings::user_file(environment)];
    let with_text = |file: PathBuf| {
        let text = layers::read(&file)?;
        Ok((file, text))
    };
    files.into_iter().flatten().map(with_text).collect()
}

/// Parses settings files. Returns what is understood, and a failure for everything else.
fn parsed(texts: &[(PathBuf, String)]) -> (Vec<SettingsFile<'_>>, Vec<Failure>) {
    let parsed = texts.iter().map(|(file, text)| SettingsFile::parse(file, text, specs::ALL));
    let (files, failures): (Vec<_>, Vec<Vec<_>>) = parsed.unzip();
    (files, failures.into_iter().flatten().collect())
}

impl Settings {
    /// Reads all layers. `folder_file` is the team folder's settings file. A failure names the flag, the variable,
    /// or the line of a file, and the number of further ones.
    pub(crate) fn load(
        environment: &Environment,
        folder_file: &Path,
        flags: &Flags,
    ) -> Result<Self, Failure> {
        let read = Self::read_layers(environment, folder_file, flags);
        read.map_err(|failures| {
            let more = failures.len().saturating_sub(1);
            let first = failures.into_iter().next();
            let first = first.unwrap_or_else(|| Failure::new(Exit::Usage, "no setting", "", ""));
            let more = if more == 0 { String::new() } else { format!(" (and {more} more)") };
            Failure { why: format!("{}{more}", first.why), ..first }
        })
    }

    /// Returns all errors in the settings.
    pub(crate) fn errors(
        environment: &Environment,
        folder_file: &Path,
        flags: &Flags,
    ) -> Vec<Failure> {
        Self::read_layers(environment, folder_file, flags).err().unwrap_or_default()
    }

    /// Returns the defaults, for a command that must work with any settings.
    pub(crate) fn defaults() -> Self {
        let (flags, environment) = (Flags::default(), Environment::default());
        let mut layers = Layers::new(&flags, &environment, Vec::new());
        #[expect(clippy::expect_used, reason = "a default is no text that could be misunderstood")]
        Self::read(&mut layers).expect("the defaults are valid")
    }

    fn read_layers(
        environment: &Environment,
        folder_file: &Path,
        flags: &Flags,
    ) -> Result<Self, Vec<Failure>> {
        let one = |failure| vec![failure];
        let texts = texts_of(environment, folder_file).map_err(one)?;
        let (files, mut failures) = parsed(&texts);
        let mut layers = Layers::new(flags, environment, files)
            .with_workspace_servers(WorkspaceServers::read(folder_file));
        failures.extend(Self::failures(&mut layers));
        if !failures.is_empty() {
            return Err(failures);
        }
        let settings = Self::read(&mut layers).map_err(one)?;
        if let Some(contradiction) = settings.contradiction() {
            return Err(vec![contradiction]);
        }
        let list = TrustList::of(environment);
        let is_listed = |folder: &Path| list.has(folder, &layers.risks);
        if layers.risks.is_empty() || folder_file.parent().is_some_and(is_listed) {
            return Ok(settings.with_implied());
        }
        layers.is_trusted = false;
        let settings = Self::read(&mut layers).map_err(one)?;
        let ignored = (!layers.ignored.is_empty()).then(|| untrusted(folder_file, &layers.ignored));
        Ok(Self { ignored, ..settings.with_implied() })
    }

    /// Reads the limits of mail alone; the values of other settings are not looked at. A program that only carries mail gets
    /// no code for those.
    pub(crate) fn mail_limits(
        environment: &Environment,
        folder_file: &Path,
    ) -> Result<MailSettings, Failure> {
        let texts = texts_of(environment, folder_file)?;
        let (files, failures) = parsed(&texts);
        if let Some(failure) = failures.into_iter().next() {
            return Err(failure);
        }
        let flags = Flags::default();
        let mut layers = Layers::new(&flags, environment, files);
        Ok(MailSettings {
            max_message_bytes: SettingReader::max_message_bytes(&mut layers)?.value,
            inbox_bytes: SettingReader::inbox_bytes(&mut layers)?.value,
        })
    }

    /// Returns the path of the user's own settings file.
    pub(crate) fn user_file(environment: &Environment) -> Option<PathBuf> {
        environment.config_home().map(|home| home.join("team/settings.toml"))
    }

    /// Returns the problem of settings that exclude each other, which the endpoint would refuse at every call.
    fn contradiction(&self) -> Option<Failure> {
        let Setting { value: Some(budget), source } = self.thinking_tokens.clone() else {
            return None;
        };
        let most = self.max_answer_tokens.value;
        let why = if self.effort.value == Some(Effort::Off) {
            format!("`effort` is `off` ({}), so there is no thinking", self.effort.source)
        } else if budget < limits::LEAST_THINKING_TOKENS {
            format!("the least that the API accepts is {}", limits::LEAST_THINKING_TOKENS)
        } else if budget >= most {
            let of = &self.max_answer_tokens.source;
            format!(
                "it must be below `max_answer_tokens`, which is {most} ({of}): thinking is a part"
            )
        } else {
            return None;
        };
        let what = format!("thinking_tokens = {budget} is invalid ({source})");
        Some(Failure::new(Exit::Usage, what, why, "change one of them, or leave it out"))
    }

    /// Returns the settings in a team folder's file that need trust.
    pub(crate) fn risks_in(folder_file: &Path) -> Result<Risks, Failure> {
        let text = layers::read(folder_file)?;
        let (environment, flags) = (Environment::default(), Flags::default());
        let (file, failures) = SettingsFile::parse(folder_file, &text, specs::ALL);
        if let Some(failure) = failures.into_iter().next() {
            return Err(failure);
        }
        let mut layers = Layers::new(&flags, &environment, vec![file])
            .with_workspace_servers(WorkspaceServers::read(folder_file));
        Self::read(&mut layers)?;
        Ok(layers.risks)
    }

    /// Fills in what a setting implies for another: hosts are listed by a person who wants no others to be reached.
    fn with_implied(mut self) -> Self {
        if self.sandbox_network.is_default() && !self.sandbox_hosts.value.0.is_empty() {
            let source = format!("sandbox.hosts, {}", self.sandbox_hosts.source);
            self.sandbox_network = Setting { value: SandboxNetwork::Hosts, source };
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write;

    #[test]
    fn the_limits_of_mail_are_read_though_another_value_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("settings.toml");
        let environment = Environment::of(&[("TEAM_MAX_MESSAGE_BYTES", "5")]);
        let read = |text: &str| {
            File::create(&file).unwrap().write_all(text.as_bytes()).unwrap();
            Settings::mail_limits(&environment, &file)
        };
        let of = |inbox_bytes| MailSettings { max_message_bytes: 5, inbox_bytes };
        assert_eq!(read("").unwrap(), of(limits::DEFAULT_INBOX_BYTES));
        assert_eq!(read("inbox_bytes = 70\nrestart = \"no such word\"").unwrap(), of(70));
        for bad in ["inbox_bytes = \"x\"", "inbox_bytes = 0", "inbox_bytes =", "inbox_byte = 70"] {
            assert!(read(bad).unwrap_err().to_string().contains("inbox_byte"), "{bad}");
        }
    }
}
