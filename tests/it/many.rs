//! Many teammates at once.

use crate::child_process::write;
use crate::harness::Team;
use crate::scripts::{assert_left_in_order, calls, script, scripted_lead_on, spawn};
use std::fs;

/// So many teammates live at once, hear a broadcast, and are gone again.
pub(crate) fn live_together(count: usize) {
    let team = Team::new();
    fs::create_dir(team.workspace().join(".team")).unwrap();
    write(&team.path("settings.toml"), format!("max_teammates = {count}\n"));
    let names: Vec<String> = (0..count).map(|i| format!("a{i}")).collect();
    let spawns: Vec<_> = names.iter().map(|name| spawn(name)).collect();
    let mut lines = vec![calls("lead", &spawns)];
    lines.extend(names.iter().map(|name| crate::scripts::says(name, "ready")));
    let model = script(&team, &lines);
    let mut lead = scripted_lead_on(&team, &model);
    for name in &names {
        team.wait_status(name, "idle");
    }
    // Those for whom no watch is left hear by their bell.
    team.team(&["broadcast", "all together"]).expect(0);
    for name in &names {
        team.eventually("everybody has it", || team.has_mail(name, "user", "all together"));
    }
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0), "{}", lead.screen());
    assert_left_in_order(&team);
}

#[test]
fn sixty_teammates_live_together() {
    live_together(60);
}
