//! The keys: a few in the footer, all of them in the help of `?`.

use super::{Mode, Pane};

/// All keys, by task.
pub(super) const ALL: [(&str, &str); 13] = [
    ("tab, shift-tab, 1-5", "go to another pane"),
    ("arrows, j, k", "move or scroll by one"),
    ("page up, page down", "by ten"),
    ("home, end, g, G", "to the start, to the end"),
    ("enter", "the conversation of the selected agent"),
    ("/", "filter by text"),
    ("esc", "show everything again; back"),
    ("m", "write to the selected agent"),
    ("s", "stop the selected teammate (asks first)"),
    ("a, d", "approve or deny the selected request (asks first)"),
    ("?", "this help; any key closes it"),
    ("q, ctrl-c", "leave; the team goes on"),
    ("", "Looking changes nothing: this view only reads the files of the team."),
];

/// The footer while no text is typed.
pub(super) fn footer(
    mode: &Mode,
    focus: Pane,
    is_filtered: bool,
) -> Vec<(&'static str, &'static str)> {
    if *mode == Mode::Help {
        return vec![("any key", "back")];
    }
    let mut keys = vec![("q", "quit"), ("?", "help"), ("tab", "pane")];
    keys.push(match focus {
        Pane::Members => ("↑↓", "select"),
        Pane::Messages | Pane::Conversation | Pane::Tasks | Pane::Requests => ("↑↓", "scroll"),
    });
    if focus == Pane::Members {
        keys.push(("enter", "open"));
    }
    if focus == Pane::Requests {
        keys.extend([("a", "approve"), ("d", "deny")]);
    }
    keys.extend([("m", "message"), ("s", "stop"), ("/", "filter")]);
    if is_filtered {
        keys.push(("esc", "show all"));
    } else if focus != Pane::Members {
        keys.push(("esc", "back"));
    }
    keys
}
