// The content of the cards.
const memberRows = new Map();

// Only changed members are redrawn: a team may be large.
function drawRoster(members) {
  const names = new Set(members.map((member) => member.name));
  for (const [name, row] of memberRows) {
    if (!names.has(name)) {
      row.remove();
      memberRows.delete(name);
    }
  }
  const focused = document.activeElement?.dataset?.name;
  members.forEach((member, n) => {
    const key = JSON.stringify([member, callerOf(selected) === member.name && selected]);
    const known = memberRows.get(member.name);
    if (known?.key !== key) {
      const row = memberRow(member);
      row.key = key;
      memberRows.set(member.name, row);
      known?.remove();
    }
    const list = byId("roster");
    const row = memberRows.get(member.name);
    if (list.children[n] !== row) list.insertBefore(row, list.children[n] ?? null);
  });
  if (focused && document.activeElement?.dataset?.name !== focused) [...byId("roster").querySelectorAll("button")].find((row) => row.dataset.name === focused)?.focus();
  const used = members.reduce((sum, { usage }) => sum + usage.input_tokens + usage.output_tokens, 0);
  const costs = members.map(({ usage }) => usage.cost).filter((cost) => cost !== undefined);
  const live = members.filter((member) => member.alive).length;
  const then = lostAt ? `at ${new Date(lostAt).toLocaleTimeString()}: ` : "";
  byId("totals").textContent = `${then}${live} of ${members.length} alive · ${count(used)} tokens`
    + (costs.length ? ` · cost ${money(costs.reduce((sum, cost) => sum + cost, 0))}` : "");
  const to = byId("to");
  const known = [...members.map((member) => member.name), "all"];
  if (to.dataset.names !== known.join()) {
    to.dataset.names = known.join();
    const chosen = to.value;
    to.replaceChildren(...known.map((name) => el("option", { value: name }, name === "all" ? "everybody" : name)));
    to.value = known.includes(chosen) ? chosen : callerOf(selected);
  }
}

function memberRow(member) {
  const { input_tokens, output_tokens, cost } = member.usage;
  const doing = (!member.alive && member.ended) || member.activity || member.role;
  const unread = member.unread ? el("span", { class: "chip" }, member.unread + " unread") : "";
  const used = ` · ${count(input_tokens + output_tokens)} tokens` + (cost === undefined ? "" : ` · cost ${money(cost)}`) + " · ";
  return el("li", {}, el("button", {
    type: "button", class: colourClass(member.name), "data-name": member.name,
    "aria-pressed": String(member.name === selected), click: () => choose(member.name),
  },
    el("span", { class: "row" }, who(member.name), el("span", { class: "chip s-" + member.status }, member.status), unread),
    el("small", {}, el("bdi", {}, cut(doing, 120))),
    el("small", {}, "since ", el("span", { "data-since": member.since }, age(member.since)), used, el("bdi", {}, member.model))),
    ...(member.subagents ?? []).map((subagent) => branch(subagent, member.name)));
}

// A subagent that works, below its caller.
function branch({ id, doing }, caller) {
  return el("button", {
    type: "button", class: "branch " + colourClass(caller), "data-name": id,
    "aria-pressed": String(id === selected), click: () => choose(id),
  }, el("small", {}, "└ ", el("bdi", {}, id), " ", el("bdi", {}, cut(doing, 80))));
}

let configLines = [];

// Applies a change to the lines of the roster file; changed lines are marked.
function applyConfig({ at, gone, lines }, isNew) {
  const file = byId("config");
  for (const old of file.querySelectorAll(".fresh")) old.className = "";
  for (let n = 0; n < gone; n += 1) file.children[at]?.remove();
  const before = file.children[at] ?? null;
  for (const line of lines) file.insertBefore(el("span", { class: isNew && "fresh" }, line + "\n"), before);
  configLines.splice(at, gone, ...lines);
  dirty.add("config");
  byId("config-age").textContent = isNew ? "changed " + new Date().toLocaleTimeString() : "";
  if (!lines.some((line) => line.includes("team_name"))) return;
  try { byId("title").textContent = visibleText("team " + JSON.parse(configLines.join("\n")).team_name); } catch { /* written by hand */ }
}

function stageWords(stage) {
  const n = STAGES.indexOf(stage);
  return el("span", { class: "stage" }, el("span", { class: "pips", "aria-hidden": "true" },
    "●".repeat(n + 1) + "○".repeat(STAGES.length - n - 1)), " " + stage);
}

const hasArrived = (message) => STAGES.indexOf(message.stage) >= STAGES.indexOf("acknowledged");

function mailRow(message) {
  const kind = message.type === "message" ? "" : el("span", { class: "chip" }, cut(message.type, 30));
  return el("button", { type: "button", "data-id": message.id, click: () => showSteps(message.id) },
    stageWords(message.stage), el("span", {}, el("time", { class: "muted" }, moment(message.timestamp)), " ",
      who(message.from), " → ", who(message.to), " ", kind),
    el("span", { class: "one" }, el("bdi", {}, cut(message.content.replace(/\s+/g, " "), 200))));
}

const byTime = (a, b) => (a.timestamp ?? 0) - (b.timestamp ?? 0);

// The list is in the order of the times, newest first; a message that is read late has its place, too.
function drawMail(messages, moved) {
  const list = byId("mail");
  byId("no-mail").hidden = messages.size > 0;
  for (const message of [...moved].sort(byTime)) {
    const row = rows.get(message.id);
    if (row) {
      row.firstChild.firstChild.replaceWith(stageWords(message.stage));
      row.className = hasArrived(message) ? "arrived" : "";
      continue;
    }
    const made = el("li", { class: hasArrived(message) && "arrived" }, mailRow(message));
    made.timestamp = message.timestamp ?? 0;
    rows.set(message.id, made);
    const older = [...list.children].find((other) => other.timestamp <= made.timestamp);
    list.insertBefore(made, older ?? null);
    while (list.children.length > 150) {
      rows.delete(list.lastChild.firstChild.dataset.id);
      list.lastChild.remove();
    }
  }
  let underway = 0;
  // A call that sends a message may still fail, so it does not count.
  for (const { stage } of messages.values()) if (stage === "appended" || stage === "claimed") underway += 1;
  byId("underway").textContent = underway ? `${count(underway)} on their way` : messages.size ? "all have arrived" : "";
}
const rows = new Map();

// The ids of the requests whose whole content the person has asked for.
const shownWhole = new Set();
const SHOWN_ROWS = 40;
const ROW_CHARACTERS = 200;
let openRequests = [];

function drawRequests(requests) {
  openRequests = requests;
  const open = new Set(requests.map(({ question }) => question.request_id));
  for (const id of shownWhole) if (!open.has(id)) shownWhole.delete(id);
  document.title = (requests.length ? `(${requests.length}) ` : "") + "team";
  byId("no-requests").hidden = requests.length > 0;
  byId("requests").replaceChildren(...requests.map(requestRow));
}

function requestRow({ from, decider, question, content }) {
  const id = question.request_id;
  const rows = content.flatMap((line) => line.match(new RegExp(`.{1,${ROW_CHARACTERS}}`, "gsu")) ?? [""]);
  const isCut = rows.length > SHOWN_ROWS && !shownWhole.has(id);
  const about = `${from}: ${cut(question.description, 60)}`;
  const ask = (word, what) => el("button", {
    type: "button", class: word === "Deny" && "quiet", "aria-label": `${word} ${about}`, "data-order": what,
    disabled: word === "Approve" && isCut,
    click: (event) => answer(event.currentTarget, { do: what, id }),
  }, word);
  const isHere = decider !== "user" || from === "lead";
  const buttons = !isHere ? el("span", { class: "small" }, "asks on its own terminal")
    : mayControl ? el("div", { class: "pair" }, ask("Approve", "approve"), ask("Deny", "deny"))
    : el("span", { class: "small" }, "answer it at the lead, or with team approve");
  return el("li", { "data-request": id }, who(from), " asks for ", el("span", { class: "chip s-waiting" }, question.tool),
    ...requestContent(rows, isCut, id, about), buttons);
}

// Leaves rows out of the middle, never at the end; a request is approved only after all of them were shown.
function requestContent(rows, isCut, id, about) {
  const part = (shown) => el("pre", {}, shown.join("\n"));
  const all = { role: "region", tabindex: "0", "aria-label": `What is asked by ${about}` };
  if (!isCut) return [rows.length > SHOWN_ROWS ? el("pre", { class: "whole", ...all }, rows.join("\n")) : part(rows)];
  const [head, tail] = [rows.slice(0, SHOWN_ROWS / 2), rows.slice(-SHOWN_ROWS / 2)];
  const showAll = () => {
    shownWhole.add(id);
    drawRequests(openRequests);
    [...byId("requests").children].find((row) => row.dataset.request === id)?.querySelector("pre").focus();
  };
  const left = `${count(rows.length - SHOWN_ROWS)} lines are left out here.`;
  const before = mayControl ? " Show them before you approve." : "";
  return [part(head), el("p", { class: "gap" }, left + before + " ",
    el("button", { type: "button", "aria-label": `Show all of ${about}`, click: showAll }, "Show all")), part(tail)];
}

function drawTasks(tasks) {
  byId("no-tasks").hidden = tasks.length > 0;
  byId("tasks").replaceChildren(...tasks.map((task) => el("li", {},
    el("span", { class: "chip s-" + task.status }, String(task.status).replaceAll("_", " ")), " ",
    el("bdi", {}, `${task.id} ${task.subject}`),
    task.owner ? el("span", { class: "small" }, task.status === "pending" ? "for " : "by ", who(task.owner)) : "",
    task.blocked_by?.length ? el("span", { class: "small" }, "after " + task.blocked_by.join(", ")) : "")));
}

// The files that have come with a message.
function attached(message) {
  const files = Array.isArray(message.attachments) ? message.attachments : [];
  return files.filter((file) => typeof file?.path === "string").map(({ path, bytes, missing }) =>
    el("div", { class: "small" }, el("bdi", {}, "attached: " + (missing
      ? path.split("/").pop() + ", which its host has no more"
      : `${path}, ${Number(bytes)} bytes`))));
}

function drawLine(line) {
  if (line.kind === "mail") {
    const { from, type, content } = line.message;
    return el("div", { class: "mail " + colourClass(from) }, el("div", {}, "✉ ", who(from ?? "unknown"), " ",
      type && type !== "message" ? el("span", { class: "chip" }, cut(String(type), 30)) : ""),
      el("div", { class: "text" }, typeof content === "string" ? content : JSON.stringify(line.message)),
      ...attached(line.message));
  }
  if (line.kind === "user") return el("div", { class: "person c-user" }, el("div", { class: "text" }, line.content));
  if (line.kind === "assistant") {
    const parts = line.blocks.map((block) => {
      if (block.type === "text") return el("div", { class: "text" }, block.text);
      if (block.type === "tool_use") return folded("calls " + block.name, JSON.stringify(block.input, null, 2));
      return "";
    });
    return el("div", { class: "said" }, ...parts);
  }
  if (line.kind === "tool_result") {
    const begin = cut(line.content.split("\n", 1)[0] || "(nothing)", 90);
    return folded((line.is_error ? "failed: " : "gave: ") + begin, line.content, line.is_error);
  }
  if (line.kind === "request") return el("div", { class: "mark" }, "asks for " + line.tool + ": " + line.description);
  if (line.kind === "subagent") {
    const look = selected === line.id ? line.id : el("button", { type: "button", class: "quiet", click: () => choose(line.id) }, line.id);
    return el("div", { class: "mark" }, "subagent ", look, ": ", el("bdi", {}, cut(line.task, 200)));
  }
  if (line.kind === "note") return el("div", { class: "mark" }, "note: " + line.content);
  if (line.kind === "model") return el("div", { class: "mark" }, "goes on with " + line.model);
  if (line.kind === "instructions") return el("div", { class: "mark" }, "was told the instructions in " + line.file);
  if (line.kind === "session") return el("div", { class: "mark" }, `began ${clock(line.at)} · process ${line.pid} · ${line.model}`);
  if (line.kind === "turn_end") return el("div", { class: "mark" }, `turn ${line.outcome} · ${clock(line.at)}`);
  return "";
}

function folded(title, text, bad) {
  return el("details", {}, el("summary", { class: bad ? "bad" : false }, title), el("pre", {}, text));
}

// Scrolls to the change, unless the person is reading.
function showConfig() {
  const file = byId("config");
  const fresh = file.querySelector(".fresh");
  if (fresh && !file.matches(":hover, :focus")) file.scrollTop = fresh.offsetTop - file.offsetTop - file.clientHeight / 3;
}

const STEPS = {
  sent: ["Sent", "The sender's model called send_message. The call is in the sender's transcript, synced, before the message leaves the process. A person or a shell has no transcript, so this step leaves no line."],
  appended: ["Appended", "Under the inbox's side lock, one line was appended in one write and synced. Only then does the send succeed."],
  claimed: ["Claimed", "The recipient renamed the inbox to a claim and created an empty inbox. No byte is copied, and senders never wait for a model."],
  acknowledged: ["Acknowledged", "The line is in the recipient's transcript, synced. From here on it is received, exactly once, whatever crashes; the claim is marked as taken and removed a little later."],
  answered: ["Answered", "The next request to the model was built from that transcript, so it contains the message. This is the model's reply."],
};

function drawSteps(message, proofs) {
  const furthest = Math.max(...proofs.map((shown) => STAGES.indexOf(shown.stage)), message ? STAGES.indexOf(message.stage) : -1);
  const taken = proofs.map(({ proof }) => proof).find((proof) => proof.claim);
  byId("steps").replaceChildren(...STAGES.map((stage, n) => {
    const here = proofs.filter((shown) => shown.stage === stage).map(({ proof }) => proof);
    const shown = here.map((proof) => el("div", {}, el("p", {}, el("code", {}, `${proof.file} line ${proof.line}`)),
      folded("show the line", pretty(proof.text))));
    const past = here.length ? "" : n > furthest ? "Not yet."
      : stage === "sent" ? "No call on disk: a person, a shell or the program wrote it."
      : taken && message && stage === "appended" ? `It was in inbox/${message.to}.jsonl, at byte ${taken.claim[1]} of the file that became the claim.`
      : taken && message ? `It was inbox/.claim/${message.to}.${taken.claim[0]}, removed since.`
      : "What it left was removed since.";
    return el("li", { class: n <= furthest ? "done" : "", "data-number": n + 1 },
      el("h3", {}, STEPS[stage][0]), el("p", {}, STEPS[stage][1]), ...shown, past ? el("p", { class: "muted" }, past) : "");
  }));
}

function pretty(text) {
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
}
