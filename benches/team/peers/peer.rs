//! The ways of the peers: a table of `SQLite`, a stream of Redis, a stream of NATS.

use crate::peers::{nats, redis};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Sends a text, and returns once the text is accepted.
pub(crate) type Send = Box<dyn FnMut(&str)>;

/// Waits for texts at most for a time, hands each to the function, and removes them.
pub(crate) type Receive = Box<dyn FnMut(Duration, &mut dyn FnMut(&str))>;

/// A queue of a peer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Peer {
    /// A table in WAL mode. A Python program does its jobs.
    Sqlite { file: PathBuf, is_synced: bool },
    /// A stream with a consumer group. The configuration of the server decides about syncs.
    Redis { socket: PathBuf },
    /// A `JetStream` stream with a pull consumer. The configuration of the server decides about syncs.
    Nats { port: u16 },
}

impl Peer {
    /// Returns the program that does the jobs of this peer, if it is not the benchmark itself.
    pub(crate) fn program(&self) -> Option<Command> {
        let Self::Sqlite { .. } = self else { return None };
        let mut python = Command::new("python3");
        // Without the packages of this machine it starts faster.
        python.arg("-IS").arg(concat!(env!("CARGO_MANIFEST_DIR"), "/benches/team/peers/sqlite.py"));
        Some(python)
    }

    pub(crate) fn sender(&self) -> Send {
        match self {
            Self::Sqlite { .. } => panic!("sqlite.py does this job"),
            Self::Redis { socket } => {
                let mut producer = redis::Producer::connect(socket);
                Box::new(move |text| producer.send(text))
            }
            Self::Nats { port } => {
                let mut producer = nats::Producer::connect(*port);
                Box::new(move |text| producer.send(text))
            }
        }
    }

    pub(crate) fn receiver(&self) -> Receive {
        match self {
            Self::Sqlite { .. } => panic!("sqlite.py does this job"),
            Self::Redis { socket } => {
                let mut consumer = redis::Consumer::connect(socket);
                Box::new(move |limit, take| consumer.receive(limit, take))
            }
            Self::Nats { port } => {
                let mut consumer = nats::Consumer::connect(*port);
                Box::new(move |limit, take| consumer.receive(limit, take))
            }
        }
    }

    /// Stores messages without waiting for the answer to each.
    pub(crate) fn fill(&self, text: &str, count: usize) {
        match self {
            Self::Sqlite { .. } => panic!("sqlite.py does this job"),
            Self::Redis { socket } => redis::Producer::connect(socket).fill(text, count),
            Self::Nats { port } => nats::Producer::connect(*port).fill(text, count),
        }
    }
}
