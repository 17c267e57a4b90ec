// Other numbers of slots: plan-viz has made a forecast of each choice, and buttons go from one to the next.
import { button, el } from "./format";
import { Plan } from "./model";
import { list, PlanData } from "./wire";

export class Choices {
  readonly registers: number[];  // that have another number of slots in some choice
  constructor(readonly all: PlanData[]) {
    for (const { registers } of all) registers.quota = list(registers.quota, registers.n.length);
    this.registers = all.length ? all[0].registers.n.map((_, r) => r).filter(r => all.some(data => data.registers.quota[r] !== all[0].registers.quota[r])) : [];
  }

  // The choice that has `by` slots more in a register, and else those of the plan.
  beside(plan: Plan, register: number, by: number): PlanData | undefined {
    const want = plan.data.registers.quota.map((quota, r) => r === register ? quota + by : quota);
    return this.all.find(data => want.every((quota, r) => data.registers.quota[r] === quota));
  }
}

// The pace of a plan: how many steps a second, and what hinders more.
export function reaches({ data }: Plan): string {
  if (!data.ok) return "refused: it can block, see the table Proof";
  if (!data.costs || !data.period) return "its kernels have no costs";
  return `${+(1e9 / data.period).toPrecision(3)} steps/s`;
}

export function drawChoices(bar: HTMLElement, plan: Plan, choices: Choices, chosen: (data: PlanData) => void): void {
  if (!choices.registers.length) return;
  for (const r of choices.registers) {
    const name = plan.data.registers.n[r], group = el("span", undefined, "slots");
    group.dataset.register = name;
    const one = (text: string, by: number, title: string): HTMLButtonElement => {
      const data = choices.beside(plan, r, by), b = button(text, title, () => { if (data) chosen(data); });
      b.disabled = !data;
      return b;
    };
    const quota = plan.data.registers.quota[r];
    group.append(name + " ", one("−", -1, `One slot less for ${name}`), el("b", quota + (quota === 1 ? " slot" : " slots")), one("+", 1, `One slot more for ${name}`));
    bar.append(group);
  }
  const told = el("output", reaches(plan), plan.data.ok ? "good" : "bad");
  told.id = "reaches";
  told.title = plan.data.critical;
  bar.append(told);
}
