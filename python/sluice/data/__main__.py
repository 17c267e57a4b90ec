"""Lists what a tar or record file of samples has: `python -m sluice.data train.tar train.rec`."""

from __future__ import annotations

import argparse
import collections
import json
import sys
from typing import Any

import numpy as np

from sluice._base.progress import with_progress
from sluice.data import _sources
from sluice.data.records import read, read_index


def described(path: str, first: int, check: bool) -> dict[str, Any]:
    """Lists a file: a tar file by its name, else one of records."""
    if path.endswith(".tar"):
        source = _sources.tar(path)
        names = [source.names[i] for i in range(min(first, source.count))]
        lengths = source.lengths
        kinds = collections.Counter(extension for _, extension, _, _ in _sources.tar_members(path))
        facts: dict[str, Any] = {"file": path, "kind": "tar", "samples": source.count, "labels": len(set(source.labels.tolist())),
                                 "extensions": dict(sorted(kinds.items()))}
    else:
        table = read_index(path)
        names, lengths = [f"record {i}" for i in range(min(first, len(table)))], table[:, 1]
        facts = {"file": path, "kind": "records", "samples": len(table), "labels": len(np.unique(table[:, 2]))}
    facts |= {"bytes": int(lengths.sum()), "longest": int(lengths.max(initial=0))}
    if first:
        facts["first"] = [{"name": name, "bytes": int(length)} for name, length in zip(names, lengths)]
    if check and facts["kind"] == "records":
        facts["checked"] = sum(1 for _ in with_progress(read(path), "records"))
    return facts


def _told(facts: dict[str, Any]) -> str:
    lines = [f"{facts['file']}: {facts['kind']}, {facts['samples']} samples, {facts['labels']} labels, {facts['bytes']} bytes, the longest "
             f"{facts['longest']}"]
    if "extensions" in facts:
        lines.append("  " + ", ".join(f"{n} .{kind}" for kind, n in facts["extensions"].items()))
    lines += [f"  {sample['name']}: {sample['bytes']} bytes" for sample in facts.get("first", ())]
    if "checked" in facts:
        lines.append(f"  the check sums of all {facts['checked']} records are right")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m sluice.data", description=__doc__)
    parser.add_argument("files", nargs="+", help="tar files (.tar), and record files of any other name")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="list the first N samples, too")
    parser.add_argument("--check", action="store_true", help="read all records, and check their sums")
    parser.add_argument("--json", action="store_true", help="print JSON, an object for each file")
    given = parser.parse_args(arguments)
    try:
        for path in given.files:
            facts = described(path, given.first, given.check)
            print(json.dumps(facts) if given.json else _told(facts))
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
