"""docs/serving.md: its programs are written and its commands run, from top to bottom, as the page has them, but for ports."""

import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import threading
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ.get("SLUICE_BUILD", ROOT / "build/release"))
PAGE = "".join((ROOT / "docs" / name).read_text() for name in ("serving.md", "serving-more.md"))


class Page:
    """Runs commands. `sluice-serve` but for `check` goes to the background, in the place of the one before."""

    def __init__(self, work):
        self.work, self.server, self.told = work, None, []
        self.env = os.environ | {"PATH": f"{pathlib.Path(sys.executable).parent}:{BUILD / 'tools'}:{os.environ['PATH']}"}
        with FreePorts(3) as ports:
            self.ports = dict(zip(("8000", "8001", "8002"), ports))

    def with_ports(self, text):
        return re.sub(r"\b(8000|8001|8002)\b", lambda m: self.ports[m[1]], text)

    def run(self, command):
        if command.startswith("sluice-serve --"):
            return self.serve(command)
        if command.startswith("plan-viz requests"):
            self.wait_for_steps(self.work / "trace.json")
        if command.startswith("sluice-perf"):
            command += f" -u 127.0.0.1:{self.ports['8000']}"
        done = subprocess.run(["bash", "-c", self.with_ports(command)], cwd=self.work, env=self.env, capture_output=True, text=True,
                              timeout=600)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        self.told.append((command, done.stdout))
        return done.stdout

    def wait_for_steps(self, trace):
        """Until the trace has what the engine did for each request; that comes a moment after their answers."""
        while True:
            records = json.loads(trace.read_text())
            joined = {number for record in records for number in record.get("ids", [])}
            if joined >= {record["id"] for record in records if "step" in record}:
                return
            urllib.request.urlopen(f"http://127.0.0.1:{self.ports['8000']}/v2/health/live", timeout=120).read()

    def serve(self, command):
        self.stop()
        ports = " ".join(f"--{name}-port {self.ports[port]}" for name, port in (("http", "8000"), ("grpc", "8001"), ("metrics", "8002")))
        log = open(self.work / "server.log", "a")
        self.server = subprocess.Popen(["bash", "-c", f"exec {command} {ports}"], cwd=self.work, env=self.env,
                                       stdout=subprocess.PIPE, stderr=log, text=True)
        lines = []
        for line in self.server.stdout:
            lines.append(line)
            if line.startswith("ready"):
                break
        assert lines and lines[-1].startswith("ready"), (command, lines, (self.work / "server.log").read_text())
        threading.Thread(target=self.server.stdout.read, daemon=True).start()
        self.told.append((command, "".join(lines)))

    def stop(self):
        if self.server:
            self.server.terminate()
            assert self.server.wait(120) == 0
            self.server = None


class FreePorts:
    """Ports that are free now: each is bound while the others are looked for."""

    def __init__(self, count):
        self.sockets = [socket.socket() for _ in range(count)]

    def __enter__(self):
        for s in self.sockets:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.bind(("127.0.0.1", 0))
        return [str(s.getsockname()[1]) for s in self.sockets]

    def __exit__(self, *_):
        for s in self.sockets:
            s.close()


def test_the_page_runs_from_top_to_bottom(tmp_path):
    page = Page(tmp_path)
    try:
        for language, text in re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.S | re.M):
            if language == "python":
                (tmp_path / re.match(r"# (\S+)", text)[1]).write_text(page.with_ports(text))
            elif language == "bash":
                for command in text.splitlines():
                    page.run(command)
        page.stop()
    finally:
        if page.server:
            page.server.kill()
            page.server.wait()
    told = dict(page.told)
    saved = told["python save.py"].strip()
    asked = [out for command, out in page.told if command == "python ask.py"]
    assert len(asked) == 2 and all(out.splitlines()[0].strip() == saved for out in asked), (saved, asked)
    assert re.search(r"\[b'-?\d+\.\d{6}:[012]'\]", asked[0].splitlines()[1])
    index = json.loads(told["curl -s -X POST http://127.0.0.1:8000/v2/repository/index"])
    assert {entry["name"] for entry in index} >= {"scores"}
    config = json.loads(told["curl -s http://127.0.0.1:8000/v2/models/batches/config"])
    assert config["max_batch_size"] == 8 and config["input"][0]["name"] == "x"
    assert "nv_inference_request_success" in told["curl -s http://127.0.0.1:8002/metrics"]
    assert "<svg" in (tmp_path / "load.svg").read_text() and (tmp_path / "load.csv").read_text().count("\n") == 4
    events = next(out for command, out in page.told if "generate_stream" in command).split("\n\n")
    tokens = [json.loads(event.removeprefix("data: "))["OUTPUT_0"] for event in events if event]
    assert len(tokens) == 5 or tokens[-1] == 0
    assert len(json.loads(next(out for command, out in page.told if ":predict" in command))["predictions"][0]) == 3
    assert "\nbest: " in next(out for command, out in page.told if "--tune" in command)
    log = json.loads(next(out for command, out in page.told if "/v2/logging" in command))
    assert log["log_verbose_level"] == 1
    joined = next(out for command, out in page.told if command.startswith("plan-viz requests"))
    assert joined.startswith("plan 'scores'") and len(joined.splitlines()) >= 4, joined
    assert '"requests":[{"n":1,' in (tmp_path / "requests.html").read_text()
    bags = told["python ask_bags.py"].splitlines()
    assert [line.partition(")")[0] for line in bags] == ["(1, 3, 2", "(1, 7, 2", "(1, 5, 2"]
    trace = json.loads((tmp_path / "trace.json").read_text())
    stamps = {stamp["name"] for record in trace for stamp in record.get("timestamps", [])}
    assert {"HTTP_RECV_START", "REQUEST_START", "QUEUE_START", "COMPUTE_START", "COMPUTE_END", "REQUEST_END"} <= stamps
