// The graph of actors, folded to groups and laid out in layers.
import { Plan } from "./model";

export interface Node { key: string; title: string; group: boolean; actors: number[]; layer: number; x: number; y: number }
export interface Link { from: number; to: number; registers: number[] }
export interface Graph { nodes: Node[]; links: Link[]; nodeOf: Int32Array; width: number; height: number }

export const NODE_W = 176, NODE_H = 46, STEP_X = 250, STEP_Y = 62;

// The group that an actor is folded into: the outermost that is not open. "": none, it stands alone.
function groupOf(plan: Plan, actor: number, fold: string, open: Set<string>): string {
  const stream = plan.data.streams[plan.data.actors.stream[actor]];
  if (fold === "nothing") return "";
  if (fold !== "module") { const key = fold === "stream" ? stream.n : stream.d; return open.has(key) ? "" : key; }
  const parts = plan.moduleOf[actor] ? plan.moduleOf[actor].split(".") : [];
  for (let n = 1; n <= parts.length; ++n) { const key = parts.slice(0, n).join("."); if (!open.has(key)) return key; }
  return "";
}

// The order in which actors first fire: what goes against it closes a loop.
function orderOf(plan: Plan): Float64Array {
  const run = plan.runs[0];
  return Float64Array.from(plan.programs, (_, a) => run.ofActor[a].length ? run.ofActor[a][0] : run.begin.length + a);
}

export function graphOf(plan: Plan, fold: string, open: Set<string>): Graph {
  const nodes: Node[] = [], byKey = new Map<string, number>(), order = orderOf(plan), nodeOf = new Int32Array(plan.programs.length);
  for (let a = 0; a < plan.programs.length; ++a) {
    const group = groupOf(plan, a, fold, open), key = group || "\0" + a;
    let n = byKey.get(key);
    if (n === undefined) {
      byKey.set(key, n = nodes.length);
      nodes.push({ key, title: group || plan.data.actors.n[a], group: group !== "", actors: [], layer: 0, x: 0, y: 0 });
    }
    nodes[n].actors.push(a);
    nodeOf[a] = n;
  }
  for (const node of nodes) {  // a group of one is that one
    if (!node.group || node.actors.length > 1) continue;
    node.group = false;
    node.title = plan.data.actors.n[node.actors[0]];
  }
  const links: Link[] = [], byEnds = new Map<number, Link>(), { registers, edges } = plan.data;
  for (let e = 0; e < edges.reg.length; ++e) {
    const from = nodeOf[registers.producer[edges.reg[e]]], to = nodeOf[edges.consumer[e]], ends = from * nodes.length + to;
    if (from === to) continue;
    let link = byEnds.get(ends);
    if (!link) { byEnds.set(ends, link = { from, to, registers: [] }); links.push(link); }
    if (!link.registers.includes(edges.reg[e])) link.registers.push(edges.reg[e]);
  }
  return layered(nodes, links, nodeOf, nodes.map(n => Math.min(...n.actors.map(a => order[a]))));
}

function layered(nodes: Node[], links: Link[], nodeOf: Int32Array, order: number[]): Graph {
  const into: number[][] = nodes.map(() => []), next: number[][] = nodes.map(() => []);
  for (const { from, to } of links) if (order[from] < order[to]) { into[to].push(from); next[from].push(to); }
  const sorted = nodes.map((_, n) => n).sort((a, b) => order[a] - order[b]);
  for (const n of sorted) for (const m of into[n]) nodes[n].layer = Math.max(nodes[n].layer, nodes[m].layer + 1);
  for (const n of [...sorted].reverse())  // what nothing leads to stands beside what it leads to
    if (!into[n].length && next[n].length) nodes[n].layer = Math.max(nodes[n].layer, Math.min(...next[n].map(m => nodes[m].layer)) - 1);
  const layers: number[][] = [];
  for (const n of sorted) (layers[nodes[n].layer] ??= []).push(n);
  const place = new Float64Array(nodes.length);
  for (const layer of layers) layer.forEach((n, i) => { place[n] = i; });
  for (let sweep = 0; sweep < 6; ++sweep) {  // each node near those that it is joined to
    const sides = sweep % 2 ? next : into;
    for (const layer of sweep % 2 ? [...layers].reverse() : layers) {
      const want = new Map(layer.map(n => [n, sides[n].length ? sides[n].reduce((sum, m) => sum + place[m], 0) / sides[n].length : place[n]]));
      layer.sort((a, b) => want.get(a)! - want.get(b)!);
      layer.forEach((n, i) => { place[n] = i; });
    }
  }
  const tallest = layers.reduce((most, l) => Math.max(most, l.length), 1), row = tallest * STEP_Y + 30;
  // A long chain goes on in further rows, so that it is twice as wide as it is high.
  const columns = layers.length <= 12 ? layers.length : Math.max(8, Math.ceil(Math.sqrt(2 * layers.length * row / STEP_X)));
  layers.forEach((layer, l) => layer.forEach((n, i) => {
    nodes[n].x = l % columns * STEP_X;
    nodes[n].y = Math.floor(l / columns) * row + (i + (tallest - layer.length) / 2) * STEP_Y;
  }));
  const rows = Math.ceil(layers.length / Math.max(1, columns));
  return { nodes, links, nodeOf, width: (Math.min(layers.length, columns) - 1) * STEP_X + NODE_W, height: (rows - 1) * row + (tallest - 1) * STEP_Y + NODE_H };
}

// Unfolds the largest groups as long as the graph stays easy to see.
export function unfoldedToSee(plan: Plan, fold: string): Set<string> {
  const open = new Set<string>();
  for (let round = 0; round < 40; ++round) {
    const { nodes } = graphOf(plan, fold, open), groups = nodes.filter(n => n.group).sort((a, b) => b.actors.length - a.actors.length);
    if (!groups.length) break;
    const next = new Set(open).add(groups[0].key);
    if (graphOf(plan, fold, next).nodes.length > 48) break;
    open.add(groups[0].key);
  }
  return open;
}
