// The data as plan-viz writes it (page_data.cpp, page_runs.cpp). A text column has numbers of `strings`, except names.
// A column whose numbers are all the same comes as that number, one whose numbers grow in small steps as the first and its
// steps; expand() makes both lists.

export interface PlanData {
  name: string; target: string; costs: boolean; period: number; critical: string; bytes: number;
  live?: { pid: number; program: string };  // of a page whose server tells how it runs
  cycle: number[]; cycleRegisters: number[];
  streams: StreamData[]; order: number[];
  devices: [string, number, number, number, number, number][];
  calls: [number, string, number, string, number, string][];
  actors: { n: string[]; stream: number[]; role: number[]; length: number[]; program: number[] };
  kernels: {
    n: string[]; op: number[]; attrs: number[]; source: number[]; module: number[]; role: number[]; why: number[];
    cost: number[]; group: number[]; workspace: number[]; inputs: number[]; outputs: number[]; base: number[]; type: number[];
  };
  registers: RegisterColumns;
  edges: { count: number; reg: number[]; consumer: number[]; take: number[]; hold: number[] };
  budget: number; spaces: string[]; arenas: { n: string; space: number; bytes: number }[];
  buffers: { n: string[]; arena: number[]; offset: number[]; bytes: number[] };
  variables: string[];
  ledger: [string, string, string, number, number][];
  ok: boolean; proof: string;
  sources: Record<string, { line: number; first: number; lines: string[] }>;
  strings: string[];
  runs: RunData[];
}

export interface RegisterColumns {
  n: string[]; producer: number[]; quota: number[]; bytes: number[]; emit: number[]; initial: number[]; inPlace: number[];
  peak: number[]; events: number[]; slots: number[];
}

export interface StreamData { n: string; d: string; r: number; k: string; c: number }

// Firings by begin; spans by firing. Most numbers are differences, see run_json().
export interface RunData {
  name: string; measured: boolean; instances: number; total: number; firings: number; spans: number;
  actor: number[]; number: number[]; begin: number[]; tail: number[]; count: number[];
  kernel: number[]; gap: number[]; take: number[]; met: number[]; more: number[];
  lane?: number[]; step?: number[];
  headline?: string; blame?: [string, number][][]; lost?: number;
  steps?: [number[], number, number][]; requests?: RequestData[];
  item?: number[];  // which step a firing is of, less its number
  panels?: PanelsData;
}

// What the run comes to: see `plan-viz stats --json`.
export interface PanelsData {
  parallelism: [number, number, number][];  // from, to, how long kernels ran
  levels: number[];                         // by how many kernels ran at once, for how long
  tasks: { kernel: string; runs: number; total_ns: number; longest_ns: number; critical: boolean }[];
  utilization: { stream: string; firings: number; kernels: number; firings_ns: number; kernels_ns: number; share: number }[];
  durations: [number, number, number, number][];  // from, to, runs, time of all
}

export interface RequestData { n: number; id: string; m: string; s: number[]; t: [string, number][] }

// A column as it comes.
interface Steps { first: number; count: number; more: number | number[] }
export type Packed = number | number[] | Steps;

export function list(packed: Packed, count: number): number[] {
  if (Array.isArray(packed)) return packed;
  if (typeof packed === "number") return Array(count).fill(packed);
  const { first, more } = packed, out = [first];
  for (let i = 1, sum = first; i < packed.count; ++i) out.push(sum += typeof more === "number" ? more : more[i - 1]);
  return out;
}

const isPacked = (value: unknown): value is Packed => typeof value === "number" || (typeof value === "object" && value !== null && "more" in value && "first" in value);

export function expand(data: PlanData): PlanData {
  const each = (columns: object, count: number): void => {
    for (const [name, value] of Object.entries(columns)) if (name !== "count" && isPacked(value)) (columns as Record<string, number[]>)[name] = list(value, count);
  };
  for (const entities of [data.actors, data.kernels, data.registers, data.buffers]) each(entities, entities.n.length);
  each(data.edges, data.edges.count);
  for (const run of data.runs) {
    const columns = run as unknown as Record<string, unknown>;
    const fill = (names: string[], count: number): void => {
      for (const name of names) { const value = columns[name]; if (isPacked(value)) columns[name] = list(value, count); }
    };
    fill(["actor", "number", "begin", "tail", "count", "lane", "step", "item"], run.firings);
    fill(["kernel", "gap", "take"], run.spans);
  }
  return data;
}
