//! Hands mail to the hooks of the program that has started this process. Each hook is a process of its own
//! ([`super::mail_hook`]), which asks over a socket in the team folder.
//!
//! *Invariant:* mail counts as handed out only after the hook has said that it was printed. A hook that ends before that
//! leaves it unread.

use super::served_mail::ServedMail;
use super::status_task::ServedStatus;
use crate::os::spawn::spawn_local;
use crate::os::unix_socket;
use serde::{Deserialize, Serialize};
use std::io;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::OwnedReadHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, sleep, timeout};

/// The most bytes of mail for a hook: Claude Code cuts what a hook prints at 10,000 characters.
const ROOM: usize = 8_000;

/// The most bytes of what a hook says.
const LONGEST_LINE: u64 = 4_096;

/// The time within which a hook must say what it wants, and that it has printed the answer.
const HOOK_LIMIT: Duration = Duration::from_secs(5);

/// The longest wait for mail. The hook that waits ends with the session or its next turn.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// The maximum number of hooks that are answered at once.
const AT_ONCE: usize = 32;

/// The pause after a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The first line of a hook, in JSON. The answer is a line with a JSON string, or null if there is no mail; the hook
/// answers mail that it has printed with [`PRINTED`].
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum HookRequest {
    /// The model has used the tool of this name, and goes on.
    ToolUsed(String),
    /// A turn of the model has ended, and the hook waits for mail or not.
    TurnEnded { waits: bool },
}

/// The last line of a hook.
pub(super) const PRINTED: &str = "printed\n";

/// The state that the connections share.
struct Hooks {
    mail: Rc<ServedMail>,
    /// Whether mail wakes the model without hooks.
    is_woken: bool,
    /// Notified when a hook says something: the session does something else than to wait.
    spoken: Notify,
}

/// Serves hooks until the member has left.
pub(super) async fn serve(mail: Rc<ServedMail>, is_woken: bool) {
    let path = mail.bus.dir().hook_socket(&mail.me);
    let opened = unix_socket::bind(&path).and_then(|listener| {
        listener.set_nonblocking(true)?;
        UnixListener::from_std(listener)
    });
    let listener = match opened {
        Ok(listener) => listener,
        Err(why) => return tracing::warn!(%why, "hooks get no mail"),
    };
    let hooks = Rc::new(Hooks { mail, is_woken, spoken: Notify::new() });
    let places = std::sync::Arc::new(Semaphore::new(AT_ONCE));
    let mut count = 0_u64;
    while !hooks.mail.has_left.get() {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            // Notified when the member leaves, too.
            () = hooks.mail.arrived.notified() => continue,
        };
        let Ok((stream, _)) = accepted else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let Ok(place) = std::sync::Arc::clone(&places).try_acquire_owned() else { continue };
        count += 1;
        let (hooks, id) = (Rc::clone(&hooks), format!("hook-{count}"));
        spawn_local(async move {
            let _place = place;
            if let Err(why) = hooks.answer(stream, &id).await {
                tracing::debug!(%why, "a hook has ended early");
            }
        });
    }
}

impl Hooks {
    async fn answer(&self, stream: UnixStream, id: &str) -> io::Result<()> {
        let (input, mut output) = stream.into_split();
        let mut input = BufReader::new(input.take(LONGEST_LINE));
        let request = timeout(HOOK_LIMIT, read_line(&mut input)).await??;
        let request = serde_json::from_str(&request)?;
        self.spoken.notify_waiters();
        let text = match request {
            HookRequest::ToolUsed(tool) => {
                let is_part = |c: &char| c.is_ascii_alphanumeric() || "-_.".contains(*c);
                let tool = tool.chars().filter(is_part).take(64).collect();
                self.mail.status.send(ServedStatus::Works(tool));
                self.mail.take_short(id, ROOM, Instant::now()).await
            }
            HookRequest::TurnEnded { waits } => {
                self.mail.status.send(ServedStatus::Waits);
                let longest = if waits && !self.is_woken { LONGEST_WAIT } else { Duration::ZERO };
                tokio::select! {
                    text = self.mail.take_short(id, ROOM, Instant::now() + longest) => text,
                    () = self.spoken.notified() => None,
                    // A hook says nothing while it waits: it has ended.
                    _ = read_line(&mut input) => return Ok(()),
                }
            }
        };
        let mut line = serde_json::to_vec(&text)?;
        line.push(b'\n');
        let printed = async {
            output.write_all(&line).await?;
            read_line(&mut input).await
        };
        let printed = timeout(HOOK_LIMIT, printed).await;
        let was_printed = matches!(printed, Ok(Ok(line)) if line == PRINTED);
        self.mail.answered(id, was_printed);
        Ok(())
    }
}

async fn read_line(input: &mut BufReader<tokio::io::Take<OwnedReadHalf>>) -> io::Result<String> {
    let mut line = String::new();
    input.read_line(&mut line).await?;
    Ok(line)
}
