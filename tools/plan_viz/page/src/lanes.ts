// Swim lanes: what each stream runs, by time. Firings stand above their kernels.
import { lowerBound, percent } from "./format";
import { Plan, Run } from "./model";
import { color, inkOn, Theme, theme } from "./palette";
import { drawRequests, pickRequest } from "./requests";
import { FIRING, KERNEL, LANE, LEFT, Row, Rows, rowsOf, TOP } from "./rows";
import { Kind, shownRun, state } from "./state";
import { BOLD, cursor, FONT, label, Scale, scale, sized, timeAxis } from "./surface";
import { wayOf } from "./way";

export interface Hit { kind: Kind; index: number; begin: number; end: number; number: number; step: number; more: number; item?: number }
export interface Bright { kernels: Uint8Array | null; actors: Uint8Array | null }  // null: all

// Busy time of a lane's kernels before each of them, so that any window is summed up at once.
const sums = new WeakMap<Int32Array, Float64Array>();
function sumsOf(run: Run, list: Int32Array): Float64Array {
  let sum = sums.get(list);
  if (!sum) {
    sum = new Float64Array(list.length + 1);
    for (let i = 0; i < list.length; ++i) sum[i + 1] = sum[i] + run.spanEnd[list[i]] - run.spanBegin[list[i]];
    sums.set(list, sum);
  }
  return sum;
}
export function busy(run: Run, lane: number, t0: number, t1: number): number {
  const list = run.spansOf[lane], sum = sumsOf(run, list);
  const from = lowerBound(list, s => run.spanEnd[s], t0), to = lowerBound(list, s => run.spanBegin[s], t1, from);
  if (to <= from) return 0;
  return sum[to] - sum[from] - Math.max(0, t0 - run.spanBegin[list[from]]) - Math.max(0, run.spanEnd[list[to - 1]] - t1);
}

export class LanesView {
  private rows: Rows = { rows: [], height: 0, requestRows: [], requestY: 0 };
  private of: Run[] = [];
  private scale: Scale = scale(LEFT, LEFT + 1, 0, 1);
  private columns = { from: 0, to: -1, top: 0, height: 0, fill: "", alpha: 1 };  // that look alike, to be drawn as one
  arrows = 0;   // that were drawn last
  visited = 0;  // firings and kernels that the last drawing has looked at
  constructor(readonly canvas: HTMLCanvasElement, readonly plan: Plan) {}

  private layout(runs: Run[]): void {
    if (runs.length === this.of.length && runs.every((r, i) => r === this.of[i])) return;
    this.of = runs;
    this.rows = rowsOf(this.plan, runs);
  }
  height(runs: Run[]): number {
    this.layout(runs);
    return this.rows.height;
  }
  // Where a span of a run stands, for whoever wants to click it.
  place(run: Run, span: number): [number, number] {
    const row = this.rows.rows.find(r => r.run === run && r.lane === run.lane[run.firing[span]])!;
    return [this.scale.x((run.spanBegin[span] + run.spanEnd[span]) / 2), row.y + FIRING + 8];
  }
  time(x: number): number { return this.scale.t(x); }

  draw(runs: Run[], width: number, least: number, top: number, visible: number, bright: Bright): void {
    this.layout(runs);
    this.visited = 0;
    const colors = theme(), height = Math.max(this.rows.height, least), pen = sized(this.canvas, width, height);
    this.scale = scale(LEFT, width - 8, state.t0, state.t1);
    pen.fillStyle = colors.panel;
    pen.fillRect(0, 0, width, height);
    pen.font = FONT;
    timeAxis(pen, this.scale, height, colors);
    for (const row of this.rows.rows) {
      if (row.y > top + visible || row.y + LANE < top) continue;
      if (row.header !== undefined) {
        pen.fillStyle = colors.ink;
        pen.font = BOLD;
        pen.fillText(row.header, 12, row.y + 9);
        pen.font = FONT;
      } else this.drawLane(pen, row, colors, bright);
    }
    const asked = runs.find(r => r.requests.length);
    if (asked) drawRequests(pen, asked, this.rows, this.scale, colors);
    if (!runs.some(r => r.begin.length)) {
      pen.fillStyle = colors.dim;
      pen.fillText(this.plan.data.ok ? "nothing fires" : "the plan is refused; see the table Proof", LEFT + 12, TOP + 40);
    }
    if (state.selected?.kind === "item") this.drawWay(pen, state.selected.index, colors);
    if (state.at >= 0) cursor(pen, this.scale, state.at, height, colors);
  }

  private drawLane(pen: CanvasRenderingContext2D, row: Row, colors: Theme, bright: Bright): void {
    const run = row.run!, lane = row.lane!, s = this.scale, y = row.y;
    pen.fillStyle = colors.ink;
    pen.fillText(row.name!.length > 16 ? row.name!.slice(0, 15) + "…" : row.name!, 22, y + 13);
    pen.fillStyle = colors.dim;
    pen.fillText(row.note!, 22, y + 29);
    pen.textAlign = "right";
    pen.fillText(percent(busy(run, lane, s.t0, s.t1) / (s.t1 - s.t0)), LEFT - 8, y + 13);
    pen.textAlign = "left";
    pen.fillStyle = colors.lane;
    pen.fillRect(s.left, y, s.right - s.left, LANE);
    pen.save();
    pen.beginPath();
    pen.rect(s.left, y, s.right - s.left, LANE);
    pen.clip();
    this.drawFirings(pen, run, run.firingsOf[lane], y, colors, bright);
    this.drawSpans(pen, run, run.spansOf[lane], y + FIRING, colors, bright);
    pen.restore();
    pen.globalAlpha = 1;
  }

  // Arrows from the firings of a step that made values to those that took them; bold where the step went along.
  private drawWay(pen: CanvasRenderingContext2D, item: number, colors: Theme): void {
    const run = shownRun(), way = this.of.includes(run) ? wayOf(this.plan, run, item) : null, s = this.scale;
    this.arrows = 0;
    if (!way) return;
    const middle = (firing: number): number => (this.rows.rows.find(r => r.run === run && r.lane === run.lane[firing])?.y ?? 0) + FIRING / 2;
    const along = new Set(way.hops.map((hop, i) => i ? way.hops[i - 1].firing + " " + hop.firing + " " + hop.register : ""));
    for (const flow of way.flows) {
      const on = along.has(flow.from + " " + flow.to + " " + flow.register);
      const [x0, y0, x1, y1] = [s.x(flow.made), middle(flow.from), s.x(run.begin[flow.to]), middle(flow.to)];
      if (Math.max(x0, x1) < s.left || Math.min(x0, x1) > s.right) continue;
      ++this.arrows;
      pen.strokeStyle = pen.fillStyle = on ? colors.critical : colors.dim;
      pen.lineWidth = on ? 2.5 : 1;
      pen.beginPath();
      pen.moveTo(x0, y0);
      pen.bezierCurveTo(x0 + 14, y0, x1 - 14, y1, x1, y1);
      pen.stroke();
      pen.beginPath();
      pen.moveTo(x1, y1); pen.lineTo(x1 - 7, y1 - 4); pen.lineTo(x1 - 7, y1 + 4);
      pen.fill();
    }
  }

  // Of a selected request or step: only what ran for it is bright.
  private lit(run: Run, firing: number): boolean {
    if (state.selected?.kind === "item") return run.item[firing] === state.selected.index;
    return state.selected?.kind !== "request" || run.requests[state.selected.index]?.s.includes(run.step[firing]);
  }

  private drawFirings(pen: CanvasRenderingContext2D, run: Run, list: Int32Array, y: number, colors: Theme, bright: Bright): void {
    const s = this.scale, { actors } = this.plan.data;
    // Narrow firings side by side that look alike are one rectangle.
    let painted = -1, from = 0, to = -1, cycle = false, faint = false;
    const flush = (): void => {
      if (to < 0) return;
      pen.globalAlpha = faint ? .2 : 1;
      pen.fillStyle = colors.firing;
      pen.fillRect(from, y, to - from, FIRING - 2);
      if (cycle) { pen.fillStyle = colors.critical; pen.fillRect(from, y + FIRING - 4, to - from, 2); }
      to = -1;
    };
    for (let i = lowerBound(list, f => run.end[f], s.t0); i < list.length; ++i) {
      const f = list[i], actor = run.actor[f];
      ++this.visited;
      if (run.begin[f] > s.t1) break;
      const a = s.x(run.begin[f]), b = s.x(run.end[f]), on = state.selected?.kind === "actor" && state.selected.index === actor;
      if (b < painted && !on) {  // nothing of it would be seen: on to the next pixel
        i = Math.max(i, lowerBound(list, g => run.end[g], s.t(painted), i) - 1);
        continue;
      }
      const width = Math.max(1, b - a - .6), off = !this.lit(run, f) || bright.actors !== null && !bright.actors[actor], hot = this.plan.cycle.has(actor);
      painted = Math.floor(a) + 1;
      if (width < 2 && !on) {
        if (to < 0 || a > to + .5 || hot !== cycle || off !== faint) { flush(); from = a; cycle = hot; faint = off; }
        to = Math.max(to, a + width);
        continue;
      }
      flush();
      pen.globalAlpha = off ? .2 : 1;
      pen.fillStyle = on ? colors.accent : colors.firing;
      pen.fillRect(a, y, width, FIRING - 2);
      if (hot) { pen.fillStyle = colors.critical; pen.fillRect(a, y + FIRING - 4, width, 2); }
      label(pen, actors.n[actor] + " #" + run.number[f], a < s.left ? s.left : a, y + FIRING / 2 - 1, a < s.left ? b - s.left : width, on ? colors.panel : colors.ink);
    }
    flush();
    pen.globalAlpha = 1;
  }

  // Where many kernels share a pixel, it shows how long they ran in it, in the colour of the longest of a few.
  private drawSpans(pen: CanvasRenderingContext2D, run: Run, list: Int32Array, y: number, colors: Theme, bright: Bright): void {
    const s = this.scale, ending = (i: number): number => run.spanEnd[i];
    for (let i = lowerBound(list, ending, s.t0); i < list.length; ++i) {
      const v = list[i];
      ++this.visited;
      if (run.spanBegin[v] > s.t1) break;
      const a = s.x(run.spanBegin[v]), b = s.x(run.spanEnd[v]), kernel = run.kernel[v];
      const on = state.selected?.kind === "kernel" && state.selected.index === kernel;
      if (b - a < 1.5 && !on) {
        const column = Math.floor(a);
        let next = lowerBound(list, j => run.spanBegin[j], s.t(column + 1), i);
        if (run.spanEnd[list[next - 1]] > s.t(column + 1.5)) --next;  // it is to be seen itself
        if (next - i > 1) { this.drawColumn(pen, run, list, i, next, column, y, bright); i = next - 1; continue; }
      }
      this.drawColumns(pen);
      const off = !this.lit(run, run.firing[v]) || bright.kernels && !bright.kernels[kernel];
      const fill = color(this.plan.op(kernel)), met = Math.min(b, s.x(run.met[v]));  // faint while a collective waits for other ranks
      pen.fillStyle = fill;
      if (met > a) { pen.globalAlpha = .25; pen.fillRect(a, y, met - a, KERNEL); }
      pen.globalAlpha = off ? .18 : 1;
      pen.fillRect(met, y, Math.max(1, b - met - .6), KERNEL);
      pen.globalAlpha = 1;
      if (on) { pen.strokeStyle = colors.accent; pen.lineWidth = 2.5; pen.strokeRect(a + 1, y + 1, Math.max(2, b - a - 2), KERNEL - 2); }
      const from = Math.max(met, s.left);
      if (!off) label(pen, this.plan.op(kernel), from, y + KERNEL / 2, b - from, inkOn(fill));
    }
    this.drawColumns(pen);
  }
  private drawColumn(pen: CanvasRenderingContext2D, run: Run, list: Int32Array, from: number, to: number, column: number, y: number, bright: Bright): void {
    const sum = sumsOf(run, list), s = this.scale, share = Math.min(1, (sum[to] - sum[from]) / (s.t(column + 1) - s.t(column)));
    let longest = from, dim = bright.kernels !== null;
    for (let i = from, step = Math.max(1, (to - from) >> 3); i < to; i += step) {
      ++this.visited;
      if (run.spanEnd[list[i]] - run.spanBegin[list[i]] > run.spanEnd[list[longest]] - run.spanBegin[list[longest]]) longest = i;
      if (bright.kernels && bright.kernels[run.kernel[list[i]]]) dim = false;
    }
    const height = Math.max(2, Math.round(share * KERNEL)), top = y + KERNEL - height, fill = color(this.plan.op(run.kernel[list[longest]])), alpha = dim ? .18 : 1;
    const c = this.columns;
    if (c.to !== column || c.height !== height || c.fill !== fill || c.alpha !== alpha) {
      this.drawColumns(pen);
      Object.assign(c, { from: column, top, height, fill, alpha });
    }
    c.to = column + 1;
  }
  private drawColumns(pen: CanvasRenderingContext2D): void {
    const c = this.columns;
    if (c.to < 0) return;
    pen.globalAlpha = c.alpha;
    pen.fillStyle = c.fill;
    pen.fillRect(c.from, c.top, c.to - c.from, c.height);
    pen.globalAlpha = 1;
    c.to = -1;
  }

  pick(x: number, y: number): Hit | null {
    const s = this.scale, asked = this.of.find(r => r.requests.length);
    if (x < s.left || x > s.right) return null;
    const request = asked ? pickRequest(asked, this.rows, s, x, y) : null;
    if (request) return request;
    const row = this.rows.rows.find(r => r.run && y >= r.y && y <= r.y + LANE);
    if (!row) return null;
    const run = row.run!, firings = y - row.y < FIRING, list = (firings ? run.firingsOf : run.spansOf)[row.lane!];
    const [begin, end] = firings ? [run.begin, run.end] : [run.spanBegin, run.spanEnd];
    const slack = s.t(2) - s.t(0), at = s.t(x);
    let best = -1, distance = slack;
    for (let i = lowerBound(list, v => end[v], at - slack); i < list.length && begin[list[i]] <= at + slack; ++i) {
      const v = list[i], d = at < begin[v] ? begin[v] - at : at > end[v] ? at - end[v] : 0;
      if (d <= distance) { best = v; distance = d; if (!d) break; }
    }
    if (best < 0) return null;
    const firing = firings ? best : run.firing[best];
    return {
      kind: firings ? "actor" : "kernel", index: firings ? run.actor[best] : run.kernel[best], begin: begin[best], end: end[best], number: run.number[firing],
      step: run.step.length ? run.step[firing] : -1, more: firings ? 0 : run.more.get(best) ?? 0, item: run.requests.length ? undefined : run.item[firing],
    };
  }
}
