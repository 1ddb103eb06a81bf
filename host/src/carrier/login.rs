//! The way into servers: what they are known by, and what this host logs in with.

use super::error::CarrierError;
use crate::tls::pinned;
use async_nats::ConnectOptions;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The largest file with a login, in bytes.
const MOST_BYTES: u64 = 64 * 1024;

/// The first line of a file with credentials of NATS.
const CREDENTIALS: &str = "BEGIN NATS USER JWT";

/// The security of a connection. The default is that of a server which lets everybody in.
#[derive(Debug, Clone, Default)]
pub struct Security {
    /// The login of this host.
    pub login: Option<Login>,
    /// The fingerprint of the certificate of the servers: no other server is talked to.
    pub pin: Option<String>,
    /// The file with the certificates of those who have signed the servers' ones.
    pub ca: Option<PathBuf>,
}

impl Security {
    /// Adds it to the options of a client.
    pub(super) fn of(&self, options: ConnectOptions) -> Result<ConnectOptions, CarrierError> {
        let unusable = |why: &dyn fmt::Display| CarrierError::Address(why.to_string());
        let mut options = match &self.login {
            None => options,
            Some(login) => login.of(options).map_err(|why| unusable(&why))?,
        };
        if let Some(ca) = &self.ca {
            options = options.add_root_certificates(ca.clone()).require_tls(true);
        }
        let Some(pin) = &self.pin else { return Ok(options) };
        let tls = pinned(pin).map_err(|why| unusable(&why))?;
        Ok(options.require_tls(true).tls_client_config(tls))
    }
}

/// The login of a host at a server.
#[derive(Clone, PartialEq, Eq)]
pub enum Login {
    /// The seed of an nkey.
    Seed(String),
    /// The text of a file with credentials: a token, and the seed of its nkey.
    Credentials(String),
    /// A name and a password.
    Password(String, String),
}

impl fmt::Debug for Login {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Self::Seed(_) => "seed",
            Self::Credentials(_) => "credentials",
            Self::Password(..) => "password",
        };
        write!(formatter, "Login({kind})")
    }
}

/// The reason for which a file has no login that can be used.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// It is no file, or a very large one.
    #[error("it is no file, or too large")]
    NoFile,
    /// Others may read it, with this mode.
    #[error("others can read it (its mode is {0:04o})")]
    Readable(u32),
    /// It has none of the known forms.
    #[error(
        "it has neither credentials of NATS (a .creds file), nor the seed of an nkey (SU…), nor USER:PASSWORD"
    )]
    Unknown,
}

impl LoginError {
    /// Returns the advice for the next step.
    pub fn hint(&self, path: &Path) -> String {
        match self {
            Self::Readable(_) => format!("chmod 600 {}", path.display()),
            Self::Unreadable(_) | Self::NoFile | Self::Unknown => {
                "give the file that the operator of the server has made for this host: --creds FILE"
                    .into()
            }
        }
    }
}

impl Login {
    /// Reads a login from a file, which only its user may read.
    ///
    /// # Errors
    /// There is no such file, or it has no login.
    pub fn read(path: &Path) -> Result<Self, LoginError> {
        // Not opened before: opening a pipe would wait for its writer.
        let known = fs::metadata(path)?;
        if !known.is_file() || known.len() > MOST_BYTES {
            return Err(LoginError::NoFile);
        }
        let mode = known.mode() & 0o7777;
        if mode & 0o077 != 0 {
            return Err(LoginError::Readable(mode));
        }
        let mut text = String::new();
        File::open(path)?.take(MOST_BYTES).read_to_string(&mut text)?;
        Self::parse(&text).ok_or(LoginError::Unknown)
    }

    fn parse(text: &str) -> Option<Self> {
        if text.contains(CREDENTIALS) {
            let is_whole = ConnectOptions::with_credentials(text).is_ok();
            return is_whole.then(|| Self::Credentials(text.into()));
        }
        let line = text.trim();
        if line.starts_with("SU") && nkeys::KeyPair::from_seed(line).is_ok() {
            return Some(Self::Seed(line.into()));
        }
        let (user, password) = line.split_once(':')?;
        let is_one_line = !line.contains(char::is_whitespace) && !user.is_empty();
        is_one_line.then(|| Self::Password(user.into(), password.into()))
    }

    fn of(&self, options: ConnectOptions) -> io::Result<ConnectOptions> {
        match self {
            Self::Seed(seed) => Ok(options.nkey(seed.clone())),
            Self::Credentials(text) => options.credentials(text),
            Self::Password(user, password) => {
                Ok(options.user_and_password(user.clone(), password.clone()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    const SEED: &str = "SUANQDPB2RUOE4ETUA26CNX7FUKE5ZZKFCQIIW63OX225F2CO7UEXTM7ZY";

    fn read(text: &str, mode: u32) -> Result<Login, LoginError> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        fs::set_permissions(file.path(), Permissions::from_mode(mode)).unwrap();
        Login::read(file.path())
    }

    #[test]
    fn a_login_is_read_in_each_of_its_forms() {
        assert_eq!(read(&format!("{SEED}\n"), 0o600).unwrap(), Login::Seed(SEED.into()));
        let password = Login::Password("ann".into(), "a:b".into());
        assert_eq!(read("ann:a:b\n", 0o600).unwrap(), password);
        let credentials = format!(
            "-----BEGIN NATS USER JWT-----\ne.y.J\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{SEED}\n------END USER NKEY SEED------\n"
        );
        assert_eq!(read(&credentials, 0o600).unwrap(), Login::Credentials(credentials.clone()));
        for text in ["", "SU123", "ann", "ann b:c", ":x", "-----BEGIN NATS USER JWT-----\nabc"] {
            assert!(matches!(read(text, 0o600), Err(LoginError::Unknown)), "{text:?}");
        }
        assert!(!format!("{password:?} {:?}", Login::Seed(SEED.into())).contains("a:b"));
    }

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        let refused = read("ann:x", 0o640).unwrap_err();
        assert!(matches!(refused, LoginError::Readable(0o640)), "{refused}");
        assert_eq!(refused.hint(Path::new("/x")), "chmod 600 /x");
        assert!(matches!(Login::read(Path::new("/dev/null")), Err(LoginError::NoFile)));
        assert!(matches!(Login::read(Path::new("/nowhere")), Err(LoginError::Unreadable(_))));
    }
}
