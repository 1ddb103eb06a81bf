//! Tests of the specs of all tools.

use super::*;
use crate::wire::tool::OfferCondition;
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
fn a_role_with_bash_has_the_tools_for_its_background_commands() {
    for (tools, has_them) in [(vec!["bash"], true), (vec!["read_file"], false)] {
        let tools = Some(tools.into_iter().map(ToOwned::to_owned).collect());
        let role = Role { tools, ..Role::default() };
        for name in ["command_output", "stop_command"] {
            assert_eq!(role.has(find(name).unwrap()), has_them, "{name}");
        }
    }
    let of_others = specs().filter_map(|spec| spec.part_of);
    of_others.for_each(|name| assert!(find(name).is_some(), "{name}"));
}

#[test]
fn every_spec_describes_the_tool_and_a_compact_tool_is_also_for_its_audience() {
    for spec in specs() {
        for agent in [Audience::Lead, Audience::Teammate] {
            let is_compact = spec.compact.is_some_and(|it| it.audience.includes(agent));
            assert!(!is_compact || spec.audience.includes(agent), "{} {agent:?}", spec.name);
        }
        assert!(!spec.description.is_empty(), "{}", spec.name);
        let definition = spec.definition();
        let arguments = definition.input_schema["properties"].as_object().unwrap();
        assert_eq!(arguments.len(), spec.parameters.len(), "{}: an argument twice", spec.name);
        if let SubjectArgument::Command(argument)
        | SubjectArgument::File(argument)
        | SubjectArgument::Patch(argument)
        | SubjectArgument::Url(argument) = spec.subject
        {
            assert_eq!(arguments[argument]["type"], "string", "{}", spec.name);
            let required = definition.input_schema["required"].as_array().unwrap();
            assert!(required.contains(&Value::from(argument)), "{}", spec.name);
        }
    }
}

/// The tools of the contract (SPEC 5), with all properties by which the program decides: audience, compact
/// offer, effect, role access, purpose, repetition, after a crash, signal, subject. A tool that is added later
/// needs no line here.
const CONTRACT: &str = "\
bash Both Both:Always Changes Named Work Failures Report None Command(command)
read_file Both Teammate:Always Reads Named Work Any Report None File(path)
write_file Both Teammate:Always Changes Named Work Any Report None File(path)
edit_file Both - Changes Named Work Any Report None File(path)
send_message Both Both:Always Talks Granted Talk Any Repeat SendsMessage None
broadcast Both Lead:Teammates Talks Granted Talk Any Repeat None None
read_inbox Both Lead:Always Reads Granted Talk Any Report None None
create_task Both Lead:OpenTasks Talks Named Work Any Report None None
list_tasks Both Both:OpenTasks Reads Named Work Any Report None None
get_task Both - Reads Named Work Any Report None None
claim_task Both Teammate:OpenTasks Talks Named Work Any Report None None
update_task Both Both:OwnTask Talks Named Work Any Report None None
complete_task Both Both:OwnTask Talks Named Work Any Report None None
list_teammates Both Lead:Always Reads Granted Talk Any Report None None
spawn_teammate Lead Lead:Always Talks Named Work Any Report None None
shutdown_teammate Lead Lead:Teammates Talks Named Work Any Report None None
shutdown_response Teammate - Talks Always Talk Any Report AnswersShutdown None
submit_plan Both Both:PlanMode Talks Granted Work Any Report SubmitsPlan None
review_plan Lead Lead:PlanToReview Talks Named Work Any Report None None
idle Teammate Teammate:Always Reads Always Talk Any Report EndsTurn None
";

#[test]
fn the_tools_of_the_contract_have_their_properties() {
    for expected in CONTRACT.lines() {
        let tool = find(expected.split(' ').next().unwrap()).unwrap();
        let ToolSpec { name, audience, compact, effect, role_access, .. } = tool;
        let ToolSpec { purpose, repetition, after_crash, signal, subject, .. } = tool;
        let compact = compact.map(|it| format!("{:?}:{:?}", it.audience, it.condition));
        let compact = compact.unwrap_or_else(|| "-".into());
        let found = format!(
            "{name} {audience:?} {compact} {effect:?} {role_access:?} {purpose:?} {repetition:?} \
             {after_crash:?} {signal:?} {subject:?}"
        );
        assert_eq!(found.replace('"', ""), expected);
    }
}

/// The limits of a compact prompt: bytes of tools, beside a prompt of about 400 bytes, and the number of tools.
const COMPACT_BYTES: usize = 2000;
const COMPACT_TOOLS: usize = 10;

#[test]
fn the_compact_tools_of_every_state_are_few_and_short() {
    let rest = OfferCondition::ALL.into_iter().filter(|it| *it != OfferCondition::Always);
    let rest: Vec<OfferCondition> = rest.collect();
    for (agent, most) in [(Audience::Lead, COMPACT_TOOLS), (Audience::Teammate, 7)] {
        for chosen in 0..1_u32 << rest.len() {
            let is_chosen = |at: &usize| chosen >> at & 1 == 1;
            let some = rest.iter().enumerate().filter(|(at, _)| is_chosen(at));
            let mut state = vec![OfferCondition::Always];
            state.extend(some.map(|(_, condition)| *condition));
            // An agent with a task of its own is not offered those of the list.
            if state.contains(&OfferCondition::OwnTask)
                && state.contains(&OfferCondition::OpenTasks)
            {
                continue;
            }
            // In mode plan, the person decides on the plans of teammates.
            if state.contains(&OfferCondition::PlanMode)
                && state.contains(&OfferCondition::PlanToReview)
            {
                continue;
            }
            if state.contains(&OfferCondition::PlanToReview)
                && state.contains(&OfferCondition::ToolsToFind)
            {
                continue;
            }
            let offered = specs().filter(|spec| spec.is_offered(agent, &state));
            let offered: Vec<_> = offered.map(ToolSpec::compact_definition).collect();
            let names: Vec<&str> = offered.iter().map(|tool| tool.name.as_str()).collect();
            let bytes = serde_json::to_string(&offered).unwrap().len();
            assert!(bytes <= COMPACT_BYTES, "{agent:?} {state:?}: {bytes} bytes: {names:?}");
            // Servers of the user add the one tool by which theirs are found.
            let most = most + usize::from(state.contains(&OfferCondition::ToolsToFind));
            assert!(names.len() <= most, "{agent:?} {state:?}: {names:?}");
            assert!(state.len() > 1 || names.len() <= 5, "{agent:?}: {names:?}");
        }
    }
}
