//! The command line: a failure becomes a text of what, why and what to do, and an exit code.

use crate::add::{AddOptions, add, remove};
use crate::failure::HostFailure;
use crate::invitation::Invitation;
use crate::join::{InviteOptions, JoinOptions, invite, join};
use crate::own_server;
use crate::run::{RunOptions, run};
use crate::serve::ServeOptions;
use crate::settings::{GivenSettings, ServerOptions, check_label, known_identity, team_folder};
use crate::ssh::Ssh;
use agent_team::check_key_variable;
use agent_team::store::TeamDir;
use agent_team::store::relay::{Servers, ssh_hosts};
use clap::{Parser, Subcommand};
use std::io::{self, BufRead, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The exit code of wrong arguments, as in the other programs.
const USAGE: u8 = 2;

#[derive(Debug, Parser)]
#[command(
    name = "team-host",
    version,
    about = "The relay of this host: carries the mail of a team between hosts."
)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serves the team folder of this host until it is ended.
    Run(RunArgs),
    /// Adds another host to the team, over ssh.
    Add(AddArgs),
    /// Prints the code by which a host joins that ssh does not reach.
    Invite(InviteArgs),
    /// Makes this folder a host of a team, by a code of the first host.
    Join(JoinArgs),
    /// Removes a host from the team: its connection ends, and its keys count no more.
    Rm(RemoveArgs),
}

#[derive(Debug, clap::Args)]
struct Place {
    /// The team folder; without it, the nearest `.team` upward.
    #[arg(long, value_name = "FOLDER", env = "TEAM_DIR")]
    dir: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct Programs {
    /// The program `ssh`.
    #[arg(long, value_name = "PROGRAM", env = "TEAM_SSH", default_value = "ssh", hide = true)]
    ssh: PathBuf,
    /// The program `nats-server`; without it, the one in PATH.
    #[arg(long, value_name = "PROGRAM", env = "TEAM_NATS_SERVER")]
    nats_server: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct ServerLogin {
    /// The file with what this host logs in with at the server, which others must not be able to read: credentials of NATS
    /// (.creds), the seed of an nkey, or USER:PASSWORD. Its path is remembered.
    #[arg(long, value_name = "FILE")]
    creds: Option<PathBuf>,
    /// The file with the certificates, as PEM, of those who have signed the server's one: the connection is by TLS. Its path is
    /// remembered.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
}

impl ServerLogin {
    /// The options of servers at these addresses.
    fn at(self, addresses: Vec<String>) -> ServerOptions {
        ServerOptions { addresses, login: self.creds, ca: self.ca }
    }
}

#[derive(Debug, clap::Args)]
struct RunArgs {
    #[command(flatten)]
    place: Place,
    /// The name of this host. It is needed once, and remembered.
    #[arg(long, value_name = "HOST")]
    name: Option<String>,
    /// The id of the team, the same on all of its hosts. It is needed once, and remembered.
    #[arg(long, value_name = "ID")]
    team: Option<String>,
    /// The address of the NATS server, as nats://HOST:PORT; several times for a cluster. It is needed once, and remembered.
    #[arg(long, value_name = "URL")]
    nats: Vec<String>,
    #[command(flatten)]
    login: ServerLogin,
    /// Runs a server of its own that other hosts reach at this address and port, over TLS, such as 0.0.0.0:4222. It is remembered.
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "nats")]
    listen: Option<SocketAddr>,
    /// A label of this host, by which a lead can choose it for an agent, such as gpu; several times for more. The labels are
    /// remembered.
    #[arg(long, value_name = "LABEL")]
    label: Vec<String>,
    /// Ends when its standard input ends, as with the program that has started it.
    #[arg(long)]
    until_eof: bool,
    /// Reads name, team and server from standard input, and ends with it: for a host that another one adds over ssh.
    #[arg(long, hide = true, conflicts_with_all = ["name", "team", "nats", "listen", "label", "creds", "ca"])]
    invited: bool,
    #[command(flatten)]
    programs: Programs,
    #[arg(long, hide = true, env = agent_team::store::failpoint::VARIABLE)]
    failpoints: Option<String>,
}

#[derive(Debug, clap::Args)]
struct AddArgs {
    /// The host, as `ssh` knows it: a name of ~/.ssh/config, or USER@HOST.
    destination: String,
    /// The name of the new host in the team; without it, one like that for ssh.
    #[arg(long, value_name = "HOST")]
    name: Option<String>,
    /// The folder on the new host in which the team works, below the home folder or absolute; without it, .team-hosts/TEAM.
    #[arg(long, value_name = "FOLDER")]
    folder: Option<String>,
    /// The name of this host; without it, that of the machine. It is needed once, and remembered.
    #[arg(long, value_name = "HOST")]
    here: Option<String>,
    /// The id of the team; without it, one like the name of the folder. It is needed once, and remembered.
    #[arg(long, value_name = "ID")]
    team: Option<String>,
    /// A NATS server that runs and that both hosts reach; without it, this host runs one for itself.
    #[arg(long, value_name = "URL")]
    nats: Vec<String>,
    /// A label of the new host, by which a lead can choose it for an agent, such as gpu; several times for more.
    #[arg(long, value_name = "LABEL")]
    label: Vec<String>,
    /// A variable with the key of a model that is set here, which the new host gets, encrypted, with each teammate that is ordered
    /// there; several times for more. `team host send-key` changes it.
    #[arg(long, value_name = "NAME")]
    send_key: Vec<String>,
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    programs: Programs,
}

#[derive(Debug, clap::Args)]
struct InviteArgs {
    /// The name of the new host in the team.
    host: String,
    /// The address by which that host reaches this one, if this one runs the server; without it, the name of the machine.
    #[arg(long, value_name = "HOST")]
    address: Option<String>,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, clap::Args)]
struct JoinArgs {
    /// The address of the NATS server, as nats://HOST:PORT; several for a cluster.
    #[arg(required = true, value_name = "URL")]
    servers: Vec<String>,
    /// The code that `team host invite` has printed on the first host.
    #[arg(long, value_name = "CODE", env = "TEAM_JOIN_CODE", hide_env_values = true)]
    code: String,
    #[command(flatten)]
    login: ServerLogin,
    /// A label of this host, by which a lead can choose it for an agent, such as gpu; several times for more.
    #[arg(long, value_name = "LABEL")]
    label: Vec<String>,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, clap::Args)]
struct RemoveArgs {
    /// The name of the host in the team.
    host: String,
    #[command(flatten)]
    place: Place,
}

/// Runs the program; returns its exit code.
pub fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(why) => {
            let code = u8::try_from(why.exit_code()).unwrap_or(USAGE);
            drop(why.print());
            return ExitCode::from(code);
        }
    };
    let is_relay = matches!(args.command, Command::Run(_));
    let prepared = match args.command {
        Command::Run(args) => run_options(args).map(|options| Prepared::Run(Box::new(options))),
        Command::Add(args) => add_options(args).map(|options| Prepared::Add(Box::new(options))),
        Command::Invite(InviteArgs { host, address, place }) => team_folder(place.dir.as_deref())
            .map(|root| Prepared::Invite(InviteOptions { root, host, address })),
        Command::Join(JoinArgs { servers, code, login, label, place }) => {
            let servers = login.at(servers);
            team_folder(place.dir.as_deref())
                .map(|root| Prepared::Join(JoinOptions { root, servers, code, labels: label }))
        }
        Command::Rm(RemoveArgs { host, place }) => {
            team_folder(place.dir.as_deref()).map(|root| Prepared::Remove(root, host))
        }
    };
    let (why, code) = match prepared.map(perform) {
        Ok(Ok(())) => return ExitCode::SUCCESS,
        Ok(Err(why)) => (why, 1),
        Err(why) => (why, USAGE),
    };
    let text = if is_relay { why.to_string() } else { why.for_terminal() };
    // Nobody may read it.
    drop(writeln!(io::stderr(), "{text}"));
    ExitCode::from(code)
}

/// A command whose arguments were understood.
enum Prepared {
    Run(Box<RunOptions>),
    Add(Box<AddOptions>),
    Invite(InviteOptions),
    Join(JoinOptions),
    Remove(PathBuf, String),
}

fn perform(command: Prepared) -> Result<(), HostFailure> {
    match command {
        Prepared::Run(options) => run(*options),
        Prepared::Add(options) => add(*options),
        Prepared::Invite(options) => invite(&options),
        Prepared::Join(options) => join(options),
        Prepared::Remove(root, host) => remove(&root, &host),
    }
}

fn run_options(args: RunArgs) -> Result<RunOptions, HostFailure> {
    let root = team_folder(args.place.dir.as_deref())?;
    let known = known_identity(&root)?;
    let invitation = args.invited.then(read_invitation).transpose()?;
    let given = match &invitation {
        None => {
            let is_own = args.listen.is_some();
            let (servers, _) = args.login.at(args.nats).checked()?;
            let servers = Servers { is_own, listen: args.listen, ..servers };
            GivenSettings { name: args.name, team: args.team, servers }
        }
        Some(invitation) => {
            check_name(known.as_ref().map(|known| known.host.as_str()), invitation)?;
            let (name, team) = (invitation.host.to_string(), invitation.team.clone());
            GivenSettings { name: Some(name), team: Some(team), servers: Servers::default() }
        }
    };
    let settings = given.with_known(&root, known, invitation.is_some())?;
    let labels = match &invitation {
        Some(invitation) => Some(invitation.labels.clone()),
        None => (!args.label.is_empty()).then(|| args.label.clone()),
    };
    labels.iter().flatten().try_for_each(|label| check_label(label))?;
    refuse_ssh_hosts(&root, &settings.servers)?;
    let own = settings.servers.is_own;
    let server = own.then(|| own_server::find(args.programs.nats_server.as_deref())).transpose()?;
    Ok(RunOptions {
        root,
        host: settings.host,
        team: settings.team,
        servers: settings.servers,
        labels,
        failpoints: args.failpoints,
        invited_keys: invitation.as_ref().map(|invitation| invitation.keys),
        serve: ServeOptions {
            ends_with_input: args.until_eof || invitation.is_some(),
            invited: invitation.map(|invitation| invitation.access()),
            server,
            ssh: Ssh::new(args.programs.ssh),
        },
    })
}

/// Refuses a server that asks each host for files of its own, where hosts were added over ssh: they have none.
fn refuse_ssh_hosts(root: &Path, servers: &Servers) -> Result<(), HostFailure> {
    if servers.login.is_none() && servers.ca.is_none() {
        return Ok(());
    }
    let added = TeamDir::look(root).and_then(|dir| ssh_hosts(&dir)).unwrap_or_default();
    let Some(added) = added.first() else { return Ok(()) };
    let host = &added.host;
    Err(HostFailure::usage(
        "this server cannot be used",
        format!("{host} was added over ssh, and has no login for it"),
        format!("team host rm {host}; then let it join by a code: team host invite {host}"),
    ))
}

fn read_invitation() -> Result<Invitation, HostFailure> {
    let hint =
        "`team host add` on the first host starts it; by hand, use --name, --team and --nats";
    let what = "this relay is not invited";
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).map_err(|why| HostFailure::of(what, &why, hint))?;
    serde_json::from_str(&line).map_err(|why| HostFailure::of(what, &why, hint))
}

/// Refuses to give a folder another name: its members would change hosts.
fn check_name(known: Option<&str>, invitation: &Invitation) -> Result<(), HostFailure> {
    match known.filter(|known| *known != invitation.host.as_str()) {
        None => Ok(()),
        Some(known) => Err(HostFailure::usage(
            format!("it cannot be named {}", invitation.host),
            format!("its folder is that of host {known}"),
            format!("add it with --name {known}, or with another --folder"),
        )),
    }
}

fn add_options(args: AddArgs) -> Result<AddOptions, HostFailure> {
    args.label.iter().try_for_each(|label| check_label(label))?;
    for name in &args.send_key {
        check_key_variable(name).map_err(|why| {
            let hint = "other variables belong into the settings of that host";
            HostFailure::usage("the host is not added", why, hint)
        })?;
    }
    let (servers, _) =
        ServerOptions { addresses: args.nats, ..ServerOptions::default() }.checked()?;
    Ok(AddOptions {
        root: team_folder(args.place.dir.as_deref())?,
        destination: args.destination,
        name: args.name,
        folder: args.folder,
        labels: args.label,
        sent_keys: args.send_key.into_iter().collect(),
        given: GivenSettings { name: args.here, team: args.team, servers },
        ssh: Ssh::new(args.programs.ssh.clone()),
        ssh_program: args.programs.ssh,
        nats_server: args.programs.nats_server,
    })
}
