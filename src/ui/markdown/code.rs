//! Colours of source code: a lexer that knows comments, strings, numbers and keywords of common languages.
//!
//! It reads code line by line, so that code can be shown while it arrives, and it never fails: text that it does
//! not know is plain.

use crate::ui::style::DIM;
use crate::ui::styled_text::StyledLine;
use anstyle::{AnsiColor, Style};

const PLAIN: Style = Style::new();
const COMMENT: Style = DIM;
const STRING: Style = AnsiColor::Green.on_default();
const NUMBER: Style = AnsiColor::Cyan.on_default();
const KEYWORD: Style = AnsiColor::Magenta.on_default();
const REMOVED: Style = AnsiColor::Red.on_default();
const ADDED: Style = AnsiColor::Green.on_default();

/// The longest line that gets colours, in bytes: a longer one was hardly written by hand.
const MOST_LINE_BYTES: usize = 4096;

/// The rules of one language or of a family of them.
#[derive(Debug)]
struct Language {
    /// The words after a code fence, separated by blanks.
    names: &'static str,
    /// The beginnings of comments that end with the line.
    comments: &'static [&'static str],
    /// Text that may span lines: beginning, end and style.
    blocks: &'static [(&'static str, &'static str, Style)],
    /// Quotation marks of strings that end with the line at the latest.
    quotes: &'static str,
    /// The keywords, separated by blanks.
    keywords: &'static str,
    /// Whether a single quotation mark may begin a name.
    has_lifetimes: bool,
}

const NONE: Language = Language {
    names: "",
    comments: &[],
    blocks: &[],
    quotes: "",
    keywords: "",
    has_lifetimes: false,
};

const C_COMMENTS: &[&str] = &["//"];
const C_BLOCKS: &[(&str, &str, Style)] = &[("/*", "*/", COMMENT)];

const LANGUAGES: &[Language] = &[
    Language {
        names: "rust rs",
        comments: C_COMMENTS,
        blocks: &[("/*", "*/", COMMENT), ("r#\"", "\"#", STRING), ("\"", "\"", STRING)],
        quotes: "'",
        keywords: "as async await break const continue crate dyn else enum extern false fn for if impl in let loop \
                   match mod move mut pub ref return self Self static struct super trait true type use where \
                   while unsafe",
        has_lifetimes: true,
    },
    Language {
        names: "python py python3 starlark",
        comments: &["#"],
        blocks: &[("\"\"\"", "\"\"\"", STRING), ("'''", "'''", STRING)],
        quotes: "\"'",
        keywords: "and as assert async await break case class continue def del elif else except False finally for from \
                   global if import in is lambda match None nonlocal not or pass raise return True try while with yield",
        ..NONE
    },
    Language {
        names: "javascript js jsx typescript ts tsx mjs",
        comments: C_COMMENTS,
        blocks: &[("/*", "*/", COMMENT), ("`", "`", STRING)],
        quotes: "\"'",
        keywords: "abstract any as async await boolean break case catch class const continue declare default delete do \
                   else enum export extends false finally for from function if implements import in instanceof \
                   interface keyof let namespace new null number of private protected public readonly return static \
                   string super switch this throw true try type typeof undefined var void while yield",
        ..NONE
    },
    Language {
        names: "go golang",
        comments: C_COMMENTS,
        blocks: &[("/*", "*/", COMMENT), ("`", "`", STRING)],
        quotes: "\"'",
        keywords: "break case chan const continue default defer else fallthrough false for func go goto if import \
                   interface iota map nil package range return select struct switch true type var",
        ..NONE
    },
    Language {
        names: "c h cpp c++ cc hpp java csharp cs c# kotlin kt swift scala php dart zig",
        comments: C_COMMENTS,
        blocks: C_BLOCKS,
        quotes: "\"'",
        keywords: "abstract as auto bool boolean break case catch char class companion const constexpr continue data \
                   default delete do double else enum explicit export extends extension extern false final finally \
                   float for foreach friend fun func function goto guard if implements import in inline int interface \
                   internal is let long namespace new nil null nullptr object operator override package private \
                   protected protocol public readonly return sealed short signed sizeof static string struct super \
                   switch template this throw throws trait true try typedef typename union unsigned using val var \
                   virtual void volatile when while yield",
        ..NONE
    },
    Language {
        names: "bash sh shell zsh fish console",
        comments: &["#"],
        blocks: &[("\"", "\"", STRING), ("'", "'", STRING)],
        keywords: "case do done elif else esac export fi for function if in local read return set then trap until while",
        ..NONE
    },
    Language {
        names: "json jsonc json5 jsonl",
        comments: C_COMMENTS,
        blocks: C_BLOCKS,
        quotes: "\"",
        keywords: "true false null",
        ..NONE
    },
    Language {
        names: "toml yaml yml ini conf dockerfile makefile make nix",
        comments: &["#"],
        blocks: &[("\"\"\"", "\"\"\"", STRING)],
        quotes: "\"'",
        keywords: "true false null yes no FROM RUN COPY CMD ENTRYPOINT ENV WORKDIR",
        ..NONE
    },
    Language {
        names: "sql",
        comments: &["--"],
        blocks: &[("/*", "*/", COMMENT), ("'", "'", STRING)],
        quotes: "\"",
        keywords: "ADD ALTER AND AS ASC BEGIN BY CASE COMMIT CREATE DELETE DESC DISTINCT DROP ELSE END EXISTS FROM GROUP \
                   HAVING IN INDEX INNER INSERT INTO IS JOIN KEY LEFT LIKE LIMIT NOT NULL ON OR ORDER OUTER PRIMARY \
                   RETURNING ROLLBACK SELECT SET TABLE THEN UNION UNIQUE UPDATE VALUES VIEW WHEN WHERE WITH add alter \
                   and as asc begin by case commit create delete desc distinct drop else end exists from group having \
                   in index inner insert into is join key left like limit not null on or order outer primary returning \
                   rollback select set table then union unique update values view when where with",
        ..NONE
    },
    Language {
        names: "ruby rb elixir ex crystal perl r julia jl",
        comments: &["#"],
        quotes: "\"'",
        keywords: "alias and begin break case class def defmodule do else elsif end ensure false fn for function if in \
                   local module my new next nil not or private raise require rescue return self sub super then true \
                   unless until use when while yield",
        ..NONE
    },
    Language {
        names: "lua haskell hs ada",
        comments: &["--"],
        blocks: &[("{-", "-}", COMMENT)],
        quotes: "\"",
        keywords: "and break case class data do else elseif end false for function if import in instance let local module \
                   nil not of or repeat return then true type until where while",
        ..NONE
    },
    Language {
        names: "html xml svg vue svelte",
        blocks: &[("<!--", "-->", COMMENT)],
        quotes: "\"",
        ..NONE
    },
    Language { names: "css scss less", blocks: C_BLOCKS, quotes: "\"'", ..NONE },
    Language { names: DIFF, ..NONE },
    Language { names: "text txt plain plaintext", ..NONE },
];

/// The names of a comparison of files: its lines are coloured by their first character.
const DIFF: &str = "diff patch";

/// The state of the lexer between two lines.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lexer {
    language: Option<&'static Language>,
    /// The end and the style of the text that began on an earlier line.
    inside: Option<(&'static str, Style)>,
}

impl Lexer {
    /// Creates the lexer for the text after a code fence, such as `rust` or `rust,ignore`.
    pub(super) fn new(info: &str) -> Self {
        let name = info.split(|c: char| c.is_whitespace() || ",{:".contains(c)).next();
        let name = name.unwrap_or_default().to_lowercase();
        let is_named = |it: &&Language| it.names.split(' ').any(|known| known == name);
        Self { language: LANGUAGES.iter().find(is_named), inside: None }
    }

    /// Whether the text after a code fence is only the name of a known language.
    pub(super) fn is_name(info: &str) -> bool {
        let info = info.to_lowercase();
        LANGUAGES.iter().any(|it| it.names.split(' ').any(|known| known == info))
    }

    /// Returns a line with colours.
    pub(super) fn line(&mut self, text: &str) -> StyledLine {
        let is_short = text.len() <= MOST_LINE_BYTES;
        let Some(language) = self.language.filter(|_| is_short) else {
            return StyledLine::new(PLAIN, text);
        };
        if language.names == DIFF {
            return StyledLine::new(diff_style(text), text);
        }
        let mut line = StyledLine::default();
        let mut rest = text;
        let mut before = ' ';
        while !rest.is_empty() {
            let (style, length) = self.token(language, rest, before);
            let (token, after) = rest.split_at(length.clamp(1, rest.len()));
            before = token.chars().next_back().unwrap_or(' ');
            line.push(style, token);
            rest = after;
        }
        line
    }

    /// Returns the style and the length in bytes of the token at the beginning of `rest`; `before` is the character
    /// before it.
    fn token(&mut self, language: &Language, rest: &str, before: char) -> (Style, usize) {
        if let Some((end, style)) = self.inside {
            return (style, self.until(rest, 0, end));
        }
        // In most languages with `#`, it begins a comment only after a blank.
        let is_comment =
            |mark: &&&str| rest.starts_with(**mark) && (**mark != "#" || before == ' ');
        if language.comments.iter().any(|mark| is_comment(&mark)) {
            return (COMMENT, rest.len());
        }
        if let Some((begin, end, style)) = language.blocks.iter().find(|it| rest.starts_with(it.0))
        {
            self.inside = Some((end, *style));
            return (*style, self.until(rest, begin.len(), end));
        }
        let Some(first) = rest.chars().next() else { return (PLAIN, 0) };
        if language.quotes.contains(first) && !(language.has_lifetimes && is_lifetime(rest)) {
            return quoted(rest, first);
        }
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        if !is_word(first) {
            return (PLAIN, first.len_utf8());
        }
        let length = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let word = rest.get(..length).unwrap_or_default();
        let style = match first {
            '0'..='9' => NUMBER,
            _ if language.keywords.split(' ').any(|known| known == word) => KEYWORD,
            _ => PLAIN,
        };
        (style, length)
    }

    /// Returns the position after `end` behind `from`. Without one, the text goes on in the next line.
    fn until(&mut self, rest: &str, from: usize, end: &str) -> usize {
        let mut at = from;
        while let Some(found) = rest.get(at..).and_then(|text| text.find(end)) {
            let found = at + found;
            let escapes = rest.as_bytes().get(from..found).unwrap_or_default();
            let escapes = escapes.iter().rev().take_while(|byte| **byte == b'\\').count();
            if escapes % 2 == 0 {
                self.inside = None;
                return found + end.len();
            }
            at = found + end.len();
        }
        rest.len()
    }
}

/// Returns the style and the length of a string in one line; a mark without its partner is an apostrophe.
fn quoted(rest: &str, quote: char) -> (Style, usize) {
    let mut is_escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        if c == quote && !is_escaped {
            return (STRING, at + 1);
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    (PLAIN, 1)
}

/// Whether a single quotation mark begins a lifetime, not a character.
fn is_lifetime(rest: &str) -> bool {
    let mut inside = rest.chars().skip(1);
    inside.next().is_some_and(|c| c != '\\') && inside.next() != Some('\'')
}

fn diff_style(text: &str) -> Style {
    match text.chars().next() {
        Some('+') => ADDED,
        Some('-') => REMOVED,
        Some('@') => NUMBER,
        Some(_) | None => PLAIN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::style::{ColorChoice, Palette};
    use proptest::prelude::*;

    /// Returns the code with a letter and brackets around each token that has a style.
    fn marked(info: &str, code: &str) -> String {
        let mut lexer = Lexer::new(info);
        let palette = Palette::new(ColorChoice::Always, true);
        let mut text: Vec<_> = code.lines().map(|line| lexer.line(line).paint(palette)).collect();
        for (style, letter) in
            [(COMMENT, "c"), (STRING, "s"), (NUMBER, "n"), (KEYWORD, "k"), (REMOVED, "r")]
        {
            for line in &mut text {
                *line = line.replace(&style.to_string(), &format!("{letter}["));
            }
        }
        text.join("\n").replace("\u{1b}[0m", "]")
    }

    #[test]
    fn tokens_have_the_style_of_their_kind() {
        for (info, code, wanted) in [
            ("rust", "let x = 12; // hi", "k[let] x = n[12]; c[// hi]"),
            ("rust", "fn f<'a>(c: &'a str) {", "k[fn] f<'a>(c: &'a str) {"),
            (
                "rs,ignore",
                "'x' '\\'' \"a\\\"b\n c\" /* d\n e */",
                "s['x'] s['\\''] s[\"a\\\"b]\ns[ c\"] c[/* d]\nc[ e */]",
            ),
            (
                "python",
                "def f(): # x\n  '''a\n  b''' 'c'",
                "k[def] f(): c[# x]\n  s['''a]\ns[  b'''] s['c']",
            ),
            ("sh", "echo \"$a#b\" '# c' # d", "echo s[\"$a#b\"] s['# c'] c[# d]"),
            ("js", "const a = 'it\\'s', b = `x`", "k[const] a = s['it\\'s'], b = s[`x`]"),
            ("SQL", "select 'a' -- b", "k[select] s['a'] c[-- b]"),
            ("diff", "+a\n-b\n c", "s[+a]\nr[-b]\n c"),
            ("unknown", "let x = 'y'", "let x = 'y'"),
        ] {
            assert_eq!(marked(info, code), wanted, "{info}");
        }
    }

    #[test]
    fn each_name_is_of_one_language_and_each_keyword_is_listed_once() {
        let mut names: Vec<_> = LANGUAGES.iter().flat_map(|it| it.names.split(' ')).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for language in LANGUAGES {
            let mut words: Vec<_> = language.keywords.split(' ').collect();
            let count = words.len();
            words.sort_unstable();
            words.dedup();
            assert_eq!(words.len(), count, "{}", language.names);
        }
    }

    proptest! {
        #[test]
        fn no_character_is_lost(
            lines in proptest::collection::vec("[a'\"`#/*\\\\<!>é日 -]{0,20}", 0..4),
            language in 0..LANGUAGES.len(),
        ) {
            let mut lexer = Lexer::new(LANGUAGES[language].names.split(' ').next().unwrap());
            for line in lines {
                prop_assert_eq!(lexer.line(&line).paint(Palette::plain()), line);
            }
        }
    }
}
