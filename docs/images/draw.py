"""Draws the pictures of README, docs and examples anew, from real runs: `python docs/images/draw.py` after `make build` and `. ./activate`.

Needs Graphviz, and Chromium, which takes the screenshots of the pages that plan-viz writes.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent


def run(*command: object, cwd: pathlib.Path = ROOT) -> None:
    subprocess.run([str(c) for c in command], check=True, cwd=cwd)


def screenshot(page: pathlib.Path, picture: pathlib.Path, size: str = "1280,800") -> None:
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with tempfile.TemporaryDirectory() as profile:
        run(browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}",
            f"--window-size={size}", f"--screenshot={picture}", f"file://{page}")


def graphs_and_plans(work: pathlib.Path, out: pathlib.Path) -> None:
    """The pictures of docs/graphs-and-plans.md, of the program that stands there."""
    page = (ROOT / "docs/graphs-and-plans.md").read_text()
    (work / "train.py").write_text(re.search(r"^```python\n(# train\.py\n.*?)^```", page, re.S | re.M)[1])
    run(sys.executable, "train.py", cwd=work)
    dot = subprocess.run(["plan-viz", "dot", "out/train"], check=True, cwd=work, capture_output=True).stdout
    subprocess.run(["dot", "-Tpng", "-Gdpi=110", "-o", out / "plan-actors.png"], input=dot, check=True)
    run("plan-viz", "html", "out/train", "-o", "lanes.html", "--source", ".", cwd=work)
    screenshot(work / "lanes.html", out / "plan-lanes.png", "1280,560")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=HERE, help="where the pictures go")
    out = parser.parse_args().out.resolve()
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        graphs_and_plans(work, out)
        run(sys.executable, "examples/train_digits.py", "--out", work / "digits")
        shutil.copy(work / "digits/loss.png", out / "digits-loss.png")
        screenshot(work / "digits/two_devices.html", out / "plan.png")
        run(sys.executable, "-m", "sluice.distributed.launch", "--nproc_per_node", 2, "examples/distributed_digits.py",
            "--out", work / "ranks")
        screenshot(work / "ranks/plan.html", out / "digits-ranks.png", "1280,640")


if __name__ == "__main__":
    main()
