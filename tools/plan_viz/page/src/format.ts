// Numbers, texts and elements.
export const time = (ns: number): string => ns >= 1e9 ? +(ns / 1e9).toPrecision(3) + " s" : ns >= 1e6 ? +(ns / 1e6).toPrecision(3) + " ms" : ns >= 1e3 ? +(ns / 1e3).toPrecision(3) + " µs" : +ns.toPrecision(3) + " ns";
export const bytes = (b: number): string => {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (b >= 1024 && i < 4) { b /= 1024; ++i; }
  return (i ? b.toFixed(1) : b) + " " + units[i];
};
export const count = (n: number): string => n.toLocaleString("en");
export const plural = (n: number, noun: string): string => count(n) + " " + noun + (n === 1 ? "" : "s");
export const percent = (share: number): string => (100 * share).toFixed(1) + "%";

export const $ = <T extends HTMLElement = HTMLElement>(id: string): T => document.getElementById(id) as T;
// Text is only ever set as text: names of a plan are not markup.
export function el<K extends keyof HTMLElementTagNameMap>(tag: K, text?: string | number, cls?: string): HTMLElementTagNameMap[K] {
  const e = document.createElement(tag);
  if (text !== undefined) e.textContent = String(text);
  if (cls) e.className = cls;
  return e;
}
export function button(text: string, title: string, action: () => void, cls?: string): HTMLButtonElement {
  const b = el("button", text, cls);
  b.type = "button";
  if (title) b.title = title;
  b.onclick = action;
  return b;
}
export function toggleClass(e: HTMLElement, on: boolean): void {
  e.classList.toggle("on", on);
  e.setAttribute(e.getAttribute("role") === "tab" ? "aria-selected" : "aria-pressed", String(on));
}

// The first place of `list` whose `value` is not less than `at`. REQUIRES: values do not fall.
export function lowerBound<T>(list: ArrayLike<T>, value: (item: T) => number, at: number, from = 0): number {
  let lo = from, hi = list.length;
  while (lo < hi) {
    const m = lo + hi >> 1;
    if (value(list[m]) < at) lo = m + 1; else hi = m;
  }
  return lo;
}
