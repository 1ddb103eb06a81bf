//! The connections to all hosts that were added over ssh.

use super::command::Ssh;
use super::link::{Link, LinkNews};
use crate::offload::offload;
use crate::own_server::ServerAccess;
use crate::sign_in::SignIn;
use agent_team::store::relay::{SshHost, SshLink, ssh_hosts, write_ssh_links};
use agent_team::store::{Clock, SystemClock, TeamDir};
use agent_team::wire::carried::HostName;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// The pause between two looks at the list of hosts.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The connections of this host.
pub(crate) struct SshLinks {
    pub(crate) ssh: Ssh,
    pub(crate) dir: TeamDir,
    pub(crate) access: ServerAccess,
    pub(crate) sign_in: SignIn,
    /// The address of the own server on this host.
    pub(crate) server: Option<SocketAddr>,
}

struct Running {
    host: SshHost,
    end: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl SshLinks {
    /// Keeps a connection to each host on the list, until it is told to end.
    pub(crate) async fn run(self, mut end: watch::Receiver<bool>) {
        let (news, mut heard) = mpsc::unbounded_channel();
        let mut running = BTreeMap::new();
        let mut links: Vec<SshLink> = Vec::new();
        loop {
            if let Some(hosts) = self.hosts().await {
                let ended = end_others(&hosts, &mut running).await;
                if !ended.is_empty() {
                    // The last words of an ended connection say nothing of the next one to its host.
                    while let Ok(news) = heard.try_recv() {
                        note(&mut links, news);
                    }
                    links.retain(|link| !ended.contains(&link.host));
                    self.record(&links).await;
                }
                self.start_new(&hosts, &mut running, &news);
            }
            tokio::select! {
                Some(news) = heard.recv() => {
                    note(&mut links, news);
                    self.record(&links).await;
                }
                () = tokio::time::sleep(LOOK_EVERY) => {}
                _ = end.changed() => break,
            }
        }
        end_all(running.into_values()).await;
    }

    async fn hosts(&self) -> Option<Vec<SshHost>> {
        let dir = self.dir.clone();
        let hosts = offload(move || ssh_hosts(&dir)).await;
        hosts
            .inspect_err(|why| tracing::warn!(%why, "the list of hosts over ssh cannot be read"))
            .ok()
    }

    /// Starts a connection to each host that has none.
    fn start_new(
        &self,
        hosts: &[SshHost],
        running: &mut BTreeMap<HostName, Running>,
        news: &mpsc::UnboundedSender<LinkNews>,
    ) {
        for host in hosts {
            if running.contains_key(&host.host) {
                continue;
            }
            let link = Link {
                ssh: self.ssh.clone(),
                host: host.clone(),
                team: self.sign_in.team.clone(),
                access: self.access.clone(),
                sign_in: self.sign_in.clone(),
                server: self.server,
                news: news.clone(),
            };
            let (end, ended) = watch::channel(false);
            let task = tokio::spawn(link.keep(ended));
            running.insert(host.host.clone(), Running { host: host.clone(), end, task });
        }
    }

    async fn record(&self, links: &[SshLink]) {
        let (dir, links) = (self.dir.clone(), links.to_vec());
        if let Err(why) = offload(move || write_ssh_links(&dir, &links)).await {
            tracing::warn!(%why, "the connections are not recorded");
        }
    }
}

/// Ends the connections to hosts that are not on the list, or are now with other settings; returns their names.
async fn end_others(
    hosts: &[SshHost],
    running: &mut BTreeMap<HostName, Running>,
) -> BTreeSet<HostName> {
    let (kept, others): (BTreeMap<_, _>, BTreeMap<_, _>) =
        std::mem::take(running).into_iter().partition(|(_, link)| hosts.contains(&link.host));
    *running = kept;
    let ended = others.keys().cloned().collect();
    end_all(others.into_values()).await;
    ended
}

async fn end_all(running: impl Iterator<Item = Running>) {
    let mut tasks = Vec::new();
    for link in running {
        link.end.send_replace(true);
        tasks.push(link.task);
    }
    for task in tasks {
        drop(task.await);
    }
}

/// Notes news in the list of connections, and logs what has changed.
fn note(links: &mut Vec<SshLink>, LinkNews { host, state }: LinkNews) {
    let (is_up, why) = (state.is_ok(), state.err());
    let before = links.iter().find(|link| link.host == host);
    if before.is_some_and(|link| link.is_up == is_up && link.why == why) {
        return;
    }
    if let Some(why) = &why {
        tracing::warn!(%host, why, "there is no connection over ssh");
    } else {
        tracing::info!(%host, "there is a connection over ssh");
    }
    links.retain(|link| link.host != host);
    links.push(SshLink { host, is_up, why, since: SystemClock.now() });
}
