//! The settings of a carrier, and the names that follow from them.

use super::error::CarrierError;
use super::login::Security;
use crate::trust::Trust;
use agent_team::wire::carried::HostName;
use std::sync::Arc;

/// The settings of the connection of one host.
#[derive(Debug, Clone)]
pub struct CarrierConfig {
    /// The addresses of the servers, as `nats://host:port` or `host:port`.
    pub servers: Vec<String>,
    /// The name of the team: letters, digits, `-` and `_`, at most 64.
    pub team: String,
    /// The name of this host, a [`HostName`].
    pub host: String,
    /// The keys by which the hosts of the team sign.
    pub trust: Arc<Trust>,
    /// The way into the servers.
    pub security: Security,
    /// The maximum size of the stream in bytes when this host makes it; `None` is unlimited. A stream that exists
    /// keeps its own.
    pub mail_max_bytes: Option<u64>,
}

impl CarrierConfig {
    /// Creates settings for servers that let everybody in, without a maximum.
    pub fn new(servers: Vec<String>, team: &str, host: &str, trust: Arc<Trust>) -> Self {
        let (team, host) = (team.into(), host.into());
        Self { servers, team, host, trust, security: Security::default(), mail_max_bytes: None }
    }

    pub(super) fn check(&self) -> Result<(), CarrierError> {
        Self::check_names(&self.team, &self.host)
    }

    pub(super) fn check_names(team: &str, host: &str) -> Result<(), CarrierError> {
        let is_team = (1..=64).contains(&team.len())
            && team.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-' || it == b'_');
        if !is_team {
            return Err(CarrierError::Name(team.into()));
        }
        check_host(host).map(drop)
    }
}

pub(super) fn check_host(name: &str) -> Result<HostName, CarrierError> {
    HostName::parse(name).map_err(|_| CarrierError::Name(name.into()))
}

/// The kind of a sign of life.
pub(super) const BEAT: &str = "beat";

/// The subjects, streams and buckets of a team, as this host sees them.
#[derive(Debug)]
pub(super) struct Subjects {
    team: String,
    host: String,
}

impl Subjects {
    pub(super) fn new(team: &str, host: &str) -> Self {
        Self { team: team.into(), host: host.into() }
    }

    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// The subject of a message of this host to the host `to`. `kind` is `mail` or `ack`, for example.
    pub(super) fn to(&self, kind: &str, to: &str) -> String {
        format!("t.{}.{kind}.{to}.{}", self.team, self.host)
    }

    /// The subject of all messages of a kind to this host.
    pub(super) fn to_this_host(&self, kind: &str) -> String {
        self.start_of(kind) + ">"
    }

    pub(super) fn beat(&self) -> String {
        format!("t.{}.{BEAT}.{}", self.team, self.host)
    }

    /// The beginning of the subjects of all messages of a kind that are for this host. A sign of life is for all hosts.
    pub(super) fn start_of(&self, kind: &str) -> String {
        match kind {
            BEAT => format!("t.{}.{BEAT}.", self.team),
            kind => format!("t.{}.{kind}.{}.", self.team, self.host),
        }
    }

    pub(super) fn all_mail(&self) -> String {
        format!("t.{}.mail.>", self.team)
    }

    pub(super) fn stream(&self) -> String {
        format!("MAIL_{}", self.team)
    }

    /// The durable consumer of this host. Its name is the host's.
    pub(super) fn consumer(&self) -> &str {
        &self.host
    }

    /// The context in which the value of a key is signed.
    pub(super) fn value(&self, key: &str) -> String {
        format!("kv.{}.{key}", self.team)
    }

    pub(super) fn bucket(&self) -> String {
        format!("team_{}", self.team)
    }
}

/// The beginning of the subjects of answers to a host.
pub(super) fn inbox(host: &str) -> String {
    format!("_INBOX.{host}")
}

/// The sending host: the last token of the subject. `None` if that is no host's name.
pub(super) fn sender(subject: &str) -> Option<HostName> {
    let (_, last) = subject.rsplit_once('.')?;
    HostName::parse(last).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sender_is_the_last_token() {
        assert_eq!(sender("t.x.mail.b.a").as_ref().map(HostName::as_str), Some("a"));
        assert_eq!(sender("t.x.mail.b.A"), None);
        assert_eq!(sender("a"), None);
    }
}
