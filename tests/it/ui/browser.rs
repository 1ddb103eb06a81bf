//! The page in a headless browser, operated by keys and clicks.
//!
//! The tests need chromium and chromedriver. Without them they are skipped with a notice.

use crate::support::child_process::write;
use crate::support::harness::{PATIENCE, SYSTEM_PATH, Team};
use crate::support::http::ask;
use crate::support::skips::skipped;
use crate::support::terminal::Terminal;
use crate::ui::accessibility;
use crate::ui::web::Page;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Keys as `WebDriver` encodes them.
const TAB: &str = "\u{e004}";
const ENTER: &str = "\u{e007}";

/// A script with checks that every page must pass: contrast and names of WCAG 2.2 AA. The full checker
/// ([`accessibility`]) runs in addition where it is available.
const FAULTS: &str = r#"
  const faults = [];
  const seen = (it) => it.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true });
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return canvas.getImageData(0, 0, 1, 1).data;
  };
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, n) => sum + c * [0.2126, 0.7152, 0.0722][n], 0);
  const ground = (it) => {
    for (let at = it; at; at = at.parentElement) {
      const colour = rgba(getComputedStyle(at).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return [255, 255, 255];
  };
  let texts = 0;
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const it = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || !seen(it) || /^(SCRIPT|STYLE|OPTION)$/.test(it.tagName)) continue;
    texts += 1;
    const style = getComputedStyle(it);
    const colour = it.namespaceURI.endsWith("svg") ? style.fill : style.color;
    const [a, b] = [light(rgba(colour)), light(ground(it))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) faults.push(`contrast ${ratio.toFixed(2)}: ${it.tagName}.${it.className} ${walk.currentNode.data.slice(0, 30)}`);
  }
  if (texts < 10) faults.push("hardly any text was looked at");
  for (const it of document.querySelectorAll("button, a[href], select, textarea, input, [role=img], [tabindex='0']")) {
    if (!seen(it)) continue;
    const by = (it.getAttribute("aria-labelledby") || "").split(" ").map((id) => document.getElementById(id)?.textContent).join("");
    const name = it.getAttribute("aria-label") || by || it.labels?.[0]?.textContent || (/^(BUTTON|A)$/.test(it.tagName) && it.textContent);
    if (!name || !name.trim()) faults.push("no name: " + it.outerHTML.slice(0, 80));
  }
  const ids = [...document.querySelectorAll("[id]")].map((it) => it.id);
  if (new Set(ids).size !== ids.length) faults.push("an id comes twice");
  if (!document.documentElement.lang || !document.title) faults.push("no language or title");
  if (!document.querySelector("[aria-live=polite]")) faults.push("messages are not announced");
  if (document.documentElement.scrollWidth > innerWidth + 1) faults.push(`wider than the window: ${document.documentElement.scrollWidth}`);
  return faults;
"#;

pub(crate) struct Browser {
    driver: Child,
    port: u16,
    session: String,
    profile: tempfile::TempDir,
}

fn found(program: &str) -> Option<PathBuf> {
    SYSTEM_PATH.split(':').map(|folder| Path::new(folder).join(program)).find(|it| it.exists())
}

impl Browser {
    /// Starts a headless browser. Returns `None`, with a notice, if this machine has none.
    pub(crate) fn start() -> Option<Self> {
        let (Some(driver), Some(chromium)) = (found("chromedriver"), found("chromium")) else {
            skipped("chromium and chromedriver are not installed");
            return None;
        };
        let profile = tempfile::Builder::new().prefix("team-browser-").tempdir().unwrap();
        let mut command = Command::new(driver);
        command.arg("--port=0").env_clear().env("PATH", SYSTEM_PATH).env("HOME", profile.path());
        command.env("TMPDIR", profile.path()).current_dir(profile.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
        let mut driver = command.spawn().unwrap();
        let lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = lines.map_while(Result::ok).find_map(|line| {
            line.split("successfully on port ").nth(1)?.trim_end_matches('.').parse::<u16>().ok()
        });
        let mut browser = Self {
            driver,
            port: port.expect("chromedriver says its port"),
            session: String::new(),
            profile,
        };
        let data = browser.profile.path().join("data").display().to_string();
        let args = [
            "--headless=new".into(),
            "--no-sandbox".into(),
            "--disable-dev-shm-usage".into(),
            "--disable-gpu".into(),
            "--force-color-profile=srgb".into(),
            "--window-size=1440,1500".into(),
            format!("--user-data-dir={data}"),
        ];
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "goog:chromeOptions": { "args": args, "binary": chromium },
            "goog:loggingPrefs": { "browser": "ALL" },
        } } });
        let session = browser.call("POST", "/session", &wanted);
        browser.session = format!("/session/{}", session["sessionId"].as_str().unwrap());
        Some(browser)
    }

    pub(crate) fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let host = format!("127.0.0.1:{}", self.port);
        let headers = [("host", host.as_str()), ("content-type", "application/json")];
        let body = if method == "POST" { body.to_string() } else { String::new() };
        let answer = ask(self.port, method, &format!("{}{path}", self.session), &headers, &body);
        let told: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(answer.status, 200, "{method} {path}: {told:#}");
        told["value"].clone()
    }

    pub(crate) fn run(&self, script: &str) -> Value {
        self.call("POST", "/execute/sync", &json!({ "script": script, "args": [] }))
    }

    #[track_caller]
    pub(crate) fn wait(&self, what: &str) {
        let until = Instant::now() + PATIENCE;
        while self.run(&format!("return Boolean({what});")) != true {
            assert!(
                Instant::now() < until,
                "never: {what}\n{}",
                self.run("return document.body.innerText")
            );
            std::thread::park_timeout(Duration::from_millis(30));
        }
    }

    fn press(&self, key: &str) {
        let actions =
            json!([{ "type": "keyDown", "value": key }, { "type": "keyUp", "value": key }]);
        let keyboard = json!({ "type": "key", "id": "keys", "actions": actions });
        self.call("POST", "/actions", &json!({ "actions": [keyboard] }));
    }

    fn type_text(&self, text: &str) {
        text.chars().for_each(|c| self.press(&c.to_string()));
    }

    /// Presses Tab until the condition holds for the focused element `at`.
    fn tab_to(&self, what: &str) {
        for _ in 0..80 {
            if self.run(&format!("const at = document.activeElement; return Boolean({what});"))
                == true
            {
                return;
            }
            self.press(TAB);
        }
        panic!("the Tab key never comes to {what}");
    }

    pub(crate) fn size(&self, width: u32, height: u32) {
        self.call("POST", "/window/rect", &json!({ "width": width, "height": height }));
    }

    /// Saves a screenshot in `target/tmp`, if this user may write there.
    fn screenshot(&self, name: &str) {
        let image = self.call("GET", "/screenshot", &Value::Null);
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.png.base64"));
        let Ok(mut file) = std::fs::File::create(path) else { return };
        std::io::Write::write_all(&mut file, image.as_str().unwrap().as_bytes()).unwrap();
    }

    #[track_caller]
    pub(crate) fn assert_no_fault(&self, where_: &str) {
        assert_eq!(self.run(FAULTS), json!([]), "{where_}");
    }

    /// The errors and refused content in the browser's console.
    pub(crate) fn complaints(&self) -> Vec<Value> {
        let log = self.call("POST", "/se/log", &json!({ "type": "browser" }));
        let entries = log.as_array().unwrap().clone();
        entries.into_iter().filter(|entry| entry["level"] != "INFO").collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() && !std::thread::panicking() {
            self.call("DELETE", "", &Value::Null);
        }
        let group = Pid::from_raw(i32::try_from(self.driver.id()).unwrap());
        let _gone = killpg(group, Signal::SIGKILL);
        drop(self.driver.wait());
    }
}

#[test]
#[ignore = "long: scripts/check --all runs it"]
fn a_person_watches_and_controls_a_team_in_a_browser() {
    let Some(browser) = Browser::start() else { return };
    let team = Team::new();
    team.team(&["init"]).expect(0);
    let prices = "[prices.rehearsal]\ninput = 3\noutput = 15\n";
    write(&team.path("settings.toml"), prices);
    let mut lead = Terminal::start(
        team.command("team", &["lead", "--model", "rehearsal", "--mode", "bypass"]),
    );
    lead.expect("/quit ends the team");
    lead.type_line("Spawn alice (coder) and bob (tester). Have alice send bob a message.");
    team.eventually("bob has alice's message", || team.has_mail("bob", "alice", ""));
    team.team(&["task", "add", "Write the schema", "--owner", "alice"]).expect(0);
    team.team(&["task", "add", "Test the schema", "--after", "1"]).expect(0);
    let page = Page::open(&team, &["--control"]);
    browser.call("POST", "/url", &json!({ "url": page.url() }));
    browser.wait("document.querySelectorAll('#roster button').length === 3");
    browser.wait("document.querySelector('#mail li')");
    browser.wait("document.querySelectorAll('#tasks li').length === 2");

    browser.wait("document.getElementById('h-chart').textContent === 'Cost over time'");
    browser.wait(
        "/cost ~\\$0\\.\\d{4}/.test(document.querySelector('[data-name=alice]').textContent)",
    );
    browser.wait("/cost ~\\$0\\.\\d{4}/.test(document.getElementById('totals').textContent)");
    messages_appear_at_once(&browser, &team);
    foreign_words_stay_words(&browser, &team);
    everything_goes_by_keyboard(&browser, &team);
    it_can_be_read(&browser);
    assert_eq!(browser.complaints(), Vec::<Value>::new(), "the console complains");

    drop(browser);
    page.close();
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0), "{}", lead.screen());
    team.wait_no_process();
}

fn messages_appear_at_once(browser: &Browser, team: &Team) {
    browser.run(
        "window.shown = {}; new MutationObserver(() => { for (const row of document.querySelectorAll('#mail .one')) \
         shown[row.textContent] ??= Date.now() / 1000; }).observe(document.getElementById('mail'), \
         { childList: true, subtree: true });",
    );
    let mut best = f64::MAX;
    for round in 0..5 {
        let text = format!("Run echo round-{round}");
        team.team(&["send", "alice", &text]).expect(0);
        browser.wait(&format!("shown[{}]", json!(text)));
        team.eventually("alice took it in", || team.has_mail("alice", "user", &text));
        let mail = team.mail_of("alice").into_iter().find(|mail| mail["content"] == text).unwrap();
        let shown = browser.run(&format!("return shown[{}];", json!(text)));
        best = best.min(shown.as_f64().unwrap() - mail["timestamp"].as_f64().unwrap());
    }
    // The minimum of several rounds counts, because load delays single messages, not all of them.
    assert!(best < 0.2, "the quickest message took {best} s");
    // The moving dot may be gone already, but the graph contains the sender.
    browser.wait("document.querySelectorAll('#flow .member').length === 4");
    browser.screenshot("page-light");
}

fn foreign_words_stay_words(browser: &Browser, team: &Team) {
    let evil = "<img src=x onerror=\"window.hacked=1\"><script>window.hacked=1</script>\u{1b}[31m\u{202e}txt";
    team.team(&["send", "bob", evil]).expect(0);
    browser.wait("[...document.querySelectorAll('#mail .one')].some((it) => it.textContent.includes('onerror'))");
    assert_eq!(browser.run("return window.hacked ?? null;"), Value::Null);
    let shown = browser.run(
        "return [...document.querySelectorAll('#mail .one')].find((it) => it.textContent.includes('onerror')).textContent;",
    );
    let shown = shown.as_str().unwrap();
    assert!(shown.contains("<script>") && shown.contains("␛[31m‹U+202E›txt"), "{shown}");
    assert_eq!(browser.run("return document.querySelectorAll('main img, main script').length;"), 0);
}

fn everything_goes_by_keyboard(browser: &Browser, team: &Team) {
    browser.tab_to("at.dataset.name === 'bob'");
    browser.press(ENTER);
    browser.wait("document.getElementById('h-talk').textContent === 'Conversation of bob'");
    browser.wait("document.querySelector('#talk .mail')");
    browser.tab_to("at.id === 'text'");
    browser.type_text("Run echo by-hand");
    browser.tab_to("at.type === 'submit'");
    browser.press(ENTER);
    team.eventually("bob has it", || team.has_mail("bob", "user", "by-hand"));
    browser.wait("document.getElementById('text').value === ''");
    browser.tab_to("at.id === 'stop'");
    browser.press(ENTER);
    browser.wait("document.getElementById('sure').open");
    browser.tab_to("at.value === 'yes'");
    browser.press(ENTER);
    team.wait_status("bob", "shutdown");
    browser.wait("document.getElementById('said').textContent.startsWith('bob ended')");
    browser.wait("document.querySelector('[data-name=bob] .s-shutdown')");
    browser.run("document.querySelector('nav a[href=\"#team\"]').focus();");
    browser.tab_to("at.getAttribute('href') === '#steps'");
    browser.press(ENTER);
    browser.wait("document.querySelectorAll('#steps li.done code').length > 0");
}

fn it_can_be_read(browser: &Browser) {
    let is_checked = accessibility::load(|script| browser.run(script));
    if is_checked {
        accessibility::assert_it_sees(|script| browser.run(script));
    }
    for theme in ["light", "dark"] {
        browser.run(&format!("document.documentElement.style.colorScheme = '{theme}';"));
        for page in ["team", "steps", "compare"] {
            browser.run(&format!("location.hash = '#{page}';"));
            browser.wait(&format!("!document.getElementById('page-{page}').hidden"));
            for (size, width) in [("wide", 1440), ("phone", 500)] {
                browser.size(width, 1500);
                browser.assert_no_fault(&format!("{page}, {theme}, {size}"));
                if is_checked {
                    accessibility::assert_no_fault(
                        |script| browser.run(script),
                        &format!("{page}, {theme}, {size}"),
                    );
                }
                browser.screenshot(&format!("page-{page}-{theme}-{size}"));
            }
        }
    }
}

/// The numbers of members and messages of a large team.
const MEMBERS: usize = 100;
const MESSAGES: usize = 10_000;

/// The maximum number of nodes that one update of a large team may add to the page or remove from it. To draw all its
/// messages anew would be thousands.
const MAX_REDRAWN: usize = 100;

/// A script that measures updates of a large team: a member changes, the file changes, a message arrives. Returns for
/// each update the nodes that it added and removed, and the milliseconds that it took.
const UPDATE: &str = "
  const drawn = [];
  const observer = new MutationObserver(() => {});
  observer.observe(document.body, { childList: true, subtree: true });
  const count = (nodes) => [...nodes].reduce((sum, node) => sum + 1 + (node.querySelectorAll?.('*').length ?? 0), 0);
  for (let round = 0; round < 40; round += 1) {
    const member = { ...members[round % members.length], unread: round, status: round % 2 ? 'working' : 'idle' };
    const message = { kind: 'mail', id: `round:${round}`, type: 'message', from: 'lead', to: member.name,
      content: 'How far are you?', timestamp: Date.now() / 1000, stage: 'appended' };
    const told = JSON.stringify([{ kind: 'config', at: 7 + round, gone: 1, lines: [`  \"round\": ${round},`] },
      { kind: 'members', members: [member] }, message]);
    const begin = performance.now();
    for (const change of JSON.parse(told)) applyChange(change, true);
    draw();
    document.body.offsetHeight;
    const took = performance.now() - begin;
    const changes = observer.takeRecords();
    const nodes = changes.reduce((sum, change) => sum + count(change.addedNodes) + count(change.removedNodes), 0);
    drawn.push([nodes, took]);
  }
  return drawn;
";

#[test]
#[ignore = "long: scripts/check --all runs it"]
fn an_update_of_a_large_team_draws_only_what_has_changed() {
    let Some(browser) = Browser::start() else { return };
    let team = Team::new();
    team.team(&["init"]).expect(0);
    let member = |number: usize| json!({ "name": format!("member-{number}"), "status": "idle" });
    let members: Vec<Value> = (0..MEMBERS).map(member).collect();
    let lead = json!({ "name": "lead", "status": "idle" });
    let roster = json!({ "version": 1, "team_name": "large", "lead": lead, "members": members });
    write(&team.path("config.json"), serde_json::to_string_pretty(&roster).unwrap());
    for number in 0..MEMBERS {
        let line = |index: usize| {
            let message = json!({ "type": "message", "from": "lead", "id": format!("lead:{number}:{index}"),
                "content": format!("How far are you with part {index}?"), "timestamp": index });
            json!({ "kind": "mail", "at": index, "gen": "000000000001-00000000", "offset": index,
                "message": message })
            .to_string()
                + "\n"
        };
        let text: String = (0..MESSAGES / MEMBERS).map(line).collect();
        write(&team.path(&format!("transcript/member-{number}.jsonl")), text);
    }
    let page = Page::open(&team, &[]);
    browser.call("POST", "/url", &json!({ "url": page.url() }));
    browser.wait("document.querySelectorAll('#roster button').length === 101");
    browser.wait("document.querySelectorAll('#mail li').length > 100");
    let drawn: Vec<(usize, f64)> = serde_json::from_value(browser.run(UPDATE)).unwrap();
    let mut took: Vec<f64> = drawn.iter().map(|(_, took)| *took).collect();
    took.sort_by(f64::total_cmp);
    eprintln!("an update takes {:.1} ms at best, {:.1} ms at the median", took[0], took[20]);
    assert!(drawn.iter().all(|(nodes, _)| *nodes <= MAX_REDRAWN), "{drawn:?}");
    assert_eq!(browser.complaints(), Vec::<Value>::new(), "the console complains");
    drop(browser);
    page.close();
}
