// When tokens are made and given back, by the firing rule: what fills the registers' slots at each moment of a run.
import { lowerBound } from "./format";
import { EMIT, Plan, RUN, Run } from "./model";

export interface Token { write: number; full: number; free: number }  // from `write` on its slot is taken

export interface Waits { kind: "data" | "slot" | "stream" | "start" | "nothing"; register: number; actor: number }

// When each instruction of each actor takes effect within a firing: after the kernels before it.
function kernelsBefore(plan: Plan): { emit: Int32Array; release: Int32Array; runs: Int32Array } {
  const emit = new Int32Array(plan.data.registers.n.length), release = new Int32Array(plan.data.edges.reg.length);
  const runs = new Int32Array(plan.programs.length);
  plan.programs.forEach((program, a) => {
    for (const { kind, index } of program) {
      if (kind === RUN) ++runs[a];
      else (kind === EMIT ? emit : release)[index] = runs[a];
    }
  });
  return { emit, release, runs };
}

export class Tokens {
  readonly of: Token[][] = [];       // by register
  private readonly base: Int32Array;  // number of each actor's first recorded firing
  constructor(readonly plan: Plan, readonly run: Run) {
    const { registers, edges } = plan.data, before = kernelsBefore(plan);
    this.base = Int32Array.from(run.ofActor, list => list.length ? run.number[list[0]] : 0);
    // At the end of a kernel; of firings of which kernels are missing, at their end.
    const effect = (f: number, kernels: number): number => {
      const known = run.first[f + 1] - run.first[f] === before.runs[run.actor[f]];
      return !known ? run.end[f] : kernels ? run.spanEnd[run.first[f] + kernels - 1] : run.begin[f];
    };
    for (let r = 0; r < registers.n.length; ++r) {
      const p = registers.producer[r], emit = registers.emit[r], list: Token[] = [], initial = registers.initial[r];
      for (let i = 0; i < initial; ++i) list.push({ write: -1, full: -1, free: Infinity });
      const end = this.base[p] + run.ofActor[p].length;
      for (let n = 0; n < end; n += emit) {
        const first = this.firing(p, n), last = this.firing(p, n + emit - 1);
        list.push({ write: first < 0 ? -1 : run.begin[first], full: last >= 0 ? effect(last, before.emit[r]) : n + emit <= this.base[p] ? -1 : Infinity, free: Infinity });
      }
      const freed = new Float64Array(list.length).fill(-Infinity);
      for (const e of plan.edgesOf[r]) {
        const c = edges.consumer[e], take = edges.take[e], hold = edges.hold[e];
        for (let i = 0; i < list.length; ++i) {
          const last = Math.floor(i / take) * hold + hold - 1, f = this.firing(c, last);
          freed[i] = Math.max(freed[i], f >= 0 ? effect(f, before.release[e]) : last < this.base[c] ? -1 : Infinity);
        }
      }
      list.forEach((token, i) => { token.free = plan.edgesOf[r].length ? Math.max(token.full, freed[i]) : token.full; });
      this.of.push(list);
    }
  }

  // Firing `number` of an actor, or -1 where it was not recorded.
  private firing(actor: number, number: number): number {
    const list = this.run.ofActor[actor], i = number - this.base[actor];
    return i >= 0 && i < list.length ? list[i] : -1;
  }

  // Slots of a register that are being written, and that are full: of tokens that have begun, the last `quota`.
  use(register: number, at: number): { writing: number; full: number } {
    const list = this.of[register];
    let writing = 0, full = 0;
    for (let i = lowerBound(list, t => t.write, at + .5) - 1, n = this.plan.data.registers.quota[register]; i >= 0 && n > 0; --i, --n) {
      if (list[i].free <= at) continue;
      if (list[i].full > at) ++writing; else ++full;
    }
    return { writing, full };
  }

  private begun(actor: number, at: number): number {
    return lowerBound(this.run.ofActor[actor], f => this.run.begin[f], at + .5);
  }

  // The firing in which the actor is; -1: none.
  active(actor: number, at: number): number {
    const n = this.begun(actor, at), f = n ? this.run.ofActor[actor][n - 1] : -1;
    return f >= 0 && at < this.run.end[f] ? f : -1;
  }

  // What an actor that does not fire waits for.
  waits(actor: number, at: number): Waits {
    const { registers, edges } = this.plan.data, list = this.run.ofActor[actor];
    const next = this.base[actor] + this.begun(actor, at);
    const none: Waits = { kind: "nothing", register: -1, actor: -1 };
    if (next >= this.base[actor] + list.length) return none;
    for (const e of this.plan.inEdges[actor]) {
      const r = edges.reg[e], tokens = this.of[r], last = (Math.floor(next / edges.hold[e]) + 1) * edges.take[e] - 1;
      if (last >= tokens.length || tokens[last].full > at) return { kind: "data", register: r, actor: registers.producer[r] };
    }
    for (const r of this.plan.outRegisters[actor]) {
      const old = this.of[r][Math.floor(next / registers.emit[r]) + registers.initial[r] - registers.quota[r]];
      if (!old || old.free <= at) continue;
      const slow = [...this.plan.edgesOf[r]].map(e => edges.consumer[e]).find(c => c !== actor);
      return { kind: "slot", register: r, actor: slow ?? actor };
    }
    const stream = this.plan.data.actors.stream[actor];
    const busy = this.plan.data.actors.stream.findIndex((s, a) => s === stream && a !== actor && this.active(a, at) >= 0);
    return busy >= 0 ? { kind: "stream", register: -1, actor: busy } : { kind: "start", register: -1, actor: -1 };
  }
}

const known = new WeakMap<Run, Tokens>();
export function tokensOf(plan: Plan, run: Run): Tokens | null {
  if (run.instances > 1 || run.requests.length) return null;  // of several sessions at once
  let tokens = known.get(run);
  if (!tokens) known.set(run, tokens = new Tokens(plan, run));
  return tokens;
}

// The moments at which a firing begins or ends, each once.
const momentsOf = new WeakMap<Run, Float64Array>();
export function moments(run: Run): Float64Array {
  let list = momentsOf.get(run);
  if (list) return list;
  list = new Float64Array(2 * run.begin.length);
  list.set(run.begin);
  list.set(run.end, run.begin.length);
  list.sort();
  let n = 0;
  for (const t of list) if (!n || t > list[n - 1]) list[n++] = t;
  momentsOf.set(run, list = list.slice(0, n));
  return list;
}
