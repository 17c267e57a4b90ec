"""docs/getting-started.md: its programs are written, and its commands run, from top to bottom, as the page has them."""

import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SLUICE_BUILD", ROOT / "build/release"))
PAGE = (ROOT / "docs/getting-started.md").read_text()


def test_the_page_runs_from_top_to_bottom(tmp_path):
    work, home = tmp_path / "work", tmp_path / "home"
    work.mkdir(), home.mkdir()
    (home / "sluice").mkdir()
    (home / "sluice/build").mkdir()
    (home / "sluice/build/release").symlink_to(BUILD)
    env = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
    env |= {"HOME": str(home), "PATH": f"{pathlib.Path(sys.executable).parent}:{BUILD / 'tools'}:{env['PATH']}"}
    told = {}
    for language, text in re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.S | re.M):
        if language == "bash":
            for command in text.splitlines():
                done = subprocess.run(["bash", "-c", command], cwd=work, env=env, capture_output=True, text=True, timeout=600)
                assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
                told[command] = done.stdout
        elif language != "text":  # an excerpt; tests/serving/python runs such
            name = re.match(r"(?:#|//) (\S+)", text)[1]
            (work / name).write_text(text)
    assert told["python tensors.py"].startswith("52.0\ntensor(")
    assert int(re.search(r"correct (\d+)%", told["python train.py"])[1]) > 90
    assert "relu" in told["plan-viz show spirals"] or "tanh" in told["plan-viz show spirals"]
    assert (work / "plan.html").stat().st_size > 10_000
    assert "spirals" in told["sluice-serve check models"]
    in_python = [float(v) for v in re.findall(r"[\d.e-]+", told["python predict.py"])]
    in_cpp = [float(v) for v in told["./build/predict spirals"].split()]
    assert len(in_cpp) == 2 and all(abs(a - b) < 1e-5 for a, b in zip(in_python, in_cpp))
