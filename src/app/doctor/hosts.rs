//! The check of the hosts of a team: whether a relay runs here, and which of the others are not heard.

use super::DoctorReport;
use crate::app::context::Context;
use crate::app::host_view;
use crate::ui::tables::HostReach;

/// The name of the check.
const CHECK: &str = "hosts";

impl DoctorReport {
    /// Says how the hosts of the team are; nothing of a team with one host.
    pub(super) fn hosts(&mut self, context: &Context) {
        let hosts = match host_view::list(context) {
            Ok(hosts) => hosts,
            Err(why) => return self.failed(CHECK, &why, "look at the file that it names"),
        };
        let Some((here, others)) = hosts.rows.split_first() else { return };
        if !hosts.is_served {
            let found = format!("this one is {}, and no relay runs here", here.host);
            return self.note(CHECK, found, host_view::WITHOUT_RELAY);
        }
        let up = others.iter().filter(|row| row.reach == HostReach::Up);
        let up: Vec<_> = up.map(|row| row.host.as_str()).collect();
        let up = if up.is_empty() { "none".to_owned() } else { up.join(", ") };
        self.fine(CHECK, format!("this one is {}; up: {up}", here.host));
        for row in others.iter().filter(|row| row.reach == HostReach::Waits) {
            let found = format!("{}: {}", row.host, row.state);
            let remedy = "mail for its members waits here; `team host ls` shows all hosts, docs/machines.md says what to do";
            self.note(CHECK, found, remedy);
        }
    }
}
