//! Reads the files once for all visitors of the page. A new visitor gets the present state, then every
//! change.

use super::reply::event;
use crate::os::async_fd::ReadableFd;
use crate::store::TeamDir;
use crate::store::change_watcher::ChangeWatcher;
use crate::view::{Change, Feed, Snapshot, pause_after};
use crate::wire::price_list::PriceList;
use hyper::body::Bytes;
use std::cell::RefCell;
use std::future::pending;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};

/// The shortest time between two looks at the files.
const PAUSE: Duration = Duration::from_millis(40);

/// The longest time between two looks at a team that is not large: the end of a process causes no file event.
const SLOWEST: Duration = Duration::from_secs(1);

/// The maximum number of events that are queued for one visitor. A slower visitor is disconnected; its browser
/// reconnects.
const BACKLOG: usize = 256;

/// The maximum number of messages that a new visitor gets.
const MESSAGES: usize = 500;

/// The present state, and the visitors to which changes are sent.
pub(crate) struct Broadcaster {
    pub(super) dir: TeamDir,
    prices: PriceList,
    snapshot: RefCell<Snapshot>,
    visitors: RefCell<Vec<mpsc::Sender<Bytes>>>,
    /// The channel that is notified after every look at the files.
    pub(super) looks: watch::Sender<()>,
}

impl Broadcaster {
    pub(crate) fn of(dir: &TeamDir, prices: PriceList) -> Self {
        Self {
            dir: dir.clone(),
            prices,
            snapshot: RefCell::new(Snapshot::of_last(MESSAGES)),
            visitors: RefCell::default(),
            looks: watch::Sender::default(),
        }
    }

    /// Returns a channel that receives the present state, then every change.
    pub(super) fn subscribe(&self) -> mpsc::Receiver<Bytes> {
        let (sender, events) = mpsc::channel(BACKLOG);
        let changes: Vec<Change> = self.snapshot.borrow().changes();
        // The send cannot fail: a new channel has room.
        let _first = sender.try_send(event(&changes));
        self.visitors.borrow_mut().push(sender);
        events
    }

    /// Looks at the files and sends the changes to all visitors, until the future is dropped.
    pub(crate) async fn run(&self) {
        let watcher = ChangeWatcher::listen(&self.dir).ok();
        let ready = watcher.as_ref().and_then(|watcher| ReadableFd::to_read(watcher).ok());
        let mut feed = Feed::of(&self.dir, self.prices.clone());
        loop {
            if let Some(watcher) = &watcher
                && let Err(why) = watcher.acknowledge()
            {
                tracing::warn!(%why, "file events are lost");
            }
            let began = Instant::now();
            match feed.look() {
                Ok(changes) => self.broadcast(changes),
                Err(why) => tracing::warn!(%why, "the team cannot be read"),
            }
            let slowest = pause_after(began.elapsed(), SLOWEST);
            self.looks.send_replace(());
            tokio::time::sleep(PAUSE).await;
            let changed = async {
                match &ready {
                    Some(ready) => ready.woken().await.unwrap_or_default(),
                    None => pending().await,
                }
            };
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep(slowest) => {
                    self.visitors.borrow_mut().retain(|visitor| !visitor.is_closed());
                }
            }
        }
    }

    fn broadcast(&self, changes: Vec<Change>) {
        if changes.is_empty() {
            return;
        }
        // The first look has much to tell, and nobody to tell it to.
        if !self.visitors.borrow().is_empty() {
            let event = event(&changes);
            self.visitors.borrow_mut().retain(|visitor| visitor.try_send(event.clone()).is_ok());
        }
        let mut snapshot = self.snapshot.borrow_mut();
        for change in changes {
            snapshot.apply(change);
        }
    }
}
