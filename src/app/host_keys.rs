//! `team host send-key`: a person says which keys of models another host gets with the orders of this one.

use super::context::Context;
use super::host_give_up::known_host;
use crate::error::{Exit, Failure};
use crate::settings::environment::check_key_variable;
use crate::store::relay;
use std::collections::BTreeSet;

/// Sets the variables whose keys a host gets; returns what there is to say.
///
/// # Errors
/// There is no such host, a variable is none with a key, or the file cannot be written.
pub(crate) fn send_keys(
    context: &Context,
    host: &str,
    names: &BTreeSet<String>,
) -> Result<String, Failure> {
    context.refuse_inside_agent("host send-key")?;
    let what = "no key is sent";
    for name in names {
        check_key_variable(name).map_err(|why| {
            let hint = "other variables belong into the settings of that host";
            Failure::new(Exit::Usage, what, why, hint)
        })?;
    }
    let team = context.team_to_view()?;
    let host = known_host(&team, host, what)?.host;
    relay::set_sent_keys(&team, &host, names.clone())?;
    if names.is_empty() {
        return Ok(format!(
            "{host} gets no key any more. A teammate that runs there keeps what it has.\n"
        ));
    }
    let unset: Vec<_> = names
        .iter()
        .filter(|name| context.environment.get(name).is_none())
        .map(String::as_str)
        .collect();
    let note = if unset.is_empty() {
        String::new()
    } else {
        format!(
            "Not set here: {}. Set it where the lead, or team-host run, is started.\n",
            unset.join(", ")
        )
    };
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    Ok(format!(
        "{host} gets {} with the next teammate that is ordered there, encrypted, for what is not set on {host} itself. It is kept in memory there, and in no file.\n{note}",
        names.join(", ")
    ))
}
