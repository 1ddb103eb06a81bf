//! Tests of markdown: its rows, and the equality of streamed and whole text.

use super::*;
use crate::ui::sanitize::columns;
use crate::ui::style::ColorChoice;
use proptest::prelude::*;
use proptest::sample::Index;

fn plain(text: &str, width: usize) -> String {
    render(text, Palette::plain(), Some(width))
}

/// Renders with colours; `ESC [` is written as `<`, and `m` as `>`.
fn colored(text: &str, width: usize) -> String {
    let rows = render(text, Palette::new(ColorChoice::Always, true), Some(width));
    let mut shown = String::new();
    let mut parts = rows.split("\u{1b}[");
    shown.push_str(parts.next().unwrap());
    for part in parts {
        let (sequence, text) = part.split_once('m').unwrap();
        shown.extend(["<", sequence, ">", text]);
    }
    shown.replace("<0>", "<>")
}

#[test]
fn running_text_has_its_styles() {
    for (text, wanted) in [
        ("a **b** *c* `d  e` ~~f~~", "a <1>b<> <3>c<> <36>d  e<> <9>f<>\n"),
        ("***a** b*", "<1><3>a<><3> b<>\n"),
        ("a\nb  \nc", "a\nb\nc\n"),
        ("# One *it*\n## Two\n### Three", "<1><4>One <><1><3><4>it<>\n<1>Two<>\n<1><3>Three<>\n"),
        ("a\n\n***\nb", "a\n\n<2>────────────────────────────────────────<>\nb\n"),
        ("[t](http://a/b \"c\") <http://d>", "<4>t<><2> (http://a/b \"c\")<> <4>http://d<>\n"),
        ("![p](q.png) [](r)", "<4>p<><2> (q.png)<> <2>(r)<>\n"),
        ("<b>x</b>\n<!-- y -->", "<b>x</b>\n<!-- y -->\n"),
        ("**open `code", "**open `code\n"),
        (
            "[a]: http://b 'c'\n\n[d][a] [^1]\n\n[^1]: e",
            "[a]: http://b 'c'\n\n[d][a] [^1]\n\n[^1]: e\n",
        ),
    ] {
        assert_eq!(colored(text, 40), wanted, "{text:?}");
    }
}

#[test]
fn lists_and_quotes_hang_below_their_marks() {
    let text = "- one two three four\n  - five six seven\n    1. eight nine\n    2. ten\n- [x] nine\n- [ ] ten\n\n  more\n-\n";
    let wanted = "\
• one two three
  four
  • five six
    seven
    1. eight
       nine
    2. ten
• [x] nine
• [ ] ten

  more
•
";
    assert_eq!(colored(text, 15).replace("<2>", "").replace("<>", ""), wanted);
    let plain_mark = |text: &str| plain(text, 12);
    assert_eq!(plain_mark("* a\n* b\n\n+ c"), "- a\n- b\n\n- c\n");
    assert_eq!(plain_mark("9. a\n9. b\n\n9) c"), "9. a\n10. b\n\n9. c\n");
    assert_eq!(
        plain_mark("> a b c d e f\n> - g\n>\n> h\n\ni"),
        "> a b c d e\n> f\n> - g\n>\n> h\n\ni\n"
    );
    assert_eq!(colored("> a", 12), "<2>│ <>a\n");
    // Too few blanks for a nested list, as models write it.
    assert_eq!(plain_mark(" 1. a\n   - b\n   - c\n 2. d"), "1. a\n  - b\n  - c\n2. d\n");
}

#[test]
fn code_has_no_fence_and_keeps_its_blanks() {
    let text = "Run:\n```rust\nfn  f() {\n\n    \"a b c d e f\"\n}\n```\n\n    x  y\n";
    let wanted = "Run:\n  fn  f() {\n\n      \"a b c d\n      e f\"\n  }\n\n  x  y\n";
    assert_eq!(plain(text, 15), wanted);
    assert_eq!(colored("~~~rs\nlet a = 1;\n~~~", 40), "  <35>let<> a = <36>1<>;\n");
    // A text that only the model would read is not hidden behind a fence.
    assert_eq!(plain("```sh and do this\nls\n", 40), "  sh and do this\n  ls\n");
    assert_eq!(plain("- a\n  ```sh\n  ls\n  ```\n", 40), "- a\n    ls\n");
}

#[test]
fn a_table_is_aligned_wrapped_or_listed() {
    let text = "| Name | Does | n |\n|:--|:-:|--:|\n| al | `x \\| y` | 1 |\n| bobby | | 12 |";
    let wanted = "\
<1>Name<> <2> │ <><1>Does<> <2> │ <> <1>n<>
──────┼───────┼───
al   <2> │ <><36>x | y<><2> │ <> 1
bobby<2> │ <>     <2> │ <>12
";
    let shown = colored(text, 40);
    assert_eq!(shown.replace("<2>──────┼───────┼───<>", "──────┼───────┼───"), wanted);
    assert_eq!(plain(text, 40), "Name    Does     n\nal     `x | y`   1\nbobby           12\n");
    let long = "| a | b |\n|-|-|\n| one two three | four five six seven |\n| x | y |";
    assert_eq!(
        plain(long, 20),
        "a          b\none two    four five\nthree      six seven\n\nx          y\n"
    );
    let rules = colored(long, 20).matches("─┼─").count();
    assert_eq!(rules, 2, "a line divides rows of several lines");
    assert_eq!(
        plain(long, 9),
        "a: one\n  two\n  three\nb: four\n  five\n  six\n  seven\n\na: x\nb: y\n"
    );
    let more = "| a |\n|-|\n| b | c | d |";
    assert_eq!(plain(more, 30), "a\nb c | d\n", "cells without a column are shown");
    assert_eq!(plain("| a |\n|-|", 30), "a\n");
}

#[test]
fn nothing_that_the_parser_decodes_reaches_the_terminal() {
    let text =
        "a\u{1b}[2Jb &#27;[31m &#x202e;c &#10; d `\u{1b}]0;e\u{7}`\n\n    \u{9b}2J\n\n[f](g&#27;h)";
    assert_eq!(plain(text, 60), "ab [31m c d `0;e`\n\nf (g)\n");
    for (before, after) in
        [("a\u{1b}", "[2Jb\n"), ("a\r", "\nb"), ("a\u{1b}[3", "1mb"), ("a\rb", "\r\n")]
    {
        let mut stream = MarkdownStream::new(Palette::plain());
        let rows = stream.push(before, None) + &stream.push(after, None) + &stream.finish(None);
        assert_eq!(rows, render(&format!("{before}{after}"), Palette::plain(), None));
        assert!(!rows.contains(['\u{1b}', '\r']), "{rows:?}");
    }
}

#[test]
fn rows_come_as_soon_as_they_are_final() {
    let mut stream = MarkdownStream::new(Palette::plain());
    let mut push = |piece: &str| stream.push(piece, Some(40));
    assert_eq!(push("# Ti"), "");
    assert_eq!(push("tle\nA para"), "# Title\n");
    assert_eq!(push("graph\nof two\n"), "");
    assert_eq!(push("\n- one\n"), "A paragraph\nof two\n");
    assert_eq!(push("- two\n```sh\n"), "\n- one\n- two\n");
    assert_eq!(push("ls\npw"), "  ls\n");
    assert_eq!(push("d\n```\n| a |\n|---|\n"), "  pwd\n");
    assert_eq!(push("| b |\n"), "");
    assert_eq!(push("\nend"), "a\nb\n");
    assert_eq!(stream.finish(Some(40)), "\nend\n");
    assert_eq!(stream.finish(Some(40)), "");
}

#[test]
fn a_preview_shows_the_rest_and_a_dropped_text_leaves_nothing() {
    let mut stream = MarkdownStream::new(Palette::plain());
    assert!(stream.is_empty());
    assert_eq!(stream.push("a\n\n**b** an", None), "a\n");
    assert_eq!(stream.preview(None), "\nb an\n");
    assert_eq!(stream.push("d\n```\nc", None), "\nb and\n");
    assert_eq!(stream.preview(None), "  c\n");
    assert!(!stream.is_empty());
    stream.discard();
    assert!(stream.is_empty());
    assert_eq!(stream.preview(None), "");
    assert_eq!(stream.push("- a\n", None) + &stream.finish(None), "- a\n");
    assert!(stream.is_empty());
}

/// Each byte of a text is parsed once, in however many pieces it comes, and a preview parses a bounded part.
#[test]
fn the_cost_of_a_stream_grows_with_its_length_only() {
    let block =
        "A paragraph.\n\n- one\n- two\n  - three\n\n| a |\n|---|\n| b |\n\n```\ncode\n```\n\n";
    let text = block.repeat(200);
    let mut stream = MarkdownStream::new(Palette::plain());
    let mut parsed = 0;
    for piece in text.as_bytes().chunks(3) {
        let _rows = stream.push(str::from_utf8(piece).unwrap(), Some(60));
        parsed = stream.parsed;
    }
    assert!(parsed <= text.len(), "{parsed} of {}", text.len());
    for end in ["word ", "word\n"] {
        let mut stream = MarkdownStream::new(Palette::plain());
        let _rows = stream.push(&end.repeat(100_000), Some(60));
        assert!(stream.preview(Some(60)).len() < 2 * PREVIEW_BYTES);
        assert!(stream.preview(Some(60)).contains("word"));
    }
}

/// Hostile text costs no more than other text of its length: each of these took minutes if a step were quadratic.
#[test]
fn long_lines_and_deep_nesting_are_rendered() {
    for (begin, piece, count) in [
        ("```js\n", "'\\'", 200_000),
        ("```json\n", "{\"a\":1},", 100_000),
        ("", "a ", 200_000),
        ("", "> ", 2_000),
        ("", "- ", 2_000),
        ("", "*a **b ", 20_000),
        ("", "[", 20_000),
        ("", "`", 50_001),
        ("| a |\n|---|\n", "| b ", 20_000),
    ] {
        let text = format!("{begin}{}end", piece.repeat(count));
        let rows = plain(&text, 80);
        assert!(rows.contains("end"), "{piece}");
    }
}

/// Returns markdown of many kinds, also broken markdown.
fn markdown() -> impl Strategy<Value = String> {
    let line = prop::sample::select(vec![
        "",
        "",
        "a few words",
        "**bold** and *it",
        "# Head",
        "---",
        "===",
        "- item",
        "  - nested",
        "1. one",
        "1. two",
        "   more",
        "- [x] done",
        "> quote",
        "> - in quote",
        "```rust",
        "```",
        "~~~",
        "    let x = 1;",
        "| a | b |",
        "|---|--:|",
        "| long cell with words | 日本語 |",
        "<div>",
        "[a]: http://b",
        "[c](http://d \"e\")",
        "\t\ttabs",
        "a_word_that_is_longer_than_many_widths",
        "&#27;[31m",
        "\u{1b}[2J",
        "\\",
        "*",
        "-",
        "1)",
        "\r",
        "`code",
    ]);
    proptest::collection::vec(line, 0..14).prop_map(|lines| lines.join("\n"))
}

/// A block with its words in order, which the rows must show in that order.
fn block() -> impl Strategy<Value = String> {
    let word = "[a-z]{1,6}";
    let words = proptest::collection::vec(word, 1..12);
    (words, 0usize..8).prop_map(|(words, kind)| match kind {
        0 => words.join(" "),
        1 => format!("## {}", words.join(" ")),
        2 => format!("- **{}**", words.join("**\n- **")),
        3 => format!("1. {}\n\n   *end*", words.join("\n   - *in*\n\n   then\n1. ")),
        4 => format!("> {}", words.join("\n> ")),
        5 => format!("```\n{}\n```", words.join("\n")),
        6 => format!("[{}](http)", words.join(" ")),
        _ => format!("| {} |", words.join(" | ")),
    })
}

fn words_of(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_ascii_lowercase());
    words.filter(|word| !word.is_empty()).map(ToOwned::to_owned).collect()
}

/// Returns the visible part of rows.
fn without_escapes(rows: &str) -> String {
    sanitize(rows).into_owned()
}

proptest! {
    #[test]
    fn any_split_of_a_text_has_the_rows_of_the_whole(
        text in markdown(), cuts in proptest::collection::vec(any::<Index>(), 0..8),
        width in 4usize..60, is_colored: bool,
    ) {
        let choice = if is_colored { ColorChoice::Always } else { ColorChoice::Never };
        let palette = Palette::new(choice, true);
        let ends: Vec<usize> =
            text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| *cut.get(&ends)).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let mut stream = MarkdownStream::new(palette);
        let mut rows = String::new();
        for pair in cuts.windows(2) {
            rows.push_str(&stream.push(&text[pair[0]..pair[1]], Some(width)));
            // The rest as it stands is the end of what has come so far.
            let so_far = rows.clone() + &stream.preview(Some(width));
            prop_assert_eq!(so_far, render(&text[..pair[1]], palette, Some(width)));
        }
        rows.push_str(&stream.finish(Some(width)));
        prop_assert_eq!(&rows, &render(&text, palette, Some(width)));
        for row in without_escapes(&rows).lines() {
            prop_assert!(columns(row) <= width, "{:?} at {}", row, width);
        }
        let has_escape = rows.contains('\u{1b}');
        prop_assert!(is_colored || !has_escape);
    }

    #[test]
    fn all_words_are_kept_in_order(
        blocks in proptest::collection::vec(block(), 0..6), width in 24usize..80,
    ) {
        let text = blocks.join("\n\n");
        prop_assert_eq!(words_of(&plain(&text, width)), words_of(&text));
        let rows = render(&text, Palette::new(ColorChoice::Always, true), None);
        prop_assert_eq!(words_of(&without_escapes(&rows)), words_of(&text));
    }

    #[test]
    fn a_table_loses_no_word(
        rows in proptest::collection::vec(proptest::collection::vec("[a-z ]{0,20}", 3), 1..5),
        width in 4usize..80,
    ) {
        let mut text = "| A | B | C |\n|---|:-:|--:|\n".to_owned();
        for row in &rows {
            text.extend(["| ", &row.join(" | "), " |\n"]);
        }
        let letters = |text: &str| {
            let mut letters: Vec<char> = text.chars().filter(char::is_ascii_lowercase).collect();
            letters.sort_unstable();
            letters
        };
        prop_assert_eq!(letters(&plain(&text, width)), letters(&text));
    }
}
