"""SLUICE_DRY_RUN=1: compile, write the plan and its picture, run nothing, exit."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from sluice._base.replaced_file import replaced
from sluice._base.tools import find_tool


def write_and_exit(name: Any, session: Any) -> None:
    directory = os.environ.get("SLUICE_DRY_RUN_DIR", ".")
    os.makedirs(directory, exist_ok=True)
    plan, dot = (os.path.join(directory, f"{name}.{kind}") for kind in ("plan.json", "dot"))
    with replaced(plan) as file:  # ranks write the same ones at the same time
        file.write(session.plan_json().encode())
    with replaced(dot) as file:
        subprocess.run([find_tool("plan-viz"), "dot", plan], stdout=file, check=True)
    print(f"dry run of graph '{name}': {plan}, {dot}", file=sys.stderr)
    raise SystemExit(0)
