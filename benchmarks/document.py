#!/usr/bin/env python3
"""Writes what `make bench` has measured, out/bench.json, into docs/figures.md, between its two marks: a table for each
group of benchmarks on each machine, with the date. Usage: document.py [--only PREFIX] [--results FILE] [--page FILE]."""
import argparse
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- figures: begin -->\n", "<!-- figures: end -->\n"


def number(value):
    return "" if value is None else f"{value:.4g}"


def by(key, lines):
    """Lines by what `key` gives of them, in the order in which it first comes."""
    found = {}
    for line in lines:
        found.setdefault(key(line), []).append(line)
    return found


def tables(lines):
    for name, group in by(lambda line: line["name"].partition(".")[0], lines).items():
        yield f"## {name}\n"
        for machine, there in by(lambda line: line.get("machine", "unknown machine"), group).items():
            dates = sorted({line.get("date", "no date") for line in there})
            yield f"Measured on {' and '.join(dates)} on {machine}: `make bench ONLY={name}`\n"
            yield "| workload | ours | peer | ratio | n | spread | unit | the peer |\n|---|---:|---:|---:|---:|---:|---|---|"
            for line in there:
                cells = (line["name"], number(line["ours"]), number(line["peer"]), number(line["ratio"]), line["n"],
                         f"{line['spread']:.1%}", line["unit"], line["peer_name"])
                yield "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"
            yield ""


def documented(page, lines):
    """The page with tables of these lines in place of what is between its marks."""
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(BEGIN) > page.index(END):
        raise SystemExit(f"document: the page must have a line {BEGIN.strip()!r}, and below it a line {END.strip()!r}")
    before, rest = page.split(BEGIN)
    return before + BEGIN + "\n" + "\n".join(tables(lines)) + "\n" + END + rest.split(END)[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="PREFIX", help="only results whose names start so")
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "out/bench.json")
    parser.add_argument("--page", type=pathlib.Path, default=ROOT / "docs/figures.md")
    options = parser.parse_args()
    if not options.results.exists():
        raise SystemExit(f"document: {options.results} is missing; run make bench first")
    lines = [line for line in json.loads(options.results.read_text()) if line["name"].startswith(options.only)]
    if not lines:
        raise SystemExit(f"document: {options.results}: no result starts with {options.only!r}")
    options.page.write_text(documented(options.page.read_text(), lines))
    print(f"document: {len(lines)} results are in {options.page}", file=sys.stderr)


if __name__ == "__main__":
    main()
