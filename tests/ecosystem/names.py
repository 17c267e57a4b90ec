"""python -m ecosystem.names MODULE...: imports packages once, on Sluice and beside torch, and lists the names of torch that they lack.

Modules are those of whatever environment runs this, a scratch one say, in which the packages are. What torch's user cannot import
either is not counted. The list says how many packages need each name: the first one that is lacking in each.
"""

from __future__ import annotations

import argparse
import collections
import os
import re
import subprocess
import sys
from typing import Optional

from ecosystem.beside import FOLDERS, ROOT

_IMPORT = """
import importlib, os, sys, warnings
warnings.simplefilter("ignore")
if sys.argv[2] == "sluice":
    import sluice
    sluice.mock_torch.enable(lazy=True)
else:
    from ecosystem.beside import declare_ops
    declare_ops()
try:
    importlib.import_module(sys.argv[1])
except BaseException as error:
    print(f"lacking: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}", flush=True)
    os._exit(1)
print("imports", flush=True)
os._exit(0)
"""
_LACKING = [re.compile(pattern) for pattern in (
    r"module '(?P<module>torch[\w.]*)' has no attribute '(?P<name>\w+)'", r"cannot import name '(?P<name>\w+)' from '(?P<module>torch[\w.]*)'",
    r"No module named '(?P<module>torch[\w.]*)(?P<name>)'", r"(?P<module>torch\.[\w.]+)(?P<name>): used, but Sluice")]


def tried(module: str, side: str, seconds: int = 300) -> str:
    """Why it cannot be imported; "" where it can."""
    path = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(ROOT / "tests"), *map(str, FOLDERS)])
    try:
        run = subprocess.run([sys.executable, "-c", _IMPORT, module, side], capture_output=True, text=True, timeout=seconds, check=False,
                             env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"})
    except subprocess.TimeoutExpired:
        return f"took more than {seconds} s"
    said = [line.partition(": ")[2] for line in run.stdout.splitlines() if line.startswith("lacking: ")]
    return "" if run.returncode == 0 else said[-1] if said else (run.stderr.strip().splitlines() or [f"ended with {run.returncode}"])[-1]


def name_in(why: str) -> Optional[str]:
    """The name of torch that an error is about."""
    for pattern in _LACKING:
        if found := pattern.search(why):
            return ".".join(part for part in (found["module"], found["name"]) if part)
    return None


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m ecosystem.names", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="+")
    asked, right, needed = 0, 0, collections.defaultdict(list)
    for module in parser.parse_args().modules:
        why = tried(module, "sluice")
        if why and (beside := tried(module, "torch")):
            print(f"{module}: not beside torch either: {beside}"[:200], flush=True)
            continue
        asked, right = asked + 1, right + (not why)
        print(f"{module}: {why or 'imports'}"[:240], flush=True)
        if why:
            needed[name_in(why) or why[:120]].append(module)
    for name, modules in sorted(needed.items(), key=lambda item: -len(item[1])):
        print(f"lacking: {len(modules)} x {name} ({', '.join(modules)})")
    print(f"count: {right} of {asked} packages import")


if __name__ == "__main__":
    main()
