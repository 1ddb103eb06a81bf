//! Keeps an old question from being asked again by a server. Each question names a word that its addressee has given out a short time
//! ago, and a number that no other question has. A host that is asked with another word answers with the one to use, and does
//! nothing; a question that it has seen is nothing to it.
//!
//! ```text
//! question: WORD NUMBER\n and the body
//! answer:   \n and the body, or: again WORD\n
//! ```

use agent_team::wire::carried::HostName;
use bytes::Bytes;
use ring::rand::{SecureRandom, SystemRandom};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The time for which a word is given out. It is accepted for as long again.
const PERIOD: Duration = Duration::from_secs(300);

/// The most bytes of the line in front of a body.
const MOST_HEAD: usize = 100;

/// The digits of a number.
const NUMBER_DIGITS: usize = 32;

/// The questions after which another word is given out before its time: their numbers are kept in memory.
const MOST_SEEN: usize = 65_536;

const AGAIN: &str = "again ";

/// The words of this host and of others.
pub(super) struct Freshness(Mutex<Words>);

struct Words {
    current: Period,
    previous: Option<Period>,
    /// The words that other hosts have given out last.
    of_others: BTreeMap<HostName, String>,
}

struct Period {
    word: String,
    since: Instant,
    /// The numbers of the questions that have named the word.
    seen: BTreeSet<String>,
}

/// The state of a question that has come.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// It is a new one, with this body.
    Fresh(Bytes),
    /// Its host is to ask again, as this answer says.
    Again(Bytes),
    /// It has been here before.
    Repeated,
}

/// The answer of another host.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The answer to the question.
    Body(Bytes),
    /// The question is to be asked once more.
    Again,
}

impl Period {
    fn new() -> Self {
        Self { word: random(), since: Instant::now(), seen: BTreeSet::new() }
    }
}

impl Freshness {
    pub(super) fn new() -> Self {
        let words =
            Words { current: Period::new(), previous: None, of_others: BTreeMap::default() };
        Self(Mutex::new(words))
    }

    /// Makes a question to a host of its body.
    pub(super) fn question(&self, to: &HostName, body: &[u8]) -> Bytes {
        let words = self.lock();
        let word = words.of_others.get(to).map_or("-", String::as_str);
        [format!("{word} {}\n", random()).as_bytes(), body].concat().into()
    }

    /// Looks at a question of another host.
    pub(super) fn look(&self, question: &Bytes) -> Question {
        let mut words = self.lock();
        if words.current.since.elapsed() > PERIOD || words.current.seen.len() >= MOST_SEEN {
            let before = std::mem::replace(&mut words.current, Period::new());
            words.previous = Some(before);
        }
        let again = format!("{AGAIN}{}\n", words.current.word);
        let Words { current, previous, .. } = &mut *words;
        let Some((head, body)) = split(question) else { return Question::Again(again.into()) };
        let (word, number) = head.split_once(' ').unwrap_or((&head, ""));
        let known = [Some(current), previous.as_mut()].into_iter().flatten();
        let mut known = known.filter(|period| period.since.elapsed() < 2 * PERIOD);
        let named = known.find(|period| period.word == word);
        let Some(period) = named.filter(|_| number.len() == NUMBER_DIGITS) else {
            return Question::Again(again.into());
        };
        let is_new = period.seen.insert(number.to_owned());
        if is_new { Question::Fresh(body) } else { Question::Repeated }
    }

    /// Reads the answer of a host, and keeps the word that it gives out.
    pub(super) fn answer(&self, of: &HostName, answer: &Bytes) -> Option<Answer> {
        let (head, body) = split(answer)?;
        if head.is_empty() {
            return Some(Answer::Body(body));
        }
        let word = head.strip_prefix(AGAIN)?;
        self.lock().of_others.insert(of.clone(), word.to_owned());
        Some(Answer::Again)
    }

    fn lock(&self) -> MutexGuard<'_, Words> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes an answer of its body.
pub(super) fn answered(body: &[u8]) -> Bytes {
    [b"\n", body].concat().into()
}

/// Splits the first line off.
fn split(message: &Bytes) -> Option<(String, Bytes)> {
    let end = message.iter().take(MOST_HEAD).position(|byte| *byte == b'\n')?;
    let head = std::str::from_utf8(message.get(..end)?).ok()?.to_owned();
    Some((head, message.slice(end + 1..)))
}

/// Returns 32 random hexadecimal digits. Without randomness they would repeat, and no question would be taken.
fn random() -> String {
    let mut bytes = [0; 16];
    SystemRandom::new().fill(&mut bytes).unwrap_or_default();
    format!("{:032x}", u128::from_be_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str) -> HostName {
        HostName::parse(name).unwrap()
    }

    #[test]
    fn a_question_is_taken_once_and_only_with_a_word_of_late() {
        let (asker, asked) = (Freshness::new(), Freshness::new());
        let first = asker.question(&host("b"), b"how far?");
        let Question::Again(again) = asked.look(&first) else { panic!("it has no word") };
        assert_eq!(asker.answer(&host("b"), &again), Some(Answer::Again));
        let second = asker.question(&host("b"), b"how\nfar?");
        assert_eq!(asked.look(&second), Question::Fresh(b"how\nfar?"[..].into()));
        assert_eq!(asked.look(&second), Question::Repeated);
        // A next one of the same words is another one.
        let third = asker.question(&host("b"), b"how\nfar?");
        assert_eq!(asked.look(&third), Question::Fresh(b"how\nfar?"[..].into()));
        // After a restart of the host that is asked, and at another host, all are void.
        assert!(matches!(Freshness::new().look(&second), Question::Again(_)));
        let answer = answered(b"so far\n");
        assert_eq!(asker.answer(&host("b"), &answer), Some(Answer::Body(b"so far\n"[..].into())));
        for broken in ["", "no line", "other \n"] {
            assert_eq!(asker.answer(&host("b"), &Bytes::from(broken)), None, "{broken:?}");
            assert!(matches!(asked.look(&Bytes::from(broken)), Question::Again(_)), "{broken:?}");
        }
    }

    #[test]
    fn a_word_is_void_after_two_periods() {
        let (asker, asked) = (Freshness::new(), Freshness::new());
        let Question::Again(again) = asked.look(&asker.question(&host("b"), b"")) else { panic!() };
        asker.answer(&host("b"), &again).unwrap();
        let ask = || asked.look(&asker.question(&host("b"), b""));
        let age = |by: Duration| {
            let mut words = asked.lock();
            words.current.since = words.current.since.checked_sub(by).unwrap();
        };
        assert_eq!(ask(), Question::Fresh(Bytes::new()));
        age(PERIOD + Duration::from_secs(1));
        // The word before is taken still.
        assert_eq!(ask(), Question::Fresh(Bytes::new()));
        // After twice the period it is not, also if no question has come meanwhile.
        let mut words = asked.lock();
        let previous = words.previous.as_mut().unwrap();
        previous.since = previous.since.checked_sub(PERIOD).unwrap();
        drop(words);
        assert!(matches!(ask(), Question::Again(_)));
    }
}
