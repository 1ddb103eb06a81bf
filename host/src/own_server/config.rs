//! The configuration of the own server: one account for the team, one user for each host, and what each of them may do.
//!
//! The host of the server, which is the authority of the team, may do all within the account. Another host may send in its own
//! name, read what is for it and what is for all, and change its own values. What it sends elsewhere all the same, by the
//! reply of a question for example, has no signature that counts there.

use agent_team::store::relay::{ServerFiles, SignedInHost};
use serde_json::{Value, json};

/// The parts of a configuration that change.
pub(super) struct Access<'a> {
    pub(super) team: &'a str,
    /// The public key of the host of the server.
    pub(super) own_key: &'a str,
    pub(super) hosts: &'a [SignedInHost],
}

/// Returns the configuration. What `sync_interval` and the others are for is told in docs/machines.md.
pub(super) fn text(files: &ServerFiles, port: u16, access: &Access<'_>) -> String {
    let quoted = |text: String| json!(text).to_string();
    let (store, log) =
        (quoted(files.store.display().to_string()), quoted(files.log.display().to_string()));
    let own = json!({ "nkey": access.own_key });
    let users: Vec<_> = std::iter::once(own)
        .chain(access.hosts.iter().map(|host| user(access.team, host)))
        .map(|user| user.to_string())
        .collect();
    let team = quoted(access.team.to_owned());
    format!(
        "listen: \"127.0.0.1:{port}\"\n\
         max_payload: 4MB\n\
         ping_interval: \"2s\"\n\
         ping_max: 2\n\
         jetstream {{ store_dir: {store}, sync_interval: always }}\n\
         accounts {{\n  {team}: {{\n    jetstream: enabled\n    users: [\n      {}\n    ]\n  }}\n}}\n\
         logfile: {log}\n\
         logfile_size_limit: 1MB\n\
         logfile_max_num: 2\n",
        users.join("\n      "),
    )
}

/// Returns the user of a host with its permissions.
fn user(team: &str, SignedInHost { host, connection, .. }: &SignedInHost) -> Value {
    let (stream, bucket) = (format!("MAIL_{team}"), format!("KV_team_{team}"));
    let sends = ["mail", "ack", "sync", "order", "bundle", "claim"]
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
        format!("$JS.API.CONSUMER.CREATE.{bucket}.>"),
    ];
    let publish: Vec<_> = sends.into_iter().chain(more).collect();
    let reads = ["ack", "sync", "order", "bundle"].map(|kind| format!("t.{team}.{kind}.{host}.>"));
    let more = [format!("t.{team}.beat.>"), format!("_INBOX_{host}.>")];
    let subscribe: Vec<_> = reads.into_iter().chain(more).collect();
    json!({
        "nkey": connection,
        "permissions": {
            "publish": { "allow": publish },
            "subscribe": { "allow": subscribe },
            // One answer to each question.
            "allow_responses": { "max": 1, "expires": "1m" },
        },
    })
}
