//! Questions and rules about pages of the web, and the settings that take the tool away.

use super::pages::{WebTeam, fetch, set};
use crate::support::approvals::{requests, wait_asked};
use crate::support::harness::Team;
use crate::support::scripts::{
    assert_left_in_order, calls, headless, says, script, scripted_lead, spawn, tool_results,
};
use crate::walls::can_wall;
use serde_json::json;

#[test]
fn a_new_host_is_a_question_and_always_is_a_rule_for_it() {
    let Some(web) = WebTeam::new() else { return };
    let team = &web.team;
    team.variable("TEAM_MODE", "accept_edits");
    set(
        team,
        "[permissions]\nallow = [\"fetch_url(strict.team.test)\"]\n\
         deny = [\"network(internal.team.test)\", \"WebFetch(domain:broken.team.test)\"]\n",
    );
    // Each question shows an address of its own, so that no answer is typed under another one.
    let replies = [
        calls("lead", &[spawn("alice")]),
        says("lead", "spawned"),
        calls(
            "alice",
            &[
                fetch("http://internal.team.test/page"),
                fetch("http://broken.team.test/page"),
                fetch("http://localhost/page"),
                fetch("http://strict.team.test/next"),
                fetch("http://a.team.test/page?first"),
                fetch("http://a.team.test/page?second"),
                fetch("http://a.team.test/page?third"),
                fetch("http://a.team.test/page?fourth"),
                fetch("http://b.team.test/page?fifth"),
            ],
        ),
        says("alice", "alice is done"),
        says("lead", "the lead is done"),
    ];
    let mut lead = scripted_lead(team, &replies);
    lead.expect("alice asks to fetch:");
    lead.expect("http://a.team.test/page?first");
    wait_asked(team, "alice");
    let asked = &requests(team)[0];
    assert_eq!(
        (&asked["kind"], &asked["description"], &asked["always_allows"]),
        (
            &json!("permission"),
            &json!("http://a.team.test/page?first"),
            &json!(["fetch_url(a.team.test)"])
        )
    );
    let log = web.log();
    assert!(log.iter().all(|line| line.contains("strict.team.test")), "asked first: {log:#?}");
    lead.type_line("n not there");
    lead.expect("page?second");
    wait_asked(team, "alice");
    lead.type_line("y");
    lead.expect("page?third");
    wait_asked(team, "alice");
    lead.type_line("always");
    lead.expect("page?fifth");
    wait_asked(team, "alice");
    lead.type_line("n");
    lead.expect("the lead is done");
    let results = tool_results(team, "alice");
    let ends = [
        ("denied by the rule \"network(internal.team.test)\"", true),
        ("denied by the rule \"fetch_url(broken.team.test)\"", true),
        ("localhost is not fetched", true),
        ("Title: The page", false),
        ("not there", true),
        ("Title: The page", false),
        ("Title: The page", false),
        ("Title: The page", false),
        ("", true),
    ];
    for ((_, text, is_error), (words, fails)) in results.iter().zip(ends) {
        assert!(text.contains(words) && *is_error == fails, "{words}: {results:#?}");
    }
    let log = web.log();
    assert!(
        !log.iter().any(|line| line.contains("first") || line.contains("b.team.test")),
        "{log:#?}"
    );
    lead.type_line("/permissions");
    lead.expect("fetch_url(a.team.test)");
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0), "{}", lead.screen());
    assert_left_in_order(team);
}

#[test]
fn without_a_person_a_page_is_denied_and_the_rule_is_named() {
    for mode in ["plan", "default", "accept_edits"] {
        let team = Team::without_walls();
        team.variable("TEAM_MODE", mode);
        let replies =
            [calls("lead", &[fetch("https://docs.team.test/page")]), says("lead", "done")];
        let model = script(&team, &replies);
        headless(&team, &model, "begin").expect(9);
        let results = tool_results(&team, "lead");
        let (_, text, _) = &results[0];
        assert!(text.contains("\"fetch_url(docs.team.test)\" under `allow`"), "{mode}: {text}");
    }
}

#[test]
fn a_rule_about_a_port_or_an_address_is_an_error() {
    let team = Team::without_walls();
    set(&team, "[permissions]\ndeny = [\"fetch_url(docs.team.test:8443)\"]\n");
    let refused = headless(&team, &script(&team, &[]), "begin").expect(2);
    assert!(refused.err.contains("it names no public host"), "{refused:?}");
}

#[test]
fn where_commands_have_no_network_no_page_is_fetched() {
    for network in ["off", "own"] {
        let team = Team::new();
        team.variable("TEAM_SANDBOX_NETWORK", network);
        if !can_wall(&team) {
            return;
        }
        let replies = [calls("lead", &[fetch("http://docs.team.test/page")]), says("lead", "done")];
        headless(&team, &script(&team, &replies), "begin").expect(0);
        let results = tool_results(&team, "lead");
        assert!(results[0].1.contains("there is no tool \"fetch_url\""), "{network}: {results:?}");
        assert!(!results[0].1.contains("fetch_url,"), "it is not offered: {results:?}");
    }
}

#[test]
fn a_host_that_walls_keep_from_commands_is_not_fetched_without_a_question() {
    let team = Team::new();
    set(
        &team,
        "[sandbox]\nhosts = [\"listed.team.test\"]\n[permissions]\nallow = [\"fetch_url(ruled.team.test)\"]\n",
    );
    if !can_wall(&team) {
        return;
    }
    let hosts = ["other", "listed", "ruled"];
    let made = hosts.map(|host| fetch(&format!("http://{host}.team.test/page")));
    let model = script(&team, &[calls("lead", &made), says("lead", "done")]);
    headless(&team, &model, "begin");
    let results = tool_results(&team, "lead");
    assert!(
        results[0].1.contains("in mode bypass nobody is asked; do without this page"),
        "{results:#?}"
    );
    // These may be fetched; the names exist nowhere.
    assert!(
        results[1..].iter().all(|(_, text, _)| text.contains("was not fetched")),
        "{results:#?}"
    );
}
