"""SQL over a plan, and over what a recorded run of it did: `python -m sluice.profiler.query FILE [SQL]`."""

from __future__ import annotations

import argparse
import json
import math
import os
import sqlite3
import subprocess
import sys
import tempfile
from typing import Any, Iterable

from sluice import _C

_TABLES = {
    "streams": "id, name, device, kind, cores",
    "actors": "id, name, stream, role",
    "kernels": "id, name, op, actor, line, module, role, cost_ns, collective",
    "registers": "id, name, producer, quota, bytes, emit_every, initial_tokens",
    "edges": "id, register, consumer, take, hold",
    "variables": "id, name, dtype, shape, constant",
    "memory": "name, kind, bytes, line, module",
    "events": "stream, kind, name, step, begin_ns, end_ns, cause",
    "blame": "actor, total_ns, run_ns, ranks_ns, input_ns, credit_ns, stream_ns, cores_ns, device_ns, host_ns, lost_ns",
    "waits": "actor, reason, whom, ns",
}


def query(path: str | os.PathLike[str]) -> sqlite3.Connection:
    """A database in memory, to be read only, of a plan (a plan.json or a bundle) or of a recorded run and its plan.

    Tables: streams, actors, kernels, registers, edges, variables, memory; of a run also events, and blame and waits by actor
    (docs/recordings.md). Numbers such as actors.stream are ids of the table of that name. Times are nanoseconds.

    memory has a row for each buffer, with the line of the kernel that writes it first, and for each variable, with that of its first
    reader. kind is register (a slot of one), intermediate, workspace, variable or constant.
    """
    path = os.fspath(path)
    base = sqlite3.connect(":memory:")
    for table, columns in _TABLES.items():
        base.execute(f"create table {table} ({columns})")
    _add_plan(base, json.loads(_view("json", path)))
    if _is_recording(path):
        _add_run(base, path)
    base.commit()
    base.execute("pragma query_only = on")
    return base


def _is_recording(path: str) -> bool:
    if not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        return file.read(8) == b"SLUICETR"


def _view(*arguments: str) -> str:
    from sluice._base.tools import find_tool

    done = subprocess.run([find_tool("plan-viz"), *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise ValueError(done.stderr.strip())
    return done.stdout


def _add(base: sqlite3.Connection, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
    base.executemany(f"insert into {table} values ({', '.join('?' * (_TABLES[table].count(',') + 1))})", rows)


def _add_plan(base: sqlite3.Connection, plan: dict[str, Any]) -> None:
    actor_of = {index: i for i, a in enumerate(plan["actors"]) for kind, index in a["program"] if kind == "run"}
    _add(base, "streams", [(i, s["name"], s["device"], s["kind"], s["cores"]) for i, s in enumerate(plan["streams"])])
    _add(base, "actors", [(i, a["name"], a["stream"], a["role"]) for i, a in enumerate(plan["actors"])])
    _add(base, "kernels", [
        (i, k["name"], k["op"], actor_of.get(i), f"{k['file']}:{k['line']}" if k.get("file") else None, k.get("module") or None,
         k.get("role", "forward"), float(k["cost_ns"]), k["collective"]) for i, k in enumerate(plan["kernels"])])
    _add(base, "registers", [(i, r["name"], r["producer"], r["quota"], r["bytes"], r["emit_every"], r["initial_tokens"])
                             for i, r in enumerate(plan["registers"])])
    _add(base, "edges", [(i, e["reg"], e["consumer"], e["take"], e["hold"]) for i, e in enumerate(plan["edges"])])
    _add(base, "variables", [(i, v["name"], v["dtype"], json.dumps(v["shape"]), v["constant"])
                             for i, v in enumerate(plan["variables"])])
    _add(base, "memory", _memory(plan))


def _memory(plan: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Rows of the table memory. A kernel says which buffers, registers and variables it reads and writes."""
    writer: dict[tuple[str, int], tuple[Any, Any]] = {}
    reader: dict[tuple[str, int], tuple[Any, Any]] = {}
    for kernel in plan["kernels"]:
        place = (f"{kernel['file']}:{kernel['line']}" if kernel.get("file") else None, kernel.get("module") or None)
        for operand in kernel["outputs"]:
            writer.setdefault((operand["base"], operand["index"]), place)
        for operand in kernel["inputs"]:
            reader.setdefault((operand["base"], operand["index"]), place)
        writer.setdefault(("workspace", kernel["workspace"]), place)
    slots = {slot: i for i, register in enumerate(plan["registers"]) for slot in register["slots"]}
    rows: list[tuple[Any, ...]] = []
    for i, buffer in enumerate(plan["buffers"]):
        kind = "register" if i in slots else "workspace" if ("workspace", i) in writer else "intermediate"
        place = writer.get(("register", slots[i]) if i in slots else ("workspace", i), writer.get(("buffer", i), (None, None)))
        rows.append((buffer["name"], kind, buffer["bytes"], *place))
    for i, variable in enumerate(plan["variables"]):
        kind = "constant" if variable["constant"] else "variable"
        size = math.prod(variable["shape"]) * getattr(_C, variable["dtype"]).itemsize
        rows.append((variable["name"], kind, size, *(reader.get(("variable", i)) or writer.get(("variable", i), (None, None)))))
    return rows


def _add_run(base: sqlite3.Connection, path: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "events.json")
        _view("trace", path, "-o", file)
        with open(file) as text:
            events = [e for e in json.load(text)["traceEvents"] if e["ph"] == "X"]
    _add(base, "events", [
        (e["tid"], e["cat"], e["name"], e["args"]["step"], round(e["ts"] * 1e3), round((e["ts"] + e["dur"]) * 1e3),
         e["args"].get("cause")) for e in events])
    rows = json.loads(_view("blame", path, "--json"))["rows"]
    keys = [key for key in _TABLES["blame"].split(", ") if key.endswith("_ns")]
    _add(base, "blame", [(row["name"], *(row[key] for key in keys)) for row in rows])
    _add(base, "waits", [(row["name"], wait["for"], wait["whom"], wait["ns"]) for row in rows for wait in row["waits"]])


def main(arguments: list[str] | None = None) -> int:
    """Prints the rows of a query. 2, and one line on stderr, for a file or a query that is wrong."""
    parser = argparse.ArgumentParser(prog="python -m sluice.profiler.query", description=query.__doc__)
    parser.add_argument("file", help="a plan.json, a bundle, or a recorded run")
    parser.add_argument("sql", nargs="?", help="one statement; without it the tables are listed")
    parser.add_argument("--json", action="store_true", help="a list of objects")
    given = parser.parse_args(arguments)
    if given.sql is None:
        print("\n".join(f"{table}({columns})" for table, columns in _TABLES.items()))
        return 0
    try:
        found = query(given.file).execute(given.sql)
        names = [column[0] for column in found.description or ()]
        rows = found.fetchall()
    except (ValueError, sqlite3.Error, sqlite3.Warning) as error:
        print(f"query: {error}", file=sys.stderr)
        return 2
    if given.json:
        print(json.dumps([dict(zip(names, row)) for row in rows], indent=1))
        return 0
    cells = [names, *([("" if value is None else str(value)) for value in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(names))]
    for row in cells:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip())
    return 0


if __name__ == "__main__":
    sys.exit(main())
