// The usage over time: money if prices are known, else tokens. One line is the team, the others the largest users.
let calls = [];
let chartTimer = 0;

function addCall(call) {
  const last = calls.at(-1);
  calls.push(call);
  if (last && last.at > call.at) calls.sort((a, b) => a.at - b.at);
}

// A busy team makes many model calls per second; the chart is drawn at most once per second.
function drawChartSoon() {
  chartTimer ||= setTimeout(() => {
    chartTimer = 0;
    drawChart();
  }, 1000);
}

function drawChart() {
  const picture = byId("chart");
  const legend = byId("legend");
  if (!calls.length) {
    picture.replaceChildren(svg("text", { x: 320, y: 100, "text-anchor": "middle" }, "No model calls yet."));
    legend.replaceChildren();
    return;
  }
  const priced = calls.filter((call) => call.cost !== undefined);
  const inMoney = priced.length > 0;
  const [worth, told] = inMoney
    ? [(call) => call.cost ?? 0, money]
    : [(call) => call.input + call.output, count];
  const heading = inMoney ? "Cost over time" : "Tokens over time";
  byId("h-chart").textContent = heading;
  byId("unpriced").textContent = !inMoney ? "No price is known: set [models] in the settings to see money here."
    : priced.length < calls.length ? `${count(calls.length - priced.length)} calls of models without a price are left out.`
    : "An estimate in dollars, by your prices or the table that `team models` shows.";
  const first = calls[0].at;
  const last = Math.max(calls.at(-1).at, first + 1);
  const all = [];
  const lines = new Map();
  let total = 0;
  for (const call of calls) {
    total += worth(call);
    all.push([call.at, total]);
    const line = lines.get(call.name) ?? [];
    line.push([call.at, (line.at(-1)?.[1] ?? 0) + worth(call)]);
    lines.set(call.name, line);
  }
  const sum = (name) => lines.get(name).at(-1)[1];
  const x = (at) => Math.round(50 + ((at - first) / (last - first)) * 575);
  const y = (value) => (170 - (value / (total || 1)) * 150).toFixed(1);
  const path = (points) => {
    const steps = new Map();
    for (const [at, value] of points) steps.set(x(at), y(value));
    return [...steps].reduce((text, [at, level], n) =>
      text + (n ? `H${at}V${level}` : `M${at} ${y(0)}V${level}`), "") + "H625";
  };
  const drawn = [];
  for (const part of [0, 0.5, 1]) {
    const level = y(total * part);
    drawn.push(svg("line", { class: "axis", x1: 50, x2: 625, y1: level, y2: level }));
    drawn.push(svg("text", { x: 44, y: Number(level) + 4, "text-anchor": "end" }, inMoney ? money(total * part) : short(total * part)));
  }
  drawn.push(svg("text", { x: 50, y: 190 }, clock(first)));
  drawn.push(svg("text", { x: 625, y: 190, "text-anchor": "end" }, clock(last)));
  const most = [...lines.keys()].sort((a, b) => sum(b) - sum(a)).slice(0, 10);
  for (const name of most) drawn.push(svg("path", { class: "one " + colourClass(name), d: path(lines.get(name)) }));
  drawn.push(svg("path", { class: "total", d: path(all) }));
  picture.replaceChildren(...drawn);
  const parts = [...most.map((name) => [name, sum(name)]), ["all", total]];
  picture.setAttribute("aria-label", `${heading}: ` + parts.map(([name, used]) => `${name} ${told(used)}`).join(", "));
  legend.replaceChildren(...parts.map(([name, used]) =>
    el("li", {}, name === "all" ? el("strong", {}, "all") : who(name), " " + told(used))));
}

function short(value) {
  if (value >= 1e6) return (value / 1e6).toFixed(1) + "M";
  if (value >= 1e3) return (value / 1e3).toFixed(1) + "k";
  return String(Math.round(value));
}
