//! The settings of the relay of a host: those of the command line, else those that the host remembers.

use crate::carrier::{Login, Security};
use crate::failure::HostFailure;
use agent_team::store::relay::{self, HostIdentity, Servers};
use agent_team::store::{TeamDir, locate};
use agent_team::wire::carried::HostName;
use std::env;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The words of a first start.
const FIRST_START: &str = "team-host run --name HOST --team ID --nats nats://SERVER:4222";

/// Returns the team folder: the named one, else the nearest upward.
pub(crate) fn team_folder(named: Option<&Path>) -> Result<PathBuf, HostFailure> {
    let here = env::current_dir().map_err(|why| {
        HostFailure::of("the current folder cannot be read", &why, "go to another folder")
    })?;
    Ok(locate(named, &here))
}

/// Returns the identity of this host, if the folder is one of several hosts.
pub(crate) fn known_identity(root: &Path) -> Result<Option<HostIdentity>, HostFailure> {
    let Ok(dir) = TeamDir::look(root) else { return Ok(None) };
    let hint = "check the file run/.state/relay/host.json below the team folder";
    relay::identity(&dir).map_err(|why| HostFailure::of("the host is unknown", &why, hint))
}

/// The settings that the command line gives.
pub(crate) struct GivenSettings {
    pub(crate) name: Option<String>,
    pub(crate) team: Option<String>,
    pub(crate) servers: Servers,
}

/// The identity of a host for one run.
pub(crate) struct HostSettings {
    pub(crate) host: HostName,
    pub(crate) team: String,
    pub(crate) servers: Servers,
}

impl GivenSettings {
    /// Adds what the host remembers. Its servers may be missing only `if_invited`.
    pub(crate) fn with_known(
        self,
        root: &Path,
        known: Option<HostIdentity>,
        if_invited: bool,
    ) -> Result<HostSettings, HostFailure> {
        let is_added = known.as_ref().is_some_and(|known| !known.servers.are_known());
        let missing = |what: &str| {
            if is_added {
                let why = "another host has added it over ssh, and runs its relay";
                let hint = "see there: team host ls; or name a server that runs: --nats nats://SERVER:4222";
                return HostFailure::usage(format!("this host has no {what}"), why, hint);
            }
            HostFailure::usage(
                format!("this host has no {what}"),
                format!("{} is not one of several hosts yet", root.display()),
                format!(
                    "give it once: {FIRST_START}, or add another host over ssh: team host add HOST"
                ),
            )
        };
        let name = self.name.or_else(|| known.as_ref().map(|known| known.host.to_string()));
        let host = parse_host(&name.ok_or_else(|| missing("name"))?)?;
        let team = self.team.or_else(|| known.as_ref().map(|known| known.team.clone()));
        let team = parse_team(team.ok_or_else(|| missing("team"))?)?;
        if let Some(known) = known.as_ref().filter(|known| known.team != team) {
            let why = format!("this folder belongs to team {}", known.team);
            let hint = "leave --team out, or use another folder";
            return Err(HostFailure::usage(format!("it cannot join team {team}"), why, hint));
        }
        if let Some(known) = known.as_ref().filter(|known| known.host != host) {
            let why = format!(
                "this host is named {}, and its members are known by that name",
                known.host
            );
            let hint = "leave the name out, or use another folder";
            return Err(HostFailure::usage(format!("it cannot be named {host}"), why, hint));
        }
        let remembered = known.map(|known| known.servers).unwrap_or_default();
        let servers = if if_invited {
            Servers::default()
        } else if self.servers.are_known() {
            self.servers
        } else if remembered.are_known() {
            remembered
        } else {
            return Err(missing("NATS server"));
        };
        Ok(HostSettings { host, team, servers })
    }
}

/// The options of servers that others run.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServerOptions {
    /// Their addresses.
    pub(crate) addresses: Vec<String>,
    /// The file with what this host logs in with.
    pub(crate) login: Option<PathBuf>,
    /// The file with the certificates of those who have signed theirs.
    pub(crate) ca: Option<PathBuf>,
}

impl ServerOptions {
    /// Checks the options. Returns the servers, and what a first connection to them needs.
    ///
    /// # Errors
    /// An address has a password, or a file cannot be used.
    pub(crate) fn checked(self) -> Result<(Servers, Security), HostFailure> {
        let Self { addresses, login, ca } = self;
        if addresses.is_empty() && (login.is_some() || ca.is_some()) {
            return Err(HostFailure::usage(
                "no server is named",
                "--creds and --ca are for a server that others run",
                "name it: --nats nats://SERVER:4222",
            ));
        }
        let has_password = |address: &&String| address.contains('@');
        if let Some(address) = addresses.iter().find(has_password) {
            // It is not repeated: a terminal keeps what it shows.
            let place = address.rsplit('@').next().unwrap_or_default();
            return Err(HostFailure::usage(
                format!("the server at {place} cannot be used so"),
                "its address has a login, which everybody who sees the processes of this machine could read",
                "write it into a file as USER:PASSWORD, `chmod 600` it, and give that: --creds FILE",
            ));
        }
        let whole = |path: PathBuf, what: &str| {
            fs::canonicalize(&path).map_err(|why| {
                let what = format!("the file {} with the {what} cannot be used", path.display());
                HostFailure::of(what, &why, "give the path of a file that you can read")
            })
        };
        let login = login.map(|path| whole(path, "login for the server")).transpose()?;
        let ca = ca.map(|path| whole(path, "certificates for the server")).transpose()?;
        if let Some(ca) = &ca {
            check_certificates(ca)?;
        }
        let servers = Servers { addresses, login, ca, ..Servers::default() };
        let security = security_of(&servers, None)?;
        let is_password = matches!(security.login, Some(Login::Password(..)));
        let in_clear = servers.addresses.iter().find(|address| !is_private(address));
        if let Some(address) = in_clear.filter(|_| is_password && servers.ca.is_none()) {
            return Err(HostFailure::usage(
                format!("the password is not sent to {address}"),
                "the server may have no TLS, and everybody on the way could read it",
                "write the address as tls://SERVER:4222, or give the certificates of the server: --ca FILE",
            ));
        }
        Ok((servers, security))
    }
}

/// Whether nobody else reads what goes to a server: it has TLS, or is on this machine.
fn is_private(address: &str) -> bool {
    let place = address.split_once("://").map_or(address, |(_, place)| place);
    let is_local = |name: &str| {
        let name = name.trim_matches(['[', ']']);
        name == "localhost" || name.parse::<IpAddr>().is_ok_and(|it| it.is_loopback())
    };
    let name = place.rsplit_once(':').map_or(place, |(name, _)| name);
    address.starts_with("tls://") || is_local(name)
}

/// Refuses a file without a certificate: every connection would fail.
fn check_certificates(path: &Path) -> Result<(), HostFailure> {
    let what =
        format!("the file {} with the certificates for the server cannot be used", path.display());
    let hint = "give a file with certificates as PEM: --ca FILE";
    let text = fs::read_to_string(path).map_err(|why| HostFailure::of(&*what, &why, hint))?;
    if text.contains("-----BEGIN CERTIFICATE-----") {
        return Ok(());
    }
    Err(HostFailure::usage(what, "there is no certificate in it", hint))
}

/// Returns what a connection to these servers needs. `key` is the seed by which this host logs in if it has no other login.
///
/// # Errors
/// The file with the login cannot be used.
pub(crate) fn security_of(servers: &Servers, key: Option<String>) -> Result<Security, HostFailure> {
    let read = |path: &PathBuf| {
        Login::read(path).map_err(|why| {
            let what =
                format!("the file {} with the login for the server cannot be used", path.display());
            let hint = why.hint(path);
            HostFailure::of(what, &why, hint)
        })
    };
    let login = servers.login.as_ref().map(read).transpose()?;
    let (pin, ca) = (servers.pin.clone(), servers.ca.clone());
    Ok(Security { login: login.or(key.map(Login::Seed)), pin, ca })
}

/// Returns the name that this machine has for others.
pub(crate) fn name_of_machine() -> String {
    let output = Command::new("uname").arg("-n").stdin(Stdio::null()).output();
    output
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        .unwrap_or_default()
}

/// Parses the name of a host.
pub(crate) fn parse_host(name: &str) -> Result<HostName, HostFailure> {
    HostName::parse(name).map_err(|why| {
        HostFailure::of("the name of the host cannot be used", &why, "for example: --name gpu1")
    })
}

/// Checks a label of a host.
pub(crate) fn check_label(label: &str) -> Result<(), HostFailure> {
    match HostName::parse(label) {
        Ok(_) => Ok(()),
        Err(_) => Err(HostFailure::usage(
            format!("{label:?} is not a label of a host"),
            "a label is 1 to 32 characters: a lower-case letter first, then lower-case letters, digits or '-'",
            "for example: --label gpu",
        )),
    }
}

/// Checks the id of a team. It becomes a part of subjects and names of the server, as names of hosts do.
pub(crate) fn parse_team(team: String) -> Result<String, HostFailure> {
    match HostName::parse(&team) {
        Ok(_) => Ok(team),
        Err(_) => Err(HostFailure::usage(
            format!("{team:?} is not an id of a team"),
            "an id is 1 to 32 characters: a lower-case letter first, then lower-case letters, digits or '-'",
            "for example: --team demo",
        )),
    }
}

/// Returns a name that may be used, as near as possible to a text, for example the name of a machine or a folder.
pub(crate) fn name_near(text: &str) -> String {
    let is_address = text.parse::<IpAddr>().is_ok();
    let first = if is_address { Some(text) } else { text.split('.').next() };
    let first = first.unwrap_or_default().to_lowercase();
    let letters =
        first.chars().map(|c| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '-' });
    let name: String = letters.collect();
    let name = name.trim_matches('-');
    let name = if name.starts_with(|c: char| c.is_ascii_lowercase()) {
        name.to_owned()
    } else {
        format!("host-{name}")
    };
    name.chars().take(24).collect::<String>().trim_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_goes_by_tls_or_stays_on_this_machine() {
        for address in
            ["tls://nats.example.org:4222", "nats://127.0.0.1:4222", "localhost", "[::1]:4222"]
        {
            assert!(is_private(address), "{address}");
        }
        for address in ["nats://nats.example.org:4222", "10.0.0.1:4222", "nats://[fe80::1]:4222"] {
            assert!(!is_private(address), "{address}");
        }
    }

    #[test]
    fn a_name_is_made_from_that_of_a_machine() {
        for (text, expected) in [
            ("gpu1", "gpu1"),
            ("Ann's MacBook", "ann-s-macbook"),
            ("box.example.org", "box"),
            ("10.0.0.7", "host-10-0-0-7"),
            ("", "host"),
            ("_shop_", "shop"),
            ("a-very-long-name-of-a-machine-in-a-rack", "a-very-long-name-of-a-ma"),
        ] {
            assert_eq!(name_near(text), expected);
            assert!(HostName::parse(&name_near(text)).is_ok());
        }
    }
}
