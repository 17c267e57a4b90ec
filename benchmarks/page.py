"""page.N: the page of a plan of N actors: seconds until plan-viz has written it, bytes, seconds until Chromium shows it and answers, and the
milliseconds of a frame while it is moved (95th percentile). page.events: the same of a recorded run of a million events. Nothing else draws
such pages, so there is no peer."""
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from common import report, spread, wanted

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "tests/python"))
from browser import Browser  # noqa: E402
from synthetic_plan import synthetic_plan  # noqa: E402

from sluice._base.tools import find_tool  # noqa: E402

ROUNDS = 5
# A frame is drawn, and what was drawn is awaited: reading a pixel ends the canvas's work.
PAN = """(() => { const s = planViz.state, pen = document.querySelector('#canvas').getContext('2d'), times = []; s.t1 = s.t0 + (s.t1 - s.t0) / 8;
  const width = s.t1 - s.t0;
  for (let i = 0; i < 60; ++i) {
    s.t0 = i * width / 9; s.t1 = s.t0 + width;
    const begin = performance.now(); planViz.draw(); pen.getImageData(300, 60, 1, 1); times.push(performance.now() - begin);
  }
  return times; })()"""


def measure(actors: int, folder: pathlib.Path) -> None:
    plan = folder / f"{actors}.json"
    plan.write_text(json.dumps(synthetic_plan(actors)))
    measure_page(f"page.{actors}", plan, folder / f"{actors}.html")


def measure_events(folder: pathlib.Path) -> None:
    plan, run = folder / "events.json", folder / "events.slt"
    plan.write_text(json.dumps(synthetic_plan(100)))
    subprocess.run([find_tool("plan-viz"), "simulate", plan, "--steps", "5100", "-o", run], check=True, capture_output=True)
    measure_page("page.events", run, folder / "events.html")


def measure_page(name: str, plan: pathlib.Path, page: pathlib.Path) -> None:
    written, opened, frames = [], [], []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        subprocess.run([find_tool("plan-viz"), "html", plan, "-o", page], check=True, capture_output=True)
        written.append(time.perf_counter() - begin)
        with Browser() as browser:
            begin = time.perf_counter()
            browser.open(page)
            opened.append(time.perf_counter() - begin)
            frames += browser.run(PAN)
    report(name + ".written", statistics.median(written), None, "none", "s", ROUNDS, spread(written))
    report(name + ".bytes", page.stat().st_size, None, "none", "bytes", 1, 0)
    report(name + ".opened", statistics.median(opened), None, "none", "s", ROUNDS, spread(opened))
    report(name + ".frame", statistics.quantiles(frames, n=20)[-1], None, "none", "ms", len(frames), spread(frames))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as work:
        for count in (1_000, 10_000, 100_000):
            if wanted(f"page.{count}"):
                measure(count, pathlib.Path(work))
        if wanted("page.events"):
            measure_events(pathlib.Path(work))
