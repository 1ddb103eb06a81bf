//! Tests of frames and keys, without a terminal.

use super::draw::draw;
use super::*;
use crate::ui::style::ColorChoice;
use crate::ui::style::Palette;
use crate::ui::view::View;
use crate::view::change::Asked;
use crate::view::{MessageProgress, Stage};
use crate::wire::roster::{Status, UsageCount};
use crate::wire::transcript::{Entry, Line};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier};
use serde_json::{Value, json};

const NOW: f64 = 1_763_690_100.0;

fn member(name: &str, status: Status) -> MemberView {
    MemberView {
        name: name.into(),
        color: "blue".into(),
        role: "coder".into(),
        status,
        alive: !status.is_over(),
        since: (NOW - 65.0).into(),
        activity: None,
        usage: UsageCount {
            turns: 1,
            input_tokens: 5_000,
            output_tokens: 120,
            ..UsageCount::default()
        },
        model: "rehearsal".into(),
        unread: 0,
        pid: Some(7),
        sign: None,
        ended: None,
        entry: Value::Null,
    }
}

fn progress(to: &str, stage: Stage, message: &Value) -> MessageProgress {
    let mut message = message.as_object().unwrap().clone();
    message.insert("timestamp".into(), (NOW - 30.0).into());
    MessageProgress::read(to, &message, stage).unwrap()
}

/// A lead and two teammates with a few messages.
fn snapshot() -> Snapshot {
    let mut lead = member("lead", Status::Idle);
    lead.color = String::new();
    lead.role = "lead".into();
    let mut alice = member("alice", Status::Working);
    alice.activity = Some("bash".into());
    alice.unread = 1;
    let mut bob = member("bob", Status::Failed);
    bob.ended = Some("crash, signal 9".into());
    let mut snapshot = Snapshot::default();
    snapshot.members.extend([lead, alice, bob]);
    let said = [
        progress(
            "bob",
            Stage::Acknowledged,
            &json!({"from": "alice", "content": "the schema is ready", "id": "1"}),
        ),
        progress(
            "alice",
            Stage::Appended,
            &json!({"from": "user", "content": "hurry\nplease", "id": "2"}),
        ),
        progress(
            "lead",
            Stage::Appended,
            &json!({"type": "permission_request", "from": "alice", "content": "", "id": "3",
            "request_id": "r", "tool": "bash", "input": {}, "description": "rm -rf target"}),
        ),
    ];
    for progress in said {
        snapshot.messages.add(progress);
    }
    let task = |value: Value| serde_json::from_value(value).unwrap();
    snapshot.tasks = vec![
        (
            task(
                json!({"id": "1", "subject": "write the schema", "status": "completed", "owner": "alice"}),
            ),
            vec![],
        ),
        (task(json!({"id": "2", "subject": "test it", "blocked_by": ["1"]})), vec![]),
    ];
    let question = serde_json::from_value(json!({"request_id": "r", "about": "permission",
        "tool_use_id": "t", "tool": "bash", "input": {}, "description": "rm -rf target"}));
    let (from, decider) = ("alice".into(), "lead".into());
    snapshot.requests =
        vec![Asked { from, decider, deadline: NOW.into(), question: question.unwrap() }];
    snapshot.conversation.name = "lead".into();
    let user = Entry::User { content: "Ask alice for a schema.".into() };
    let note = Entry::Note { content: "You were restarted.".into() };
    snapshot.conversation.lines =
        [user, note].map(|entry| Line { at: (NOW - 60.0).into(), entry }).into();
    snapshot
}

fn top(snapshot: &Snapshot) -> Top {
    let mut top = Top::default();
    top.update(snapshot);
    top
}

fn frame_in(
    palette: Palette,
    top: &mut Top,
    snapshot: &Snapshot,
    width: u16,
    height: u16,
) -> Buffer {
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    let view = View::fixed_in(palette);
    draw(top, snapshot, NOW.into(), &view, &mut buffer);
    buffer
}

fn text(buffer: &Buffer) -> String {
    let width = usize::from(buffer.area.width);
    let rows = buffer.content.chunks(width).map(|row| {
        let row: String = row.iter().map(ratatui::buffer::Cell::symbol).collect();
        row.trim_end().to_owned() + "\n"
    });
    rows.collect()
}

fn frame(top: &mut Top, snapshot: &Snapshot, width: u16, height: u16) -> String {
    text(&frame_in(Palette::plain(), top, snapshot, width, height))
}

fn press(top: &mut Top, snapshot: &Snapshot, keys: &str) -> Option<Action> {
    let key = |c| match c {
        '\r' => Key::Enter,
        '\x1b' => Key::Esc,
        '\t' => Key::Tab,
        '\x7f' => Key::Backspace,
        c => Key::Char(c),
    };
    keys.chars().map(key).fold(None, |_, key| top.press(key, snapshot))
}

#[test]
fn a_terminal_of_80_columns_shows_members_and_one_other_pane() {
    let snapshot = snapshot();
    insta::assert_snapshot!(frame(&mut top(&snapshot), &snapshot, 80, 24), @r#"
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
    let snapshot = snapshot();
    insta::assert_snapshot!(frame(&mut top(&snapshot), &snapshot, 120, 26), @r#"
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
    let snapshot = snapshot();
    insta::assert_snapshot!(frame(&mut top(&snapshot), &snapshot, 44, 12), @r#"
    team  2 of 3 alive · 3 messages
    ▸ 1 members (3) ────────────────────────────
      NAME   STATUS     FOR  MAIL  MODEL
    › lead   ○ idle     1m         rehearsal
      alice  ● working  1m   1     rehearsal
    ─ 2 messages (3) ───────────────────────────
    ✓ 01:54:30 alice → bob: the schema is ready
    ✉ 01:54:30 user → alice: hurry please
    ✉ 01:54:30 alice → lead [permission_request]


    q quit  ? help  tab pane  ↑↓ select  enter o
    "#);
    let tiny = frame(&mut top(&snapshot), &snapshot, 30, 5);
    assert_eq!(tiny.trim(), "too small: 30x5, needs 40x10");
}

#[test]
fn an_empty_team_and_any_size_can_be_drawn() {
    let (empty, full) = (Snapshot::default(), snapshot());
    for snapshot in [&empty, &full] {
        for (width, height) in
            [(1, 1), (40, 10), (41, 11), (110, 22), (109, 60), (300, 100), (500, 10)]
        {
            for keys in ["1", "2", "3", "4", "5", "?", "/x", "mhello", "sn"] {
                let mut top = top(snapshot);
                press(&mut top, snapshot, keys);
                frame(&mut top, snapshot, width, height);
            }
        }
    }
    assert!(frame(&mut top(&empty), &empty, 80, 24).contains("no members yet"));
}

#[test]
fn tab_and_numbers_change_the_pane() {
    let snapshot = snapshot();
    let mut top = top(&snapshot);
    press(&mut top, &snapshot, "\t\t");
    assert!(frame(&mut top, &snapshot, 80, 24).contains("▸ 3 conversation of lead"));
    press(&mut top, &snapshot, "4");
    let tasks = frame(&mut top, &snapshot, 80, 24);
    assert!(tasks.contains("▸ 4 tasks (2)") && tasks.contains("write the schema"), "{tasks}");
    press(&mut top, &snapshot, "\t");
    let requests = frame(&mut top, &snapshot, 80, 24);
    assert!(requests.contains("› alice asks for bash: rm -rf target"), "{requests}");
    press(&mut top, &snapshot, "\x1b");
    assert!(frame(&mut top, &snapshot, 80, 24).contains("▸ 1 members"));
    top.press(Key::BackTab, &snapshot);
    assert!(frame(&mut top, &snapshot, 80, 24).contains("▸ 5 requests"));
}

#[test]
fn a_message_goes_to_the_selected_agent_and_esc_cancels_it() {
    let snapshot = snapshot();
    let mut top = top(&snapshot);
    let sent = press(&mut top, &snapshot, "jmhix\x7f there\r");
    assert_eq!(sent, Some(Action::Send { to: "alice".into(), text: "hi there".into() }));
    assert_eq!(press(&mut top, &snapshot, "mq\x1b"), None);
    assert_eq!(press(&mut top, &snapshot, "m  \r"), None, "nothing to say");
    press(&mut top, &snapshot, "m");
    top.paste("q\ny\x1b[2J");
    let sent = top.press(Key::Enter, &snapshot);
    assert_eq!(sent, Some(Action::Send { to: "alice".into(), text: "q\ny".into() }));
    top.paste("q");
    assert_eq!(press(&mut top, &snapshot, "q"), Some(Action::Quit));
}

#[test]
fn a_member_is_stopped_only_after_confirmation() {
    let snapshot = snapshot();
    let mut top = top(&snapshot);
    assert_eq!(press(&mut top, &snapshot, "jsn"), None);
    assert_eq!(press(&mut top, &snapshot, "s\r"), None);
    assert_eq!(press(&mut top, &snapshot, "sy"), Some(Action::Stop { name: "alice".into() }));
    press(&mut top, &snapshot, "js");
    assert!(frame(&mut top, &snapshot, 80, 24).contains("bob does not run"));
    press(&mut top, &snapshot, "ggs");
    assert_eq!(top.selected(), "lead");
    assert!(frame(&mut top, &snapshot, 80, 24).contains("team stop --all"));
    assert_eq!(top.press(Key::Interrupt, &snapshot), Some(Action::Quit));
}

#[test]
fn a_request_is_answered_only_if_shown_and_confirmed() {
    let mut snapshot = snapshot();
    let mut top = top(&snapshot);
    assert_eq!(press(&mut top, &snapshot, "ay"), None, "first it is shown");
    press(&mut top, &snapshot, "a");
    let asked = frame(&mut top, &snapshot, 80, 24);
    assert!(asked.contains("approve alice bash: rm -rf target? y"), "{asked}");
    assert_eq!(press(&mut top, &snapshot, "n"), None);
    let yes = Action::Answer { id: "r".into(), answer: RequestAnswer::Approve };
    assert_eq!(press(&mut top, &snapshot, "ay"), Some(yes));
    let no = Action::Answer { id: "r".into(), answer: RequestAnswer::Deny };
    assert_eq!(press(&mut top, &snapshot, "jdy"), Some(no));
    snapshot.requests.clear();
    assert_eq!(press(&mut top, &snapshot, "ay"), None);
}

#[test]
fn the_filter_shows_only_matches_until_esc() {
    let snapshot = snapshot();
    let mut top = top(&snapshot);
    press(&mut top, &snapshot, "/SCHEMA");
    let shown = frame(&mut top, &snapshot, 80, 24);
    assert!(shown.contains("show only: SCHEMA") && shown.contains("messages (1 of 3)"), "{shown}");
    assert!(shown.contains("no match"), "{shown}");
    press(&mut top, &snapshot, "\x1b/bob\r");
    assert_eq!(top.selected(), "bob", "who is not shown is not selected");
    let shown = frame(&mut top, &snapshot, 80, 24);
    assert!(shown.contains("members (1 of 3)") && shown.contains("only: bob"), "{shown}");
    press(&mut top, &snapshot, "\x1b");
    assert!(frame(&mut top, &snapshot, 80, 24).contains("members (3)"));
}

#[test]
fn messages_follow_their_end_and_scroll_back_to_their_start() {
    let mut snapshot = snapshot();
    for number in 0..100 {
        let said =
            json!({"from": "bob", "content": format!("n{number};"), "id": format!("x{number}")});
        snapshot.messages.add(progress("lead", Stage::Acknowledged, &said));
    }
    let mut top = top(&snapshot);
    press(&mut top, &snapshot, "2");
    assert!(frame(&mut top, &snapshot, 80, 24).contains("n99;"));
    press(&mut top, &snapshot, "kk");
    let back = frame(&mut top, &snapshot, 80, 24);
    assert!(
        back.contains("n97;") && !back.contains("n98;") && back.contains("2 rows back"),
        "{back}"
    );
    press(&mut top, &snapshot, "g");
    assert!(frame(&mut top, &snapshot, 80, 24).contains("the schema is ready"));
    press(&mut top, &snapshot, "jG");
    assert!(frame(&mut top, &snapshot, 80, 24).contains("n99;"));
}

#[test]
fn the_selected_row_stays_visible() {
    let mut snapshot = snapshot();
    snapshot.members = (0..100).map(|number| member(&format!("m{number}"), Status::Idle)).collect();
    let mut top = top(&snapshot);
    press(&mut top, &snapshot, "G");
    assert!(frame(&mut top, &snapshot, 80, 24).contains("› m99"));
    snapshot.members.pop();
    top.update(&snapshot);
    assert_eq!(top.selected(), "m0", "who has left is not selected");
}

#[test]
fn every_text_is_sanitized() {
    let mut snapshot = snapshot();
    let evil = "\u{1b}[2J\u{202e}evil\u{1b}]52;c;aGk=\u{7}\u{9b}31m";
    let mut eve = member("eve", Status::Working);
    eve.role = evil.into();
    eve.activity = Some(evil.into());
    eve.model = evil.into();
    snapshot.members.push(eve);
    snapshot.trouble = Some(evil.into());
    let said = json!({"type": evil, "from": evil, "content": evil, "id": "e"});
    snapshot.messages.add(progress("alice", Stage::Appended, &said));
    snapshot
        .conversation
        .lines
        .push_back(Line { at: NOW.into(), entry: Entry::Note { content: evil.into() } });
    for pane in ["2", "3", "4"] {
        for (width, height) in [(80, 24), (120, 30)] {
            let mut top = top(&snapshot);
            press(&mut top, &snapshot, pane);
            top.notify(Notice::Failed(evil.into()));
            let shown = frame(&mut top, &snapshot, width, height);
            let is_harmless = |c: char| c == '\n' || (!c.is_control() && c != '\u{202e}');
            assert!(shown.chars().all(is_harmless), "{shown:?}");
            assert!(shown.contains("evil"), "{shown}");
        }
    }
}

#[test]
fn without_colours_only_the_selection_is_highlighted() {
    let snapshot = snapshot();
    let painted = Palette::new(ColorChoice::Always, true);
    for (palette, is_colored) in [(Palette::plain(), false), (painted, true)] {
        let buffer = frame_in(palette, &mut top(&snapshot), &snapshot, 80, 24);
        let has_color = |cell: &ratatui::buffer::Cell| cell.fg != Color::Reset;
        assert_eq!(buffer.content.iter().any(has_color), is_colored);
        let reversed = buffer.content.iter().filter(|it| it.modifier.contains(Modifier::REVERSED));
        assert_eq!(reversed.count(), 80);
    }
}

#[test]
fn the_help_shows_every_key_and_any_key_closes_it() {
    let snapshot = snapshot();
    let mut top = top(&snapshot);
    press(&mut top, &snapshot, "?");
    let help = frame(&mut top, &snapshot, 80, 24);
    assert!(help.contains("stop the selected teammate") && help.contains("shift-tab"), "{help}");
    assert_eq!(press(&mut top, &snapshot, "q"), None);
    assert!(frame(&mut top, &snapshot, 80, 24).contains("members (3)"));
}
