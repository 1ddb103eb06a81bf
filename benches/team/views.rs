//! V1-V5: the cost of watching a large team in the terminal and in the browser.
//!
//! Both programs run as in real use: one in a pseudo-terminal, the other with a client that follows its events.

use crate::bench_team::{BenchTeam, OWNER, bus, sender, text};
use crate::figure::{Figure, Size, Target, median, percentile};
use crate::members::processor_ms;
use crate::scripts::Scripts;
use crate::terminal::{Watcher, start};
use agent_team::bus::Outgoing;
use agent_team::store::{Fsync, Transcript};
use agent_team::wire::AgentName;
use agent_team::wire::chat::{Block, StopReason, Usage};
use agent_team::wire::message;
use agent_team::wire::transcript::{Entry, Line};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The time until all members are idle.
const REST: Duration = Duration::from_secs(3);

/// The time over which the processor time of an untouched view is counted.
const WATCHED: Duration = Duration::from_secs(10);

/// The time limit of every wait.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn measure(size: &Size) -> Vec<Figure> {
    let team = BenchTeam::new();
    (0..size.many).for_each(|number| remember(&team, number, size.messages / size.many));
    let _teammates = Scripts::of_teammates(&team, size.many);
    std::thread::park_timeout(size.lasting(REST));
    let [frames, idle_top] = in_a_terminal(&team, size);
    let page = in_a_browser(&team, size);
    let team = format!("{} members, {} messages", size.many, size.messages);
    let figure = |id, measure: String, unit, ours, most| Figure {
        id,
        measure,
        unit,
        ours,
        reference: None,
        target: Target::Below(most),
    };
    vec![
        figure(
            "V1",
            format!("`team top`, {team}: a key to its frame, p50"),
            "ms",
            median(&frames),
            16.0,
        ),
        figure("V1", "the same, p95".into(), "ms", percentile(&frames, 95.0), 16.0),
        figure("V2", "`team top`, idle: processor time".into(), "ms/s", median(&idle_top), 50.0),
        figure(
            "V3",
            format!("`team web`, {team}, one viewer, idle: processor time"),
            "ms/s",
            page.idle,
            50.0,
        ),
        figure(
            "V4",
            "`team web`: a send to its event, p50".into(),
            "ms",
            median(&page.delays),
            200.0,
        ),
        figure("V4", "the same, p95".into(), "ms", percentile(&page.delays, 95.0), 200.0),
        figure(
            "V5",
            "`team web`: what one message puts on the wire".into(),
            "KiB",
            page.update,
            16.0,
        ),
    ]
}

/// Writes the conversation of a teammate, with this many messages from its neighbour.
pub(crate) fn remember(team: &BenchTeam, number: usize, messages: usize) {
    let name = format!("member-{number}");
    let mut lines = String::new();
    for index in 0..messages {
        let at = 1_763_690_000.0 + f64::from(u32::try_from(index * 100 + number).unwrap());
        let message = json!({
            "type": "message", "from": format!("member-{}", number.saturating_sub(1)), "to": name,
            "timestamp": at, "content": text("How far are you?"), "id": format!("bench:{number}:{index}"),
        });
        let mail = Entry::Mail {
            claim: format!("{:012}-00000000", index + 1),
            offset: 0,
            message: message.as_object().cloned().unwrap_or_default(),
            verified: true,
        };
        let answer = Entry::Assistant {
            blocks: vec![Block::Text { text: "Nearly done.".into() }],
            stop_reason: StopReason::EndTurn,
            usage: Usage { input_tokens: 1000, output_tokens: 10, ..Usage::default() },
            model: "rehearsal".into(),
        };
        let end = Entry::TurnEnd {
            outcome: message::Outcome::Done,
            rounds: 1,
            report: None,
            cut_off: false,
        };
        for entry in [mail, answer, end] {
            lines.push_str(&Line { at: at.into(), entry }.text());
        }
    }
    let name = AgentName::member(&name).unwrap();
    Transcript::open(&team.dir, &name).unwrap().append_raw(lines.as_bytes()).unwrap();
}

/// Returns the command line of the program, in the team's folder.
pub(crate) fn program(team: &BenchTeam, verb: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_team"));
    command.arg(verb).arg("--dir").arg(team.dir.root());
    command.env_clear().env("PATH", "/usr/bin:/bin").env("TERM", "xterm-256color");
    command.current_dir(team.folder.path());
    command
}

impl Watcher {
    /// Returns the processor time in milliseconds per second without input.
    pub(crate) fn idle(&self, size: &Size) -> f64 {
        let watched = size.lasting(WATCHED);
        let before = processor_ms(self.0.id());
        std::thread::park_timeout(watched);
        (processor_ms(self.0.id()) - before) / watched.as_secs_f64()
    }
}

/// Measures the time from a key to its frame, and the processor time without keys.
fn in_a_terminal(team: &BenchTeam, size: &Size) -> [Vec<f64>; 2] {
    let (top, mut screen, mut terminal) = start(program(team, "top"));
    // The first frame shows the team.
    screen.next();
    std::thread::scope(|scope| {
        // Frames without input must not fill the pseudo-terminal while it is not read.
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let idle = scope.spawn(|| {
            let idle = top.idle(size);
            drop(stop);
            idle
        });
        while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
            screen.next();
        }
        let idle = idle.join().unwrap();
        // Each key changes the frame: the selection, the help, the pane with the focus.
        let frames = (0..size.wakes).map(|round| {
            let key = *[b'j', b'?', b' ', b'2', b'k', b'3', b'k', b'1'].get(round % 8).unwrap();
            let start = Instant::now();
            terminal.write_all(&[key]).unwrap();
            screen.next();
            start.elapsed().as_secs_f64() * 1e3
        });
        [frames.collect(), vec![idle]]
    })
}

/// The measurements of the page.
struct Page {
    idle: f64,
    delays: Vec<f64>,
    update: f64,
}

/// Starts the page. Returns it with its events, after the initial state of the team.
pub(crate) fn start_page(team: &BenchTeam) -> (Watcher, BufReader<TcpStream>) {
    let mut child =
        program(team, "web").stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    let web = Watcher(child);
    let (host, query) = first.trim().strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET /events{query} HTTP/1.1\r\nhost: {host}\r\n\r\n").unwrap();
    let mut events = BufReader::new(stream);
    next_event(&mut events);
    (web, events)
}

fn in_a_browser(team: &BenchTeam, size: &Size) -> Page {
    let (web, mut events) = start_page(team);
    std::thread::park_timeout(size.lasting(REST));
    let idle = web.idle(size);
    let bus = bus(&team.dir, Fsync::Always);
    let _owner = crate::bench_team::live(&team.dir);
    let (mut delays, mut updates) = (Vec::new(), Vec::new());
    for round in 0..size.wakes.min(50) {
        let words = format!("round {round} ");
        let start = Instant::now();
        bus.send(&sender(), OWNER, Outgoing::text(text(&words))).unwrap();
        let mut bytes = 0;
        loop {
            let (event, length) = next_event(&mut events);
            bytes += length;
            let is_it = |change: &Value| {
                change["content"].as_str().is_some_and(|text| text.starts_with(&words))
            };
            if event.as_array().is_some_and(|changes| changes.iter().any(is_it)) {
                break;
            }
        }
        delays.push(start.elapsed().as_secs_f64() * 1e3);
        #[expect(clippy::cast_precision_loss, reason = "a small number")]
        updates.push(bytes as f64 / 1024.0);
    }
    Page { idle, delays, update: median(&updates) }
}

/// Returns the next event, and its length in bytes.
fn next_event(events: &mut impl BufRead) -> (Value, usize) {
    let mut line = String::new();
    loop {
        line.clear();
        assert!(events.read_line(&mut line).unwrap() > 0, "the page is gone");
        if let Some(data) = line.strip_prefix("data: ") {
            return (serde_json::from_str(data).unwrap(), line.len());
        }
    }
}
