// The graph of actors, drawn; with the tokens of the replay.
import { bytes, percent, plural, time } from "./format";
import { Graph, graphOf, Link, Node, NODE_H, NODE_W, unfoldedToSee } from "./folding";
import { Plan } from "./model";
import { Bright } from "./lanes";
import { theme, Theme } from "./palette";
import { change, shownRun, state } from "./state";
import { FONT, sized } from "./surface";
import { Tokens, tokensOf } from "./tokens";

// Tokens at the moment of the replay, or of the process that runs.
type Now = Pick<Tokens, "use" | "active">;

export class GraphView {
  private graph: Graph | null = null;
  private of = "";
  private zoom = 1;
  private dx = 0;
  private dy = 0;
  private size: [number, number] = [1, 1];
  private started = false;
  constructor(readonly canvas: HTMLCanvasElement, readonly plan: Plan) {}

  start(): void { this.started = true; change({ open: unfoldedToSee(this.plan, state.fold) }); }
  nodes(): Node[] { return this.current().nodes; }
  // The middle of a node, for whoever wants to click it.
  place(node: Node): [number, number] { return [(node.x + NODE_W / 2) * this.zoom + this.dx, (node.y + NODE_H / 2) * this.zoom + this.dy]; }

  private current(): Graph {
    const key = state.fold + "\0" + [...state.open].join("\0");
    if (this.graph && this.of === key) return this.graph;
    const refold = this.of !== "" && this.of.split("\0")[0] === state.fold;
    this.of = key;
    this.graph = graphOf(this.plan, state.fold, state.open);
    if (!refold || this.graph.width * this.zoom < this.size[0]) this.fit();
    return this.graph;
  }
  fit(): void {
    if (!this.graph) return;
    const [w, h] = this.size;
    this.zoom = Math.min(1.15, Math.max(.3, Math.min((w - 40) / this.graph.width, (h - 40) / this.graph.height)));
    this.dx = Math.max(20, (w - this.graph.width * this.zoom) / 2);
    this.dy = (h - this.graph.height * this.zoom) / 2;
  }
  pan(dx: number, dy: number): void { this.dx += dx; this.dy += dy; }
  zoomAt(factor: number, x: number, y: number): void {
    const zoom = Math.min(3, Math.max(.02, this.zoom * factor)), k = zoom / this.zoom;
    this.dx = x - (x - this.dx) * k;
    this.dy = y - (y - this.dy) * k;
    this.zoom = zoom;
  }

  draw(width: number, height: number, bright: Bright): void {
    if (!this.started) { this.start(); return; }  // which draws
    const first = this.size[0] === 1;
    this.size = [width, height];
    const graph = this.current(), colors = theme(), pen = sized(this.canvas, width, height);
    if (first) this.fit();
    pen.fillStyle = colors.panel;
    pen.fillRect(0, 0, width, height);
    const k = devicePixelRatio || 1;
    pen.setTransform(k * this.zoom, 0, 0, k * this.zoom, k * this.dx, k * this.dy);
    pen.font = FONT;
    const tokens: Now | null = state.live?.now ? state.live : state.at >= 0 ? tokensOf(this.plan, shownRun()) : null;
    const left = -this.dx / this.zoom, top = -this.dy / this.zoom, right = left + width / this.zoom, bottom = top + height / this.zoom;
    for (const link of graph.links) {
      const a = graph.nodes[link.from], b = graph.nodes[link.to];
      if (Math.min(a.x, b.x) > right || Math.max(a.x, b.x) + NODE_W < left || Math.min(a.y, b.y) > bottom || Math.max(a.y, b.y) + NODE_H < top) continue;
      this.drawLink(pen, link, a, b, colors, tokens);
    }
    for (const node of graph.nodes)
      if (node.x < right && node.x + NODE_W > left && node.y < bottom && node.y + NODE_H > top) this.drawNode(pen, node, colors, tokens, bright);
  }

  private drawLink(pen: CanvasRenderingContext2D, link: Link, a: Node, b: Node, colors: Theme, tokens: Now | null): void {
    const { registers } = this.plan.data, back = b.layer <= a.layer, x0 = a.x + NODE_W, y0 = a.y + NODE_H / 2, x1 = b.x, y1 = b.y + NODE_H / 2;
    const hot = link.registers.some(r => this.plan.data.cycleRegisters.includes(r)), on = state.selected?.kind === "register" && link.registers.includes(state.selected.index);
    const near = state.selected?.kind === "actor" && (a.actors.includes(state.selected.index) || b.actors.includes(state.selected.index));
    pen.strokeStyle = on || near ? colors.accent : hot ? colors.critical : colors.dim;
    pen.lineWidth = on || hot || near ? 2.2 : 1.1;
    pen.globalAlpha = on || hot || near ? 1 : .65;
    pen.setLineDash(back ? [5, 4] : []);
    const below = !back && x1 < x0;  // on the next row
    const bend = back || below ? 90 : Math.max(24, (x1 - x0) / 2.4), sag = back ? 70 : 0;
    pen.beginPath();
    pen.moveTo(x0, y0);
    if (below) {
      const middle = y1 - NODE_H / 2 - 18;
      pen.bezierCurveTo(x0 + 40, y0, x0 + 40, middle, x0 - 20, middle);
      pen.lineTo(x1 + 20, middle);
      pen.bezierCurveTo(x1 - 50, middle, x1 - 50, y1, x1 - 6, y1);
    } else pen.bezierCurveTo(x0 + bend, y0 + sag, x1 - bend, y1 + sag, x1 - 6, y1);
    pen.stroke();
    pen.setLineDash([]);
    pen.fillStyle = pen.strokeStyle;
    pen.beginPath();
    pen.moveTo(x1, y1); pen.lineTo(x1 - 8, y1 - 4); pen.lineTo(x1 - 8, y1 + 4);
    pen.fill();
    pen.globalAlpha = 1;
    if (this.zoom < .5) return;
    const r = link.registers[0], one = link.registers.length === 1;
    let text = !one ? link.registers.length + " registers" : "×" + registers.quota[r] + (registers.bytes[r] ? " " + bytes(registers.bytes[r]) : "");
    if (tokens) {
      const sum = link.registers.map(i => tokens.use(i, state.at)), full = sum.reduce((n, u) => n + u.full, 0), writing = sum.reduce((n, u) => n + u.writing, 0);
      text = full + (writing ? " + " + writing : "") + " of " + link.registers.reduce((n, i) => n + registers.quota[i], 0);
    }
    const mx = (x0 + x1) / 2, my = below ? y1 - NODE_H / 2 - 18 : (y0 + y1) / 2 + (back ? 52 : 0), w = pen.measureText(text).width + 8;
    pen.fillStyle = colors.panel;
    pen.fillRect(mx - w / 2, my - 8, w, 15);
    pen.fillStyle = hot ? colors.critical : colors.dim;
    pen.textAlign = "center";
    pen.fillText(text, mx, my);
    pen.textAlign = "left";
  }

  private drawNode(pen: CanvasRenderingContext2D, node: Node, colors: Theme, tokens: Now | null, bright: Bright): void {
    const { kernels, streams, actors } = this.plan.data, hot = node.actors.some(a => this.plan.cycle.has(a));
    const on = state.selected?.kind === "actor" && node.actors.includes(state.selected.index) || state.selected?.kind === "kernel" && node.actors.includes(this.plan.actorOf[state.selected.index]);
    const firing = tokens !== null && node.actors.some(a => tokens.active(a, state.at) >= 0);
    pen.globalAlpha = bright.actors && !node.actors.some(a => bright.actors![a]) ? .25 : 1;
    pen.fillStyle = firing ? colors.accent : colors.lane;
    pen.strokeStyle = on ? colors.accent : hot ? colors.critical : colors.line;
    pen.lineWidth = on || hot ? 2.2 : 1.2;
    pen.beginPath();
    if (node.group) pen.rect(node.x + 4, node.y - 4, NODE_W, NODE_H);  // a pile
    pen.rect(node.x, node.y, NODE_W, NODE_H);
    pen.fill();
    pen.stroke();
    if (this.zoom > .22) {
      const runs = node.actors.flatMap(a => this.plan.kernelsOf(a)), cost = runs.reduce((sum, k) => sum + kernels.cost[k], 0);
      pen.fillStyle = firing ? colors.panel : colors.ink;
      pen.font = "600 " + FONT;
      const room = node.group ? 22 : 27;
      pen.fillText(node.title.length > room ? "…" + node.title.slice(1 - room) : node.title, node.x + 9, node.y + 15);
      pen.font = FONT;
      pen.fillStyle = firing ? colors.panel : colors.dim;
      const s = streams[actors.stream[node.actors[0]]].n;
      const busy = state.live?.now ? percent(node.actors.reduce((sum, a) => sum + state.live!.busy(a), 0)) + " busy" : "";
      const text = busy || (node.group ? plural(node.actors.length, "actor") : s.length > 15 ? s.slice(-15) : s) + (runs.length ? " · " + (this.plan.data.costs ? time(cost) : plural(runs.length, "kernel")) : "");
      pen.fillText(text, node.x + 9, node.y + 32);
      if (node.group) { pen.strokeStyle = firing ? colors.panel : colors.dim; pen.lineWidth = 1.2; pen.strokeRect(node.x + NODE_W - 21, node.y + 8, 13, 13); pen.fillText("+", node.x + NODE_W - 18, node.y + 15); }
    }
    pen.globalAlpha = 1;
  }

  // The node at a place, and whether it is where it unfolds.
  pick(px: number, py: number): { node: Node; unfold: boolean } | null {
    const x = (px - this.dx) / this.zoom, y = (py - this.dy) / this.zoom;
    const node = this.current().nodes.find(n => x >= n.x && x <= n.x + NODE_W && y >= n.y && y <= n.y + NODE_H);
    return node ? { node, unfold: node.group && x > node.x + NODE_W - 26 && y < node.y + 26 } : null;
  }
  unfold(node: Node): void { if (node.group) change({ open: new Set(state.open).add(node.key) }); }
  // Folds the group that the selected actor stands in.
  fold(actor: number): void {
    const own = this.plan.moduleOf[actor], stream = this.plan.data.streams[this.plan.data.actors.stream[actor]];
    const keys = [...state.open].filter(key => state.fold === "module" ? own === key || own.startsWith(key + ".") : key === (state.fold === "stream" ? stream.n : stream.d));
    if (!keys.length) return;
    const open = new Set(state.open);
    open.delete(keys.sort((a, b) => b.length - a.length)[0]);
    change({ open });
  }
}
