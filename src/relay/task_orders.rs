//! The rule by which a host changes the task list that another one keeps: in the name of its own agents alone, and of the person
//! only if it may have the lead.

use super::placements::KnownPlacements;
use crate::store::{StoreError, TeamDir, roster};
use crate::wire::AgentName;
use crate::wire::carried::HostName;

/// The reason for which a host may not change the task list in a name, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskOrderRefusal {
    /// The reason.
    pub why: String,
    /// The advice.
    pub hint: String,
}

/// Returns the reason for which `from` may not change the task list of the host `own` in the name `by`; `None` if it may.
///
/// # Errors
/// The roster cannot be read.
pub fn refusal_of_task_order(
    dir: &TeamDir,
    placements: &KnownPlacements,
    own: &HostName,
    from: &HostName,
    by: &AgentName,
) -> Result<Option<TaskOrderRefusal>, StoreError> {
    let is_of_lead = by.is_user() || by.is_lead();
    if is_of_lead && !placements.may_lead(from) {
        let whose = if by.is_user() { "the person" } else { "the lead" };
        return Ok(Some(TaskOrderRefusal {
            why: format!(
                "{own} keeps the task list, and obeys {whose} only on a host that may have the lead, which {from} may not"
            ),
            hint: format!("run it on {own}"),
        }));
    }
    if by.is_user() {
        return Ok(None);
    }
    let host = match placements.place_of(by.as_str()) {
        Some(place) => Some(place.host.to_string()),
        None => roster::read(dir)?.host_of(by.as_str()).map(str::to_owned),
    };
    if host.as_deref() == Some(from.as_str()) {
        return Ok(None);
    }
    let place = host.map_or_else(|| "not known".into(), |host| format!("on {host}"));
    Ok(Some(TaskOrderRefusal {
        why: format!("{own} keeps the task list, and {by} is {place}, not on {from}"),
        hint: "if it has just started there, try again in some seconds".into(),
    }))
}

#[cfg(test)]
mod tests {
    use super::super::Placement;
    use super::*;
    use crate::store::{Fsync, test_team};
    use std::collections::BTreeSet;

    #[test]
    fn a_host_acts_for_its_own_agents_and_for_the_person_if_it_may_have_the_lead() {
        let (_folder, dir) = test_team();
        let [ann, gpu, tpu] = ["ann", "gpu1", "tpu"].map(|text| HostName::parse(text).unwrap());
        let name = |text: &str| AgentName::mailbox(text).unwrap();
        let placements = KnownPlacements::default();
        placements.set_leads(BTreeSet::from([ann.clone()]));
        placements.note(&name("carol"), &Placement::new(gpu.clone(), 1));
        placements.note(&name("lead"), &Placement::new(gpu.clone(), 1));
        roster::update(&dir, Fsync::Never, |roster| {
            roster.enter("dave", 0.0).host = Some("tpu".into());
            roster.enter("carol", 0.0).host = Some("tpu".into());
            roster.enter("bob", 0.0).host = None;
        })
        .unwrap();
        let refusal = |from: &HostName, by: &str| {
            refusal_of_task_order(&dir, &placements, &ann, from, &name(by)).unwrap()
        };
        assert_eq!(refusal(&gpu, "carol"), None);
        assert_eq!(refusal(&tpu, "dave"), None, "the roster knows him before his placement is");
        let other = refusal(&tpu, "carol").unwrap();
        assert_eq!(
            other.why, "ann keeps the task list, and carol is on gpu1, not on tpu",
            "the placement is newer than the roster"
        );
        assert!(refusal(&gpu, "bob").unwrap().why.contains("bob is not known"));
        let person = refusal(&gpu, "user").unwrap();
        assert!(person.why.contains("obeys the person only"), "{person:?}");
        assert_eq!(person.hint, "run it on ann");
        assert!(refusal(&gpu, "lead").unwrap().why.contains("obeys the lead only"));
        placements.set_leads(BTreeSet::from([ann.clone(), gpu.clone()]));
        assert_eq!(refusal(&gpu, "user"), None);
        assert_eq!(refusal(&gpu, "lead"), None);
        assert!(refusal(&tpu, "user").is_some());
    }
}
