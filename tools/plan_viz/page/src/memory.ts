// Memory of a space: addresses by time. Each block is a buffer while it holds something.
import { bytes, lowerBound } from "./format";
import { Plan, RUN, Run } from "./model";
import { color, inkOn, theme, Theme } from "./palette";
import { state } from "./state";
import { cursor, FONT, label, Scale, scale, sized, timeAxis } from "./surface";
import { tokensOf } from "./tokens";

interface Life { begin: number[]; end: number[] }
export interface Users { register: number; makers: number[]; readers: number[] }  // of a buffer: a register's slot (-1: none), kernels

// Who makes and who reads each buffer.
const known = new WeakMap<Plan, Users[]>();
export function usersOf(plan: Plan): Users[] {
  let users = known.get(plan);
  if (users) return users;
  users = plan.data.buffers.n.map(() => ({ register: -1, makers: [], readers: [] }));
  for (let r = 0; r < plan.slots.length; ++r) for (const slot of plan.slots[r]) if (users[slot].register < 0) users[slot].register = r;
  plan.data.kernels.n.forEach((_, k) => {
    for (const v of plan.writes(k)) if (v.base === 0) users![v.index].makers.push(k);
    for (const v of plan.reads(k)) if (v.base === 0) users![v.index].readers.push(k);
    const workspace = plan.data.kernels.workspace[k];
    if (workspace >= 0) users![workspace].makers.push(k);
  });
  known.set(plan, users);
  return users;
}

// When each buffer holds something in the run: a slot from the firing that writes it until the last that reads it has
// given it back; others from the first to the last kernel of their actor's program that touches them.
function livesOf(plan: Plan, run: Run): Life[] {
  const lives: Life[] = plan.data.buffers.n.map(() => ({ begin: [], end: [] })), tokens = tokensOf(plan, run);
  if (!tokens) return lives;
  plan.slots.forEach((slots, r) => {
    if (!slots.length || plan.data.registers.inPlace[r] >= 0) return;
    tokens.of[r].forEach((token, i) => {
      const life = lives[slots[i % slots.length]];
      life.begin.push(Math.max(0, token.write));
      life.end.push(Math.min(run.total, token.free));
    });
  });
  plan.programs.forEach((program, a) => {
    const uses = new Map<number, [number, number]>();
    let n = 0;
    for (const { kind, index } of program) {
      if (kind !== RUN) continue;
      const touched = [...plan.reads(index), ...plan.writes(index)].filter(v => v.base === 0).map(v => v.index);
      if (plan.data.kernels.workspace[index] >= 0) touched.push(plan.data.kernels.workspace[index]);
      for (const b of touched) uses.set(b, [uses.get(b)?.[0] ?? n, n]);
      ++n;
    }
    for (const f of run.ofActor[a]) {
      if (run.first[f + 1] - run.first[f] !== n) continue;
      for (const [b, [from, to]] of uses) {
        lives[b].begin.push(run.spanBegin[run.first[f] + from]);
        lives[b].end.push(run.spanEnd[run.first[f] + to]);
      }
    }
  });
  return lives;
}

const LEFT = 176, TOP = 24, FOOT = 8;

export class MemoryView {
  private lives = new Map<Run, Life[]>();
  private bands: { begin: number; bytes: number; name: string; arena: number }[] = [];
  private buffersOf: number[][] = [];  // by arena
  private scale: Scale = scale(LEFT, LEFT + 1, 0, 1);
  private height = 1;
  private most = 1;
  private arenas = 1;  // where arenas end
  private bandsOf = -1;
  constructor(readonly canvas: HTMLCanvasElement, readonly plan: Plan) {
    this.buffersOf = plan.data.arenas.map(() => []);
    plan.data.buffers.arena.forEach((a, b) => this.buffersOf[a].push(b));
  }

  // Arenas of the space from the bottom, then what lies there all the time: variables, constants, packed copies.
  private layout(): void {
    if (this.bandsOf === state.space) return;
    this.bandsOf = state.space;
    this.bands = [];
    const { arenas, ledger, spaces, budget } = this.plan.data;
    let at = 0;
    arenas.forEach((a, i) => { if (a.space === state.space) { this.bands.push({ begin: at, bytes: a.bytes, name: "arena " + a.n, arena: i }); at += a.bytes; } });
    this.arenas = Math.max(1, at);
    const lines = ledger.filter(l => l[0] !== "arena" && l[2] === spaces[state.space]).sort((a, b) => b[3] - a[3]);
    for (const kind of new Set(lines.map(l => l[0]))) {
      const of = lines.filter(l => l[0] === kind), sum = of.reduce((n, l) => n + l[3], 0);
      const name = of.length === 1 ? kind + " " + of[0][1] : of.length + " " + kind + (kind === "packed" ? " copies" : "s") + ", the largest " + of[0][1];
      this.bands.push({ begin: at, bytes: sum, name, arena: -1 });
      at += sum;
    }
    this.most = Math.max(1, at, budget > 0 && budget < 2 * at ? budget * 1.04 : 0);
  }
  // What lies there all the time has at most a third of the room: nothing is to be seen in it. It is then not to scale.
  private share(): number { return Math.max(this.arenas / this.most, this.most > this.arenas ? .67 : 1); }
  private y(address: number): number {
    const share = this.share(), part = address <= this.arenas ? share * address / this.arenas : share + (1 - share) * (address - this.arenas) / (this.most - this.arenas);
    return TOP + (this.height - TOP - FOOT) * (1 - part);
  }

  draw(run: Run, width: number, height: number): void {
    this.layout();
    this.height = height;
    const colors = theme(), pen = sized(this.canvas, width, height), s = this.scale = scale(LEFT, width - 8, state.t0, state.t1);
    pen.fillStyle = colors.panel;
    pen.fillRect(0, 0, width, height);
    pen.font = FONT;
    timeAxis(pen, s, height, colors);
    let lives = this.lives.get(run);
    if (!lives) this.lives.set(run, lives = livesOf(this.plan, run));
    for (const band of this.bands) this.drawBand(pen, band, lives, colors);
    const { budget } = this.plan.data;
    if (budget > 0 && budget <= this.most) {
      pen.fillStyle = colors.critical;
      pen.fillRect(LEFT, this.y(budget) - 1, s.right - LEFT, 2);
      pen.textAlign = "right";
      pen.fillText("budget " + bytes(budget), LEFT - 8, this.y(budget));
      pen.textAlign = "left";
    }
    if (!tokensOf(this.plan, run)) { pen.fillStyle = colors.dim; pen.fillText("a server's run is of several sessions; choose the predicted one", LEFT + 12, TOP + 16); }
    if (state.at >= 0) cursor(pen, s, state.at, height, colors);
  }

  private drawBand(pen: CanvasRenderingContext2D, band: { begin: number; bytes: number; name: string; arena: number }, lives: Life[], colors: Theme): void {
    const s = this.scale, top = this.y(band.begin + band.bytes), bottom = this.y(band.begin), h = Math.max(1, bottom - top - 1);
    pen.fillStyle = band.arena < 0 ? colors.firing : colors.lane;
    pen.fillRect(LEFT, top, s.right - LEFT, h);
    if (h > 11) {
      const name = band.name.length > 24 ? band.name.slice(0, 23) + "…" : band.name;
      pen.fillStyle = colors.ink;
      pen.fillText(name, 12, top + Math.min(h / 2, 12));
      pen.fillStyle = colors.dim;
      if (h > 26) pen.fillText(bytes(band.bytes), 12, top + 26);
    }
    if (band.arena < 0) { label(pen, band.name + "  " + bytes(band.bytes) + (this.share() > this.arenas / this.most ? ", not to scale" : ""), LEFT, top + h / 2, h > 11 ? s.right - LEFT : 0, colors.ink); return; }
    const { buffers } = this.plan.data;
    for (const b of this.buffersOf[band.arena]) {
      const life = lives[b], y1 = this.y(band.begin + buffers.offset[b]), y0 = this.y(band.begin + buffers.offset[b] + buffers.bytes[b]);
      const fill = this.fill(b), tall = Math.max(1, y1 - y0 - (y1 - y0 > 4 ? 1 : 0)), on = state.selected?.kind === "buffer" && state.selected.index === b || state.selected?.kind === "register" && this.plan.slots[state.selected.index].includes(b);
      let painted = -1;
      for (let i = lowerBound(life.end, t => t, s.t0); i < life.begin.length; ++i) {
        if (life.begin[i] > s.t1) break;
        const x0 = Math.max(s.left, s.x(life.begin[i])), x1 = Math.min(s.right, s.x(life.end[i]));
        if (x1 < painted) continue;
        painted = x0 + 1;
        pen.fillStyle = fill;
        pen.fillRect(x0, y0, Math.max(1, x1 - x0 - (x1 - x0 > 3 ? .6 : 0)), tall);
        if (on) { pen.strokeStyle = colors.accent; pen.lineWidth = 2; pen.strokeRect(x0 + 1, y0 + 1, Math.max(2, x1 - x0 - 2), Math.max(2, tall - 2)); }
        if (tall > 11) label(pen, buffers.n[b], x0, (y0 + y1) / 2, x1 - x0, inkOn(fill));
      }
    }
  }
  private fill(buffer: number): string {
    const users = usersOf(this.plan)[buffer], kernel = users.makers[0] ?? (users.register >= 0 ? this.plan.kernelsOf(this.plan.data.registers.producer[users.register]).pop() : undefined);
    return kernel === undefined ? "#9aa3ad" : color(this.plan.op(kernel));
  }

  // The buffers that hold something at a moment.
  alive(run: Run, at: number): number[] {
    let lives = this.lives.get(run);
    if (!lives) this.lives.set(run, lives = livesOf(this.plan, run));
    return lives.map((_, b) => b).filter(b => this.holds(lives![b], at));
  }
  // Where the middle of a buffer's block is, at the first time that it holds something.
  place(run: Run, buffer: number): [number, number] {
    const { buffers } = this.plan.data, life = this.lives.get(run)![buffer], band = this.bands.find(b => b.arena === buffers.arena[buffer])!;
    return [this.scale.x((life.begin[0] + life.end[0]) / 2), this.y(band.begin + buffers.offset[buffer] + buffers.bytes[buffer] / 2)];
  }
  private holds(life: Life, at: number): boolean {
    const i = lowerBound(life.end, t => t, at + .5);
    return i < life.begin.length && life.begin[i] <= at;
  }

  // The buffer that holds something there, or that lies there.
  pick(run: Run, x: number, y: number): number {
    const address = (1 - (y - TOP) / (this.height - TOP - FOOT)) / this.share() * this.arenas, at = this.scale.t(x), lives = this.lives.get(run), { buffers } = this.plan.data;
    const band = this.bands.find(b => b.arena >= 0 && address >= b.begin && address < b.begin + b.bytes);
    if (!band || x < LEFT || !lives) return -1;
    const there = this.buffersOf[band.arena].filter(b => address >= band.begin + buffers.offset[b] && address < band.begin + buffers.offset[b] + buffers.bytes[b]);
    return there.find(b => this.holds(lives[b], at)) ?? -1;
  }
}
