//! The answer of the authority to a host that wants to join.

use super::code::{JoinAnswer, JoinQuestion};
use crate::carrier::Reply;
use crate::offload::offload;
use crate::sign_in::SignIn;
use agent_team::store::relay::{change_invited_hosts, invited_hosts};
use agent_team::store::{Clock, SystemClock};
use bytes::Bytes;

/// Answers a host that wants to join.
pub(crate) async fn answer(sign_in: SignIn, body: Bytes, reply: Reply) {
    let Ok(question) = serde_json::from_slice::<JoinQuestion>(&body) else { return };
    let (dir, host) = (sign_in.dir.clone(), question.host.clone());
    let secret = offload(move || {
        let known = invited_hosts(&dir).unwrap_or_default();
        known.into_iter().find(|known| known.host == host).map(|known| known.secret)
    });
    let host = question.host.clone();
    let Some(secret) = secret.await else {
        tracing::warn!(%host, "a host that is not invited asks to join");
        return;
    };
    let answer = joined(&sign_in, question).await.unwrap_or_else(|why| {
        tracing::warn!(%host, why, "a host does not join");
        JoinAnswer::Refused { why }
    });
    let Some(answer) = answer.seal(&secret) else { return };
    // The host trusts no key yet, so the secret proves the answer.
    drop(reply.answer_unsigned(answer.into()).await);
}

async fn joined(sign_in: &SignIn, question: JoinQuestion) -> Result<JoinAnswer, String> {
    let (dir, team) = (sign_in.dir.clone(), sign_in.team.clone());
    let host = question.host.clone();
    let keys = question.keys.clone();
    let check = move || {
        let now = SystemClock.now();
        change_invited_hosts(&dir, |hosts| {
            let known = hosts.iter_mut().find(|known| known.host == question.host);
            let known = known.filter(|known| known.until > now);
            let Some(known) = known else { return Err("the code is too old") };
            let signing = &question.keys.signing;
            if !question.is_proved(&known.secret, &team) {
                return Err("the code is not that of the last invitation");
            }
            if known.joined.as_ref().is_some_and(|joined| joined != signing) {
                return Err("another host has joined with this code");
            }
            known.joined = Some(signing.clone());
            Ok(())
        })
    };
    let checked = offload(check).await.map_err(|why| why.to_string())?;
    checked.map_err(str::to_owned)?;
    let membership = sign_in.sign_in(&host, keys).await.map_err(|why| why.to_string())?;
    Ok(JoinAnswer::Joined { membership })
}
