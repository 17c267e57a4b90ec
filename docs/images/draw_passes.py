"""Draws what each pass of the compiler does, for docs/compiler.md: `python docs/images/draw_passes.py`.

The graphs are the first ones of tests/golden, which the tests hold against the passes. Needs Graphviz. A picture holds the
hash of what it was drawn of, so that a test sees when it is of yesterday.
"""

import difflib
import hashlib
import itertools
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = pathlib.Path(__file__).resolve().parent / "passes"
NODE = re.compile(r"  (%\d+(?:, %\d+)*) = (\w+)(?: \"([^\"]*)\")?(?:\((.*?)\))?(?: \{(.*)\})? : (.*?)(?: \[(.*)\])?$")
END = re.compile(r"  (output|update) \"([^\"]*)\" = (%\d+)(?: \[(.*)\])?$")
STATE = ("input", "variable", "constant")
SHOWN = re.compile(r"(activation|padding) = (\"(?!none)\w+\"|\[[^\]]*\])")


def cases(name):
    """(what it shows, lines of the graph before, rewrites, lines of the graph after) of a golden file's first case."""
    text = (ROOT / f"tests/golden/{name}.txt").read_text().split("\n----\n")[0]
    before, rewrites, after = re.split(r"^==> (\d+) rewrites$", text, maxsplit=1, flags=re.M)
    return before.strip().split("\n"), int(rewrites), after.strip().split("\n")


def parse(lines):
    """Nodes as (values, op, label, key, inputs), and ends as (kind, name, value)."""
    nodes, ends = [], []
    for line in lines:
        if match := NODE.match(line):
            values, op, name, operands, attributes, kind, where = match.groups()
            shown = SHOWN.search(attributes or "")
            place = re.search(r'device "([^"]*)"', where or "")
            stream = re.search(r'stream "(?!compute")([^"]*)"', where or "")
            details = [re.sub(r"\((\d+)\)", r"(\1,)", kind)] + ([shown[0].replace('"', "")] if shown else [])
            details += [" ".join(m[1] for m in (place, stream) if m)] if place or stream else []
            details += re.findall(r"region \d+(?:, kept)?", where or "")
            label = "\n".join([name if op in STATE else op, *details])
            key = (op, name, *details)
            nodes.append((values.split(", "), op, label, key, re.findall(r"%\d+", operands or "")))
        elif match := END.match(line):
            ends.append(match.groups()[:3])
    return nodes, ends


def side(which, title, nodes, ends, others, color):
    keys, others = ([node[3] for node in those] for those in (nodes, others))
    matcher = difflib.SequenceMatcher(None, keys, others, autojunk=False)
    kept = {i for block in matcher.get_matching_blocks() for i in range(block.a, block.a + block.size)}
    kept |= {i for i, key in enumerate(keys) if key[0] in STATE and key in others}  # in whatever order
    yield f'subgraph cluster_{which} {{ label="{title}"; fontname="sans-serif"; color="#cccccc";'
    for i, (values, op, label, _, _) in enumerate(nodes):
        shape = "ellipse" if op in STATE else "box"
        fill = "#f2f2f2" if i in kept else color
        text = label.replace('"', "'").replace("\n", "\\n")
        yield f'{which}{values[0][1:]} [label="{text}" shape={shape} fillcolor="{fill}"];'
    home = {value: values[0] for values, *_ in nodes for value in values}
    for values, _, _, _, inputs in nodes:
        for value in inputs:
            yield f"{which}{home[value][1:]} -> {which}{values[0][1:]};"
    for kind, name, value in ends:
        yield f'{which}_{kind}_{re.sub(r"[^0-9a-zA-Z]", "_", name)} [label="{kind} {name}" shape=plaintext style=""];'
        yield f'{which}{home[value][1:]} -> {which}_{kind}_{re.sub(r"[^0-9a-zA-Z]", "_", name)};'
    yield "}"


def numbered(nodes, ends):
    """With the turn of each op in its label and key, so that one that runs at another turn is another."""
    turns, result = itertools.count(1), []
    for values, op, label, key, inputs in nodes:
        if op not in STATE:
            turn = next(turns)
            label, key = f"{turn}: {label}", (*key, turn)
        result.append((values, op, label, key, inputs))
    return result, ends


def drawing(name):
    """The picture of a pass, as text for Graphviz."""
    before, rewrites, after = cases(name)
    old, new = parse(before), parse(after)
    if sorted(node[3] for node in old[0]) == sorted(node[3] for node in new[0]):  # it is the order that has changed
        old, new = numbered(*old), numbered(*new)
    count = f"{rewrites} rewrite" + "s" * (rewrites != 1)
    return "\n".join([
        "digraph pass {", 'rankdir=TB; nodesep=0.25; ranksep=0.3; bgcolor="white";',
        'node [fontname="sans-serif" fontsize=10 style=filled color="#888888" margin="0.08,0.04" height=0.3];',
        'edge [arrowsize=0.6 color="#666666"];', *side("b", "before", *old, new[0], "#f6c6c0"),
        *side("a", f"after {name}: {count}", *new, old[0], "#c4e6c3"), "}"])


def mark(text):
    return f"drawn of {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def main():
    listed = re.findall(r"images/passes/(\w+)\.svg", (ROOT / "docs/compiler.md").read_text())
    for name in listed:
        text = drawing(name)
        svg = subprocess.run(["dot", "-Tsvg"], input=text, capture_output=True, text=True, check=True).stdout
        svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.S)
        (OUT / f"{name}.svg").write_text(svg.replace("<svg ", f"<!-- {mark(text)} -->\n<svg ", 1))


if __name__ == "__main__":
    main()
