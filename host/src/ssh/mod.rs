//! Hosts that this one reaches over ssh: they are set up by one command, and their relays run as long as the connection.

mod command;
mod link;
mod links;
mod setup;

pub(crate) use command::{Ssh, quoted};
pub(crate) use links::SshLinks;
pub(crate) use setup::{RemoteHost, look, set_up};
