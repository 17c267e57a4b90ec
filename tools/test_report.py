#!/usr/bin/env python3
"""Sums up the reports of the tests' phases: how many passed, which failed, how many were skipped, and why.

usage: test_report.py FOLDER PHASE...   FOLDER/PHASE.xml is what ctest or pytest wrote. A phase without a report fails.
"""
import collections
import re
import sys
import xml.etree.ElementTree
from pathlib import Path

# One test: its file as pytest names it ("" of C++ tests), its name, "passed", "failed" or "skipped", and why it was skipped.
Result = collections.namedtuple("Result", "phase file name outcome reason")


def reason_of(case, skipped):
    """Why a test was skipped: what pytest says of it, or what GoogleTest has printed."""
    said = skipped.get("message", "")
    printed = re.search(r"Skipped\n(.+)", case.findtext("system-out", ""))
    if printed:
        said = printed[1]
    elif said == "collection skipped":
        said = skipped.text or said
    return re.sub(r"^.*Skipped: |'\)$", "", said.strip()) or "no reason given"


def read(path):
    """The results of one report. To ctest a program that was not built is skipped; here it is a failure."""
    root = xml.etree.ElementTree.parse(path).getroot()
    for case in root.iter("testcase"):
        skipped, reason = case.find("skipped"), ""
        absent = root.tag == "testsuite" and skipped is not None and not skipped.get("message", "").startswith("SKIP_")
        if absent or case.find("failure") is not None or case.find("error") is not None:
            outcome = "failed"
        elif skipped is not None:
            outcome, reason = "skipped", reason_of(case, skipped)
        else:
            outcome = "passed"
        yield Result(path.stem, case.get("file", ""), case.get("name"), outcome, reason)


def by_test(results):
    """Outcomes of each test, whatever its parameters: by `path::name`, and `path`, of pytest's, by `Suite.Name` of GoogleTest's."""
    found = collections.defaultdict(set)
    for result in results:
        if result.file:
            names = (f"{result.file}::{result.name.partition('[')[0]}", result.file)
        else:  # folder.Instance/Suite.Name/parameter
            case = re.match(r"[^.]+\.(?:[^/.]+/)?([^/.]+)(?:/\d+)?\.([^/]+)", result.name)
            names = (f"{case[1]}.{case[2]}",) if case else ()
        for name in names:
            found[name].add(result.outcome)
    return found


def main():
    folder, phases = Path(sys.argv[1]), sys.argv[2:]
    missing = [phase for phase in phases if not (folder / f"{phase}.xml").exists()]
    results = [result for phase in phases if phase not in missing for result in read(folder / f"{phase}.xml")]
    outcomes = collections.Counter(result.outcome for result in results)
    for reason, n in collections.Counter(r.reason for r in results if r.outcome == "skipped").most_common():
        phases_of = sorted({r.phase for r in results if r.reason == reason and r.outcome == "skipped"})
        print(f"skipped: {n:4} {' '.join(phases_of)}: {reason}")
    for result in results:
        if result.outcome == "failed":
            print(f"failed: {result.phase}: {result.file + '::' if result.file else ''}{result.name}")
    for phase in missing:
        print(f"failed: {phase}: no report {folder / phase}.xml: the phase ended before its tests did")
    print(f"tests: {outcomes['passed']} passed, {outcomes['failed']} failed, {outcomes['skipped']} skipped")
    return bool(missing)


if __name__ == "__main__":
    sys.exit(main())
