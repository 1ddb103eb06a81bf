//! Keeps a [`Scene`] up to date: each look reads what the files have got since the one before.

use super::{Conversation, Letter, Scene, Standing, seats};
use crate::protocol::tasks::blockers;
use crate::store::tail::Tail;
use crate::store::tasks::TaskList;
use crate::store::transcript::{OpenQuestion, OpenQuestions, mail_of};
use crate::store::{Fsync, StoreError, TeamDir, peek, roster};
use crate::wire::message::Message;
use crate::wire::transcript::Line;
use crate::wire::{AgentName, Timestamp};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

/// How much of the end of a conversation is read for the mail in it.
const MAIL_WINDOW: u64 = 256 * 1024;

/// The same of one that is followed.
const FOLLOW_WINDOW: u64 = 1024 * 1024;

/// Lines of a followed conversation that are kept.
const FOLLOWED_LINES: usize = 4_000;

/// Watches a team without leaving a trace.
#[derive(Debug)]
pub(crate) struct Observer {
    team: TeamDir,
    roster: roster::Cached,
    posts: BTreeMap<AgentName, Post>,
    tasks: TaskList,
    /// When the folder of claims last changed.
    claims: Option<(i64, i64)>,
    followed: Option<(AgentName, Tail)>,
    scene: Scene,
}

/// What is known of one agent's mail.
#[derive(Debug)]
struct Post {
    inbox: Tail,
    /// Lines of the inbox file that is there now.
    waiting: usize,
    /// Lines of claims whose owner did not come to act on them.
    claimed: usize,
    transcript: Tail,
    questions: OpenQuestions,
}

impl Observer {
    /// Knows nothing yet.
    pub(crate) fn new(team: TeamDir) -> Self {
        Self {
            roster: roster::Cached::of(&team),
            posts: BTreeMap::new(),
            tasks: TaskList::of(&team, Fsync::Never),
            claims: None,
            followed: None,
            scene: Scene::default(),
            team,
        }
    }

    /// The team as of the last look.
    pub(crate) fn scene(&self) -> &Scene {
        &self.scene
    }

    /// Follows the conversation of `name` from now on, and nobody else's.
    pub(crate) fn follow(&mut self, name: &str) {
        if self.scene.conversation.name == name {
            return;
        }
        self.scene.conversation = Conversation { name: name.to_owned(), ..Conversation::default() };
        let known = AgentName::mailbox(name).ok();
        self.followed = known.map(|name| {
            let tail = Tail::ending(self.team.transcript(&name), FOLLOW_WINDOW);
            (name, tail)
        });
        if let Err(why) = self.read_on() {
            self.scene.trouble = Some(why.to_string());
        }
    }

    /// Looks at everything again; `true` when something is new. What cannot be read hides nothing else.
    pub(crate) fn look(&mut self) -> bool {
        let mut trouble = None;
        let news = [
            self.look_at_mail(&mut trouble),
            self.look_at_seats().unwrap_or_else(|why| note(&mut trouble, &why)),
            self.look_at_tasks().unwrap_or_else(|why| note(&mut trouble, &why)),
            self.read_on().unwrap_or_else(|why| note(&mut trouble, &why)),
        ];
        let is_changed = trouble != self.scene.trouble;
        self.scene.trouble = trouble;
        is_changed || news.contains(&true)
    }

    fn look_at_mail(&mut self, trouble: &mut Option<String>) -> bool {
        let claims = fs::symlink_metadata(self.team.claims()).ok();
        let claims = claims.map(|known| (known.mtime(), known.mtime_nsec()));
        let is_claimed = claims != self.claims;
        self.claims = claims;
        let is_first = self.posts.is_empty();
        let mut news = false;
        for name in self.names(trouble) {
            let post = self.posts.entry(name.clone());
            let post = post.or_insert_with(|| Post::of(&self.team, &name));
            if is_claimed {
                match peek::count_claimed(&self.team, &name) {
                    Ok(count) => post.claimed = count,
                    Err(why) => news |= note(trouble, &why),
                }
            }
            match post.read_new(&name) {
                Ok(new) => {
                    for letter in new {
                        news |= self.scene.letters.meet(letter);
                    }
                }
                Err(why) => news |= note(trouble, &why),
            }
        }
        if is_first {
            self.scene.letters.arrange();
        }
        let asked = self.posts.iter().flat_map(|(name, post)| {
            post.questions.list().iter().map(|asked| (name.to_string(), asked.clone()))
        });
        let requests: Vec<(String, OpenQuestion)> = asked.collect();
        news |= requests != self.scene.requests;
        self.scene.requests = requests;
        news
    }

    /// Who has mail.
    fn names(&mut self, trouble: &mut Option<String>) -> Vec<AgentName> {
        let mut names = vec![AgentName::lead(), AgentName::user()];
        match self.roster.current(&self.team) {
            Ok(roster) => names.extend(
                roster.members.iter().filter_map(|member| AgentName::member(&member.name).ok()),
            ),
            Err(why) => {
                note(trouble, &why);
            }
        }
        names
    }

    fn look_at_seats(&mut self) -> Result<bool, StoreError> {
        let roster = self.roster.current(&self.team)?;
        let posts = &self.posts;
        let unread =
            |name: &AgentName| posts.get(name).map_or(0, |post| post.waiting + post.claimed);
        let seats = seats(&self.team, roster, unread);
        let news = seats != self.scene.seats || roster.team_name != self.scene.team_name;
        self.scene.seats = seats;
        self.scene.team_name.clone_from(&roster.team_name);
        Ok(news)
    }

    fn look_at_tasks(&mut self) -> Result<bool, StoreError> {
        self.tasks.look()?;
        let board = self.tasks.board();
        let shown = self.scene.tasks.iter().map(|(task, _)| task);
        if board.values().eq(shown) {
            return Ok(false);
        }
        let waits_for = |task| blockers(board, task).into_iter().map(|(id, _)| id).collect();
        self.scene.tasks = board.values().map(|task| (task.clone(), waits_for(task))).collect();
        Ok(true)
    }

    /// What the followed conversation has got since.
    fn read_on(&mut self) -> Result<bool, StoreError> {
        let Some((_, tail)) = &mut self.followed else { return Ok(false) };
        let before = tail.file();
        let new = tail.read_new()?;
        let lines = &mut self.scene.conversation.lines;
        let is_another = before.is_some() && before != tail.file();
        if is_another {
            lines.clear();
        }
        let is_longer = !new.is_empty();
        lines.extend(new.iter().filter_map(|line| Line::read(line)));
        lines.drain(..lines.len().saturating_sub(FOLLOWED_LINES));
        Ok(is_another || is_longer)
    }
}

/// Keeps the first of several troubles. That alone is no news: the same one comes at each look.
fn note(trouble: &mut Option<String>, why: &StoreError) -> bool {
    trouble.get_or_insert_with(|| why.to_string());
    false
}

impl Post {
    fn of(team: &TeamDir, name: &AgentName) -> Self {
        Self {
            inbox: Tail::new(team.inbox(name)),
            waiting: 0,
            claimed: 0,
            transcript: Tail::ending(team.transcript(name), MAIL_WINDOW),
            questions: OpenQuestions::default(),
        }
    }

    /// Mail that came, waiting or taken in. The inbox is read first: what is taken in between is seen
    /// twice rather than never.
    fn read_new(&mut self, name: &AgentName) -> Result<Vec<Letter>, StoreError> {
        let (file, offset) = (self.inbox.file(), self.inbox.offset());
        let waiting = self.inbox.read_new()?;
        if file != self.inbox.file() || self.inbox.offset() < offset {
            self.waiting = 0;
        }
        self.waiting += waiting.iter().filter(|line| !line.trim_ascii().is_empty()).count();
        let waiting = waiting.iter().filter_map(|line| {
            let message = Message::read(&serde_json::from_slice(line).ok()?).ok()?;
            let at = message.timestamp.unwrap_or_default();
            Some(Letter { to: name.clone(), message, standing: Standing::Waiting, at })
        });
        let file = self.transcript.file();
        let taken = self.transcript.read_new()?;
        if file != self.transcript.file() {
            self.questions = OpenQuestions::default();
        }
        for line in &taken {
            self.questions.meet(line);
        }
        let taken = taken.iter().filter_map(|line| {
            let message = Message::read(&mail_of(line)?).ok()?;
            let at = taken_in_at(line).or(message.timestamp).unwrap_or_default();
            Some(Letter { to: name.clone(), message, standing: Standing::TakenIn, at })
        });
        Ok(waiting.chain(taken).collect())
    }
}

fn taken_in_at(line: &[u8]) -> Option<Timestamp> {
    let object: Value = serde_json::from_slice(line).ok()?;
    object.get("at")?.as_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Transcript;
    use crate::wire::message::Outcome;
    use crate::wire::transcript::Entry;
    use std::fs::OpenOptions;
    use std::io::Write;

    fn place() -> (tempfile::TempDir, TeamDir) {
        let folder = tempfile::tempdir().unwrap();
        let team = TeamDir::create(&folder.path().join(".team")).unwrap();
        (folder, team)
    }

    fn write_to_lead(team: &TeamDir, text: &str) {
        let inbox = team.inbox(&AgentName::lead());
        let mut inbox = OpenOptions::new().create(true).append(true).open(inbox).unwrap();
        writeln!(inbox, r#"{{"from":"user","content":"{text}","id":"{text}"}}"#).unwrap();
    }

    fn mail(team: &TeamDir) -> Vec<(String, Standing)> {
        let mut observer = Observer::new(team.clone());
        observer.look();
        let letters = observer.scene().letters.iter();
        letters.map(|letter| (letter.message.content.clone(), letter.standing)).collect()
    }

    fn line(entry: Entry) -> Line {
        Line { at: 5.0, entry }
    }

    #[test]
    fn mail_is_seen_where_it_waits_and_where_it_went() {
        let (_folder, team) = place();
        let mut observer = Observer::new(team.clone());
        observer.look();
        write_to_lead(&team, "first");
        assert!(observer.look());
        assert!(!observer.look(), "nothing has changed");
        let waiting = fs::read(team.inbox(&AgentName::lead())).unwrap();
        let message = serde_json::from_slice(&waiting).unwrap();
        let claim = team.claims().join("lead.000000000001-0000000a.taken");
        fs::rename(team.inbox(&AgentName::lead()), claim).unwrap();
        write_to_lead(&team, "second");
        let mut transcript = Transcript::open(&team, &AgentName::lead()).unwrap();
        let taken = Entry::Mail { claim: "000000000001-a".into(), offset: 0, message };
        transcript.append(&line(taken)).unwrap();
        assert!(observer.look());
        let seen: Vec<_> = observer.scene().letters.iter().collect();
        assert_eq!(seen.len(), 2);
        assert_eq!(seen[0].message.content, "first");
        assert_eq!(seen[0].standing, Standing::TakenIn);
        assert_eq!(seen[1].standing, Standing::Waiting);
        assert_eq!(mail(&team).len(), 2, "who comes later sees the same");
    }

    #[test]
    fn of_a_long_conversation_only_the_end_is_read() {
        let (_folder, team) = place();
        let mut transcript = Transcript::open(&team, &AgentName::lead()).unwrap();
        let note = |text: &str| line(Entry::Note { content: text.into() });
        for _ in 0..40 {
            transcript.append(&note(&"x".repeat(100_000))).unwrap();
        }
        transcript.append(&note("the end")).unwrap();
        let mut observer = Observer::new(team.clone());
        observer.look();
        observer.follow("lead");
        let lines = &observer.scene().conversation.lines;
        assert!((2..12).contains(&lines.len()), "{}", lines.len());
        assert_eq!(lines.back(), Some(&note("the end")));
        transcript
            .append(&line(Entry::TurnEnd { outcome: Outcome::Done, rounds: 1, report: None }))
            .unwrap();
        assert!(observer.look());
        fs::rename(team.transcript(&AgentName::lead()), team.archive().join("lead-000001.jsonl"))
            .unwrap();
        let mut transcript = Transcript::open(&team, &AgentName::lead()).unwrap();
        transcript.append(&note("a new one")).unwrap();
        assert!(observer.look());
        let lines = &observer.scene().conversation.lines;
        assert_eq!(lines.iter().collect::<Vec<_>>(), [&note("a new one")]);
    }

    #[test]
    fn what_cannot_be_read_is_told_for_as_long() {
        let (_folder, team) = place();
        let mut observer = Observer::new(team.clone());
        let path = team.transcript(&AgentName::lead());
        fs::create_dir(&path).unwrap();
        assert!(observer.look());
        assert!(observer.scene().trouble.is_some());
        assert!(!observer.look(), "the same trouble is told once");
        fs::remove_dir(&path).unwrap();
        write_to_lead(&team, "now");
        assert!(observer.look());
        assert!(observer.scene().trouble.is_none());
        assert_eq!(observer.scene().letters.len(), 1);
    }
}
