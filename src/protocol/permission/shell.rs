//! The commands of a command line, as far as its text shows them.
//!
//! There are two readings, both conservative. *Plain*: a rule that allows must cover every command of the line,
//! so anything except plain words and separators makes the line unreadable. *Guessed*: a rule that forbids is
//! checked against every piece of the line that might be a command.

/// Words that run the command that follows them.
const WRAPPERS: [&str; 18] = [
    "sudo", "doas", "env", "exec", "command", "builtin", "nohup", "time", "nice", "setsid",
    "xargs", "if", "then", "else", "elif", "do", "while", "!",
];

/// Splits a line into its simple commands, each as its words without quotes. `None` if the line contains a
/// substitution, a redirection, a group, an assignment, or anything else whose effect its words do not show.
pub(super) fn plain(line: &str) -> Option<Vec<Vec<String>>> {
    let mut reader = ShellParser::default();
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            ' ' | '\t' => reader.end_word(),
            '\n' | ';' | '&' | '|' => reader.end_command(),
            '\'' | '"' => {
                reader.word.get_or_insert_default();
                loop {
                    match chars.next()? {
                        end if end == c => break,
                        inside if c == '\'' => reader.push(inside),
                        '$' | '`' | '!' => return None,
                        '\\' => match chars.next()? {
                            escaped @ ('\\' | '"') => reader.push(escaped),
                            _ => return None,
                        },
                        inside => reader.push(inside),
                    }
                }
            }
            '\\' => match chars.next()? {
                '\n' => {}
                escaped => reader.push(escaped),
            },
            '#' if reader.word.is_some() => reader.push('#'),
            '$' | '`' | '<' | '>' | '(' | ')' | '{' | '}' | '!' | '#' => return None,
            c if c.is_control() => return None,
            c => reader.push(c),
        }
    }
    reader.end_command();
    let assigns = |command: &Vec<String>| command.first().is_some_and(|word| word.contains('='));
    (!reader.commands.is_empty() && !reader.commands.iter().any(assigns)).then_some(reader.commands)
}

#[derive(Default)]
struct ShellParser {
    commands: Vec<Vec<String>>,
    words: Vec<String>,
    word: Option<String>,
}

impl ShellParser {
    fn push(&mut self, c: char) {
        self.word.get_or_insert_default().push(c);
    }

    fn end_word(&mut self) {
        self.words.extend(self.word.take());
    }

    fn end_command(&mut self) {
        self.end_word();
        if !self.words.is_empty() {
            self.commands.push(std::mem::take(&mut self.words));
        }
    }
}

/// Lists the pieces of a line that might be commands, each as its words.
pub(super) fn guessed(line: &str) -> Vec<Vec<String>> {
    let unquoted: String =
        line.replace("\\\n", "").chars().filter(|c| !"'\"\\".contains(*c)).collect();
    let mut found = plain(line).unwrap_or_default();
    for piece in unquoted.split(|c: char| ";&|\n`(){}<>$".contains(c)) {
        let words: Vec<String> = piece.split_whitespace().map(ToOwned::to_owned).collect();
        let mut rest = words.as_slice();
        while let Some((first, behind)) = rest.split_first() {
            found.push(rest.to_vec());
            let wraps = WRAPPERS.contains(&first.as_str()) || first.contains('=');
            let option = rest.len() < words.len() && first.starts_with('-');
            if !wraps && !option {
                break;
            }
            rest = behind;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Option<Vec<String>> {
        plain(line).map(|commands| commands.iter().map(|words| words.join("·")).collect())
    }

    #[test]
    fn plain_lines_are_split_into_their_commands_and_hidden_effects_are_not_plain() {
        for (line, wanted) in [
            ("cargo test", "cargo·test"),
            ("cargo  test -- 'a b' \"c d\"", "cargo·test·--·a b·c d"),
            ("a; b && c || d | e & f\ng", "a|b|c|d|e|f|g"),
            (r"ca\rgo te'st' x\ y a#b", "cargo·test·x y·a#b"),
            ("a '' \"\"", "a··"),
            ("a \\\n b", "a·b"),
        ] {
            assert_eq!(words(line).unwrap().join("|"), wanted, "{line}");
        }
        let hidden = r#"a $(b) ¦ a `b` ¦ a "$(b)" ¦ a "`b`" ¦ a > f ¦ a >> f ¦ a 2>&1 ¦ a < f ¦ a <<E ¦ (a) ¦ { a; }
            ¦ A=1 b ¦ a $B ¦ a "${B}" ¦ a # b ¦ ! a ¦ a 'b ¦ a "b ¦ a \ ¦ a {b,c} ¦ a <(b) ¦ a "\$(b)""#;
        let others = ["", " ;; ", "a\rb", "a \u{1b}[2J"];
        for line in hidden.split('¦').map(str::trim).chain(others) {
            assert_eq!(words(line), None, "{line:?}");
        }
    }

    #[test]
    fn a_guess_finds_nested_commands() {
        let removes =
            |line: &str| guessed(line).iter().any(|words| words.starts_with(&["rm".into()]));
        let visible = r#"rm x ¦ a; rm x ¦ a $(rm x) ¦ a `rm x` ¦ sudo -n rm x ¦ A=1 rm x ¦ env A=1 rm x ¦ (rm x)
            ¦ { rm x; } ¦ if true; then rm x; fi ¦ 'rm' x ¦ r\m x ¦ a | xargs -0 rm x ¦ a > $(rm x) ¦ "rm" x ¦ ! rm x"#;
        for line in visible.split('¦').map(str::trim).chain(["a\nrm x"]) {
            assert!(removes(line), "{line}: {:?}", guessed(line));
        }
        assert!(!removes("echo rm"));
    }
}
