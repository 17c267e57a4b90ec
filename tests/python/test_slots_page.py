"""docs/slots-by-trying.md: a reader steps through its plan, plays it, changes quotas and sees what the plan reaches then."""

import json
import pathlib
import re
import subprocess

import pytest
from browser import Browser

from sluice._base.tools import find_tool

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/slots-by-trying.md").read_text()


def plan_viz(*arguments, status=0):
    done = subprocess.run([find_tool("plan-viz"), *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout if status == 0 else done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("slots")
    (folder / "three.json").write_text(re.search(r"^```json\n(.*?)^```", PAGE, re.S | re.M)[1])
    plan_viz("html", folder / "three.json", "--slots", 3, "-o", folder / "three.html")
    return folder


@pytest.fixture
def browser(folder):
    with Browser() as browser:
        browser.open(folder / "three.html")
        yield browser
        assert browser.requests() == ([], [])


def slots(browser):
    return dict(browser.run("[...document.querySelectorAll('#bar .slots')].map(s => [s.dataset.register, parseInt(s.querySelector('b').textContent)])"))


def press(browser, register, sign):
    browser.run(f"[...document.querySelectorAll('#bar .slots[data-register={register}] button')].find(b => b.textContent === {json.dumps(sign)}).click()")
    browser.settle()


def reached(browser):
    return browser.text("#reaches")


def test_a_reader_changes_quotas_and_sees_the_throughput(browser):  # IRE-02
    """All that the table of the page says, by clicks."""
    rows = re.findall(r"^\| (\d) \| (\d) \| (\d+) \|", PAGE, re.M)
    assert len(rows) == 4
    for batch, result, rate in rows:
        for register, wanted in (("batch", int(batch)), ("result", int(result))):
            while (now := slots(browser)[register]) != wanted:
                press(browser, register, "+" if now < wanted else "−")
        assert slots(browser) == {"batch": int(batch), "result": int(result)}
        assert reached(browser) == f"{rate} steps/s"
        assert browser.run("planViz.state.plan.data.registers.quota") == [int(batch), int(result)]
    assert browser.run("[...document.querySelectorAll('#bar .slots button')].map(b => b.disabled)") == [False, True, False, True], "at most three"
    bytes_of = "planViz.state.plan.data.bytes"
    assert browser.run(bytes_of) == 6 * 4096
    press(browser, "batch", "−")
    assert browser.run(bytes_of) == 5 * 4096


def test_a_reader_steps_and_plays(browser):
    browser.press("2")
    assert browser.run("planViz.state.view") == "graph"
    press(browser, "batch", "+")
    assert browser.run("planViz.state.view") == "graph", "a choice of slots leaves the view"
    full = []
    for _ in range(6):
        browser.press(".")
        full.append(browser.run("planViz.tokens().use(0, planViz.state.at).full + planViz.tokens().use(0, planViz.state.at).writing"))
    assert max(full) == 2 and "replay of the predicted run" in browser.text("#details").lower()
    moments = browser.run("[...planViz.moments()]")
    at = browser.run("planViz.state.at")
    assert at == moments[5]
    # It goes on by itself, for as long as nobody stops it.
    browser.run("document.querySelectorAll('#player button')[1].click()")
    browser.run(f"new Promise(done => {{ const look = () => planViz.state.at >= {moments[7]} ? done(true) : setTimeout(look, 20); look(); }})")
    browser.run("document.querySelectorAll('#player button')[1].click()")
    assert browser.run("planViz.state.at") in moments[7:]


def test_no_choice_has_fewer_slots_than_rates_need(folder, tmp_path):
    plan = json.loads((folder / "three.json").read_text())
    plan["edges"][1].update(take=2)
    plan["registers"][1].update(quota=2, slots=[1, 2])
    plan["buffers"].append({"name": "result[1]", "arena": 0, "offset": 8192, "bytes": 4096})
    plan["arenas"][0].update(bytes=12288, lower_bound=12288)
    plan["certificate"] = [0, 1, 0, 1, 2]
    (tmp_path / "two.json").write_text(json.dumps(plan))
    plan_viz("html", tmp_path / "two.json", "--slots", 3, "-o", tmp_path / "two.html")
    with Browser() as browser:
        browser.open(tmp_path / "two.html")
        assert slots(browser) == {"batch": 1, "result": 2}
        assert browser.run("document.querySelectorAll('#bar .slots[data-register=result] button')[0].disabled"), "the rates need two"


def test_what_cannot_be_tried_is_an_error(folder):
    assert "--slots 1: no register of the plan can have another number of slots up to that" in plan_viz("html", folder / "three.json", "--slots", 1, status=2)


def test_too_many_choices_are_an_error(tmp_path):
    from synthetic_plan import synthetic_plan

    (tmp_path / "many.json").write_text(json.dumps(synthetic_plan(20)))
    assert "of 19 registers these are more than 256 plans; must be fewer" in plan_viz("html", tmp_path / "many.json", "--slots", 3, status=2)
