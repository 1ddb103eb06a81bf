//! The files of a server that the relay of this host runs itself, below `run/.state/relay/nats/`.

use crate::store::file::atomic::{Fsync, replace};
use crate::store::teamdir::make_folder;
use crate::store::{StoreError, TeamDir};
use std::path::PathBuf;

/// The places of the files of an own server.
#[derive(Debug, Clone)]
pub struct ServerFiles {
    /// The configuration, which holds the password of the server.
    pub config: PathBuf,
    /// The folder of what the server stores.
    pub store: PathBuf,
    /// The log of the server.
    pub log: PathBuf,
}

impl ServerFiles {
    /// Creates the folder of an own server.
    ///
    /// # Errors
    /// The folder cannot be created.
    pub fn create(dir: &TeamDir) -> Result<Self, StoreError> {
        super::make_folders(dir)?;
        let folder = dir.relay_server();
        make_folder(&folder)?;
        let file = |name: &str| folder.join(name);
        Ok(Self { config: file("server.conf"), store: file("store"), log: file("log") })
    }

    /// Writes the configuration. The caller holds the relay's lock.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_config(&self, text: &str) -> Result<(), StoreError> {
        Ok(replace(&self.config, text.as_bytes(), Fsync::Never)?)
    }
}

/// Returns a text of 32 hexadecimal digits that nobody can guess.
///
/// # Errors
/// The system has no randomness.
pub fn new_secret() -> std::io::Result<String> {
    Ok(super::new_epoch()?.as_str().to_owned() + super::new_epoch()?.as_str())
}
