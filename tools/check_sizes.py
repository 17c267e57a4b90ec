#!/usr/bin/env python3
"""Fails when a source file is longer than the limit (500 lines, tests 800), or a function (80 lines)."""
import ast
import re
import subprocess
import sys
from pathlib import Path

root = Path(__file__).parent.parent
LIMIT, TEST_LIMIT, FUNCTION_LIMIT = 500, 800, 80

# Functions that are tables: a line says one fact, and no line depends on another, so that parts of them would have no
# names. (file, function)
TABLES = set()

SCOPE = re.compile(r'^\s*(inline )?(namespace|extern "C"|class|struct|union)\b')
TYPE_OR_CONTROL = re.compile(r"^\s*(enum|if|for|while|switch|do|else|try|catch|case|default|return)\b")
NAME = re.compile(r"([~\w:]+(?:<[^()]*>)?|operator\s*\S+?)\s*\(")


def cpp_functions(text):
    """(name, first line, lines) of each function definition, by the indentation that clang-format gives them."""
    lines = text.splitlines()

    def end_of(first, last):
        closing = re.match(r"\s*", lines[first]).group() + "}"
        return next((j for j in range(last + 1, len(lines)) if lines[j].startswith(closing)), len(lines) - 1)

    i, start = 0, None  # `start`: the first line of the statement that line i belongs to
    while i < len(lines):
        code = re.sub(r"//.*", "", lines[i]).rstrip()
        if not code.strip() or code.lstrip().startswith("#") or re.match(r"\s*(public|private|protected):$", code):
            start = None
        else:
            start = i if start is None else start
            if code.endswith("{"):
                head = " ".join(lines[start:i + 1])
                head = re.sub(r"SLUICE_\w+(\([^()]*\))?|alignas\(\w+\)|template\s*<[^()]*?>\s(?=\w)", "", head)
                if not SCOPE.match(head) or re.search(r"\w\(", head.split(" : ")[0].split('"C"')[-1]):
                    end = end_of(start, i)
                    name = NAME.search(head)
                    if name and not TYPE_OR_CONTROL.match(head) and not re.search(r"=\s*\{$", code):
                        yield name.group(1), start + 1, end - start + 1
                    i = end
                start = None
            elif code.endswith((";", "}", ")")) and not (code.endswith(")") and i + 1 < len(lines)):
                start = None
        i += 1


def python_functions(text):
    """The same of Python."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.lineno, node.end_lineno - node.lineno + 1


def check(path):
    """(errors, number of files, number of functions) of the sources that git knows below a folder."""
    files = subprocess.run(["git", "ls-files", "*.h", "*.cpp", "*.cu", "*.py", "*.js", "*.ts"], cwd=path, capture_output=True,
                           text=True, check=True).stdout.split()
    bad, functions = [], 0
    for name in files:
        text = (path / name).read_text(errors="ignore")
        lines = len(text.splitlines())
        limit = TEST_LIMIT if name.startswith("tests/") else LIMIT
        if lines > limit:
            bad.append(f"{name}: {lines} lines; at most {limit}: split it along what it holds")
        if name.startswith("tests/") or name.endswith((".js", ".ts")):
            continue
        for function, first, length in (python_functions if name.endswith(".py") else cpp_functions)(text):
            functions += 1
            if length > FUNCTION_LIMIT and (name, function) not in TABLES:
                bad.append(f"{name}:{first}: {function}: {length} lines; at most {FUNCTION_LIMIT}: "
                           "split it into steps with names")
    return bad, len(files), functions


def main():
    bad, files, functions = check(root)
    print("\n".join(bad) or f"sizes: ok ({files} files, {functions} functions)")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
