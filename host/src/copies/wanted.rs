//! The copies that processes of this host want to see: they are kept up to date as long as those live.

use super::fetch::{self, CopyFailure};
use crate::carrier::{Carrier, CarrierError};
use crate::offload::offload;
use agent_team::store::relay::{
    CopiedHost, HostCopy, KnownHost, WishState, known_hosts, live_wishes, put_wish_state,
};
use agent_team::store::{Clock, StoreError, SystemClock, TeamDir};
use agent_team::wire::WallTime;
use agent_team::wire::carried::HostName;
use agent_team::wire::host_copy::{CopySelection, CopyWish};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// The period in which hosts are asked what is new, while somebody looks.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The period in which wishes are looked for without file events.
const POLL: Duration = Duration::from_secs(2);

/// The parts of the task.
pub(crate) struct WantedCopies {
    pub(crate) carrier: Carrier,
    pub(crate) dir: TeamDir,
}

/// The wanted files of each host.
type Wanted = BTreeMap<HostName, CopySelection>;

impl WantedCopies {
    /// Keeps copies up to date as long as the relay runs. `wake` is notified when there may be a new wish.
    pub(crate) async fn run(self, wake: Arc<Notify>) {
        let mut told = BTreeMap::new();
        loop {
            let dir = self.dir.clone();
            let wishes = offload(move || {
                let wishes = live_wishes(&dir, SystemClock.now())?;
                Ok::<_, StoreError>((wishes, known_hosts(&dir)?))
            });
            let pause = match wishes.await {
                Ok((wishes, hosts)) if !wishes.is_empty() => {
                    self.look(&wishes, &hosts, &mut told).await;
                    LOOK_EVERY
                }
                Ok(_) => {
                    told.clear();
                    POLL
                }
                Err(why) => {
                    tracing::warn!(%why, "the wishes for copies cannot be read");
                    POLL
                }
            };
            // Without file events, the period decides.
            drop(tokio::time::timeout(pause, wake.notified()).await);
        }
    }

    /// Brings all wanted copies up to date, and says so beside the wishes whose state has changed.
    async fn look(
        &self,
        wishes: &[(String, CopyWish)],
        hosts: &[KnownHost],
        told: &mut BTreeMap<String, WishState>,
    ) {
        let wanted = wanted(wishes, hosts);
        for (id, wish) in wishes {
            if told.contains_key(id) {
                continue;
            }
            let coming = CopiedHost { is_coming: true, ..CopiedHost::default() };
            let meant = wanted.keys().filter(|host| is_meant(wish, host));
            let hosts = meant.map(|host| (host.clone(), coming.clone())).collect();
            self.tell(id, WishState { hosts }, told).await;
        }
        let mut looks = JoinSet::new();
        for (host, selection) in wanted {
            let known = hosts.iter().find(|known| known.host == host);
            let away = known.map_or(Some("it is not heard".into()), away);
            let (carrier, dir) = (self.carrier.clone(), self.dir.clone());
            looks.spawn(async move {
                let state = copied(&carrier, &dir, &host, &selection, away).await;
                (host, state)
            });
        }
        let states: BTreeMap<HostName, CopiedHost> = looks.join_all().await.into_iter().collect();
        told.retain(|id, _| wishes.iter().any(|(known, _)| known == id));
        for (id, wish) in wishes {
            let hosts = states.iter().filter(|(host, _)| is_meant(wish, host));
            let hosts = hosts.map(|(host, state)| (host.clone(), state.clone())).collect();
            let state = WishState { hosts };
            if told.get(id).is_none_or(|known| is_news(known, &state)) {
                self.tell(id, state, told).await;
            }
        }
    }

    /// Says how far the copies for a wish are.
    async fn tell(&self, id: &str, state: WishState, told: &mut BTreeMap<String, WishState>) {
        let (dir, wish_id) = (self.dir.clone(), id.to_owned());
        told.insert(wish_id.clone(), state.clone());
        if let Err(why) = offload(move || put_wish_state(&dir, &wish_id, &state)).await {
            tracing::warn!(%why, "the state of copies is not written");
            told.remove(id);
        }
    }
}

fn is_meant(wish: &CopyWish, host: &HostName) -> bool {
    wish.hosts.is_empty() || wish.hosts.contains(host)
}

/// Whether a state says more than the time.
fn is_news(known: &WishState, state: &WishState) -> bool {
    let words = |state: &WishState| {
        let words =
            state.hosts.iter().map(|(host, it)| (host.clone(), it.is_coming, it.why.clone()));
        words.collect::<Vec<_>>()
    };
    words(known) != words(state)
}

/// Returns what is wanted of each host. One that a wish names and that is not known is asked for, too: the answer says so.
fn wanted(wishes: &[(String, CopyWish)], hosts: &[KnownHost]) -> Wanted {
    let mut wanted = Wanted::new();
    for (_, wish) in wishes {
        let all = hosts.iter().filter(|host| !host.is_given_up).map(|known| &known.host);
        let meant: Vec<&HostName> =
            if wish.hosts.is_empty() { all.collect() } else { wish.hosts.iter().collect() };
        for host in meant {
            let selection = match wanted.remove(host) {
                Some(known) => known.with(&wish.selection),
                None => wish.selection.clone(),
            };
            wanted.insert(host.clone(), selection);
        }
    }
    wanted
}

/// Returns why a host cannot be asked now; `None` if it can.
fn away(known: &KnownHost) -> Option<String> {
    let since = known.away_since.map(|since| SystemClock.now().since(since).as_secs());
    let away = since.map(|seconds| format!("it has been away for {seconds} s"));
    away.or_else(|| (!known.is_heard).then(|| "it is not heard yet".into()))
}

/// Brings the copy of a host up to date, unless it is away. Returns its state.
async fn copied(
    carrier: &Carrier,
    dir: &TeamDir,
    host: &HostName,
    selection: &CopySelection,
    away: Option<String>,
) -> CopiedHost {
    let (team, from) = (dir.clone(), host.clone());
    let copy = match offload(move || HostCopy::open(&team, &from)).await {
        Ok(copy) => copy,
        Err(why) => return CopiedHost { why: Some(why.to_string()), ..CopiedHost::default() },
    };
    let as_of = copy.as_of();
    let why = match away {
        Some(why) => why,
        None => match bring_up(carrier, copy, host, selection).await {
            Ok(as_of) => return CopiedHost { as_of, ..CopiedHost::default() },
            Err(CopyFailure::Carrier(CarrierError::HostAway(_) | CarrierError::KeyUnknown(_))) => {
                "it is not heard".into()
            }
            Err(CopyFailure::Carrier(CarrierError::Timeout { .. })) => "it does not answer".into(),
            Err(why) => why.to_string(),
        },
    };
    CopiedHost { as_of, why: Some(why), is_coming: false }
}

/// Brings the copy of a host up to date. Returns the time at which it was.
async fn bring_up(
    carrier: &Carrier,
    mut copy: HostCopy,
    host: &HostName,
    selection: &CopySelection,
) -> Result<Option<WallTime>, CopyFailure> {
    let now = SystemClock.now();
    let listed = fetch::files(carrier, host, selection).await?;
    let asked = selection.clone();
    let missing;
    (copy, missing) = offload(move || {
        let missing = copy.missing(&asked, &listed);
        (copy, missing)
    })
    .await;
    for part in missing? {
        let mut offset = part.offset;
        while offset < part.until {
            let file = (&part.path, part.id.as_str());
            let Some(bytes) = fetch::part(carrier, host, file, offset).await? else { break };
            if bytes.is_empty() {
                break;
            }
            let (path, at) = (part.path.clone(), offset);
            offset += bytes.len() as u64;
            let appended;
            (copy, appended) = offload(move || {
                let appended = copy.append(&path, (at, &bytes));
                (copy, appended)
            })
            .await;
            appended?;
        }
    }
    let (copy, noted) = offload(move || {
        let noted = copy.note_complete(now);
        (copy, noted)
    })
    .await;
    noted?;
    Ok(copy.as_of())
}
