// The whole run in one strip: how busy its streams are, and which part of it is in sight.
import { $, lowerBound } from "./format";
import { busy } from "./lanes";
import { Plan, Run } from "./model";
import { theme } from "./palette";
import { LEFT } from "./rows";
import { setWindow, shownRun, state, totalTime } from "./state";
import { FONT, scale, sized } from "./surface";

const HEIGHT = 30;
let kept: { run: Run; width: number; shares: Float64Array } | null = null;
let strip: { shares: Float64Array; picture: HTMLCanvasElement } | null = null;

// The share of time in kernels by column, over all streams that run any.
function sharesOf(run: Run, width: number, total: number): Float64Array {
  if (kept && kept.run === run && kept.width === width) return kept.shares;
  const lanes = run.spansOf.map((list, lane) => ({ list, lane })).filter(({ list }) => list.length), shares = new Float64Array(width);
  for (const { lane } of lanes)
    for (let x = 0; x < width; ++x) shares[x] += busy(run, lane, x / width * total, (x + 1) / width * total) / (total / width) / lanes.length;
  kept = { run, width, shares };
  return shares;
}

// The shares as a picture: they are a rectangle for each column, and the same in every frame.
function pictureOf(shares: Float64Array): HTMLCanvasElement {
  if (strip && strip.shares === shares) return strip.picture;
  const picture = document.createElement("canvas");
  picture.width = shares.length;
  picture.height = HEIGHT - 8;
  const pen = picture.getContext("2d")!;
  pen.fillStyle = "#56b4e9";
  for (let x = 0; x < shares.length; ++x) { const h = Math.min(1, shares[x]) * (HEIGHT - 8); if (h > 0) pen.fillRect(x, HEIGHT - 8 - h, 1, h); }
  strip = { shares, picture };
  return picture;
}

export function drawOverview(plan: Plan, width: number): void {
  const colors = theme(), pen = sized($<HTMLCanvasElement>("overview"), width, HEIGHT), run = shownRun(), s = scale(LEFT, width - 8, 0, totalTime());
  pen.fillStyle = colors.panel;
  pen.fillRect(0, 0, width, HEIGHT);
  pen.fillStyle = colors.lane;
  pen.fillRect(s.left, 2, s.right - s.left, HEIGHT - 6);
  pen.fillStyle = colors.dim;
  pen.font = FONT;
  const lanes = run.spansOf.map((_, lane) => lane).filter(lane => run.spansOf[lane].length);
  const sum = lanes.reduce((n, lane) => n + busy(run, lane, state.t0, state.t1), 0) / Math.max(1, lanes.length) / (state.t1 - state.t0);
  pen.fillText("busy " + (100 * sum).toFixed(0) + "% in sight", 12, HEIGHT / 2);
  const shares = sharesOf(run, Math.max(1, Math.floor(s.right - s.left)), totalTime());
  pen.drawImage(pictureOf(shares), s.left, 4);
  if (plan.cycle.size && plan.data.period > 0 && !run.measured) {  // steps of the predicted period
    pen.fillStyle = colors.critical;
    if (totalTime() / plan.data.period < 60) for (let t = plan.data.period; t < totalTime(); t += plan.data.period) pen.fillRect(s.x(t), HEIGHT - 6, 1, 4);
  }
  pen.globalAlpha = .55;
  pen.fillStyle = colors.bg;
  pen.fillRect(s.left, 2, s.x(state.t0) - s.left, HEIGHT - 6);
  pen.fillRect(s.x(state.t1), 2, s.right - s.x(state.t1), HEIGHT - 6);
  pen.globalAlpha = 1;
  pen.strokeStyle = colors.accent;
  pen.lineWidth = 1.5;
  pen.strokeRect(s.x(state.t0) + .75, 1.75, Math.max(3, s.x(state.t1) - s.x(state.t0) - 1.5), HEIGHT - 5);
}

export function startOverview(): void {
  const canvas = $<HTMLCanvasElement>("overview");
  const move = (e: PointerEvent): void => {
    const s = scale(LEFT, canvas.clientWidth - 8, 0, totalTime()), half = (state.t1 - state.t0) / 2;
    setWindow(s.t(e.offsetX) - half, s.t(e.offsetX) + half);
  };
  canvas.addEventListener("pointerdown", e => { if (e.isTrusted) canvas.setPointerCapture(e.pointerId); move(e); });
  canvas.addEventListener("pointermove", e => { if (e.buttons) move(e); });
}
// The first firing or kernel of an entity, for bringing it into sight.
export function firstOf(run: Run, plan: Plan, kind: string, index: number): [number, number] | null {
  const actor = kind === "actor" ? index : kind === "kernel" ? plan.actorOf[index] : -1;
  if (actor < 0 || !run.ofActor[actor].length) return null;
  const list = run.ofActor[actor], f = list[Math.min(list.length - 1, lowerBound(list, g => run.begin[g], state.t0))];
  return [run.begin[f], run.end[f]];
}
