// The page of a run. Everything that is shown comes from /state and /changes, and goes into the page as text, never as markup.
"use strict";

const EPOCHS_KEPT = 100, RESTORES_KEPT = 20, MOMENTS_KEPT = 300, POINTS_KEPT = 600, COLLAPSED_OVER = 60;
let data = null;
let chosen = {};          // region → epoch whose Gantt is shown
let wholeGraph = false;
let waiting = false;

// --- making things ---------------------------------------------------------------------------------------------------

function make(name, attributes, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key === "on") node.addEventListener("click", value);
    else if (value !== null && value !== undefined) node.setAttribute(key, value);
  }
  for (const child of children) if (child !== null && child !== undefined) node.append(child);
  return node;
}

function draw(name, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
  for (const child of children) node.append(child);
  return node;
}

function fill(id, ...children) {
  const place = document.getElementById(id);
  const active = document.activeElement, key = active && place.contains(active) ? active.dataset.key : null;
  place.replaceChildren(...children.filter((child) => child !== null));
  if (key) for (const node of place.querySelectorAll("[data-key]")) if (node.dataset.key === key) node.focus();
}

function table(heads, rows) {
  const cell = (name, value, head) => {
    const [text, kind] = Array.isArray(value) ? value : [value, null];
    return make(name, { class: kind || (head && head[1]) || null, scope: name === "th" ? "col" : null }, text);
  };
  return make("table", null,
    make("thead", null, make("tr", null, ...heads.map((head) => cell("th", head)))),
    make("tbody", null, ...rows.map((row) => make("tr", null, ...row.map((value, n) => cell("td", value, Array.isArray(heads[n]) ? heads[n] : null))))));
}

// --- numbers for people ----------------------------------------------------------------------------------------------

const count = (n) => n === null || n === undefined ? "—" : Math.round(n).toLocaleString("en");
const millis = (n) => n === null || n === undefined ? "—" : n < 10000 ? `${Math.round(n)} ms` : `${(n / 1000).toFixed(1)} s`;
const seconds = (n) => n === null || n === undefined ? "—" : n < 120 ? `${Number(n).toFixed(1)} s` : n < 7200 ? `${Math.round(n / 60)} min` : `${(n / 3600).toFixed(1)} h`;
function bytes(n) {
  if (n === null || n === undefined) return "—";
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (n < 1000 || unit === "GB") return unit === "B" || n >= 100 ? `${Math.round(n)} ${unit}` : `${n.toFixed(1)} ${unit}`;
    n /= 1000;
  }
}
const cut = (text, most) => text.length > most ? text.slice(0, most - 1) + "…" : text;
const clock = (wall) => new Date(wall * 1000).toLocaleTimeString("en-GB");
const eventTime = (s) => { const at = new Date(s * 1000); return s === null || s === undefined || isNaN(at) ? "—" : at.toISOString().slice(0, 19).replace("T", " "); };

// --- the parts of the page -------------------------------------------------------------------------------------------

function elements() { return Object.entries((data.status || {}).elements || {}); }
function regions() { return Object.entries((data.status || {}).regions || {}); }
const isAlive = () => data.standing && data.standing.alive;
const phaseOf = (region) => isAlive() || ["stopped", "parked", undefined].includes(region.phase) ? region.phase : "over";

function showHead() {
  const standing = data.standing || {}, status = data.status || {};
  const state = standing.state || "unknown";
  const kind = ["running", "ended", "starting"].includes(state) ? "good" : ["stopping", "no run yet"].includes(state) ? "costs" : "bad";
  const parked = regions().some(([, region]) => region.phase === "parked");
  const badge = document.getElementById("state");
  badge.className = `badge ${parked ? "bad" : kind}`;
  if (badge.textContent !== state) badge.textContent = state;
  const name = status.topology || (data.plan || {}).topology || "holdfast";
  document.getElementById("topology").textContent = name;
  document.title = `${parked ? "parked: " : ""}${name} – ${state}`;
  document.getElementById("since").textContent = status.uptime_s === undefined ? "" : `for ${seconds(status.uptime_s)}`;
  const owner = standing.owner || {};
  const who = standing.alive ? `run ${owner.token}, pid ${owner.pid} on ${owner.host}` : "no run is alive";
  document.getElementById("store").textContent = [standing.store, who, standing.problem].filter(Boolean).join(" · ");
  const said = regions().filter(([, region]) => region.reason).map(([region, of]) => `region ${region} (${phaseOf(of)}): ${of.reason}`);
  for (const [region, of] of regions()) {
    const under = of.under_way;
    if (under && isAlive() && under.seconds >= 2) said.push(`region ${region}: epoch ${under.epoch} has been under way for ${seconds(under.seconds)}, held up by ` +
      under.held_up_by.map((each) => [each.element, each.what].filter(Boolean).join(": ")).join("; "));
  }
  const reasons = document.getElementById("reasons");
  reasons.className = kind === "bad" || parked ? "bad" : "costs";
  if (reasons.textContent !== said.join("\n")) reasons.textContent = said.join("\n");
  fill("commands", ...(data.commands && standing.alive ? ["resume", "epoch", "stop"].map((name) =>
    make("button", { type: "button", "data-key": `command-${name}`, on: () => command(name) }, name)) : []));
}

async function command(name) {
  if (name === "stop" && !confirm("Establish a final epoch and end the run?")) return;
  const answer = await fetch(`command/${name}`, { method: "POST", headers: { "X-Holdfast": "command" } });
  document.getElementById("connection").textContent = answer.ok ? `${name}: asked` : await answer.text();
}

function curve(key, points) {
  const width = 190, height = 34, svg = draw("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  if (points.length < 2) return svg;
  const first = points[0].wall, last = points[points.length - 1].wall, top = Math.max(1, ...points.map((p) => p[key]));
  let line = [];
  const end = () => { if (line.length > 1) svg.append(draw("polyline", { points: line.join(" "), class: "curve" })); line = []; };
  points.forEach((p, n) => {
    if (n && p.wall - points[n - 1].wall > 10) end();   // nobody ran
    line.push(`${((p.wall - first) / (last - first || 1) * width).toFixed(1)},${(height - 2 - p[key] / top * (height - 4)).toFixed(1)}`);
  });
  end();
  return svg;
}

function showFigures() {
  const points = data.points, last = points[points.length - 1] || {};
  const figure = (name, text, key) => make("div", { class: "figure" }, name, make("b", { id: `figure-${key}` }, text), curve(key, points));
  const resets = regions().reduce((sum, [, region]) => sum + region.resets, 0);
  const lost = Object.values((data.status || {}).lost_rows || {}).reduce((sum, rows) => sum + rows, 0);
  fill("figures",
    figure("rows per second", count(isAlive() ? last.rows_per_s : 0), "rows_per_s"), figure("rows waiting in sources", count(last.lag_rows), "lag_rows"),
    figure("state", bytes(last.state_bytes), "state_bytes"),
    make("div", { class: "figure" }, "resets · rows lost", make("b", { class: lost ? "bad" : resets ? "costs" : "" }, `${count(resets)} · ${count(lost)}`)));
}

function showSources() {
  const rows = [], states = [], latest = {};
  for (const [, element] of elements()) for (const of of Object.values(element.state || {}))
    for (const [name, at] of Object.entries(of.event_times || {})) latest[name] = Math.max(at, latest[name] || -Infinity);
  for (const [, element] of elements()) {
    for (const [name, lag] of Object.entries(element.sources || {}))
      rows.push([name, count(lag.rows), count(isAlive() ? lag.rows_per_s : 0), count(lag.lag_rows), bytes(lag.lag_bytes), seconds(lag.lag_s), eventTime(latest[name])]);
    for (const [name, of] of Object.entries(element.state || {})) {
      const left = Object.entries((element.counts || {})[name] || {}).filter(([what]) => ["late", "malformed", "without_time", "errors", "dropped"].includes(what));
      states.push([name, bytes(of.bytes), count(of.rows), of.closed ? "the end" : eventTime(of.watermark), left.map(([what, n]) => `${count(n)} ${what.replace("_", " ")}`).join(", ")]);
    }
  }
  const n = (text) => [text, "number"];
  fill("sources", rows.length ? table(["source", n("rows"), n("rows/s"), n("waiting"), n("bytes"), n("since"), "event time"], rows) : make("p", { class: "dim" }, "no source has told anything yet"));
  fill("operators", states.length ? table(["operator", n("state"), n("rows"), "watermark", "left out"], states) : null);
}

function showSinks() {
  const written = {}, pending = {}, lost = (data.status || {}).lost_rows || {};
  for (const [, element] of elements()) Object.assign(written, element.sink_rows);
  for (const [, region] of regions()) for (const sink of region.sinks || []) pending[sink] = region.epoch > region.visible ? 1 : 0;
  const rows = ((data.plan || {}).sinks || []).map((each) => [each.sink, [each.guarantee, each.guarantee === "exactly-once" ? "good" : "costs"], count(written[each.sink]),
    [count(lost[each.sink] || 0), lost[each.sink] ? "bad number" : "number"], pending[each.sink] === undefined ? "—" : count(pending[each.sink]), each.visible, [each.reason, "words"]]);
  fill("sinks", table(["sink", "guarantee", ["rows", "number"], ["lost", "number"], ["pending epochs", "number"], "visible", "why"], rows));
}

function showLogs() {
  const logs = Object.entries((data.status || {}).logs || {});
  document.getElementById("logs-section").hidden = !logs.length;
  fill("logs", table(["log", ["rows", "number"], ["bytes", "number"], ["not read yet", "number"], "held by", "used by", "where"], logs.map(([name, log]) => {
    const behind = (at) => log.end > at ? `, ${count(log.end - at)} behind` : "";
    const held = Object.entries(log.held_by || {}).sort((a, b) => a[1] - b[1]).map(([who, at], n) => `${who} from row ${count(at)} on${behind(at)}${n === 0 ? " (holds retention)" : ""}`);
    const used = [["written by", log.written_by], ["read by", log.read_by]].filter(([, who]) => who && who.length).map(([how, who]) => `${how} ${who.join(", ")}`);
    return [name, count(log.rows), bytes(log.bytes), count(log.waiting), [log.problem || held.join("; ") || "nobody", "words"], [used.join("; ") || "a persisted stream", "words"], log.log];
  })));
}

// --- regions: epochs, and where the time of one went -----------------------------------------------------------------

function showRegions() {
  const names = new Set([...regions().map(([name]) => name), ...Object.keys(data.epochs)]);
  fill("regions", ...(names.size ? [...names].map(regionPart) : [make("p", { class: "dim" }, "this topology has no regions")]));
}

function regionPart(name) {
  const of = Object.fromEntries(regions())[name] || {}, epochs = [...(data.epochs[name] || [])].reverse().slice(0, 25);
  const idle = of.idle_since && isAlive(), age = idle ? ["idle since", `${clock(of.idle_since)}, nothing new`] : ["age", seconds(of.age_s)];
  const words = [["epoch", of.epoch], age, ["resets", of.resets], ["given up", of.epochs_aborted],
    ["restore", `${seconds(of.restore_s)} (predicted ${seconds(of.restore_predicted_s)}), next ${seconds(of.restore_next_s)}`]];
  const kind = of.phase === "parked" ? "bad" : "dim";
  const rows = epochs.map((epoch) => {
    const key = `${name}/${epoch.epoch}`, open = chosen[name] === epoch.epoch;
    const button = make("button", { type: "button", "data-key": key, "aria-expanded": String(open), on: () => { chosen[name] = open ? null : epoch.epoch; show(); } }, String(epoch.epoch));
    const form = [epoch.bases ? `${epoch.bases} base` : null, epoch.deltas ? `${epoch.deltas} delta` : null].filter(Boolean).join(", ") || "—";
    return [button, clock(epoch.wall), millis(epoch.ms), millis(epoch.visible_ms), bytes(epoch.bytes), bytes(epoch.whole_bytes), form, epoch.last || "—"];
  });
  const n = (text) => [text, "number"], restores = [...((data.restores || {})[name] || [])].reverse().slice(0, 10).map((each) =>
    [clock(each.wall), each.epoch, [seconds(each.s), each.within_s && each.s > each.within_s ? "bad number" : "number"], seconds(each.predicted_s), seconds(each.within_s), [each.because || "—", "words"]]);
  const shown = epochs.find((epoch) => epoch.epoch === chosen[name]);
  return make("article", { "data-region": name },
    make("h3", null, name, " ", make("span", { class: `badge ${kind}` }, idle ? "idle" : phaseOf(of) || "unknown")),
    make("p", { class: "dim" }, words.filter(([, value]) => value !== undefined).map(([word, value]) => `${word} ${value}`).join(" · ")),
    shown ? make("div", { class: "wide" }, gantt(shown)) : null,
    make("div", { class: "wide tall" }, rows.length ? table(["epoch", "published", n("took"), n("visible after"), n("added"), n("whole"), "stored as", "who was last"], rows) : make("p", { class: "dim" }, "no epoch yet")),
    restores.length ? make("div", { class: "wide" }, table(["restored", n("epoch"), n("took"), n("predicted"), n("allowed"), "because"], restores)) : null);
}

function gantt(epoch) {
  const parts = Object.entries(epoch.elements || {}), left = 170, width = 560, line = 22;
  if (!parts.length) return make("p", { class: "dim" }, "where its time went was not told");
  const end = Math.max(1, epoch.visible_ms || epoch.ms), x = (ms) => left + Math.max(0, ms) / end * width;
  const svg = draw("svg", { width: left + width + 20, height: (parts.length + 1) * line + 28, role: "img", "aria-label": `epoch ${epoch.epoch} in ${millis(end)}` });
  const bar = (row, from, to, kind, what) => {
    if (from === undefined || to === undefined) return;
    svg.append(draw("rect", { x: x(from), y: row * line + 4, width: Math.max(1, x(to) - x(from)), height: line - 8, class: kind },
      draw("title", null, `${what}: ${millis(to - from)}`)));
  };
  const label = (row, text) => svg.append(draw("text", { x: 0, y: row * line + 16 }, text.length > 24 ? text.slice(0, 23) + "…" : text));
  label(0, "region");
  bar(0, 0, epoch.published_ms, "publish", "until it is published");
  bar(0, epoch.published_ms, epoch.visible_ms, "show", "until its output is visible");
  parts.forEach(([name, of], n) => {
    label(n + 1, name);
    bar(n + 1, 0, of.begun ?? of.pinned, "rest", "has not heard of it yet, or is in a step");
    bar(n + 1, of.begun, of.pinned, "drain", "drain and pin");
    bar(n + 1, of.pinned, of.stored, "upload", "upload and acknowledge");
    bar(n + 1, of.stored, epoch.published_ms, "rest", "waits for the others");
  });
  const bottom = (parts.length + 1) * line + 4;
  svg.append(draw("line", { x1: left, x2: left + width, y1: bottom, y2: bottom, class: "axis" }));
  for (const share of [0, 0.5, 1]) svg.append(draw("text", { x: x(end * share), y: bottom + 16, class: "soft", "text-anchor": share === 1 ? "end" : share ? "middle" : "start" }, millis(end * share)));
  const legend = [["drain", "drain, pin"], ["upload", "upload, acknowledge"], ["rest", "waits"], ["publish", "published"], ["show", "visible"]];
  return make("figure", { class: "gantt" }, svg, make("figcaption", { class: "legend dim" }, ...legend.map(([kind, text]) => make("span", null, make("i", { class: kind }), text))));
}

// --- the graph: a band for each region, elements from left to right ---------------------------------------------------

function showGraph() {
  const plan = data.plan;
  if (!plan) return fill("graph", make("p", { class: "dim" }, "the store knows no graph yet"));
  const operators = operatorsOf(plan), large = operators.length > COLLAPSED_OVER, whole = !large || wholeGraph;
  const button = large ? make("button", { type: "button", "data-key": "whole", "aria-pressed": String(wholeGraph), on: () => { wholeGraph = !wholeGraph; show(); } },
    wholeGraph ? "collapse regions" : `show all ${operators.length} operators`) : null;
  const nodes = whole ? operators : collapsed(plan);
  fill("graph", button, drawn(nodes, edgesOf(plan, nodes), plan));
}

function operatorsOf(plan) {
  return plan.elements.flatMap((element) => element.operators.map((op) => ({ name: op.name, region: element.region, element: element.name, operators: [op] })));
}

function collapsed(plan) {
  const found = new Map();
  for (const element of plan.elements) {
    const name = element.region || element.name;
    if (!found.has(name)) found.set(name, { name, region: element.region, operators: [] });
    found.get(name).operators.push(...element.operators);
  }
  return [...found.values()];
}

function edgesOf(plan, nodes) {
  const home = Object.fromEntries(nodes.flatMap((node) => node.operators.map((op) => [op.name, node.name]))), seen = new Set();
  return (plan.edges || []).map((edge) => ({ source: home[edge.source], target: home[edge.target], control: edge.control }))
    .filter((edge) => { const key = `${edge.source}\n${edge.target}\n${edge.control}`; return edge.source && edge.target && edge.source !== edge.target && !seen.has(key) && seen.add(key); });
}

function layersOf(nodes, edges) {
  const layer = Object.fromEntries(nodes.map((node) => [node.name, 0]));
  for (let round = 0; round < nodes.length; round++) {   // a cycle goes through a control port, which does not count
    let moved = false;
    for (const edge of edges) if (!edge.control && layer[edge.target] <= layer[edge.source] && layer[edge.source] < nodes.length) { layer[edge.target] = layer[edge.source] + 1; moved = true; }
    if (!moved) break;
  }
  return layer;
}

function drawn(nodes, edges, plan) {
  const wide = 190, high = 58, gapX = 44, gapY = 14, layer = layersOf(nodes, edges);
  const bands = [...plan.regions.map((region) => region.name), null], place = {}, boxes = [];
  let y = 8;
  for (const band of bands) {
    const mine = nodes.filter((node) => (node.region || null) === band);
    if (!mine.length) continue;
    const slots = {}, top = y + (band ? 22 : 6);
    for (const node of mine) {
      const slot = slots[layer[node.name]] = (slots[layer[node.name]] ?? -1) + 1;
      place[node.name] = { x: 16 + layer[node.name] * (wide + gapX), y: top + slot * (high + gapY) };
    }
    const rows = 1 + Math.max(...Object.values(slots)), xs = mine.map((node) => place[node.name].x);
    const bottom = top + rows * (high + gapY);
    if (band) boxes.push({ band, x: Math.min(...xs) - 8, width: Math.max(...xs) - Math.min(...xs) + wide + 16, y, height: bottom - y });
    y = bottom + 12;
  }
  const width = 32 + (1 + Math.max(0, ...Object.values(layer))) * (wide + gapX), svg = draw("svg", { width, height: y, role: "img", "aria-label": "the graph" });
  const phases = Object.fromEntries(regions()), settings = Object.fromEntries(plan.regions.map((region) => [region.name, region]));
  for (const box of boxes) {
    const phase = phaseOf(phases[box.band] || {}), of = settings[box.band];
    svg.append(draw("rect", { x: box.x, y: box.y, width: box.width, height: box.height, rx: 8, class: `region ${phase === "parked" ? "parked" : ""}`, "data-region": box.band }));
    const words = `${box.band}${phase ? `: ${phase}` : ""} · ${of.mode}, ${of.trigger}`;
    svg.append(draw("text", { x: box.x + 8, y: box.y + 15, class: "soft" }, cut(words, Math.floor((box.width - 16) / 6.5)), draw("title", null, words)));
  }
  for (const edge of edges) {
    const a = place[edge.source], b = place[edge.target];
    if (!a || !b) continue;
    const x1 = a.x + wide, y1 = a.y + high / 2, x2 = b.x, y2 = b.y + high / 2, bend = Math.max(30, Math.abs(x2 - x1) / 2);
    svg.append(draw("path", { d: `M${x1},${y1} C${x1 + bend},${y1} ${x2 - bend},${y2} ${x2},${y2}`, class: `edge ${edge.control ? "control" : ""}` }));
  }
  const told = toldOf();
  for (const node of nodes) svg.append(nodeOf(node, place[node.name], told, wide, high));
  return svg;
}

// What is known of each operator: of sources, operators with state and sinks in words, and how often its element failed.
function toldOf() {
  const told = {}, add = (name, ...words) => (told[name] ||= []).push(...words);
  for (const [, element] of elements()) {
    for (const [name, of] of Object.entries(element.sources || {}))
      add(name, `${count(isAlive() ? of.rows_per_s : 0)} rows/s`, ...(of.lag_rows ? [`${count(of.lag_rows)} waiting`] : of.lag_bytes ? [`${bytes(of.lag_bytes)} waiting`] : []));
    for (const [name, of] of Object.entries(element.state || {})) add(name, `state ${bytes(of.bytes)}`);
    for (const [name, rows] of Object.entries(element.sink_rows || {})) add(name, `${count(rows)} rows`);
  }
  return told;
}

function nodeOf(node, at, told, wide, high) {
  const single = node.operators.length === 1;
  const words = single ? told[node.name] || [] : [`${node.operators.length} operators`];
  const element = Object.fromEntries(elements())[node.element] || {}, guarantee = ((data.plan.sinks || []).find((each) => each.sink === node.name) || {}).guarantee;
  const what = node.operators.map((op) => `${op.name}: ${op.what || op.kind}`).join("\n");
  return draw("g", { "data-operator": node.name },
    draw("title", null, [what, node.element ? `element ${node.element}` : null, element.waiting && isAlive() ? `waits for ${element.waiting}` : null].filter(Boolean).join("\n")),
    draw("rect", { x: at.x, y: at.y, width: wide, height: high, rx: 6, class: `node ${element.failures ? "failing" : ""}` }),
    draw("text", { x: at.x + 8, y: at.y + 17, "font-weight": "600" }, cut(node.name, 24)),
    draw("text", { x: at.x + 8, y: at.y + 33, class: "soft" }, cut(guarantee || (single ? node.operators[0].kind : node.region ? "region" : "outside of regions"), 26)),
    draw("text", { x: at.x + 8, y: at.y + 50 }, cut(words.join(" · "), 27)));
}

// --- what happened ----------------------------------------------------------------------------------------------------

function showMoments() {
  const only = document.getElementById("only-costs").checked, chosenMoments = data.moments.filter((moment) => !only || moment.level !== "plain");
  fill("timeline", chosenMoments.length ? timeline(chosenMoments) : null);
  fill("moments", ...[...chosenMoments].reverse().map((moment) => make("li", { class: moment.level === "plain" ? null : moment.level },
    make("time", { datetime: new Date(moment.wall * 1000).toISOString() }, clock(moment.wall)), make("span", null, moment.text))));
}

function timeline(moments) {
  const width = 900, first = moments[0].wall, last = Math.max(first + 1, moments[moments.length - 1].wall), svg = draw("svg", { width: width + 20, height: 52, role: "img", "aria-label": "time line" });
  svg.append(draw("line", { x1: 8, x2: width + 8, y1: 20, y2: 20, class: "axis" }));
  for (const moment of moments) svg.append(draw("circle", { cx: 8 + (moment.wall - first) / (last - first) * width, cy: 20, r: moment.level === "plain" ? 3 : 5, class: `mark-${moment.level}` },
    draw("title", null, `${clock(moment.wall)} ${moment.text}`)));
  svg.append(draw("text", { x: 8, y: 44, class: "soft" }, clock(first)), draw("text", { x: width + 8, y: 44, class: "soft", "text-anchor": "end" }, clock(last)));
  return svg;
}

// --- what comes --------------------------------------------------------------------------------------------------------

function show() {
  for (const part of [showHead, showFigures, showGraph, showRegions, showSources, showSinks, showLogs, showMoments]) {
    try { part(); } catch (error) { console.error(error); document.getElementById("connection").textContent = `this page cannot show all: ${error.message}`; }
  }
}

function showSoon() {
  if (waiting) return;
  waiting = true;
  setTimeout(() => { waiting = false; show(); }, document.hidden ? 2000 : 100);
}

function keep(list, one, most) { list.push(one); if (list.length > most) list.splice(0, list.length - most); }

function take(change) {
  if (change.number !== undefined && change.number <= data.number && !change.epoch) return;
  if (change.status) data.status = change.status;
  if (change.point) keep(data.points, change.point, POINTS_KEPT);
  if (change.moment) keep(data.moments, change.moment, MOMENTS_KEPT);
  if (change.epoch) {
    const epochs = data.epochs[change.epoch.region] ||= [], at = epochs.findIndex((each) => each.epoch === change.epoch.epoch);
    if (at >= 0) epochs[at] = change.epoch; else keep(epochs, change.epoch, EPOCHS_KEPT);
    const region = Object.fromEntries(regions())[change.epoch.region];
    if (region && region.epoch < change.epoch.epoch) region.epoch = change.epoch.epoch;
  }
  if (change.restore) keep((data.restores ||= {})[change.restore.region] ||= [], change.restore, RESTORES_KEPT);
  data.number = Math.max(data.number, change.number);
  if (change.moment && change.moment.kind === "run.started") begin();   // another run may have another graph
}

let stream = null;
async function begin() {
  if (stream) stream.close();
  try {
    const answer = await fetch("state");
    if (!answer.ok) throw new Error(await answer.text());
    data = await answer.json();
  } catch (error) {
    document.getElementById("connection").textContent = `no answer: ${error.message}`;
    setTimeout(begin, 2000);
    return;
  }
  show();
  stream = new EventSource(`changes?after=${data.number}`);
  stream.addEventListener("open", () => { document.getElementById("connection").textContent = ""; });
  stream.addEventListener("change", (event) => { take(JSON.parse(event.data)); showSoon(); });
  stream.addEventListener("standing", (event) => { data.standing = JSON.parse(event.data); showSoon(); });
  stream.addEventListener("anew", begin);
  stream.addEventListener("error", () => {
    document.getElementById("connection").textContent = "the page's server does not answer";
    if (stream.readyState === EventSource.CLOSED) { stream.close(); setTimeout(begin, 2000); }
  });
}

document.getElementById("only-costs").addEventListener("change", () => data && showMoments());
begin();
