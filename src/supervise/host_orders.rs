//! Orders of this host to another one: each is a file that the relay carries, and that the supervisor of the other host
//! carries out and answers. What is given here waits for the answer.

pub(super) use crate::bus::host_orders::OrderFailure;

use crate::bus::host_orders::{GivenOrder, HEARD_WITHIN, check};
use crate::os::Clock;
use crate::os::deadline::deadline;
use crate::store::asynchronous::offload;
use crate::store::relay::{self, read_answer};
use crate::store::{StoreError, TeamDir, roster};
use crate::wire::carried::HostName;
use crate::wire::host_order::{HostOrder, Order, OrderAnswer, OrderId, OrderSide};
use std::time::Duration;

/// The pause between two looks for the answer.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The time that an order and its answer may take on their way, beside the time for the work.
pub(super) const TRANSPORT_WITHIN: Duration = Duration::from_secs(5);

/// The number of seconds after which a host counts as lost for a transfer.
const LOST_AFTER: u32 = 10;

/// Waits until a host can be given orders. A relay that has just been started hears the others after a moment.
async fn until_heard(
    dir: &TeamDir,
    clock: &dyn Clock,
    host: &HostName,
) -> Result<(), OrderFailure> {
    let until = tokio::time::Instant::now() + HEARD_WITHIN;
    loop {
        let (team, to, now) = (dir.clone(), host.clone(), clock.now());
        match offload(move || check(&team, &to, now)).await {
            Err(OrderFailure::NoRelay | OrderFailure::NotHeard(_))
                if tokio::time::Instant::now() < until =>
            {
                tokio::time::sleep(LOOK_EVERY).await;
            }
            checked => return checked,
        }
    }
}

/// Waits until a host can be given orders no more, for longer than a relay needs to start again.
async fn until_lost(dir: &TeamDir, clock: &dyn Clock, host: &HostName) -> OrderFailure {
    let mut lost = 0;
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (team, to, now) = (dir.clone(), host.clone(), clock.now());
        match offload(move || check(&team, &to, now)).await {
            Ok(()) => lost = 0,
            Err(why) if lost > LOST_AFTER => return why,
            Err(_) => lost += 1,
        }
    }
}

/// Gives an order to a host, and waits for its answer. An order that is not answered in time is withdrawn.
pub(super) async fn give(
    dir: &TeamDir,
    host: &HostName,
    order: (OrderId, Order),
    within: (&dyn Clock, Duration),
) -> Result<OrderAnswer, OrderFailure> {
    give_and_keep(dir, host, order, within).await.map(|(answer, _)| answer)
}

/// As [`give`]; returns the order, too, with which the bundle of the answer is removed. An order that transfers commits ends
/// when its host is lost: it may take long, and costs nothing but time.
pub(super) async fn give_and_keep(
    dir: &TeamDir,
    host: &HostName,
    (id, order): (OrderId, Order),
    (clock, within): (&dyn Clock, Duration),
) -> Result<(OrderAnswer, GivenOrder), OrderFailure> {
    until_heard(dir, clock, host).await?;
    let is_transfer = order.is_transfer();
    let within = deadline(within);
    let given = HostOrder { host: host.clone(), until: clock.now() + within, order };
    let (team, order_id) = (dir.clone(), id.clone());
    let put = move || Ok::<_, OrderFailure>(GivenOrder::put(&team, order_id, &given)?);
    let order = offload(put).await?;
    let answer = tokio::select! {
        answer = answer_of(dir, &id) => answer?,
        () = tokio::time::sleep(within) => {
            return Err(OrderFailure::Unanswered { host: host.clone(), within });
        }
        why = until_lost(dir, clock, host), if is_transfer => return Err(why),
    };
    tracing::info!(%id, %host, answer = answer.word(), "an order to another host is answered");
    Ok((answer, order))
}

async fn answer_of(dir: &TeamDir, id: &OrderId) -> Result<OrderAnswer, StoreError> {
    loop {
        let (team, order_id) = (dir.clone(), id.clone());
        let answer = offload(move || read_answer(&team, OrderSide::Out, &order_id)).await?;
        if let Some(answer) = answer {
            return Ok(answer);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// The host on which an agent is to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HostChoice {
    Here,
    Other(HostName),
}

/// The reason for which no host is chosen.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoHost {
    #[error(
        "this team has no other hosts; leave host out, or ask the user to add one (`team host add`)"
    )]
    OneHost,
    #[error("no host with the label {0} is heard now; try again later")]
    NotHeard(String),
    #[error("there is no host or label {word:?}; the hosts are {hosts}")]
    Unknown { word: String, hosts: String },
    #[error("{0}")]
    Store(#[from] StoreError),
}

/// Chooses the host for a word, which is the name of a host or a label of some: of these, the one with the fewest living
/// members. It waits for one with that label for as long as a relay that has just been started may need to hear it.
pub(super) async fn choose_host(dir: &TeamDir, word: &str) -> Result<HostChoice, NoHost> {
    let until = tokio::time::Instant::now() + HEARD_WITHIN;
    loop {
        let (team, wanted) = (dir.clone(), word.to_owned());
        match offload(move || choose_now(&team, &wanted)).await {
            Err(NoHost::NotHeard(_)) if tokio::time::Instant::now() < until => {
                tokio::time::sleep(LOOK_EVERY).await;
            }
            chosen => return chosen,
        }
    }
}

fn choose_now(dir: &TeamDir, word: &str) -> Result<HostChoice, NoHost> {
    let own = relay::identity(dir)?.ok_or(NoHost::OneHost)?;
    let known = relay::known_hosts(dir)?;
    if own.host.as_str() == word {
        return Ok(HostChoice::Here);
    }
    let added = relay::ssh_hosts(dir)?;
    let mut named = known.iter().map(|known| &known.host).chain(added.iter().map(|it| &it.host));
    if let Some(host) = named.find(|host| host.as_str() == word) {
        return Ok(HostChoice::Other(host.clone()));
    }
    let roster = roster::read(dir)?;
    let living = |host: Option<&str>| {
        let members = roster.members.iter().filter(|member| member.host.as_deref() == host);
        members.filter(|member| !member.status.is_over()).count()
    };
    let has_label = |labels: &[String]| labels.iter().any(|label| label == word);
    let here = has_label(&own.labels).then(|| (living(None), HostChoice::Here));
    let labelled = known.iter().filter(|host| has_label(&host.labels));
    let up = labelled.clone().filter(|host| host.is_heard && host.away_since.is_none());
    let others =
        up.map(|host| (living(Some(host.host.as_str())), HostChoice::Other(host.host.clone())));
    if let Some((_, chosen)) = here.into_iter().chain(others).min_by_key(|(count, _)| *count) {
        return Ok(chosen);
    }
    if labelled.count() > 0 || added.iter().any(|host| has_label(&host.labels)) {
        return Err(NoHost::NotHeard(word.into()));
    }
    let words = |host: &HostName, labels: &[String]| {
        if labels.is_empty() {
            return host.to_string();
        }
        format!("{host} ({})", labels.join(", "))
    };
    let others = known.iter().map(|host| words(&host.host, &host.labels));
    let all: Vec<_> = [words(&own.host, &own.labels)].into_iter().chain(others).collect();
    Err(NoHost::Unknown { word: word.into(), hosts: all.join(", ") })
}
