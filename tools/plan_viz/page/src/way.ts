// The way of one step through the graph: where it waited, and where it was worked on. plan/record/item.h tells it alike.
import { lowerBound } from "./format";
import { Plan, Run } from "./model";
import { tokensOf } from "./tokens";

export interface Flow { from: number; to: number; register: number; made: number }  // from a firing to another one
// A firing that the step was handed to at `arrived`, and that handed it on at `left`. The register is -1 where it begins.
export interface Hop { firing: number; register: number; arrived: number; begin: number; left: number }
export interface Way { item: number; begin: number; end: number; hops: Hop[]; flows: Flow[] }

const firingsOf = (run: Run, actor: number, item: number): number[] => {
  const list = run.ofActor[actor], from = lowerBound(list, f => run.item[f], item);
  return [...list.slice(from, lowerBound(list, f => run.item[f], item + 1, from))];
};
const firingOf = (run: Run, actor: number, number: number): number => {
  const list = run.ofActor[actor], i = lowerBound(list, f => run.number[f], number);
  return i < list.length && run.number[list[i]] === number ? list[i] : -1;
};

// Every value that one firing of the step made and another one took.
function flowsOf(plan: Plan, run: Run, item: number): Flow[] {
  const { edges, registers } = plan.data, tokens = tokensOf(plan, run)!, flows: Flow[] = [];
  for (let e = 0; e < edges.count; ++e) {
    const r = edges.reg[e], take = edges.take[e], initial = registers.initial[r], emit = registers.emit[r];
    for (const to of firingsOf(run, edges.consumer[e], item)) {
      if (run.number[to] % edges.hold[e]) continue;
      for (let i = 0; i < take; ++i) {
        const token = run.number[to] / edges.hold[e] * take + i;
        const from = token < initial ? -1 : firingOf(run, registers.producer[r], (token - initial + 1) * emit - 1);
        if (from >= 0 && run.item[from] === item) flows.push({ from, to, register: r, made: Math.min(tokens.of[r][token].full, run.begin[to]) });
      }
    }
  }
  return flows;
}

function lastOfSinks(plan: Plan, run: Run, item: number): number {
  let last = -1;
  plan.data.actors.n.forEach((_, a) => {
    const list = plan.text(plan.data.actors.role[a]) === "sink" ? firingsOf(run, a, item) : [];
    if (list.length && (last < 0 || run.end[list[list.length - 1]] > run.end[last])) last = list[list.length - 1];
  });
  return last;
}

// Back from the sink, along the value that was made last.
function find(plan: Plan, run: Run, item: number): Way | null {
  const last = tokensOf(plan, run) ? lastOfSinks(plan, run, item) : -1;
  if (last < 0) return null;
  const way: Way = { item, begin: 0, end: run.end[last], hops: [], flows: flowsOf(plan, run, item) };
  for (let firing = last, left = way.end; ;) {
    let flow: Flow | undefined;
    for (const f of way.flows) if (f.to === firing && (!flow || f.made > flow.made)) flow = f;
    const actor = run.actor[firing], own = firingsOf(run, actor, item), before = own[own.indexOf(firing) - 1];
    const starts = /^(feed|source)$/.test(plan.text(plan.data.actors.role[actor]));
    const held = !flow && !starts && before !== undefined;  // it took a value then, and holds it
    const arrived = flow ? flow.made : held ? run.end[before] : run.begin[own[0]];
    way.hops.unshift({ firing, register: flow ? flow.register : -1, arrived, begin: run.begin[firing], left });
    if (!flow && !held) { way.begin = arrived; return way; }
    firing = flow ? flow.from : before;
    left = arrived;
  }
}

const known = new WeakMap<Run, Map<number, Way | null>>();
export function wayOf(plan: Plan, run: Run, item: number): Way | null {
  let ways = known.get(run);
  if (!ways) known.set(run, ways = new Map());
  if (!ways.has(item)) ways.set(item, find(plan, run, item));
  return ways.get(item)!;
}

// The last step of a run; -1: it has none, or they are a server's.
export function lastItem(plan: Plan, run: Run): number {
  return run.instances > 1 || run.requests.length ? -1 : run.ofActor.reduce((most, list, a) => list.length && plan.text(plan.data.actors.role[a]) === "sink" ? Math.max(most, run.item[list[list.length - 1]]) : most, -1);
}
