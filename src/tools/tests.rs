//! Tests of the specs of all tools.

use super::*;
use crate::wire::tool::{Audience, SubjectArgument};
use serde_json::Value;
use std::collections::BTreeSet;

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
fn every_spec_describes_the_tool_and_a_compact_tool_is_also_for_its_audience() {
    for spec in specs() {
        for agent in [Audience::Lead, Audience::Teammate] {
            let is_compact = spec.compact.is_some_and(|it| it.includes(agent));
            assert!(!is_compact || spec.audience.includes(agent), "{} {agent:?}", spec.name);
        }
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

/// The tools of the contract (SPEC 5), with all properties by which the program decides: audience, compact
/// audience, effect, role access, purpose, repetition, after a crash, signal, subject. A tool that is added later
/// needs no line here.
const CONTRACT: &str = "\
bash Both Some(Both) Changes Named Work Failures Report None Command(command)
read_file Both Some(Teammate) Reads Named Work Any Report None File(path)
write_file Both Some(Teammate) Changes Named Work Any Report None File(path)
edit_file Both None Changes Named Work Any Report None File(path)
send_message Both Some(Both) Talks Granted Talk Any Repeat SendsMessage None
broadcast Both None Talks Granted Talk Any Repeat None None
read_inbox Both None Reads Granted Talk Any Report None None
create_task Both None Talks Named Work Any Report None None
list_tasks Both None Reads Named Work Any Report None None
get_task Both None Reads Named Work Any Report None None
claim_task Both None Talks Named Work Any Report None None
update_task Both None Talks Named Work Any Report None None
complete_task Both None Talks Named Work Any Report None None
list_teammates Both Some(Lead) Reads Granted Talk Any Report None None
spawn_teammate Lead Some(Lead) Talks Named Work Any Report None None
shutdown_teammate Lead Some(Lead) Talks Named Work Any Report None None
shutdown_response Teammate None Talks Always Talk Any Report AnswersShutdown None
submit_plan Teammate None Talks Granted Work Any Report SubmitsPlan None
review_plan Lead None Talks Named Work Any Report None None
idle Teammate Some(Teammate) Reads Always Talk Any Report EndsTurn None
";

#[test]
fn the_tools_of_the_contract_have_their_properties() {
    for expected in CONTRACT.lines() {
        let tool = find(expected.split(' ').next().unwrap()).unwrap();
        let ToolSpec { name, audience, compact, effect, role_access, .. } = tool;
        let ToolSpec { purpose, repetition, after_crash, signal, subject, .. } = tool;
        let found = format!(
            "{name} {audience:?} {compact:?} {effect:?} {role_access:?} {purpose:?} {repetition:?} \
             {after_crash:?} {signal:?} {subject:?}"
        );
        assert_eq!(found.replace('"', ""), expected);
    }
}
