// A process that runs, as plan-viz live tells of it: what each actor does now, and rates over the last seconds.

export interface Moment {
  clock: number; submitted: number; finished: number; failed: number; inFlight: number; most: number; waiting: number;
  firings: number[]; busy: number[];                       // by actor, since it began
  does: number[]; index: number[]; whom: number[];         // by actor: of DOES; a kernel, edge or register; an actor
  used: number[]; full: number[];                          // by register
}
export const DOES = ["runs", "device", "cores", "data", "slot", "step", "stream", "ready"] as const;
export interface Doing { does: typeof DOES[number]; index: number; whom: number; share: number }

const EVERY = 250, KEPT = 3e9;  // ms; ns

export class Live {
  readonly moments: Moment[] = [];
  fault = "";  // why nothing more comes
  constructor(readonly pid: number, readonly program: string) {}

  add(moment: Moment): void {
    if (this.moments.length && moment.submitted < this.now.submitted) this.moments.length = 0;  // it was reset
    this.moments.push(moment);
    while (this.moments.length > 2 && moment.clock - this.moments[1].clock > KEPT) this.moments.shift();
  }
  get now(): Moment { return this.moments[this.moments.length - 1]; }
  private perSecond(counter: (m: Moment) => number): number {
    const first = this.moments[0], ns = this.now.clock - first.clock;
    return ns > 0 ? (counter(this.now) - counter(first)) * 1e9 / ns : 0;
  }
  steps(): number { return this.perSecond(m => m.finished); }
  firings(actor: number): number { return this.perSecond(m => m.firings[actor]); }
  // The share of the time in kernels; one that takes longer than all that is kept has not been counted yet.
  busy(actor: number): number {
    return this.moments.every(m => m.does[actor] === 0) ? 1 : Math.min(1, this.perSecond(m => m.busy[actor]) / 1e9);
  }
  // These are the things that it did of late, the most frequent first.
  doings(actor: number): Doing[] {
    const found = new Map<string, Doing>();
    for (const m of this.moments) {
      const key = [m.does[actor], m.index[actor], m.whom[actor]].join(" ");
      const one = found.get(key) ?? { does: DOES[m.does[actor]], index: m.index[actor], whom: m.whom[actor], share: 0 };
      one.share += 1 / this.moments.length;
      found.set(key, one);
    }
    return [...found.values()].sort((a, b) => b.share - a.share);
  }
  // As Tokens, of now.
  use(register: number): { writing: number; full: number } {
    return { writing: this.now.used[register] - this.now.full[register], full: this.now.full[register] };
  }
  active(actor: number): number { return this.now.does[actor] === 0 ? actor : -1; }
}

// Asks again and again, until there is no answer.
export async function follow(live: Live, changed: () => void): Promise<void> {
  try {
    for (;;) {
      const answer = await fetch("state" + location.search, { cache: "no-store" });
      if (!answer.ok) throw new Error(answer.status === 410 ? "the process has ended" : (await answer.text()).trim());
      live.add(await answer.json() as Moment);
      changed();
      await new Promise(done => setTimeout(done, EVERY));
    }
  } catch (error) {
    live.fault = error instanceof TypeError ? "plan-viz no longer answers" : (error as Error).message;
    changed();
  }
}
