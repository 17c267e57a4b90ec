#include "tools/plan_viz/page.h"

namespace sluice::plan_viz {

const char kPageLanes[] = R"js(
"use strict";
const D = JSON.parse(document.getElementById("data").textContent);
const $ = id => document.getElementById(id);
const time = ns => ns >= 1e9 ? +(ns / 1e9).toPrecision(3) + " s" : ns >= 1e6 ? +(ns / 1e6).toPrecision(3) + " ms" : ns >= 1e3 ? +(ns / 1e3).toPrecision(3) + " µs" : +ns.toPrecision(3) + " ns";
const bytes = b => { const u = ["B", "KiB", "MiB", "GiB", "TiB"]; let i = 0; while (b >= 1024 && i < 4) { b /= 1024; ++i; } return (i ? b.toFixed(1) : b) + " " + u[i]; };
const plural = (n, s) => n.toLocaleString("en") + " " + s + (n === 1 ? "" : "s");
const dark = () => { const t = document.documentElement.dataset.theme; return t ? t === "dark" : matchMedia("(prefers-color-scheme:dark)").matches; };
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
// One hue per op, the same on every page.
const hues = new Map();
function hue(op) {
  let h = hues.get(op);
  if (h === undefined) { h = 7; for (const c of op) h = (h * 31 + c.codePointAt(0)) >>> 0; h = h * 137.508 % 360; hues.set(op, h); }
  return h;
}
const color = (op, faint) => `hsl(${hue(op)} ${dark() ? "45% 42%" : "62% 76%"} / ${faint ? .18 : 1})`;

// --- state ---
let selected = null;                   // {type, index}
let words = [];                        // of the search
const matches = text => words.every(w => text.includes(w));
const kernelText = D.kernels.map(k => (k.n + " " + k.op + " " + k.m + " " + k.r + " " + k.src).toLowerCase());
const actorText = D.actors.map(a => (a.n + " " + a.r).toLowerCase());
const registerText = D.registers.map(r => r.n.toLowerCase());
let kernelOn = null, actorOn = null;   // what the search leaves bright; null = all

// --- lanes ---
const LEFT = 168, TOP = 26, FIRING = 17, KERNEL = 26, GAP = 12, DEVICE = 22, REQUEST = 15;
const requests = D.requests || [];     // of a server; then firings are what was recorded, not simulated
const requestRows = [];                // each: indices of requests that do not overlap
const edges = r => [r.t[0][1], r.t[r.t.length - 1][1]];
requests.map((r, i) => i).sort((a, b) => edges(requests[a])[0] - edges(requests[b])[0]).forEach(i => {
  let row = requestRows.find(list => edges(requests[list[list.length - 1]])[1] <= edges(requests[i])[0]);
  if (!row) requestRows.push(row = []);
  row.push(i);
});
const lanes = [];                      // {stream, y} and {device, y}
{
  let y = TOP, device = null;
  if (requests.length) { lanes.push({device: "requests", y}); y += DEVICE + requestRows.length * REQUEST + GAP; }
  const ranks = D.streams.some(s => s.r > 0), instances = D.streams.some(s => s.i > 0);
  for (const i of D.lanes) {
    const s = D.streams[i], name = (instances ? "instance " + s.i + " · " : "") + (ranks ? "rank " + s.r + " · " + s.d.replace(/^\d+\//, "") : s.d);
    if (name !== device) { device = name; lanes.push({device: name, y}); y += DEVICE; }
    lanes.push({stream: i, y}); y += FIRING + KERNEL + GAP;
  }
  lanes.height = y + 6;
}
const laneY = []; for (const l of lanes) if (l.stream !== undefined) laneY[l.stream] = l.y;
// Spans by stream and begin: only those in sight are drawn.
const firingsOf = D.streams.map(() => []), spansOf = D.streams.map(() => []);
const laneOf = f => f[4] === undefined ? D.actors[f[0]].s : f[4];
D.firings.forEach((f, i) => firingsOf[laneOf(f)].push(i));
D.spans.forEach((s, i) => spansOf[laneOf(D.firings[s[1]])].push(i));
if (requests.length) {                 // recorded step by step: of two that overlap, neither is in order
  firingsOf.forEach(list => list.sort((a, b) => D.firings[a][2] - D.firings[b][2]));
  spansOf.forEach(list => list.sort((a, b) => D.spans[a][2] - D.spans[b][2]));
}
// Of a selected request: only what ran for it is bright.
const lit = f => !selected || selected.type !== "request" || requests[selected.index].s.includes(f[5]);
const total = Math.max(D.total, 1);
let t0 = 0, t1 = total;                // window
const canvas = $("canvas"), box = $("lanes"), pen = canvas.getContext("2d");
const x = t => LEFT + (t - t0) / (t1 - t0) * (canvas.clientWidth - LEFT - 8);
const t = px => t0 + (px - LEFT) / (canvas.clientWidth - LEFT - 8) * (t1 - t0);
function firstEndingAfter(list, ends, at) {
  let lo = 0, hi = list.length;
  while (lo < hi) { const m = lo + hi >> 1; if (ends(list[m]) < at) lo = m + 1; else hi = m; }
  return lo;
}
function label(text, px, py, width, ink) {
  if (width < 26) return;
  pen.fillStyle = ink;
  const room = Math.floor(width / 6.3);
  pen.fillText(text.length > room ? text.slice(0, Math.max(1, room - 1)) + "…" : text, px + 4, py);
}
function draw() {
  const w = box.clientWidth, h = Math.max(lanes.height, box.clientHeight), k = devicePixelRatio || 1;
  canvas.style.width = w + "px"; canvas.style.height = h + "px";
  if (canvas.width !== w * k || canvas.height !== h * k) { canvas.width = w * k; canvas.height = h * k; }
  pen.setTransform(k, 0, 0, k, 0, 0);
  pen.fillStyle = css("--panel"); pen.fillRect(0, 0, w, h);
  const ink = css("--ink"), dim = css("--dim"), line = css("--line"), lane = css("--lane"), accent = css("--accent");
  pen.font = "11px system-ui,sans-serif"; pen.textBaseline = "middle";
  // Time axis.
  const raw = (t1 - t0) / Math.max(2, (w - LEFT) / 110), p = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 5, 10].map(m => m * p).find(v => v >= raw);
  pen.textAlign = "center";
  for (let v = Math.ceil(t0 / step) * step; v <= t1; v += step) {
    pen.fillStyle = line; pen.fillRect(x(v), TOP - 8, 1, h);
    pen.fillStyle = dim; pen.fillText(time(Math.round(v * 1e3) / 1e3), x(v), 10);
  }
  pen.textAlign = "left";
  for (const l of lanes) {
    if (l.device !== undefined) { pen.fillStyle = ink; pen.font = "600 12px system-ui,sans-serif"; pen.fillText(l.device, 12, l.y + 9); pen.font = "11px system-ui,sans-serif"; continue; }
    const s = D.streams[l.stream], y = l.y;
    pen.fillStyle = lane; pen.fillRect(LEFT, y, w - LEFT - 8, FIRING + KERNEL);
    pen.fillStyle = ink; pen.fillText(s.n.startsWith(s.d + "/") ? s.n.slice(s.d.length + 1) : s.n, 22, y + 13);
    pen.fillStyle = dim; pen.fillText(s.k + ", " + plural(s.c, "core"), 22, y + 29);
    pen.save(); pen.beginPath(); pen.rect(LEFT, y, w - LEFT - 8, FIRING + KERNEL); pen.clip();
    const fs = firingsOf[l.stream];
    for (let i = firstEndingAfter(fs, f => D.firings[f][3], t0); i < fs.length; ++i) {
      const f = D.firings[fs[i]]; if (f[2] > t1) break;
      const a = x(f[2]), width = Math.max(1.5, x(f[3]) - a - .6), on = selected && selected.type === "actor" && selected.index === f[0];
      pen.globalAlpha = !lit(f) || actorOn && !actorOn[f[0]] ? .2 : 1;
      pen.fillStyle = on ? accent : `hsl(215 ${dark() ? "16% 34%" : "20% 82%"})`;
      pen.fillRect(a, y, width, FIRING - 2);
      label(D.actors[f[0]].n + " #" + f[1], a, y + FIRING / 2 - .5, width, on ? css("--panel") : ink);
    }
    // Kernels narrower than a pixel are summed up: each column shows the shares of their ops, stacked.
    const ss = spansOf[l.stream]; let column = -1, shares = new Map();
    const flush = () => {
      let sum = 0, at = y + FIRING;
      for (const v of shares.values()) sum += v;
      for (const [fill, v] of [...shares].sort((a, b) => a[0] < b[0] ? -1 : 1)) { const part = v / Math.max(sum, 1e-9) * KERNEL; pen.fillStyle = fill; pen.fillRect(column, at, 1, part + .3); at += part; }
      shares = new Map();
    };
    for (let i = firstEndingAfter(ss, v => D.spans[v][3], t0); i < ss.length; ++i) {
      const v = D.spans[ss[i]]; if (v[2] > t1) break;
      const a = x(v[2]), b = x(v[3]), on = selected && selected.type === "kernel" && selected.index === v[0], off = !lit(D.firings[v[1]]) || kernelOn && !kernelOn[v[0]];
      if (b - a < 2 && !on) {
        if (Math.floor(a) !== column) { flush(); column = Math.floor(a); }
        const fill = color(D.kernels[v[0]].op, off); shares.set(fill, (shares.get(fill) || 0) + Math.max(b - a, .01));
        continue;
      }
      flush();
      const width = Math.max(1, b - a - .6), met = Math.min(b, x(v[4]));  // faint while a collective waits for other ranks
      if (met > a) { pen.fillStyle = color(D.kernels[v[0]].op, true); pen.fillRect(a, y + FIRING, met - a, KERNEL); }
      pen.fillStyle = color(D.kernels[v[0]].op, off); pen.fillRect(met, y + FIRING, Math.max(1, b - met - .6), KERNEL);
      if (on) { pen.strokeStyle = accent; pen.lineWidth = 2; pen.strokeRect(a + 1, y + FIRING + 1, Math.max(2, width - 2), KERNEL - 2); }
      if (!off) label(D.kernels[v[0]].op, a, y + FIRING + KERNEL / 2, width, ink);
    }
    flush();
    pen.globalAlpha = 1; pen.restore();
  }
  pen.globalAlpha = 1;
  if (requests.length) drawRequests(w);
  if (!D.firings.length) { pen.fillStyle = dim; pen.fillText(D.ok ? "nothing fires" : "the plan is refused; see the tab Proof", LEFT + 12, TOP + 40); }
}
let queued = false;
const redraw = () => { if (!queued) { queued = true; requestAnimationFrame(() => { queued = false; draw(); }); } };
function pick(px, py) {
  if (px < LEFT) return null;
  const request = requests.length ? pickRequest(px, py) : null;
  if (request) return request;
  for (let s = 0; s < D.streams.length; ++s) {
    const y = py - laneY[s]; if (y < 0 || y > FIRING + KERNEL) continue;
    const slack = (t1 - t0) / Math.max(1, canvas.clientWidth - LEFT) * 2, at = t(px);
    const [list, get, type] = y < FIRING ? [firingsOf[s], i => D.firings[i], "actor"] : [spansOf[s], i => D.spans[i], "kernel"];
    let best = null, distance = slack;
    for (let i = firstEndingAfter(list, j => get(j)[3], at - slack); i < list.length; ++i) {
      const v = get(list[i]); if (v[2] > at + slack) break;
      const d = at < v[2] ? v[2] - at : at > v[3] ? at - v[3] : 0;
      if (d <= distance) { best = v; distance = d; if (!d) break; }
    }
    if (best) return {type, index: best[0], span: best};
  }
  return null;
}
function zoom(factor, around) {
  const width = Math.min(total, Math.max(total / 1e6, (t1 - t0) * factor)), share = (around - t0) / (t1 - t0);
  t0 = Math.max(0, Math.min(total - width, around - share * width)); t1 = t0 + width; redraw();
}
canvas.addEventListener("wheel", e => {
  if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) { const d = (e.deltaX || e.deltaY) / canvas.clientWidth * (t1 - t0); const w = t1 - t0; t0 = Math.max(0, Math.min(total - w, t0 + d)); t1 = t0 + w; redraw(); }
  else zoom(Math.exp(e.deltaY * .0015), t(e.offsetX));
  e.preventDefault();
}, {passive: false});
let drag = null;
canvas.addEventListener("pointerdown", e => { drag = {px: e.offsetX, t0, t1, moved: false}; if (e.isTrusted) canvas.setPointerCapture(e.pointerId); });
canvas.addEventListener("pointermove", e => {
  if (drag) {
    const d = (e.offsetX - drag.px) / (canvas.clientWidth - LEFT) * (drag.t1 - drag.t0), w = drag.t1 - drag.t0;
    if (Math.abs(e.offsetX - drag.px) > 3) { drag.moved = true; canvas.classList.add("drag"); }
    if (drag.moved) { t0 = Math.max(0, Math.min(total - w, drag.t0 - d)); t1 = t0 + w; redraw(); }
    return;
  }
  const hit = pick(e.offsetX, e.offsetY), tip = $("tip");
  tip.style.display = hit ? "block" : "none";
  if (hit) {
    const name = hit.type === "request" ? requestName(hit.index) : hit.type === "actor" ? D.actors[hit.index].n + " #" + hit.span[1] : D.kernels[hit.index].n + (hit.span[5] > 1 ? " and " + (hit.span[5] - 1) + " more" : "");
    tip.textContent = name + "\n" + time(hit.span[3] - hit.span[2]) + " from " + time(hit.span[2]);
    tip.style.left = Math.min(innerWidth - 300, e.clientX + 14) + "px"; tip.style.top = e.clientY + 16 + "px";
  }
});
canvas.addEventListener("pointerup", e => { const d = drag; drag = null; canvas.classList.remove("drag"); if (d && !d.moved) { const hit = pick(e.offsetX, e.offsetY); if (hit) select(hit.type, hit.index, false, stepOf(hit)); } });
canvas.addEventListener("pointerleave", () => { $("tip").style.display = "none"; });
const fit = () => { t0 = 0; t1 = total; redraw(); };
canvas.addEventListener("dblclick", fit);
$("fit").onclick = fit;
// Brings the first span of a kernel or actor into sight.
function reveal(type, index) {
  const v = type === "request" ? [index, 0, ...edges(requests[index])] : type === "kernel" ? D.spans.find(s => s[0] === index) : D.firings.find(f => f[0] === index);
  if (!v || (v[2] >= t0 && v[3] <= t1)) return;
  const w = t1 - t0; t0 = Math.max(0, Math.min(total - w, (v[2] + v[3] - w) / 2)); t1 = t0 + w;
}
)js";

}  // namespace sluice::plan_viz
