"""import: seconds to `import sluice` in a fresh interpreter, against `import torch`."""
import statistics
import subprocess
import sys

from common import report, spread, wanted

CODE = "import time; t = time.perf_counter(); import {0}; print(time.perf_counter() - t)"


def seconds(module: str) -> float:
    return float(subprocess.run([sys.executable, "-c", CODE.format(module)], capture_output=True, text=True, check=True).stdout)


if __name__ == "__main__":
    if wanted("import"):
        seconds("sluice"), seconds("torch")
        ours, peer = zip(*[(seconds("sluice"), seconds("torch")) for _ in range(5)])
        report("import", statistics.median(ours), statistics.median(peer), "PyTorch", "s", 5, max(spread(ours), spread(peer)))
