//! The clones of teammates: one is made before its teammate starts, and saved when the process has ended.

use super::members::MemberId;
use super::supervisor::Supervisor;
use crate::store::asynchronous::offload;
use crate::store::roster;
use crate::tools::{CloneOf, SpawnOrder, ToolError};
use crate::wire::AgentName;
use crate::wire::isolation::{ClonePlace, Isolation};
use crate::work::clone::{self, CloneOrder, CloneOrigin};
use crate::work::save::Saver;

/// The clone of a teammate that is about to start.
pub(super) struct CloneForStart {
    pub(super) place: ClonePlace,
    /// Whether no agent has worked in it.
    pub(super) is_new: bool,
}

/// Fails if a lead on another host has sent the start of a clone, and the one that is there has another start.
fn check_origin(
    name: &AgentName,
    place: &ClonePlace,
    wanted: Option<&CloneOf>,
) -> Result<(), ToolError> {
    let is_it =
        |of: &CloneOf| place.project_host == of.host.as_str() && place.base == of.start.base;
    if wanted.is_none_or(is_it) {
        return Ok(());
    }
    Err(ToolError::Reply(format!(
        "{name} has an older clone there, {}; choose another name, or ask the user to remove it on that host with \
         `team work drop {name}`",
        place.path
    )))
}

impl Supervisor {
    /// Returns the clone for an ordered teammate; `None` if it works in the workspace. `known` is the clone that the
    /// name has. Fails if a clone is needed and there can be none.
    pub(super) async fn clone_for(
        &self,
        order: &SpawnOrder,
        of_role: Option<Isolation>,
        known: Option<ClonePlace>,
    ) -> Result<Option<CloneForStart>, ToolError> {
        let (name, config) = (order.name.clone(), &self.config.clones);
        let needed = config.isolation.max(of_role.unwrap_or_default());
        if order.isolation.is_some_and(|wanted| wanted < needed) {
            return Err(ToolError::Reply(format!(
                "{name} must work in a clone: its role or the user's settings say so; leave isolation out"
            )));
        }
        if let Some(place) = self.clone_elsewhere(&name) {
            let ClonePlace { host, .. } = place;
            return Err(ToolError::Reply(format!(
                "{name} has a clone with its work on {host}; start it there (host {host}), or ask the user to give the \
                 clone up with `team work drop {name}`"
            )));
        }
        // A roster that was rebuilt or cleaned does not know the clone.
        if let Some(place) = known.or_else(|| self.known_clone(&name)) {
            if order.isolation == Some(Isolation::Shared) {
                return Err(ToolError::Reply(format!(
                    "{name} has a clone with its work, {}; leave isolation out, or ask the user to give the \
                     clone up with `team work drop {name}`",
                    place.path
                )));
            }
            clone::check(&name, &place).map_err(ToolError::reply)?;
            check_origin(&name, &place, order.clone_of.as_ref())?;
            return Ok(Some(CloneForStart { place, is_new: false }));
        }
        // A lead on another host sends its files for a clone.
        let usual = if order.clone_of.is_some() { Isolation::Clone } else { needed };
        if order.isolation.unwrap_or(usual) == Isolation::Shared {
            return Ok(None);
        }
        let Some(clones) = config.folder.clone() else {
            let why = "no clone can be made: neither HOME nor XDG_STATE_HOME is set; ask the user to set one";
            return Err(ToolError::reply(why));
        };
        let origin = match order.clone_of.clone() {
            Some(CloneOf { host, start }) => CloneOrigin::Mirror { host: host.to_string(), start },
            None => {
                let folder = self.config.bus.dir().workspace().to_owned();
                CloneOrigin::Workspace { folder, base: config.base }
            }
        };
        let order =
            CloneOrder { name, clones, origin, environment: self.config.environment.clone() };
        let made = offload(move || clone::create(&order)).await;
        let place = made.map_err(ToolError::reply)?;
        tracing::info!(path = place.path, base = place.base, "a clone was made");
        Ok(Some(CloneForStart { place, is_new: true }))
    }

    /// Returns the clone that was made for a name on this host, whatever the roster says.
    pub(super) fn known_clone(&self, name: &AgentName) -> Option<ClonePlace> {
        let clones = self.config.clones.folder.as_ref()?;
        clone::known(clones, name).filter(ClonePlace::is_here)
    }

    /// Returns the clone of a name on another host.
    pub(super) fn clone_elsewhere(&self, name: &AgentName) -> Option<ClonePlace> {
        let clones = self.config.clones.folder.as_ref()?;
        clone::known(clones, name).filter(|place| !place.is_here())
    }

    /// Removes the clone of a teammate that did not start.
    pub(super) async fn discard_clone(&self, name: &AgentName, clone: Option<CloneForStart>) {
        if let Some(CloneForStart { place, is_new: true }) = clone {
            let name = name.clone();
            offload(move || clone::discard(&name, &place)).await;
        }
    }

    /// Saves the work of a teammate whose process has ended, perhaps before it could do that itself.
    pub(super) async fn save_work(&self, id: &MemberId) {
        let Ok(roster) = roster::read(self.config.bus.dir()) else { return };
        let Some(place) = roster.member(id.name.as_str()).and_then(|it| it.work.clone()) else {
            return;
        };
        let name = id.name.clone();
        let setup = (self.config.clones.setup)(&place);
        let saver = Saver { name, place, setup };
        match offload(move || saver.save()).await {
            Ok(saved) => {
                tracing::info!(name = %id.name, snapshot = saved.snapshot, "the work is saved");
            }
            Err(why) => {
                tracing::warn!(name = %id.name, %why, "the work of an ended teammate is not saved");
            }
        }
    }
}
