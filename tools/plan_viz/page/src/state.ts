// What the page shows. All of it that matters to others stands in the address.
import { Live } from "./live";
import { Plan, Run } from "./model";
import { Choices } from "./slots";
import { lastItem } from "./way";

export type Kind = "kernel" | "actor" | "register" | "request" | "buffer" | "item";  // an item is a step of the plan
export const KINDS: Kind[] = ["kernel", "actor", "register", "request", "buffer", "item"];
export type ViewName = "lanes" | "graph" | "memory" | "compare";
export const FOLDS = ["module", "stream", "device", "nothing"];

export interface State {
  plan: Plan;
  other: Plan | null;          // beside it
  run: number;                 // of the plan's runs; -1: all, one below the other
  view: ViewName;
  selected: { kind: Kind; index: number; step?: number; item?: number } | null;
  words: string[];             // of the search
  t0: number; t1: number;      // the time in sight
  at: number;                  // where the replay is; -1: there is none
  cycle: boolean;              // only the critical cycle is bright
  fold: string;
  open: Set<string>;           // groups of the graph that are unfolded
  tab: string;
  space: number;               // of the memory view
  live: Live | null;           // the process that runs the plan right now
  choices: Choices;            // of numbers of slots
}

export const state: State = {
  plan: null as unknown as Plan, other: null, run: 0, view: "lanes", selected: null, words: [], t0: 0, t1: 1, at: -1, cycle: false,
  fold: "module", open: new Set(), tab: "", space: 0, live: null, choices: new Choices([]),
};

// The run whose time the views share; of several, the measured one.
export const shownRun = (): Run => state.plan.runs[state.run < 0 ? state.plan.runs.length - 1 : state.run];
export const shownRuns = (): Run[] => state.run < 0 ? state.plan.runs : [state.plan.runs[state.run]];
export const totalTime = (): number => Math.max(1, ...shownRuns().map(r => r.total));

type Listener = (changed: Set<keyof State>) => void;
const listeners: Listener[] = [];
export const onChange = (listener: Listener): void => { listeners.push(listener); };
let written = "";
let queued = 0;
export function change(patch: Partial<State>): void {
  Object.assign(state, patch);
  const changed = new Set(Object.keys(patch) as (keyof State)[]);
  for (const listener of listeners) listener(changed);
  if (!queued) queued = window.setTimeout(() => { queued = 0; writeHash(); }, 120);
}

export function setWindow(t0: number, t1: number): void {
  const total = totalTime(), width = Math.min(total, Math.max(total / 1e7, t1 - t0));
  t0 = Math.max(0, Math.min(total - width, t0));
  change({ t0, t1: t0 + width });
}

function writeHash(): void {
  const p = new URLSearchParams(), s = state;
  if (s.view !== "lanes") p.set("view", s.view);
  if (s.selected) p.set(s.selected.kind, String(s.selected.index));
  if (s.selected?.item !== undefined) p.set("of", String(s.selected.item));
  if (s.t0 > 0 || s.t1 < totalTime()) p.set("t", Math.round(s.t0) + "-" + Math.round(s.t1));
  if (s.at >= 0) p.set("at", String(Math.round(s.at)));
  if (s.words.length) p.set("q", s.words.join(" "));
  if (s.run !== s.plan.runs.length - 1) p.set("run", String(s.run));
  if (s.cycle) p.set("cycle", "1");
  if (s.fold !== "module") p.set("fold", s.fold);
  if (s.space) p.set("space", String(s.space));
  if (s.tab) p.set("tab", s.tab);
  const text = p.toString().replace(/%2F/g, "/").replace(/%3A/g, ":");
  if (text === written) return;
  written = text;
  history.replaceState(null, "", "#" + text);
}

// What an address says, as far as the plan has it.
export function readHash(): void {
  const text = location.hash.slice(1), p = new URLSearchParams(text), plan = state.plan, patch: Partial<State> = {};
  if (text === written && text) return;
  const number = (name: string): number => { const v = p.get(name); return v !== null && /^-?\d+$/.test(v) ? +v : NaN; };
  const view = p.get("view");
  patch.view = view === "graph" || view === "memory" || view === "compare" && state.other ? view : "lanes";
  const run = number("run");
  patch.run = run >= -1 && run < plan.runs.length ? run : plan.runs.length - 1;
  patch.selected = null;
  for (const kind of KINDS) {
    const index = number(kind);
    const of = plan.runs[patch.run < 0 ? plan.runs.length - 1 : patch.run];
    const limit = kind === "request" ? plan.runs[plan.runs.length - 1].requests.length : kind === "item" ? lastItem(plan, of) + 1 : plan.data[`${kind}s` as "kernels"].n.length;
    if (index >= 0 && index < limit) patch.selected = { kind, index, item: number("of") >= 0 ? number("of") : undefined };
  }
  patch.at = number("at") >= 0 ? number("at") : -1;
  patch.words = (p.get("q") ?? "").toLowerCase().split(/\s+/).filter(Boolean);
  patch.cycle = p.get("cycle") === "1";
  const fold = p.get("fold");
  patch.fold = fold && FOLDS.includes(fold) ? fold : "module";
  patch.tab = p.get("tab") ?? "";
  const space = number("space");
  patch.space = space > 0 && space < plan.data.spaces.length ? space : 0;
  Object.assign(state, patch);
  const t = /^(\d+)-(\d+)$/.exec(p.get("t") ?? "");
  setWindow(t ? +t[1] : 0, t && +t[2] > +t[1] ? +t[2] : totalTime());
  change(patch);
}
