//! Well-formed commands lead to exactly the calls they ask for, whatever their words.

use super::speech::{
    Case, leading, name, path, politely, quoted, role, send, spawn, steers, word, work,
};
use super::{call, led, ordered};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Joins sentences and what they must lead to.
fn joined(cases: &[(Case, u8)], ties: &[&str]) -> Case {
    let mut text = String::new();
    let mut calls = Vec::new();
    for (at, ((sentence, expected), manner)) in cases.iter().enumerate() {
        let tie = if at == 0 { "" } else { ties[usize::from(*manner) % ties.len()] };
        let sentence = if tie.ends_with(['.', '!', '\n']) || at == 0 {
            politely(sentence, *manner)
        } else {
            sentence.clone()
        };
        text.push_str(tie);
        text.push_str(if at == 0 || tie.ends_with('\n') { "" } else { " " });
        text.push_str(&sentence);
        calls.extend(expected.clone());
    }
    (text, calls)
}

fn message(to: &str, content: &str) -> (String, Value) {
    call("send_message", json!({"to": to, "content": content}))
}

proptest! {
    #[test]
    fn a_lead_does_what_it_is_told(case in prop_oneof![work(), leading()], manner: u8) {
        let (text, calls) = (politely(&case.0, manner), case.1);
        prop_assert_eq!(led(&text).calls, calls, "{}", text);
    }

    #[test]
    fn a_teammate_does_what_it_is_told(case in work(), manner: u8, me in name()) {
        let text = politely(&case.0, manner);
        prop_assume!(!case.0.contains(&me));
        prop_assert_eq!(ordered(&me, &text).calls, case.1, "{}", text);
    }

    #[test]
    fn commands_are_done_in_order(
        cases in prop::collection::vec((prop_oneof![work(), leading()], any::<u8>()), 2..5)
    ) {
        let (text, calls) = joined(&cases, &[".", "!", " and then", ", then", ";", ". Then", "\n"]);
        prop_assert_eq!(led(&text).calls, calls, "{}", text);
    }

    #[test]
    fn an_order_reaches_its_receiver_and_is_understood_there(
        (to, case) in (name(), prop_oneof![work()]),
        form in 0..9,
    ) {
        prop_assume!(!case.0.contains(&to));
        let order = &case.0;
        // Questions are no orders, and "you should in a.txt, replace …" is no English.
        prop_assume!(!["what", "does", "is ", "in "].iter().any(|word| order.starts_with(word)));
        prop_assume!(!order.contains("should be"));
        let text = match form {
            0 => format!("Have {to} {order}"),
            1 => format!("Ask {to} to {order}."),
            2 => format!("tell {to} to {order}"),
            3 => format!("{to} should {order}"),
            4 => format!("{to} must please {order}!"),
            5 => format!("I want {to} to {order}"),
            6 => format!("{to} needs to {order}."),
            7 => format!("Get {to} to {order}"),
            _ => format!("Could you ask {to} to {order}?"),
        };
        let sent = led(&text).calls;
        prop_assert_eq!(sent.len(), 1, "{} -> {:?}", text, sent);
        prop_assert_eq!((&sent[0].0, &sent[0].1["to"]), (&"send_message".to_owned(), &json!(to)));
        let content = sent[0].1["content"].as_str().unwrap();
        prop_assert_eq!(ordered(&to, content).calls, case.1, "{} -> {}", text, content);
    }

    #[test]
    fn pronouns_stand_for_the_last_named(
        (she, _, spawned) in spawn(), case in send(), pronoun in 0_usize..3,
    ) {
        let her = ["her", "him", "them"][pronoun];
        prop_assume!(!case.0.contains(&she) && !case.0.contains("should be"));
        let text = format!("{}. Ask {her} to {}. Then shut {her} down.", spawned.0, case.0);
        let calls = led(&text).calls;
        prop_assert_eq!(&calls[0], &spawned.1[0], "{}", text);
        prop_assert_eq!(&calls[1].1["to"], &json!(she), "{}", text);
        prop_assert_eq!(calls.len(), 3, "{}", text);
    }

    #[test]
    fn several_agents_get_one_call_each(
        names in prop::collection::btree_set(name(), 2..5), role in role(), (text, quote) in quoted(),
    ) {
        let names: Vec<_> = names.into_iter().collect();
        let (last, first) = names.split_last().unwrap();
        let list = format!("{} and {last}", first.join(", "));
        let calls = led(&format!("Tell {list} {quote}")).calls;
        let expected: Vec<_> = names.iter().map(|name| message(name, &text)).collect();
        prop_assert_eq!(calls, expected);

        let each: Vec<_> = names.iter().map(|name| format!("{name} ({role})")).collect();
        let (last, first) = each.split_last().unwrap();
        let script = format!("spawn {} and {last}. Dismiss everyone.", first.join(", "));
        let calls = led(&script).calls;
        let called: Vec<_> = calls.iter().map(|(_, input)| input["name"].clone()).collect();
        prop_assert_eq!(called, [names.clone(), names].concat(), "{}", script);
    }

    #[test]
    fn the_short_demonstration_works_with_any_names(
        (a, b) in (name(), name()), (r, s) in (role(), role()), file in "[a-z]{3,8}\\.sql",
        table in "[a-z]{3,8}s",
    ) {
        prop_assume!(a != b);
        let calls = led(&format!("Spawn {a} ({r}) and {b} ({s}). Have {a} send {b} a message.")).calls;
        let tools: Vec<_> = calls.iter().map(|(tool, _)| tool.as_str()).collect();
        prop_assert_eq!(tools, ["spawn_teammate", "spawn_teammate", "send_message"]);
        prop_assert_eq!(&calls[2], &message(&a, &format!("Send {b} a message.")));
        let passed = ordered(&a, &format!("Send {b} a message.")).calls;
        prop_assert_eq!(passed, [message(&b, &format!("Hello {b}, this is {a}."))]);

        let order = format!("create a file called {file} with a {table} table");
        let calls = led(&format!("Spawn {a} as a {r}. Ask her to {order}.")).calls;
        prop_assert_eq!(calls.len(), 2);
        let written = ordered(&a, calls[1].1["content"].as_str().unwrap()).calls;
        let content = written[0].1["content"].as_str().unwrap();
        prop_assert_eq!(&written[0].1["path"], &json!(file));
        let table = format!("CREATE TABLE {table} (");
        prop_assert!(content.contains(&table) && content.contains("rehearsal"), "{}", content);

        let order = format!("check if {file} exists and list its contents");
        let calls = led(&format!("Spawn {b} as a {s}. Ask him to {order}.")).calls;
        let looked = ordered(&b, calls[1].1["content"].as_str().unwrap()).calls;
        prop_assert_eq!(looked.len(), 2);

        let calls = led(&format!("Shut down {a} gracefully, then show the team.")).calls;
        let expected = [call("shutdown_teammate", json!({"name": a})), call("list_teammates", json!({}))];
        prop_assert_eq!(calls, expected);
    }

    #[test]
    fn statements_are_passed_on_as_they_are(
        to in name(), (what, how) in (word(), word()), other in path(),
    ) {
        let words = format!("the {what} is {how}");
        for text in [
            format!("Tell {to} that {words}"),
            format!("let {to} know that {words}."),
            format!("Send {to} a message saying that {words}"),
            format!("inform {to} that {words}!"),
            format!("{to} should be told that {words}"),
            format!("Tell {to} that {words}, then read {other}"),
        ] {
            let calls = led(&text).calls;
            prop_assert_eq!(&calls[0], &message(&to, &words), "{}", text);
        }
    }
}

/// What once failed by chance: words that the grammar takes for a courtesy or a tie, wherever they stand.
#[test]
fn words_that_steer_are_neither_names_nor_ends_of_statements() {
    assert!(["ok", "but", "also", "later", "once"].into_iter().all(steers));
    assert!(!steers("alice") && !steers("long"));
    assert_eq!(led("Tell ann that it is long but, then read aa.txt").calls.len(), 2);
    assert_eq!(led("Ok, tell ann that it is long").calls, [message("ann", "it is long")]);
}

/// Forms that the generators do not build: one line each, with the calls in short.
#[test]
fn further_ways_to_say_it() {
    let cases: &[(&str, &[&str])] = &[
        ("Spawn ann: coder, ben: tester", &["spawn_teammate ann", "spawn_teammate ben"]),
        ("hire two testers named ann and ben", &["spawn_teammate ann", "spawn_teammate ben"]),
        ("I need a tester named ann", &["spawn_teammate ann"]),
        ("Could ann please send ben a message?", &["send_message ann"]),
        ("ann, please say hi to ben", &["send_message ann"]),
        ("Have ann create a.txt and ben create b.txt", &["send_message ann", "send_message ben"]),
        (
            "Ask ann to write a.txt and ask ben to read it",
            &["send_message ann", "send_message ben"],
        ),
        ("send ann \"x\" and ben \"y\"", &["send_message ann", "send_message ben"]),
        ("Pass \"x\" on to ann", &["send_message ann"]),
        ("Can you tell ann to stop?", &["shutdown_teammate ann"]),
        (
            "Gracefully shut down ann, then list the team",
            &["shutdown_teammate ann", "list_teammates "],
        ),
        ("Ask ann to run `ls`, then show the team", &["send_message ann", "list_teammates "]),
        ("Tell ann what is in a.txt", &["read_file a.txt", "send_message ann"]),
        ("Run `ls` and tell ann the result", &["bash ls", "send_message ann"]),
        ("Create a folder called data", &["bash mkdir -p -- data"]),
        ("Rename a.txt to b.txt", &["bash mv -- a.txt b.txt"]),
        ("Delete a.txt and show the files", &["bash rm -- a.txt", "bash ls -la"]),
        ("Append \"it's\" to a.txt", &["bash printf '%s\\n' 'it'\\''s' >> a.txt"]),
        ("Wait for ann, then show the team", &[]),
        ("run cargo test, then show me the results", &["bash cargo test"]),
        (
            "Stop ann and ben, then tell cat that they are gone",
            &["shutdown_teammate ann", "shutdown_teammate ben", "send_message cat"],
        ),
    ];
    for (text, expected) in cases {
        let short = |(tool, input): &(String, Value)| {
            let object = ["name", "to", "path", "command"]
                .map(|key| input[key].as_str().unwrap_or_default());
            format!("{tool} {}", object.concat())
        };
        assert_eq!(led(text).calls.iter().map(short).collect::<Vec<_>>(), *expected, "{text}");
    }
}

#[test]
fn words_are_put_as_the_receiver_reads_them() {
    for (text, content) in [
        ("Have ann send ben a message and tell him hi", "Send ben a message and tell ben hi."),
        ("Tell ann to send me a message", "Send the lead a message."),
        (
            "Ask ann to send you her notes when she is done",
            "Send the lead your notes when you are done.",
        ),
        ("Ask ann whether the tests pass", "Can you say whether the tests pass?"),
        ("Ask ann for a status report", "Send the lead a status report."),
        ("Tell ann: \"Do it. Now!\"", "Do it. Now!"),
    ] {
        assert_eq!(led(text).calls, [message("ann", content)], "{text}");
    }
}

#[test]
fn described_content_fits_and_says_who_wrote_it() {
    for (order, parts) in [
        (
            "Create a.sql with users and orders tables",
            vec!["TABLE users (", "TABLE orders (", "-- "],
        ),
        ("Create a.sql with tables cats, dogs", vec!["TABLE cats (", "TABLE dogs ("]),
        (
            "Create a.sql with a books table with columns id, title and isbn",
            vec!["TABLE books (", "title", "isbn"],
        ),
        (
            "Create a python script called a.py that prints cats",
            vec!["# ", "print(", "prints cats"],
        ),
        ("Make a.json with a list of cats", vec!["\"description\": \"a list of cats\""]),
        ("Write a poem about cats to a.md", vec!["# A", "poem about cats"]),
        ("Create a.toml", vec!["# a"]),
    ] {
        let calls = led(order).calls;
        let content = calls[0].1["content"].as_str().unwrap();
        assert!(content.contains("rehearsal model"), "{order}: {content}");
        for part in parts {
            assert!(content.contains(part), "{order}: {content}");
        }
    }
    for (order, content) in [
        ("Create an empty file called a.txt", ""),
        ("Create a.txt with lines red, green and blue", "red\ngreen\nblue"),
        ("make a file a.txt with these lines: \"a b\", \"c\"", "a b\nc"),
        ("Write the words good day into a.txt", "good day"),
        ("Create a.txt saying good day", "good day"),
    ] {
        assert_eq!(led(order).calls[0].1["content"], json!(content), "{order}");
    }
}
