// The rows of the lanes view: a header for each rank, device and instance, a lane for each stream and run.
import { plural } from "./format";
import { Plan, Run } from "./model";

export const LEFT = 176, TOP = 24, FIRING = 17, KERNEL = 26, LANE = FIRING + KERNEL, GAP = 11, HEAD = 22, REQUEST = 15;

export interface Row { y: number; header?: string; run?: Run; lane?: number; name?: string; note?: string }
export interface Rows { rows: Row[]; height: number; requestRows: number[][]; requestY: number }

export const requestEdges = (run: Run, i: number): [number, number] => {
  const stamps = run.requests[i].t;
  return [stamps[0][1], stamps[stamps.length - 1][1]];
};

// Requests, so that those of a row do not overlap.
function stackRequests(run: Run): number[][] {
  const rows: number[][] = [];
  const order = run.requests.map((_, i) => i).sort((a, b) => requestEdges(run, a)[0] - requestEdges(run, b)[0]);
  for (const i of order) {
    const row = rows.find(list => requestEdges(run, list[list.length - 1])[1] <= requestEdges(run, i)[0]);
    if (row) row.push(i); else rows.push([i]);
  }
  return rows;
}

export function rowsOf(plan: Plan, runs: Run[]): Rows {
  const rows: Row[] = [], { streams, order } = plan.data, ranks = streams.some(s => s.r > 0);
  const instances = Math.max(1, ...runs.map(r => r.instances)), asked = runs.find(r => r.requests.length);
  let y = TOP, requestRows: number[][] = [], requestY = 0;
  if (asked) {
    rows.push({ y, header: plural(asked.requests.length, "traced request") });
    requestY = y += HEAD;
    requestRows = stackRequests(asked);
    y += requestRows.length * REQUEST + GAP;
  }
  let header = "";
  for (let instance = 0; instance < instances; ++instance) {
    for (const i of order) {
      const s = streams[i];
      const name = (instances > 1 ? "instance " + instance + " · " : "") + (ranks ? "rank " + s.r + " · " + s.d.replace(/^\d+\//, "") : s.d);
      if (name !== header) { rows.push({ y, header: header = name }); y += HEAD; }
      for (const run of runs) {
        if (instance >= run.instances) continue;
        const lane = instance * streams.length + i;
        rows.push({ y, run, lane, name: s.n.startsWith(s.d + "/") ? s.n.slice(s.d.length + 1) : s.n, note: runs.length > 1 ? run.name : s.k + ", " + plural(s.c, "core") });
        y += LANE + (run === runs[runs.length - 1] ? GAP : 2);
      }
    }
  }
  return { rows, height: y + 4, requestRows, requestY };
}
