// The pointer on the stage: drag moves, the wheel zooms, a click selects.
import { $, time } from "./format";
import { GraphView } from "./graph";
import { LanesView } from "./lanes";
import { MemoryView } from "./memory";
import { requestName } from "./requests";
import { change, setWindow, shownRun, state } from "./state";

interface Stage { redraw(): void; fit(): void; views(): { lanes: LanesView; graph: GraphView; memory: MemoryView } }
interface Found { tip: string; act(): void }

function found(stage: Stage, x: number, y: number): Found | null {
  const { lanes, graph, memory } = stage.views(), { data, runs } = state.plan;
  if (state.view === "memory") {
    const b = memory.pick(shownRun(), x, y);
    return b < 0 ? null : { tip: data.buffers.n[b], act: () => change({ selected: { kind: "buffer", index: b } }) };
  }
  if (state.view === "graph") {
    const hit = graph.pick(x, y);
    if (!hit) return null;
    const { node, unfold } = hit, text = node.group ? `${node.title}: ${node.actors.length} actors; a click on + or a double click unfolds it` : node.title;
    return { tip: text, act: () => { if (unfold) graph.unfold(node); else change({ selected: { kind: "actor", index: node.actors[0] } }); } };
  }
  const hit = lanes.pick(x, y);
  if (!hit) return null;
  const served = runs.find(r => r.requests.length);
  const name = hit.kind === "request" ? requestName(served!, hit.index) : hit.kind === "actor" ? data.actors.n[hit.index] + " #" + hit.number : data.kernels.n[hit.index] + (hit.more ? ` and ${hit.more} more` : "");
  return { tip: `${name}\n${time(hit.end - hit.begin)} from ${time(hit.begin)}`, act: () => change({ selected: { kind: hit.kind, index: hit.index, step: hit.step >= 0 ? hit.step : undefined, item: hit.item } }) };
}

export function startPointer(canvas: HTMLCanvasElement, stage: Stage): void {
  let drag: { x: number; y: number; t0: number; t1: number; moved: boolean } | null = null;
  const tip = $("tip");
  canvas.addEventListener("wheel", e => {
    const { lanes, graph } = stage.views(), sideways = e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY);
    if (state.view === "graph") { graph.zoomAt(Math.exp(-e.deltaY * .0015), e.offsetX, e.offsetY); stage.redraw(); }
    else if (sideways) { const d = (e.deltaX || e.deltaY) / canvas.clientWidth * (state.t1 - state.t0); setWindow(state.t0 + d, state.t1 + d); }
    else {
      const factor = Math.exp(e.deltaY * .0015), at = lanes.time(e.offsetX), width = state.t1 - state.t0, share = Math.max(0, Math.min(1, (at - state.t0) / width));
      const t0 = state.t0 + share * width * (1 - factor);
      setWindow(t0, t0 + width * factor);
    }
    e.preventDefault();
  }, { passive: false });
  canvas.addEventListener("pointerdown", e => {
    drag = { x: e.offsetX, y: e.offsetY, t0: state.t0, t1: state.t1, moved: false };
    if (e.isTrusted) canvas.setPointerCapture(e.pointerId);
  });
  canvas.addEventListener("pointermove", e => {
    if (!drag) {
      const hit = found(stage, e.offsetX, e.offsetY);
      tip.style.display = hit ? "block" : "none";
      canvas.style.cursor = hit ? "pointer" : "";
      if (!hit) return;
      tip.textContent = hit.tip;
      tip.style.left = Math.min(innerWidth - 300, e.clientX + 14) + "px";
      tip.style.top = e.clientY + 16 + "px";
      return;
    }
    const dx = e.offsetX - drag.x, dy = e.offsetY - drag.y;
    if (Math.abs(dx) + Math.abs(dy) > 3) { drag.moved = true; canvas.classList.add("drag"); tip.style.display = "none"; }
    if (!drag.moved) return;
    if (state.view === "graph") { stage.views().graph.pan(dx, dy); drag.x = e.offsetX; drag.y = e.offsetY; stage.redraw(); return; }
    const d = dx / (canvas.clientWidth - 184) * (drag.t1 - drag.t0);
    setWindow(drag.t0 - d, drag.t1 - d);
  });
  canvas.addEventListener("pointerup", e => {
    const was = drag;
    drag = null;
    canvas.classList.remove("drag");
    if (was && !was.moved) found(stage, e.offsetX, e.offsetY)?.act();
  });
  canvas.addEventListener("pointerleave", () => { tip.style.display = "none"; });
  canvas.addEventListener("dblclick", e => {
    const hit = state.view === "graph" ? stage.views().graph.pick(e.offsetX, e.offsetY) : null;
    if (hit?.node.group) stage.views().graph.unfold(hit.node); else stage.fit();
  });
}
