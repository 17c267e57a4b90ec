// A plan and its runs, with the adjacency that views need.
import { expand, PanelsData, PlanData, RequestData, RunData, StreamData } from "./wire";

export const RUN = 0, EMIT = 1;  // kinds of instructions; the third is a release
export interface Instr { kind: number; index: number }
export interface View { base: number; index: number; text: string }  // base: 0 buffer, 1 register, 2 variable, -1 absent

export interface Run {
  name: string; measured: boolean; instances: number; total: number; headline: string; lost: number;
  blame: [string, number][][];
  actor: Int32Array; number: Int32Array; begin: Float64Array; end: Float64Array; lane: Int32Array; step: Int32Array;
  first: Int32Array;  // of a firing's spans; one more at the end
  kernel: Int32Array; firing: Int32Array; spanBegin: Float64Array; spanEnd: Float64Array; met: Float64Array; more: Map<number, number>;
  firingsOf: Int32Array[]; spansOf: Int32Array[];  // by lane, in the order of begin
  ofActor: Int32Array[];  // firings by actor
  steps: [number[], number, number][]; requests: RequestData[];
  item: Int32Array;  // by firing: the step of the plan
  panels: PanelsData | null;
}

const running = (differences: number[]): Float64Array => {
  const out = new Float64Array(differences.length);
  for (let i = 0, sum = 0; i < out.length; ++i) out[i] = sum += differences[i];
  return out;
};

// Numbers of `keys` by key, in order.
export function grouped(keys: ArrayLike<number>, count: number): Int32Array[] {
  const sizes = new Int32Array(count);
  for (let i = 0; i < keys.length; ++i) ++sizes[keys[i]];
  const lists = Array.from(sizes, n => new Int32Array(n));
  const at = new Int32Array(count);
  for (let i = 0; i < keys.length; ++i) lists[keys[i]][at[keys[i]]++] = i;
  return lists;
}

function readRun(data: RunData, plan: PlanData, programs: Int32Array): Run {
  const { firings: count, spans } = data, begin = running(data.begin), end = new Float64Array(count);
  const lane = data.lane ? new Int32Array(data.lane) : new Int32Array(count);
  if (!data.lane) for (let f = 0; f < count; ++f) lane[f] = plan.actors.stream[data.actor[f]];
  const first = new Int32Array(count + 1), firing = new Int32Array(spans), number = new Int32Array(count), next = new Int32Array(programs.length);
  const kernel = new Int32Array(running(data.kernel)), spanBegin = new Float64Array(spans), spanEnd = new Float64Array(spans);
  for (let f = 0, s = 0; f < count; ++f) {
    const actor = data.actor[f];
    first[f] = s;
    number[f] = next[actor] + data.number[f];
    next[actor] = number[f] + 1;
    let at = begin[f];
    for (const last = s + programs[actor] + data.count[f]; s < last; ++s) {
      firing[s] = f;
      spanBegin[s] = at + data.gap[s];
      at = spanEnd[s] = spanBegin[s] + data.take[s];
    }
    end[f] = at + data.tail[f];
    first[f + 1] = s;
  }
  const met = spanBegin.slice();
  for (let i = 0; i < data.met.length; i += 2) met[data.met[i]] += data.met[i + 1];
  const more = new Map<number, number>();
  for (let i = 0; i < data.more.length; i += 2) more.set(data.more[i], data.more[i + 1]);
  const lanes = plan.streams.length * data.instances;
  const spansOf = grouped(firing.map(f => lane[f]), lanes);
  for (const list of spansOf) if (list.some((s, i) => i > 0 && spanBegin[s] < spanBegin[list[i - 1]])) list.sort((a, b) => spanBegin[a] - spanBegin[b]);
  return {
    name: data.name, measured: data.measured, instances: data.instances, total: Math.max(1, data.total), headline: data.headline ?? "",
    lost: data.lost ?? 0, blame: data.blame ?? [], actor: new Int32Array(data.actor), number, begin, end,
    lane, step: new Int32Array(data.step ?? []), first, kernel, firing, spanBegin, spanEnd, met, more,
    firingsOf: grouped(lane, lanes), spansOf, ofActor: grouped(data.actor, plan.actors.n.length), steps: data.steps ?? [], requests: data.requests ?? [],
    item: number.map((n, f) => n + (data.item?.[f] ?? 0)), panels: data.panels ?? null,
  };
}

export class Plan {
  readonly runs: Run[];
  readonly programs: Instr[][] = [];
  readonly actorOf: Int32Array;     // by kernel; -1: none
  readonly inEdges: Int32Array[];   // by actor
  readonly outRegisters: Int32Array[];
  readonly edgesOf: Int32Array[];   // by register
  readonly slots: number[][] = [];  // buffers by register
  readonly cycle: Set<number>;
  readonly moduleOf: string[];      // by actor: that of its longest kernel
  private readonly firstView: Int32Array;

  constructor(readonly data: PlanData) {
    expand(data);
    const { actors, kernels, registers, edges } = data;
    this.actorOf = new Int32Array(kernels.n.length).fill(-1);
    this.moduleOf = actors.n.map(() => "");
    for (let a = 0, at = 0; a < actors.n.length; ++a) {
      const program: Instr[] = [];
      let longest = -1;
      for (const last = at + actors.length[a]; at < last; ++at) {
        const instr = { kind: actors.program[at] & 3, index: actors.program[at] >> 2 };
        program.push(instr);
        if (instr.kind !== RUN) continue;
        this.actorOf[instr.index] = a;
        if (kernels.cost[instr.index] > longest) {
          longest = kernels.cost[instr.index];
          this.moduleOf[a] = this.text(kernels.module[instr.index]);
        }
      }
      this.programs.push(program);
    }
    this.inEdges = grouped(edges.consumer, actors.n.length);
    this.edgesOf = grouped(edges.reg, registers.n.length);
    this.outRegisters = grouped(registers.producer, actors.n.length);
    this.firstView = new Int32Array(kernels.n.length + 1);
    for (let k = 0; k < kernels.n.length; ++k) this.firstView[k + 1] = this.firstView[k] + kernels.inputs[k] + kernels.outputs[k];
    for (let r = 0, at = 0; r < registers.n.length; ++r) {
      const n = registers.bytes[r] > 0 ? registers.quota[r] : 0;
      this.slots.push(registers.slots.slice(at, at += n));
    }
    this.cycle = new Set(data.cycle);
    const kernelCounts = Int32Array.from(this.programs, program => program.filter(i => i.kind === RUN).length);
    this.runs = data.runs.map(run => readRun(run, data, kernelCounts));
  }

  text(n: number): string { return this.data.strings[n]; }
  stream(lane: number): StreamData { return this.data.streams[lane % this.data.streams.length]; }
  kernelsOf(actor: number): number[] { return this.programs[actor].filter(i => i.kind === RUN).map(i => i.index); }
  op(kernel: number): string { return this.text(this.data.kernels.op[kernel]); }
  private views(first: number, count: number): View[] {
    const { base, type } = this.data.kernels, out: View[] = [];
    for (let i = first; i < first + count; ++i) out.push({ base: base[i] < 0 ? -1 : base[i] & 3, index: base[i] >> 2, text: this.text(type[i]) });
    return out;
  }
  reads(kernel: number): View[] { return this.views(this.firstView[kernel], this.data.kernels.inputs[kernel]); }
  writes(kernel: number): View[] { return this.views(this.firstView[kernel] + this.data.kernels.inputs[kernel], this.data.kernels.outputs[kernel]); }
  viewText(view: View): string {
    if (view.base < 0) return "none";
    const names = view.base === 0 ? this.data.buffers.n : view.base === 1 ? this.data.registers.n : this.data.variables;
    return names[view.index] + " " + view.text;
  }
  // The space of a register's slots; "" for a control register.
  spaceOf(register: number): string {
    const slot = this.slots[register][0];
    return slot === undefined ? "" : this.data.spaces[this.data.arenas[this.data.buffers.arena[slot]].space];
  }
}
