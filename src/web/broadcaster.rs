//! One look at the files for all visitors: changes are told to everybody who watches, and a late one is
//! told what there is first.

use super::reply::event;
use crate::os::async_fd::ReadableFd;
use crate::store::TeamDir;
use crate::store::change_watcher::ChangeWatcher;
use crate::view::{Change, Feed, Snapshot};
use crate::wire::money::Price;
use hyper::body::Bytes;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::pending;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// Looks come at most this often, however busy the team is.
const PAUSE: Duration = Duration::from_millis(40);

/// What no file event tells (a life that ended) is seen after this time at the latest.
const SLOWEST: Duration = Duration::from_secs(1);

/// Events that may wait for one visitor. Who is slower is let go; browsers come back and are told anew.
const BACKLOG: usize = 256;

/// The messages that a new visitor is told.
const MESSAGES: usize = 500;

/// What is known and who wants to know.
pub(crate) struct Broadcaster {
    dir: TeamDir,
    prices: BTreeMap<String, Price>,
    snapshot: RefCell<Snapshot>,
    visitors: RefCell<Vec<mpsc::Sender<Bytes>>>,
    looks: watch::Sender<u64>,
}

impl Broadcaster {
    pub(crate) fn of(dir: &TeamDir, prices: BTreeMap<String, Price>) -> Self {
        Self {
            dir: dir.clone(),
            prices,
            snapshot: RefCell::new(Snapshot::of_last(MESSAGES)),
            visitors: RefCell::default(),
            looks: watch::Sender::new(0),
        }
    }

    pub(super) fn dir(&self) -> &TeamDir {
        &self.dir
    }

    /// Changes with every look that something stirred.
    pub(super) fn looks(&self) -> watch::Receiver<u64> {
        self.looks.subscribe()
    }

    /// What there is, then what comes.
    pub(super) fn subscribe(&self) -> mpsc::Receiver<Bytes> {
        let (tell, told) = mpsc::channel(BACKLOG);
        let changes: Vec<Change> = self.snapshot.borrow().changes();
        // There is room: the channel is new.
        let _first = tell.try_send(event(&changes));
        self.visitors.borrow_mut().push(tell);
        told
    }

    /// Looks at the files for as long as it is awaited.
    pub(crate) async fn run(&self) {
        let stirs = ChangeWatcher::listen(&self.dir).ok();
        let ready = stirs.as_ref().and_then(|stirs| ReadableFd::to_read(stirs).ok());
        let mut feed = Feed::of(&self.dir).priced(self.prices.clone());
        loop {
            if let Some(stirs) = &stirs
                && let Err(why) = stirs.acknowledge()
            {
                tracing::warn!(%why, "file events are lost");
            }
            match feed.look() {
                Ok(changes) => self.tell(changes),
                Err(why) => tracing::warn!(%why, "the team cannot be read"),
            }
            self.looks.send_modify(|looks| *looks = looks.wrapping_add(1));
            tokio::time::sleep(PAUSE).await;
            let stirred = async {
                match &ready {
                    Some(ready) => ready.woken().await.unwrap_or_default(),
                    None => pending().await,
                }
            };
            tokio::select! {
                () = stirred => {}
                () = tokio::time::sleep(SLOWEST) => self.visitors.borrow_mut().retain(is_there),
            }
        }
    }

    fn tell(&self, changes: Vec<Change>) {
        if changes.is_empty() {
            return;
        }
        let told = event(&changes);
        self.visitors.borrow_mut().retain(|visitor| visitor.try_send(told.clone()).is_ok());
        let mut snapshot = self.snapshot.borrow_mut();
        for change in changes {
            snapshot.apply(change);
        }
    }
}

fn is_there(visitor: &mpsc::Sender<Bytes>) -> bool {
    !visitor.is_closed()
}
