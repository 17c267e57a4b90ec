// A canvas as sharp as the screen, and what all drawings in time have in common.
import { time } from "./format";
import { Theme } from "./palette";

export interface Scale { x(t: number): number; t(x: number): number; left: number; right: number; t0: number; t1: number }
export function scale(left: number, right: number, t0: number, t1: number): Scale {
  const k = (right - left) / (t1 - t0);
  return { x: t => left + (t - t0) * k, t: x => t0 + (x - left) / k, left, right, t0, t1 };
}

export function sized(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D {
  const k = devicePixelRatio || 1, w = Math.max(1, Math.round(width * k)), h = Math.max(1, Math.round(height * k));
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    canvas.style.width = width + "px";
    canvas.style.height = height + "px";
  }
  const pen = canvas.getContext("2d", { alpha: false })!;
  pen.setTransform(k, 0, 0, k, 0, 0);
  pen.textBaseline = "middle";
  pen.textAlign = "left";
  pen.globalAlpha = 1;
  return pen;
}
export const FONT = "11px system-ui,sans-serif", BOLD = "600 12px system-ui,sans-serif";

export function timeAxis(pen: CanvasRenderingContext2D, s: Scale, height: number, colors: Theme): void {
  const raw = (s.t1 - s.t0) / Math.max(2, (s.right - s.left) / 110), p = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map(m => m * p).find(v => v >= raw)!;
  pen.textAlign = "center";
  for (let v = Math.ceil(s.t0 / step) * step; v <= s.t1; v += step) {
    pen.fillStyle = colors.line;
    pen.fillRect(s.x(v), 17, 1, height);
    pen.fillStyle = colors.dim;
    pen.fillText(time(Math.round(v * 1e3) / 1e3), Math.min(s.right - 18, Math.max(s.left + 4, s.x(v))), 9);
  }
  pen.textAlign = "left";
}

// `text` from `x` on where it has room, else cut, else not at all.
export function label(pen: CanvasRenderingContext2D, text: string, x: number, y: number, width: number, ink: string): void {
  if (width < 26) return;
  pen.fillStyle = ink;
  const room = Math.floor((width - 6) / 5.9);
  pen.fillText(text.length > room ? text.slice(0, Math.max(1, room - 1)) + "…" : text, x + 4, y);
}

export function cursor(pen: CanvasRenderingContext2D, s: Scale, at: number, height: number, colors: Theme): void {
  if (at < s.t0 || at > s.t1) return;
  pen.fillStyle = colors.accent;
  pen.fillRect(s.x(at) - .75, 15, 1.5, height);
  pen.beginPath();
  pen.moveTo(s.x(at) - 6, 14); pen.lineTo(s.x(at) + 6, 14); pen.lineTo(s.x(at), 22);
  pen.fill();
}
