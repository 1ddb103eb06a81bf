//! The specs of all tools.

use super::*;
use crate::wire::tool::{
    AfterCrash, Audience, Effect, Purpose, Repetition, RoleAccess, SubjectArgument,
};
use serde_json::Value;
use std::collections::BTreeSet;

fn specs() -> impl Iterator<Item = &'static ToolSpec> {
    registrations().map(|registration| registration.spec)
}

/// The tools of the contract (SPEC 5). A tool that is added later needs no line here.
const CONTRACT: &str = "bash broadcast claim_task complete_task create_task edit_file get_task idle \
    list_tasks list_teammates read_file read_inbox review_plan send_message shutdown_response \
    shutdown_teammate spawn_teammate submit_plan update_task write_file";

/// The tools of the contract that have this property.
fn names(has_property: impl Fn(&ToolSpec) -> bool) -> String {
    let tools = CONTRACT.split_whitespace().map(|name| find(name).unwrap());
    let names = tools.filter(|spec| has_property(spec)).map(|spec| spec.name);
    names.collect::<Vec<_>>().join(" ")
}

#[test]
fn names_and_aliases_are_unique() {
    let mut seen = BTreeSet::new();
    for spec in specs() {
        for name in [spec.name].iter().chain(spec.aliases) {
            assert!(seen.insert(*name), "{name}");
            assert_eq!(find_by_alias(name).map(|spec| spec.name), Some(spec.name));
        }
        assert_eq!(find(spec.name).map(|spec| spec.name), Some(spec.name));
        assert!(spec.aliases.iter().all(|alias| find(alias).is_none()), "models use no alias");
    }
    assert!(find("fail_task").is_none() && find_by_alias("").is_none());
}

#[test]
fn every_spec_describes_the_tool_and_its_arguments() {
    for spec in specs() {
        assert!(!spec.description.is_empty(), "{}", spec.name);
        let definition = spec.definition();
        let arguments = definition.input_schema["properties"].as_object().unwrap();
        assert_eq!(arguments.len(), spec.parameters.len(), "{}: an argument twice", spec.name);
        if let SubjectArgument::Command(argument) | SubjectArgument::File(argument) = spec.subject {
            assert_eq!(arguments[argument]["type"], "string", "{}", spec.name);
            let required = definition.input_schema["required"].as_array().unwrap();
            assert!(required.contains(&Value::from(argument)), "{}", spec.name);
        }
    }
}

/// Each assertion is one decision that the program makes by the spec of a tool.
#[test]
fn the_tools_of_the_contract_have_their_properties() {
    assert_eq!(
        names(|spec| spec.effect == Effect::Reads),
        "get_task idle list_tasks list_teammates read_file read_inbox"
    );
    assert_eq!(names(|spec| spec.effect == Effect::Changes), "bash edit_file write_file");
    assert_eq!(
        names(|spec| matches!(spec.subject, SubjectArgument::File(_))),
        "edit_file read_file write_file"
    );
    assert_eq!(names(|spec| matches!(spec.subject, SubjectArgument::Command(_))), "bash");
    assert_eq!(
        names(|spec| spec.audience == Audience::Lead),
        "review_plan shutdown_teammate spawn_teammate"
    );
    assert_eq!(
        names(|spec| spec.audience == Audience::Teammate),
        "idle shutdown_response submit_plan"
    );
    let compact =
        |agent| names(|spec| spec.compact.is_some_and(|audience| audience.includes(agent)));
    assert_eq!(
        compact(Audience::Lead),
        "bash list_teammates send_message shutdown_teammate spawn_teammate"
    );
    assert_eq!(compact(Audience::Teammate), "bash idle read_file send_message write_file");
    assert_eq!(
        names(|spec| spec.role_access == RoleAccess::Granted),
        "broadcast list_teammates read_inbox send_message submit_plan"
    );
    assert_eq!(names(|spec| spec.role_access == RoleAccess::Always), "idle shutdown_response");
    assert_eq!(
        names(|spec| spec.purpose == Purpose::Talk),
        "broadcast idle list_teammates read_inbox send_message shutdown_response"
    );
    assert_eq!(names(|spec| spec.repetition == Repetition::Failures), "bash");
    assert_eq!(names(|spec| spec.after_crash == AfterCrash::Repeat), "broadcast send_message");
    assert_eq!(names(|spec| spec.signal == Signal::SendsMessage), "send_message");
    assert_eq!(names(|spec| spec.signal == Signal::EndsTurn), "idle");
    assert_eq!(names(|spec| spec.signal == Signal::AnswersShutdown), "shutdown_response");
    assert_eq!(names(|spec| spec.signal == Signal::SubmitsPlan), "submit_plan");
}

#[test]
fn a_compact_tool_is_also_for_its_audience() {
    for spec in specs() {
        for agent in [Audience::Lead, Audience::Teammate] {
            let is_compact = spec.compact.is_some_and(|it| it.includes(agent));
            assert!(!is_compact || spec.audience.includes(agent), "{} {agent:?}", spec.name);
        }
    }
}
