"""python -m ecosystem.imports PACKAGE sluice|torch: imports every module of a package; prints which did not, and why, as JSON."""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import io
import json
import os
import pkgutil
import subprocess
import sys
import warnings
from typing import Any

from ecosystem.beside import FOLDERS, ROOT, declare_ops
from ecosystem.packages import PACKAGES, SKIPPED


def names_of(package: Any) -> list[str]:
    """Its modules, by name; none of them is imported for that."""
    found, todo = [], [(package.__name__ + ".", list(package.__path__))]
    while todo:
        prefix, path = todo.pop()
        for entry in pkgutil.iter_modules(path, prefix):
            if not any(part in entry.name for part in SKIPPED):
                found.append(entry.name)
                if entry.ispkg:
                    todo.append((entry.name + ".", [os.path.join(p, entry.name.rpartition(".")[2]) for p in path]))
    return sorted(found)


def reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:160]


def try_all(package: str, on_sluice: bool) -> dict[str, Any]:
    """{module: why it cannot be imported, or ""}"""
    sys.path[:0] = map(str, FOLDERS)
    if on_sluice:
        import sluice as sl

        sl.mock_torch.enable(lazy=True)
    else:
        declare_ops()
    found = {}
    try:
        for name in [package, *names_of(importlib.import_module(package))]:
            try:
                importlib.import_module(name)
                found[name] = ""
            except BaseException as error:  # packages end the program, too
                found[name] = reason(error)
    except BaseException as error:
        found[package] = reason(error)
    return found


def counted(package: str) -> dict[str, Any]:
    """How many modules import, of those that torch's user can import; why the others do not."""
    said = {}
    for side in ("torch", "sluice"):
        command = [sys.executable, "-W", "ignore", "-m", "ecosystem.imports", package, side]
        run = subprocess.run(command, capture_output=True, text=True, timeout=900, cwd=ROOT,
                             env=os.environ | {"PYTHONPATH": f"{os.environ.get('PYTHONPATH', '')}:{ROOT / 'tests'}"})
        said[side] = json.loads(run.stdout.splitlines()[-1]) if run.returncode == 0 and run.stdout else {package: run.stderr[-160:]}
    asked = [name for name, why in said["torch"].items() if not why]
    lacking = {name: said["sluice"].get(name, "it was not reached") for name in asked if said["sluice"].get(name, "it was not reached")}
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return {"version": version(package), "import": len(asked) - len(lacking), "of": len(asked), "lacking": lacking}
    return {"version": "?", "import": len(asked) - len(lacking), "of": len(asked), "lacking": lacking}


def version(package: str) -> str:
    """Of a package that lies beside the environment."""
    for found in importlib.metadata.distributions(name=PACKAGES[package], path=list(map(str, FOLDERS))):
        return found.version
    raise importlib.metadata.PackageNotFoundError(package)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    with contextlib.redirect_stdout(io.StringIO()):
        table = try_all(sys.argv[1], sys.argv[2] == "sluice")
    print(json.dumps(table), flush=True)
    os._exit(0)  # threads of packages do not keep it
