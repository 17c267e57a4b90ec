"""The page that plan-viz html writes, in a browser: it opens, answers clicks, keys and searches, replays, compares, and asks the network for nothing."""

import json
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
from browser import Browser
from synthetic_plan import synthetic_plan

import sluice as sl
from sluice import nn
from sluice._base.tools import find_tool

ROOT = pathlib.Path(__file__).resolve().parents[2]
TWO_RANKS = """
import mesh_models
import sluice as sl
from sluice import distributed
from sluice._tensor.global_tensors import place
distributed.init()
mesh_models.losses(1, 1, 2, 1, "sim", lambda rows, mesh, way: place(sl.tensor(rows), mesh, way), False, sl.float32)
"""
# How many colours the canvas has.
COLOURS = """(() => {
  const drawn = document.querySelector('#canvas'), copy = document.createElement('canvas');
  copy.width = drawn.width;
  copy.height = drawn.height;
  const pen = copy.getContext('2d', {willReadFrequently: true});
  pen.drawImage(drawn, 0, 0);
  return new Set(new Uint32Array(pen.getImageData(0, 0, copy.width, copy.height).data.buffer)).size;
})()"""
PLANS = ["digits", "resnet50", "gpt", "synthetic"]


def plan_viz(*arguments):
    done = subprocess.run([find_tool("plan-viz"), *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def batches():
    while True:
        yield np.zeros((8, 1, 8, 8), "float32"), np.zeros(8, "int64")


class Digits(nn.Graph):
    def __init__(self, model):
        super().__init__(name="digits")
        self.model = model
        self.add_optimizer(sl.optim.SGD(self.model.parameters(), lr=0.1))
        self.config.set_device("sim:0")

    def build(self):
        x, y = sl.host_function(batches, out=[((8, 1, 8, 8), sl.float32), ((8,), sl.int64)])
        loss = nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        return loss


class Forward(nn.Graph):
    def __init__(self, model):
        super().__init__(name="resnet50")
        self.model = model

    def build(self, x):
        return self.model(x)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The folder with each of PLANS as a plan.json and as a page; of digits also a recorded run."""
    folder = tmp_path_factory.mktemp("pages")
    sys.path[:0] = [str(ROOT / "benchmarks/gpu"), str(ROOT / "examples")]
    try:
        from digits_net import DigitsNet
        from nets import resnet50
    finally:
        del sys.path[:2]
    digits = Digits(DigitsNet(4))
    digits()
    digits.save_plan(folder / "digits.json")
    with digits.record_trace(str(folder / "digits.slt")):
        for _ in range(10):
            digits()
        digits.synchronize()
    with digits.record_trace(str(folder / "trace.json")):
        digits()
        digits.synchronize()
    resnet = Forward(resnet50(sl, (3, 4, 6, 3), 8, 10).eval())
    resnet.compile(sl.ones(1, 3, 32, 32))
    resnet.save_plan(folder / "resnet50.json")
    ranks = {**os.environ, "SLUICE_DRY_RUN": "1", "SLUICE_DRY_RUN_DIR": str(folder),
             "PYTHONPATH": os.pathsep.join([str(pathlib.Path(sl.__file__).parents[1]), str(ROOT / "tests/python"), *sys.path])}
    (folder / "gpt.py").write_text(TWO_RANKS)
    launch = [sys.executable, "-m", "sluice.distributed.launch", "--nproc_per_node", "2", str(folder / "gpt.py")]
    subprocess.run(launch, env=ranks, check=True, capture_output=True)
    (folder / "train.plan.json").rename(folder / "gpt.json")
    (folder / "synthetic.json").write_text(json.dumps(synthetic_plan(10_000)))
    sources = ["--source", ROOT, "--source", ROOT / "examples"]  # other tests may have put the second on Python's path
    for name in PLANS:
        plan_viz("html", *sources, folder / f"{name}.json", "-o", folder / f"{name}.html")
    plan_viz("html", folder / "digits.slt", "-o", folder / "run.html", *sources)
    return folder


@pytest.fixture(scope="module")
def browser():
    with Browser() as found:
        yield found


def on_canvas(browser, place):
    """A point of the canvas as one of the window."""
    return browser.run(f"(() => {{ const r = document.querySelector('#canvas').getBoundingClientRect(), p = {place}; return [r.left + p[0], r.top + p[1]]; }})()")


def span_of(kernel):
    """The place of the first run of a kernel whose name fits, in the run that is shown."""
    return f"(() => {{ const p = planViz.state.plan, r = p.runs[planViz.state.run]; return planViz.lanes().place(r, r.kernel.findIndex(k => {kernel}.test(p.data.kernels.n[k]))); }})()"


@pytest.mark.parametrize("name", PLANS)
def test_it_opens_and_asks_for_nothing(pages, browser, name):
    browser.open(pages / f"{name}.html")
    plan = json.loads(plan_viz("html", pages / f"{name}.json", "--json"))
    assert browser.text("#title") == plan["name"] and browser.run("document.title") == plan["name"] + " · plan"
    for kind in ("kernels", "actors"):
        assert f"{len(plan[kind]['n']):,} {kind}" in browser.text("#chips").replace("\n", " ")
    assert "verified" in browser.text("#chips") and browser.text("#rows").startswith("kernel")
    for key in "123":
        browser.press(key)
        colours = browser.run(COLOURS)
        assert colours > 3, f"view {key} of {name} is empty"
    asked, said = browser.requests()
    assert asked == [] and said == []
    print(f"count: {len(plan['actors']['n'])} actors, {(pages / f'{name}.html').stat().st_size} bytes of page")


def test_ten_thousand_actors_are_at_most_three_megabytes(pages):
    assert (pages / "synthetic.html").stat().st_size <= 3_000_000


def test_a_hundred_thousand_actors_are_at_most_18_megabytes(tmp_path):
    (tmp_path / "plan.json").write_text(json.dumps(synthetic_plan(100_000)))
    plan_viz("html", tmp_path / "plan.json", "-o", tmp_path / "plan.html")
    size = (tmp_path / "plan.html").stat().st_size
    print(f"count: {size} bytes")
    assert size <= 18_000_000


# Each column as plan-viz has it, from what the page was sent.
EXPANDED = """(() => { const d = planViz.state.plan.data, r = planViz.state.plan.runs[0], all = [];
  for (const [of, n] of [[d.actors, d.actors.n.length], [d.kernels, d.kernels.n.length], [d.registers, d.registers.n.length], [d.buffers, d.buffers.n.length], [d.edges, d.edges.count]])
    for (const [name, list] of Object.entries(of)) if (name !== 'count') all.push([name, Array.isArray(list), ['program', 'base', 'type', 'slots'].includes(name) || list.length === n]);
  return {wrong: all.filter(([, is, fits]) => !is || !fits), program: d.actors.program, slots: d.registers.slots, offset: d.buffers.offset, producer: d.registers.producer,
          consumer: d.edges.consumer, base: d.kernels.base, spans: r.kernel.length, firings: r.actor.length}; })()"""


def test_columns_of_the_page_are_those_of_the_plan(pages, browser):
    plan = json.loads((pages / "synthetic.json").read_text())
    browser.open(pages / "synthetic.html")
    got = browser.run(EXPANDED)
    kinds = ["run", "emit", "release"]
    assert got.pop("wrong") == []
    assert got == {"program": [kinds.index(kind) + 4 * index for a in plan["actors"] for kind, index in a["program"]],
                   "slots": [slot for r in plan["registers"] for slot in r["slots"]], "offset": [b["offset"] for b in plan["buffers"]],
                   "producer": [r["producer"] for r in plan["registers"]], "consumer": [e["consumer"] for e in plan["edges"]],
                   "base": [1 + 4 * v["index"] for k in plan["kernels"] for v in k["inputs"] + k["outputs"]],
                   "spans": 4 * len(plan["kernels"]), "firings": 4 * len(plan["actors"])}


# Moves a window over the run, as a drag does. Tells how much each frame has looked at, and how much it has drawn.
FRAMES = """(() => {
  const s = planViz.state, proto = CanvasRenderingContext2D.prototype, kept = {}, most = {visited: 0, drawn: 0}, all = s.t1;
  let drawn = 0;
  for (const name of ['fillRect', 'fillText', 'strokeRect', 'stroke', 'fill']) { kept[name] = proto[name]; proto[name] = function (...a) { ++drawn; return kept[name].apply(this, a); }; }
  for (const share of [1, .3, 1 / 8, .01]) for (let i = 0; i < 8; ++i) {
    s.t0 = i / 8 * (1 - share) * all; s.t1 = s.t0 + share * all;
    drawn = 0; planViz.draw();
    most.visited = Math.max(most.visited, planViz.lanes().visited); most.drawn = Math.max(most.drawn, drawn);
  }
  Object.assign(proto, kept);
  return {...most, lanes: planViz.lanes().rows.rows.filter(r => r.run).length, width: document.querySelector('#canvas').clientWidth};
})()"""


def recorded_page(folder, steps):
    """The page of a run of 100 actors, and how many events it has."""
    (folder / "plan.json").write_text(json.dumps(synthetic_plan(100)))
    run, page = folder / f"{steps}.slt", folder / f"{steps}.html"
    plan_viz("simulate", folder / "plan.json", "--steps", steps, "-o", run)
    plan_viz("html", run, "-o", page)
    return page, json.loads(plan_viz("trace", run, "--json"))["events"]


def test_a_million_events_are_drawn_with_the_work_of_a_few(browser, tmp_path):
    """Time would tell of the machine, so work is counted: a frame costs by its width. `page.events` of the benchmarks has the times."""
    counts = {}
    for steps in (500, 5_100):
        page, events = recorded_page(tmp_path, steps)
        browser.open(page)
        assert browser.run("planViz.state.plan.runs[1].measured && planViz.state.plan.runs[1].spanBegin.length") == 98 * steps
        counts[events] = work = browser.run(FRAMES)
        print(f"count: {events} events; a frame looks at {work['visited']} and draws {work['drawn']}")
        assert work["visited"] <= 20 * work["lanes"] * work["width"], work
        assert work["drawn"] <= 4 * work["lanes"] * work["width"], work
        browser.run("planViz.state.t0 = 0; planViz.state.t1 = 1.2e6; planViz.draw()")
        browser.click_at(*on_canvas(browser, span_of("/op50$/")))
        assert browser.text("#details h2").endswith(".op50") and browser.requests() == ([], [])
    few, many = counts.values()
    assert max(counts) >= 1_000_000 and many["visited"] <= 2 * few["visited"] and many["drawn"] <= 2 * few["drawn"]


def test_the_lanes_are_by_rank(pages, browser):
    browser.open(pages / "gpt.html")
    rows = browser.run("planViz.lanes().rows.rows.map(r => r.header).filter(Boolean)")
    assert rows == ["rank 0 · cpu:0", "rank 0 · sim:0", "rank 1 · cpu:0", "rank 1 · sim:0"]


def test_a_click_on_a_kernel_shows_all_about_it_and_its_source_line(pages, browser):
    browser.open(pages / "digits.html")
    browser.click_at(*on_canvas(browser, span_of("/conv1.conv/")))
    details = browser.text("#details")
    for word in ("kernel of op conv", "ATTRIBUTES", "READS", "WRITES", "SOURCE", "device", "float32("):
        assert word.lower() in details.lower(), word
    assert re.search(r"#kernel=\d+", browser.run("new Promise(d => setTimeout(() => d(location.hash), 300))"))
    lines = browser.run("[...document.querySelectorAll('#source div')].map(d => [d.className, d.querySelector('span').textContent, d.innerText])")
    assert len(lines) == 5 and [line[0] for line in lines] == ["", "", "at", "", ""]
    file, line = browser.run("document.querySelector('#source').previousSibling.textContent").rsplit(":", 1)
    assert lines[2][1] == line and (ROOT / "examples" / pathlib.Path(file).name).read_text().splitlines()[int(line) - 1].strip() in lines[2][2]
    where = browser.run("location.hash")
    browser.open(pages / "digits.html", where)
    assert browser.text("#details") == details, "the address brings it back"


def test_a_search_leaves_what_matches(pages, browser):
    browser.open(pages / "synthetic.html")
    browser.press("/", text="")
    browser.type("layer37 gelu")
    names = browser.run("[...document.querySelectorAll('#rows tbody tr')].map(r => r.cells[0].textContent)")
    assert len(names) == 20 and all(name.startswith("layer37.") for name in names)
    browser.press("Escape")
    assert browser.run("document.querySelectorAll('#rows tbody tr').length") == 400
    assert "9,598 more" in browser.text("#rows .more")


def test_the_graph_folds_by_module_stream_and_device(pages, browser):
    browser.open(pages / "synthetic.html", "#view=graph")
    nodes = "planViz.graph().nodes()"
    assert browser.run(nodes + ".length") <= 160
    browser.run("[...document.querySelectorAll('#bar button')].find(b => b.textContent === 'Fold all').click()")
    browser.settle()
    assert browser.run(nodes + ".length") == 102, "a hundred layers, the feed and the sink"
    browser.run("planViz.graph().unfold(planViz.graph().nodes().find(n => n.title === 'layer5'))")
    assert browser.run(nodes + ".filter(n => n.title.startsWith('layer5.')).length") == 10
    browser.run("planViz.state.plan.data; (() => { const s = document.querySelector('#bar select'); s.value = 'stream'; s.dispatchEvent(new Event('change')); })()")
    browser.run("[...document.querySelectorAll('#bar button')].find(b => b.textContent === 'Fold all').click()")
    assert browser.run(nodes + ".length") == 8
    browser.open(pages / "digits.html", "#view=graph&fold=nothing")
    count = browser.run(nodes + ".length")
    assert count == len(json.loads((pages / "digits.json").read_text())["actors"])
    browser.click_at(*on_canvas(browser, f"planViz.graph().place({nodes}.find(n => /compute0/.test(n.title)))"))
    assert "compute0" in browser.text("#details h2") and "consumes" in browser.text("#details").lower()


def test_replay_shows_tokens_and_who_waits_for_whom(pages, browser):
    browser.open(pages / "digits.html")
    moments = browser.run("[...planViz.moments()]")
    for _ in range(3):
        browser.press(".")
    assert browser.run("planViz.state.at") == moments[2]
    browser.press(",")
    assert browser.run("planViz.state.at") == moments[1]
    panel = browser.text("#details").lower()
    assert "replay of the predicted run" in panel and "firing" in panel and "waits for data" in panel
    # At no moment has a register more values than slots, and each token is made before it is given back.
    worst = browser.run("""(() => { const t = planViz.tokens(), q = planViz.state.plan.data.registers.quota; let checked = 0;
      for (const at of planViz.moments()) q.forEach((n, r) => { const u = t.use(r, at); if (u.full + u.writing > n) throw new Error(r + ' at ' + at); ++checked; });
      for (const list of t.of) for (const k of list) if (k.full < k.write || k.free < k.full) throw new Error(JSON.stringify(k));
      return checked; })()""")
    print(f"count: {worst} registers at moments")
    assert worst > 100


def test_memory_has_what_lies_where_and_a_click_says_who_made_it(pages, browser):
    browser.open(pages / "resnet50.html", "#view=memory")
    checked = browser.run("""(() => { const p = planViz.state.plan, b = p.data.buffers, run = p.runs[0], total = run.total; let pairs = 0;
      for (let i = 1; i < 40; ++i) {
        const alive = planViz.memory().alive(run, total * i / 40).sort((x, y) => b.arena[x] - b.arena[y] || b.offset[x] - b.offset[y]);
        for (let k = 1; k < alive.length; ++k) {
          const [x, y] = [alive[k - 1], alive[k]]; ++pairs;
          if (b.arena[x] === b.arena[y] && b.offset[x] + b.bytes[x] > b.offset[y]) throw new Error(b.n[x] + ' and ' + b.n[y]);
        }
      }
      return pairs; })()""")
    print(f"count: {checked} neighbours that do not overlap")
    assert checked > 20
    buffer = browser.run("planViz.state.plan.data.kernels.n.findIndex((_, k) => planViz.state.plan.writes(k)[0].base === 0)")
    buffer = browser.run(f"planViz.state.plan.writes({buffer})[0].index")
    browser.click_at(*on_canvas(browser, f"planViz.memory().place(planViz.state.plan.runs[0], {buffer})"))
    details = browser.text("#details").lower()
    assert "made by" in details and "read by" in details and "address" in details


def test_what_was_measured_stands_beside_what_was_predicted(pages, browser):
    browser.open(pages / "run.html")
    assert "recorded" in browser.text("#details")
    rows = "planViz.lanes().rows.rows.filter(r => r.run).length"
    one = browser.run(rows)
    browser.run("(() => { const s = document.querySelector('#bar select'); s.value = '-1'; s.dispatchEvent(new Event('change')); })()")
    browser.settle()
    assert browser.run(rows) == 2 * one
    browser.run("document.querySelector('#tabs [data-name=Actors]').click(); document.querySelector('#rows tbody tr').click()")
    assert "where its time went" in browser.text("#details").lower() and "measured" in browser.text("#details")


def served(plan):
    """A trace of sluice-serve: two requests in one step of the plan, one alone in another instance."""
    def request(number, name, begin, end):
        stamps = [("REQUEST_START", begin), ("QUEUE_START", begin + 100), ("COMPUTE_START", begin + 200), ("COMPUTE_END", end - 100), ("REQUEST_END", end)]
        return [{"id": number, "model_name": "two", "model_version": "1", "request_id": name},
                {"id": number, "timestamps": [{"name": stamp, "ns": ns} for stamp, ns in stamps]}]

    def step(ids, instance, number, begin):
        actor, kernel = plan["actors"][1], plan["kernels"][0]
        where = {"plan": 0, "stream": plan["streams"][actor["stream"]]["name"], "actor": actor["name"], "begin_ns": begin, "end_ns": begin + 1000}
        events = [{"kind": "firing", **where}, {"kind": "kernel", **where, "kernel": kernel["name"], "kernels": 1}]
        return [{"id": ids[0], "ids": ids, "instance": instance, "number": number, "plans": 1, "events": events}]

    return [*request(1, "first", 1000, 6000), *request(2, "", 1050, 6100), *step([1, 2], 0, 4, 2000), *request(3, "third", 7000, 9900), *step([3], 1, 0, 7500)]


def test_a_click_on_a_request_shows_what_fired_for_it(browser, tmp_path):
    plan = synthetic_plan(6)
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    (tmp_path / "trace.json").write_text(json.dumps(served(plan)))
    plan_viz("html", tmp_path / "plan.json", "--trace", tmp_path / "trace.json", "-o", tmp_path / "served.html")
    browser.open(tmp_path / "served.html")
    assert "3 traced requests" in browser.text("#chips").replace("\n", " ")
    assert len(browser.run("planViz.lanes().rows.rows.filter(r => r.run).map(r => r.lane)")) == 16, "eight streams of each of two instances"
    first = on_canvas(browser, "[planViz.lanes().scale.x(3000), planViz.lanes().rows.requestY + 5]")
    browser.click_at(*first)
    details = re.sub(r"\s+", " ", browser.text("#details"))
    assert details.startswith("request 1 (first) request to model two 1") and "step 4 of instance 0" in details
    assert re.search("in the same step request 2", details, re.I) and re.search(r"fired for it actor1 1 µs at \+1 µs", details, re.I)
    browser.click_at(*on_canvas(browser, "(() => { const r = planViz.state.plan.runs[1]; return planViz.lanes().place(r, 0); })()"))
    assert re.search("ran for request 1 .first. request 2", re.sub(r"\s+", " ", browser.text("#details")), re.I)


def test_two_plans_side_by_side(pages, browser, tmp_path):
    other = json.loads((pages / "digits.json").read_text())
    kernel = other["kernels"][0]
    kernel["cost_ns"] = "123456"
    (tmp_path / "other.json").write_text(json.dumps(other))
    plan_viz("html", pages / "digits.json", "--beside", tmp_path / "other.json", "-o", tmp_path / "both.html")
    browser.open(tmp_path / "both.html", "#view=compare")
    text = browser.text("#compare")
    assert "1 DIFFERENCE" in text.upper() and kernel["name"] in text and "→ 123 µs" in text


def drop(browser, path):
    browser.run(f"""(async () => {{ const files = new DataTransfer(); files.items.add(new File([{json.dumps(path.read_text())}], {json.dumps(path.name)}));
      window.dispatchEvent(new DragEvent('drop', {{dataTransfer: files, bubbles: true, cancelable: true}})); }})()""")
    browser.run("new Promise(done => setTimeout(done, 50))")
    browser.settle()


def test_files_are_dropped(pages, browser, tmp_path):
    browser.open(pages / "digits.html")
    drop(browser, pages / "trace.json")
    assert browser.run("planViz.state.plan.runs.map(r => [r.name, r.begin.length > 0])") == [["predicted", True], ["measured", True]]
    events = json.loads((pages / "trace.json").read_text())["traceEvents"]
    ran = sum(event.get("cat") == "kernel" for event in events)
    assert browser.run("planViz.state.plan.runs[1].kernel.length") == ran > 0  # each lies in a firing, in whichever order they stand
    drop(browser, pages / "gpt.json")
    assert "train" in browser.text("#compare") and browser.run("planViz.state.view") == "compare"
    drop(browser, pages / "resnet50.html")
    assert "resnet50" in browser.text("#compare")
    (tmp_path / "no.json").write_text("{}")
    drop(browser, tmp_path / "no.json")
    assert browser.text("#tip").startswith("no.json: this is no plan and no trace; drop a plan.json")


def test_hostile_names_are_inert(browser, tmp_path):
    bad = "</script><script>window.bad = 1</script><img src=x onerror='window.bad = 2'>"
    plan = synthetic_plan(6, name=bad)
    for kind in ("actors", "kernels", "registers", "buffers", "streams", "arenas"):
        for i, entity in enumerate(plan[kind]):
            entity["name"] = f"{bad}{i}"
    for kernel in plan["kernels"]:
        kernel.update(op=bad, module=bad, file=bad)
    (tmp_path / "bad.json").write_text(json.dumps(plan))
    plan_viz("html", tmp_path / "bad.json", "-o", tmp_path / "bad.html")
    for view in ("lanes", "graph", "memory"):
        browser.open(tmp_path / "bad.html", f"#view={view}&kernel=1")
        for tab in ("Kernels", "Actors", "Registers", "Buffers", "Memory", "Proof"):
            browser.click(f"#tabs [data-name={tab}]")
        browser.press(".")
        assert browser.run("window.bad") is None and browser.run("document.images.length") == 0
        assert browser.text("#title") == bad and browser.text("#details h2").startswith(bad)
    assert browser.requests() == ([], [])


def test_colours_can_be_read_and_keys_reach_everything(pages, browser):
    pairs = [(text, on) for text in ("ink", "dim", "accent", "critical", "good", "bad") for on in ("panel", "bg", "lane")]
    for theme in ("light", "dark"):
        browser.theme(theme)
        browser.open(pages / "digits.html")
        colours = browser.run("Object.fromEntries(['ink','dim','accent','critical','good','bad','panel','bg','lane'].map(n => [n, getComputedStyle(document.documentElement).getPropertyValue('--' + n).trim()]))")

        def light(name, colours=colours):
            parts = [int(colours[name][i:i + 2], 16) / 255 for i in (1, 3, 5)]
            parts = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
            return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

        for text, on in pairs:
            one, other = sorted((light(text), light(on)))
            assert (other + 0.05) / (one + 0.05) >= 4.5, (theme, text, on)
    browser.theme("light")
    unreachable = browser.run("[...document.querySelectorAll('button, input, select, [onclick]')].filter(e => e.tabIndex < 0 || !(e.getAttribute('aria-label') || e.title || e.textContent.trim() || e.closest('label'))).length")
    assert unreachable == 0
    browser.press("ArrowDown", text="")
    first = browser.text("#details h2")
    browser.press("ArrowDown", text="")
    assert browser.text("#details h2") != first
    browser.press("?")
    assert browser.run("document.querySelector('dialog').open")
