//! The table of a state machine's transitions, for the tests that write it down.

use std::fmt::Write as _;

/// Renders what follows each pair of an event and a phase: `after` gets the phase's name, the machine in
/// that phase, and the event's name and the event.
pub(crate) fn transition_table<M, E>(
    phases: impl Fn() -> Vec<(&'static str, M)>,
    events: impl Fn() -> Vec<(&'static str, E)>,
    after: impl Fn(&'static str, M, &'static str, E) -> &'static str,
) -> String {
    let width = |names: &[&str]| names.iter().map(|name| name.len()).max().unwrap_or_default();
    let names: Vec<&str> = phases().iter().map(|(name, _)| *name).collect();
    let event_names: Vec<&str> = events().iter().map(|(name, _)| *name).collect();
    let (event_width, phase_width) = (width(&event_names), width(&names));
    let mut table = String::new();
    let mut row = |head: &str, cells: &[&str]| {
        let mut line = format!("{head:event_width$}");
        for cell in cells {
            let _infallible = write!(line, " {cell:phase_width$}");
        }
        let _infallible = writeln!(table, "{}", line.trim_end());
    };
    row("event", &names);
    for (at, event) in event_names.into_iter().enumerate() {
        let cell = |(before, machine)| after(before, machine, event, events().swap_remove(at).1);
        row(event, &phases().into_iter().map(cell).collect::<Vec<_>>());
    }
    table
}
