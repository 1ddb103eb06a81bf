//! The settings of a carrier, and the names that follow from them.

use super::error::CarrierError;
use agent_team::wire::carried::HostName;

/// The settings of the connection of one host.
#[derive(Debug, Clone, Default)]
pub struct CarrierConfig {
    /// The addresses of the servers, as `nats://host:port` or `host:port`.
    pub servers: Vec<String>,
    /// The name of the team: letters, digits, `-` and `_`, at most 64.
    pub team: String,
    /// The name of this host, a [`HostName`].
    pub host: String,
    /// User and password, if the server asks for them.
    pub credentials: Option<(String, String)>,
    /// The maximum size of the stream in bytes when this host makes it; `None` is unlimited. A stream that exists
    /// keeps its own.
    pub mail_max_bytes: Option<u64>,
}

impl CarrierConfig {
    pub(super) fn check(&self) -> Result<(), CarrierError> {
        let is_team = (1..=64).contains(&self.team.len())
            && self.team.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-' || it == b'_');
        if !is_team {
            return Err(CarrierError::Name(self.team.clone()));
        }
        check_host(&self.host)
    }
}

pub(super) fn check_host(name: &str) -> Result<(), CarrierError> {
    HostName::parse(name).map(drop).map_err(|_| CarrierError::Name(name.into()))
}

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

    /// The subject of a message of this host to the host `to`. `kind` is `mail`, `ack` or `sync`.
    pub(super) fn to(&self, kind: &str, to: &str) -> String {
        format!("t.{}.{kind}.{to}.{}", self.team, self.host)
    }

    /// The subject of all messages of a kind to this host.
    pub(super) fn to_this_host(&self, kind: &str) -> String {
        format!("t.{}.{kind}.{}.>", self.team, self.host)
    }

    pub(super) fn beat(&self) -> String {
        format!("t.{}.beat.{}", self.team, self.host)
    }

    pub(super) fn beats(&self) -> String {
        format!("t.{}.beat.*", self.team)
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

    pub(super) fn bucket(&self) -> String {
        format!("team_{}", self.team)
    }
}

/// The sending host: the last token of the subject. `None` if that is no host's name.
pub(super) fn sender(subject: &str) -> Option<String> {
    let (_, last) = subject.rsplit_once('.')?;
    HostName::parse(last).ok().map(|_| last.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sender_is_the_last_token() {
        assert_eq!(sender("t.x.mail.b.a").as_deref(), Some("a"));
        assert_eq!(sender("t.x.mail.b.A"), None);
        assert_eq!(sender("a"), None);
    }
}
