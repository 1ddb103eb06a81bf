//! Tests of frames and keys, without a terminal.

use super::draw::draw;
use super::*;
use crate::ui::style::{ColorChoice, Palette};
use crate::ui::view::View;
use crate::view::{MessageProgress, Stage};
use crate::wire::roster::{Status, UsageCount};
use crate::wire::transcript::{Entry, Line};
use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier};
use serde_json::{Value, json};

const NOW: f64 = 1_763_690_100.0;

fn member(name: &str, status: Status) -> MemberView {
    MemberView {
        since: (NOW - 65.0).into(),
        usage: UsageCount { input_tokens: 5_000, output_tokens: 120, ..UsageCount::default() },
        ..MemberView::sample(name, status)
    }
}

fn progress(to: &str, stage: Stage, message: &Value) -> MessageProgress {
    let mut message = message.as_object().unwrap().clone();
    message.insert("timestamp".into(), (NOW - 30.0).into());
    MessageProgress::read(to, &message, stage).unwrap()
}

fn said(from: &str, content: &str, id: &str) -> Value {
    json!({"from": from, "content": content, "id": id})
}

/// Returns a snapshot of a lead and two teammates with a few messages.
fn snapshot() -> Snapshot {
    let mut lead = member("lead", Status::Idle);
    (lead.color, lead.role) = (String::new(), "lead".into());
    let mut alice = member("alice", Status::Working);
    (alice.activity, alice.unread) = (Some("bash".into()), 1);
    let mut bob = member("bob", Status::Failed);
    bob.ended = Some("crash, signal 9".into());
    let mut snapshot = Snapshot::default();
    snapshot.members.extend([lead, alice, bob]);
    let asks = json!({"type": "permission_request", "from": "alice", "content": "", "id": "3",
        "request_id": "r", "tool": "bash", "input": {}, "description": "rm -rf target"});
    for (to, stage, said) in [
        ("bob", Stage::Acknowledged, said("alice", "the schema is ready", "1")),
        ("alice", Stage::Appended, said("user", "hurry\nplease", "2")),
        ("lead", Stage::Appended, asks),
    ] {
        snapshot.messages.add(progress(to, stage, &said));
    }
    let tasks = r#"[
        [{"id": "1", "subject": "write the schema", "status": "completed", "owner": "alice"}, []],
        [{"id": "2", "subject": "test it", "blocked_by": ["1"]}, []]]"#;
    snapshot.tasks = serde_json::from_str(tasks).unwrap();
    let question = serde_json::from_value(json!({"request_id": "r", "about": "permission",
        "tool_use_id": "t", "tool": "bash", "input": {}, "description": "rm -rf target"}));
    let (from, decider) = ("alice".into(), "lead".into());
    snapshot.requests = vec![PendingQuestion::new(from, decider, NOW.into(), question.unwrap())];
    snapshot.conversation.name = "lead".into();
    let user = Entry::User { content: "Ask alice for a schema.".into() };
    let note = Entry::Note { content: "You were restarted.".into() };
    snapshot.conversation.lines =
        [user, note].map(|entry| Line { at: (NOW - 60.0).into(), entry }).into();
    snapshot
}

/// A simulated person who looks at a snapshot and presses keys.
struct Person {
    top: Top,
    snapshot: Snapshot,
}

fn person_at(snapshot: Snapshot) -> Person {
    let mut top = Top::default();
    top.update(&snapshot);
    Person { top, snapshot }
}

fn person() -> Person {
    person_at(snapshot())
}

impl Person {
    fn buffer(&mut self, palette: Palette, width: u16, height: u16) -> Buffer {
        let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
        let view = View { palette, ..View::fixed(None) };
        draw(&mut self.top, &self.snapshot, NOW.into(), &view, &mut buffer);
        buffer
    }

    fn frame(&mut self, width: u16, height: u16) -> String {
        let buffer = self.buffer(Palette::plain(), width, height);
        let rows = buffer.content.chunks(usize::from(width)).map(|row| {
            let row: String = row.iter().map(Cell::symbol).collect();
            row.trim_end().to_owned() + "\n"
        });
        rows.collect()
    }

    fn press(&mut self, keys: &str) -> Option<Action> {
        let key = |c| match c {
            '\r' => Key::Enter,
            '\x1b' => Key::Esc,
            '\t' => Key::Tab,
            '\x7f' => Key::Backspace,
            c => Key::Char(c),
        };
        keys.chars().map(key).fold(None, |_, key| self.top.press(key, &self.snapshot))
    }

    /// Presses keys that return no action, and checks that the frame then shows all of `parts`.
    fn sees(&mut self, keys: &str, parts: &[&str]) {
        assert_eq!(self.press(keys), None, "{keys}");
        let shown = self.frame(80, 24);
        for part in parts {
            assert!(shown.contains(part), "after {keys}: no {part} in\n{shown}");
        }
    }
}

#[test]
fn a_terminal_of_80_columns_shows_members_and_one_other_pane() {
    insta::assert_snapshot!(person().frame(80, 16), @r#"
    team  2 of 3 alive · 3 messages · 15.3k tokens
    ▸ 1 members (3) ────────────────────────────────────────────────────────────────
      NAME   STATUS     FOR  ROLE   ACTIVITY         MAIL  TOKENS  MODEL
    › lead   ○ idle     1m   lead                          5.1k    rehearsal
      alice  ● working  1m   coder  bash             1     5.1k    rehearsal
      bob    ✗ failed   1m   coder  crash, signal 9        5.1k    rehearsal
    ─ 2 messages (3) ───────────────────────────────────────────────────────────────
    ✓ 01:54:30 alice → bob: the schema is ready
    ✉ 01:54:30 user → alice: hurry please
    ✉ 01:54:30 alice → lead [permission_request]: rm -rf target





    q quit  ? help  tab pane  ↑↓ select  enter open  m message  s stop  / filter
    "#);
}

#[test]
fn a_large_terminal_shows_all_panes() {
    insta::assert_snapshot!(person().frame(120, 26), @r#"
    team  2 of 3 alive · 3 messages · 15.3k tokens
    ▸ 1 members (3) ───────────────────────────────────────────  ─ 2 messages (3) ──────────────────────────────────────────
      NAME   STATUS     FOR  ROLE   ACTIVITY    MAIL  MODEL      ✓ 01:54:30 alice → bob: the schema is ready
    › lead   ○ idle     1m   lead                     rehearsal  ✉ 01:54:30 user → alice: hurry please
      alice  ● working  1m   coder  bash        1     rehearsal  ✉ 01:54:30 alice → lead [permission_request]: rm -rf target
      bob    ✗ failed   1m   coder  crash, si…        rehearsal







                                                                 ─ 3 conversation of lead ──────────────────────────────────
                                                                 01:54:00 user
                                                                   Ask alice for a schema.
    ─ 4 tasks (2) ─────────────────────────────────────────────    You were restarted.
    ID  STATUS     OWNER  SUBJECT
    1   completed  alice  write the schema
    2   pending    -      test it


    ─ 5 requests (1) ──────────────────────────────────────────
      alice asks for bash: rm -rf target

    q quit  ? help  tab pane  ↑↓ select  enter open  m message  s stop  / filter
    "#);
}

#[test]
fn a_small_terminal_leaves_parts_out_and_a_tiny_one_asks_for_more_room() {
    let small = person().frame(44, 12);
    for part in [
        "team  2 of 3 alive · 3 messages\n",
        "  NAME   STATUS     FOR  MAIL  MODEL\n",
        "  alice  ● working  1m   1     rehearsal\n─ 2 messages (3)",
        "alice → lead [permission_request]\n",
    ] {
        assert!(small.contains(part), "no {part} in\n{small}");
    }
    assert_eq!(person().frame(30, 5).trim(), "too small: 30x5, needs 40x10");
}

#[test]
fn an_empty_team_and_any_size_can_be_drawn() {
    for snapshot in [Snapshot::default, snapshot] {
        for (width, height) in
            [(1, 1), (40, 10), (41, 11), (110, 22), (109, 60), (300, 100), (500, 10)]
        {
            for keys in ["1", "2", "3", "4", "5", "?", "/x", "mhello", "sn"] {
                let mut person = person_at(snapshot());
                person.press(keys);
                person.frame(width, height);
            }
        }
    }
    person_at(Snapshot::default()).sees("", &["no members yet"]);
}

#[test]
fn keys_change_what_is_shown() {
    let mut person = person();
    for (keys, parts) in [
        ("/SCHEMA", &["show only: SCHEMA", "messages (1 of 3)", "no match"][..]),
        ("\x1b/bob\r", &["members (1 of 3)", "only: bob"]),
        ("\x1b", &["members (3)"]),
        ("\t\t", &["▸ 3 conversation of lead"]),
        ("4", &["▸ 4 tasks (2)", "write the schema"]),
        ("\t", &["› alice asks for bash: rm -rf target"]),
        ("\x1b", &["▸ 1 members"]),
        ("?", &["stop the selected teammate", "shift-tab"]),
        ("q", &["members (3)"]),
    ] {
        person.sees(keys, parts);
    }
    assert_eq!(person.top.selected, "bob", "who is not shown is not selected");
    person.top.press(Key::BackTab, &person.snapshot);
    person.sees("", &["▸ 5 requests"]);
}

#[test]
fn a_message_goes_to_the_selected_agent_and_esc_cancels_it() {
    let mut person = person();
    let send = |text: &str| Some(Action::Send { to: "alice".into(), text: text.into() });
    assert_eq!(person.press("jmhix\x7f there\r"), send("hi there"));
    assert_eq!(person.press("mq\x1b"), None);
    assert_eq!(person.press("m  \r"), None, "nothing to say");
    person.press("m");
    person.top.paste("q\ny\x1b[2J");
    assert_eq!(person.press("\r"), send("q\ny"));
    person.top.paste("q");
    assert_eq!(person.press("q"), Some(Action::Quit));
}

#[test]
fn a_member_is_stopped_only_after_confirmation() {
    let mut person = person();
    assert_eq!(person.press("jsn"), None);
    assert_eq!(person.press("s\r"), None);
    person.sees("s", &["stop alice? y: yes, any other key: no"]);
    assert_eq!(person.press("y"), Some(Action::Stop { name: "alice".into() }));
    person.sees("js", &["bob does not run"]);
    person.sees("ggs", &["team stop --all"]);
    assert_eq!(person.top.selected, "lead");
    assert_eq!(person.top.press(Key::Interrupt, &person.snapshot), Some(Action::Quit));
}

#[test]
fn a_request_is_answered_only_if_shown_and_confirmed() {
    let mut person = person();
    let answer = |approve| Some(Action::Answer { id: "r".into(), approve });
    assert_eq!(person.press("ay"), None, "first it is shown");
    person.sees("a", &["approve alice bash: rm -rf target? y", "  rm -rf target"]);
    assert_eq!(person.press("n"), None);
    assert_eq!(person.press("ay"), None, "it is not drawn yet");
    person.sees("", &["not yet: look first"]);
    assert_eq!(person.press("y"), answer(true));
    assert_eq!(person.press("jdy"), answer(false));
    let long: Vec<String> = (0..100).map(|line| format!("echo {line}; \u{202e}")).collect();
    person.snapshot.requests[0].question.description = long.join("\n");
    person.sees("a", &["echo 0; <U+202E>", "echo 99;", "… 80 lines left out here …", "v: all"]);
    assert_eq!(person.press("y"), None);
    person.sees("", &["not yet: v shows the 80 lines in between; then y"]);
    person.sees("vG", &["echo 99;", "echo 90;"]);
    person.sees("gj", &["echo 1;", "approve alice bash"]);
    assert_eq!(person.press("y"), answer(true));
    person.snapshot.requests.clear();
    assert_eq!(person.press("ay"), None);
}

#[test]
fn messages_follow_their_end_and_scroll_back_to_their_start() {
    let mut person = person();
    for number in 0..100 {
        let said = said("bob", &format!("n{number};"), &format!("x{number}"));
        person.snapshot.messages.add(progress("lead", Stage::Acknowledged, &said));
    }
    person.sees("2", &["n99;"]);
    person.sees("kk", &["n97;", "2 rows back"]);
    assert!(!person.frame(80, 24).contains("n98;"));
    person.sees("g", &["the schema is ready"]);
    person.sees("jG", &["n99;"]);
}

#[test]
fn the_selected_row_stays_visible() {
    let mut snapshot = Snapshot::default();
    snapshot.members = (0..100).map(|number| member(&format!("m{number}"), Status::Idle)).collect();
    let mut person = person_at(snapshot);
    person.sees("G", &["› m99"]);
    person.snapshot.members.pop();
    person.top.update(&person.snapshot);
    assert_eq!(person.top.selected, "m0", "who has left is not selected");
}

#[test]
fn every_text_is_sanitized() {
    let mut snapshot = snapshot();
    let evil = "\u{1b}[2J\u{202e}evil\u{1b}]52;c;aGk=\u{7}\u{9b}31m";
    let (role, activity, model) = (evil.into(), Some(evil.into()), evil.into());
    let eve = MemberView { role, activity, model, ..member("eve", Status::Working) };
    snapshot.members.push(eve);
    snapshot.trouble = Some(evil.into());
    let said = json!({"type": evil, "from": evil, "content": evil, "id": "e"});
    snapshot.messages.add(progress("alice", Stage::Appended, &said));
    let entry = Entry::Note { content: evil.into() };
    snapshot.conversation.lines.push_back(Line { at: NOW.into(), entry });
    let mut person = person_at(snapshot);
    for pane in ["2", "3", "4"] {
        for (width, height) in [(80, 24), (120, 30)] {
            person.press(pane);
            person.top.notify(Notice::Failed(evil.into()));
            let shown = person.frame(width, height);
            let is_harmless = |c: char| c == '\n' || (!c.is_control() && c != '\u{202e}');
            assert!(shown.chars().all(is_harmless), "{shown:?}");
            assert!(shown.contains("evil"), "{shown}");
        }
    }
}

#[test]
fn without_colours_only_the_selection_is_highlighted() {
    let painted = Palette::new(ColorChoice::Always, true);
    for (palette, is_colored) in [(Palette::plain(), false), (painted, true)] {
        let buffer = person().buffer(palette, 80, 24);
        let has_color = |cell: &Cell| cell.fg != Color::Reset;
        assert_eq!(buffer.content.iter().any(has_color), is_colored);
        let reversed = buffer.content.iter().filter(|it| it.modifier.contains(Modifier::REVERSED));
        assert_eq!(reversed.count(), 80);
    }
}
