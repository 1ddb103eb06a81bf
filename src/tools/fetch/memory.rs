//! The memory of an agent between its calls: the rules of hosts, and the last page that was longer than one result.
//!
//! An agent is a process, and its calls run on the thread of its event loop. So this belongs to that thread, and nothing
//! is borrowed across a wait.

use super::page::Page;
use super::robots::Robots;
use crate::os::{Clock, SystemClock};
use crate::wire::limits::{PAGE_KEPT, ROBOTS_HOSTS, ROBOTS_KEPT};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Instant;

thread_local! {
    static MEMORY: RefCell<Memory> = RefCell::default();
}

#[derive(Debug, Default)]
struct Memory {
    /// By origin, the oldest ones first.
    robots: VecDeque<(String, Instant, Rc<Robots>)>,
    /// By the address that was asked for.
    page: Option<(String, Instant, Rc<Page>)>,
}

/// Returns the rules of an origin that were read a short time ago.
pub(super) fn robots_of(origin: &str) -> Option<Rc<Robots>> {
    let now = SystemClock.monotonic();
    MEMORY.with_borrow_mut(|memory| {
        memory.robots.retain(|(_, at, _)| now.saturating_duration_since(*at) < ROBOTS_KEPT);
        let found = memory.robots.iter().find(|(known, ..)| known == origin);
        found.map(|(_, _, robots)| Rc::clone(robots))
    })
}

pub(super) fn keep_robots(origin: String, robots: &Rc<Robots>) {
    MEMORY.with_borrow_mut(|memory| {
        memory.robots.retain(|(known, ..)| *known != origin);
        memory.robots.push_back((origin, SystemClock.monotonic(), Rc::clone(robots)));
        while memory.robots.len() > ROBOTS_HOSTS {
            memory.robots.pop_front();
        }
    });
}

/// Returns the last page, if it was fetched from this address a short time ago.
pub(super) fn page_of(url: &str) -> Option<Rc<Page>> {
    let now = SystemClock.monotonic();
    MEMORY.with_borrow_mut(|memory| {
        let is_new = |at: Instant| now.saturating_duration_since(at) < PAGE_KEPT;
        memory.page = memory.page.take().filter(|(_, at, _)| is_new(*at));
        let (known, _, page) = memory.page.as_ref()?;
        (known == url).then(|| Rc::clone(page))
    })
}

pub(super) fn keep_page(url: String, page: &Rc<Page>) {
    let kept = (url, SystemClock.monotonic(), Rc::clone(page));
    MEMORY.with_borrow_mut(|memory| memory.page = Some(kept));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_of_the_last_hosts_are_remembered() {
        let robots = Rc::new(Robots::parse("User-agent: *\nDisallow: /x"));
        for number in 0..=ROBOTS_HOSTS {
            keep_robots(format!("https://{number}.example"), &robots);
        }
        keep_robots("https://1.example".into(), &Rc::default());
        assert_eq!(robots_of("https://0.example"), None, "the oldest one is gone");
        assert_eq!(robots_of("https://1.example"), Some(Rc::default()), "the newest rules count");
        assert_eq!(robots_of(&format!("https://{ROBOTS_HOSTS}.example")), Some(robots));
        assert_eq!(robots_of("http://1.example"), None);
    }
}
