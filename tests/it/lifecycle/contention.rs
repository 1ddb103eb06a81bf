//! Many processes at once: sixty teammates, and fifty processes that race for one name.

use crate::support::contention::{one_lead_of, one_teammate_of, run_together};

#[test]
#[ignore = "long: scripts/check --all runs it"]
fn sixty_teammates_run_at_the_same_time() {
    run_together(60);
}

#[test]
fn of_fifty_leads_one_runs() {
    one_lead_of(50);
}

#[test]
fn of_fifty_teammates_of_one_name_one_runs() {
    one_teammate_of(50);
}
