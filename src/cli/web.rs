//! `team web`: the team as a page on loopback.

use super::args::WebArgs;
use super::build_agent::block_on;
use super::context::{Context, make_whole};
use super::requests::{self, Answer};
use super::signal_stream::SignalStream;
use super::{out, send, stop};
use crate::bus::Bus;
use crate::error::{Exit, Failure};
use crate::os::signals::SignalEvent;
use crate::protocol::ladder::Urgency;
use crate::settings::Flags;
use crate::web::{Broadcaster, Control, Order, Outcome, Site};
use crate::wire::AgentName;
use crate::wire::message::Scope;
use crate::wire::roster::ExitCause;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

pub(super) fn run(context: &Context, args: &WebArgs) -> Result<Exit, Failure> {
    let team = context.seen_team()?;
    let prices = context.settings(&Flags::default())?.prices();
    let control: Option<Rc<dyn Control>> = if args.control {
        context.refuse_inside("web --control")?;
        Some(Rc::new(Steering { bus: context.bus(team.clone())? }))
    } else {
        None
    };
    block_on(async {
        let mut signals = SignalStream::begin()?;
        let hub = Rc::new(Broadcaster::of(&team, prices));
        let token = uuid::Uuid::new_v4().simple().to_string();
        let site = Site::open(args.port, token, Rc::clone(&hub), control).await;
        let site = site.map_err(|why| {
            let what = format!("the page cannot be served on port {}", args.port);
            let hint = "choose another port with --port, or leave it out to take a free one";
            Failure::new(Exit::Failure, what, why.to_string(), hint)
        })?;
        if !out::say(&site.url()) {
            return Ok(Exit::Failure);
        }
        out::complain("open this address in a browser of this computer; Ctrl-C ends the page");
        tokio::select! {
            () = hub.run() => Ok(Exit::Failure),
            () = site.serve() => Ok(Exit::Failure),
            signal = signals.next() => Ok(match signal {
                SignalEvent::Interrupt => Exit::Interrupted,
                SignalEvent::Terminate | SignalEvent::Hangup => Exit::Terminated,
            }),
        }
    })?
}

/// Orders from the page, carried out as the commands do.
struct Steering {
    bus: Arc<Bus>,
}

impl Control for Steering {
    fn carry_out(&self, order: Order) -> Pin<Box<dyn Future<Output = Outcome>>> {
        let bus = Arc::clone(&self.bus);
        Box::pin(async move {
            if let Err(failure) = make_whole(bus.dir()) {
                return failed(failure);
            }
            let done = match order {
                Order::Send { to, text } => deliver(bus, to, text).await,
                Order::Stop { name } => end(bus, &name).await,
                Order::Approve { id } => answer(&bus, &id, Answer::Approve(Scope::Once)).await,
                Order::Deny { id } => answer(&bus, &id, Answer::Deny).await,
            };
            match done {
                Ok(said) => Outcome::Done { said },
                Err(failure) => failed(failure),
            }
        })
    }
}

fn failed(Failure { what, why, hint, exit: _ }: Failure) -> Outcome {
    Outcome::Failed { what, why, hint }
}

async fn deliver(bus: Arc<Bus>, to: String, text: String) -> Result<String, Failure> {
    // It may wait for a lock and for the disk.
    let sent = tokio::task::spawn_blocking(move || {
        if to == "all" { send::to_all(&bus, &text) } else { send::to_one(&bus, &to, text) }
    });
    sent.await.map_err(|why| {
        Failure::new(Exit::Failure, "nothing is known of the message", why.to_string(), "try again")
    })?
}

async fn end(bus: Arc<Bus>, name: &str) -> Result<String, Failure> {
    let names: Vec<AgentName> = stop::named(bus.dir(), &[name.to_owned()])?;
    let departures = stop::end_members(bus, ExitCause::Stopped, Urgency::Polite, names).await;
    let lines: Vec<String> = departures.iter().map(stop::told).collect();
    Ok(lines.join("\n"))
}

async fn answer(bus: &Bus, id: &str, answer: Answer) -> Result<String, Failure> {
    requests::decide(bus, id, answer, None).await.map(str::to_owned)
}
