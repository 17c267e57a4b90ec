"""python -m ecosystem [WHAT...] [--page]: tries packages and their models, keeps the answers in results.json, and writes the page.

WHAT: imports, imports:NAME, examples, examples:NAME, timm, timm:CASE, torchvision, ...; all where nothing is said.
--page: only writes docs/ecosystem.md from what is known.
"""

from __future__ import annotations

import argparse
import time

import torch

from ecosystem import examples, imports, page
from ecosystem.packages import PACKAGES
from ecosystem.results import ZOOS, keep, tried


def _wanted(what: list[str], kind: str, names: list[str]) -> list[str]:
    """The names of a kind that are asked for."""
    return names if not what or kind in what else [n for n in names if f"{kind}:{n}" in what]


def _cases(what: list[str], zoo: str) -> list[str]:
    """The same of a zoo, whose names are read only where they are asked for."""
    some = [one.partition(":")[2] for one in what if one.startswith(f"{zoo}:")]
    return some or _wanted(what, zoo, list(ZOOS[zoo][0]) if not what or zoo in what else [])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m ecosystem", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*")
    parser.add_argument("--page", action="store_true", help="only writes the page")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if not options.page:
        jobs = [("packages", package, lambda p=package: imports.counted(p)) for package in _wanted(options.what, "imports", sorted(PACKAGES))]
        jobs += [("examples", name, lambda n=name: examples.tried(n)) for name in _wanted(options.what, "examples", sorted(examples.NAMES))]
        jobs += [(zoo, case, lambda z=zoo, c=case: tried(z, c)) for zoo in ZOOS
                 for case in _cases(options.what, zoo)]
        for kind, name, attempt in jobs:
            start, found = time.monotonic(), attempt()
            keep(kind, name, found)
            print(f"{kind} {name}: {found or 'right'} ({time.monotonic() - start:.0f} s)", flush=True)
    page.write()


main()
