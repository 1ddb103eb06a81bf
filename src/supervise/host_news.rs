//! Tells the lead of other hosts: that one is away with its members, and that one was given up. Each is told once.

use super::supervisor::Supervisor;
use crate::os::spawn::spawn_blocking;
use crate::wire::WallTime;
use crate::wire::log_words;
use crate::wire::message::Body;
use crate::wire::roster::Member;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// The time for which a host is away before the lead is told. A connection that breaks is made again within seconds, and each
/// message costs a call of the model.
const TOLD_AFTER: Duration = Duration::from_secs(15);

/// The most members, or hosts, that a message names.
const MOST_NAMED: usize = 8;

/// The other hosts as the lead knows them.
#[derive(Debug, Default)]
pub(super) struct HostNews {
    /// The hosts of which the lead was told that they are away.
    away: BTreeSet<String>,
    /// The hosts that were given up at the last look; `None` before the first one, which tells of none.
    given_up: Option<BTreeSet<String>>,
}

/// A message for the lead.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct HostMessage {
    id: String,
    text: String,
}

impl HostNews {
    /// Returns what the lead is to be told now of the hosts of these members.
    pub(super) fn look(&mut self, members: &[Member], now: WallTime) -> Vec<HostMessage> {
        let mut hosts: BTreeMap<&str, Vec<&Member>> = BTreeMap::new();
        for member in members.iter().filter(|member| !member.status.is_over()) {
            if let Some(host) = &member.host {
                hosts.entry(host).or_default().push(member);
            }
        }
        let is_given_up = |members: &[&Member]| members.iter().any(|member| member.given_up);
        let given_up = hosts.iter().filter(|(_, members)| is_given_up(members));
        let given_up: BTreeSet<String> = given_up.map(|(host, _)| (*host).to_owned()).collect();
        let before = self.given_up.replace(given_up.clone()).unwrap_or_else(|| given_up.clone());
        self.away.retain(|host| hosts.contains_key(host.as_str()));

        let (mut messages, mut away) = (Vec::new(), Vec::new());
        for (host, members) in hosts {
            let since = members.iter().find_map(|member| member.away_since);
            if given_up.contains(host) {
                self.away.remove(host);
                if !before.contains(host) {
                    messages.push(given_up_message(host, &members, since.unwrap_or_default()));
                }
                continue;
            }
            match since {
                None => drop(self.away.remove(host)),
                Some(since) if now.since(since) < TOLD_AFTER => {}
                Some(since) => {
                    if self.away.insert(host.to_owned()) {
                        away.push((host, members, since));
                    }
                }
            }
        }
        messages.extend(away_message(&away));
        messages
    }
}

fn given_up_message(host: &str, members: &[&Member], since: WallTime) -> HostMessage {
    HostMessage {
        id: format!("system:given-up:{host}:{}", since.as_secs()),
        text: format!(
            "{host} was given up by the user. It had: {}. Their names are free: a teammate of that name may be started again here or \
             on another host, and gets the mail that waits. What they had read and not done, and their memory, are lost.",
            named(members.iter().map(|member| member.name.clone()))
        ),
    }
}

/// Returns one message for all hosts that are away at once: this host may have lost its own connection.
fn away_message(hosts: &[(&str, Vec<&Member>, WallTime)]) -> Option<HostMessage> {
    let (first, _, since) = hosts.first()?;
    let host = |(host, members, _): &(&str, Vec<&Member>, WallTime)| {
        format!("{host} ({})", named(members.iter().map(|member| member.name.clone())))
    };
    Some(HostMessage {
        id: format!("system:away:{first}:{}", since.as_secs()),
        text: format!(
            "Away, and not heard any more: {}. These teammates may still work, and mail for them waits until their host is back. Only the \
             user can say that a host is gone for good, for example: team host give-up {first}.",
            named(hosts.iter().map(host))
        ),
    })
}

/// Returns words in a list, at most [`MOST_NAMED`] of them.
fn named(words: impl ExactSizeIterator<Item = String>) -> String {
    let more = words.len().saturating_sub(MOST_NAMED);
    let some = words.take(MOST_NAMED).collect::<Vec<_>>().join(", ");
    if more == 0 { some } else { format!("{some} and {more} more") }
}

impl Supervisor {
    /// Tells the lead's model of other hosts.
    pub(super) async fn tell_of_hosts(&self, messages: Vec<HostMessage>) {
        for HostMessage { id, text } in messages {
            let bus = Arc::clone(&self.config.bus);
            let tell = move || bus.notify_lead(Body::text(), text, id);
            let told = spawn_blocking(tell).await;
            if !matches!(told, Ok(Ok(_))) {
                let why = log_words::work_done(&told);
                tracing::error!(why, "the lead could not be told of another host");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::roster::Status;

    fn member(name: &str, away_since: Option<f64>, given_up: bool) -> Member {
        Member {
            name: name.into(),
            status: Status::Idle,
            host: Some("gpu1".into()),
            away_since: away_since.map(WallTime::from_secs),
            given_up,
            ..Member::default()
        }
    }

    fn told(news: &mut HostNews, members: &[Member], now: f64) -> Vec<String> {
        let messages = news.look(members, WallTime::from_secs(now));
        messages.into_iter().map(|message| format!("{} {}", message.id, message.text)).collect()
    }

    #[test]
    fn a_host_that_is_away_for_some_time_is_told_once_for_each_absence() {
        let mut news = HostNews::default();
        let away =
            |since| [member("carol", Some(since), false), member("dave", Some(since), false)];
        assert!(told(&mut news, &away(100.0), 110.0).is_empty(), "it may be back soon");
        let first = told(&mut news, &away(100.0), 115.0);
        let text = "system:away:gpu1:100 Away, and not heard any more: gpu1 (carol, dave). ";
        assert!(first[0].starts_with(text), "{first:?}");
        // A relay that is started again sees a new absence.
        assert!(told(&mut news, &away(200.0), 300.0).is_empty());
        assert!(told(&mut news, &[member("carol", None, false)], 400.0).is_empty());
        assert_eq!(told(&mut news, &away(500.0), 600.0).len(), 1);
        assert!(told(&mut news, &[], 700.0).is_empty());
        assert!(news.away.is_empty());
    }

    #[test]
    fn hosts_that_are_away_at_once_are_told_in_one_message() {
        let other = Member { host: Some("gpu2".into()), ..member("erin", Some(7.0), false) };
        let first =
            told(&mut HostNews::default(), &[other, member("carol", Some(8.0), false)], 50.0);
        assert_eq!(first.len(), 1);
        assert!(first[0].contains(": gpu1 (carol), gpu2 (erin)."), "{first:?}");
    }

    #[test]
    fn a_member_that_has_ended_is_missed_by_nobody() {
        let mut news = HostNews::default();
        let over = Member { status: Status::Shutdown, ..member("carol", Some(1.0), false) };
        let here = Member { host: None, ..member("dave", None, false) };
        assert!(told(&mut news, &[over, here], 100.0).is_empty());
    }

    #[test]
    fn a_host_that_is_given_up_is_told_once_unless_it_was_before() {
        let given_up = [member("carol", Some(100.0), true)];
        assert!(told(&mut HostNews::default(), &given_up, 200.0).is_empty(), "it was before");
        let mut news = HostNews::default();
        assert!(told(&mut news, &[member("carol", Some(100.0), false)], 101.0).is_empty());
        let first = told(&mut news, &given_up, 102.0);
        assert!(first[0].starts_with("system:given-up:gpu1:100 gpu1 was given up"), "{first:?}");
        assert!(told(&mut news, &given_up, 200.0).is_empty());
    }

    #[test]
    fn a_message_names_some_members_of_many() {
        let many: Vec<_> = (0..11).map(|at| member(&format!("m{at}"), Some(1.0), false)).collect();
        let first = told(&mut HostNews::default(), &many, 100.0);
        assert!(first[0].contains("m0, m1, m2, m3, m4, m5, m6, m7 and 3 more)."), "{first:?}");
    }
}
