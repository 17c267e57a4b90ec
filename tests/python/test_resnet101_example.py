"""examples/resnet101: one file of a net, from training to a server on Sluice, and on torch."""

import os
import pathlib
import re
import subprocess
import sys

RUN = pathlib.Path(__file__).resolve().parents[2] / "examples/resnet101/run.sh"


def test_five_stages_and_torch_say_the_same_classes(tmp_path):  # FV-02, FV-13
    path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"  # as in a shell that has sourced ./activate
    done = subprocess.run([RUN, "--size", "64"], capture_output=True, text=True, env={**os.environ, "PATH": path, "OUT": str(tmp_path)})
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split(maxsplit=2) for line in done.stdout.splitlines()]
    assert [line[:2] for line in lines] == [[stage, "OK"] for stage in ("train", "eager", "graph", "save", "serve", "torch")]
    assert {line[2] for line in lines[1:]} == {"top-1 [0, 1]"}
    before, after = map(float, re.match(r"loss ([\d.]+) to ([\d.]+), ", lines[0][2]).groups())
    assert after < before
