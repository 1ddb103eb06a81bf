// The members as a graph, with the messages that move between them.
const membersAt = new Map();
const memberGroups = new Map();
let flowNames = "";

// Only changed members are redrawn: a team may be large.
function drawFlow(members) {
  const names = [...members.map((member) => member.name), "user"];
  const picture = byId("flow");
  if (flowNames !== names.join()) {
    flowNames = names.join();
    placeMembers(names, picture);
  }
  const radius = names.length > 24 ? 7 : names.length > 12 ? 14 : 22;
  const known = new Map(members.map((member) => [member.name, member]));
  for (const name of names) {
    const member = known.get(name);
    const key = JSON.stringify([colourClass(name), member?.status, member?.alive, member?.unread]);
    const drawn = memberGroups.get(name);
    if (drawn?.key === key) continue;
    const group = memberGroup(name, member, radius);
    if (drawn) drawn.group.replaceWith(group);
    else picture.append(group);
    memberGroups.set(name, { key, group });
  }
  picture.setAttribute("aria-label",
    members.map((s) => `${s.name} ${s.status}, ${s.unread} unread`).join("; ") || "No members yet");
}

function placeMembers(names, picture) {
  const moving = [...picture.querySelectorAll(".dot, .ring")];
  membersAt.clear();
  memberGroups.clear();
  names.forEach((name, n) => {
    const turn = (n / names.length) * 2 * Math.PI - Math.PI / 2;
    membersAt.set(name, { x: 320 + 245 * Math.cos(turn), y: 150 + 112 * Math.sin(turn) });
  });
  const lead = membersAt.get("lead");
  const drawn = [];
  for (const [name, at] of membersAt) {
    if (lead && name !== "lead") drawn.push(svg("line", { class: "path", x1: lead.x, y1: lead.y, x2: at.x, y2: at.y }));
  }
  picture.replaceChildren(...drawn, ...moving);
}

function memberGroup(name, member, radius) {
  const at = membersAt.get(name);
  const gone = member && !member.alive;
  const group = svg("g", { class: `member ${colourClass(name)} ${gone ? "gone" : ""} ${member ? member.status : ""}` });
  group.append(svg("circle", { cx: at.x, cy: at.y, r: radius }));
  if (radius > 10) {
    group.append(svg("text", { x: at.x, y: at.y + 5 }, name[0].toUpperCase()));
    group.append(svg("text", { x: at.x, y: at.y + radius + 15 }, cut(name, 14)));
    if (member) group.append(svg("text", { class: "state", x: at.x, y: at.y + radius + 29 }, member.status));
  }
  if (member) {
    const t = tray(name);
    group.append(svg("rect", { class: "tray", x: t.x - 10, y: t.y - 8, width: 20, height: 16, rx: 3 }));
    if (member.unread) group.append(svg("text", { x: t.x, y: t.y + 4.5 }, member.unread));
  }
  return group;
}

function tray(name) {
  const at = membersAt.get(name);
  return { x: at.x + (membersAt.size > 24 ? 16 : 38), y: at.y };
}

const moves = new Map();

// Shows the stages up to `goal` one after the other, at a pace that a person can follow.
function move(message, goal) {
  if (reducedMotion.matches || document.hidden || !membersAt.has(message.from) || !membersAt.has(message.to)) return;
  const known = moves.get(message.id);
  if (known) {
    known.goal = Math.max(known.goal, goal);
    return;
  }
  if (moves.size > 40 || message.from === message.to) return;
  const state = { goal, step: -1 };
  moves.set(message.id, state);
  play(message, state);
}

async function play(message, state) {
  const dot = svg("circle", { class: "dot " + colourClass(message.from), r: 7, cx: 0, cy: 0 });
  byId("flow").append(dot);
  const place = (at) => `translate(${at.x}px, ${at.y}px)`;
  let from = membersAt.get(message.from);
  const quiet = Date.now() + 20000;
  while (state.step < 3 && Date.now() < quiet) {
    if (state.step >= state.goal) {
      await new Promise((again) => setTimeout(again, 100));
      continue;
    }
    state.step += 1;
    const to = state.step === 0 ? from : state.step === 1 ? tray(message.to) : membersAt.get(message.to);
    if (!to) break;
    const frames = state.step === 3
      ? [{ transform: place(to), opacity: 1 }, { transform: place(to), opacity: 0 }]
      : [{ transform: place(from) }, { transform: place(to) }];
    const time = [120, 650, 350, 300][state.step];
    if (state.step === 3) ring(message.to, to);
    await dot.animate(frames, { duration: time, easing: "ease-in-out", fill: "forwards" }).finished;
    from = to;
  }
  dot.remove();
  moves.delete(message.id);
}

function ring(name, at) {
  const made = svg("circle", { class: "ring " + colourClass(name), cx: at.x, cy: at.y, r: 24 });
  byId("flow").append(made);
  const frames = [{ opacity: 1, r: "22px" }, { opacity: 0, r: "38px" }];
  made.animate(frames, { duration: 600 }).finished.then(() => made.remove());
}
