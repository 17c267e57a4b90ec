#!/usr/bin/env python3
"""Measures how the project speaks, and fails when a bound is crossed. Usage: tools/check_words.py [--list] [PATH ...]

A comment is a sentence with a subject, a verb and a reason. One that opens with "What", "Who", "Whose", "Where" or "Of"
mostly has its subject behind it, and is read twice. `--list` prints each of them, under the paths that are given.
"""

import argparse
import ast
import collections
import io
import pathlib
import re
import subprocess
import sys
import tokenize

ROOT = pathlib.Path(__file__).resolve().parent.parent
WIDTH = 160  # of a screen
FIRST_HELD = "bc27a72a"  # subjects up to this commit may be longer
DIVIDED = ("compiler", "graph", "kernels", "python", "python_bindings", "serving")  # the others are one line of the table
OPENER = re.compile(r"(What|Who|Whose|Whom|Where|Of|That of)\b")
TOKEN = re.compile(r'R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|//[^\n]*|/\*.*?\*/', re.S)


def cpp_comments(text):
    """The comments of a C++ source as (line, text); lines of `//` that follow each other at the same column are one."""
    result, ends = [], {}  # the column of the `//` that ends at a line
    for match in TOKEN.finditer(text):
        if not match[0].startswith(("//", "/*")):
            continue
        start = text.rfind("\n", 0, match.start()) + 1
        line, column = text.count("\n", 0, match.start()) + 1, match.start() - start
        body = re.sub(r"^//[/!<]*|^/\*+|\*+/$|^\s*\*(?= )", "", match[0], flags=re.M)
        if match[0].startswith("//") and ends.get(line - 1) == column:
            first, _, _, said = result[-1]
            result[-1] = (first, line, column, said + "\n" + body)
        else:
            result.append((line, line + match[0].count("\n"), column, body))
        if match[0].startswith("//"):
            ends[line] = column
    return [(first, last - first + 1, said) for first, last, _, said in result]


def python_comments(text):
    """The comments and docstrings of a Python source as (line, number of lines, text)."""
    result = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith("#!"):
            line, column = token.start
            if result and result[-1][1:3] == [line - 1, column]:
                result[-1][1] = line
                result[-1][3] += "\n" + token.string[1:]
            else:
                result.append([line, line, column, token.string[1:]])
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(node):
            doc = node.body[0]
            result.append([doc.lineno, doc.end_lineno, 0, ast.get_docstring(node)])
    return [(first, last - first + 1, said) for first, last, _, said in result]


def sentences(said):
    """The sentences of a comment: paragraphs, then what a full stop ends before a capital letter."""
    for paragraph in re.split(r"\n\s*\n", said):
        for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z`\"'(])", " ".join(paragraph.split())):
            if re.search(r"[A-Za-z]{2}", sentence):
                yield sentence


def tracked(*patterns):
    return subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()


def folder_of(path):
    parts = pathlib.PurePath(path).parts
    return "/".join(parts[:2]) if parts[0] in DIVIDED and len(parts) > 2 else parts[0]


class Count:
    def __init__(self):
        self.lines = self.comment_lines = self.sentences = 0
        self.openers = []


def comments_by_folder(paths):
    folders = collections.defaultdict(Count)
    for path in tracked("*.h", "*.cpp", "*.cu", "*.cuh", "*.inc", "*.py"):
        if paths and not path.startswith(tuple(paths)):
            continue
        text = (ROOT / path).read_text()
        count = folders[folder_of(path)]
        count.lines += sum(1 for line in text.splitlines() if line.strip())
        for line, lines, said in (python_comments if path.endswith(".py") else cpp_comments)(text):
            count.comment_lines += lines
            for sentence in sentences(said):
                count.sentences += 1
                if OPENER.match(sentence):
                    count.openers.append(f"{path}:{line}: {sentence}")
    return folders


def prose():
    """The texts that are written for readers, by place: each page, and each folder's README."""
    return {path: (ROOT / path).read_text() for path in tracked("docs/*.md", "docs/adr/*.md", "*README.md") if path != "docs/glossary.md"}


def glossary_words():
    """The words that the glossary explains, each with how many places use it."""
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \|$", (ROOT / "docs/glossary.md").read_text(), re.M)
    places = [text.lower() for text in prose().values()]
    result = {}
    for word in (word.strip() for row in rows if row not in ("word", "---") for word in row.split(",")):
        forms = [re.escape(part) + "(s|es|d|ed|ing)?" for part in re.split(r"[-\s]", word.lower())]
        pattern = re.compile(rf"\b{'[-_ ]'.join(forms)}\b")
        result[word] = sum(1 for text in places if pattern.search(text))
    return result


def release_notes():
    """The lines of each release's notes in CHANGELOG.md, as a screen of 160 columns shows them."""
    parts = re.split(r"^## \[(.+?)\].*$", (ROOT / "CHANGELOG.md").read_text(), flags=re.M)[1:]
    return {name: sum(1 + len(line) // WIDTH for line in text.strip().splitlines()) for name, text in zip(parts[::2], parts[1::2])}


def subjects():
    """The subjects of the commits that are held to the limit; none where the history is not there."""
    log = subprocess.run(["git", "log", "--no-merges", "--format=%s", f"{FIRST_HELD}..HEAD"], cwd=ROOT, capture_output=True, text=True)
    return log.stdout.splitlines()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="print the sentences that open so, and stop")
    parser.add_argument("paths", nargs="*", help="look at comments of files under these only")
    options = parser.parse_args()
    folders = comments_by_folder(options.paths)
    if options.list:
        print("\n".join(line for _, count in sorted(folders.items()) for line in count.openers))
        return 0
    print(f"{'folder':28} {'lines':>7} {'comments':>9} {'sentences':>10} {'openers':>8}")
    for name, count in sorted(folders.items()):
        print(f"{name:28} {count.lines:7} {count.comment_lines / max(1, count.lines):9.1%} {count.sentences:10} {len(count.openers):8}")
    openers, said = (sum(f(count) for count in folders.values()) for f in (lambda c: len(c.openers), lambda c: c.sentences))
    once = sorted(word for word, places in glossary_words().items() if places < 2)
    measured = [("sentences of comments that open as riddles, %", 100 * openers / max(1, said), 1),
                ("words of docs/architecture.md", len((ROOT / "docs/architecture.md").read_text().split()), 1000),
                *((f"lines of the notes of {name}", lines, 90) for name, lines in release_notes().items()),
                (f"words of the glossary in one place: {', '.join(once) or 'none'}", len(once), 0),
                ("columns of the longest subject of a commit", max(map(len, subjects()), default=0), 72)]
    for what, value, bound in measured:
        print(f"{what}: {round(value, 2)}; at most {bound}{'   <-- too many' if value > bound else ''}")
    return int(any(value > bound for _, value, bound in measured))


if __name__ == "__main__":
    sys.exit(main())
