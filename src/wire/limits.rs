//! The deadlines and caps of the contract. Each is defined only here, with its unit and its reason. References
//! are to SPEC.md and RELIABILITY.md. For a value that a person can set, the default is here.

use std::time::Duration;

/// One mebibyte.
pub const MIB: u64 = 1024 * 1024;

// Messages and mailboxes.

/// The longest line of an inbox, its newline included: bounds the memory of every reader (SPEC 3.1).
pub const MAX_LINE_BYTES: usize = 2 * 1024 * 1024;
/// The longest `content` of a message by default; longer text goes into a file (SPEC 7).
pub const DEFAULT_MESSAGE_BYTES: usize = 256 * 1024;
/// The size at which an inbox refuses data by default, so that one sender cannot fill the disk (SPEC 7).
pub const DEFAULT_INBOX_BYTES: u64 = 64 * MIB;
/// The space of a full inbox for control messages, because a member must remain stoppable (SPEC 3.1).
pub const INBOX_RESERVE_BYTES: u64 = MIB;
/// The number of messages whose ids are remembered to recognize a repeated send (RELIABILITY 3.5).
pub const DEDUP_MESSAGES: usize = 65_536;
/// The wait for a lock, after which its holder counts as stuck and is named (RELIABILITY 3.3).
pub const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// The time for which a sender trusts what it has found out about the folder, the lock and the key of an inbox. A change is as if it had
/// come that much later.
pub const TRUSTED_FOR: Duration = Duration::from_millis(10);
/// The wait for a foreign program's lock on the inbox itself; appending is correct without it (RELIABILITY 3.3).
pub const COURTESY_LOCK_TIMEOUT: Duration = Duration::from_secs(2);
/// The age of a claim at which no shell can still open it under its old name (RELIABILITY 3.5).
pub const LATE_WRITER_DELAY: Duration = Duration::from_secs(1);
/// The time for which a claim is kept after its last growth if the file system has no leases (RELIABILITY 3.5).
pub const LATE_WRITER_DELAY_WITHOUT_LEASES: Duration = Duration::from_secs(2);
/// The number of crashes on one claim after which it is quarantined (RELIABILITY 3.5).
pub const POISON_CRASHES: usize = 5;
/// The time within which these crashes count (RELIABILITY 3.5).
pub const POISON_WINDOW: Duration = Duration::from_secs(600);
/// The poll period of a mailbox with file events, for events that never come (RELIABILITY 3.6).
pub const MAIL_POLL: Duration = Duration::from_secs(1);
/// The poll period on a local disk whose file events were tested with a file: they come there.
pub const MAIL_POLL_WITH_TESTED_EVENTS: Duration = Duration::from_secs(20);
/// The poll period of a mailbox whose user has no file events left (RELIABILITY 3.6).
pub const MAIL_POLL_WITHOUT_EVENTS: Duration = Duration::from_millis(250);

// Processes (RELIABILITY 4).

/// The period in which a host gives a sign of life to the others.
pub const HOST_BEAT_PERIOD: Duration = Duration::from_millis(1500);
/// The number of periods without a sign of life after which a host counts as away.
pub const MOST_MISSED_HOST_BEATS: u32 = 4;

/// The default time without a sign of the lead after which its teammates on another host are ended.
pub const DEFAULT_LEAD_AWAY: Duration = Duration::from_secs(600);

/// The time in which a started teammate must report that it is ready (RELIABILITY 4).
pub const READY_TIMEOUT: Duration = Duration::from_secs(15);
/// The same for a teammate that starts an agent of another vendor: 30 s for its first answer, 60 s for its session.
pub const AGENT_READY_TIMEOUT: Duration = Duration::from_secs(90);
/// The period at which members that the lead did not start are probed (RELIABILITY 4).
pub const LIVENESS_POLL: Duration = Duration::from_secs(2);
/// The shortest time between two writes of an agent's activity to the roster.
pub const ACTIVITY_PERIOD: Duration = Duration::from_secs(1);
/// The space on the disk that is held in reserve, so that an agent can end in order on a full disk.
pub const DISK_RESERVE_BYTES: u64 = MIB;
/// The longest pause between two heartbeats of a busy agent.
pub const HEARTBEAT_PERIOD: Duration = Duration::from_secs(5);
/// The time without a sign of life after which a busy agent counts as hung by default.
pub const DEFAULT_HUNG_AFTER: Duration = Duration::from_secs(60);
/// The time that a running tool may take after the lead has exited.
pub const LEAD_LOSS_GRACE: Duration = Duration::from_secs(30);
/// The same for a tool of an agent of another vendor, whose own end takes longer than that of a member of ours.
pub const AGENT_LEAD_LOSS_GRACE: Duration = Duration::from_secs(25);
/// The time after the exit of the lead by which all its teammates have exited.
pub const LEAD_LOSS_EXIT: Duration = Duration::from_secs(35);
/// The number of processes that one command may run at a time: more than a build needs, fewer than a fork bomb.
pub const COMMAND_PROCESSES: usize = 512;
/// The number of connections that the proxy of one command serves at a time; further ones wait.
pub const PROXY_CONNECTIONS: usize = 256;
/// The time that each step of a connection through the proxy may take until bytes flow.
pub const PROXY_TIMEOUT: Duration = Duration::from_secs(30);

/// The size of a command's outbox that its agent reads: an untrusted command writes the file.
pub const OUTBOX_BYTES: u64 = MIB;
/// The number of lines of a command's outbox that its agent reads.
pub const OUTBOX_LINES: usize = 100;

// The shutdown ladder (RELIABILITY 4).

/// The wait for a busy member that was asked to stop: it finishes its tool and reports.
pub const STOP_ASK: Duration = Duration::from_secs(20);
/// The wait for an idle member that was asked to stop: it has nothing to finish.
pub const STOP_ASK_IDLE: Duration = Duration::from_secs(3);
/// The wait after SIGTERM: the member cancels its call, drains and saves.
pub const STOP_TERMINATE: Duration = Duration::from_secs(5);
/// The wait after SIGKILL; a process that survives it is stuck in the kernel.
pub const STOP_KILL: Duration = Duration::from_secs(2);
/// The wait after SIGTERM with `--now`.
pub const STOP_NOW_TERMINATE: Duration = Duration::from_secs(1);
/// The wait after SIGKILL with `--now`.
pub const STOP_NOW_KILL: Duration = Duration::from_millis(500);
/// The time after `--timeout` by which the run has ended, whatever it waits for. Its parts follow.
pub const TIMEOUT_GRACE: Duration = Duration::from_secs(10);
/// The time after `--timeout` for which the lead's own loop may end what it is doing.
pub const TIMEOUT_LOOP: Duration = Duration::from_secs(2);
/// The time after `--timeout` for which members may end by themselves; then they get SIGTERM.
pub const TIMEOUT_ASK: Duration = Duration::from_secs(5);
/// The time after `--timeout` at which members that are left are killed.
pub const TIMEOUT_KILL: Duration = Duration::from_secs(7);
/// The time after `--timeout` at which the run no longer waits for a stop under way, such as for a lock.
pub const TIMEOUT_GIVE_UP: Duration = Duration::from_secs(8);
/// The time within which a second Ctrl-C stops the team (SPEC 6).
pub const SECOND_CTRL_C: Duration = Duration::from_secs(2);

// Restarts (RELIABILITY 4).

/// The pause before the first restart; each further pause is twice as long.
pub const RESTART_FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause before a restart.
pub const RESTART_LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The run time of a process after which the pauses start again from the first.
pub const RESTART_HEALTHY: Duration = Duration::from_secs(300);
/// The number of restarts that one teammate may have within the time.
pub const RESTARTS_OF_MEMBER: (usize, Duration) = (5, Duration::from_secs(60));
/// The number of restarts that a team may have within the time.
pub const RESTARTS_OF_TEAM: (usize, Duration) = (20, Duration::from_secs(300));

// Agents.

/// The maximum number of teammates that run at the same time by default (SPEC 7).
pub const DEFAULT_TEAMMATES: usize = 16;
/// The maximum number of model calls in one turn by default, against turns that never end (SPEC 7).
pub const DEFAULT_ROUNDS: u32 = 50;
/// The maximum number of tokens of one answer by default: every current model accepts it.
pub const DEFAULT_ANSWER_TOKENS: u32 = 16_384;
/// The smallest budget of thinking that the Messages API accepts, in tokens.
pub const LEAST_THINKING_TOKENS: u32 = 1024;
/// The number of teammates that may be started in one run, for each that may run at the same time.
pub const SPAWNS_PER_TEAMMATE: usize = 4;
/// The number of messages that two agents may exchange without work by default (SPEC 7).
pub const DEFAULT_EXCHANGES: u32 = 30;
/// The number of messages that one agent may send in a minute by default (SPEC 7).
pub const DEFAULT_SENDS: usize = 120;
/// The number of subagents of one agent that may work at the same time by default.
pub const DEFAULT_SUBAGENTS: usize = 4;
/// The time after which an unanswered question counts as denied by default, in seconds (SPEC 7).
pub const DEFAULT_PERMISSION_SECONDS: u64 = 300;
/// The time limit of a tool call by default, in seconds (SPEC 5).
pub const CALL_SECONDS: u64 = 120;
/// The longest time limit that a call may ask for, in seconds.
pub const MAX_CALL_SECONDS: u64 = 3600;
/// The time without a call after which an MCP server ends.
pub const DEFAULT_MCP_IDLE: Duration = Duration::from_secs(600);

/// The time for reading a command's output after all its processes have exited.
pub const OUTPUT_DRAIN: Duration = Duration::from_secs(1);
/// The number of characters of a tool's output that are sent to a model: head and tail (SPEC 5).
pub const OUTPUT_CHARS: usize = 50_000;

// Pages of the web.

/// The time of one call that fetches a page, its redirects and the rules of its host included.
pub const FETCH_TIMEOUT: Duration = Duration::from_secs(30);
/// The size that is read of a page, and kept once it is decompressed, in bytes: more than a model can read.
pub const FETCH_BYTES: usize = 5 * 1024 * 1024;
/// The size that is read of the rules of a host, in bytes (RFC 9309, 2.5).
pub const ROBOTS_BYTES: usize = 500 * 1024;
/// The number of redirects that one call follows.
pub const FETCH_REDIRECTS: usize = 5;
/// The number of hosts whose rules an agent remembers.
pub const ROBOTS_HOSTS: usize = 32;
/// The time for which an agent remembers the rules of a host.
pub const ROBOTS_KEPT: Duration = Duration::from_secs(3600);
/// The time for which an agent remembers the last page, of which it may read further parts.
pub const PAGE_KEPT: Duration = Duration::from_secs(900);

// Undo.

/// The largest version of a file that is kept for undo: source files are smaller, and a larger one is made by a program.
pub const UNDO_FILE_BYTES: u64 = 8 * MIB;
/// The size of all versions that are kept for undo, by default: the oldest turns are dropped first.
pub const UNDO_BYTES: u64 = 256 * MIB;
/// The size of the journal of one agent from which its oldest turns are dropped: it is read whole for each undo.
pub const UNDO_JOURNAL_BYTES: u64 = 4 * MIB;
/// The number of files that one undo changes: each takes a descriptor for its lock, and 1024 is the usual limit.
pub const UNDO_FILES: usize = 500;
/// The number of files that are compared for a command; a larger checkout is not covered, since each takes a `stat`.
pub const UNDO_COMPARED_FILES: usize = 100_000;
/// The size of the changed and untracked files that are kept before one command; it is copied while the command waits.
pub const UNDO_COPIED_BYTES: u64 = 64 * MIB;

// Long lives.

/// The number of ended tasks that stay in the list's folder, since every look reads it; earlier ones are archived.
pub const ENDED_TASKS_KEPT: usize = 100;
/// The size at which the log of a process is rotated.
pub const LOG_BYTES: u64 = 10 * MIB;
/// The number of rotated logs that are kept of each agent.
pub const OLD_LOGS: usize = 5;

// Model calls (LLM.md 1).

/// The time for a connection to an endpoint.
pub const MODEL_CONNECT: Duration = Duration::from_secs(5);
/// The time until the first byte of a reply: a local server reads a long prompt first.
pub const MODEL_FIRST_BYTE: Duration = Duration::from_secs(300);
/// The wait for the first byte after which a person is told that the endpoint has not answered yet.
pub const MODEL_FIRST_BYTE_NOTICE: Duration = Duration::from_secs(60);
/// The longest silence within a reply.
pub const MODEL_SILENCE: Duration = Duration::from_secs(90);
/// The time for a whole reply.
pub const MODEL_CALL: Duration = Duration::from_secs(600);
/// The largest reply in bytes.
pub const MODEL_REPLY_BYTES: usize = 64 << 20;
/// The number of attempts of one call, the first one included.
pub const RETRY_TRIES: u32 = 10;
/// The time after the first attempt within which an attempt may begin.
pub const RETRY_WITHIN: Duration = Duration::from_secs(600);
/// The pause before the second attempt; each further pause is twice as long.
pub const RETRY_FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause between two attempts.
pub const RETRY_LONGEST_PAUSE: Duration = Duration::from_secs(8);
/// The longest pause after a reply that says that the endpoint is overloaded.
pub const RETRY_LONGEST_OVERLOADED: Duration = Duration::from_secs(60);
/// The number of attempts of one call if another model goes on after it.
pub const FALLBACK_TRIES: u32 = 3;
/// The time after the first attempt within which an attempt may begin if another model goes on.
pub const FALLBACK_WITHIN: Duration = Duration::from_secs(20);
/// The time after which a model that has failed is tried again, if no other is set.
pub const DEFAULT_FALLBACK_PAUSE: Duration = Duration::from_secs(600);
/// The longest time after which a model that has failed is tried again.
pub const LONGEST_FALLBACK_PAUSE: Duration = Duration::from_secs(3600);
/// The time for the doctor's call of a model: a local server may load the model first.
pub const DOCTOR_CALL: Duration = Duration::from_secs(60);
/// The time for a server on this machine to list its models.
pub const LOCAL_PROBE: Duration = Duration::from_millis(300);
/// The time for a server that is wanted by name, accepts connections and has not listed its models in the time before.
pub const LOCAL_ANSWER: Duration = Duration::from_secs(10);
