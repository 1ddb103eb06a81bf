// The two lessons that need no team: a recorded message on its way through the files, and six decisions.

// The lines are from a run of the rehearsal model; ids are shortened.
const EXAMPLE_CALL = '{"kind":"assistant","at":1795399408.604,"blocks":[{"type":"tool_use","id":"rehearsal-2","name":"send_message","input":{"to":"bob","content":"Hello bob, this is alice."}}],"stop_reason":"tool_use","model":"rehearsal"}';
const EXAMPLE_LINE = '{"type":"message","from":"alice","to":"bob","content":"Hello bob, this is alice.","timestamp":1795399408.605,"id":"alice:rehearsal-2"}';
const EXAMPLE_MAIL = `{"kind":"mail","at":1795399408.606,"gen":"000000000002-eef6ab25","offset":0,"message":${EXAMPLE_LINE}}`;
const CLAIM = "inbox/.claim/bob.000000000002-eef6ab25";
// Each step: its name, what happens, and the files that differ afterwards; null removes a file.
const EXAMPLE = [
  ["Send", "The model of alice calls send_message. The call is in her transcript, synced, before anything else happens: after a crash she knows what she was about to do.",
    { "transcript/alice.jsonl": EXAMPLE_CALL, "inbox/.lock/bob": "free", "inbox/bob.jsonl": "", "transcript/bob.jsonl": "" }],
  ["Lock", "Alice takes the side lock of bob's inbox. Other senders wait for her, at most for a short time; if she dies, the kernel frees the lock.",
    { "inbox/.lock/bob": "held by alice" }],
  ["Append", "While she holds the lock, she checks that bob can be reached, and appends one line with one write.",
    { "inbox/bob.jsonl": EXAMPLE_LINE }],
  ["Stored", "She frees the lock and syncs the file. Only now is the message reported as sent: it survives a power failure.",
    { "inbox/.lock/bob": "free" }],
  ["Drain", "Bob holds the lock for a moment, links his inbox into a claim, and renames an empty file over it. No byte is copied, and the next message has a place at once.",
    { [CLAIM]: EXAMPLE_LINE, "inbox/bob.jsonl": "" }],
  ["Acknowledge", "Bob writes the line into his transcript, with claim and offset, and syncs it. From here on he has received it, exactly once, whatever crashes; his next request to the model contains it.",
    { "transcript/bob.jsonl": EXAMPLE_MAIL, [CLAIM]: null, [CLAIM + ".taken"]: EXAMPLE_LINE }],
  ["Clean up", "When no late writer can have the claim open any more, it is removed. The message stays in the transcript, where you can search it.",
    { [CLAIM + ".taken"]: null }],
];

let exampleStep = 0;
let exampleTimer = 0;

function exampleFiles(step) {
  const files = new Map();
  for (const [, , changes] of EXAMPLE.slice(0, step + 1)) {
    for (const [file, text] of Object.entries(changes)) {
      if (text === null) files.delete(file);
      else files.set(file, text);
    }
  }
  return files;
}

function drawExample() {
  const [name, words, changes] = EXAMPLE[exampleStep];
  byId("example-step").replaceChildren(el("strong", {}, `${exampleStep + 1} of ${EXAMPLE.length}: ${name}. `), words);
  const shown = [...exampleFiles(exampleStep)].map(([file, text]) => {
    const isFresh = exampleStep > 0 && file in changes;
    return el("li", { class: isFresh && "fresh" }, el("code", {}, file), isFresh ? el("span", { class: "chip" }, "changed") : "",
      el("pre", {}, text || "(empty)"));
  });
  const removed = Object.keys(changes).filter((file) => changes[file] === null);
  byId("example-files").replaceChildren(...shown,
    ...removed.map((file) => el("li", { class: "muted" }, el("code", {}, file), " is gone")));
  byId("example-back").disabled = exampleStep === 0;
  byId("example-next").disabled = exampleStep === EXAMPLE.length - 1;
  byId("example-play").textContent = exampleTimer ? "Pause" : "Play";
}

function goInExample(by) {
  exampleStep = Math.min(Math.max(exampleStep + by, 0), EXAMPLE.length - 1);
  if (exampleStep === EXAMPLE.length - 1) stopExample();
  drawExample();
}

function stopExample() {
  clearInterval(exampleTimer);
  exampleTimer = 0;
}

byId("example-back").addEventListener("click", () => { stopExample(); goInExample(-1); });
byId("example-next").addEventListener("click", () => { stopExample(); goInExample(1); });
byId("example-play").addEventListener("click", () => {
  if (exampleTimer) stopExample();
  else {
    if (exampleStep === EXAMPLE.length - 1) exampleStep = 0;
    exampleTimer = setInterval(() => goInExample(1), 2500);
  }
  drawExample();
});
drawExample();

// Each scenario: the situation, the better choice, and the reason.
const SCENARIOS = [
  ["You want to know which function parses the date in a log line.", "subagent",
    "One lookup, one answer: nothing of the search is needed afterwards."],
  ["Every change of this week needs a review by someone who remembers the earlier ones.", "teammate",
    "The reviewer needs a memory that outlives one call."],
  ["Five parts of the code are to be searched at the same time; the results are merged once.", "subagent",
    "The searches do not talk to each other and end with their result, so they need neither mail nor a longer life."],
  ["One agent writes the backend and one the frontend, and they must agree on the interface between them.", "teammate",
    "They negotiate: both must live, and write to each other, until the interface holds."],
  ["One question about a log file of 200,000 lines.", "subagent",
    "The file fills a conversation that is thrown away; you keep the answer and your own context."],
  ["For some hours, an agent is to react to each failing build and tell the author.", "teammate",
    "It waits idle between events, at no cost, and acts by itself when one arrives."],
];
const chosen = new Map();

function drawScore() {
  const right = [...chosen].filter(([n, choice]) => SCENARIOS[n][1] === choice).length;
  byId("score").textContent = chosen.size === 0 ? "No answer yet."
    : chosen.size < SCENARIOS.length ? `${right} of ${chosen.size} right so far.`
    : `${right} of ${SCENARIOS.length} right.` + (right === SCENARIOS.length ? " You would spawn the right ones." : "");
}

function scenarioRow([situation, better, why], n) {
  const verdict = el("p", { class: "verdict", role: "status" });
  const choice = (word) => {
    const input = el("input", { type: "radio", name: "scenario-" + n, value: word, change: () => {
      chosen.set(n, word);
      verdict.className = "verdict " + (word === better ? "right" : "wrong");
      verdict.textContent = (word === better ? "Right: a " : "Rather a ") + better + ". " + why;
      drawScore();
    } });
    return el("label", {}, input, " a " + word);
  };
  return el("li", {}, el("fieldset", {}, el("legend", {}, situation),
    el("div", { class: "pair" }, choice("subagent"), choice("teammate")), verdict));
}

byId("scenarios").replaceChildren(...SCENARIOS.map(scenarioRow));
byId("score-again").addEventListener("click", () => {
  chosen.clear();
  byId("scenarios").replaceChildren(...SCENARIOS.map(scenarioRow));
  drawScore();
});
drawScore();
