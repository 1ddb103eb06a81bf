//! The words that carry the grammar: synonyms of verbs, and words that can be no name.

/// Starts a teammate, whatever follows.
pub(super) const SPAWN: &[&str] = &[
    "spawn", "spawn off", "hire", "recruit", "spin up", "fire up", "bring in", "bring up", "boot",
    "boot up", "onboard", "enlist", "start", "start up", "launch",
];

/// Starts a teammate when a role or a noun for an agent shows that one is meant.
pub(super) const SPAWN_MAYBE: &[&str] = &[
    "create", "add", "make", "set up", "get", "introduce", "assign", "i need", "we need", "bring",
    "appoint", "deploy",
];

/// What an agent is called in general.
pub(super) const AGENT_NOUN: &[&str] = &[
    "teammate", "teammates", "team member", "team members", "member", "members", "agent", "agents",
    "worker", "workers", "colleague", "colleagues", "teammate agent", "process", "person",
];

/// Hands a piece of work or a text to somebody: the name follows.
pub(super) const HAND: &[&str] = &[
    "have", "let", "make", "get", "ask", "tell", "instruct", "order", "direct", "request", "remind",
    "want", "need", "command", "i want", "we want", "i need", "we need", "i would like", "i'd like",
    "we'd like", "assign", "urge", "task", "invite", "allow", "advise", "encourage", "delegate to",
];

/// Of these, the ones whose work follows without "to".
pub(super) const HAND_BARE: &[&str] = &["have", "let", "make"];

/// What somebody else should do: stands behind the name.
pub(super) const MODAL: &[&str] = &[
    "should", "must", "shall", "needs to", "need to", "has to", "have to", "ought to", "is to",
    "are to", "can", "could", "will", "may", "should be asked to", "should be told to",
    "must be told to", "is supposed to",
];

/// The same in the passive voice: a text follows.
pub(super) const TOLD: &[&str] = &[
    "should be told", "must be told", "should be asked", "must be asked", "should be informed",
    "must be informed", "should be reminded", "should know", "must know", "needs to know",
    "should be notified", "must be notified", "needs to be told", "has to be told",
    "should be instructed", "needs to be asked", "has to know", "is to be told",
];

/// Sends a text; a receiver follows or stands behind "to".
pub(super) const SEND: &[&str] = &[
    "send", "drop", "shoot", "mail", "email", "text", "pass", "forward", "deliver", "write", "give",
    "leave", "post", "say", "send over", "pass on", "relay",
];

/// Sends a text: the receiver follows.
pub(super) const MESSAGE: &[&str] = &[
    "message", "ping", "notify", "inform", "greet", "dm", "contact", "introduce yourself to",
    "reply to", "respond to", "answer", "report to", "report back to", "write to", "thank", "warn",
    "update",
];

/// What is sent.
pub(super) const MESSAGE_NOUN: &[&str] = &[
    "message", "messages", "note", "mail", "email", "dm", "line", "greeting", "greetings", "hello",
    "hi", "reply", "question", "reminder", "ping", "text", "word", "memo", "notice", "thanks",
    "text message",
];

/// What is sent when the work of the turn is meant.
pub(super) const OUTCOME_NOUN: &[&str] = &[
    "content", "contents", "result", "results", "output", "outcome", "findings", "finding",
    "report", "summary", "status report", "update", "status update", "answer", "status",
    "progress report",
];

/// Between a message and its text.
pub(super) const SAYING: &[&str] = &[
    "saying", "saying that", "that says", "that says that", "which says", "that reads", "reading",
    "with the text", "with the message", "with the content", "with the contents", "with the words",
    "with the following text", "with text", "with", "containing", "that contains", "to say",
    "to say that", "to inform him that", "stating", "stating that", "which reads", "that",
    "telling", "as follows", "and say", "with content",
];

/// Before an order inside a message.
pub(super) const ASKING: &[&str] = &[
    "asking", "telling", "that asks", "to ask", "instructing", "requesting", "ordering", "to tell",
];

/// Sends a text to everybody.
pub(super) const BROADCAST: &[&str] = &[
    "broadcast", "announce", "send a broadcast", "proclaim", "make a broadcast",
];

/// Ends a teammate.
pub(super) const SHUT_DOWN: &[&str] = &[
    "shut down", "shutdown", "stop", "dismiss", "terminate", "end", "kill", "retire", "fire",
    "release", "close", "close down", "turn off", "wind down", "take down", "let go", "quit",
    "shut off",
];

/// The same around the name: "shut bob down".
pub(super) const SHUT: &[(&str, &str)] =
    &[("shut", "down"), ("turn", "off"), ("wind", "down"), ("let", "go"), ("take", "down")];

/// Shows something.
pub(super) const LOOK: &[&str] = &[
    "show", "show me", "show us", "list", "display", "print", "print out", "see", "view", "read",
    "read out", "check", "check on", "look at", "look in", "look into", "look through", "inspect",
    "open", "get", "get me", "give me", "give us", "fetch", "tell me", "scan", "review", "output",
    "cat", "dump", "quote", "go through", "pull up", "have a look at", "take a look at",
    "take a look into", "look up", "find out", "let me see", "report", "examine", "enumerate",
    "name", "bring me", "say", "look for", "check for", "i want to see", "please list",
];

/// Begins a question.
pub(super) const QUESTION: &[&str] = &[
    "anything", "who", "who's", "what", "what's", "which", "how", "how's", "is", "are", "do",
    "does", "did", "has", "have", "any", "where", "whether", "when", "why",
];

/// Looks whether something is so.
pub(super) const CHECK: &[&str] = &[
    "check", "check whether", "check if", "check that", "check for", "verify", "verify that",
    "verify whether", "verify if", "see if", "see whether", "find out if", "find out whether",
    "confirm", "confirm that", "confirm whether", "make sure", "make sure that", "ensure",
    "ensure that", "tell me if", "tell me whether", "determine if", "determine whether", "test if",
    "test whether", "look whether", "look if", "let me know if", "let me know whether", "does",
    "is", "check to see if", "test that", "if", "whether", "say whether", "say if", "is there",
    "look for",
];

/// Makes a file.
pub(super) const WRITE: &[&str] = &[
    "create", "write", "overwrite", "make", "generate", "produce", "save", "put", "store", "draft",
    "prepare", "compose", "build", "add", "set up", "write down", "write out", "touch", "place",
];

/// Between a file and what is in it.
pub(super) const HOLDING: &[&str] = &[
    "with", "containing", "that contains", "which contains", "that has", "which has", "holding",
    "that holds", "which holds", "including", "that includes", "which includes", "having",
    "describing", "that describes", "listing", "that lists", "about", "for", "defining",
    "that defines", "which defines", "in which there is", "with the following",
    "with the following content", "with the following contents", "with the content",
    "with the contents", "with content", "with contents", "that", "which", "and put",
];

/// The same when the very words follow.
pub(super) const READING: &[&str] = &[
    "saying", "that says", "which says", "reading", "that reads", "which reads", "with the text",
    "with text", "containing the text", "with the word", "with the words", "containing the word",
    "containing the words", "with the sentence", "with content", "with the content",
    "with contents", "with the contents", "with the following content",
    "with the following contents", "with the following text", "containing the sentence",
    "containing the line", "with the line", "with a line saying", "containing text",
    "that contains the text", "with one line", "with the single line",
];

/// The same when several lines follow.
pub(super) const LINES: &[&str] = &[
    "lines", "the lines", "the following lines", "two lines", "three lines", "the two lines",
    "the three lines", "these lines", "four lines", "the entries", "the items",
];

/// Words for a file.
pub(super) const FILE_NOUN: &[&str] = &[
    "file", "files", "document", "script", "program", "page", "module",
];

/// Between a word for a file and its name.
pub(super) const FILE_NAMED: &[&str] = &[
    "called", "named", "with the name", "by the name of", "with name",
];

/// Replaces a text in a file.
pub(super) const REPLACE: &[&str] = &[
    "replace", "change", "substitute", "swap", "replacing", "changing", "exchange",
];

/// Opens a file for a replacement.
pub(super) const EDIT: &[&str] = &["edit", "modify", "update", "open"];

/// Removes a file.
pub(super) const REMOVE: &[&str] = &["delete", "remove", "erase", "rm"];

/// Runs a command.
pub(super) const RUN: &[&str] = &[
    "run", "execute", "exec", "perform", "invoke", "try running", "type", "issue",
];

/// Puts a line at the end of a file.
pub(super) const APPEND: &[&str] = &["append", "add"];

/// Words for a task.
pub(super) const TASK_NOUN: &[&str] = &[
    "task", "tasks", "todo", "todos", "to-do", "to-dos", "board", "backlog",
];

/// A courtesy, or a word that only ties sentences together.
pub(super) const COURTESY: &[&str] = &[
    "gracefully", "politely", "cleanly", "properly", "gently", "safely", "immediately", "sure",
    "fine", "perfect", "nice", "cool", "yes", "yeah", "awesome", "excellent", "meanwhile", "today",
    "sorry", "please", "kindly", "pls", "could you", "can you", "would you", "will you", "could we",
    "can we", "could you please", "now", "first", "firstly", "second", "secondly", "third",
    "thirdly", "next", "also", "just", "finally", "lastly", "go ahead and", "i want you to",
    "i'd like you to", "i would like you to", "i need you to", "you should", "you must",
    "you need to", "you have to", "you can", "you could", "let's", "let us", "make sure to",
    "be sure to", "try to", "remember to", "don't forget to", "do not forget to", "start by", "ok",
    "okay", "so", "well", "hey", "hi", "hello", "alright", "right", "great", "good", "thanks",
    "thank you", "we should", "we need to", "your task is to", "your job is to",
    "your first task is to", "you are to", "once again", "again", "quickly", "i want to",
    "i would like to", "i'd like to", "dear", "there", "maybe", "perhaps", "simply", "both", "each",
    "if you can", "if possible", "when you can", "if you like", "to start", "to begin",
];

/// Ties two commands of one sentence together, in the order they are done.
pub(super) const THEN: &[&str] = &[
    "then", "and then", "after that", "afterwards", "after which", "next", "finally", "lastly",
    "subsequently", "later", "and after that", "once that is done", "once that's done",
    "when that is done", "when that's done", "once this is done", "when this is done", "once done",
    "when done", "once it is done", "when it is done", "when you are done", "when you're done",
    "once you are done", "once you're done", "when finished", "once finished",
    "as soon as it is done", "when you are finished", "followed by", "in the end", "at the end",
    "as a last step", "once ready", "when ready",
];

/// Ties two things together.
pub(super) const AND: &[&str] = &[
    ",", "and", "&", "plus", "as well as", "also", "but", "along with", "together with", "or",
];

/// Makes a command depend on something that nobody here can watch.
pub(super) const CONDITION: &[&str] = &[
    "if", "when", "whenever", "once", "unless", "until", "till", "after", "before", "as soon as",
    "while", "in case", "provided", "only if", "as long as", "each time",
];

/// Forbids.
pub(super) const FORBID: &[&str] = &[
    "don't", "do not", "dont", "never", "must not", "you must not", "no need to", "avoid",
    "refrain from", "not to", "not", "stop trying to",
];

/// Adds nothing at the end of a command.
pub(super) const FILLER: &[&str] = &[
    "on the team", "in the team", "for now", "please", "now", "gracefully", "politely", "cleanly",
    "nicely", "properly", "gently", "orderly", "for me", "for us", "thanks", "thank you", "too",
    "as well", "again", "immediately", "at once", "right away", "quickly", "today", "in order",
    "safely", ",", ":", "right now", "softly", "first", "straight away", "pls", "asap",
    "in a graceful way", "in the shell", "in a shell", "in bash", "in the terminal",
    "in the workspace", "on the shell", "with grace", "orderly", "both", "all", "in turn",
    "one after the other", "then", "soon", "kindly", "forthwith", "to the team",
    "in the current folder", "in the current directory", "here", "there", "afterwards",
    "from the team", "next", "finally", "of the team", "me", "us", "if you can", "on the team",
    "in the team", "if possible", "if you like", "when you can", "in it", "inside", "in there",
    "inside it",
];

/// Everybody on the team.
pub(super) const EVERYONE: &[&str] = &[
    "everyone", "everybody", "everyone else", "everybody else", "all", "all teammates",
    "all the teammates", "all of the teammates", "all my teammates", "all our teammates",
    "all your teammates", "all of my teammates", "all of your teammates", "all of our teammates",
    "all team members", "all the team members", "all of the team members", "all members",
    "all the members", "all agents", "all the agents", "all of the agents", "all of them",
    "all of you", "all workers", "every teammate", "every agent", "every member",
    "every team member", "each teammate", "each agent", "each member", "each of the teammates",
    "each of them", "every one of them", "the whole team", "the entire team", "whole team",
    "the team", "the teammates", "the team members", "my team", "our team", "your team",
    "the others", "all others", "all the others", "the rest of the team", "the whole crew",
    "the crew", "the group", "teammates", "anybody", "anyone", "your teammates", "my teammates",
];

/// Words that a list of agents never contains: they steer the sentence.
pub(super) const NO_NAME: &[&str] = &[
    "a", "an", "the", "this", "that", "these", "those", "to", "of", "in", "on", "at", "as", "for",
    "from", "by", "with", "and", "or", "but", "then", "if", "is", "are", "was", "be", "been", "do",
    "does", "did", "done", "not", "no", "yes", "i", "me", "my", "mine", "you", "your", "yours",
    "he", "she", "it", "its", "they", "them", "their", "him", "her", "his", "we", "us", "our",
    "who", "what", "which", "when", "where", "why", "how", "whether", "all", "both", "each",
    "every", "any", "some", "please", "now", "about", "into", "up", "down", "out", "should", "must",
    "can", "could", "would", "shall", "may", "might", "has", "had", "named", "called", "saying",
    "know", "there", "here", "also", "so", "just", "new", "another", "one", "two", "three", "four",
    "five", "team", "inbox", "roster", "everyone", "everybody", "someone", "somebody", "file",
    "files", "task", "tasks", "message", "messages", "because", "via", "using", "gracefully",
    "everything", "nothing", "something", "own", "after", "before", "until", "once", "than",
];

/// Counts before a plural.
pub(super) const COUNT: &[&str] = &[
    "two", "three", "four", "five", "six", "some", "several", "2", "3", "4", "5", "6",
];

/// Articles and the like.
pub(super) const ARTICLE: &[&str] = &[
    "a", "an", "the", "another", "one", "new", "some", "our", "my", "your", "his", "her", "their",
    "its", "this", "that", "small", "short", "little", "simple", "tiny", "brief", "quick",
    "friendly", "a new", "first", "single", "nice", "following", "any", "all", "me", "us",
];

/// Asks for the outcome of the work, behind "tell the lead" and the like.
pub(super) const WHAT_CAME_OUT: &[&str] = &[
    "the result", "the results", "your result", "your results", "its result", "the outcome",
    "the output", "your findings", "the findings", "what you find", "what you found",
    "what you did", "what you see", "how it went", "how it goes", "when you are done",
    "when you're done", "when done", "when it is done", "when it's done", "when finished",
    "when you are finished", "once done", "once it is done", "once you are done", "what happened",
    "the answer", "about it", "about the result", "about the results", "what comes out",
    "what came out", "about the outcome", "what it says", "what it prints", "what it printed",
    "the status", "your status", "about that", "once finished", "as soon as you are done",
    "when that is done", "your progress", "your answer",
];

/// Verbs that begin a command and want an object.
const VERBS: &[&[&str]] = &[
    SPAWN,
    SPAWN_MAYBE,
    HAND,
    SEND,
    MESSAGE,
    BROADCAST,
    SHUT_DOWN,
    LOOK,
    CHECK,
    WRITE,
    REPLACE,
    EDIT,
    REMOVE,
    RUN,
    APPEND,
    TASK_VERB,
    REVIEW,
];

/// Verbs that need no object.
pub(super) const REST: &[&str] = &[
    "wait", "stand by", "do nothing", "hold on", "stay idle", "idle", "relax", "rest", "be ready",
    "get ready", "stay ready", "await", "be patient", "stay put", "keep quiet", "sleep", "pause",
];

/// Decides about a plan.
pub(super) const REVIEW: &[&str] = &["approve", "reject", "accept", "decline", "disapprove"];

/// Works on the task list.
pub(super) const TASK_VERB: &[&str] = &[
    "claim", "take", "pick up", "grab", "complete", "finish", "close", "mark", "cancel", "fail",
    "resolve", "take on", "take over", "rename", "copy", "move",
];

/// Asks for a closing word.
pub(super) const REPORT: &[&str] = &[
    "report", "report back", "summarize", "summarise", "tell me", "let me know", "give me",
    "show me", "inform me", "report to me", "report back to me", "tell us", "let us know",
    "update me", "keep me posted", "give me a summary", "keep me informed", "give me a report",
    "get back to me",
];

/// Whether a single word is one of the verbs above.
pub(super) fn is_verb(word: &str) -> bool {
    VERBS.iter().any(|list| list.contains(&word)) || REST.contains(&word)
}

/// The verbs that begin a command, list by list.
pub(super) fn verbs() -> impl Iterator<Item = &'static [&'static str]> {
    VERBS.iter().copied()
}
