//! The configuration of the own server: one account for the team, one user for each host, and what each of them may do.
//!
//! The host of the server, which is the authority of the team, may do all within the account. Another host may send in its own
//! name, read what is for it and what is for all, and change its own values. What it sends elsewhere all the same, by the
//! reply of a question for example, has no signature that counts there.

use crate::join::login_of;
use agent_team::store::relay::{InvitedHost, ServerFiles, SignedInHost};
use agent_team::wire::carried::HostName;
use serde_json::{Value, json};
use std::net::SocketAddr;

/// The parts of a configuration that stay.
#[derive(Debug, Clone)]
pub(crate) struct ServerSettings {
    pub(crate) team: String,
    /// The host of the server.
    pub(crate) host: HostName,
    /// The public key by which it logs in.
    pub(crate) own_key: String,
    /// The address at which other hosts reach the server; `None` for loopback only.
    pub(crate) listen: Option<SocketAddr>,
}

/// The hosts that may log in.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct AllowedHosts {
    pub(super) signed_in: Vec<SignedInHost>,
    /// Those that may only ask to join.
    pub(super) invited: Vec<InvitedHost>,
}

/// Returns the configuration. What `sync_interval` and the others are for is told in docs/machines.md.
pub(super) fn text(
    files: &ServerFiles,
    at: SocketAddr,
    settings: &ServerSettings,
    allowed: &AllowedHosts,
) -> String {
    let quoted = |text: String| json!(text).to_string();
    let path = |path: &std::path::Path| quoted(path.display().to_string());
    let own = json!({ "nkey": settings.own_key });
    let users: Vec<_> = std::iter::once(own)
        .chain(allowed.signed_in.iter().map(|host| user(&settings.team, host)))
        .chain(allowed.invited.iter().filter_map(|host| invited_user(settings, host)))
        .map(|user| user.to_string())
        .collect();
    let tls = settings.listen.map_or_else(String::new, |_| {
        let (certificate, key) = (path(&files.certificate), path(&files.key));
        format!("tls {{ cert_file: {certificate}, key_file: {key}, timeout: 5 }}\n")
    });
    format!(
        "listen: \"{at}\"\n\
         {tls}\
         max_payload: 4MB\n\
         ping_interval: \"2s\"\n\
         ping_max: 2\n\
         authorization {{ timeout: 6 }}\n\
         jetstream {{ store_dir: {}, sync_interval: always }}\n\
         accounts {{\n  {}: {{\n    jetstream: enabled\n    users: [\n      {}\n    ]\n  }}\n}}\n\
         logfile: {}\n\
         logfile_size_limit: 1MB\n\
         logfile_max_num: 2\n",
        path(&files.store),
        quoted(settings.team.clone()),
        users.join("\n      "),
        path(&files.log),
    )
}

/// Returns the user of a host that may ask to join, and nothing else.
fn invited_user(settings: &ServerSettings, invited: &InvitedHost) -> Option<Value> {
    let ServerSettings { team, host: authority, .. } = settings;
    let host = &invited.host;
    Some(json!({
        "nkey": login_of(&invited.secret)?.public_key(),
        "permissions": {
            "publish": { "allow": [format!("t.{team}.join.{authority}.{host}")] },
            "subscribe": { "allow": [format!("_INBOX.{host}.>")] },
        },
    }))
}

/// Returns the user of a host with its permissions.
fn user(team: &str, SignedInHost { host, connection, .. }: &SignedInHost) -> Value {
    let (stream, bucket) = (format!("MAIL_{team}"), format!("KV_team_{team}"));
    let sends = ["mail", "ack", "sync", "order", "bundle", "copy", "claim"]
        .map(|kind| format!("t.{team}.{kind}.*.{host}"));
    let more = [
        format!("t.{team}.beat.{host}"),
        format!("$KV.team_{team}.host.{host}"),
        format!("$KV.team_{team}.member.{host}.>"),
        format!("$JS.API.STREAM.INFO.{stream}"),
        format!("$JS.API.STREAM.INFO.{bucket}"),
        format!("$JS.API.CONSUMER.CREATE.{stream}.{host}.t.{team}.mail.{host}.>"),
        format!("$JS.API.CONSUMER.INFO.{stream}.{host}"),
        format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{host}"),
        format!("$JS.ACK.{stream}.{host}.>"),
        format!("$JS.API.CONSUMER.CREATE.{bucket}.{host}.$KV.team_{team}.>"),
        format!("$JS.API.CONSUMER.DELETE.{bucket}.{host}"),
        // Answers, at subjects that only the one knows that has asked. A right to answer any question would be one to publish
        // anywhere: a host may ask itself.
        "_INBOX.*.>".to_owned(),
    ];
    let publish: Vec<_> = sends.into_iter().chain(more).collect();
    let reads =
        ["ack", "sync", "order", "bundle", "copy"].map(|kind| format!("t.{team}.{kind}.{host}.>"));
    let more = [format!("t.{team}.beat.>"), format!("_INBOX.{host}.>")];
    let subscribe: Vec<_> = reads.into_iter().chain(more).collect();
    json!({
        "nkey": connection,
        "permissions": {
            "publish": { "allow": publish },
            "subscribe": { "allow": subscribe },
        },
    })
}
