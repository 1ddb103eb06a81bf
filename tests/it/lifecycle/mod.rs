//! Lifecycle: spawning, running, stopping, restarting and resuming members and whole teams.

mod budgets;
mod contention;
mod evaluation;
mod hang_detection;
mod headless;
mod inheritance;
mod interrupting;
mod lead_killed;
pub(crate) mod leases;
mod leaving;
mod long_transcripts;
mod manual_teammates;
mod nine_prompts;
mod output_spill;
mod restart;
mod resume;
mod resume_and_takeover;
mod roster;
mod sessions;
mod shared_files;
mod shutdown_requests;
mod spawning;
mod stopping;
mod task_work;
mod tasks;
mod timeouts;
mod undo;
