// Two plans side by side: numbers, what differs by name, and both runs on one scale of time.
import { $, bytes, count, el, percent, time } from "./format";
import { LanesView } from "./lanes";
import { Plan } from "./model";
import { state } from "./state";

interface Difference { sign: string; what: string; name: string; text: string }

function entities(plan: Plan): Map<string, Map<string, string>> {
  const { actors, kernels, registers, streams } = plan.data, out = new Map<string, Map<string, string>>();
  const put = (what: string, name: string, facts: Record<string, string>): void => { out.set(what + " " + name, new Map(Object.entries(facts))); };
  actors.n.forEach((n, a) => put("actor", n, { stream: streams[actors.stream[a]].n, kernels: String(plan.kernelsOf(a).length) }));
  kernels.n.forEach((n, k) => put("kernel", n, { op: plan.op(k), attributes: plan.text(kernels.attrs[k]), predicted: time(kernels.cost[k]), writes: plan.writes(k).map(v => v.text).join(", ") }));
  registers.n.forEach((n, r) => put("register", n, { quota: String(registers.quota[r]), slot: bytes(registers.bytes[r]), space: plan.spaceOf(r) }));
  return out;
}
export function differences(a: Plan, b: Plan): Difference[] {
  const one = entities(a), two = entities(b), out: Difference[] = [];
  const row = (sign: string, key: string, text: string): void => { const cut = key.indexOf(" "); out.push({ sign, what: key.slice(0, cut), name: key.slice(cut + 1), text }); };
  for (const [key, facts] of one) {
    const other = two.get(key);
    if (!other) { row("−", key, ""); continue; }
    const changed = [...facts].filter(([name, value]) => other.get(name) !== value).map(([name, value]) => `${name}: ${value} → ${other.get(name)}`);
    if (changed.length) row("~", key, changed.join("; "));
  }
  for (const key of two.keys()) if (!one.has(key)) row("+", key, "");
  return out;
}

const ROWS = 300;
let shown: [Plan, Plan, Difference[]] | null = null;
export function drawCompare(width: number): void {
  const a = state.plan, b = state.other, box = $("compare");
  if (!b) return;
  if (!shown || shown[0] !== a || shown[1] !== b) shown = [a, b, differences(a, b)];
  box.replaceChildren();
  const end = Math.max(...a.runs.map(r => r.total), ...b.runs.map(r => r.total)), keep = { t0: state.t0, t1: state.t1, at: state.at };
  Object.assign(state, { t0: 0, t1: end, at: -1 });
  for (const plan of [a, b]) {
    const canvas = el("canvas"), view = new LanesView(canvas, plan), run = [plan.runs[plan.runs.length - 1]];
    box.append(el("h3", plan.data.name + " · " + run[0].name), canvas);
    view.draw(run, width - 24, 0, 0, Infinity, { kernels: null, actors: null });
  }
  Object.assign(state, keep);
  const table = el("table"), body = el("tbody");
  const busy = (p: Plan): number => p.data.devices.length ? Math.max(...p.data.devices.map(d => d[1])) : 0;
  const numbers: [string, (p: Plan) => number, (v: number) => string][] = [
    ["period, predicted", p => p.data.period, time], ["bytes", p => p.data.bytes, bytes], ["kernels", p => p.data.kernels.n.length, count], ["actors", p => p.data.actors.n.length, count],
    ["registers", p => p.data.registers.n.length, count], ["slots", p => p.data.registers.quota.reduce((n, q) => n + q, 0), count], ["busiest device computes", busy, percent]];
  const head = el("tr");
  for (const text of ["", a.data.name, b.data.name, "change"]) head.append(el("th", text, text ? "r" : ""));
  body.append(head);
  for (const [name, value, text] of numbers) {
    const tr = el("tr"), [x, y] = [value(a), value(b)];
    tr.append(el("td", name), el("td", text(x), "r"), el("td", text(y), "r"), el("td", x === y ? "" : x ? (y > x ? "+" : "−") + percent(Math.abs(y / x - 1)) : "new", "r"));
    body.append(tr);
  }
  table.append(body);
  const rows = el("table"), list = el("tbody"), found = shown[2].filter(d => !state.words.length || state.words.every(w => `${d.what} ${d.name}`.toLowerCase().includes(w)));
  for (const d of found.slice(0, ROWS)) {
    const tr = el("tr");
    tr.append(el("td", d.sign, "sign"), el("td", d.what), el("td", d.name), el("td", d.text, "wide"));
    list.append(tr);
  }
  rows.append(list);
  box.append(el("h3", "numbers"), table, el("h3", count(found.length) + (found.length === 1 ? " difference" : " differences") + (found.length > ROWS ? `, the first ${ROWS}` : "")), rows);
}
