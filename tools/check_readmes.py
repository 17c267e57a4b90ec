#!/usr/bin/env python3
"""Fails when a README names a file that does not exist, a room has none, or one is too long. Usage: tools/check_readmes.py [ROOT]

A name in backquotes that ends like a source's is a file: of the README's folder or of a folder in it, or from the root.
Names with a placeholder (`verify_<concern>.cpp`) or a star stand for at least one file.
"""
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from check_layers import ROOMS

MOST_LINES, MOST_LINES_OF_ROOM = 40, 25
WITHOUT = {"serving"}  # its own folder has a program's main alone, beside the rooms
FILE = re.compile(r"`([\w./<>*{},-]+\.(?:h|hpp|cpp|cu|inc|py|sh|cmake|proto|md|in))`")


def files_of(root: Path) -> list[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True)
    if listed.returncode == 0:
        return listed.stdout.split()
    return [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()]


def is_there(name: str, folder: str, files: list[str]) -> bool:
    """Whether `name`, in a README of `folder`, is one of `files`."""
    inside = "" if folder == "." else folder + "/"
    if not re.search("[<*{]", name):
        return any(file == name or file.startswith(inside) and file.endswith("/" + name) for file in files)
    pattern = "".join("[^/]*" if part == "*" or part.startswith("<") else
                      "(?:" + part[1:-1].replace(",", "|") + ")" if part.startswith("{") else re.escape(part)
                      for part in re.split(r"(<[^>]*>|\*|\{[^}]*\})", name))
    path = re.compile(f"(?:{re.escape(inside)}(?:.*/)?)?{pattern}")
    return any(path.fullmatch(file) for file in files)


def check(root: Path) -> list[str]:
    errors = []
    files = files_of(root)
    rooms = {str(Path(folder) / room) for folder, floors in ROOMS.items() for floor in floors for room in floor.split()}
    for room in sorted(rooms - WITHOUT):
        if (root / room).is_dir() and f"{room}/README.md" not in files:
            errors.append(f"{room}: no README.md; it must say what is here, its main types, and where to begin")
    for readme in sorted(f for f in files if Path(f).name == "README.md" and Path(f).parent != Path(".")):
        folder = str(Path(readme).parent)
        lines = (root / readme).read_text().splitlines()
        most = MOST_LINES if folder in ROOMS else MOST_LINES_OF_ROOM if folder in rooms else None
        if most is not None and len(lines) > most:
            errors.append(f"{readme}: {len(lines)} lines; at most {most}")
        if folder.split("/")[0] not in ROOMS:
            continue
        for number, line in enumerate(lines, 1):
            errors += [f"{readme}:{number}: `{name}` is no file" for name in FILE.findall(line)
                       if not is_there(name, folder, files)]
    return errors


if __name__ == "__main__":
    found = check(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent))
    print("\n".join(found) or "readmes: ok")
    sys.exit(bool(found))
