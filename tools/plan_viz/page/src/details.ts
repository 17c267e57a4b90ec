// The panel: everything that is known of what is selected.
import { $, bytes, button, count, el, percent, plural, time } from "./format";
import { Doing } from "./live";
import { usersOf } from "./memory";
import { Plan, RUN, EMIT, Run, View } from "./model";
import { color } from "./palette";
import { requestName, requestsOf, stampOf } from "./requests";
import { requestEdges } from "./rows";
import { change, Kind, shownRun, state } from "./state";
import { tokensOf } from "./tokens";
import { lastItem, wayOf } from "./way";

const panel = $("details");
type Content = string | number | Node;
const add = (...content: (string | Node)[]): void => panel.append(...content);
export const link = (text: string, kind: Kind, index: number): HTMLElement => button(text, "", () => change({ selected: { kind, index } }), "link");

function head(title: string, kind: string, op?: string): void {
  const h = el("h2", title);
  if (op !== undefined) { const s = el("span", "", "sw"); s.style.background = color(op); h.prepend(s); }
  add(h, el("div", kind, "kind"));
}
function facts(rows: [string, Content | null | undefined][]): void {
  const dl = el("dl");
  for (const [name, value] of rows) {
    if (value === "" || value === null || value === undefined) continue;
    const dd = el("dd");
    dd.append(typeof value === "number" ? count(value) : value);
    dl.append(el("dt", name), dd);
  }
  add(dl);
}
function items(title: string, list: (string | Node | (() => Node))[], cls = "", most = 400): void {
  if (!list.length) return;
  add(el("h3", title));
  for (const item of list.slice(0, most)) { const d = el("div", undefined, "item " + cls); d.append(typeof item === "function" ? item() : item); add(d); }
  if (list.length > most) add(el("div", "… " + count(list.length - most) + " more", "kind"));
}
const span = (...content: (string | Node)[]): HTMLElement => { const s = el("span"); s.append(...content); return s; };
function bar(share: number, cls = ""): HTMLElement {
  const b = el("span", undefined, "bar " + cls), fill = el("i");
  fill.style.width = percent(Math.min(1, share));
  b.append(fill);
  return b;
}

// The time that a kernel or an actor took in each run.
function took(plan: Plan, spans: (run: Run) => number[]): [string, Content][] {
  return plan.runs.filter(run => run.measured).map(run => {
    const list = spans(run);
    if (!list.length) return [run.name, "did not run"] as [string, Content];
    const sorted = list.sort((a, b) => a - b), mean = list.reduce((n, v) => n + v, 0) / list.length;
    return [run.name, `${time(sorted[sorted.length >> 1])} (mean ${time(mean)}, ${time(sorted[0])} to ${time(sorted[sorted.length - 1])}, ${plural(list.length, "time")})`] as [string, Content];
  });
}

function viewItem(plan: Plan, view: View): Node {
  const text = plan.viewText(view);
  return view.base === 1 ? link(text, "register", view.index) : view.base === 0 ? link(text, "buffer", view.index) : el("span", text);
}

function showKernel(plan: Plan, k: number): void {
  const v = plan.data.kernels, a = plan.actorOf[k], s = a >= 0 ? plan.data.streams[plan.data.actors.stream[a]] : null;
  head(v.n[k], "kernel of op " + plan.op(k), plan.op(k));
  facts([["actor", a >= 0 ? link(plan.data.actors.n[a], "actor", a) : "none"], ["stream", s?.n], ["device", s ? s.d + ": " + plan.text(v.why[k]) : ""],
    ["predicted", plan.data.costs ? time(v.cost[k]) : "unknown (drawn as 1 µs)"],
    ...took(plan, run => [...run.ofActor[Math.max(0, a)]].flatMap(f => { const out: number[] = []; for (let i = run.first[f]; i < run.first[f + 1]; ++i) if (run.kernel[i] === k) out.push(run.spanEnd[i] - run.spanBegin[i]); return out; })),
    ["module", plan.text(v.module[k])], ["role", plan.text(v.role[k])], ["attributes", plan.text(v.attrs[k])],
    ["workspace", v.workspace[k] >= 0 ? span(bytes(plan.data.buffers.bytes[v.workspace[k]]), " in ", link(plan.data.buffers.n[v.workspace[k]], "buffer", v.workspace[k])) : ""], ["collective", v.group[k] < 0 ? "" : "group " + v.group[k]]]);
  items("reads", plan.reads(k).map(view => viewItem(plan, view)), "mono");
  items("writes", plan.writes(k).map(view => viewItem(plan, view)), "mono");
  showSource(plan, plan.text(v.source[k]));
}
function showSource(plan: Plan, at: string): void {
  if (!at) return;
  add(el("h3", "source"), el("div", at, "mono"));
  const s = plan.data.sources[at];
  if (!s) { add(el("div", "the file could not be read when this page was made", "kind")); return; }
  const box = el("div", undefined, "src");
  box.id = "source";
  s.lines.forEach((text, n) => { const row = el("div", undefined, s.first + n === s.line ? "at" : ""); row.append(el("span", s.first + n), text || " "); box.append(row); });
  add(box);
}

function showActor(plan: Plan, a: number): void {
  const { actors, registers, edges, kernels } = plan.data, role = plan.text(actors.role[a]), runs = plan.kernelsOf(a);
  head(actors.n[a], (role === "normal" ? "actor" : "actor, " + role) + (plan.cycle.has(a) ? ", in the cycle that limits the plan" : ""));
  facts([["stream", plan.data.streams[actors.stream[a]].n], ["module", plan.moduleOf[a]], ["kernels", runs.length], ["predicted", plan.data.costs ? time(runs.reduce((sum, k) => sum + kernels.cost[k], 0)) : "unknown"],
    ...took(plan, run => Array.from(run.ofActor[a], f => run.end[f] - run.begin[f]))]);
  for (const run of plan.runs) {
    const list = run.blame[a] ?? [], all = list.reduce((n, [, ns]) => n + ns, 0);
    items("where its time went", [...list].sort((x, y) => y[1] - x[1]).map(([what, ns]) => span(bar(ns / all), ` ${percent(ns / all)} ${what}`)), "", 12);
  }
  showActorLive(a, plan);
  showWaits(plan, a);
  items("consumes", [...plan.inEdges[a]].map(e => link(registers.n[edges.reg[e]], "register", edges.reg[e])));
  items("produces", [...plan.outRegisters[a]].map(r => link(registers.n[r], "register", r)));
  items("program", plan.programs[a].map(({ kind, index }) => {
    if (kind === RUN) return link(kernels.n[index], "kernel", index);
    const r = kind === EMIT ? index : edges.reg[index];
    return span(el("span", kind === EMIT ? "emit " : "release ", "kind"), link(registers.n[r], "register", r));
  }), "mono", 600);
}
// Shows what an actor of a running process did of late, and for whom it waited.
function doingText(plan: Plan, doing: Doing): (string | Node)[] {
  const { kernels, registers, actors, edges } = plan.data, whom = (): HTMLElement => link(actors.n[doing.whom], "actor", doing.whom);
  if (doing.does === "runs") return ["runs ", link(kernels.n[doing.index], "kernel", doing.index), " " + plan.text(kernels.source[doing.index])];
  if (doing.does === "data") { const r = edges.reg[doing.index]; return ["waits for ", whom(), ": data ", link(registers.n[r], "register", r)]; }
  if (doing.does === "slot") return ["waits for ", doing.whom < 0 ? "a reader" : whom(), ": a slot of ", link(registers.n[doing.index], "register", doing.index)];
  if (doing.does === "stream") return ["is ready; its stream is in ", whom()];
  return [doing.does === "ready" ? "is about to fire" : "waits for " + (doing.does === "cores" ? "cores" : "a " + doing.does)];
}
function slotBoxes(quota: number, full: number, writing: number): HTMLElement {
  const slots = el("span", undefined, "slots");
  for (let i = 0; i < Math.min(quota, 64); ++i) slots.append(el("i", undefined, i < full ? "full" : i < full + writing ? "writing" : ""));
  return span(slots, ` ${full} full, ${writing} in flight, ${quota - full - writing} free`);
}
function showActorLive(a: number, plan: Plan): void {
  const live = state.live;
  if (!live?.now) return;
  items("now", live.doings(a).map(d => span(bar(d.share), ` ${percent(d.share)} `, ...doingText(plan, d))), "", 8);
  facts([["firings", count(live.now.firings[a])], ["per second", live.firings(a).toFixed(1)], ["in kernels", percent(live.busy(a))]]);
}
// The whole process: rates, the busiest actors and who waits for them, the fullest registers.
function showLive(plan: Plan): void {
  const live = state.live!, d = plan.data;
  head(d.name, `running in process ${live.pid} (${live.program})`);
  if (live.fault) add(el("p", live.fault, "bad"));
  if (!live.moments.length) return;
  const now = live.now;
  facts([["steps per second", live.steps().toFixed(1)], ["in flight", `${now.inFlight} of ${now.most}`], ["finished", now.finished], ["failed", now.failed || ""], ["waiting for room", now.waiting || ""]]);
  const actors = d.actors.n.map((_, a) => ({ a, busy: live.busy(a) })).sort((x, y) => y.busy - x.busy);
  items("busiest actors", actors.filter(x => x.busy > 0).map(({ a, busy }) => () => span(bar(busy), ` ${percent(busy)} `, link(d.actors.n[a], "actor", a))), "", 12);
  items("who waits for whom", actors.map(({ a }) => ({ a, most: live.doings(a)[0] })).filter(x => x.most.does !== "runs").map(({ a, most }) => () => span(link(d.actors.n[a], "actor", a), " ", ...doingText(plan, most), ` ${percent(most.share)}`)), "", 40);
  const used = d.registers.n.map((_, r) => ({ r, ...live.use(r) })).filter(u => u.full + u.writing > 0).sort((x, y) => y.full - x.full);
  items("registers in use", used.map(u => () => span(link(d.registers.n[u.r], "register", u.r), " ", slotBoxes(d.registers.quota[u.r], u.full, u.writing))), "", 40);
}
// At the moment of the replay: does the actor fire, or what does it wait for?
function waitText(plan: Plan, a: number): (string | Node)[] {
  const tokens = tokensOf(plan, shownRun())!, firing = tokens.active(a, state.at);
  if (firing >= 0) return ["fires, number " + shownRun().number[firing]];
  const w = tokens.waits(a, state.at), { registers, actors } = plan.data;
  if (w.kind === "data") return ["waits for data ", link(registers.n[w.register], "register", w.register), " of ", link(actors.n[w.actor], "actor", w.actor)];
  if (w.kind === "slot") return ["waits for a slot of ", link(registers.n[w.register], "register", w.register), ", which ", link(actors.n[w.actor], "actor", w.actor), " reads"];
  if (w.kind === "stream") return ["is ready; its stream is in ", link(actors.n[w.actor], "actor", w.actor)];
  return [w.kind === "start" ? "waits for a step, cores or a device" : "has nothing left to do"];
}
function showWaits(plan: Plan, a: number): void {
  if (state.at < 0 || !tokensOf(plan, shownRun())) return;
  items("at " + time(state.at), [span(...waitText(plan, a))]);
}

// How full a register was in a run: the share of the time by the number of slots that are taken.
function occupancy(plan: Plan, run: Run, r: number): Float64Array | null {
  const tokens = tokensOf(plan, run), quota = plan.data.registers.quota[r];
  if (!tokens || !run.begin.length) return null;
  const steps: [number, number][] = [];
  for (const t of tokens.of[r]) if (t.free > t.write) steps.push([Math.max(0, t.write), 1], [Math.min(run.total, Math.max(0, t.free)), -1]);
  steps.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const out = new Float64Array(quota + 1);
  let at = 0, taken = 0;
  for (const [t, d] of steps) { out[Math.max(0, Math.min(quota, taken))] += t - at; at = t; taken += d; }
  out[Math.max(0, Math.min(quota, taken))] += Math.max(0, run.total - at);
  return out.map(v => v / run.total);
}

function showRegister(plan: Plan, r: number): void {
  const { registers, actors, edges } = plan.data;
  head(registers.n[r], (registers.bytes[r] ? "register" : "control register") + (plan.data.cycleRegisters.includes(r) ? ", in the cycle that limits the plan" : ""));
  facts([["producer", link(actors.n[registers.producer[r]], "actor", registers.producer[r])], ["quota", registers.quota[r] + (plan.runs[0].begin.length ? " (most in use: " + registers.peak[r] + ")" : "")],
    ["slot", registers.bytes[r] ? bytes(registers.bytes[r]) : "no bytes"], ["all slots", registers.bytes[r] ? bytes(registers.bytes[r] * registers.quota[r]) : ""], ["space", plan.spaceOf(r)],
    ["emitted", registers.emit[r] > 1 ? "every " + registers.emit[r] + " firings" : ""], ["at the start", registers.initial[r] ? plural(registers.initial[r], "token") : ""],
    ["in place of", registers.inPlace[r] < 0 ? "" : link(registers.n[registers.inPlace[r]], "register", registers.inPlace[r])], ["events", plan.text(registers.events[r])]]);
  if (state.at >= 0 && tokensOf(plan, shownRun())) {
    const { writing, full } = tokensOf(plan, shownRun())!.use(r, state.at);
    items("at " + time(state.at), [slotBoxes(registers.quota[r], full, writing)]);
  }
  if (state.live?.now) items("now", [slotBoxes(registers.quota[r], state.live.use(r).full, state.live.use(r).writing)]);
  for (const run of plan.runs) {
    const shares = occupancy(plan, run, r);
    if (shares) items("slots taken, " + run.name, [...shares].map((share, n) => ({ share, n })).filter(({ share, n }) => share > 0 || n === registers.quota[r]).map(({ share, n }) => span(bar(share), ` ${n} for ${percent(share)} of the time`)), "", 12);
  }
  items("consumers", [...plan.edgesOf[r]].map(e => span(link(actors.n[edges.consumer[e]], "actor", edges.consumer[e]), edges.take[e] > 1 || edges.hold[e] > 1 ? ` takes ${edges.take[e]} per ${edges.hold[e]} firings` : "")));
  items("lies in", plan.slots[r].map(b => link(plan.data.buffers.n[b] + " at " + count(plan.data.buffers.offset[b]), "buffer", b)), "mono", 32);
}

function showBuffer(plan: Plan, b: number): void {
  const { buffers, arenas, kernels, actors, registers, edges } = plan.data, users = usersOf(plan)[b], arena = arenas[buffers.arena[b]], r = users.register;
  head(buffers.n[b], r >= 0 ? "slot of a register" : "buffer");
  facts([["register", r >= 0 ? link(registers.n[r], "register", r) : ""], ["arena", arena.n], ["space", plan.data.spaces[arena.space]], ["address", count(buffers.offset[b]) + " to " + count(buffers.offset[b] + buffers.bytes[b])], ["bytes", bytes(buffers.bytes[b])]]);
  if (r >= 0) {
    items("made by", [link(actors.n[registers.producer[r]], "actor", registers.producer[r])]);
    items("read by", [...plan.edgesOf[r]].map(e => link(actors.n[edges.consumer[e]], "actor", edges.consumer[e])));
    return;
  }
  items("made by", users.makers.map(k => link(kernels.n[k], "kernel", k)), "mono");
  items("read by", users.readers.map(k => link(kernels.n[k], "kernel", k)), "mono");
}

function showRequest(plan: Plan, i: number): void {
  const run = plan.runs.find(r => r.requests.length)!, [begin, end] = requestEdges(run, i);
  head(requestName(run, i), "request to model " + run.requests[i].m);
  const between = (a: string, b: string): string => { const from = stampOf(run, i, a), to = stampOf(run, i, b); return from === undefined || to === undefined ? "" : time(to - from); };
  facts([["took", time(end - begin)], ["in the queue", between("QUEUE_START", "COMPUTE_START")], ["computed", between("COMPUTE_START", "COMPUTE_END")],
    ["step", run.requests[i].s.map(s => run.steps[s][2] + " of instance " + run.steps[s][1]).join(", ")]]);
  items("in the same step", [...new Set(run.requests[i].s.flatMap(s => requestsOf(run, s)))].filter(j => j !== i).map(j => link(requestName(run, j), "request", j)));
  items("timestamps", run.requests[i].t.map(([name, at]) => name.toLowerCase().replace(/_/g, " ") + " +" + time(at - begin)), "mono");
  const mine = [...run.step.keys()].filter(f => run.requests[i].s.includes(run.step[f]));
  items("fired for it", mine.map(f => span(link(plan.data.actors.n[run.actor[f]], "actor", run.actor[f]), ` ${time(run.end[f] - run.begin[f])} at +${time(run.begin[f] - begin)}`)), "mono");
}

// How a step went through the graph of a run, hop by hop: the waits and the runs add up to how long it took.
function showItem(plan: Plan, item: number): void {
  const run = shownRun(), way = wayOf(plan, run, item), { actors, registers } = plan.data;
  head("step " + item, "its way through the " + run.name + " run");
  if (!way) { add(el("p", "It was not recorded from its begin to its end.")); return; }
  const exact = (tag: "td" | "span", ns: number, name: string): HTMLElement => { const e = el(tag, time(ns), tag === "td" ? "r" : ""); e.dataset[name] = String(ns); return e; };
  const wait = way.hops.reduce((n, h) => n + h.begin - h.arrived, 0), ran = way.hops.reduce((n, h) => n + h.left - h.begin, 0);
  facts([["took", exact("span", way.end - way.begin, "latency")], ["waited", exact("span", wait, "waited")], ["ran", exact("span", ran, "ran")], ["hops", way.hops.length], ["values", way.flows.length]]);
  const table = el("table", undefined, "hops"), top = el("tr");
  for (const name of ["at", "actor", "took", "wait", "run"]) top.append(el("th", name));
  table.append(top);
  for (const hop of way.hops) {
    const tr = el("tr"), actor = run.actor[hop.firing], name = el("td"), took = el("td");
    name.append(link(actors.n[actor], "actor", actor));
    if (hop.register >= 0) took.append(link(registers.n[hop.register], "register", hop.register));
    tr.append(el("td", "+" + time(hop.arrived - way.begin)), name, took, exact("td", hop.begin - hop.arrived, "wait"), exact("td", hop.left - hop.begin, "run"));
    table.append(tr);
  }
  add(el("h3", "hops"), table);
  const to = (step: number): HTMLElement => button(`step ${step}`, "", () => change({ selected: { kind: "item", index: step } }));
  const others = [item - 1, item + 1].filter(step => step >= 0 && step <= lastItem(plan, run));
  items("beside it", others.map(to));
}

function showPlan(plan: Plan): void {
  const d = plan.data;
  head(d.name, "plan");
  const run = plan.runs[plan.runs.length - 1];
  if (run.headline) add(el("p", run.headline));
  if (run.lost) add(el("p", plural(run.lost, "event") + " missing: they came too fast", "bad"));
  facts([["target", d.target], ["period", d.costs && d.period ? time(d.period) + " per step, predicted" : "unknown"], ["limited by", d.critical],
    ["kernels", d.kernels.n.length], ["actors", d.actors.n.length], ["registers", d.registers.n.length], ["bytes", bytes(d.bytes)], ["budget", d.budget ? bytes(d.budget) : ""]]);
  items("tasks of the critical cycle", [...new Set(d.cycle)].map(a => link(d.actors.n[a], "actor", a)), "", 24);
  const sums = new Map<string, [number, number]>();
  d.kernels.n.forEach((_, k) => { const s = sums.get(plan.op(k)) ?? [0, 0]; s[0] += d.kernels.cost[k]; s[1]++; sums.set(plan.op(k), s); });
  const all = [...sums.values()].reduce((n, s) => n + s[0], 0) || 1;
  items("ops by predicted time", [...sums].sort((a, b) => b[1][0] - a[1][0]).map(([op, [c, n]]) => {
    const sw = el("span", "", "sw");
    sw.style.background = color(op);
    return span(sw, `${op} × ${n} · ${d.costs ? time(c) + " · " : ""}${(100 * c / all).toFixed(1)}%`);
  }), "", 24);
  const longest = d.kernels.n.map((_, k) => k).sort((a, b) => d.kernels.cost[b] - d.kernels.cost[a]).slice(0, d.costs ? 8 : 0);
  items("longest kernels", longest.map(k => span(link(d.kernels.n[k], "kernel", k), " " + time(d.kernels.cost[k]))));
}

// Who fires and who waits, at the moment of the replay.
function showMoment(plan: Plan): void {
  const run = shownRun(), tokens = tokensOf(plan, run);
  head(time(state.at), "replay of the " + run.name + " run");
  if (!tokens) { add(el("p", "A server's run is of several sessions: their tokens cannot be told apart.")); return; }
  const fires = plan.data.actors.n.map((_, a) => tokens.active(a, state.at) >= 0), all = [...fires.keys()];
  items("firing", all.filter(a => fires[a]).map(a => () => link(plan.data.actors.n[a], "actor", a)), "", 40);
  items("waiting", all.filter(a => !fires[a]).map(a => () => span(link(plan.data.actors.n[a], "actor", a), " ", ...waitText(plan, a))), "", 60);
  const used = plan.data.registers.n.map((_, r) => ({ r, ...tokens.use(r, state.at) })).filter(u => u.full + u.writing > 0);
  items("registers in use", used.map(u => () => span(link(plan.data.registers.n[u.r], "register", u.r), ` ${u.full} full, ${u.writing} being written, of ${plan.data.registers.quota[u.r]}`)), "", 60);
}

export function showDetails(plan: Plan): void {
  panel.replaceChildren();
  const s = state.selected;
  if (!s) { if (state.at >= 0) showMoment(plan); else if (state.live) showLive(plan); else showPlan(plan); }
  else ({ kernel: showKernel, actor: showActor, register: showRegister, request: showRequest, buffer: showBuffer, item: showItem })[s.kind](plan, s.index);
  const served = plan.runs.find(r => r.steps.length);
  if (s?.item !== undefined && s.kind !== "item" && lastItem(plan, shownRun()) >= s.item) items("this firing is of", [link("step " + s.item, "item", s.item)]);
  if (s?.step !== undefined && served) items("ran for", requestsOf(served, s.step).map(i => link(requestName(served, i), "request", i)));
  if (s) add(button("Close", "Back to the plan (Escape)", () => change({ selected: null }), "close"));
}
