"use strict";
// Untrusted text becomes a text node, and passes visibleText() first.
const token = new URLSearchParams(location.search).get("token") || "";
const mayControl = document.body.dataset.access === "control";
const byId = (id) => document.getElementById(id);
const STAGES = ["sent", "appended", "claimed", "acknowledged", "answered"];
const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");

// Replaces control and invisible characters by visible signs.
function visibleText(value) {
  return String(value ?? "").replace(
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff0-\ufffb]|[\u{e0000}-\u{e0fff}]/gu,
    (c) => {
      const code = c.codePointAt(0);
      if (c === "\r") return "";
      if (code < 0x20) return String.fromCodePoint(0x2400 + code);
      return "‹U+" + code.toString(16).toUpperCase().padStart(4, "0") + "›";
    });
}

function el(name, about, ...inside) {
  const element = document.createElement(name);
  setAttributes(element, about);
  element.append(...inside.map((it) => (it instanceof Node ? it : document.createTextNode(visibleText(it)))));
  return element;
}

function svg(name, about, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  setAttributes(element, about);
  if (text !== undefined) element.textContent = visibleText(text);
  return element;
}

function setAttributes(element, about) {
  for (const [key, value] of Object.entries(about || {})) {
    if (value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(key, value);
    else element.setAttribute(key, value === true ? "" : value);
  }
}

const COLOURS = new Map([["lead", "lead"], ["user", "user"]]);
function colourClass(name) {
  const colour = COLOURS.get(name) || "";
  return /^[a-z_]+$/.test(colour) ? "c-" + colour : "";
}
const who = (name) => el("bdi", { class: "who " + colourClass(name) }, name);
// Returns the agent that a subagent works for; an agent is its own.
const callerOf = (name) => name.split(":")[0];
const clock = (at) => (at ? new Date(at * 1000).toLocaleTimeString() : "");
// Returns the time of day, with the date if that is another day.
function moment(at) {
  if (!at) return "";
  const isToday = new Date(at * 1000).toDateString() === new Date().toDateString();
  return isToday ? clock(at) : new Date(at * 1000).toLocaleString();
}
const count = (number) => number.toLocaleString("en");
// Amounts are estimates in dollars.
const money = (amount) => "~$" + amount.toFixed(amount < 1 ? 4 : 2);
const cut = (text, length) => (text.length > length ? text.slice(0, length - 1) + "…" : text);

function age(since) {
  const seconds = Math.max(0, Math.round(Date.now() / 1000 - since));
  if (seconds < 60) return seconds + " s";
  if (seconds < 3600) return Math.floor(seconds / 60) + " min";
  if (seconds < 86400) return Math.floor(seconds / 3600) + " h";
  return Math.floor(seconds / 86400) + " d";
}

const address = (path, query) => path + "?" + new URLSearchParams({ token, ...query });

async function order(what) {
  const response = await fetch(address("orders"), {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(what),
  });
  const result = await response.json();
  if (!response.ok) throw new Error([result.error, result.why, result.hint].filter(Boolean).join(": "));
  return result.said;
}
