#!/usr/bin/env python3
"""Checks that docs/features.md promises what is held; and so do the classes of docs/security.md.

A row of the first is `| id | what | checked by |`. The third column lists `path`, `path::name` (a test of that name must
be in the file) or `make target`, in backticks. The second may say bounds, such as `` `eager.add` <= 2 us `` and
`` `train.*` >= 1.5x `` (x: the ratio to the peer): every line of such a name in docs/figures.md must keep them, and a row
without a test must say one. In docs/security.md, the last column of each class names at least one `path::name`.

usage: check_features.py [--update] [--report FOLDER]   FOLDER is what the last `make test` wrote: a row is refused all of
whose tests were skipped there, and a test that did not run. --update first writes where tests are that were moved within
their folder.
"""
import argparse
import fnmatch
import operator
import re
import sys
from pathlib import Path

import test_report

ROOT = Path(__file__).parent.parent
BOUND = re.compile(r"`([\w.*-]+)` (<=|>=) (\d+(?:\.\d+)?)(?:(x)| ([A-Za-z%][\w/%]*))?")
HOLDS = {"<=": operator.le, ">=": operator.ge}


def rows(page):
    """(line number, id, what, what is in backticks in the third column) of each row."""
    for number, line in enumerate(page.splitlines(), 1):
        match = re.match(r"\| *([A-Z]+-\d+) *\|([^|]*)\|([^|]*)\|", line)
        if match:
            yield number, match[1], match[2].strip(), re.findall(r"`([^`]+)`", match[3])


def problem(check, root=ROOT):
    """The fault of `path`, `path::name` or `make target`; "" where there is none."""
    if check.startswith("make "):
        target = re.escape(check.split()[1])
        return "" if re.search(rf"^[\w ]*\b{target}\b[\w ]*:", (root / "Makefile").read_text(), re.M) else f"no such target: {check}"
    path, _, name = check.partition("::")
    if not (root / path).exists():
        return f"no such file: {path}"
    if not name:
        return ""
    text = (root / path).read_text()
    suite, _, test = name.partition(".")
    found = re.search(rf"TEST(_P|_F)?\({suite}, *{test}\)", text) if test else re.search(rf"\b{name}\b", text)
    return "" if found else f"no test {name} in {path}"


def with_moved_tests(page, root=ROOT):
    """The page, in which a `path::name` that is no longer right names the one file of the folder that has the test now."""
    def moved(match):
        path, name = match[1], match[2]
        if not problem(f"{path}::{name}", root):
            return match[0]
        now = [file for file in sorted((root / path).parent.glob("*.py")) if re.search(rf"^def {name}\b", file.read_text(), re.M)]
        return f"`{now[0].relative_to(root)}::{name}`" if len(now) == 1 else match[0]

    return re.sub(r"`(tests/[\w/]+\.py)::(\w+)`", moved, page)


def figures(page):
    """The lines of docs/figures.md by name: {name: [(ours, ratio or None, unit, "measured on DATE on MACHINE")]}."""
    found, measured = {}, ""
    for line in page.splitlines():
        if line.startswith("Measured on "):
            measured = "measured" + line.partition(": `make bench")[0].removeprefix("Measured")
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 8 and re.fullmatch(r"[\d.e+-]+", cells[1]):
            found.setdefault(cells[0], []).append((float(cells[1]), float(cells[3]) if cells[3] else None, cells[6], measured))
    return found


def bounds_of(what, lines):
    """For each bound that a row says: (the figure that is nearest to it or beyond, to print; whether all are kept)."""
    unread = len(re.findall("<=|>=", BOUND.sub("", what)))
    if unread:
        yield f"{unread} bounds cannot be read; must be `figure` <= 2 us, `figure` >= 1.5x or `figure` <= 1.3", False
    for name, sign, bound, ratio, unit in BOUND.findall(what):
        said = f"{name} {sign} {bound}{ratio}{' ' + unit if unit else ''}"
        named = [(line, *figure) for line in fnmatch.filter(lines, name) for figure in lines[line]]
        if not named:
            yield f"{said}: docs/figures.md has no such line; measure it by `make bench ONLY={name.partition('*')[0]}`", False
            continue
        wrong = next((of for *_, of, _ in named if unit and not re.match(rf"{re.escape(unit)}(?!\w)", of)), "")
        if wrong or (ratio and any(times is None for _, _, times, *_ in named)):
            yield f"{said}: " + (f"the figure's unit is {wrong}" if wrong else "docs/figures.md has no ratio of it"), False
            continue
        got, line, measured = (min if sign == ">=" else max)((times if ratio else ours, line, when) for line, ours, times, _, when in named)
        kept = HOLDS[sign](got, float(bound))
        of = f"{line}, of {len(named)}: " if len(named) > 1 else ""
        yield f"{said}: {of}{got:.4g}{ratio}{' ' + unit if unit else ''}, {measured}" + ("" if kept else ": BROKEN"), kept


def not_run(checks, outcomes):
    """The objections of the last report to a row: tests that did not run, and rows all of whose tests were skipped."""
    ended = {}
    for check in checks:
        path, _, name = check.partition("::")
        if re.fullmatch(r"tests/.*/test_\w+\.py|tests/.*_test\.cpp", path) and (name or path.endswith(".py")):
            ended[check] = outcomes.get(name if path.endswith(".cpp") else check, set())
    yield from (f"{check}: did not run in the last `make test`" for check, those in ended.items() if not those)
    if ended and all(those == {"skipped"} for those in ended.values()):
        yield f"all its tests were skipped in the last `make test`: {' '.join(ended)}"


def check_page(page, lines, outcomes, root=ROOT):
    """(errors, lines of bounds, count of rows) of docs/features.md; `outcomes` are None where there is no report."""
    errors, told, count = [], [], 0
    for number, name, what, checks in rows(page):
        count += 1
        found = [] if checks else ["nothing in backticks in the third column"]
        found += filter(None, (problem(check, root) for check in checks))
        bounds = list(bounds_of(what, lines))
        told += [f"{name}: {text}" for text, kept in bounds if kept]
        found += [text for text, kept in bounds if not kept]
        if not bounds and checks and not any(check.startswith("tests/") for check in checks):
            found.append("neither a test nor a bound of a figure; name a test, or say `figure` <= 2 us in the second column")
        if outcomes is not None:
            found += not_run(checks, outcomes)
        errors += [f"docs/features.md:{number}: {name}: {text}" for text in found]
    return errors, told, count


def check_classes(page):
    """(errors, count) of the classes of attack in docs/security.md."""
    errors, classes = [], 0
    table = page.partition("\n## Classes of attack\n")[2].partition("\n## ")[0]
    for line in table.strip().splitlines()[2:]:
        classes += 1
        name, held = line.split("|")[1].strip(), line.split("|")[-2]
        checks = [check for check in re.findall(r"`([^`]+)`", held) if "::" in check]
        if not checks:
            errors.append(f"docs/security.md: {name}: no test by name in the last column")
        errors += [f"docs/security.md: {name}: {text}" for text in map(problem, checks) if text]
    return errors, classes


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--report", type=Path, metavar="FOLDER", help="reports of the last `make test`")
    parser.add_argument("--update", action="store_true", help="write where tests are that were moved")
    options = parser.parse_args()
    for page in ("features", "security") if options.update else ():
        path = ROOT / f"docs/{page}.md"
        path.write_text(with_moved_tests(path.read_text()))
    outcomes = None
    if options.report:
        files = sorted(options.report.glob("*.xml"))
        if not files:
            sys.exit(f"check_features: --report: got {options.report}; must hold what `make test` writes: run it first")
        outcomes = test_report.by_test(result for file in files for result in test_report.read(file))
    lines = figures((ROOT / "docs/figures.md").read_text())
    errors, told, count = check_page((ROOT / "docs/features.md").read_text(), lines, outcomes)
    more, classes = check_classes((ROOT / "docs/security.md").read_text())
    print("\n".join(told + errors + more))
    print(f"features: {count} rows, {len(told)} bounds kept, {classes} classes of attack, {len(errors + more)} errors")
    return bool(errors + more)


if __name__ == "__main__":
    sys.exit(main())
