// Tokens over time: the sum of the team, and a line for each member.
function drawChart(calls, seats) {
  const picture = byId("chart");
  const legend = byId("legend");
  if (!calls.length) {
    picture.replaceChildren(svg("text", { x: 320, y: 100, "text-anchor": "middle" }, "No model was asked yet."));
    legend.replaceChildren();
    return;
  }
  const sorted = [...calls].sort((a, b) => a.at - b.at);
  const first = sorted[0].at;
  const last = Math.max(sorted.at(-1).at, first + 1);
  const sums = new Map();
  const lines = new Map();
  let total = 0;
  const whole = [];
  for (const call of sorted) {
    const used = call.input + call.output;
    total += used;
    whole.push([call.at, total]);
    sums.set(call.name, (sums.get(call.name) || 0) + used);
    if (!lines.has(call.name)) lines.set(call.name, []);
    lines.get(call.name).push([call.at, sums.get(call.name)]);
  }
  const x = (at) => 50 + ((at - first) / (last - first)) * 575;
  const y = (value) => 170 - (value / Math.max(total, 1)) * 150;
  const path = (points) => points.reduce((text, [at, value], n) =>
    text + (n ? `H${x(at).toFixed(1)}V${y(value).toFixed(1)}` : `M${x(at).toFixed(1)} ${y(0)}V${y(value).toFixed(1)}`), "") + "H625";
  const drawn = [];
  for (const part of [0, 0.5, 1]) {
    const level = y(total * part);
    drawn.push(svg("line", { class: "axis", x1: 50, x2: 625, y1: level, y2: level }));
    drawn.push(svg("text", { x: 44, y: level + 4, "text-anchor": "end" }, short(total * part)));
  }
  drawn.push(svg("text", { x: 50, y: 190 }, clock(first)));
  drawn.push(svg("text", { x: 625, y: 190, "text-anchor": "end" }, clock(last)));
  const most = [...lines].sort((a, b) => sums.get(b[0]) - sums.get(a[0])).slice(0, 10);
  for (const [name, points] of most) drawn.push(svg("path", { class: "one " + shade(name), d: path(points) }));
  drawn.push(svg("path", { class: "total", d: path(whole) }));
  picture.replaceChildren(...drawn);
  const parts = [...most.map(([name]) => [name, sums.get(name)]), ["all", total]];
  picture.setAttribute("aria-label", "Tokens used: " + parts.map(([name, sum]) => `${name} ${count(sum)}`).join(", "));
  legend.replaceChildren(...parts.map(([name, sum]) =>
    el("li", {}, name === "all" ? el("strong", {}, "all") : who(name), " " + count(sum))));
}

function short(value) {
  if (value >= 1e6) return (value / 1e6).toFixed(1) + "M";
  if (value >= 1e3) return (value / 1e3).toFixed(1) + "k";
  return String(Math.round(value));
}
