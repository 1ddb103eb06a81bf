//! Conversations as a person reads them: markdown, calls with their results, and changes of files.

use crate::support::harness::Team;
use crate::support::scripts::{bash, calls, says, script};
use crate::support::terminal::{SIZES, Terminal};
use serde_json::json;

const ANSWER: &str = "\
# Result

The **parser** is done:

- `scan` has tests
- nothing else\u{1b}[2J changed

| file | lines |
|------|------:|
| a.rs | 120 |

```rust
let x = 1;
```
";

/// Runs a lead that edits a file, fails at a command, and answers in markdown.
fn team_with_a_conversation() -> Team {
    let team = Team::new();
    let write = ("write_file", json!({ "path": "a.txt", "content": "one\ntwo\n" }));
    let edit = json!({ "path": "a.txt", "old_text": "two", "new_text": "2" });
    let lines = [
        calls(
            "lead",
            &[write, ("edit_file", edit), bash("seq 30"), bash("echo no such thing >&2; false")],
        ),
        says("lead", ANSWER),
    ];
    let model = script(&team, &lines);
    team.team(&["lead", "--model", &model, "-p", "go"]).expect(0);
    team
}

#[test]
fn a_transcript_has_markdown_and_one_row_for_a_call_and_its_result() {
    let team = team_with_a_conversation();
    let shown = team.team(&["transcript", "lead"]).expect(0).out;
    for rows in [
        "  ⏺ write_file  a.txt (2 lines)   ✓ wrote 8 bytes to a.txt\n",
        "  ⏺ edit_file  a.txt   ✓ edited a.txt (+1 −1)\n    - two\n    + 2\n",
        "  ⏺ bash  seq 30   ✓ 30 lines\n",
        "  ⏺ bash  echo no such thing >&2; false   ✗ exit code 1\n    no such thing\n",
        "  The parser is done:\n\n  - `scan` has tests\n  - nothing else changed\n",
        "  file  lines\n  a.rs    120\n",
        "\n    let x = 1;\n",
    ] {
        assert!(shown.contains(rows), "{rows}\n{shown}");
    }
    for hidden in ["**", "```", "|---", "{\"", "\u{1b}"] {
        assert!(!shown.contains(hidden), "{hidden}\n{shown}");
    }
    let full = team.team(&["transcript", "lead", "--full"]).expect(0).out;
    assert!(full.contains("⏺ bash  seq 30   ✓\n    1\n    2\n"), "{full}");
    assert!(full.contains("    29\n    30\n"), "{full}");
}

#[test]
fn a_terminal_shows_a_conversation_in_colour_and_in_its_width() {
    let team = team_with_a_conversation();
    for size in SIZES {
        let mut window = Terminal::of_size(team.command("team", &["transcript", "lead"]), size);
        window.expect("let");
        assert_eq!(window.wait().code(), Some(0));
        let printed = window.printed();
        assert!(printed.contains("file"), "{printed}");
        assert!(window.screen().contains("─┼─"), "{}", window.screen());
        assert!(window.screen().contains("• scan has tests"), "{}", window.screen());
        assert!(window.has_colors());
    }
}
