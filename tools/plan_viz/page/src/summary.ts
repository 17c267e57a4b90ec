// Four panels of a run, as `plan-viz stats` says them: how much ran at the same time, what took longest, how busy streams
// were, and how long kernels took. Cells have the exact numbers as data.
import { count, el, percent, time } from "./format";
import { Run } from "./model";

function panel(title: string, ...content: Node[]): HTMLElement {
  const section = el("section");
  section.append(el("h3", title), ...content);
  return section;
}
function cell(text: string, exact: number, cls = "r"): HTMLTableCellElement {
  const td = el("td", text, cls);
  td.dataset.exact = String(exact);
  return td;
}
function tableOf(heads: string[], rows: HTMLTableCellElement[][]): HTMLElement {
  const table = el("table"), body = el("tbody"), head = el("tr"), top = el("thead");
  heads.forEach((h, i) => head.append(el("th", h, i ? "r" : "")));
  for (const row of rows) { const tr = el("tr"); tr.append(...row); body.append(tr); }
  top.append(head);
  table.append(top, body);
  return table;
}
// Upright bars, each as high as its share of the highest.
function bars(values: number[], titles: string[]): HTMLElement {
  const box = el("div", undefined, "bars"), most = Math.max(1, ...values);
  values.forEach((value, i) => {
    const bar = el("i");
    bar.style.height = percent(value / most);
    bar.title = titles[i];
    bar.dataset.exact = String(value);
    box.append(bar);
  });
  return box;
}

export function summaryOf(run: Run): HTMLElement {
  const box = el("div", undefined, "summary"), panels = run.panels;
  if (!panels) { box.append(el("p", "A trace that is dropped has no summary; `plan-viz html RUN` makes a page that has.")); return box; }
  const spans = panels.parallelism.map(([from, to]) => `${time(from)} to ${time(to)}`);
  const at = panels.parallelism.map(([from, to, busy], i) => `${spans[i]}: ${to > from ? (busy / (to - from)).toFixed(2) : 0} kernels at once`);
  const parallelism = panel("parallelism over time", bars(panels.parallelism.map(p => p[2]), at),
    tableOf(["kernels at once", "time", "share"], panels.levels.map((ns, n) => [cell(String(n), n, ""), cell(time(ns), ns), cell(percent(ns / run.total), ns)])));
  parallelism.dataset.name = "parallelism";
  const tasks = panel("critical tasks", tableOf(["kernel", "runs", "all", "longest"], panels.tasks.map(t => {
    const name = el("td", t.kernel, t.critical ? "critical" : "");
    name.title = t.critical ? "in the cycle that limits the plan" : t.kernel;
    return [name, cell(count(t.runs), t.runs), cell(time(t.total_ns), t.total_ns), cell(time(t.longest_ns), t.longest_ns)];
  })));
  tasks.dataset.name = "tasks";
  const lanes = panel("utilization", tableOf(["stream", "firings", "kernels", "in firings", "in kernels", "share"], panels.utilization.map(u =>
    [el("td", u.stream), cell(count(u.firings), u.firings), cell(count(u.kernels), u.kernels), cell(time(u.firings_ns), u.firings_ns), cell(time(u.kernels_ns), u.kernels_ns), cell(percent(u.share), u.share)])));
  lanes.dataset.name = "utilization";
  const durations = panel("how long kernels took", bars(panels.durations.map(d => d[2]), panels.durations.map(d => `${time(d[0])} to ${time(d[1])}: ${count(d[2])} runs`)),
    tableOf(["from", "to", "runs", "all"], panels.durations.map(([from, to, runs, ns]) => [cell(time(from), from, ""), cell(time(to), to), cell(count(runs), runs), cell(time(ns), ns)])));
  durations.dataset.name = "durations";
  box.append(parallelism, tasks, lanes, durations);
  return box;
}
