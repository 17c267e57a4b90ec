// Joins the views: one stage, tables below, details beside, and what keys and the pointer do.
import { drawCompare } from "./compare";
import { showDetails } from "./details";
import { readDropped } from "./drop";
import { $, button, count, el, plural, bytes, time, toggleClass } from "./format";
import { GraphView } from "./graph";
import { Bright, LanesView } from "./lanes";
import { follow, Live } from "./live";
import { MemoryView } from "./memory";
import { Plan } from "./model";
import { drawOverview, firstOf, startOverview } from "./overview";
import { colorOps, dark } from "./palette";
import { drawPlayer, startPlayer, stepReplay, toggle } from "./player";
import { startPointer } from "./pointer";
import { requestEdges } from "./rows";
import { Choices, drawChoices } from "./slots";
import { change, FOLDS, Kind, onChange, readHash, setWindow, shownRun, shownRuns, State, state, totalTime, ViewName } from "./state";
import { Tables } from "./tables";
import { moments, tokensOf } from "./tokens";
import { lastItem, wayOf } from "./way";
import { PlanData } from "./wire";

const canvas = $<HTMLCanvasElement>("canvas"), scroll = $("scroll"), search = $<HTMLInputElement>("search");
let lanes: LanesView, graph: GraphView, memory: MemoryView, tables: Tables;
let bright: Bright = { kernels: null, actors: null };

const VIEWS: [ViewName, string][] = [["lanes", "Lanes"], ["graph", "Graph"], ["memory", "Memory"], ["compare", "Compare"]];

// What the search, and the switch of the critical cycle, leave bright.
function findBright(): void {
  const plan = state.plan;
  bright = { kernels: null, actors: null };
  if (!state.words.length && !state.cycle) return;
  const kernel = state.words.length ? tables.matching("Kernels") : () => true, actor = state.words.length ? tables.matching("Actors") : () => true;
  bright.kernels = Uint8Array.from(plan.data.kernels.n, (_, k) => +kernel(k));
  bright.actors = Uint8Array.from(plan.data.actors.n, (_, a) => +actor(a));
  plan.actorOf.forEach((a, k) => { if (a >= 0 && state.words.length && bright.kernels![k]) bright.actors![a] = 1; });
  if (!state.cycle) return;
  bright.actors = bright.actors.map((on, a) => on && plan.cycle.has(a) ? 1 : 0);
  bright.kernels = bright.kernels.map((on, k) => on && plan.cycle.has(plan.actorOf[k]) ? 1 : 0);
}

function drawStage(): void {
  const width = scroll.clientWidth, height = scroll.clientHeight;
  if (state.view === "lanes") lanes.draw(shownRuns(), width, height, scroll.scrollTop, height, bright);
  if (state.view === "graph") graph.draw(width, height, bright);
  if (state.view === "memory") memory.draw(shownRun(), width, height);
  if (state.view === "lanes" || state.view === "memory") drawOverview(state.plan, scroll.parentElement!.clientWidth);
}
let queued = false;
const redraw = (): void => { if (!queued) { queued = true; requestAnimationFrame(() => { queued = false; drawStage(); }); } };

function choice(name: string, options: [string, string][], value: string, chosen: (value: string) => void): HTMLElement {
  const label = el("label", name + " "), select = el("select");
  for (const [key, text] of options) { const o = el("option", text); o.value = key; o.selected = key === value; select.append(o); }
  select.onchange = () => chosen(select.value);
  label.append(select);
  return label;
}
// Selects a step by its number.
function stepField(last: number): HTMLElement {
  const label = el("label", "Step "), field = el("input");
  Object.assign(field, { type: "number", min: "0", max: String(last), title: `Shows the way of a step: 0 to ${last}`, value: state.selected?.kind === "item" ? String(state.selected.index) : "" });
  field.onchange = () => {
    const step = Math.round(+field.value);
    change({ selected: field.value !== "" && step >= 0 && step <= last ? { kind: "item", index: step } : null });
  };
  label.append(field);
  return label;
}
// The controls of the view.
function drawBar(): void {
  const bar = $("bar"), { plan } = state;
  bar.replaceChildren();
  const press = (text: string, title: string, action: () => void, on?: boolean): void => { const b = button(text, title, action); if (on !== undefined) toggleClass(b, on); bar.append(b); };
  if (state.view !== "graph" && state.view !== "compare") {
    if (plan.runs.length > 1) {
      const options: [string, string][] = plan.runs.map((r, i) => [String(i), r.name]);
      if (state.view === "lanes") options.push(["-1", "one below the other"]);
      bar.append(choice("Run", options, String(state.run), v => { change({ run: +v }); fit(); }));
    }
    press("−", "Zoom out (-)", () => zoom(1.6));
    press("+", "Zoom in (+)", () => zoom(1 / 1.6));
    press("Fit", "Show all (f, double click)", fit);
    if (state.view === "lanes" && lastItem(plan, shownRun()) >= 0) bar.append(stepField(lastItem(plan, shownRun())));
  }
  if (state.view === "lanes" || state.view === "graph") if (plan.cycle.size) press("Critical cycle", "Only what limits the plan is bright (c)", () => change({ cycle: !state.cycle }), state.cycle);
  if (state.view === "graph") {
    bar.append(choice("Fold by", FOLDS.map(f => [f, f]), state.fold, fold => { change({ fold }); graph.start(); }));
    press("Fold all", "", () => change({ open: new Set() }));
    press("Unfold", "", () => graph.start());
    press("Fit", "Show all (f)", fit);
  }
  if (state.view === "memory") bar.append(choice("Space", plan.data.spaces.map((s, i) => [String(i), s]), String(state.space), v => change({ space: +v })));
  if (state.view !== "compare") drawChoices(bar, plan, state.choices, choose);
  if (state.view === "compare") press("Only the other", "Leave the first plan", () => show(state.other!.data));
}

const fit = (): void => { if (state.view === "graph") { graph.fit(); redraw(); } else setWindow(0, totalTime()); };
const zoom = (factor: number): void => {
  if (state.view === "graph") { graph.zoomAt(1 / factor, scroll.clientWidth / 2, scroll.clientHeight / 2); redraw(); return; }
  const middle = state.at >= state.t0 && state.at <= state.t1 ? state.at : (state.t0 + state.t1) / 2, half = (state.t1 - state.t0) * factor / 2;
  setWindow(middle - half, middle + half);
};
const move = (share: number): void => {
  if (state.view === "graph") { graph.pan(-share * scroll.clientWidth, 0); redraw(); } else setWindow(state.t0 + share * (state.t1 - state.t0), state.t1 + share * (state.t1 - state.t0));
};

// Brings what has been selected into sight.
function reveal(): void {
  const s = state.selected;
  if (!s || state.view !== "lanes") return;
  const way = s.kind === "item" ? wayOf(state.plan, shownRun(), s.index) : null;
  if (way) {
    const took = Math.max(1, way.end - way.begin), seen = way.begin >= state.t0 && way.end <= state.t1 && state.t1 - state.t0 < 8 * took;
    if (!seen) setWindow(way.begin - took / 4, way.end + took / 4);
    return;
  }
  const run = shownRun(), span = s.kind === "request" && run.requests.length ? requestEdges(run, s.index) : firstOf(run, state.plan, s.kind, s.index);
  if (!span || span[0] < state.t1 && span[1] > state.t0) return;
  const width = state.t1 - state.t0, t0 = (span[0] + span[1] - width) / 2;
  setWindow(t0, t0 + width);
}

function update(changed: Set<keyof State>): void {
  const has = (...keys: (keyof State)[]): boolean => keys.some(k => changed.has(k));
  if (has("plan", "words", "cycle")) findBright();
  if (has("plan", "view", "run", "cycle", "fold", "other", "space") || has("selected") && document.activeElement?.closest("#bar") === null) drawFrame();
  if (has("plan", "selected", "at", "run")) showDetails(state.plan);
  if (has("live")) { drawLive(); if (state.view !== "graph") return; }
  if (has("selected")) { $("details").scrollTop = 0; reveal(); }
  if (has("plan", "selected", "words", "tab") || has("run") && state.tab === "Summary") tables.draw();
  if (has("plan", "at", "run")) drawPlayer();
  if (state.view === "compare" && has("plan", "other", "view", "words")) drawCompare($("stage").clientWidth);
  redraw();
}
// The panel follows the process once a second, but not under a finger that is about to click.
let pressed = false, drawn = 0;
function drawLive(): void {
  if (pressed || Date.now() - drawn < 900 && !state.live!.fault) return;
  drawn = Date.now();
  showDetails(state.plan);
}
function startLive(): void {
  const { live } = state.plan.data;
  if (!live) return;
  const panel = $("details");
  panel.addEventListener("pointerdown", () => { pressed = true; });
  addEventListener("pointerup", () => { pressed = false; });
  change({ live: new Live(live.pid, live.program), view: location.hash ? state.view : "graph" });
  void follow(state.live!, () => change({ live: state.live }));
}
function drawFrame(): void {
  drawBar();
  const compares = state.view === "compare";
  for (const b of $("views").children) {
    const name = (b as HTMLElement).dataset.name;
    toggleClass(b as HTMLElement, name === state.view);
    (b as HTMLElement).hidden = name === "compare" && !state.other;
  }
  $("compare").hidden = !compares;
  scroll.hidden = compares;
  $("overview").hidden = compares || state.view === "graph";
  $("player").hidden = compares;
  scroll.classList.toggle("fixed", state.view !== "lanes");
  const most = innerHeight * .62, height = state.view === "lanes" ? Math.min(most, Math.max(270, lanes.height(shownRuns()) + 130)) : most;
  document.documentElement.style.setProperty("--stage-height", height + "px");
}

// Another number of slots: the same plan otherwise, so what is looked at stays.
function choose(data: PlanData): void {
  const { view, fold, space } = state;
  show(data, state.other && state.other.data);
  change({ view, fold, space });
}

function show(data: PlanData, other: PlanData | null = null): void {
  const plan = new Plan(data);
  colorOps(plan);
  Object.assign(state, { plan, other: other && new Plan(other), selected: null, run: plan.runs.length - 1, space: 0, at: -1, tab: "", words: [], open: new Set(), cycle: false });
  lanes = new LanesView(canvas, plan);
  graph = new GraphView(canvas, plan);
  memory = new MemoryView(canvas, plan);
  tables = new Tables(plan);
  document.title = data.name + " · plan";
  $("title").textContent = data.name;
  $("chips").replaceChildren();
  const chip = (name: string, value: string, cls = ""): void => { const c = el("span", undefined, "chip " + cls); c.append(el("b", value), name ? " " + name : ""); $("chips").append(c); };
  const n = (items: unknown[], one: string): void => { const [value, ...rest] = plural(items.length, one).split(" "); chip(rest.join(" "), value); };
  n(data.kernels.n, "kernel"); n(data.actors.n, "actor"); n(data.registers.n, "register"); n(data.streams, "stream");
  chip("", bytes(data.bytes));
  const asked = plan.runs.find(r => r.requests.length);
  if (asked) chip(asked.requests.length === 1 ? "traced request" : "traced requests", count(asked.requests.length));
  if (data.costs && data.period) chip("per step (predicted)", time(data.period));
  chip("", data.ok ? "verified" : "refused", data.ok ? "good" : "bad");
  change({ plan, t0: 0, t1: totalTime() });
}

async function dropped(file: File): Promise<void> {
  try {
    const found = readDropped(file.name, await file.text(), state.plan);
    if (found.run) show({ ...state.plan.data, runs: [state.plan.data.runs[0], found.run] }, state.other && state.other.data);
    if (found.plan) { show(state.plan.data, found.plan); change({ view: "compare" }); }
  } catch (error) {
    const tip = $("tip");
    tip.textContent = (error as Error).message;
    tip.style.cssText = "display:block;left:20px;top:60px";
    window.setTimeout(() => { tip.style.display = "none"; }, 8000);
  }
}
function startDrop(): void {
  addEventListener("dragover", e => { e.preventDefault(); $("drop").hidden = false; });
  addEventListener("dragleave", e => { if (!e.relatedTarget) $("drop").hidden = true; });
  addEventListener("drop", e => {
    e.preventDefault();
    $("drop").hidden = true;
    const file = e.dataTransfer?.files[0];
    if (file) void dropped(file);
  });
}

const KEYS: [string, string, () => void][] = [
  ["/", "search", () => search.focus()], ["1", "lanes", () => change({ view: "lanes" })], ["2", "graph", () => change({ view: "graph" })], ["3", "memory", () => change({ view: "memory" })],
  ["4", "compare", () => { if (state.other) change({ view: "compare" }); }], ["f", "show all", fit], ["+", "zoom in", () => zoom(1 / 1.6)], ["-", "zoom out", () => zoom(1.6)],
  ["ArrowLeft", "earlier", () => move(-.2)], ["ArrowRight", "later", () => move(.2)], ["ArrowUp", "row above", () => tables.move(-1)], ["ArrowDown", "row below", () => tables.move(1)],
  ["c", "critical cycle", () => change({ cycle: !state.cycle })], [" ", "play, pause", toggle], [".", "replay: one moment on", () => stepReplay(1)], [",", "replay: one moment back", () => stepReplay(-1)],
  ["[", "fold the selected actor's group", () => { if (state.selected?.kind === "actor") graph.fold(state.selected.index); }], ["t", "light or dark", switchTheme], ["?", "these keys", showKeys],
];
function showKeys(): void {
  const box = $<HTMLDialogElement>("keys"), list = el("dl");
  for (const [key, text] of KEYS) list.append(el("dt", key === " " ? "space" : key.replace("Arrow", "arrow ").toLowerCase()), el("dd", text));
  list.append(el("dt", "wheel"), el("dd", "zoom; with shift, move"), el("dt", "drag"), el("dd", "move"), el("dt", "drop a file"), el("dd", "compare with a plan, or show a trace"));
  const close = button("Close", "", () => box.close());
  box.replaceChildren(el("h3", "Keys"), list, close);
  box.showModal();
}
function switchTheme(): void { document.documentElement.dataset.theme = dark() ? "light" : "dark"; change({ plan: state.plan }); }

function start(): void {
  for (const [name, text] of VIEWS) {
    const b = button(text, "", () => change({ view: name }));
    b.setAttribute("role", "tab");
    b.dataset.name = name;
    $("views").append(b);
  }
  onChange(update);
  startPlayer();
  startOverview();
  startDrop();
  startPointer(canvas, { redraw, fit, views: () => ({ lanes, graph, memory }) });
  const [first, second, ...choices] = JSON.parse($("data").textContent!) as PlanData[];
  state.choices = new Choices(choices);
  show(first, second ?? null);
  readHash();
  startLive();
  search.value = state.words.join(" ");
  search.addEventListener("input", () => change({ words: search.value.toLowerCase().split(/\s+/).filter(Boolean) }));
  $("theme").onclick = switchTheme;
  $("help").onclick = showKeys;
  addEventListener("keydown", e => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    if (e.key === "Escape") { search.value = ""; change({ words: [], selected: null }); search.blur(); return; }
    const target = e.target as HTMLElement;
    if (/^(INPUT|SELECT)$/.test(target.tagName) || e.key === " " && target.tagName === "BUTTON") return;
    const key = KEYS.find(k => k[0] === e.key);
    if (key) { e.preventDefault(); key[2](); }
  });
  addEventListener("hashchange", () => { readHash(); search.value = state.words.join(" "); });
  scroll.addEventListener("scroll", redraw, { passive: true });
  new ResizeObserver(() => { redraw(); if (state.view === "compare") drawCompare($("stage").clientWidth); }).observe(scroll);
  matchMedia("(prefers-color-scheme:dark)").addEventListener("change", redraw);
  addEventListener("beforeprint", drawStage);
}
start();
// For tests: where things stand on the canvas, and what fills the slots.
Object.assign(window, { planViz: { state, lanes: () => lanes, graph: () => graph, memory: () => memory, tokens: () => tokensOf(state.plan, shownRun()), moments: () => moments(shownRun()), draw: drawStage,
  select: (kind: Kind, index: number) => change({ selected: { kind, index } }) } });
