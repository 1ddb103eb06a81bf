//! The orders of other hosts: each is carried out once, and answered.

use super::keys::ReceivedKeys;
use crate::app::context::host_limits;
use crate::bus::Bus;
use crate::os::spawn::spawn_local;
use crate::os::{Clock, SystemClock};
use crate::settings::host_limits::HostLimits;
use crate::store::asynchronous::offload;
use crate::store::relay::{
    open_orders, put_answer, read_order, remove_bundle, remove_old_orders, remove_order,
};
use crate::store::{Liveness, RoleMatch, StoreError, TeamDir, liveness, roster};
use crate::supervise::stop::StopOutcome;
use crate::supervise::stop_elsewhere::urgency_of;
use crate::supervise::supervisor::Supervisor;
use crate::tools::{CloneOf, SpawnOrder, find_by_alias};
use crate::wire::AgentName;
use crate::wire::carried::HostName;
use crate::wire::host_order::{
    HostOrder, Order, OrderAnswer, OrderId, OrderSide, SpawnThere, StopThere,
};
use crate::wire::roster::{Member, Roster, StartedBy};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// The age of an answer from which the order is not given again.
const ANSWERS_FOR: Duration = Duration::from_secs(600);

/// The supervisor of this host, with what it needs to carry out orders.
pub(super) struct HostSupervisor {
    pub(super) bus: Arc<Bus>,
    pub(super) supervisor: Rc<Supervisor>,
    /// The model of the settings of this host.
    pub(super) own_model: Option<String>,
    /// The keys that have come with orders.
    pub(super) keys: Rc<ReceivedKeys>,
    /// Held while a teammate is started.
    pub(super) spawning: Mutex<()>,
    /// Held while commits of the project are taken over.
    pub(super) preparing: Mutex<()>,
}

/// The time in which a lead that has just started is known on this host.
const LEAD_KNOWN_WITHIN: Duration = Duration::from_secs(5);

/// The pause between two looks whether it is.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The orders under way.
pub(super) struct Orders {
    host: Rc<HostSupervisor>,
    open: Rc<RefCell<BTreeSet<OrderId>>>,
}

impl Orders {
    pub(super) fn new(host: Rc<HostSupervisor>) -> Self {
        Self { host, open: Rc::default() }
    }

    pub(super) fn are_open(&self) -> bool {
        !self.open.borrow().is_empty()
    }

    /// Begins with the orders that have come, each in a task of its own.
    pub(super) async fn begin_new(&self) {
        let team = self.host.bus.dir().clone();
        let look = move || {
            remove_old_orders(&team, OrderSide::In, SystemClock.now(), ANSWERS_FOR)?;
            open_orders(&team, OrderSide::In)
        };
        let ids = offload(look).await.unwrap_or_else(|why| {
            tracing::warn!(%why, "the orders of other hosts cannot be read");
            Vec::new()
        });
        for id in ids {
            if self.open.borrow_mut().insert(id.clone()) {
                let (host, open) = (Rc::clone(&self.host), Rc::clone(&self.open));
                spawn_local(async move {
                    if let Err(why) = host.carry_out(&id).await {
                        tracing::warn!(%id, %why, "an order of another host is not answered");
                    }
                    open.borrow_mut().remove(&id);
                });
            }
        }
    }
}

impl HostSupervisor {
    async fn carry_out(&self, id: &OrderId) -> Result<(), StoreError> {
        let (team, order_id) = (self.bus.dir().clone(), id.clone());
        let read = move || match read_order(&team, OrderSide::In, &order_id) {
            // The relay carries it out.
            Ok(Some(HostOrder { order: Order::Task(_), .. })) => Ok(None),
            // Nobody has asked for it for a while: the other host has given it up.
            Ok(Some(order)) if order.until < SystemClock.now() => {
                remove_order(&team, OrderSide::In, &order_id).map(|()| None)
            }
            Ok(order) => Ok(order.map(Ok)),
            Err(why) => Ok(Some(Err(why.to_string()))),
        };
        let (host, order) = match offload(read).await? {
            None => return Ok(()),
            Some(Ok(HostOrder { host, order, .. })) => (host, order),
            Some(Err(why)) => {
                let (team, id) = (self.bus.dir().clone(), id.clone());
                let answer = OrderAnswer::Refused { why };
                return offload(move || put_answer(&team, OrderSide::In, &id, &answer)).await;
            }
        };
        let answer = match order {
            Order::Spawn(spawn) => {
                tracing::info!(%id, %host, name = spawn.name, "another host orders a teammate");
                self.spawn(&host, id, *spawn).await
            }
            Order::Stop(stop) => {
                tracing::info!(%id, %host, name = stop.name, "another host orders a stop");
                self.stop(stop).await
            }
            Order::Prepare(wanted) => {
                let bundle = wanted.bundle_bytes.map(|_| self.bundle(id));
                let bytes = wanted.bundle_bytes;
                tracing::info!(%id, %host, bytes, "another host sends commits");
                match self.check_giver(&host).await {
                    Ok(()) => {
                        let _alone = self.preparing.lock().await;
                        self.supervisor.prepare_project(wanted, bundle).await
                    }
                    Err(why) => Err(why),
                }
            }
            Order::Collect(work) => match AgentName::member(&work.name) {
                Ok(name) => self.supervisor.send_work(name, work.known, self.bundle(id)).await,
                Err(why) => Err(why.to_string()),
            },
            Order::Drop(work) => match AgentName::member(&work.name) {
                Ok(name) => self.supervisor.drop_clone_for(&host, name).await,
                Err(why) => Err(why.to_string()),
            },
            Order::Task(_) => return Ok(()),
        };
        let answer = answer.unwrap_or_else(|why| OrderAnswer::Refused { why });
        tracing::info!(%id, answer = answer.word(), "an order of another host is carried out");
        let (team, id) = (self.bus.dir().clone(), id.clone());
        offload(move || {
            put_answer(&team, OrderSide::In, &id, &answer)?;
            if answer.bundle_bytes().is_none() {
                remove_bundle(&team, OrderSide::In, &id)?;
            }
            Ok(())
        })
        .await
    }

    /// Returns the file with the bundle of an order, or of its answer.
    fn bundle(&self, id: &OrderId) -> PathBuf {
        self.bus.dir().relay_bundle(OrderSide::In, id)
    }

    async fn spawn(
        &self,
        from: &HostName,
        id: &OrderId,
        order: SpawnThere,
    ) -> Result<OrderAnswer, String> {
        self.check_giver(from).await?;
        let keys = self.keys.of_order(self.bus.dir(), id, &order.sent_keys).await?;
        let from = from.clone();
        let team = self.bus.dir().clone();
        let (role, has_file, giver) = (order.role.clone(), order.role_has_file, from.clone());
        offload(move || {
            // A role only restricts: without its file, the agent would be free of it.
            match team.find_role(&role, find_by_alias) {
                RoleMatch::FreeText if has_file => Err(format!(
                    "the role {role} has a file on {giver} and none on that host; copy it there, below .team/roles or the user's roles"
                )),
                RoleMatch::File(_) | RoleMatch::FreeText | RoleMatch::Unclear(_) => Ok(()),
            }
        })
        .await?;
        let name = AgentName::member(&order.name).map_err(|why| why.to_string())?;
        // The mode of one order is not that of another one.
        let _alone = self.spawning.lock().await;
        let (team, member) = (self.bus.dir().clone(), name.clone());
        let limits = offload(move || limits_for(&team, &member)).await?;
        let loosest = limits.mode.unwrap_or(order.mode_of_lead);
        self.supervisor.set_mode(order.mode_of_lead.min(loosest));
        let (access, known) = self.keys.access(&keys)?;
        self.supervisor.set_access_of(&name, access, known);
        self.supervisor.set_default_model(self.own_model.clone().or(order.model_of_lead));
        let (member, start) = (name.clone(), order.clone.clone());
        let spawn = SpawnOrder {
            name,
            role: order.role,
            prompt: order.prompt,
            message_id: order.message_id,
            model: order.model,
            mode: order.mode,
            isolation: order.isolation,
            host: None,
            clone_of: order.clone.map(|start| CloneOf { host: from.clone(), start }),
        };
        let text = self.supervisor.ops().spawn(spawn).await.map_err(|why| why.to_string())?;
        let has_start = move |roster: &Roster| {
            let work = roster.member(member.as_str())?.work.as_ref()?;
            Some(work.project_host == from.as_str() && work.base == start?.base)
        };
        let team = self.bus.dir().clone();
        let has_clone = offload(move || has_start(&*roster::read(&team).ok()?)).await;
        Ok(OrderAnswer::Spawned { text, has_clone: has_clone.unwrap_or_default() })
    }

    /// Checks that an order is of the host of the lead. A lead that has just started is known here after a moment.
    async fn check_giver(&self, from: &HostName) -> Result<(), String> {
        let until = tokio::time::Instant::now() + LEAD_KNOWN_WITHIN;
        loop {
            let (team, giver) = (self.bus.dir().clone(), from.clone());
            let checked = offload(move || is_host_of_lead(&team, &giver)).await?;
            if checked {
                return Ok(());
            }
            if tokio::time::Instant::now() > until {
                return Err(format!("{from} is not the host of the lead, as that host knows it"));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn stop(&self, order: StopThere) -> Result<OrderAnswer, String> {
        let name = AgentName::member(&order.name).map_err(|why| why.to_string())?;
        let by = AgentName::mailbox(&order.by).unwrap_or_else(|_| AgentName::user());
        let (bus, member, incarnation) =
            (Arc::clone(&self.bus), name.clone(), order.incarnation.clone());
        let is_it = offload(move || is_incarnation(bus.dir(), &member, &incarnation)).await?;
        if !is_it {
            return Ok(OrderAnswer::Stopped { rung: None, refusal: None });
        }
        let why = (&by, order.reason.as_str(), order.cause);
        let outcome = self.supervisor.stop_for_host(name, why, urgency_of(order.first)).await;
        outcome.map(StopOutcome::into_answer).ok_or_else(|| "nothing was stopped".into())
    }
}

/// Returns the limits of this host, if they let one more teammate of this name work here.
fn limits_for(team: &TeamDir, name: &AgentName) -> Result<HostLimits, String> {
    let limits = host_limits().map_err(|why| format!("its limits cannot be read: {why}"))?;
    limits.check_folder(team.root().parent().unwrap_or_else(|| team.root()))?;
    let Some(most) = limits.max_members else { return Ok(limits) };
    let roster = roster::read(team).map_err(|why| why.to_string())?;
    let is_ordered = |entry: &Member| {
        entry.started_by == StartedBy::Lead && entry.host.is_none() && entry.name != name.as_str()
    };
    let others = roster.members.iter().filter(|entry| is_ordered(entry));
    let names = others.filter_map(|entry| AgentName::member(&entry.name).ok());
    let living = names.filter(|name| {
        // One whose life is unknown counts.
        !matches!(liveness::probe(team, name), Ok(Liveness::Dead))
    });
    if living.count() >= most {
        return Err(format!("it takes at most {most} teammates of other hosts (max_members)"));
    }
    Ok(limits)
}

/// Whether a member is, or was last, this incarnation.
///
/// # Errors
/// In words: another incarnation runs by now, or it is not known.
fn is_incarnation(team: &TeamDir, name: &AgentName, incarnation: &str) -> Result<bool, String> {
    match liveness::probe(team, name).map_err(|why| why.to_string())? {
        Liveness::Alive(Some(record)) if record.incarnation != incarnation => {
            Err(format!("{name} was started again there meanwhile; try again"))
        }
        Liveness::Alive(_) => Ok(true),
        Liveness::Dead => {
            let roster = roster::read(team).map_err(|why| why.to_string())?;
            let entry = roster.member(name.as_str());
            Ok(entry.is_some_and(|entry| entry.incarnation == incarnation))
        }
    }
}

/// Whether a host is that of the lead, which is alive.
///
/// # Errors
/// In words: the lead is on this host, or the roster cannot be read.
fn is_host_of_lead(team: &TeamDir, host: &HostName) -> Result<bool, String> {
    if has_own_lead(team) {
        return Err("a lead runs on that host itself".into());
    }
    let roster = roster::read(team).map_err(|why| why.to_string())?;
    let home = roster.home_of(AgentName::lead().as_str());
    Ok(home.is_some_and(|home| home.is_alive && home.host == host.as_str()))
}

/// Whether a lead runs on this host: it supervises its teammates itself.
pub(super) fn has_own_lead(team: &TeamDir) -> bool {
    match liveness::probe(team, &AgentName::lead()) {
        Ok(Liveness::Alive(record)) => record.is_none_or(|record| record.host.is_empty()),
        Ok(Liveness::Dead) => false,
        // Its teammates are not taken for left ones on a guess.
        Err(_) => true,
    }
}
