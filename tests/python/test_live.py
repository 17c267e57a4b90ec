"""A process that runs, seen from outside: plan-viz top and plan-viz live."""

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
from browser import Browser

import sluice as sl
from sluice._base.tools import find_tool

# Pictures are made by 'images', then 'prepare' sleeps, in a plan that never ends.
PROGRAM = """
import sys, threading
import numpy as np
import sluice as sl
from sluice import nn

def images():
    while True:
        yield np.zeros((4, 16), "float32")

def prepare(x):
    threading.Event().wait(0.05)
    return x

class Net(nn.Graph):
    def __init__(self):
        super().__init__(name="net</script>")
        self.layer = nn.Linear(16, 16)

    def build(self):
        x = sl.host_function(images, out=((4, 16), sl.float32))
        x = sl.host_function(prepare, x, out=((4, 16), sl.float32), stream="host:1")
        return self.layer(x).sum()

net, steps = Net(), []
for i in range(int(sys.argv[1])):
    steps.append(net())
    if i == 3:
        print("running", flush=True)
    if len(steps) > 3:
        steps.pop(0).item()
"""


def program(tmp_path, live="1", steps=1_000_000):
    (tmp_path / "loop.py").write_text(PROGRAM)
    path = os.pathsep.join([os.path.dirname(os.path.dirname(sl.__file__)), *sys.path])
    environment = {**os.environ, "PYTHONPATH": path, "SLUICE_LIVE": live}
    process = subprocess.Popen([sys.executable, "loop.py", str(steps)], stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=environment)
    assert process.stdout.readline() == "running\n"
    return process


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    process = program(tmp_path_factory.mktemp("live"))
    yield process
    process.kill()
    process.wait()


def top(pid, *arguments, status=0):
    done = subprocess.run([find_tool("plan-viz"), "top", str(pid), *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout if status == 0 else done.stderr


def actor(session, part):
    return next(a for a in session["actors"] if part in a["name"])


def test_top_shows_within_two_seconds_who_sleeps_and_who_waits_for_it(running):
    told = json.loads(top(running.pid, "--json", "--interval", "1.5"))
    assert told["pid"] == running.pid and told["program"].startswith("python") and told["version"] == sl.__version__
    (net,) = told["sessions"]
    busiest = max(net["actors"], key=lambda a: a["busy"])
    assert busiest["name"] == "cpu:0/host1" and busiest["busy"] > 0.8 and busiest["text"].startswith("runs 'prepare' (")
    before, after = actor(net, "cpu:0/host0"), [a for a in net["actors"] if a["whom"] == busiest["name"] and a["does"] == "data"]
    assert (before["does"], before["whom"]) == ("slot", busiest["name"]) and before["share"] >= 0.9
    assert after and after[0]["share"] > 0.8
    assert 5 < net["steps_per_s"] <= 20.5
    for r in net["registers"]:
        assert r["free"] + r["full"] + r["in_flight"] == r["slots"] and min(r["free"], r["full"], r["in_flight"]) >= 0


def test_top_is_text_for_people(running):
    text = top(running.pid, "--interval", "0.5", "--width", "120")
    assert text.startswith(f"process {running.pid} (python")
    assert re.search(r"busiest is 'cpu:0/host1', in kernels for \d", text) and "waits for" in text
    assert "\x1b" not in text
    assert "it has no plan 'other' loaded" in top(running.pid, "--session", "other", status=2)


def test_a_hundred_looks_leave_nothing(running):
    def open_files():
        return len(os.listdir(f"/proc/{running.pid}/fd")), len(os.listdir(f"/proc/{running.pid}/task"))

    top(running.pid, "--interval", "0.05")
    before = open_files()
    looks = [subprocess.Popen([find_tool("plan-viz"), "top", str(running.pid), "--interval", "0.05"], stdout=subprocess.DEVNULL) for _ in range(10)]
    for look in looks[:5]:
        look.kill()  # some go without a word
    for look in looks:
        look.wait()
    for _ in range(90):
        with Socket(running.pid) as connection:
            assert connection.ask("state")["pid"] == running.pid
    with Socket(running.pid) as connection:
        connection.ask("state")  # whoever was before has been seen to go
        after = open_files()
    assert after[1] == before[1] and after[0] <= before[0] + 1, (before, after)


class Socket:
    def __init__(self, pid):
        import socket

        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(f"\0sluice-live-{pid}")
        self._file = self._socket.makefile("rw")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._file.close()
        self._socket.close()

    def ask(self, question):
        self._file.write(question + "\n")
        self._file.flush()
        return json.loads(self._file.read(int(self._file.readline())))


def test_who_has_not_asked_for_it_is_not_seen(tmp_path):
    process = program(tmp_path, live="0")
    try:
        assert "does not let itself be seen" in top(process.pid, status=2)
    finally:
        process.kill()
        process.wait()
    assert f"process {process.pid}: there is none" in top(process.pid, status=2)


def test_a_program_shows_itself_for_a_while():
    assert "does not let itself be seen" in top(os.getpid(), status=2)
    with sl.profiler.live():
        assert json.loads(top(os.getpid(), "--json", "--interval", "0.05"))["pid"] == os.getpid()
    assert "does not let itself be seen" in top(os.getpid(), status=2)
    with pytest.raises(TypeError, match="live: on is int; must be bool"):
        sl.profiler.live(1)


def test_top_ends_with_the_process(tmp_path):
    process = program(tmp_path, steps=40)
    text = top(process.pid, "--count", "0", "--interval", "0.2")
    assert text.endswith(f"process {process.pid} (python3) has ended\n") or re.search(r"process \d+ \(python.*\) has ended\n$", text)
    assert process.wait() == 0


class Page:
    """plan-viz live, and its address."""

    def __init__(self, pid):
        self.process = subprocess.Popen([find_tool("plan-viz"), "live", str(pid)], stdout=subprocess.PIPE, text=True)
        self.said = self.process.stdout.readline()
        self.url = self.process.stdout.readline().strip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        assert self.process.wait() == 0
        self.process.stdout.close()


def answer(url, method="GET", **headers):
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method, headers=headers)) as found:
            return found.status, found.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_the_page_is_for_whoever_has_the_token_and_only_to_look_at(running):
    with Page(running.pid) as page:
        base, token = re.fullmatch(r"(http://127\.0\.0\.1:\d+)/(\?token=[0-9a-f]{32})", page.url).groups()
        assert answer(page.url)[0] == 200
        state = json.loads(answer(f"{base}/state{token}")[1])
        assert state["firings"] and len(state["used"]) == len(state["full"])
        for url in (base, f"{base}/", f"{base}/state", f"{base}/?token=" + "0" * 32, f"{base}/state?token=", f"{base}/{token}0"):
            status, text = answer(url)
            assert status == 403 and "token is missing or wrong" in text, url
        for method in ("POST", "PUT", "DELETE", "HEAD"):
            assert answer(page.url, method=method)[0] == 405, method
        assert answer(page.url, Host="example.org") == (403, "plan-viz live: only its own address is answered\n")
        assert answer(f"{base}/etc/passwd{token}")[0] == 404


def test_the_page_shows_what_happens_now(running):
    with Page(running.pid) as page, Browser() as browser:
        browser.visit(page.url)
        browser.run("new Promise(done => { const wait = () => planViz.state.live.moments.length >= 8 ? done(true) : setTimeout(wait, 50); wait(); })")
        assert browser.run("planViz.state.view") == "graph"
        panel = browser.text("#details").lower()
        assert f"running in process {running.pid}" in panel and "busiest actors" in panel and "who waits for whom" in panel
        busiest = browser.run("planViz.state.plan.data.actors.n.findIndex(n => n === 'cpu:0/host1')")
        assert browser.run(f"planViz.state.live.busy({busiest})") > 0.8
        browser.run(f"planViz.select('actor', {busiest})")
        browser.settle()
        assert "runs" in browser.text("#details") and "per second" in browser.text("#details")
        asked, said = browser.requests()
        assert said == [] and asked and all(url.startswith(page.url.split("?")[0]) for url in asked)
        assert browser.text("#title") == "net</script>"


def test_the_page_says_that_the_process_has_ended(tmp_path):
    process = program(tmp_path, steps=1_000_000)
    page = Page(process.pid)
    with Browser() as browser:
        browser.visit(page.url)
        process.kill()
        process.wait()
        fault = browser.run("new Promise(done => { const wait = () => planViz.state.live.fault ? done(planViz.state.live.fault) : setTimeout(wait, 50); wait(); })")
        assert fault == "the process has ended" and fault in browser.text("#details")
    assert page.process.wait() == 0 and "has ended" in page.process.stdout.read()
    page.process.stdout.close()


ENERGY = """
import pathlib, sys
import sluice as sl
from sluice import nn

class Net(nn.Graph):
    def __init__(self):
        super().__init__(name="net")

    def build(self, x):
        return x * 2

net, x, counter = Net(), sl.ones(4), pathlib.Path("powercap/intel-rapl:0/energy_uj")
for step in range(1_000_000):
    net(x).tolist()
    used = 2_000_000 * (step + 1)  # two joules a step
    new = counter.with_suffix(".new")
    new.write_text(f"{used}\\n")
    new.replace(counter)
    if step == 3:
        print("running", flush=True)
"""


def test_joules_a_step_by_the_counters_of_the_processor(tmp_path):  # STP-08
    package = tmp_path / "powercap/intel-rapl:0"
    package.mkdir(parents=True)
    (tmp_path / "powercap/intel-rapl:0:0").mkdir()  # a part of the package, which would count twice
    (tmp_path / "powercap/intel-rapl:0:0/energy_uj").write_text("5\n")
    for name, text in (("name", "package-0"), ("energy_uj", "0"), ("max_energy_range_uj", str(10 ** 12))):
        (package / name).write_text(text + "\n")
    (tmp_path / "loop.py").write_text(ENERGY)
    path = os.pathsep.join([os.path.dirname(os.path.dirname(sl.__file__)), *sys.path])
    process = subprocess.Popen([sys.executable, "loop.py"], stdout=subprocess.PIPE, text=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path, "SLUICE_LIVE": "1"})
    try:
        assert process.stdout.readline() == "running\n"
        ask = [find_tool("plan-viz"), "energy", str(process.pid), "--counters", str(tmp_path / "powercap"), "--interval", "3"]
        told = json.loads(subprocess.run([*ask, "--json"], capture_output=True, text=True, check=True).stdout)
        assert told["available"] and told["steps"] > 0 and list(told["joules"]) == ["package-0"] and told["seconds"] >= 3
        # The counter is read before the steps and once more behind them, and the program counts a step a little later.
        assert 2 * told["steps"] - 4 <= told["joules"]["package-0"] <= 20 * (told["steps"] + 10)
        assert told["joules_per_step"] == pytest.approx(told["joules"]["package-0"] / told["steps"])
        ask[-1] = "0.05"
        assert re.match(r"([\d.e+-]+ J a step|no step has ended): \d+ steps? in ", subprocess.run(ask, capture_output=True, text=True, check=True).stdout)
        (tmp_path / "none").mkdir()
        ask[4] = str(tmp_path / "none")
        assert subprocess.run(ask, capture_output=True, text=True, check=True).stdout == f"not available: {tmp_path}/none: has no intel-rapl; the processor, or the virtual machine, counts no energy\n"
    finally:
        process.kill()
        process.wait()
