//! Views beside a running team: log, transcript, the path of a message. They change nothing, and need little time
//! and memory even for a long conversation.

use crate::support::child_process::write;
use crate::support::harness::{PATIENCE, SYSTEM_PATH, Team};
use crate::support::scripts::{assert_left_in_order, calls, headless, says, script, spawn};
use crate::support::skips::skipped;
use crate::support::terminal::{SIZES, Size, Terminal};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Instant;

/// The metadata of every file in a folder, as far as a view must not change it.
pub(crate) fn snapshot(folder: &Path) -> BTreeMap<PathBuf, [i64; 7]> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let known = std::fs::symlink_metadata(&folder).unwrap();
        let [inode, size] =
            [known.ino(), known.size()].map(|number| i64::try_from(number).unwrap());
        let times = [known.mtime(), known.mtime_nsec(), known.ctime(), known.ctime_nsec()];
        let [modified, part, changed, its_part] = times;
        let stamp = [known.mode().into(), inode, size, modified, part, changed, its_part];
        found.insert(folder.clone(), stamp);
        if known.is_dir() {
            folders.extend(std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    found
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub(crate) fn run_of_two() -> Team {
    let team = Team::new();
    let to_bob = ("send_message", json!({ "to": "lead", "content": "a note" }));
    let lines = [
        calls("lead", &[spawn("bob")]),
        says("lead", "spawned"),
        calls("bob", &[to_bob]),
        says("bob", "written"),
        says("lead", "I have read it"),
        says("lead", "and that"),
    ];
    headless(&team, &script(&team, &lines), "begin").expect(0);
    assert_left_in_order(&team);
    team
}

#[test]
fn the_log_is_merged_by_time_and_filtered() {
    let team = run_of_two();
    let all = json_lines(&team.team(&["log", "--json"]).expect(0).out);
    let times: Vec<&str> = all.iter().map(|line| line["timestamp"].as_str().unwrap()).collect();
    assert!(times.is_sorted() && times.len() > 4, "{times:?}");
    for name in ["lead", "bob"] {
        assert!(all.iter().any(|line| line["agent"] == name), "{name}");
    }
    let bobs = json_lines(&team.team(&["log", "bob", "--json"]).expect(0).out);
    assert!(!bobs.is_empty() && bobs.iter().all(|line| line["agent"] == "bob"));
    let middle = times[times.len() / 2];
    let later = json_lines(&team.team(&["log", "--json", "--since", middle]).expect(0).out);
    let wanted: Vec<&Value> =
        all.iter().filter(|line| line["timestamp"].as_str().unwrap() >= middle).collect();
    assert_eq!(later.iter().collect::<Vec<_>>(), wanted);
    assert_eq!(
        team.team(&["log", "--since", "2001-01-01"]).expect(0).out.lines().count(),
        all.len()
    );
    assert_eq!(team.team(&["log", "--since", "0s"]).expect(0).out, "");
    let errors = team.team(&["log", "--level", "error", "--json"]).expect(0);
    assert!(json_lines(&errors.out).iter().all(|line| line["level"] == "ERROR"), "{errors:?}");
    write(
        &team.path("log/zoe.jsonl"),
        "{\"timestamp\":\"2020-01-01T00:00:00Z\",\"level\":\"ERROR\",\"message\":\"of old\"}\ntorn",
    );
    let first = team.team(&["log", "--level", "warn"]).expect(0).out;
    assert!(first.lines().next().unwrap().ends_with("zoe of old"), "{first}");
    let messages = json_lines(&team.team(&["log", "--type", "message", "--json"]).expect(0).out);
    let texts: Vec<&Value> = messages.iter().map(|line| &line["message"]["content"]).collect();
    assert_eq!(texts, ["begin", "a note"], "{messages:?}");
    assert_eq!(messages[1]["agent"], "lead");
    let mixed = json_lines(&team.team(&["log", "--type", "log,mail", "--json"]).expect(0).out);
    assert!(mixed.len() > all.len() + 1, "{mixed:?}");
    team.team(&["log", "nobody"]).expect(1);
    let why = team.team(&["log", "--since", "yesterday"]).expect(2);
    assert!(why.err.contains("10m"), "{why:?}");
}

#[test]
fn trace_shows_the_path_of_a_message() {
    let team = run_of_two();
    let message = team.mail_of("lead").into_iter().find(|mail| mail["content"] == "a note");
    let id = message.unwrap()["id"].as_str().unwrap().to_owned();
    let told = team.team(&["trace", &id, "--json"]).expect(0).json();
    assert_eq!((&told["schema"], &told["id"]), (&json!(1), &json!(id)));
    assert_eq!(told["message"]["content"], "a note");
    let events = told["events"].as_array().unwrap();
    let of = |event: &str| {
        let found: Vec<&Value> = events.iter().filter(|it| it["event"] == event).collect();
        assert_eq!(found.len(), 1, "{event}: {told:#}");
        found[0].clone()
    };
    assert_eq!(
        (&of("called")["agent"], &of("called")["text"]),
        (&json!("bob"), &json!("send_message"))
    );
    assert_eq!((&of("sent")["agent"], &of("sent")["text"]), (&json!("bob"), &json!("lead")));
    assert_eq!(of("told")["agent"], "bob");
    assert_eq!(of("taken_in")["file"], "transcript/lead.jsonl");
    assert!(of("turn_ended")["text"].as_str().unwrap().starts_with("done"));
    let at = usize::try_from(of("taken_in")["offset"].as_u64().unwrap()).unwrap();
    let text = std::fs::read_to_string(team.path("transcript/lead.jsonl")).unwrap();
    assert!(text[at..].lines().next().unwrap().contains(&id), "the place is the place");
    // The message may arrive before the lead's reply about the spawn of bob.
    let answer = json_lines(&text[at..]).into_iter().find(|line| line["kind"] == "assistant");
    let answer = &answer.unwrap()["blocks"][0]["text"];
    assert_eq!((&of("read")["agent"], &of("read")["text"]), (&json!("lead"), answer));
    let shown = team.team(&["trace", &id]).expect(0).out;
    assert!(shown.contains("receives it") && shown.contains("a note"), "{shown}");

    let waits = team.team(&["send", "lead", "later"]).expect(0).out;
    let told = team.team(&["trace", waits.trim(), "--json"]).expect(0).json();
    let last = told["events"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&last["event"], &last["file"]), (&json!("waits"), &json!("inbox/lead.jsonl")));

    let mut inbox =
        std::fs::OpenOptions::new().append(true).open(team.path("inbox/lead.jsonl")).unwrap();
    writeln!(inbox, r#"{{"id":"x:dead","type":"message","from":"user"}}"#).unwrap();
    let ask = json!({"id":"q:1","type":"plan_approval_request","from":"bob","content":"p","request_id":"r1","plan":"p","timestamp":5.0});
    let answer = json!({"id":"q:2","type":"plan_approval_response","from":"lead","content":"yes","request_id":"r1","approve":true,"timestamp":6.0});
    writeln!(inbox, "{ask}").unwrap();
    write(&team.path("inbox/bob.jsonl"), format!("{answer}\n"));
    team.team(&["inbox", "lead", "--drain"]).expect(0);
    let dead = team.team(&["trace", "x:dead", "--json"]).expect(0).json();
    let dead = dead["events"].as_array().unwrap();
    assert!(dead.iter().any(|event| event["event"] == "dead" && event["text"] != ""), "{dead:?}");
    let asked = team.team(&["trace", "q:1", "--json"]).expect(0).json();
    let answered = asked["events"].as_array().unwrap().iter().find(|it| it["event"] == "answered");
    assert_eq!(answered.unwrap()["agent"], "lead", "{asked:#}");
    let unknown = team.team(&["trace", "no:such"]).expect(1);
    assert!(unknown.err.contains("no message"), "{unknown:?}");
    let in_logs_only = team.team(&["trace", "mail taken in"]).expect(1);
    assert!(in_logs_only.err.contains("no message"), "{in_logs_only:?}");
    let dead = team.team(&["trace", "x:de", "--json"]).expect(0).json();
    assert_eq!(dead["id"], "x:dead", "a unique beginning is enough");
    let several = team.team(&["trace", "q:"]).expect(1);
    assert!(several.out.is_empty(), "{several:?}");
    for part in ["ambiguous: 2 messages begin with q:", "q:1, q:2"] {
        assert!(several.err.contains(part), "{part}: {several:?}");
    }
    // A beginning without the name of the sender: all ids of one moment begin so.
    let sent: Vec<String> = (0..7)
        .map(|_| team.team(&["send", "lead", "more"]).expect(0).out.trim().to_owned())
        .collect();
    let common = &sent[0]["user:".len()..][..6];
    let several = team.team(&["trace", common]).expect(1);
    assert!(several.out.is_empty() && several.err.lines().count() <= 4, "{several:?}");
    assert!(several.err.contains("ambiguous: ") && several.err.contains(" more"), "{several:?}");
    let last = &sent[6]["user:".len()..];
    let one = team.team(&["trace", last, "--json"]).expect(0).json();
    assert_eq!(one["id"], json!(sent[6]));
}

/// A line of a transcript at second `at`.
fn line(at: u32, padding: &str) -> String {
    format!("{{\"kind\":\"note\",\"at\":{at},\"content\":\"note {at} {padding}\"}}\n")
}

#[test]
fn a_transcript_of_100_mb_is_shown_fast_in_little_memory_and_followed() {
    let team = Team::new();
    team.team(&["init"]).expect(0);
    team.team(&["send", "lead", "hello"]).expect(0);
    let path = team.path("transcript/lead.jsonl");
    let mut file = std::io::BufWriter::new(std::fs::File::create(&path).unwrap());
    let padding = "x".repeat(10_000);
    for at in 0..10_500 {
        file.write_all(line(at, &padding).as_bytes()).unwrap();
    }
    drop(file);
    assert!(std::fs::metadata(&path).unwrap().size() > 100 << 20);
    // 64 MiB of private memory must be sufficient.
    let run = |line: &str| {
        let output = team.shell(&format!("ulimit -d 65536; {line}")).output().unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let begin = Instant::now();
    assert_eq!(run("team transcript lead --json | wc -l").trim(), "10500");
    let whole = begin.elapsed();
    // The quickest of several runs counts, because load delays single runs.
    let of_the_end = || {
        let begin = Instant::now();
        let late = run("team transcript lead --since 10498 --json");
        let took = begin.elapsed();
        assert_eq!(json_lines(&late).len(), 2);
        took
    };
    let took = (0..5).map(|_| of_the_end()).min().unwrap();
    assert!(took < whole / 4, "the last lines took {took:?}, all of them {whole:?}");

    let mut following = team.start(&["transcript", "lead", "--since", "10499", "--json", "-f"]);
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(next()["at"], 10_499);
    let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(line(10_500, "").as_bytes()).unwrap();
    assert_eq!(next()["at"], 10_500);
    end(&mut following);
    let gone = team.team(&["transcript", "bob", "-f"]).expect(1);
    assert!(gone.err.contains("no conversation"), "{gone:?}");
}

/// Stops a view that follows its input.
fn end(child: &mut Child) {
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap()),
        nix::sys::signal::Signal::SIGTERM,
    )
    .unwrap();
    child.wait().unwrap();
}

#[test]
fn a_followed_log_includes_later_members() {
    let team = Team::new();
    team.team(&["init"]).expect(0);
    let mut command = team.command("team", &["log", "-f", "--json"]);
    let mut following = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = following.stdout.take().unwrap();
    let (seen, lines) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = out.read(&mut bytes) {
            seen.send(String::from_utf8_lossy(&bytes[..count]).into_owned()).unwrap();
        }
    });
    write(
        &team.path("log/alice.jsonl"),
        "{\"timestamp\":\"2020-01-01T00:00:00Z\",\"level\":\"INFO\",\"message\":\"born\"}\n",
    );
    let line = lines.recv_timeout(PATIENCE).unwrap();
    assert!(line.contains("\"agent\":\"alice\"") && line.contains("born"), "{line}");
    end(&mut following);
    reader.join().unwrap();
}

/// A line of a log, `second` seconds after the beginning of 2031.
fn log_line(second: u32, message: &str) -> String {
    let timestamp = format!("2031-01-01T00:00:{second:02}Z");
    json!({"timestamp": timestamp, "level": "INFO", "message": message}).to_string() + "\n"
}

/// A log is one log, although it is rotated: also while it is followed, and for a search.
#[test]
fn the_rotated_parts_of_a_log_are_read_in_order() {
    let team = Team::new();
    team.team(&["init"]).expect(0);
    let id = team.team(&["send", "lead", "hello"]).expect(0).out.trim().to_owned();
    std::fs::create_dir(team.path("log/.old")).unwrap();
    let old = |number: u32| team.path(&format!("log/.old/lead-{number}.jsonl"));
    let current = team.path("log/lead.jsonl");
    write(&old(2), log_line(1, &format!("sent {id}")) + &log_line(2, "two"));
    write(&old(1), log_line(3, "three"));
    write(&current, log_line(5, "five"));
    write(&team.path("log/bob.jsonl"), log_line(4, "bob's"));
    let told = |lines: &[Value]| -> Vec<String> {
        lines.iter().map(|line| line["message"].as_str().unwrap().to_owned()).collect()
    };
    let all = json_lines(&team.team(&["log", "--json"]).expect(0).out);
    let words = ["two", "three", "bob's", "five"];
    assert_eq!(told(&all)[1..], words);
    let late = team.team(&["log", "--json", "--since", "2031-01-01T00:00:02Z"]).expect(0);
    assert_eq!(told(&json_lines(&late.out)), words);
    let traced = team.team(&["trace", &id, "--json"]).expect(0).json();
    let logged = traced["events"].as_array().unwrap().iter().find(|it| it["event"] == "logged");
    assert_eq!(logged.unwrap()["file"], "log/.old/lead-2.jsonl", "{traced:#}");

    let mut following = team.start(&["log", "lead", "-f", "--json"]);
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    for word in ["two", "three", "five"] {
        let line = std::iter::repeat_with(&mut next).find(|it| it["message"] == word);
        assert_eq!(line.unwrap()["agent"], "lead");
    }
    // The last line before a rotation is read from the rotated file.
    let mut file = std::fs::OpenOptions::new().append(true).open(&current).unwrap();
    for number in 6..8 {
        file.write_all(log_line(number, &format!("line {number}")).as_bytes()).unwrap();
        std::fs::rename(old(1), old(2)).unwrap();
        std::fs::rename(&current, old(1)).unwrap();
        file = std::fs::File::create(&current).unwrap();
    }
    file.write_all(log_line(8, "line 8").as_bytes()).unwrap();
    assert_eq!(told(&[next(), next(), next()]), ["line 6", "line 7", "line 8"]);
    end(&mut following);
}

/// Runs a command to its end in a terminal of this size.
fn in_terminal(team: &Team, args: &[&str], size: Size, code: i32) -> Terminal {
    let mut terminal = Terminal::of_size(team.command("team", args), size);
    assert_eq!(terminal.wait().code(), Some(code), "{}", terminal.screen());
    terminal
}

/// In a terminal a log has colours and goes through the pager, elsewhere it is plain and goes straight out.
#[test]
fn a_log_in_a_terminal_has_colours_and_a_pager() {
    for size in SIZES {
        let team = run_of_two();
        team.variable("PAGER", "sed s/^/PAGED:/");
        let run = |args: &[&str]| in_terminal(&team, args, size, 0);
        let paged = run(&["log"]);
        assert!(paged.printed().contains("PAGED:"), "{}", paged.printed());
        assert!(paged.has_colors());
        for args in [&["log", "--no-pager"][..], &["log", "--json"]] {
            let plain = run(args);
            assert!(!plain.printed().contains("PAGED:"), "{args:?}: {}", plain.printed());
        }
        team.variable("PAGER", "no-such-pager-here");
        assert!(run(&["log"]).printed().contains("lead started"), "it is shown all the same");
        let piped = team.team(&["log"]).expect(0).out;
        assert!(!piped.contains("PAGED:") && !piped.contains('\u{1b}'), "{piped}");
    }
}

/// Without a choice the pager is less: the person reads page by page, and leaves.
#[test]
fn a_long_log_is_read_page_by_page() {
    if !SYSTEM_PATH.split(':').any(|folder| Path::new(folder).join("less").exists()) {
        return skipped("less is not installed: a long log was not read with it");
    }
    for size in SIZES {
        let team = Team::new();
        team.team(&["init"]).expect(0);
        let line = |n: u32| {
            let of_old = json!({"timestamp": "2020-01-01T00:00:00Z", "level": "INFO",
                "message": format!("event {n} of old")});
            format!("{of_old}\n")
        };
        write(&team.path("log/alice.jsonl"), (0..200).map(line).collect::<String>());
        let mut pager = Terminal::of_size(team.command("team", &["log"]), size);
        let last_of_page = u32::from(size.0) - 2;
        pager.expect_screen(&format!("event {last_of_page} of old\n:"));
        assert!(pager.screen().contains("event 0 of old"), "{}", pager.screen());
        pager.press(" ");
        pager.expect_screen(&format!("event {} of old", last_of_page + 1));
        pager.press("q");
        assert_eq!(pager.wait().code(), Some(0), "{}", pager.screen());
        assert!(!pager.printed().contains("event 199 of old"), "{}", pager.printed());
        pager.assert_restored();
    }
}

/// People read the log: it has words, and no debug form of a type.
#[test]
fn a_log_has_no_debug_forms() {
    let team = run_of_two();
    let has_none = |log: &str| {
        assert!(log.contains("lead started") && log.contains("lead ends"), "{log}");
        for form in ["Ok(", "Some(", "Err(", "None", " { ", "RuleLists", "[]"] {
            let found = log.lines().find(|line| line.contains(form));
            assert_eq!(found, None, "{form}");
        }
    };
    has_none(&team.team(&["log"]).expect(0).out);
    for size in SIZES {
        has_none(&in_terminal(&team, &["log", "--no-pager"], size, 0).printed());
    }
}

/// The beginning of several ids shows some of them instead of one hundred rows about each.
#[test]
fn an_ambiguous_id_names_its_candidates_in_a_terminal() {
    let team = run_of_two();
    let sent: Vec<String> = (0..7)
        .map(|_| team.team(&["send", "lead", "more"]).expect(0).out.trim().to_owned())
        .collect();
    let common = &sent[0]["user:".len()..][..6];
    for size in SIZES {
        let terminal = in_terminal(&team, &["trace", common], size, 1);
        let screen = terminal.screen();
        let [what, why, now, rest @ ..] = &screen.lines().collect::<Vec<_>>()[..] else {
            panic!("{screen}")
        };
        assert!(what.starts_with("error: ambiguous: "), "{screen}");
        assert!(what.ends_with(&format!(" messages begin with {common}")), "{screen}");
        let names = why.trim_start_matches("  why: ").split(", ");
        let names: Vec<&str> = names.filter(|name| !name.starts_with("and ")).collect();
        let is_candidate = |name: &&str| {
            let id = name.split_once(':').map_or("", |(_, id)| id);
            id.starts_with(common) && id.len() == 36
        };
        assert!(names.len() == 5 && names.iter().all(is_candidate), "{names:?}: {screen}");
        assert!(why.contains(" more") && now.contains("give more of the id"), "{screen}");
        assert!(rest.iter().all(|row| row.is_empty()), "{screen}");
        let one = in_terminal(&team, &["trace", &sent[6]["user:".len()..]], size, 0);
        assert!(one.screen().contains(&sent[6]), "{}", one.screen());
        assert!(!one.printed().contains("{\""), "{}", one.printed());
    }
}
