//! The mail of other hosts for members of this one: from frames into inboxes, each line once, in the order of its link.

use super::RelayError;
use super::attachments::{AttachmentOutcome, AwaitedAttachments, with_own_paths};
use super::placements::KnownPlacements;
use crate::bus::{Bus, BusError, CarriedLine, sync_carried};
use crate::store::inbox::{Priority, SendError, Stored};
use crate::store::relay::{Arrivals, HostIdentity, Link, LinkState, Range};
use crate::store::roster::{Cached, MemberStandings};
use crate::store::{Fsync, TeamDir, failpoint};
use crate::wire::AgentName;
use crate::wire::attachment::Attachment;
use crate::wire::carried::{
    Acknowledgement, Epoch, Frame, FrameLine, HostName, LinkProgress, ProgressQuestion,
    RELAY_PROTOCOL, Via,
};
use crate::wire::limits::MAX_LINE_BYTES;
use crate::wire::message::Message;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The most appended inboxes that wait for their sync.
const SYNCED_AT_ONCE: usize = 200;

/// The most bytes of one write to an inbox. A longer line is a write of its own.
const WRITE_BYTES: usize = 1024 * 1024;

/// The most bytes that the mark of an arrived line and its seal add to it.
const MARK_BYTES: usize = 512;

/// A frame as the carrier has brought it.
#[derive(Debug, Clone, Copy)]
pub struct InboundFrame<'a> {
    /// The host that published it, as the carrier says.
    pub from: &'a HostName,
    /// The serialized frame.
    pub body: &'a [u8],
}

/// The outcome for frames that were given together.
#[derive(Debug, Default)]
pub struct Arrived {
    /// The acknowledgements, each with the host that gets it.
    pub acknowledgements: Vec<(HostName, Acknowledgement)>,
    /// Whether each frame is to be brought again later: some of its lines could not be appended yet.
    pub later: Vec<bool>,
    /// Whether each frame has lines that wait for attachments.
    pub awaits_files: Vec<bool>,
    /// The number of lines that were appended.
    pub appended: u64,
    /// The attachments for which lines wait, each with the host that has it. They are named once.
    pub attachments: Vec<(HostName, Attachment)>,
}

/// The incoming side of a relay.
pub struct Inbound {
    dir: TeamDir,
    identity: HostIdentity,
    bus: Arc<Bus>,
    placements: KnownPlacements,
    arrivals: Arrivals,
    roster: Cached<MemberStandings>,
    /// The highest base that the lines of each link have had.
    bases: BTreeMap<Link, u64>,
    /// The links that wait for room, which was logged.
    held_up: BTreeSet<Link>,
    awaited: AwaitedAttachments,
}

/// The new lines of a link, in order.
struct NewLines {
    link: Link,
    to: Option<AgentName>,
    first: u64,
    lines: Vec<FrameLine>,
}

/// A line that is appended or refused.
struct Judged {
    seq: u64,
    verdict: Result<Accepted, String>,
}

struct Accepted {
    line: String,
    is_verified: bool,
    priority: Priority,
}

impl Inbound {
    /// Opens the incoming side of the relay of this host. Lines that an earlier process left in doubt are resolved.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn open(
        dir: TeamDir,
        identity: HostIdentity,
        bus: Arc<Bus>,
        placements: KnownPlacements,
    ) -> Result<Self, RelayError> {
        let arrivals = Arrivals::open(&dir)?;
        let roster = Cached::of(&dir);
        let (bases, held_up) = (BTreeMap::new(), BTreeSet::new());
        let awaited = AwaitedAttachments::default();
        Ok(Self { dir, identity, bus, placements, arrivals, roster, bases, held_up, awaited })
    }

    /// Appends the new lines of frames to the inboxes of this host. When this returns, acknowledged lines are durable.
    ///
    /// # Errors
    /// The record of arrived lines cannot be written, or a line may not be durable. Then this value is of no further use:
    /// open it again.
    pub fn deliver(&mut self, frames: &[InboundFrame<'_>]) -> Result<Arrived, RelayError> {
        let parsed: Vec<_> = frames.iter().map(|frame| parse(*frame)).collect();
        let mut arrived = Arrived::default();
        let mut touched = BTreeSet::new();
        let mut gaps = BTreeSet::new();
        let mut new = self.new_lines(&parsed, &mut touched, &mut gaps);
        // A recipient may end between the verdict and the append: then its other lines are judged once more.
        while !new.is_empty() {
            new = self.append(new, &mut arrived)?;
        }
        self.arrivals.compact_if_long()?;
        // A frame behind a gap is sent again with what is missing: kept, it would come again and again until then.
        let is_behind_gap =
            |frame: &Frame| frame.lines.iter().any(|line| gaps.contains(&link_of(frame, line)));
        let later = |frame: &Option<Frame>| {
            self.is_unfinished(frame.as_ref()) && !frame.as_ref().is_some_and(is_behind_gap)
        };
        arrived.later = parsed.iter().map(later).collect();
        let awaits_files = |frame: &Option<Frame>| {
            let awaits = |frame: &Frame| {
                frame.lines.iter().any(|line| self.awaited.holds_up(&link_of(frame, line)))
            };
            frame.as_ref().is_some_and(awaits)
        };
        arrived.awaits_files = parsed.iter().map(awaits_files).collect();
        arrived.acknowledgements = self.acknowledgements(&touched, &gaps);
        arrived.attachments = self.awaited.take_new();
        Ok(arrived)
    }

    /// Notes that an attachment has come, or that it will not come now. Returns what the sources of the lines that wait for it
    /// are told: to send them again.
    pub fn attachment_came(
        &mut self,
        (host, attachment): (&HostName, &Attachment),
        outcome: AttachmentOutcome,
    ) -> Vec<(HostName, Acknowledgement)> {
        let links = self.awaited.came((host, attachment), outcome);
        self.acknowledgements(&links, &links)
    }

    /// Returns the lines that are expected next, link by link. Lower numbers are copies; a higher one is a gap.
    fn new_lines(
        &mut self,
        frames: &[Option<Frame>],
        touched: &mut BTreeSet<Link>,
        gaps: &mut BTreeSet<Link>,
    ) -> Vec<NewLines> {
        let mut found: BTreeMap<Link, NewLines> = BTreeMap::new();
        for frame in frames.iter().flatten() {
            for line in &frame.lines {
                let link = link_of(frame, line);
                if touched.insert(link.clone())
                    || self.bases.get(&link).is_none_or(|known| *known < line.base)
                {
                    self.arrivals.note_base(&link, line.base);
                    self.bases.insert(link.clone(), line.base);
                }
                let state = self.arrivals.link(&link);
                let new = found.entry(link.clone()).or_insert_with(|| NewLines {
                    to: AgentName::mailbox(&link.to).ok(),
                    link: link.clone(),
                    first: state.next,
                    lines: Vec::new(),
                });
                if new.lines.is_empty() {
                    new.first = state.next;
                }
                let expected = new.first + new.lines.len() as u64;
                if line.seq == expected {
                    new.lines.push(line.clone());
                } else if line.seq > expected {
                    gaps.insert(link);
                }
            }
        }
        for new in found.values_mut() {
            let held = new.lines.iter().position(|line| self.must_wait(&new.link, line));
            new.lines.truncate(held.unwrap_or(new.lines.len()));
        }
        found.into_values().filter(|new| !new.lines.is_empty()).collect()
    }

    /// Whether a line cannot be appended yet: its attachments come first.
    fn must_wait(&mut self, link: &Link, line: &FrameLine) -> bool {
        self.is_place_unknown(link, line) || self.awaits_files(link, line)
    }

    /// Whether a line waits for attachments. One that is refused does not, and nothing is fetched for it.
    fn awaits_files(&mut self, link: &Link, line: &FrameLine) -> bool {
        // A line of this host has its files here, or nowhere.
        if link.host == self.identity.host {
            return false;
        }
        let lacking = self.awaited.lacking(&self.dir, link, line.line.get());
        let to = AgentName::mailbox(&link.to);
        let (false, Ok(to)) = (lacking.is_empty(), to) else { return false };
        match self.judge_line(link, &to, line) {
            Ok(Err(_refused)) => return false,
            Ok(Ok(_)) => {}
            Err(why) => tracing::warn!(%why, "a line with attachments cannot be judged yet"),
        }
        for attachment in lacking {
            self.awaited.wait(link, attachment);
        }
        true
    }

    /// Whether a line that says whence it came there can be judged only once the place of its recipient is known.
    fn is_place_unknown(&self, link: &Link, line: &FrameLine) -> bool {
        let has_origin = |text: &str| {
            let object: Option<Map<String, Value>> =
                text.contains(r#""via""#).then(|| serde_json::from_str(text).ok())?;
            Via::of(&object?)
        };
        let is_here =
            || self.placements.place_of(&link.to).is_some_and(|it| it.host == self.identity.host);
        has_origin(line.line.get()).is_some() && !self.may_bring(link) && !is_here()
    }

    /// Whether the host of a link may bring mail that its recipient has not read before it moved. Any other host would write
    /// in the name of a third one.
    fn may_bring(&self, link: &Link) -> bool {
        link.host == self.identity.host || self.placements.was_placed_on(&link.to, &link.host)
    }

    /// Appends lines under one intent. Returns the lines that are to be judged again.
    fn append(
        &mut self,
        new: Vec<NewLines>,
        arrived: &mut Arrived,
    ) -> Result<Vec<NewLines>, RelayError> {
        let mut judged = Vec::new();
        for lines in &new {
            let verdicts = self.judge(lines)?;
            judged.push(verdicts);
        }
        let ranges = new.iter().zip(&judged).map(|(lines, verdicts)| range_of(lines, verdicts));
        self.arrivals.intend(ranges.collect())?;
        let (mut next, mut again) = (Vec::new(), Vec::new());
        let mut unsynced = Vec::new();
        for (lines, verdicts) in new.into_iter().zip(&judged) {
            let end = self.append_link(&lines, verdicts, arrived, &mut unsynced);
            if end.next > lines.first {
                self.awaited.appended(&lines.link);
            }
            next.push(end.next);
            match end.why {
                None => drop(self.held_up.remove(&lines.link)),
                Some(Obstacle::Ended) => again.extend(lines.from(end.next)),
                Some(Obstacle::Full(why)) => {
                    if self.held_up.insert(lines.link.clone()) {
                        tracing::info!(to = lines.link.to, why, "mail of another host waits");
                    }
                }
            }
            // Each has a descriptor.
            if unsynced.len() >= SYNCED_AT_ONCE {
                sync_carried(std::mem::take(&mut unsynced))?;
            }
        }
        // After an error, which of the lines stand in the inboxes is in doubt.
        sync_carried(unsynced)?;
        self.arrivals.done(&next, Fsync::Never)?;
        Ok(again)
    }

    fn judge(&mut self, new: &NewLines) -> Result<Vec<Judged>, RelayError> {
        let mut judged = Vec::new();
        for line in &new.lines {
            let verdict = match &new.to {
                None => Err(format!("{:?} is not a name", new.link.to)),
                Some(to) => self.judge_line(&new.link, to, line)?,
            };
            judged.push(Judged { seq: line.seq, verdict });
        }
        Ok(judged)
    }

    fn judge_line(
        &mut self,
        link: &Link,
        to: &AgentName,
        line: &FrameLine,
    ) -> Result<Result<Accepted, String>, RelayError> {
        let text = line.line.get();
        let object: Map<String, Value> = match serde_json::from_str(text) {
            Ok(object) => object,
            Err(why) => return Ok(Err(format!("cannot get a line that is no message: {why}"))),
        };
        let message = match Message::read(&object) {
            Ok(message) => message,
            Err(why) => return Ok(Err(format!("cannot get a line that is no message: {why}"))),
        };
        let text = with_own_paths(&self.dir, &object, text)?;
        let longest = self.bus.inbox_bytes().min(MAX_LINE_BYTES as u64);
        if (text.len() + MARK_BYTES) as u64 > longest {
            return Ok(Err(format!("cannot get a line of {} bytes from another host", text.len())));
        }
        // Mail that its recipient has not read before it moved comes from its host before, and says whence it came there.
        let via = Via::of(&object).filter(|_| self.may_bring(link));
        let origin = via.map_or_else(|| link.host.clone(), Via::origin);
        if let Some(why) = self.refuses_sender(&message.from, line.term, &origin, &link.host)? {
            return Ok(Err(why));
        }
        let priority = if message.body.is_control() { Priority::Control } else { Priority::Data };
        if let Some(why) = self.bus.refuses_carried(to, priority)? {
            return Ok(Err(why));
        }
        let is_verified = line.verified && self.is_vouched_for(&message.from, &origin, &link.host);
        let Link { host, epoch, .. } = link.clone();
        let via = Via { host, epoch, seq: line.seq, term: line.term, before: None };
        let line_text = via.mark(&text)?;
        Ok(Ok(Accepted { line: line_text, is_verified, priority }))
    }

    /// Returns the reason for which a line of this sender that was written on `origin` is refused, if there is one.
    fn refuses_sender(
        &mut self,
        from: &str,
        term: u64,
        origin: &HostName,
        brought_by: &HostName,
    ) -> Result<Option<String>, RelayError> {
        if let Some(newest) = self.placements.newer_term(from, term, origin) {
            let why = format!(
                "gets no mail written by a {from} that was replaced (term {term} of {newest})"
            );
            return Ok(Some(why));
        }
        if from == AgentName::lead().as_str() && !self.placements.may_lead(origin) {
            return Ok(Some(format!(
                "gets mail of {from} only from a host that may have the lead"
            )));
        }
        let Some(home) = self.home_of(from)? else { return Ok(None) };
        let is_home = [origin, brought_by].contains(&&home)
            // The rosters of two hosts may name it for a moment.
            || self.placements.place_of(from).is_some_and(|place| place.host == *origin);
        Ok((!is_home).then(|| format!("gets mail of {from} only from {home}, its host")))
    }

    /// Whether the host of a line may say that it has verified the sender. For the person and the lead, whose words are obeyed, only
    /// a host that may have the lead does, and not by way of another one.
    fn is_vouched_for(&self, from: &str, origin: &HostName, brought_by: &HostName) -> bool {
        let is_agent = AgentName::member(from).is_ok();
        is_agent
            || *brought_by == self.identity.host
            || (origin == brought_by && self.placements.may_lead(origin))
    }

    /// Returns the host of a sender; `None` if it is no member, so that it may write from every host.
    fn home_of(&mut self, from: &str) -> Result<Option<HostName>, RelayError> {
        if from == AgentName::user().as_str() {
            return Ok(None);
        }
        let roster = self.roster.current(&self.dir)?;
        let host = roster.place_elsewhere(from).and_then(|(host, _)| HostName::parse(host).ok());
        Ok(roster.is_known(from).then(|| host.unwrap_or_else(|| self.identity.host.clone())))
    }

    /// Appends the lines of one link, several in one write. They are not durable yet.
    fn append_link(
        &self,
        new: &NewLines,
        judged: &[Judged],
        arrived: &mut Arrived,
        unsynced: &mut Vec<Stored>,
    ) -> LinkEnd {
        let mut next = new.first;
        let mut rest = judged;
        let mut most = usize::MAX;
        while let Some(first) = rest.first() {
            let count = match &first.verdict {
                Err(_) => 1,
                Ok(accepted) => run_length(rest, accepted.priority).min(most),
            };
            let (run, after) = rest.split_at(count);
            let lines: Vec<_> = run.iter().filter_map(carried).collect();
            if let (Some(to), false) = (&new.to, lines.is_empty()) {
                match self.bus.write_carried(&AgentName::system(), to, &lines) {
                    Ok(stored) => {
                        unsynced.extend(stored);
                        failpoint::hit("arrivals.appended");
                        arrived.appended += lines.len() as u64;
                    }
                    Err(BusError::Unreachable { .. }) => {
                        return LinkEnd { next, why: Some(Obstacle::Ended) };
                    }
                    // There may be room for some of them.
                    Err(BusError::Send(SendError::Full { .. })) if count > 1 => {
                        most = count / 2;
                        continue;
                    }
                    Err(why) => {
                        return LinkEnd { next, why: Some(Obstacle::Full(why.to_string())) };
                    }
                }
            }
            next = run.last().map_or(next, |last| last.seq + 1);
            rest = after;
        }
        LinkEnd { next, why: None }
    }

    /// Whether lines of a frame are still to be appended.
    fn is_unfinished(&self, frame: Option<&Frame>) -> bool {
        frame.is_some_and(|frame| {
            frame
                .lines
                .iter()
                .any(|line| self.arrivals.link(&link_of(frame, line)).next <= line.seq)
        })
    }

    fn acknowledgements(
        &self,
        touched: &BTreeSet<Link>,
        gaps: &BTreeSet<Link>,
    ) -> Vec<(HostName, Acknowledgement)> {
        let mut of_relays: BTreeMap<(HostName, Epoch), Vec<LinkProgress>> = BTreeMap::new();
        for link in touched {
            let progress = progress(link, self.arrivals.link(link), gaps.contains(link));
            let relay = (link.host.clone(), link.epoch.clone());
            of_relays.entry(relay).or_default().push(progress);
        }
        let acknowledge = |((host, epoch), links): ((HostName, Epoch), Vec<LinkProgress>)| {
            (host, Acknowledgement { v: RELAY_PROTOCOL, epoch, links, pending: None })
        };
        of_relays.into_iter().map(acknowledge).collect()
    }

    /// Answers the question of a relay for the progress of its links; `pending` is the number of messages that the carrier
    /// still has for this host.
    pub fn answer(
        &self,
        host: &HostName,
        question: &ProgressQuestion,
        pending: Option<u64>,
    ) -> Acknowledgement {
        let ProgressQuestion { epoch, .. } = question;
        let links = self.arrivals.links_of(host, epoch);
        let links = links.map(|(link, state)| progress(link, state.clone(), false)).collect();
        Acknowledgement { v: RELAY_PROTOCOL, epoch: epoch.clone(), links, pending }
    }
}

impl NewLines {
    /// Returns the lines from a number on; `None` if there is none.
    fn from(self, first: u64) -> Option<Self> {
        let lines: Vec<_> = self.lines.into_iter().filter(|line| line.seq >= first).collect();
        (!lines.is_empty()).then_some(Self { first, lines, ..self })
    }
}

struct LinkEnd {
    next: u64,
    why: Option<Obstacle>,
}

/// The reason for which lines were not appended.
enum Obstacle {
    /// The recipient has ended meanwhile.
    Ended,
    /// The inbox is full, or cannot be written now.
    Full(String),
}

/// Parses a frame; `None` if it is none, or names another host than the carrier does.
fn parse(frame: InboundFrame<'_>) -> Option<Frame> {
    match Frame::parse(frame.body) {
        Ok(parsed) if parsed.head.src == *frame.from => Some(parsed),
        Ok(parsed) => {
            tracing::warn!(from = %frame.from, src = %parsed.head.src, "a frame in the name of another host");
            None
        }
        Err(why) => {
            tracing::warn!(from = %frame.from, %why, "what came is no frame");
            None
        }
    }
}

fn link_of(frame: &Frame, line: &FrameLine) -> Link {
    let (host, epoch) = (frame.head.src.clone(), frame.head.epoch.clone());
    Link { host, epoch, to: line.to.clone() }
}

fn range_of(new: &NewLines, judged: &[Judged]) -> Range {
    let refused = judged.iter().filter_map(|line| {
        let why = line.verdict.as_ref().err()?;
        Some((line.seq, why.clone()))
    });
    let last = new.first + new.lines.len().saturating_sub(1) as u64;
    Range { link: new.link.clone(), first: new.first, last, refused: refused.collect() }
}

/// Returns the number of accepted lines that are appended in one write.
fn run_length(judged: &[Judged], priority: Priority) -> usize {
    let (mut count, mut bytes) = (0, 0);
    for line in judged {
        let Ok(accepted) = &line.verdict else { break };
        bytes += accepted.line.len() + MARK_BYTES;
        if accepted.priority != priority || (count > 0 && bytes > WRITE_BYTES) {
            break;
        }
        count += 1;
    }
    count
}

fn carried(line: &Judged) -> Option<CarriedLine<'_>> {
    let Accepted { line, is_verified, priority } = line.verdict.as_ref().ok()?;
    Some(CarriedLine { line, is_verified: *is_verified, priority: *priority })
}

fn progress(link: &Link, state: LinkState, again: bool) -> LinkProgress {
    LinkProgress { to: link.to.clone(), next: state.next, refused: state.refused, again }
}
