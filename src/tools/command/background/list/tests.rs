//! Tests of what the model is told of an end.

use super::*;
use crate::bus::{Bus, MailLimits};
use crate::store::unread;
use crate::tools::command::command_setup;
use crate::tools::hooks::Hooks;
use serde_json::Value;

/// Returns the commands of a lead with one that has ended.
fn with_ended(folder: &std::path::Path) -> (Rc<BackgroundCommands>, Rc<LiveCommand>) {
    let store = OutputStore::below(folder);
    let bus = Bus::new(store.dir.clone(), MailLimits::default(), Arc::new(SystemClock));
    let (me, setup) = (AgentName::lead(), command_setup(Vec::new(), "run".into(), None));
    let workspace = folder.to_owned();
    let hooks = Hooks { list: Vec::new(), me: me.clone(), workspace, setup, leases: None };
    let team = TeamContext::new(me, "1".into(), Arc::new(bus), 0, hooks);
    let commands = BackgroundCommands::new(Rc::new(team), store.clone());
    let command = BackgroundCommand {
        id: "c1".into(),
        call: "call_1".into(),
        command: "make".into(),
        folder: PathBuf::new(),
        since: SystemClock.now(),
        timeout: None,
        state: CommandState::Ended,
        end: "exit code 0 after 1 s".into(),
        report: String::new(),
        seen: 0,
        look: None,
        told: false,
    };
    *commands.list.borrow_mut() = CommandList { last: 1, commands: vec![command] };
    commands.is_loaded.set(true);
    let mut log = CommandLog::new(store, None);
    log.push(b"built\n");
    let live = LiveCommand::new(log, true);
    commands.live.borrow_mut().insert("c1".into(), Rc::clone(&live));
    (commands, live)
}

/// Looks at the command while its notice is being sent, or before. Returns what the look shows, and the notices.
fn told(is_look_first: bool) -> (String, usize) {
    let folder = tempfile::tempdir().unwrap();
    let (commands, live) = with_ended(folder.path());
    let call = Call { id: "call_2".into(), name: "command_output".into(), input: Value::Null };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let shown = runtime.block_on(async {
        let tell = commands.tell_end(&live, "c1");
        let look = commands.look("c1", &call, None);
        // The first one is polled first.
        if is_look_first { tokio::join!(look, tell).0 } else { tokio::join!(tell, look).1 }
    });
    let notices = unread::waiting(&commands.store.dir, &AgentName::lead()).unwrap().len();
    (shown.unwrap(), notices)
}

#[test]
fn an_end_is_told_once_although_the_command_is_looked_at_meanwhile() {
    let (shown, notices) = told(true);
    assert!(shown.starts_with("built\n[c1: exit code 0"), "{shown}");
    assert_eq!(notices, 0);
    let (shown, notices) = told(false);
    assert_eq!(shown, "[c1: ended; the next message tells its end and its new output]");
    assert_eq!(notices, 1);
}
