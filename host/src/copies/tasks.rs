//! The shared tasks of the lead's host, of which every other host has a copy: agents read the list there as on one host.

use super::fetch::{self, CopyFailure};
use crate::carrier::Carrier;
use crate::offload::offload;
use agent_team::store::TeamDir;
use agent_team::store::relay::copied_task;
use agent_team::store::roster::{KnownLeadPlace, LeadPlace};
use agent_team::store::tasks::{CopiedTask, copy_list, note_own_list};
use agent_team::wire::carried::HostName;
use agent_team::wire::host_copy::{CopyPart, CopySelection, ListedFile};
use agent_team::wire::task::TaskId;
use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::time::Duration;
use tokio::sync::mpsc;

/// The pause before a list is asked for again that could not be copied.
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(500);

/// The most bytes of a task; the file of one that is longer is no task.
const MOST_BYTES: u64 = 2 * 1024 * 1024;

/// The version of the list of a host, as its signs of life tell it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListVersion {
    pub(crate) host: HostName,
    pub(crate) version: String,
}

/// The task that copies the list of the lead's host.
pub(crate) struct TaskListCopies {
    pub(crate) carrier: Carrier,
    pub(crate) dir: TeamDir,
}

/// The list that was copied last.
struct CopiedList {
    of: ListVersion,
    files: BTreeMap<TaskId, ListedFile>,
}

impl TaskListCopies {
    /// Copies the list of the lead's host whenever a sign of life tells of another version of it, until the channel is closed.
    pub(crate) async fn run(self, mut told: mpsc::UnboundedReceiver<ListVersion>) {
        let mut copied: Option<CopiedList> = None;
        // Whether it is noted that the list is that of this host.
        let mut is_own = false;
        let mut lead = KnownLeadPlace::of(self.dir.clone());
        // The last word of each host.
        let mut versions = BTreeMap::new();
        while let Some(first) = told.recv().await {
            let others = iter::from_fn(|| told.try_recv().ok());
            versions.extend(iter::once(first).chain(others).map(|it| (it.host, it.version)));
            let (known, place) = offload(move || {
                let place = lead.current();
                (lead, place)
            })
            .await;
            lead = known;
            let host = match place {
                Ok(LeadPlace::On(host)) => HostName::parse(&host).ok(),
                Ok(LeadPlace::Here) => {
                    if copied.take().is_some() || !is_own {
                        self.note_own().await;
                        is_own = true;
                    }
                    None
                }
                Ok(LeadPlace::Nowhere) | Err(_) => None,
            };
            let newest = host.and_then(|host| {
                let version = versions.get(&host)?.clone();
                Some(ListVersion { host, version })
            });
            let Some(newest) =
                newest.filter(|newest| copied.as_ref().is_none_or(|copied| copied.of != *newest))
            else {
                continue;
            };
            is_own = false;
            match self.copy(&newest, copied.take()).await {
                Ok(list) => copied = Some(list),
                Err(why) => {
                    // The next sign of life tells of it again.
                    tracing::info!(host = %newest.host, %why, "the tasks of the lead's host are not copied");
                    tokio::time::sleep(TRY_AGAIN_AFTER).await;
                }
            }
        }
    }

    async fn note_own(&self) {
        let dir = self.dir.clone();
        if let Err(why) = offload(move || note_own_list(&dir)).await {
            tracing::warn!(%why, "it is not noted that the tasks are those of this host");
        }
    }

    async fn copy(
        &self,
        of: &ListVersion,
        before: Option<CopiedList>,
    ) -> Result<CopiedList, CopyFailure> {
        let selection = CopySelection { parts: vec![CopyPart::Tasks], agents: Vec::new() };
        let listed = fetch::files(&self.carrier, &of.host, &selection).await?;
        let files = listed.into_iter().filter_map(|file| Some((copied_task(&file.path)?, file)));
        let files: BTreeMap<TaskId, ListedFile> =
            files.filter(|(_, file)| file.bytes <= MOST_BYTES).collect();
        let before = before.filter(|before| before.of.host == of.host);
        let known = before.map(|before| before.files).unwrap_or_default();
        let mut changed = Vec::new();
        for (id, file) in &files {
            if known.get(id) != Some(file) {
                let text = self.text(&of.host, file).await?;
                changed.push(CopiedTask { id: *id, text });
            }
        }
        let there: BTreeSet<TaskId> = files.keys().copied().collect();
        let (dir, host) = (self.dir.clone(), of.host.clone());
        let write = move || copy_list(&dir, &host, &there, &changed);
        let put_aside = offload(write).await.map_err(CopyFailure::from)?;
        if put_aside > 0 {
            let folder = self.dir.tasks_aside();
            tracing::warn!(put_aside, folder = %folder.display(), "tasks of this host that the lead's host does not have were put aside");
        }
        Ok(CopiedList { of: of.clone(), files })
    }

    /// Returns the content of a task's file.
    async fn text(&self, host: &HostName, file: &ListedFile) -> Result<Vec<u8>, CopyFailure> {
        let mut text: Vec<u8> = Vec::new();
        while (text.len() as u64) < file.bytes {
            let at = (&file.path, file.id.as_str());
            match fetch::part(&self.carrier, host, at, text.len() as u64).await? {
                Some(part) if !part.is_empty() => text.extend(part),
                // It was changed meanwhile: the list is asked for again.
                Some(_) | None => return Err(CopyFailure::Changed),
            }
        }
        Ok(text)
    }
}
