//! `team host join`: makes this folder a host of a team.

use super::code::{JoinAnswer, JoinCode, JoinQuestion, login_of};
use crate::carrier::{Login, Security, ask_to_join};
use crate::failure::HostFailure;
use crate::settings::{ServerOptions, check_label, known_identity};
use crate::trust::{Trust, new_keys, public_keys};
use agent_team::store::relay::{
    HostKeys, Membership, RelayLock, Servers, host_keys, name_host, write_host_keys,
};
use agent_team::store::{StoreError, TeamDir};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::runtime::Builder;
use tokio::time::sleep;

/// The time in which the authority answers.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// The pause before it is asked again.
const ASK_EVERY: Duration = Duration::from_millis(300);

/// The settings of a host that joins.
pub(crate) struct JoinOptions {
    pub(crate) root: PathBuf,
    pub(crate) servers: ServerOptions,
    pub(crate) code: String,
    pub(crate) labels: Vec<String>,
}

/// Joins a team.
///
/// # Errors
/// The code is none, or is refused; the server or the authority does not answer; the folder is of another team.
pub(crate) fn join(options: JoinOptions) -> Result<(), HostFailure> {
    let what = "this host cannot join";
    let JoinOptions { root, servers, code, labels } = options;
    labels.iter().try_for_each(|label| check_label(label))?;
    let Some(code) = JoinCode::parse(&code) else {
        let hint = "get one on the first host: team host invite HOST; and copy all of it";
        return Err(HostFailure::usage(what, "the code is not whole", hint));
    };
    let (servers, security) = servers.checked()?;
    let known = known_identity(&root)?;
    if let Some(known) = known.filter(|it| it.team != code.team || it.host != code.host) {
        let why = format!("this folder is host {} of team {}", known.host, known.team);
        let hint =
            format!("the code is for host {} of team {}: use another folder", code.host, code.team);
        return Err(HostFailure::usage(what, why, hint));
    }
    let at_folder = |why: StoreError| {
        HostFailure::of(what, &why, "check the folder's permissions and free space")
    };
    let dir = TeamDir::create(&root).map_err(at_folder)?;
    let Some(_lock) = RelayLock::take(&dir).map_err(at_folder)? else {
        let hint = "end it first, then join";
        return Err(HostFailure::usage(what, "a relay serves this folder now", hint));
    };
    let failed = |why: &dyn std::error::Error| HostFailure::of(what, why, "try again");
    let keys = match host_keys(&dir).map_err(at_folder)? {
        Some(keys) => keys,
        None => new_keys().map_err(|why| failed(&why))?,
    };
    // An answer that is lost is asked for again with the same keys.
    write_host_keys(&dir, &keys).map_err(at_folder)?;
    let public = public_keys(&keys).map_err(|why| failed(&why))?;
    let question = JoinQuestion::new(&code.secret, &code.team, code.host.clone(), public);
    let body = serde_json::to_vec(&question).map_err(|why| failed(&why))?;
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|why| failed(&why))?;
    let membership = runtime.block_on(ask(&code, &servers.addresses, security, &body))?;
    let keys = HostKeys { membership: Some(membership), ..keys };
    check(&code, &keys)?;
    let authority = code.authority.clone();
    let JoinCode { host, team, pin, .. } = code;
    let labels = (!labels.is_empty()).then_some(labels);
    let servers = Servers { pin, ..servers };
    name_host(&dir, host.clone(), &team, servers, labels).map_err(at_folder)?;
    write_host_keys(&dir, &keys).map_err(at_folder)?;
    let text = format!(
        "{host} is a host of team {team}, signed in by {authority}. Its relay: team-host run\n"
    );
    drop(io::stdout().write_all(text.as_bytes()));
    Ok(())
}

/// Asks the authority until it answers.
async fn ask(
    code: &JoinCode,
    servers: &[String],
    security: Security,
    body: &[u8],
) -> Result<Membership, HostFailure> {
    let what = "this host cannot join";
    let until = Instant::now() + ANSWER_WITHIN;
    let mut is_code_void = false;
    let key = code.pin.as_ref().and_then(|_| login_of(&code.secret)?.seed().ok());
    let has_login_of_code = security.login.is_none() && key.is_some();
    let login = security.login.or(key.map(Login::Seed));
    let security = Security { login, pin: code.pin.clone(), ..security };
    loop {
        let (host, authority) = (code.host.as_str(), code.authority.as_str());
        let answer = ask_to_join(servers, &security, (&code.team, host, authority), body).await;
        let why = match answer.map(|answer| JoinAnswer::open(&code.secret, &answer)) {
            Ok(Some(JoinAnswer::Joined { membership })) => return Ok(membership),
            Ok(Some(JoinAnswer::Refused { why })) => {
                let hint = format!("get a new code on {authority}: team host invite {host}");
                return Err(HostFailure::usage(what, why, hint));
            }
            // The authority has another secret for this host, or somebody else has answered.
            Ok(None) => {
                is_code_void = true;
                String::new()
            }
            Err(why) => why.to_string(),
        };
        // A question without an answer says less.
        let void = format!("the code is not that of the last invitation of {authority}");
        let why = if is_code_void { void } else { why };
        if Instant::now() > until {
            let again = format!("get a new code on {authority}: team host invite {host}");
            let is_shut_out = has_login_of_code && why.contains("authorization violation");
            let (why, hint) = match (is_code_void, is_shut_out) {
                (true, _) => (why, again),
                (false, true) => ("its server lets nobody in with this code".to_owned(), again),
                (false, false) => {
                    let hint = "check the address of the server, and that the relay of";
                    (why, format!("{hint} {authority} runs: team host ls there"))
                }
            };
            return Err(HostFailure::usage(what, why, hint));
        }
        sleep(ASK_EVERY).await;
    }
}

/// Refuses an answer that the authority of the code has not given.
fn check(code: &JoinCode, keys: &HostKeys) -> Result<(), HostFailure> {
    let is_authority =
        |it: &Membership| it.authority_key == code.key && it.authority == code.authority;
    let is_theirs = keys.membership.as_ref().is_some_and(is_authority)
        && Trust::new(&code.team, keys, BTreeMap::new()).is_ok_and(|trust| {
            let own = trust.open("check", &trust.sign("check", b""));
            own.is_ok_and(|own| own.by == code.host)
        });
    if is_theirs {
        return Ok(());
    }
    let why = format!("what came is not signed by {}", code.authority);
    let hint = "somebody else has answered at this server: do not use it";
    Err(HostFailure::usage("this host cannot join", why, hint))
}
