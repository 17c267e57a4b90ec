// The tables below: all entities of a kind that the search leaves, one a row.
import { $, bytes, button, count, el, percent, time, toggleClass } from "./format";
import { Plan } from "./model";
import { requestName } from "./requests";
import { requestEdges } from "./rows";
import { change, Kind, shownRun, state } from "./state";
import { summaryOf } from "./summary";

interface Table {
  name: string; count: number; kind?: Kind; heads: string[]; right: number[]; order?: number[];
  text(i: number): string;
  cells(i: number): (string | number)[];
}
const ROWS = 400;
const down = (n: number, value: (i: number) => number): number[] => [...Array(n).keys()].sort((a, b) => value(b) - value(a));

function entityTables(plan: Plan): Table[] {
  const { actors, kernels, registers, buffers, streams, edges, costs } = plan.data;
  const device = (a: number): string => a >= 0 ? streams[actors.stream[a]].d : "";
  return [
    { name: "Kernels", count: kernels.n.length, kind: "kernel", heads: ["kernel", "op", "device", "actor", "predicted", "source"], right: [4],
      text: i => [kernels.n[i], plan.op(i), plan.text(kernels.module[i]), plan.text(kernels.role[i]), plan.text(kernels.source[i])].join(" "),
      cells: i => [kernels.n[i], plan.op(i), device(plan.actorOf[i]), actors.n[plan.actorOf[i]] ?? "", costs ? time(kernels.cost[i]) : "", plan.text(kernels.source[i])] },
    { name: "Actors", count: actors.n.length, kind: "actor", heads: ["actor", "role", "stream", "module", "kernels", "firings"], right: [4, 5],
      text: i => actors.n[i] + " " + plan.text(actors.role[i]) + " " + plan.moduleOf[i],
      cells: i => [actors.n[i], plan.text(actors.role[i]), streams[actors.stream[i]].n, plan.moduleOf[i], plan.kernelsOf(i).length, plan.runs[plan.runs.length - 1].ofActor[i].length] },
    { name: "Registers", count: registers.n.length, kind: "register", heads: ["register", "producer", "consumers", "quota", "most in use", "slot", "all slots", "space", "events"], right: [3, 4, 5, 6],
      text: i => registers.n[i],
      cells: i => [registers.n[i], actors.n[registers.producer[i]], [...plan.edgesOf[i]].map(e => actors.n[edges.consumer[e]]).join(", "), registers.quota[i], registers.peak[i], registers.bytes[i] ? bytes(registers.bytes[i]) : "control", registers.bytes[i] ? bytes(registers.bytes[i] * registers.quota[i]) : "", plan.spaceOf(i), plan.text(registers.events[i])] },
    { name: "Buffers", count: buffers.n.length, kind: "buffer", heads: ["buffer", "arena", "address", "bytes"], right: [2, 3], order: down(buffers.n.length, b => buffers.bytes[b]),
      text: i => buffers.n[i], cells: i => [buffers.n[i], plan.data.arenas[buffers.arena[i]].n, count(buffers.offset[i]), bytes(buffers.bytes[i])] },
  ];
}

function otherTables(plan: Plan): Table[] {
  const { ledger, devices, calls } = plan.data;
  const all: Table[] = [
    { name: "Memory", count: ledger.length, heads: ["kind", "name", "space", "bytes", "lower bound"], right: [3, 4], order: down(ledger.length, i => ledger[i][3]),
      text: i => ledger[i][0] + " " + ledger[i][1], cells: i => { const l = ledger[i]; return [l[0], l[1], l[2], bytes(l[3]), l[0] === "arena" ? bytes(l[4]) : ""]; } },
    { name: "Devices", count: devices.length, heads: ["device", "compute", "communication", "of it exposed", "bubble", "memory"], right: [1, 2, 3, 4, 5],
      text: i => devices[i][0], cells: i => { const [name, ...v] = devices[i]; return [name, ...v.slice(0, 4).map(percent), bytes(v[4])]; } },
    { name: "Collectives", count: calls.length, heads: ["group", "ranks", "call", "op", "bytes", "kernels"], right: [0, 2, 4],
      text: i => calls[i][3] + " " + calls[i][5], cells: i => { const c = calls[i]; return [c[0], c[1], c[2], c[3], bytes(c[4]), c[5]]; } },
  ];
  return all.filter(t => t.count > 0);
}

function requestTable(plan: Plan): Table[] {
  const run = plan.runs.find(r => r.requests.length);
  if (!run) return [];
  return [{
    name: "Requests", count: run.requests.length, kind: "request", heads: ["request", "model", "instance", "step", "took", "with"], right: [2, 3, 4],
    text: i => requestName(run, i) + " " + run.requests[i].m,
    cells: i => {
      const r = run.requests[i], [begin, end] = requestEdges(run, i), steps = r.s.map(s => run.steps[s]);
      return [requestName(run, i), r.m, steps.map(s => s[1]).join(", "), steps.map(s => s[2]).join(", "), time(end - begin), [...new Set(steps.flatMap(s => s[0]))].filter(n => n !== r.n).join(", ")];
    },
  }];
}

export class Tables {
  private tables: Table[];
  private texts = new Map<Table, string[]>();
  private shown: number[] = [];
  constructor(readonly plan: Plan) {
    this.tables = [...requestTable(plan), ...entityTables(plan), ...otherTables(plan)];
    const names = [...this.tables.map(t => ({ name: t.name, count: t.count as number | null })), { name: "Summary", count: null }, { name: "Proof", count: null }];
    $("tabs").replaceChildren(...names.map(({ name, count: n }) => {
      const b = button(name, "", () => change({ tab: name }));
      b.setAttribute("role", "tab");
      b.dataset.name = name;
      if (n !== null) b.append(el("i", count(n)));
      return b;
    }));
  }

  // Texts are made when they are first searched: of a large plan they are many.
  matching(name: string): (i: number) => boolean {
    const table = this.tables.find(t => t.name === name)!, words = state.words;
    let texts = this.texts.get(table);
    if (!texts) this.texts.set(table, texts = [...Array(table.count).keys()].map(i => table.text(i).toLowerCase()));
    return i => words.every(w => texts![i].includes(w));
  }

  draw(): void {
    const own = state.selected && this.tables.find(t => t.kind === state.selected!.kind);
    const name = state.tab || own?.name || this.tables[0].name, table = this.tables.find(t => t.name === name), out = $("rows");
    for (const b of $("tabs").children) toggleClass(b as HTMLElement, (b as HTMLElement).dataset.name === (table?.name ?? (name === "Summary" ? name : "Proof")));
    this.shown = [];
    if (name === "Summary") { out.replaceChildren(summaryOf(shownRun())); return; }
    if (!table) { out.replaceChildren(el("pre", this.plan.data.proof, "proof")); return; }
    const matches = state.words.length ? this.matching(table.name) : () => true, list = this.shown;
    let found = 0;
    for (let n = 0; n < table.count; ++n) { const i = table.order ? table.order[n] : n; if (matches(i) && ++found <= ROWS) list.push(i); }
    const selected = state.selected && state.selected.kind === table.kind ? state.selected.index : -1;
    if (selected >= 0 && !list.includes(selected)) list.unshift(selected);
    const body = el("tbody"), headRow = el("tr"), head = el("thead"), whole = el("table");
    table.heads.forEach((h, c) => headRow.append(el("th", h, table.right.includes(c) ? "r" : "")));
    head.append(headRow);
    for (const i of list) {
      const tr = el("tr", undefined, i === selected ? "on" : "");
      table.cells(i).forEach((c, n) => { const td = el("td", c, table.right.includes(n) ? "r" : ""); td.title = String(c); tr.append(td); });
      if (table.kind) { tr.dataset.index = String(i); tr.onclick = () => change({ selected: { kind: table.kind!, index: i } }); }
      body.append(tr);
    }
    whole.append(head, body);
    out.replaceChildren(whole);
    if (found > ROWS) out.append(el("div", `… ${count(found - ROWS)} more; search to see them`, "more"));
    if (!found) out.append(el("div", "nothing matches", "more"));
  }

  // The next row, or the one before, becomes what is selected.
  move(by: number): void {
    const kind = this.tables.find(t => t.name === ($("tabs").querySelector(".on") as HTMLElement | null)?.dataset.name)?.kind;
    if (!kind || !this.shown.length) return;
    const at = state.selected?.kind === kind ? this.shown.indexOf(state.selected.index) : -1;
    change({ selected: { kind, index: this.shown[Math.max(0, Math.min(this.shown.length - 1, at + by))] } });
    $("rows").querySelector("tr.on")?.scrollIntoView({ block: "nearest" });
  }
}
