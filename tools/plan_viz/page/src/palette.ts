// Colours. Those of ops are of Okabe and Ito's palette, which people who see fewer colours tell apart too; what has no
// colour of its own has one of theirs, lighter or darker, and every bar that has room bears its name.
import { Plan } from "./model";

const BASE = ["#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#f0e442", "#0072b2", "#d55e00", "#9aa3ad"];
const colors = new Map<string, string>();

function shaded(hex: string, round: number): string {
  if (!round) return hex;
  const to = round % 2 ? 255 : 0, share = Math.min(.6, .3 * Math.ceil(round / 2));
  return "#" + [1, 3, 5].map(i => Math.round(parseInt(hex.slice(i, i + 2), 16) * (1 - share) + to * share).toString(16).padStart(2, "0")).join("");
}

// The ops that take longest get the colours that differ most. What has a colour keeps it: plans side by side agree.
export function colorOps(plan: Plan): void {
  const sums = new Map<string, number>();
  plan.data.kernels.n.forEach((_, k) => sums.set(plan.op(k), (sums.get(plan.op(k)) ?? 0) + plan.data.kernels.cost[k]));
  for (const [op] of [...sums].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1))) color(op);
}
export function color(op: string): string {
  let c = colors.get(op);
  if (!c) colors.set(op, c = shaded(BASE[colors.size % BASE.length], Math.floor(colors.size / BASE.length) % 5));
  return c;
}
const inks = new Map<string, string>();
export function inkOn(hex: string): string {
  let ink = inks.get(hex);
  if (!ink) {
    const [r, g, b] = [1, 3, 5].map(i => { const v = parseInt(hex.slice(i, i + 2), 16) / 255; return v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; });
    inks.set(hex, ink = .2126 * r + .7152 * g + .0722 * b > .179 ? "#10151c" : "#ffffff");
  }
  return ink;
}

export const dark = (): boolean => {
  const theme = document.documentElement.dataset.theme;
  return theme ? theme === "dark" : matchMedia("(prefers-color-scheme:dark)").matches;
};
export interface Theme { bg: string; panel: string; ink: string; dim: string; line: string; lane: string; accent: string; critical: string; firing: string }
// Read once for each drawing, since each property that is asked for costs a style.
export function theme(): Theme {
  const style = getComputedStyle(document.documentElement), v = (name: string): string => style.getPropertyValue("--" + name).trim();
  return { bg: v("bg"), panel: v("panel"), ink: v("ink"), dim: v("dim"), line: v("line"), lane: v("lane"), accent: v("accent"), critical: v("critical"), firing: v("firing") };
}
