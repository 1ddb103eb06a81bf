//! Tests of frames and keys, without a terminal.

use super::draw::draw;
use super::question_tests::question;
use super::*;
use crate::ui::style::{ColorChoice, Palette};
use crate::view::change::PendingQuestion;
use crate::view::{MessageProgress, OpenedMessage, Stage};
use crate::wire::message::Message;
use crate::wire::roster::{Status, UsageCount};
use crate::wire::transcript::{Entry, Line};
use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};
use serde_json::{Value, json};

pub(super) const NOW: f64 = 1_763_690_100.0;

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
pub(super) struct Person {
    pub(super) top: Top,
    pub(super) snapshot: Snapshot,
    size: (u16, u16),
}

fn person_at(snapshot: Snapshot) -> Person {
    let top = Top::new(View::fixed(None));
    let mut person = Person { top, snapshot, size: (80, 24) };
    person.frame();
    person
}

pub(super) fn person() -> Person {
    person_at(snapshot())
}

impl Person {
    fn buffer(&mut self) -> Buffer {
        let mut buffer = Buffer::empty(Rect::new(0, 0, self.size.0, self.size.1));
        draw(&mut self.top, &self.snapshot, NOW.into(), &mut buffer);
        buffer
    }

    pub(super) fn frame(&mut self) -> String {
        let buffer = self.buffer();
        let rows = buffer.content.chunks(usize::from(self.size.0)).map(|row| {
            let row: String = row.iter().map(Cell::symbol).collect();
            row.trim_end().to_owned() + "\n"
        });
        rows.collect()
    }

    pub(super) fn frame_of(&mut self, width: u16, height: u16) -> String {
        self.size = (width, height);
        self.frame()
    }

    /// Presses keys without a look at the screen in between.
    pub(super) fn press(&mut self, keys: &str) -> Option<Action> {
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
    #[track_caller]
    pub(super) fn sees(&mut self, keys: &str, parts: &[&str]) {
        assert_eq!(self.press(keys), None, "{keys}");
        let shown = self.frame();
        for part in parts {
            assert!(shown.contains(part), "after {keys}: no {part} in\n{shown}");
        }
    }

    #[track_caller]
    pub(super) fn misses(&mut self, parts: &[&str]) {
        let shown = self.frame();
        for part in parts {
            assert!(!shown.contains(part), "{part} in\n{shown}");
        }
    }

    /// Returns the text of the cells that are underlined, which are the matches of a search.
    fn underlined(&mut self) -> String {
        let buffer = self.buffer();
        let cells = buffer.content.iter().filter(|it| it.modifier.contains(Modifier::UNDERLINED));
        cells.map(Cell::symbol).collect()
    }
}

fn note(text: &str) -> Line {
    Line { at: NOW.into(), entry: Entry::Note { content: text.into() } }
}

#[test]
fn a_terminal_of_80_columns_shows_two_panes_and_names_all() {
    insta::assert_snapshot!(person().frame_of(80, 16), @r"
    team  1 open question  2 of 3 alive · 2 messages · 15.3k tokens
    ▸1 Members  2 Messages  3 Conversation  4 Tasks  5 Questions (1)
    ▸ 1 Members (3) ────────────────────────────────────────────────────────────────
       NAME   STATUS     FOR  ROLE   ACTIVITY         MAIL  TOKENS  MODEL
    ›  lead   ○ idle     1m   lead                          5.1k    rehearsal
     ? alice  ● working  1m   coder  bash             1     5.1k    rehearsal
       bob    ✗ failed   1m   coder  crash, signal 9        5.1k    rehearsal
    ─ 2 Messages (2, protocol hidden) ──────────────────────────────────────────────
      ✓ 01:54:30 alice → bob: the schema is ready
      ✉ 01:54:30 user → alice: hurry please





    enter open  w answer  / search  m write  i interrupt  s stop  q quit  ? keys
    ");
}

#[test]
fn a_large_terminal_shows_all_panes() {
    insta::assert_snapshot!(person().frame_of(125, 24), @r"
    team  1 open question  2 of 3 alive · 2 messages · 15.3k tokens
    ▸ 1 Members (3) ──────────────────────────────────────────────  ─ 2 Messages (2, protocol hidden) ───────────────────────────
       NAME   STATUS     FOR  ROLE   ACTIVITY      MAIL  MODEL        ✓ 01:54:30 alice → bob: the schema is ready
    ›  lead   ○ idle     1m   lead                       rehearsal    ✉ 01:54:30 user → alice: hurry please
     ? alice  ● working  1m   coder  bash          1     rehearsal
       bob    ✗ failed   1m   coder  crash, sign…        rehearsal

    ─ 4 Tasks (2) ────────────────────────────────────────────────
      ID  STATUS     OWNER  SUBJECT
      1   completed  alice  write the schema
      2   pending    -      test it

                                                                    ─ 3 Conversation of lead (protocol hidden) ──────────────────
                                                                    01:54:00 user
                                                                      Ask alice for a schema.
                                                                      You were restarted.




    ─ 5 Questions (1) ────────────────────────────────────────────
      alice asks for bash: rm -rf target

    enter open  w answer  / search  m write  i interrupt  s stop  q quit  z zoom  1-5 panes  ? keys
    ");
}

#[test]
fn every_pane_is_shown_or_named_at_every_size() {
    let names = ["Members", "Messages", "Conversation", "Tasks", "Questions"];
    for width in (20..180).step_by(7) {
        for height in [5, 6, 9, 10, 14, 24, 30, 60] {
            for keys in ["", "z", "\r", "w", "?"] {
                let mut person = person();
                person.frame_of(width, height);
                person.press(keys);
                let shown = person.frame();
                let tabs = shown.lines().nth(1).unwrap();
                for (number, name) in (1..).zip(names) {
                    let is_shown = shown.contains(&format!(" {number} {name}"));
                    let tab = format!("{number}{}", &name[..1]);
                    let is_named = tabs.replace(' ', "").contains(&tab);
                    assert!(is_shown || is_named, "{name} at {width}x{height}:\n{shown}");
                }
            }
        }
    }
    assert_eq!(person().frame_of(15, 4).trim(), "Needs 20x5");
}

#[test]
fn a_tiny_terminal_shows_the_front_and_the_question() {
    let mut person = person();
    insta::assert_snapshot!(person.frame_of(20, 5), @r"
    team  1 asked
    ▸1Me 2Ms 3Co 4Ta 5Qu
       NAME   STATUS
    ›  lead   ○ idle
    enter open  ? keys
    ");
    person.press("w");
    insta::assert_snapshot!(person.frame(), @r"
    team  1 asked
    ▸1Me 2Ms 3Co 4Ta 5Qu
    alice asks for bash:
      rm -rf target
    y yes  n no  ? keys
    ");
}

#[test]
fn protocol_is_hidden_until_a_key_shows_it() {
    let mut person = person();
    let mail = json!({"type": "idle_notification", "from": "alice", "content": "",
        "reason": "available"});
    let mail = json!({"kind": "mail", "at": 5, "gen": "1-a", "offset": 0, "message": mail});
    let mail = Line::read(mail.to_string().as_bytes()).unwrap();
    person.snapshot.conversation.lines.push_back(mail);
    person.sees("2", &["▸ 2 Messages (2, protocol hidden)", "hurry please"]);
    person.misses(&["permission_request"]);
    person.sees("p", &["▸ 2 Messages (3, with protocol)", "[permission_request]"]);
    person.sees("3", &["Conversation of lead (with protocol)", "[idle_notification]"]);
    person.sees("p", &["Conversation of lead (protocol hidden)"]);
    person.misses(&["idle_notification"]);
    person.snapshot.messages = crate::view::Snapshot::default().messages;
    let asks = json!({"type": "mode_set_request", "from": "lead", "mode": "plan", "id": "9"});
    person.snapshot.messages.add(progress("alice", Stage::Appended, &asks));
    person.sees("2", &["Only protocol messages: p shows them"]);
}

#[test]
fn a_message_opens_in_full_and_scrolls() {
    let mut person = person();
    person.sees("2k\r", &["▸ Message to bob", "alice → bob", "the schema is ready", "esc back"]);
    assert_eq!(person.top.opened_message(), Some(("bob", "1")));
    // The excerpt is shown until all of the message was read from the files.
    let content: Vec<String> = (0..100).map(|number| format!("row {number}.")).collect();
    let whole = json!({"from": "alice", "content": content.join("\n"), "id": "1"});
    let message = Message::read(whole.as_object().unwrap()).ok();
    let (to, id) = ("bob".into(), "1".into());
    person.snapshot.opened = Some(OpenedMessage { to, id, message });
    person.sees("", &["1-20 of 104", "row 0.", "row 15."]);
    person.sees("j", &["2-21 of 104", "row 16."]);
    person.sees(" ", &["21-40 of 104"]);
    person.sees("G", &["85-104 of 104", "row 99."]);
    person.sees("k", &["84-103 of 104"]);
    person.sees("g", &["1-20 of 104"]);
    person.top.press(Key::PageDown, &person.snapshot);
    person.sees("", &["20-39 of 104"]);
    person.top.press(Key::End, &person.snapshot);
    // A narrower terminal keeps the place.
    person.size = (70, 12);
    person.sees("", &["85-92 of 104", "row 80."]);
    person.size = (80, 24);
    person.sees("\x1b", &["▸ 2 Messages (1 of 2, protocol hidden)", "› ✓ 01:54:30 alice → bob"]);
    assert_eq!(person.top.opened_message(), None);
}

#[test]
fn a_message_whose_rest_is_lost_says_so() {
    let mut person = person();
    let long = "word ".repeat(1000);
    person.snapshot.messages.add(progress("bob", Stage::Acknowledged, &said("alice", &long, "9")));
    person.press("2\r");
    let opened = OpenedMessage { to: "bob".into(), id: "9".into(), message: None };
    person.snapshot.opened = Some(opened);
    person.frame();
    person.sees("G", &["(The rest is no longer stored.)"]);
}

#[test]
fn a_conversation_opens_in_full_and_follows_its_end() {
    let mut person = person();
    person.snapshot.conversation.lines.clear();
    let long: Vec<String> = (0..30).map(|number| format!("out {number}.")).collect();
    let result = json!({"kind": "tool_result", "tool_use_id": "t", "content": long.join("\n"),
        "is_error": false, "at": 5});
    person
        .snapshot
        .conversation
        .lines
        .push_back(Line::read(result.to_string().as_bytes()).unwrap());
    person.snapshot.conversation.starts_late = true;
    person.sees("3G", &["✓ 30 lines"]);
    person.sees("\r", &["▸ Conversation of lead", "11-30 of 30", "out 29."]);
    person.misses(&["✓ 30 lines"]);
    person.snapshot.conversation.lines.push_back(note("new"));
    person.sees("", &["12-31 of 31", "  new"]);
    person.sees("g", &["▸ Conversation of lead (protocol hidden), before: team transcript lead ─"]);
    person.sees("G", &["12-31 of 31"]);
    // Away from the end, nothing moves while lines arrive and old ones are dropped.
    person.sees("kk", &["10-29 of 31"]);
    person.snapshot.conversation.lines.push_back(note("newer"));
    person.sees("", &["10-29 of 32", "out 9."]);
    for number in 0..40 {
        person.snapshot.conversation.lines.push_back(note(&format!("note {number}.")));
    }
    person.sees("G", &["note 39."]);
    person.sees("k", &["note 38."]);
    let before = person.frame();
    person.snapshot.conversation.lines.pop_front();
    person.snapshot.conversation.dropped = 1;
    let after = person.frame();
    let rows = |frame: &str| frame.lines().skip(3).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(rows(&before), rows(&after));
    person.sees("G", &["note 39."]);
    // Another conversation is shown from its end.
    person.snapshot.conversation.name = "bob".into();
    person.snapshot.conversation.dropped = 0;
    person.snapshot.conversation.lines = (0..50).map(|it| note(&format!("bob {it}."))).collect();
    person.sees("", &["Conversation of bob", "bob 49."]);
}

#[test]
fn tasks_open_in_full() {
    let mut person = person();
    person.sees("4", &["▸ 4 Tasks (2)", "› 1   completed  alice  write the schema"]);
    person.sees("j\r", &["▸ Task 2", "task 2: test it", "after 1"]);
    person.sees("q", &["▸ 4 Tasks (2)", "› 2"]);
}

#[test]
fn the_search_moves_between_matches_and_highlights_them() {
    let mut person = person();
    for number in 0..60 {
        let text = format!("n{number}{}", if number % 20 == 5 { " Needle" } else { "" });
        let said = said("bob", &text, &format!("x{number}"));
        person.snapshot.messages.add(progress("lead", Stage::Acknowledged, &said));
    }
    person.sees("2g/", &["/"]);
    person.sees("needle", &["/needle  Match 1 of 3", "› ✓ 01:54:30 bob → lead: n5 Needle"]);
    person.sees("\r", &["Match 1 of 3", "/needle ─"]);
    assert_eq!(person.underlined(), "Needle");
    person.sees("n", &["Match 2 of 3", "› ✓ 01:54:30 bob → lead: n25 Needle"]);
    person.sees("nn", &["Match 1 of 3", "n5 Needle"]);
    person.sees("N", &["Match 3 of 3", "› ✓ 01:54:30 bob → lead: n45 Needle"]);
    person.sees("j", &["n next", "N previous"]);
    // Esc while typing restores row and pattern; an empty text repeats the search.
    person.sees("/zzz", &["No match"]);
    person.sees("\x1b", &["› ✓ 01:54:30 bob → lead: n46", "/needle ─"]);
    person.sees("/\r", &["Match 1 of 3"]);
    person.sees("\x1b", &["▸ 2 Messages"]);
    person.misses(&["/needle"]);
    assert_eq!(person.underlined(), "");
    person.sees("n", &["No search yet"]);
    // A pattern is text and not a key.
    person.sees("1/q\x7fbob\r", &["›  bob", "Match 1 of 1"]);
    person.top.paste("q", &person.snapshot);
    person.sees("", &["›  bob"]);
}

#[test]
fn an_open_text_is_searched_in_all_of_its_rows() {
    let mut person = person();
    person.snapshot.conversation.lines = (0..200).map(|it| note(&format!("row {it}."))).collect();
    person.sees("3\r/row 7.\r", &["Match 1 of 1", "row 7."]);
    assert_eq!(person.underlined(), "row 7.");
    person.sees("/ROW 1\r", &["Match 2 of 111", "row 10."]);
    person.sees("NN", &["Match 111 of 111", "row 199."]);
    person.sees("kkkk", &["n next"]);
    // A key that comes with another size of the terminal goes to a row that is visible there.
    person.top.resize(Rect::new(0, 0, 80, 6), &person.snapshot);
    person.press("g/row 2.\rN");
    person.size = (80, 6);
    person.sees("", &["row 2."]);
    person.sees("\x1b\x1b", &["▸3 Conversation"]);
}

#[test]
fn a_pane_is_zoomed_to_the_whole_screen() {
    let mut person = person();
    person.size = (160, 50);
    person.sees("2", &["1 Members (3)", "5 Questions (1)", "1-5 panes", "q quit"]);
    person.sees("z", &[" 1 Members ▸2 Messages  3 Conversation  4 Tasks  5 Questions (1)"]);
    person.misses(&["1 Members (3)", "1-5 panes"]);
    person.sees("4", &["▸ 4 Tasks (2)", "▸4 Tasks"]);
    person.sees("z", &["1 Members (3)", "▸ 4 Tasks (2)"]);
    person.sees("z\x1b", &["1 Members (3)", "▸ 4 Tasks (2)"]);
    person.sees("\x1b", &["▸ 1 Members (3)"]);
}

#[test]
fn keys_go_to_panes_and_wrong_keys_do_nothing() {
    let mut person = person();
    person.sees("\t\t", &["▸ 3 Conversation of lead"]);
    person.sees("ll", &["▸ 5 Questions (1)", "› alice asks for bash: rm -rf target"]);
    person.top.press(Key::BackTab, &person.snapshot);
    person.top.press(Key::Left, &person.snapshot);
    person.sees("", &["▸ 3 Conversation"]);
    for wrong in ["x", "é", "\x7f", "y", "a", "0", "6", "N"] {
        let shown = person.frame();
        assert_eq!(person.press(wrong), None);
        assert!(person.top.opened.is_none() && person.top.mode.is_none(), "{wrong}");
        person.top.notice = None;
        assert_eq!(person.frame(), shown, "{wrong}");
    }
    assert_eq!(person.press("q"), Some(Action::Quit));
}

#[test]
fn the_help_names_every_key() {
    let mut person = person();
    person.size = (80, 60);
    person.sees("?", &["▸ Keys", "In a question", "shift-tab, left, h"]);
    let shown = person.frame();
    for row in super::bindings::BINDINGS {
        assert!(shown.contains(row.help) && shown.contains(row.names), "{row:?}\n{shown}");
    }
    person.frame_of(20, 5);
    person.sees("G", &["team's files.", "? keys"]);
    person.sees("q", &["1Me"]);
    // Behind the keys is the text from which they were opened.
    person.size = (80, 24);
    person.sees("w?", &["▸ Keys"]);
    person.sees("?", &["▸ Question of alice"]);
    person.sees("?\x1b", &["▸ Question of alice"]);
}

#[test]
fn a_message_goes_to_the_agent_in_front_and_esc_cancels_it() {
    let mut person = person();
    let send = |to: &str, text: &str| Some(Action::Send { to: to.into(), text: text.into() });
    assert_eq!(person.press("jmhix\x7f there\r"), send("alice", "hi there"));
    assert_eq!(person.press("mq\x1b"), None);
    assert_eq!(person.press("m  \r"), None, "nothing to say");
    person.press("m");
    person.top.paste("q\ny\x1b[2J", &person.snapshot);
    assert_eq!(person.press("\r"), send("alice", "q\ny"));
    person.top.paste("q", &person.snapshot);
    // The message that is in front is answered; the user is no member.
    person.sees("1G2m", &["To alice:"]);
    person.sees("\x1bk\rm", &["To alice:"]);
    assert_eq!(person.press("hello\r"), send("alice", "hello"));
    person.sees("1m", &["To bob:"]);
}

#[test]
fn a_member_is_stopped_only_after_confirmation() {
    let mut person = person();
    assert_eq!(person.press("jsn"), None);
    assert_eq!(person.press("s\r"), None);
    person.sees("s", &["Stop alice? y: yes, any other key: no"]);
    assert_eq!(person.press("y"), Some(Action::Stop { name: "alice".into() }));
    person.sees("js", &["bob is not running"]);
    person.sees("ggs", &["team stop --all"]);
    assert_eq!(person.top.selected, "lead");
    assert_eq!(person.top.press(Key::Interrupt, &person.snapshot), Some(Action::Quit));
}

#[test]
fn a_turn_is_interrupted_only_after_confirmation() {
    let mut person = person();
    assert_eq!(person.press("jin"), None);
    person.sees("i", &["Interrupt the turn of alice? y: yes, any other key: no"]);
    assert_eq!(person.press("y"), Some(Action::InterruptTurn { name: "alice".into() }));
    person.sees("ji", &["bob is not running"]);
    person.sees("ggi", &["press Esc there"]);
}

#[test]
fn messages_follow_their_end_and_stay_where_a_person_reads() {
    let mut person = person();
    let add = |person: &mut Person, number: usize| {
        let said = said("bob", &format!("n{number};"), &format!("x{number}"));
        person.snapshot.messages.add(progress("lead", Stage::Acknowledged, &said));
    };
    (0..100).for_each(|number| add(&mut person, number));
    person.sees("2", &["› ✓ 01:54:30 bob → lead: n99;"]);
    add(&mut person, 100);
    person.sees("", &["› ✓ 01:54:30 bob → lead: n100;"]);
    person.sees("kk", &["› ✓ 01:54:30 bob → lead: n98;", "Messages (101 of 103"]);
    add(&mut person, 101);
    person.sees("", &["› ✓ 01:54:30 bob → lead: n98;"]);
    person.sees("g", &["› ✓ 01:54:30 alice → bob: the schema is ready"]);
    person.sees("jG", &["› ✓ 01:54:30 bob → lead: n101;"]);
}

#[test]
fn the_selected_row_stays_visible() {
    let mut snapshot = Snapshot::default();
    snapshot.members = (0..100).map(|number| member(&format!("m{number}"), Status::Idle)).collect();
    let mut person = person_at(snapshot);
    person.sees("G", &["›  m99"]);
    person.snapshot.members.pop();
    person.top.update(&person.snapshot);
    assert_eq!(person.top.selected, "m0", "who has left is not selected");
    person.sees("", &["›  m0"]);
}

proptest::proptest! {
    #[test]
    fn any_keys_at_any_size_can_be_drawn(
        keys in "[1-5a-zA-Z?/ \r\t\x1b\x7f]{0,30}", is_empty: bool,
        sizes in proptest::collection::vec((1u16..200, 1u16..60), 1..4),
    ) {
        let mut person = person_at(if is_empty { Snapshot::default() } else { snapshot() });
        for (width, height) in sizes {
            person.frame_of(width, height);
            person.press(&keys);
            person.frame();
        }
    }
}

#[test]
fn every_text_is_sanitized() {
    let mut snapshot = snapshot();
    let evil = "\u{1b}[2J\u{202e}evil\u{1b}]52;c;aGk=\u{7}\u{9b}31m";
    let (role, activity, model) = (evil.into(), Some(evil.into()), evil.into());
    let eve = MemberView { role, activity, model, ..member("eve", Status::Working) };
    snapshot.members.push(eve);
    snapshot.trouble = Some(evil.into());
    let said = json!({"type": evil, "from": evil, "content": evil, "id": evil});
    snapshot.messages.add(progress("alice", Stage::Appended, &said));
    let message = Message::read(said.as_object().unwrap()).ok();
    snapshot.opened = Some(OpenedMessage { to: "alice".into(), id: evil.into(), message });
    snapshot.conversation.lines.push_back(note(evil));
    snapshot.requests = vec![question(evil, evil)];
    snapshot.tasks[0].0.subject = evil.into();
    let mut person = person_at(snapshot);
    for keys in ["2", "2G\r", "3", "3\r", "4g", "4g\r", "5", "w", "2/evil\r"] {
        for (width, height) in [(80, 24), (120, 30), (20, 5)] {
            person.top.opened = None;
            person.press(keys);
            person.top.notify(Notice::Failed(evil.into()));
            let shown = person.frame_of(width, height);
            let is_harmless = |c: char| c == '\n' || (!c.is_control() && c != '\u{202e}');
            assert!(shown.chars().all(is_harmless), "{shown:?}");
            assert!(shown.contains("evil"), "{keys}\n{shown}");
        }
    }
}

#[test]
fn without_colours_only_the_selection_is_highlighted() {
    let painted = Palette::new(ColorChoice::Always, true);
    for (palette, is_colored) in [(Palette::plain(), false), (painted, true)] {
        let mut person = person();
        person.top.view.palette = palette;
        let buffer = person.buffer();
        let has_color = |cell: &Cell| cell.fg != Color::Reset;
        assert_eq!(buffer.content.iter().any(has_color), is_colored);
        let reversed = buffer.content.iter().filter(|it| it.modifier.contains(Modifier::REVERSED));
        assert_eq!(reversed.count(), 80);
    }
}
