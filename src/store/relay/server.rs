//! The files of a server that the relay of this host runs itself, below `run/.state/relay/nats/`.

use crate::os::file::At;
use crate::store::file::atomic::{Fsync, replace};
use crate::store::teamdir::make_folder;
use crate::store::{StoreError, TeamDir};
use std::io;
use std::path::{Path, PathBuf};

/// The places of the files of an own server.
#[derive(Debug, Clone)]
pub struct ServerFiles {
    /// The configuration, with the public keys of the hosts that may log in.
    pub config: PathBuf,
    /// The folder of what the server stores.
    pub store: PathBuf,
    /// The log of the server.
    pub log: PathBuf,
    /// The certificate of a server that other hosts reach.
    pub certificate: PathBuf,
    /// Its secret key.
    pub key: PathBuf,
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
        Ok(Self {
            config: file("server.conf"),
            store: file("store"),
            log: file("log"),
            certificate: file("certificate.pem"),
            key: file("key.pem"),
        })
    }

    /// Writes the configuration. The caller holds the relay's lock.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_config(&self, text: &str) -> Result<(), StoreError> {
        Ok(replace(&self.config, text.as_bytes(), Fsync::Never)?)
    }
}

impl ServerFiles {
    /// Returns the certificate of the server, if it has one with its key.
    ///
    /// # Errors
    /// A file exists and cannot be read.
    pub fn read_certificate(&self) -> Result<Option<String>, StoreError> {
        let read = |path: &Path| match std::fs::read_to_string(path) {
            Ok(text) => Ok(Some(text)),
            Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(why) => Err(why).at(path),
        };
        Ok(read(&self.key)?.and(read(&self.certificate)?))
    }

    /// Writes the certificate of the server and its key. The caller holds the relay's lock.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write_certificate(&self, certificate: &str, key: &str) -> Result<(), StoreError> {
        replace(&self.certificate, certificate.as_bytes(), Fsync::Always)?;
        Ok(replace(&self.key, key.as_bytes(), Fsync::Always)?)
    }
}

/// Returns a text of 32 hexadecimal digits that nobody can guess.
///
/// # Errors
/// The system has no randomness.
pub fn new_secret() -> std::io::Result<String> {
    Ok(super::new_epoch()?.as_str().to_owned() + super::new_epoch()?.as_str())
}
