// A server's requests, above the lanes.
import { Hit } from "./lanes";
import { Run } from "./model";
import { Theme } from "./palette";
import { REQUEST, requestEdges, Rows } from "./rows";
import { state } from "./state";
import { label, Scale } from "./surface";

export const requestName = (run: Run, i: number): string => "request " + run.requests[i].n + (run.requests[i].id ? " (" + run.requests[i].id + ")" : "");
export const stampOf = (run: Run, i: number, name: string): number | undefined => run.requests[i].t.find(s => s[0] === name)?.[1];
// The requests that a step ran for.
export const requestsOf = (run: Run, step: number): number[] => run.steps[step][0].map(id => run.requests.findIndex(r => r.n === id)).filter(i => i >= 0);

// A bar from the first to the last timestamp: pale before it is queued, darker in the queue, full while it is computed.
export function drawRequests(pen: CanvasRenderingContext2D, run: Run, rows: Rows, s: Scale, colors: Theme): void {
  pen.save();
  pen.beginPath();
  pen.rect(s.left, rows.requestY, s.right - s.left, rows.requestRows.length * REQUEST);
  pen.clip();
  rows.requestRows.forEach((list, row) => {
    const y = rows.requestY + row * REQUEST;
    for (const i of list) {
      const [begin, end] = requestEdges(run, i);
      if (end < s.t0 || begin > s.t1) continue;
      const on = state.selected?.kind === "request" && state.selected.index === i;
      pen.globalAlpha = state.selected?.kind === "request" && !on ? .35 : 1;
      const bar = (from: number | undefined, to: number | undefined, fill: string): void => {
        if (from === undefined || to === undefined) return;
        pen.fillStyle = fill;
        pen.fillRect(s.x(from), y, Math.max(1.5, s.x(to) - s.x(from)), REQUEST - 2);
      };
      bar(begin, end, colors.firing);
      bar(stampOf(run, i, "QUEUE_START"), stampOf(run, i, "COMPUTE_START"), "#e69f00");
      bar(stampOf(run, i, "COMPUTE_START"), stampOf(run, i, "COMPUTE_END"), "#56b4e9");
      if (on) { pen.strokeStyle = colors.accent; pen.lineWidth = 2; pen.strokeRect(s.x(begin) + 1, y + 1, Math.max(3, s.x(end) - s.x(begin) - 2), REQUEST - 4); }
      const from = Math.max(s.left, s.x(begin));
      label(pen, run.requests[i].id || String(run.requests[i].n), from, y + REQUEST / 2 - 1, s.x(end) - from, "#10151c");
    }
  });
  pen.restore();
  pen.globalAlpha = 1;
}

export function pickRequest(run: Run, rows: Rows, s: Scale, x: number, y: number): Hit | null {
  const list = rows.requestRows[Math.floor((y - rows.requestY) / REQUEST)];
  for (const i of list ?? []) {
    const [begin, end] = requestEdges(run, i);
    if (x >= s.x(begin) - 2 && x <= s.x(end) + 2) return { kind: "request", index: i, begin, end, number: 0, step: -1, more: 0 };
  }
  return null;
}
