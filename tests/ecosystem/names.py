"""python -m ecosystem.names MODULE... [--beside FOLDER] [--keep]: imports packages once, on Sluice and beside torch, and lists the names
of torch that they lack.

Modules are those of whatever environment runs this, and of FOLDER, a scratch one say (`pip install --no-deps --target FOLDER NAME`). What
torch's user cannot import either is not counted. The list says how many packages need each name: the first one that is lacking in each.
--keep: results.json, and so the page, has these answers; what a package lacked when it was first kept stays known.
"""

from __future__ import annotations

import argparse
import collections
import importlib.metadata
import os
import re
import subprocess
import sys
from typing import Any, Optional

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


def tried(module: str, side: str, seconds: int = 300, folders: tuple[str, ...] = ()) -> str:
    """Why it cannot be imported; "" where it can."""
    path = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(ROOT / "tests"), *folders, *map(str, FOLDERS)])
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


def version(module: str, folders: tuple[str, ...] = ()) -> str:
    """That of the distribution which brings a module."""
    for found in importlib.metadata.distributions(path=[*folders, *map(str, FOLDERS), *sys.path]):
        files = found.read_text("RECORD") or ""
        if f"\n{module}/__init__.py," in f"\n{files}" or f"\n{module}.py," in f"\n{files}":
            return found.version
    return "?"


def answer(module: str, folders: tuple[str, ...] = ()) -> dict[str, str]:
    """{"version", "why"}: why it cannot be imported on Sluice; {"excluded"}: why not beside torch either."""
    why = tried(module, "sluice", folders=folders)
    if why and (beside := tried(module, "torch", folders=folders)):
        return {"version": version(module, folders), "excluded": beside[:160]}
    return {"version": version(module, folders), "why": why[:160]}


def lacking(found: dict[str, Any], when: str = "why") -> list[tuple[str, list[str]]]:
    """Names, or errors that name none, by how many packages need them."""
    needed = collections.defaultdict(list)
    for module, said in sorted(found.items()):
        if said.get(when):
            needed[name_in(said[when]) or said[when]].append(module)
    return sorted(needed.items(), key=lambda item: -len(item[1]))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m ecosystem.names", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="+")
    parser.add_argument("--beside", metavar="FOLDER", action="append", default=[])
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    found: dict[str, dict[str, str]] = {}
    for module in options.modules:
        found[module] = answer(module, tuple(options.beside))
        said = found[module]
        text = f"not beside torch either: {said['excluded']}" if "excluded" in said else said["why"] or "imports"
        print(f"{module} {said['version']}: {text}"[:240], flush=True)
    for name, modules in lacking(found):
        print(f"lacking: {len(modules)} x {name} ({', '.join(modules)})")
    asked = [said for said in found.values() if "excluded" not in said]
    print(f"count: {sum(not said['why'] for said in asked)} of {len(asked)} packages import")
    if options.keep:
        from ecosystem.results import keep_all, read

        known = read().get("imports", {})
        for module, said in found.items():
            said["before"] = known.get(module, {}).get("before", said.get("why", ""))
        keep_all("imports", found)


if __name__ == "__main__":
    main()
