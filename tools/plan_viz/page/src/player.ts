// Replay: the run moment by moment, by hand or by itself.
import { $, button, el, lowerBound, time } from "./format";
import { change, setWindow, shownRun, state } from "./state";
import { moments } from "./tokens";

let playing = 0;
const label = el("span", "", "at"), slider = el("input"), play = button("▶", "Play (space)", () => toggle());

function show(at: number): void {
  change({ at });
  if (at < state.t0 || at > state.t1) setWindow(at - .1 * (state.t1 - state.t0), at + .9 * (state.t1 - state.t0));
}
// To the next moment at which a firing begins or ends, or to the one before.
export function stepReplay(by: number): void {
  const list = moments(shownRun()), at = state.at < 0 ? state.t0 - 1 : state.at;
  const next = by > 0 ? lowerBound(list, t => t, at + .5) : lowerBound(list, t => t, at - .5) - 1;
  if (next >= 0 && next < list.length) show(list[next]); else stop();
}
function stop(): void { window.clearInterval(playing); playing = 0; play.textContent = "▶"; }
export function toggle(): void {
  if (playing) { stop(); return; }
  play.textContent = "❙❙";
  playing = window.setInterval(() => stepReplay(1), 350);
}

export function startPlayer(): void {
  slider.type = "range";
  slider.min = "0";
  slider.max = "1000";
  slider.setAttribute("aria-label", "Moment of the replay");
  slider.oninput = () => { const list = moments(shownRun()); if (list.length) show(list[Math.round(+slider.value / 1000 * (list.length - 1))]); };
  $("player").append(button("‹", "One moment back (,)", () => stepReplay(-1)), play, button("›", "One moment on (.)", () => stepReplay(1)), slider, label,
    button("✕", "End the replay", () => { stop(); change({ at: -1 }); }));
}
export function drawPlayer(): void {
  label.textContent = state.at < 0 ? "replay" : `${time(state.at)} of ${time(shownRun().total)}`;
  const list = state.at < 0 ? [] : moments(shownRun());  // of a large run they take a while
  slider.value = String(list.length ? Math.round(1000 * lowerBound(list, t => t, state.at - .5) / Math.max(1, list.length - 1)) : 0);
}
