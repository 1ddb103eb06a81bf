//! The orders of other hosts about clones, as the host with the clones carries them out.

use super::roster_updates::write;
use super::supervisor::Supervisor;
use crate::store::asynchronous::offload;
use crate::store::{LifeLock, LifeRecord};
use crate::wire::AgentName;
use crate::wire::carried::HostName;
use crate::wire::host_order::{OrderAnswer, ProjectCommits, SavedCommits};
use crate::wire::isolation::ClonePlace;
use crate::work::mirror::Mirror;
use crate::work::remove::drop_clone;
use crate::work::save::Saver;
use std::path::PathBuf;

const NO_FOLDER: &str = "no clone can be made there: neither HOME nor XDG_STATE_HOME is set";

impl Supervisor {
    /// Prepares for a clone of the project of another host.
    ///
    /// # Errors
    /// In words: git is missing, or the commits cannot be kept.
    pub(crate) async fn prepare_project(
        &self,
        wanted: ProjectCommits,
        bundle: Option<PathBuf>,
    ) -> Result<OrderAnswer, String> {
        let clones = self.config.clones.folder.clone().ok_or(NO_FOLDER)?;
        let environment = self.config.environment.clone();
        let workspace = self.config.bus.dir().workspace().to_owned();
        let prepare = move || {
            Mirror::prepare(&clones, &environment, &wanted, (&workspace, bundle.as_deref()))
        };
        let lacking = offload(prepare).await.map_err(|why| why.to_string())?;
        Ok(lacking.map_or(OrderAnswer::Prepared, |known| OrderAnswer::Lacking { known }))
    }

    /// Writes the saved work of a teammate as a bundle.
    ///
    /// # Errors
    /// In words: the bundle cannot be written.
    pub(crate) async fn send_work(
        &self,
        name: AgentName,
        known: Vec<String>,
        bundle: PathBuf,
    ) -> Result<OrderAnswer, String> {
        let clones = self.config.clones.folder.clone().ok_or(NO_FOLDER)?;
        let environment = self.config.environment.clone();
        // The work of a process that has ended is saved while it is cleaned up.
        if !self.is_alive(&name).unwrap_or(true) {
            self.members.wait_reaped(std::slice::from_ref(&name)).await;
        }
        let send = move || match Mirror::open(&clones, &environment)? {
            Some(mirror) => mirror.send(&name, &known, &bundle),
            None => Ok((SavedCommits::default(), None)),
        };
        let (saved, bundle_bytes) = offload(send).await.map_err(|why| why.to_string())?;
        Ok(OrderAnswer::Collected { saved, bundle_bytes })
    }

    /// Removes the clone of a teammate that does not run, after its work was saved.
    ///
    /// # Errors
    /// In words: it runs, its project is not that of the host that orders this, or something in it is not saved.
    pub(crate) async fn drop_clone_for(
        &self,
        from: &HostName,
        name: AgentName,
    ) -> Result<OrderAnswer, String> {
        let Some(place) = self.known_clone(&name) else {
            let text = format!("The clone of {name} was removed there before.");
            return Ok(OrderAnswer::Dropped { text });
        };
        let ClonePlace { project_host, .. } = &place;
        if project_host != from.as_str() {
            return Err(format!("the clone of {name} there is not of a project on {from}"));
        }
        let (dir, setup) = (self.config.bus.dir().clone(), (self.config.clones.setup)(&place));
        let saver = Saver { name: name.clone(), place, setup };
        let workspace = dir.workspace().display().to_string();
        let removed = offload(move || {
            let life = LifeLock::take(&dir, &saver.name, LifeRecord::of_command());
            let life = life.map_err(|why| format!("{why}; stop {} first", saver.name))?;
            let removed = drop_clone(&saver).map_err(|why| why.to_string());
            drop(life);
            removed
        })
        .await?;
        tracing::info!(%name, "a clone is removed for another host");
        let owner = name.clone();
        let noted = write(&self.config.bus, move |roster| {
            if let Some(member) = roster.member_mut(owner.as_str()) {
                (member.work, member.cwd) = (None, workspace);
            }
        });
        noted.await.map_err(|why| why.to_string())?;
        Ok(OrderAnswer::Dropped { text: removed.in_words(&name) })
    }
}
