//! Attacks of commands without walls, and teams behind walls: everyday work, escapes, and walls that a machine lacks.

mod attack_table;
mod attacks;
mod git_files;
mod hosts;
pub(crate) mod lacking;
mod leases;
mod leaving;
mod outbox;
pub(crate) mod teams;

pub(crate) use lacking::can_wall;
