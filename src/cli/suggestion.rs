//! The suggestion for a mistyped flag or verb: the nearest one by the mistakes of typing. That of clap compares letters, and
//! prefers a word that is shorter to one with two letters swapped.

use crate::wire::nearest::nearest;
use clap::Command;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use std::ffi::OsString;

/// Puts the nearest flag or verb into an error about a wrong one. An error without a near one stays as it is. `words` is the
/// command line.
pub(super) fn suggest_nearest(error: &mut Error, mut command: Command, words: &[OsString]) {
    command.build();
    let words = words.iter().skip(1).filter_map(|word| word.to_str());
    let used =
        words.fold(&command, |command, word| command.find_subcommand(word).unwrap_or(command));
    let typed = |kind| {
        let Some(ContextValue::String(typed)) = error.get(kind) else { return None };
        Some(typed.clone())
    };
    if error.kind() == ErrorKind::UnknownArgument {
        let Some(typed) = typed(ContextKind::InvalidArg) else { return };
        let shown = used.get_arguments().filter(|argument| !argument.is_hide_set());
        let flags: Vec<&str> = shown.filter_map(|argument| argument.get_long()).collect();
        let near = typed.strip_prefix("--").and_then(|flag| nearest(flag, flags));
        if let Some(flag) = near {
            error.insert(ContextKind::SuggestedArg, ContextValue::String(format!("--{flag}")));
        }
    } else if error.kind() == ErrorKind::InvalidSubcommand {
        let Some(typed) = typed(ContextKind::InvalidSubcommand) else { return };
        let shown = used.get_subcommands().filter(|verb| !verb.is_hide_set());
        let verbs: Vec<&str> = shown.map(Command::get_name).collect();
        if let Some(verb) = nearest(&typed, verbs) {
            let verbs = ContextValue::Strings(vec![verb.into()]);
            error.insert(ContextKind::SuggestedSubcommand, verbs);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Arguments;
    use super::*;
    use clap::{CommandFactory, Parser};

    fn error(line: &str) -> String {
        let words: Vec<OsString> = line.split(' ').map(Into::into).collect();
        let mut error = Arguments::try_parse_from(&words).unwrap_err();
        suggest_nearest(&mut error, Arguments::command(), &words);
        error.to_string()
    }

    #[test]
    fn the_nearest_flag_or_verb_is_suggested() {
        for (line, tip) in [
            ("team acp --modle x", "a similar argument exists: '--model'"),
            ("team acp --mde plan", "a similar argument exists: '--mode'"),
            ("team ls --jsno", "a similar argument exists: '--json'"),
            ("team leed", "a similar subcommand exists: 'lead'"),
            ("team lesaes", "a similar subcommand exists: 'leases'"),
            ("team task clami", "a similar subcommand exists: 'claim'"),
        ] {
            let told = error(line);
            assert!(told.contains(tip), "{line}: {told}");
        }
    }
}
