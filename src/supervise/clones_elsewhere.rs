//! Clones of teammates on other hosts: before the start the commits go there, and saved work comes back into the repository
//! of the user here.

use super::host_orders::{OrderFailure, give, give_and_keep};
use crate::bus::new_id;
use crate::os::Clock;
use crate::store::TeamDir;
use crate::store::asynchronous::offload;
use crate::store::relay::{make_order_folders, order_id, remove_bundle};
use crate::wire::carried::HostName;
use crate::wire::host_order::{
    CloneStart, Order, OrderAnswer, OrderSide, ProjectCommits, WorkThere,
};
use crate::wire::isolation::{CloneBase, ClonePlace};
use crate::wire::roster::Status;
use crate::wire::{AgentName, WallTime};
use crate::work::clone;
use crate::work::elsewhere::Project;
use crate::work::error::WorkError;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The time in which commits have to be at the other host, which may fetch them from a server. A host that is lost ends it before.
const SENT_WITHIN: Duration = Duration::from_secs(3600);

/// The time in which a clone is removed.
const DROPPED_WITHIN: Duration = Duration::from_secs(300);

/// The reason for which commits do not go to another host, or do not come back.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TransferError {
    #[error("{0}")]
    Order(#[from] OrderFailure),
    #[error("{0}")]
    Work(#[from] WorkError),
    #[error("{0}")]
    Refused(String),
    #[error("the clone is removed there, but its last work has not come yet: {0}")]
    Dropped(Box<TransferError>),
    #[error("{0} has a clone on this host by now")]
    Here(AgentName),
}

impl From<OrderAnswer> for TransferError {
    /// Returns the reason in an answer that is not the wanted one.
    fn from(answer: OrderAnswer) -> Self {
        Self::Refused(answer.refusal())
    }
}

/// The state of a teammate in which its work was collected.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CollectedAt {
    pub(super) incarnation: String,
    pub(super) status: Status,
    /// The time since which it has that status.
    pub(super) since: WallTime,
}

/// The clones of a team's members on other hosts.
#[derive(Clone)]
pub(crate) struct ClonesElsewhere {
    pub(crate) dir: TeamDir,
    pub(crate) clock: Rc<dyn Clock>,
    /// The folder for clones on this host.
    pub(crate) clones: PathBuf,
    /// The environment of git.
    pub(crate) environment: Vec<(String, String)>,
    /// The files with which a clone begins.
    pub(crate) base: CloneBase,
    /// The name in which orders are given.
    pub(crate) by: AgentName,
}

impl ClonesElsewhere {
    /// Returns the clone of a name on another host, and that host.
    pub(crate) fn known(&self, name: &AgentName) -> Option<(ClonePlace, HostName)> {
        let place = clone::known(&self.clones, name).filter(|place| !place.is_here())?;
        let host = HostName::parse(&place.host).ok()?;
        Some((place, host))
    }

    /// Sends the commits with which the clone of a teammate begins. Returns the start and the place.
    pub(super) async fn send_start(
        &self,
        host: &HostName,
        name: &AgentName,
    ) -> Result<(CloneStart, ClonePlace), TransferError> {
        let base = self.base;
        let known = self.known(name).map(|(place, _)| place);
        let project = self.project(name, self.dir.workspace()).await?;
        let (clones, to, of) = (self.clones.clone(), host.clone(), Arc::clone(&project));
        let (start, place, commits) = offload(move || {
            let start = of.pin_start(base, &clones, known.as_ref())?;
            let place = of.place(&start, &clones, to.as_str());
            let commits = of.commits(&start, base, &clones)?;
            Ok::<_, WorkError>((start, place, commits))
        })
        .await?;
        self.send(host, &project, commits).await?;
        Ok((start, place))
    }

    /// Sends the files of the workspace as they are now, for a clone that is there.
    pub(crate) async fn send_files(&self, name: &AgentName) -> Result<(), TransferError> {
        let Some((place, host)) = self.known(name) else { return Ok(()) };
        let project = self.project(name, Path::new(&place.repository)).await?;
        let (clones, of) = (self.clones.clone(), Arc::clone(&project));
        let start = CloneStart { base: place.base, wip: None, prefix: String::new() };
        let base = self.base;
        let commits = offload(move || of.commits(&start, base, &clones)).await?;
        self.send(&host, &project, commits).await
    }

    async fn project(&self, name: &AgentName, folder: &Path) -> Result<Arc<Project>, WorkError> {
        let (name, folder) = (name.clone(), folder.to_owned());
        let environment = self.environment.clone();
        offload(move || Project::find(name, &folder, &environment)).await.map(Arc::new)
    }

    /// Lets a host have commits: it fetches what it can, and gets the others as a bundle.
    async fn send(
        &self,
        host: &HostName,
        project: &Arc<Project>,
        commits: ProjectCommits,
    ) -> Result<(), TransferError> {
        let within = (&*self.clock, SENT_WITHIN);
        let first = (order_id(&new_id(&self.by)), Order::Prepare(commits.clone()));
        let answer = give(&self.dir, host, first, within).await?;
        if answer == OrderAnswer::Prepared {
            return Ok(());
        }
        let OrderAnswer::Lacking { known } = answer else { return Err(answer.into()) };
        let id = order_id(&new_id(&self.by));
        let (dir, order, of) = (self.dir.clone(), id.clone(), Arc::clone(project));
        let wanted = commits.clone();
        let bytes = offload(move || {
            make_order_folders(&dir).map_err(OrderFailure::from)?;
            let file = dir.relay_bundle(OrderSide::Out, &order);
            Ok::<_, TransferError>(of.bundle(&file, &wanted, &known)?)
        })
        .await;
        let sent = async {
            let bytes = bytes?;
            tracing::info!(%id, %host, bytes, "commits go to another host");
            let order = Order::Prepare(ProjectCommits { bundle_bytes: Some(bytes), ..commits });
            Ok::<_, TransferError>(give(&self.dir, host, (id.clone(), order), within).await?)
        };
        let sent = sent.await;
        // An order that was not given has not taken it with it.
        let (dir, id) = (self.dir.clone(), id.clone());
        offload(move || remove_bundle(&dir, OrderSide::Out, &id)).await.unwrap_or_default();
        let answer = sent?;
        if answer == OrderAnswer::Prepared { Ok(()) } else { Err(answer.into()) }
    }

    /// Brings the saved work of a clone here.
    pub(crate) async fn collect(
        &self,
        name: &AgentName,
        (place, host): (&ClonePlace, &HostName),
    ) -> Result<(), TransferError> {
        let project = self.project(name, Path::new(&place.repository)).await?;
        let of = Arc::clone(&project);
        let known = offload(move || of.known()).await;
        let order = Order::Collect(WorkThere { name: name.to_string(), known });
        let order = (order_id(&new_id(&self.by)), order);
        let within = (&*self.clock, SENT_WITHIN);
        let (answer, given) = give_and_keep(&self.dir, host, order, within).await?;
        let OrderAnswer::Collected { saved, bundle_bytes: bytes } = answer else {
            return Err(answer.into());
        };
        let bundle = bytes.map(|_| given.bundle());
        let wip = saved.wip.clone();
        offload(move || project.import(&saved, bundle.as_deref())).await?;
        drop(given);
        tracing::info!(%name, %host, bytes, wip, "the work of a teammate on another host is here");
        Ok(())
    }

    /// Lets the other host remove a clone whose work is saved, and brings the work here. Returns a text for the person.
    pub(crate) async fn drop_clone(
        &self,
        name: &AgentName,
        (place, host): (&ClonePlace, &HostName),
    ) -> Result<String, TransferError> {
        let order = Order::Drop(WorkThere { name: name.to_string(), known: Vec::new() });
        let order = (order_id(&new_id(&self.by)), order);
        let within = (&*self.clock, DROPPED_WITHIN);
        let answer = give(&self.dir, host, order, within).await?;
        let OrderAnswer::Dropped { text } = answer else { return Err(answer.into()) };
        let collected = self.collect(name, (place, host)).await;
        collected.map_err(|why| TransferError::Dropped(Box::new(why)))?;
        self.forget(name).await?;
        Ok(text)
    }

    /// Forgets the clone of a name on another host.
    pub(crate) async fn forget(&self, name: &AgentName) -> Result<(), WorkError> {
        let (clones, name) = (self.clones.clone(), name.clone());
        offload(move || match clone::known(&clones, &name) {
            Some(place) if !place.is_here() => clone::forget(&clones, &name),
            Some(_) | None => Ok(()),
        })
        .await
    }

    /// Notes the clone of a name on another host.
    pub(super) async fn note(
        &self,
        name: &AgentName,
        place: ClonePlace,
    ) -> Result<(), TransferError> {
        let (clones, name) = (self.clones.clone(), name.clone());
        offload(move || match clone::known(&clones, &name) {
            Some(place) if place.is_here() => Err(TransferError::Here(name)),
            Some(_) | None => Ok(clone::note(&clones, &name, &place)?),
        })
        .await
    }
}
