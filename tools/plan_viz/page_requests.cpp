#include "tools/plan_viz/page.h"

namespace sluice::plan_viz {

const char kPageRequests[] = R"js(
// --- requests of a server ---
const requestName = i => "request " + requests[i].n + (requests[i].id ? " (" + requests[i].id + ")" : "");
const stampOf = (r, name) => { const found = r.t.find(s => s[0] === name); return found && found[1]; };
const requestY = row => TOP + DEVICE + row * REQUEST;
// A bar from the first to the last timestamp: pale before it is queued, darker in the queue, full while it is computed.
function drawRequests(w) {
  pen.save(); pen.beginPath(); pen.rect(LEFT, TOP, w - LEFT - 8, requestY(requestRows.length) - TOP); pen.clip();
  requestRows.forEach((list, row) => {
    const y = requestY(row);
    for (const i of list) {
      const r = requests[i], [begin, end] = edges(r);
      if (end < t0 || begin > t1) continue;
      const on = selected && selected.type === "request" && selected.index === i;
      pen.globalAlpha = selected && selected.type === "request" && !on ? .35 : 1;
      const bar = (from, to, fill) => { if (from === undefined || to === undefined) return; pen.fillStyle = fill; pen.fillRect(x(from), y, Math.max(1.5, x(to) - x(from)), REQUEST - 2); };
      bar(begin, end, `hsl(265 ${dark() ? "18% 30%" : "35% 88%"})`);
      bar(stampOf(r, "QUEUE_START"), stampOf(r, "COMPUTE_START"), `hsl(35 ${dark() ? "45% 38%" : "75% 78%"})`);
      bar(stampOf(r, "COMPUTE_START"), stampOf(r, "COMPUTE_END"), `hsl(265 ${dark() ? "35% 45%" : "55% 74%"})`);
      if (on) { pen.strokeStyle = css("--accent"); pen.lineWidth = 2; pen.strokeRect(x(begin) + 1, y + 1, Math.max(3, x(end) - x(begin) - 2), REQUEST - 4); }
      label(requests[i].id || String(requests[i].n), Math.max(LEFT, x(begin)), y + REQUEST / 2 - 1, x(end) - Math.max(LEFT, x(begin)), css("--ink"));
    }
  });
  pen.restore(); pen.globalAlpha = 1;
  pen.fillStyle = css("--dim"); pen.fillText(plural(requests.length, "traced request"), 22, requestY(0) + 6);
}
function pickRequest(px, py) {
  const row = Math.floor((py - requestY(0)) / REQUEST);
  if (row < 0 || row >= requestRows.length) return null;
  for (const i of requestRows[row]) { const [a, b] = edges(requests[i]); if (px >= x(a) - 2 && px <= x(b) + 2) return {type: "request", index: i, span: [i, 0, a, b]}; }
  return null;
}
// The step that a firing or a kernel on the lanes belongs to.
const stepOf = hit => !requests.length || hit.type === "request" ? undefined : (hit.type === "kernel" ? D.firings[hit.span[1]] : hit.span)[5];
const requestsOf = step => D.steps[step][0].map(id => requests.findIndex(r => r.n === id)).filter(i => i >= 0);
function showRequest(i) {
  const r = requests[i], [begin, end] = edges(r);
  head(requestName(i), "request to model " + r.m);
  const between = (a, b) => { const from = stampOf(r, a), to = stampOf(r, b); return from === undefined || to === undefined ? "" : time(to - from); };
  facts([["took", time(end - begin)], ["in the queue", between("QUEUE_START", "COMPUTE_START")], ["computed", between("COMPUTE_START", "COMPUTE_END")],
         ["step", r.s.map(s => D.steps[s][2] + " of instance " + D.steps[s][1]).join(", ")]]);
  const mates = [...new Set(r.s.flatMap(requestsOf))].filter(j => j !== i);
  items("in the same step", mates.map(j => link(requestName(j), "request", j)));
  items("timestamps", r.t.map(([name, at]) => name.toLowerCase().replaceAll("_", " ") + " +" + time(at - begin)), "mono");
  const mine = D.firings.filter(f => r.s.includes(f[5])).sort((a, b) => a[2] - b[2]);
  items("fired for it", mine.slice(0, 400).map(f => { const s = el("span"); s.append(link(D.actors[f[0]].n, "actor", f[0]), ` ${time(f[3] - f[2])} at +${time(f[2] - begin)}`); return s; }), "mono");
}
)js";

}  // namespace sluice::plan_viz
