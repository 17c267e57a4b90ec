#include "tools/plan_viz/page.h"

namespace sluice::plan_viz {

const char kPageDetails[] = R"js(
// --- details ---
const el = (tag, text, cls) => { const e = document.createElement(tag); if (text !== undefined) e.textContent = text; if (cls) e.className = cls; return e; };
const link = (text, type, index) => { const a = el("a", text); a.onclick = () => select(type, index); return a; };
const panel = $("details");
const head = (title, kind, op) => {
  panel.replaceChildren();
  const h = el("h2", title);
  if (op !== undefined) { const s = el("span", "", "sw"); s.style.background = color(op); h.prepend(s); }
  panel.append(h, el("div", kind, "kind"));
};
const section = title => panel.append(el("h3", title));
const facts = rows => {
  const dl = el("dl");
  for (const [name, value] of rows) {
    if (value === "" || value === null || value === undefined) continue;
    const dd = el("dd"); dd.append(value); dl.append(el("dt", name), dd);
  }
  panel.append(dl);
};
const items = (title, list, cls) => { if (!list.length) return; section(title); for (const i of list) { const d = el("div", undefined, "item " + (cls || "")); d.append(i); panel.append(d); } };

function showKernel(i) {
  const k = D.kernels[i], a = D.actors[k.actor];
  head(k.n, "kernel of op " + k.op, k.op);
  facts([["actor", a ? link(a.n, "actor", k.actor) : "none"], ["stream", a ? D.streams[a.s].n : ""], ["device", a ? D.streams[a.s].d + ": " + k.y : ""], ["predicted", D.costs ? time(k.c) : "unknown (drawn as 1 µs)"],
         ["module", k.m], ["role", k.r], ["attributes", k.a], ["workspace", k.w ? bytes(k.w) : ""], ["collective", k.g < 0 ? "" : "group " + k.g]]);
  items("reads", k.i, "mono"); items("writes", k.o, "mono");
  if (!k.src) return;
  section("source"); panel.append(el("div", k.src, "mono"));
  const s = D.sources[k.src];
  if (!s) { panel.append(el("div", "the file could not be read when this page was made", "kind")); return; }
  const box = el("div", undefined, "src"); box.id = "source";
  s.lines.forEach((text, n) => { const row = el("div", undefined, s.first + n === s.line ? "at" : ""); row.append(el("span", s.first + n), text || " "); box.append(row); });
  panel.append(box);
}
function showActor(i) {
  const a = D.actors[i];
  head(a.n, a.r === "normal" ? "actor" : "actor, " + a.r);
  const runs = a.p.filter(p => p[0] === 0), cost = runs.reduce((sum, p) => sum + D.kernels[p[1]].c, 0);
  facts([["stream", D.streams[a.s].n], ["kernels", String(runs.length)], ["predicted", D.costs ? time(cost) : "unknown"]]);
  items("consumes", a.p.filter(p => p[0] === 2).map(p => link(D.registers[D.edges[p[1]]].n, "register", D.edges[p[1]])));
  items("produces", a.p.filter(p => p[0] === 1).map(p => link(D.registers[p[1]].n, "register", p[1])));
  const shown = a.p.slice(0, 600);
  items("program", shown.map(([kind, j]) => {
    if (kind === 0) return link(D.kernels[j].n, "kernel", j);
    const s = el("span", kind === 1 ? "emit " : "release ", "kind"), r = kind === 1 ? j : D.edges[j];
    s.append(link(D.registers[r].n, "register", r)); return s;
  }), "mono");
  if (a.p.length > shown.length) panel.append(el("div", "… " + (a.p.length - shown.length) + " more", "kind"));
}
function showRegister(i) {
  const r = D.registers[i];
  head(r.n, r.b ? "register" : "control register");
  facts([["producer", link(D.actors[r.p].n, "actor", r.p)], ["quota", r.q + (D.firings.length ? " (most in use: " + r.pk + ")" : "")], ["slot", r.b ? bytes(r.b) : "no bytes"],
         ["all slots", r.b ? bytes(r.b * r.q) : ""], ["space", r.sp], ["emitted", r.em > 1 ? "every " + r.em + " firings" : ""],
         ["at the start", r.it ? plural(r.it, "token") : ""], ["in place of", r.ip < 0 ? "" : link(D.registers[r.ip].n, "register", r.ip)], ["events", r.ev]]);
  items("consumers", r.e.map(([a, take, hold]) => { const s = el("span"); s.append(link(D.actors[a].n, "actor", a), take > 1 || hold > 1 ? ` takes ${take} per ${hold} firings` : ""); return s; }));
}
function showPlan() {
  head(D.name, "plan");
  facts([["target", D.target], ["period", D.costs && D.period ? time(D.period) + " per step, predicted" : "unknown"], ["limited by", D.critical],
         ["kernels", D.kernels.length.toLocaleString("en")], ["actors", String(D.actors.length)], ["registers", String(D.registers.length)], ["bytes", bytes(D.bytes)]]);
  const sums = new Map();
  for (const k of D.kernels) { const s = sums.get(k.op) || [0, 0]; s[0] += k.c; s[1]++; sums.set(k.op, s); }
  const all = [...sums].reduce((n, [, s]) => n + s[0], 0) || 1;
  items("ops by time", [...sums].sort((a, b) => b[1][0] - a[1][0]).slice(0, 24).map(([op, [c, n]]) => {
    const s = el("span"), sw = el("span", "", "sw"); sw.style.background = color(op);
    s.append(sw, `${op} × ${n} · ${D.costs ? time(c) + " · " : ""}${(100 * c / all).toFixed(1)}%`); return s;
  }));
  panel.append(el("h3", "hints"), el("div", "Wheel zooms, drag moves, double click shows all. Click a kernel or an actor for its details and source line.", "kind"));
}
function select(type, index, quiet, step) {
  selected = type ? {type, index} : null;
  if (type === "kernel") showKernel(index); else if (type === "actor") showActor(index); else if (type === "register") showRegister(index); else if (type === "request") showRequest(index); else showPlan();
  if (step !== undefined) items("ran for", requestsOf(step).map(i => link(requestName(i), "request", i)));
  panel.scrollTop = 0;
  if (type && type !== "register") reveal(type, index);
  if (!quiet) history.replaceState(null, "", type ? "#" + type + "=" + index : "#");
  rows(); redraw();
}

// --- tables ---
const ROWS = 400;
const tabs = [
  {name: "Requests", count: requests.length, type: "request", text: i => (requestName(i) + " " + requests[i].m).toLowerCase(), heads: ["request", "model", "instance", "step", "took", "with"], right: [2, 3, 4],
   cells: i => { const r = requests[i], [a, b] = edges(r); return [requestName(i), r.m, r.s.map(s => D.steps[s][1]).join(", "), r.s.map(s => D.steps[s][2]).join(", "), time(b - a), [...new Set(r.s.flatMap(s => D.steps[s][0]))].filter(n => n !== r.n).join(", ")]; }},
  {name: "Kernels", count: D.kernels.length, type: "kernel", text: i => kernelText[i], heads: ["kernel", "op", "device", "actor", "predicted", "source"], right: [4],
   cells: i => { const k = D.kernels[i], a = D.actors[k.actor]; return [k.n, k.op, a ? D.streams[a.s].d : "", a ? a.n : "", D.costs ? time(k.c) : "", k.src]; }},
  {name: "Actors", count: D.actors.length, type: "actor", text: i => actorText[i], heads: ["actor", "role", "stream", "kernels"], right: [3],
   cells: i => { const a = D.actors[i]; return [a.n, a.r, D.streams[a.s].n, a.p.filter(p => p[0] === 0).length]; }},
  {name: "Registers", count: D.registers.length, type: "register", text: i => registerText[i], heads: ["register", "producer", "consumers", "quota", "slot", "all slots", "space", "events"], right: [3, 4, 5],
   cells: i => { const r = D.registers[i]; return [r.n, D.actors[r.p].n, r.e.map(e => D.actors[e[0]].n).join(", "), r.q, r.b ? bytes(r.b) : "control", r.b ? bytes(r.b * r.q) : "", r.sp, r.ev]; }},
  {name: "Memory", count: D.ledger.length, text: i => (D.ledger[i][0] + " " + D.ledger[i][1]).toLowerCase(), heads: ["kind", "name", "space", "bytes", "lower bound"], right: [3, 4],
   order: D.ledger.map((l, i) => i).sort((a, b) => D.ledger[b][3] - D.ledger[a][3]), cells: i => { const l = D.ledger[i]; return [l[0], l[1], l[2], bytes(l[3]), l[0] === "arena" ? bytes(l[4]) : ""]; }},
  {name: "Devices", count: D.devices.length, text: i => D.devices[i][0], heads: ["device", "compute", "communication", "of it exposed", "bubble", "memory"], right: [1, 2, 3, 4, 5],
   cells: i => { const d = D.devices[i]; return [d[0], ...d.slice(1, 5).map(s => (100 * s).toFixed(1) + "%"), bytes(d[5])]; }},
  {name: "Collectives", count: D.calls.length, text: i => (D.calls[i][3] + " " + D.calls[i][5]).toLowerCase(), heads: ["group", "ranks", "call", "op", "bytes", "kernels"], right: [0, 2, 4],
   cells: i => { const c = D.calls[i]; return [c[0], c[1], c[2], c[3], bytes(c[4]), c[5]]; }},
  {name: "Proof", proof: true},
].filter(t => t.count || !["Requests", "Devices", "Collectives"].includes(t.name));
let tab = 0;
function rows() {
  const spec = tabs[tab], out = $("rows");
  [...$("tabs").children].forEach((b, i) => b.classList.toggle("on", i === tab));
  if (spec.proof) { out.replaceChildren(el("pre", D.proof, "proof")); return; }
  const list = [];
  let found = 0;
  for (let n = 0; n < spec.count; ++n) { const i = spec.order ? spec.order[n] : n; if (!words.length || matches(spec.text(i))) { if (++found <= ROWS) list.push(i); } }
  if (selected && spec.type === selected.type && !list.includes(selected.index)) list.unshift(selected.index);
  const table = el("table"), headRow = el("tr"), body = el("tbody");
  spec.heads.forEach((h, c) => headRow.append(el("th", h, spec.right.includes(c) ? "r" : "")));
  const thead = el("thead"); thead.append(headRow);
  for (const i of list) {
    const tr = el("tr", undefined, selected && spec.type === selected.type && selected.index === i ? "on" : "");
    spec.cells(i).forEach((c, n) => { const td = el("td", c, spec.right.includes(n) ? "r" : ""); td.title = c; tr.append(td); });
    if (spec.type) { tr.dataset.index = i; tr.onclick = () => select(spec.type, i); }
    body.append(tr);
  }
  table.append(thead, body);
  out.replaceChildren(table);
  if (found > ROWS) out.append(el("div", `… ${(found - ROWS).toLocaleString("en")} more; search to see them`, "more"));
  if (!found) out.append(el("div", "nothing matches", "more"));
}
tabs.forEach((spec, i) => { const b = el("button", spec.name); if (!spec.proof) b.append(el("i", spec.count.toLocaleString("en"))); b.onclick = () => { tab = i; rows(); }; $("tabs").append(b); });

// --- search, theme, start ---
$("search").addEventListener("input", e => {
  words = e.target.value.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) kernelOn = actorOn = null;
  else {
    kernelOn = kernelText.map(matches); actorOn = actorText.map(matches);
    D.kernels.forEach((k, i) => { if (kernelOn[i] && k.actor >= 0) actorOn[k.actor] = true; });
  }
  rows(); redraw();
});
addEventListener("keydown", e => {
  if (e.key === "/" && document.activeElement !== $("search")) { $("search").focus(); e.preventDefault(); }
  if (e.key === "Escape") { $("search").value = ""; $("search").dispatchEvent(new Event("input")); select(null); }
});
$("theme").onclick = () => { document.documentElement.dataset.theme = dark() ? "light" : "dark"; select(selected && selected.type, selected && selected.index, true); };
$("title").textContent = D.name;
const chip = (name, value, cls) => { const c = el("span", undefined, "chip " + (cls || "")); c.append(el("b", value), " " + name); $("chips").append(c); };
chip("kernels", D.kernels.length.toLocaleString("en")); chip("actors", D.actors.length); chip("registers", D.registers.length);
chip(D.streams.length === 1 ? "stream" : "streams", D.streams.length); chip("", bytes(D.bytes));
if (requests.length) chip("traced " + (requests.length === 1 ? "request" : "requests"), requests.length.toLocaleString("en"));
if (D.costs && D.period) chip("per step (predicted)", time(D.period));
chip("", D.ok ? "verified" : "refused", D.ok ? "good" : "bad");
document.documentElement.style.setProperty("--lanes-height", Math.min(innerHeight * .55, Math.max(160, lanes.height + 4)) + "px");
function fromHash() {
  const m = /^#(kernel|actor|register|request)=(\d+)$/.exec(location.hash);
  if (m && +m[2] < (D[m[1] + "s"] || []).length) { tab = tabs.findIndex(t => t.type === m[1]); select(m[1], +m[2], true); } else select(null, 0, true);
}
addEventListener("hashchange", fromHash);
addEventListener("resize", redraw);
matchMedia("(prefers-color-scheme:dark)").addEventListener("change", redraw);
fromHash(); draw();
)js";

}  // namespace sluice::plan_viz
