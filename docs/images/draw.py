"""Draws the pictures of README and examples anew, from real runs: `python docs/images/draw.py` after `make build` and `. ./activate`.

Needs Chromium, which takes the screenshots of the pages that plan-viz writes.
"""

import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent


def run(*command: object) -> None:
    subprocess.run([str(c) for c in command], check=True, cwd=ROOT)


def screenshot(page: pathlib.Path, picture: pathlib.Path, size: str = "1280,800") -> None:
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with tempfile.TemporaryDirectory() as profile:
        run(browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}",
            f"--window-size={size}", f"--screenshot={picture}", f"file://{page}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=HERE, help="where the pictures go")
    out = parser.parse_args().out.resolve()
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        run(sys.executable, "examples/train_digits.py", "--out", work / "digits")
        shutil.copy(work / "digits/loss.png", out / "digits-loss.png")
        screenshot(work / "digits/two_devices.html", out / "plan.png")
        run(sys.executable, "-m", "sluice.distributed.launch", "--nproc_per_node", 2, "examples/distributed_digits.py",
            "--out", work / "ranks")
        screenshot(work / "ranks/plan.html", out / "digits-ranks.png", "1280,640")


if __name__ == "__main__":
    main()
