// The events of the server and the actions of the person.
let selected = "lead";
let members = [];
let messages = new Map();
let dirty = new Set();
let moved = new Set();
let talk = null;
// The time of the last event, and of the loss of the connection, in milliseconds; 0 if there was none.
let lastHeard = 0;
let lostAt = 0;

// A person's choice. In a narrow window the conversation is far below the members.
function choose(name) {
  select(name);
  if (!matchMedia("(max-width: 48rem)").matches) return;
  byId("h-talk").scrollIntoView({ behavior: reducedMotion.matches ? "auto" : "smooth", block: "start" });
}

function select(name) {
  selected = name;
  byId("h-talk").replaceChildren("Conversation of ", who(name));
  const agent = callerOf(name);
  byId("to").value = agent;
  byId("stop").disabled = agent === "lead";
  byId("stop").textContent = visibleText("Stop " + agent);
  if (lastHeard) drawRoster(members);
  talk?.close();
  const log = byId("talk");
  log.replaceChildren();
  talk = new EventSource(address("conversation", { name }));
  talk.onopen = () => log.replaceChildren();
  talk.onmessage = (event) => {
    const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
    log.append(...JSON.parse(event.data).lines.slice(-400).map(drawLine).filter(Boolean));
    while (log.children.length > 600) log.firstChild.remove();
    if (atEnd) log.scrollTop = log.scrollHeight;
  };
}

function applyChange(change, isNew) {
  if (change.kind === "team" || change.kind === "members") {
    const changed = new Map(change.members.map((member) => [member.name, member]));
    members = change.kind === "team" ? change.members : members.map((member) => changed.get(member.name) ?? member);
    for (const member of change.members) if (member.color) COLOURS.set(member.name, member.color);
    dirty.add("team");
  } else if (change.kind === "config") applyConfig(change, isNew);
  else if (change.kind === "tasks") drawTasks(change.tasks);
  else if (change.kind === "requests") drawRequests(change.requests);
  else if (change.kind === "usage") {
    addCall(change);
    dirty.add("chart");
  } else if (change.kind === "mail") addMessage(change, isNew);
}

function addMessage(message, isNew) {
  const known = messages.get(message.id);
  if (known) {
    if (STAGES.indexOf(message.stage) > STAGES.indexOf(known.stage)) known.stage = message.stage;
  } else {
    messages.set(message.id, message);
    if (messages.size > 1000) messages.delete(messages.keys().next().value);
    if (isNew) byId("heard").textContent = visibleText(`${message.from} to ${message.to}: ${cut(message.content, 120)}`);
  }
  const whole = known || message;
  moved.add(whole);
  if (isNew) move(whole, STAGES.indexOf(whole.stage));
}

function draw() {
  if (dirty.has("team")) {
    drawRoster(members);
    drawFlow(members);
  }
  if (dirty.has("chart")) drawChartSoon();
  if (dirty.has("config")) showConfig();
  if (moved.size) drawMail(messages, moved);
  dirty = new Set();
  moved = new Set();
}

function connect() {
  const stream = new EventSource(address("events"));
  let isNew = false;
  stream.onopen = () => { isNew = false; };
  stream.onerror = () => {
    if (lastHeard) lostAt ||= Date.now();
    showLink();
    if (lastHeard) drawRoster(members);
    // The browser tries again by itself, but not after a refusal.
    if (stream.readyState === EventSource.CLOSED) setTimeout(connect, 3000);
  };
  stream.onmessage = (event) => {
    lastHeard = Date.now();
    lostAt = 0;
    showLink();
    if (!isNew) {
      messages = new Map();
      calls = [];
      configLines = [];
      byId("config").replaceChildren();
      rows.clear();
      byId("mail").replaceChildren();
      dirty.add("team");
    }
    const changes = JSON.parse(event.data);
    for (const change of changes) if (change.kind !== "mail") applyChange(change, isNew);
    // The server reads messages file by file, not in the order of their times.
    for (const mail of changes.filter((change) => change.kind === "mail").sort(byTime)) applyChange(mail, isNew);
    draw();
    if (!isNew) {
      byId("no-mail").hidden = messages.size > 0;
      drawChart();
    }
    isNew = true;
    if (!talk) select("lead");
  };
}

// Says only what is known: nothing before the first event, and the time of the loss after it.
function showLink() {
  const link = byId("link");
  document.body.dataset.link = lostAt ? "lost" : lastHeard ? "live" : "connecting";
  link.className = lastHeard && !lostAt ? "live" : "";
  const retry = "trying again; if team web was restarted, open its new address";
  link.replaceChildren(...(lostAt
    ? [`no connection since ${new Date(lostAt).toLocaleTimeString()} (`, el("span", { "data-since": lostAt / 1000 }, age(lostAt / 1000)), `), ${retry}`]
    : lastHeard ? [mayControl ? "live, with control" : "live, read-only"] : [`no connection yet, ${retry}`]));
}

async function showSteps(id) {
  location.hash = "#steps";
  const which = byId("which");
  const last = [...messages.values()].sort(byTime).slice(-200).reverse();
  which.replaceChildren(...last.map((message) => el("option", { value: message.id },
    `${message.from} → ${message.to}: ${cut(message.content.replace(/\s+/g, " "), 60)}`)));
  const chosen = id || which.value || last[0]?.id;
  if (!chosen) {
    drawSteps(undefined, []);
    return;
  }
  which.value = chosen;
  const answer = await fetch(address("trace", { id: chosen }));
  drawSteps(messages.get(chosen), answer.ok ? (await answer.json()).steps : []);
}

function turnTo() {
  if (location.hash === "#main") return;
  const page = ["#steps", "#compare"].includes(location.hash) ? location.hash : "#team";
  for (const name of ["team", "steps", "compare"]) byId("page-" + name).hidden = page !== "#" + name;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href") === page) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (page === "#steps" && !byId("steps").children.length) showSteps();
}

function say(text, bad) {
  byId("said").textContent = visibleText(text);
  byId("said").className = bad ? "bad" : "";
}

async function send(event) {
  event?.preventDefault();
  const text = byId("text").value.trim();
  if (!text) return;
  try {
    await order({ do: "send", to: byId("to").value, text });
    byId("text").value = "";
    say("Stored in the inbox.");
  } catch (why) {
    say(why.message, true);
  }
}

async function stop() {
  const name = callerOf(selected);
  const sure = byId("sure");
  byId("h-sure").textContent = visibleText(`Stop ${name}?`);
  sure.returnValue = "no";
  sure.showModal();
  await new Promise((closed) => sure.addEventListener("close", closed, { once: true }));
  if (sure.returnValue !== "yes") return;
  say(`Stopping ${name} …`);
  try {
    say(await order({ do: "stop", name }));
  } catch (why) {
    say(why.message, true);
  }
}

async function spawn(event) {
  event.preventDefault();
  const value = (field) => byId("spawn-" + field).value.trim();
  const [name, role, prompt] = ["name", "role", "prompt"].map(value);
  const tell = (text, bad) => {
    byId("spawned").textContent = visibleText(text);
    byId("spawned").className = bad ? "bad" : "";
  };
  const button = byId("spawn").querySelector("[type=submit]");
  button.disabled = true;
  tell(`Starting ${name} …`);
  try {
    tell(await order({ do: "spawn", name, role, prompt, model: value("model") || null, mode: value("mode") || null }));
    for (const field of ["name", "role", "prompt"]) byId("spawn-" + field).value = "";
  } catch (why) {
    tell(why.message, true);
  }
  button.disabled = false;
}

async function answer(button, what) {
  for (const other of button.parentElement.children) other.disabled = true;
  try {
    say(await order(what));
  } catch (why) {
    say(why.message, true);
    drawRequests(openRequests);
  }
}

function dark() {
  return (document.documentElement.style.colorScheme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
}
function nameTheme() { byId("theme").textContent = dark() ? "Light" : "Dark"; }
byId("theme").addEventListener("click", () => {
  document.documentElement.style.colorScheme = dark() ? "light" : "dark";
  nameTheme();
});

setInterval(() => {
  if (document.hidden) return;
  for (const at of document.querySelectorAll("[data-since]")) at.textContent = age(at.dataset.since);
}, 1000);
addEventListener("hashchange", turnTo);
byId("which").addEventListener("change", () => showSteps(byId("which").value));
byId("again").addEventListener("click", () => showSteps(byId("which").value));
byId("write").hidden = !mayControl;
byId("spawning").hidden = !mayControl;
byId("spawn").addEventListener("submit", spawn);
byId("write").addEventListener("submit", send);
byId("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) send(event);
});
byId("stop").addEventListener("click", stop);
setInterval(() => { if (!document.hidden && lastHeard) drawRoster(members); }, 5000);
nameTheme();
turnTo();
connect();
