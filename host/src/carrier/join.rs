//! The one question of a host that is no member of the team yet.

use super::config::{CarrierConfig, Subjects, inbox};
use super::error::CarrierError;
use super::login::Security;
use async_nats::{ConnectOptions, RequestErrorKind};
use bytes::Bytes;
use std::time::Duration;
use tokio::time::timeout;

/// The time for a connection and an answer, also on a slow link.
const ANSWER_WITHIN: Duration = Duration::from_secs(8);

/// Asks the authority of a team to let a host join, at one of these servers; returns the answer, which is not signed.
///
/// # Errors
/// The server or the authority does not answer within some seconds.
pub(crate) async fn ask_to_join(
    servers: &[String],
    security: &Security,
    (team, host, authority): (&str, &str, &str),
    body: &[u8],
) -> Result<Bytes, CarrierError> {
    CarrierConfig::check_names(team, host)?;
    let what = "asking to join";
    let asked = async {
        let options = ConnectOptions::new().custom_inbox_prefix(inbox(host));
        let client = security.of(options)?.connect(servers).await;
        let client = client.map_err(|why| CarrierError::Address(why.to_string()))?;
        let subject = Subjects::new(team, host).to("join", authority);
        let answer = client.request(subject, Bytes::copy_from_slice(body)).await;
        answer.map(|message| message.payload).map_err(|why| match why.kind() {
            RequestErrorKind::NoResponders => CarrierError::HostAway(authority.into()),
            RequestErrorKind::TimedOut
            | RequestErrorKind::InvalidSubject
            | RequestErrorKind::MaxPayloadExceeded
            | RequestErrorKind::Other => CarrierError::from_nats(what, &why),
        })
    };
    let late = CarrierError::Timeout { what, after: ANSWER_WITHIN };
    timeout(ANSWER_WITHIN, asked).await.unwrap_or(Err(late))
}
