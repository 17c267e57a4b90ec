// Files that are dropped on the page: another page, what `html --json` prints, a plan.json, or a trace for Perfetto.
import { Plan } from "./model";
import { PlanData, RunData } from "./wire";

export interface Dropped { plan?: PlanData; run?: RunData }

// Throws an Error that says what the file is not.
export function readDropped(name: string, text: string, onto: Plan): Dropped {
  const page = /<script id="data" type="application\/json">([\s\S]*?)<\/script>/.exec(text);
  let value: unknown;
  try { value = JSON.parse(page ? page[1] : text); } catch (error) { throw new Error(`${name}: ${(error as Error).message}; drop a plan.json, a page of plan-viz, or a trace (plan-viz trace -o run.json)`); }
  if (Array.isArray(value)) value = value[0];
  const object = (value ?? {}) as Record<string, unknown>;
  if (Array.isArray(object.traceEvents)) return { run: readTrace(name, object.traceEvents as TraceEvent[], onto) };
  if (Array.isArray(object.runs) && Array.isArray(object.strings)) return { plan: value as PlanData };
  if (object.schema_version !== undefined && Array.isArray(object.actors)) return { plan: readPlan(object as unknown as PlanJson) };
  throw new Error(`${name}: this is no plan and no trace; drop a plan.json, a page of plan-viz, or a trace (plan-viz trace -o run.json)`);
}

interface ViewJson { base: string; index: number; offset: number; dtype: string; shape: number[] }
interface KernelJson { name: string; op: string; attrs: Record<string, unknown>; inputs: ViewJson[]; outputs: ViewJson[]; workspace: number; file?: string; line?: number; module?: string; role?: string; cost_ns: number | string; collective: number }
interface PlanJson {
  name: string; options: Record<string, unknown>; target: string; spaces: { kind: string; device: string }[];
  streams: { name: string; device: string; kind: string; cores: number }[]; arenas: { name: string; space: number; bytes: number }[];
  buffers: { name: string; arena: number; offset: number; bytes: number }[]; variables: { name: string }[]; kernels: KernelJson[];
  actors: { name: string; stream: number; role: string; program: [string, number][] }[];
  registers: { name: string; producer: number; quota: number; bytes: number; slots: number[]; emit_every: number; initial_tokens: number; in_place_of: number }[];
  edges: { reg: number; consumer: number; take: number; hold: number }[];
}

// A plan as its file has it. It says nothing of time: the page has no lanes then, since forecasts are plan-viz's work.
function readPlan(p: PlanJson): PlanData {
  const strings: string[] = [], numbers = new Map<string, number>();
  const number = (text: string): number => { let n = numbers.get(text); if (n === undefined) { numbers.set(text, n = strings.length); strings.push(text); } return n; };
  const bases = ["buffer", "register", "variable"], views = p.kernels.flatMap(k => [...k.inputs, ...k.outputs]);
  const instr = ([kind, index]: [string, number]): number => ["run", "emit", "release"].indexOf(kind) + 4 * index;
  const rank = (device: string): number => { const m = /^(\d+)\//.exec(device); return m ? +m[1] : 0; };
  const total = p.arenas.reduce((n, a) => n + a.bytes, 0);
  return {
    name: p.name, target: p.target, costs: p.kernels.some(k => +k.cost_ns > 0), period: 0, critical: "", bytes: total, cycle: [], cycleRegisters: [],
    streams: p.streams.map(s => ({ n: s.name, d: s.device, r: rank(s.device), k: s.kind, c: s.cores })), order: p.streams.map((_, i) => i), devices: [], calls: [],
    actors: { n: p.actors.map(a => a.name), stream: p.actors.map(a => a.stream), role: p.actors.map(a => number(a.role ?? "normal")), length: p.actors.map(a => a.program.length), program: p.actors.flatMap(a => a.program.map(instr)) },
    kernels: {
      n: p.kernels.map(k => k.name), op: p.kernels.map(k => number(k.op)), attrs: p.kernels.map(k => number(Object.entries(k.attrs ?? {}).map(([n, v]) => n + "=" + JSON.stringify(v)).join(", "))),
      source: p.kernels.map(k => number(k.file ? k.file + ":" + k.line : "")), module: p.kernels.map(k => number(k.module ?? "")), role: p.kernels.map(k => number(k.role ?? "")), why: p.kernels.map(() => number("")),
      cost: p.kernels.map(k => +k.cost_ns), group: p.kernels.map(k => k.collective ?? -1), workspace: p.kernels.map(k => k.workspace ?? -1), inputs: p.kernels.map(k => k.inputs.length), outputs: p.kernels.map(k => k.outputs.length),
      base: views.map(v => v.index < 0 ? -1 : bases.indexOf(v.base) + 4 * v.index), type: views.map(v => number(`${v.dtype}(${v.shape.join(", ")})`)),
    },
    registers: {
      n: p.registers.map(r => r.name), producer: p.registers.map(r => r.producer), quota: p.registers.map(r => r.quota), bytes: p.registers.map(r => r.bytes), emit: p.registers.map(r => r.emit_every),
      initial: p.registers.map(r => r.initial_tokens), inPlace: p.registers.map(r => r.in_place_of < 0 ? -1 : p.edges[r.in_place_of].reg), peak: p.registers.map(() => 0), events: p.registers.map(() => number("")), slots: p.registers.flatMap(r => r.slots),
    },
    edges: { count: p.edges.length, reg: p.edges.map(e => e.reg), consumer: p.edges.map(e => e.consumer), take: p.edges.map(e => e.take), hold: p.edges.map(e => e.hold) },
    budget: Number(p.options?.memory_budget ?? 0) || 0, spaces: p.spaces.map(s => s.kind === "host" ? "host" : s.device), arenas: p.arenas.map(a => ({ n: a.name, space: a.space, bytes: a.bytes })),
    buffers: { n: p.buffers.map(b => b.name), arena: p.buffers.map(b => b.arena), offset: p.buffers.map(b => b.offset), bytes: p.buffers.map(b => b.bytes) },
    variables: p.variables.map(v => v.name), ledger: p.arenas.map(a => ["arena", a.name, p.spaces[a.space].kind, a.bytes, a.bytes]), ok: true,
    proof: "A plan.json alone says nothing of time and has no proof: `plan-viz html` forecasts and verifies it.", sources: {}, strings,
    runs: [{ name: "predicted", measured: false, instances: 1, total: 1, firings: 0, spans: 0, actor: [], number: [], begin: [], tail: [], count: [], kernel: [], gap: [], take: [], met: [], more: [] }],
  };
}

interface TraceEvent { ph: string; tid?: number; ts?: number; dur?: number; name?: string; cat?: string; args?: { name?: string } }

// The events of a trace, by the names that the plan has, in any order. A kernel is of the firing of its thread that it lies in.
function readTrace(name: string, events: TraceEvent[], plan: Plan): RunData {
  const actors = new Map(plan.data.actors.n.map((n, a) => [n, a])), kernels = new Map(plan.data.kernels.n.map((n, k) => [n, k]));
  interface Span { kernel: number; begin: number; end: number; more: number }
  interface Firing { actor: number; begin: number; end: number; spans: Span[] }
  const threads = new Map<number, { spans: Span[]; firings: Firing[] }>(), firings: Firing[] = [];
  const ns = (us: number): number => Math.round(us * 1000);
  for (const e of events) {
    if (e.ph !== "X" || e.ts === undefined || e.dur === undefined || !e.name) continue;
    const begin = ns(e.ts), end = begin + ns(e.dur), tid = e.tid ?? 0;
    if (!threads.has(tid)) threads.set(tid, { spans: [], firings: [] });
    if (e.cat === "kernel") {
      const many = / and (\d+) more$/.exec(e.name), kernel = kernels.get(many ? e.name.slice(0, many.index) : e.name);
      if (kernel !== undefined) threads.get(tid)!.spans.push({ kernel, begin, end, more: many ? +many[1] : 0 });
    } else if (e.cat === "firing") {
      const actor = actors.get(e.name);
      if (actor !== undefined) threads.get(tid)!.firings.push({ actor, begin, end, spans: [] });
    }
  }
  for (const thread of threads.values()) {
    thread.spans.sort((a, b) => a.begin - b.begin);
    thread.firings.sort((a, b) => a.begin - b.begin);
    let at = 0;
    for (const f of thread.firings) {
      while (at < thread.spans.length && thread.spans[at].begin < f.begin) ++at;
      while (at < thread.spans.length && thread.spans[at].end <= f.end) f.spans.push(thread.spans[at++]);
      firings.push(f);
    }
  }
  if (!firings.length) throw new Error(`${name}: none of the ${events.length} events is of plan '${plan.data.name}'; drop a trace of this plan`);
  firings.sort((a, b) => a.begin - b.begin);
  const start = firings[0].begin, total = firings.reduce((end, f) => Math.max(end, f.end), 0) - start;
  const run: RunData = { name: "measured", measured: true, instances: 1, total, firings: firings.length, spans: 0, actor: [], number: [], begin: [], tail: [], count: [], kernel: [], gap: [], take: [], met: [], more: [] };
  let before = start, kernelBefore = 0;
  for (const f of firings) {
    run.actor.push(f.actor);
    run.number.push(0);
    run.begin.push(f.begin - before);
    run.count.push(f.spans.length - plan.kernelsOf(f.actor).length);
    before = f.begin;
    let at = f.begin;
    for (const s of f.spans) {
      if (s.more) run.more.push(run.spans, s.more);
      run.kernel.push(s.kernel - kernelBefore);
      run.gap.push(s.begin - at);
      run.take.push(s.end - s.begin);
      kernelBefore = s.kernel;
      at = s.end;
      ++run.spans;
    }
    run.tail.push(f.end - at);
  }
  return run;
}
