//! Completion of what is being typed: commands with their descriptions, their arguments, members and files.

/// The most candidates that are offered at once.
const OFFERED: usize = 8;

/// The kind of the first argument of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ArgumentKind {
    None,
    /// The name of a member.
    Member,
    /// A permission mode.
    Mode,
    /// Other text, which is not completed.
    Text,
}

/// A command that begins with a slash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlashCommand {
    /// The command with its slash.
    pub(crate) name: &'static str,
    /// The arguments, as they are shown; empty without any.
    pub(crate) usage: &'static str,
    pub(crate) about: &'static str,
    pub(crate) argument: ArgumentKind,
}

/// The words that can complete a line.
#[derive(Debug, Clone, Default)]
pub(super) struct Vocabulary {
    pub(super) commands: &'static [SlashCommand],
    pub(super) modes: Vec<&'static str>,
    pub(super) members: Vec<String>,
    /// The files of the workspace, as relative paths.
    pub(super) files: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Candidate {
    /// The word that replaces the one that is being typed.
    pub(super) word: String,
    pub(super) about: String,
}

/// The candidates for the word before the cursor.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Menu {
    /// The number of characters before the cursor that a candidate replaces.
    pub(super) typed: usize,
    pub(super) candidates: Vec<Candidate>,
    /// The candidate that the person has moved to.
    pub(super) selected: Option<usize>,
}

impl Menu {
    /// Returns the menu for the text of a line up to the cursor; `is_first_line` tells whether a command can begin
    /// there. Without candidates there is no menu.
    pub(super) fn of(line: &str, is_first_line: bool, words: &Vocabulary) -> Option<Self> {
        let start = line.rfind(char::is_whitespace).map_or(0, |at| at + 1);
        let word = line.get(start..).unwrap_or_default();
        let before = line.get(..start).unwrap_or_default().trim_end();
        let candidates = if is_first_line && start == 0 && word.starts_with('/') {
            commands(word, words)
        } else if let Some(name) = word.strip_prefix('@') {
            mentions(name, words)
        } else if is_first_line && before.starts_with('/') {
            arguments(before, word, words)
        } else {
            Vec::new()
        };
        let is_done = candidates.len() == 1 && candidates.iter().all(|it| it.word == word);
        let menu = Self { typed: word.chars().count(), candidates, selected: None };
        (!menu.candidates.is_empty() && !is_done).then_some(menu)
    }

    /// Moves the selection by one, around the ends.
    pub(super) fn select(&mut self, forward: bool) {
        let last = self.candidates.len().saturating_sub(1);
        self.selected = Some(match (self.selected, forward) {
            (None, true) => 0,
            (Some(at), true) if at >= last => 0,
            (Some(at), true) => at + 1,
            (None | Some(0), false) => last,
            (Some(at), false) => at - 1,
        });
    }

    pub(super) fn selected(&self) -> Option<&Candidate> {
        self.candidates.get(self.selected?)
    }
}

fn candidate(word: impl Into<String>, about: &str) -> Candidate {
    Candidate { word: word.into(), about: about.into() }
}

fn commands(typed: &str, words: &Vocabulary) -> Vec<Candidate> {
    let lower = typed.to_lowercase();
    let fits = words.commands.iter().filter(|command| command.name.starts_with(&lower));
    fits.map(|command| candidate(command.name, command.about)).collect()
}

fn mentions(typed: &str, words: &Vocabulary) -> Vec<Candidate> {
    let members = words.members.iter().filter(|name| name.starts_with(typed));
    let members = members.map(|name| candidate(format!("@{name}"), "teammate"));
    let lower = typed.to_lowercase();
    let is_near = |path: &&String| path.to_lowercase().contains(&lower);
    let near = words.files.iter().filter(is_near);
    let far = words.files.iter().filter(|path| {
        !is_near(path) && !lower.is_empty() && is_subsequence(&lower, &path.to_lowercase())
    });
    let files = near.chain(far).map(|path| candidate(format!("@{path}"), ""));
    members.chain(files).take(OFFERED).collect()
}

/// Whether the characters of `part` occur in `whole` in the same order.
fn is_subsequence(part: &str, whole: &str) -> bool {
    let mut rest = whole.chars();
    part.chars().all(|c| rest.any(|other| other == c))
}

fn arguments(command: &str, typed: &str, words: &Vocabulary) -> Vec<Candidate> {
    let known = words.commands.iter().find(|known| known.name == command);
    let fits = |word: &str| word.starts_with(typed) && word != typed;
    match known.map(|known| known.argument) {
        Some(ArgumentKind::Member) => {
            let members = words.members.iter().filter(|name| fits(name));
            members.map(|name| candidate(name, "teammate")).take(OFFERED).collect()
        }
        Some(ArgumentKind::Mode) => {
            let modes = words.modes.iter().filter(|mode| fits(mode));
            modes.map(|mode| candidate(*mode, "")).collect()
        }
        Some(ArgumentKind::None | ArgumentKind::Text) | None => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMANDS: [SlashCommand; 3] = [
        SlashCommand {
            name: "/mode",
            usage: "MODE",
            about: "the mode",
            argument: ArgumentKind::Mode,
        },
        SlashCommand {
            name: "/stop",
            usage: "NAME",
            about: "ends",
            argument: ArgumentKind::Member,
        },
        SlashCommand { name: "/stats", usage: "", about: "numbers", argument: ArgumentKind::None },
    ];

    fn words() -> Vocabulary {
        Vocabulary {
            commands: &COMMANDS,
            modes: vec!["default", "plan"],
            members: vec!["alice".into(), "bob".into()],
            files: vec!["README.md".into(), "src/main.rs".into(), "src/lib.rs".into()],
        }
    }

    #[test]
    fn words_complete_by_their_place() {
        let cases: [(&str, &[&str]); 14] = [
            ("/", &["/mode", "/stop", "/stats"]),
            ("/ST", &["/stop", "/stats"]),
            ("/stop", &[]),
            ("/stop ", &["alice", "bob"]),
            ("/stop b", &["bob"]),
            ("/stop bob", &[]),
            ("/mode p", &["plan"]),
            ("/stats ", &[]),
            ("say /st", &[]),
            ("@a", &["@alice", "@README.md", "@src/main.rs"]),
            ("look at @main", &["@src/main.rs"]),
            ("look at @slb", &["@src/lib.rs"]),
            ("bob", &[]),
            ("", &[]),
        ];
        for (typed, wanted) in cases {
            let menu = Menu::of(typed, true, &words());
            let shown = menu.map(|menu| menu.candidates).unwrap_or_default();
            let shown: Vec<&str> = shown.iter().map(|it| it.word.as_str()).collect();
            assert_eq!(shown, wanted, "{typed}");
        }
        assert_eq!(Menu::of("/st", false, &words()), None);
    }

    #[test]
    fn the_selection_goes_around() {
        let mut menu = Menu::of("/st", true, &words()).unwrap();
        assert_eq!(menu.selected(), None);
        menu.select(false);
        assert_eq!(menu.selected().unwrap().word, "/stats");
        menu.select(true);
        assert_eq!(menu.selected().unwrap().word, "/stop");
    }
}
