"use strict";
// Words from members reach the page as text nodes only, and only through plain().
const token = new URLSearchParams(location.search).get("token") || "";
const mayControl = document.body.dataset.access === "control";
const byId = (id) => document.getElementById(id);
const STAGES = ["sent", "appended", "claimed", "acknowledged", "answered"];
const still = matchMedia("(prefers-reduced-motion: reduce)");

// Controls become signs one can see: nothing of them acts, nothing of them hides.
function plain(value) {
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
  const made = document.createElement(name);
  dress(made, about);
  made.append(...inside.map((it) => (it instanceof Node ? it : document.createTextNode(plain(it)))));
  return made;
}

function svg(name, about, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  dress(made, about);
  if (text !== undefined) made.textContent = plain(text);
  return made;
}

function dress(made, about) {
  for (const [key, value] of Object.entries(about || {})) {
    if (value === undefined || value === false) continue;
    if (typeof value === "function") made.addEventListener(key, value);
    else made.setAttribute(key, value === true ? "" : value);
  }
}

const COLOURS = new Map([["lead", "lead"], ["user", "user"]]);
function shade(name) {
  const colour = COLOURS.get(name) || "";
  return /^[a-z_]+$/.test(colour) ? "c-" + colour : "";
}
const who = (name) => el("bdi", { class: "who " + shade(name) }, name);
const clock = (at) => (at ? new Date(at * 1000).toLocaleTimeString() : "");
const count = (number) => number.toLocaleString("en");
const money = (amount) => amount.toFixed(amount < 1 ? 4 : 2);
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
  const answer = await fetch(address("orders"), {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(what),
  });
  const told = await answer.json();
  if (!answer.ok) throw new Error([told.error, told.why, told.hint].filter(Boolean).join(": "));
  return told.said;
}
