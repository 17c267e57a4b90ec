#!/usr/bin/env python3
"""Looks through Debian packages: check.py [--no-lintian] PACKAGE.deb...

Programs and libraries in them must be hardened: position-independent, with a read-only table of what the loader fills in
(relro, now), a stack that is not executable and is checked, and libc's checked functions (fortify); they must be stripped and
name no folders to search. lintian, where it is installed, must find no error. Exit status 1 otherwise.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile


def said(*command):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, check=True).stdout


def wrong_with(binary):
    """The protections that a program or library lacks, as words. Code without buffers needs no checks: those are judged by
    package."""
    head, segments, dynamic = (said("readelf", "-W", option, binary) for option in ("-h", "-l", "-d"))
    checks = {
        "position-independent": "DYN (" in head,
        "relro": "GNU_RELRO" in segments,
        "now": re.search(r"BIND_NOW|Flags:.*\bNOW\b", dynamic),
        "a stack that is not executable": re.search(r"GNU_STACK.* RW ", segments),
        "stripped": ".symtab" not in said("readelf", "-W", "-S", binary),
        "no folders to search for libraries": "(RPATH)" not in dynamic and "(RUNPATH)" not in dynamic,
    }
    return [name for name, holds in checks.items() if not holds]


def checked_calls(binary):
    """Whether it calls what stack protector and fortify put in: (stack, libc)."""
    symbols = said("readelf", "-W", "--dyn-syms", binary)
    return "__stack_chk_fail" in symbols, re.search(r"UND __\w+_chk\b(?!_)", symbols.replace("__stack_chk_fail", "")) is not None


def binaries(folder):
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink() and path.read_bytes()[:4] == b"\x7fELF":
            yield path


def problems(folder):
    """The problems of all binaries below a folder, one a line."""
    found = []
    for path in binaries(folder):
        stack, libc = checked_calls(path)
        lacks = wrong_with(path) + (["stack protector"] if not stack else []) + (["fortify"] if not libc else [])
        if lacks:
            found.append(f"{path.relative_to(folder)}: lacks: {', '.join(lacks)}")
    return found


def main():
    words = sys.argv[1:]
    packages = [w for w in words if not w.startswith("--")]
    failed = False
    for package in packages:
        with tempfile.TemporaryDirectory() as folder:
            said("dpkg-deb", "-x", package, folder)
            found = problems(pathlib.Path(folder))
            count = len(list(binaries(pathlib.Path(folder))))
        print(f"{pathlib.Path(package).name}: {count} binaries" + "".join(f"\n  {line}" for line in found))
        failed |= bool(found)
    if "--no-lintian" not in words and shutil.which("lintian"):
        failed |= subprocess.run(["lintian", "--allow-root", "--fail-on", "error", *packages]).returncode != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
