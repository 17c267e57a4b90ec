"""Which of torch's public names, and of OneFlow's, Sluice has: `python -m sluice.compat` asks an installed torch.

    python -m sluice.compat                                       # a table
    python -m sluice.compat --missing                             # and the names that are missing
    python -m sluice.compat --tests tests --write docs/compat.md  # in a source tree: the page

Every name of OneFlow, which need not be installed, is here or has an error that says what to use instead (`--missing`
prints others). A name counts as tested when `python -m sluice.testing.autotest` generates calls of it and compares them, or
when a test that is written by hand and has torch beside it speaks of it; the tests say what is compared.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import pathlib
import re
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Callable, Iterable

from sluice._names.left_out import LEFT_OUT, left_out
from sluice._names.oneflow_names import NAMES as ONEFLOW

@dataclass
class Section:
    """A module of torch, or a class of it, and which of its members count."""

    name: str
    counts: Callable[[Any], bool]
    names: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    tested: list[str] = field(default_factory=list)
    excepted: list[str] = field(default_factory=list)  # left out, with an error that says what to use instead


def _function(value: Any) -> bool:
    return callable(value) and not inspect.isclass(value)


def _member(value: Any) -> bool:
    return callable(value) or isinstance(value, property) or inspect.isdatadescriptor(value)


def _class(value: Any) -> bool:
    return inspect.isclass(value)


def _any(value: Any) -> bool:
    return not isinstance(value, ModuleType)


SECTIONS = [("torch", _function), ("torch.Tensor", _member), ("torch.nn", _class), ("torch.nn.functional", _function),
            ("torch.nn.init", _function), ("torch.nn.utils", _any), ("torch.nn.utils.rnn", _any), ("torch.optim", _class),
            ("torch.optim.lr_scheduler", _class), ("torch.autograd", _any), ("torch.autograd.functional", _function),
            ("torch.func", _function), ("torch.linalg", _function), ("torch.fft", _function), ("torch.special", _function),
            ("torch.distributions", _class), ("torch.library", _any), ("torch.utils.data", _any), ("torch.utils.checkpoint", _function)]


def _resolve(name: str) -> Any:
    """The object that `name` means, or None."""
    first, *rest = name.split(".")
    value, path = importlib.import_module(first), first
    for part in rest:
        path += "." + part
        try:
            value = getattr(value, part)
        except AttributeError:
            try:
                value = importlib.import_module(path)
            except ImportError:
                return None
    return value


def _public(owner: Any) -> Iterable[str]:
    names = getattr(owner, "__all__", None) if isinstance(owner, ModuleType) and owner.__name__ != "torch" else None
    return sorted(set(names or (n for n in dir(owner) if not n.startswith("_"))))


def _of_torch(value: Any, owner: Any) -> bool:
    """Not something that the module has imported for itself."""
    module = getattr(value, "__module__", None) or "torch"
    return not isinstance(owner, ModuleType) or str(module).startswith("torch")


def _is_left_out(name: str, where: str = "sluice") -> bool:
    entry = left_out(name, where)
    return entry is not None and not entry.counts


def names_in(folder: pathlib.Path) -> set[str]:
    """Every name that the tests with torch beside them speak of."""
    found: set[str] = set()
    for file in folder.rglob("*.py"):
        text = file.read_text()
        if not re.search(r"^\s*(import|from) (torch|conftest|\.)", text, re.M):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Attribute):
                found.add(node.attr)
            elif isinstance(node, (ast.Name, ast.keyword)):
                found.add(str(node.id if isinstance(node, ast.Name) else node.arg))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.update(re.findall(r"\w+", node.value))
    return found


def generated() -> set[str]:
    """The names of torch, as "torch.Tensor.add", whose calls sluice.testing.autotest generates."""
    from sluice.testing.autotest import names

    torch = importlib.import_module("torch")
    known = set(names.exported(torch))
    return {f"torch.{name}" for name in known if names.covered(name, known)}


def compare(tests: Any = None) -> list[Section]:
    """The sections, with torch's names that count, those Sluice lacks, and those that tests speak of."""
    spoken_of = names_in(pathlib.Path(tests)) if tests else set()
    compared = generated() if tests else set()
    sections = []
    for name, counts in SECTIONS:
        theirs, ours = _resolve(name), _resolve("sluice" + name.removeprefix("torch"))
        section = Section(name, counts)
        for member in _public(theirs):
            value = getattr(theirs, member, None)
            if value is None or not counts(value) or not _of_torch(value, theirs) or _is_left_out(
                    member, "sluice" + name.removeprefix("torch")):
                continue
            section.names.append(member)
            if ours is None or not hasattr(ours, member):
                section.missing.append(member)
            elif member in spoken_of or f"{name}.{member}" in compared:
                section.tested.append(member)
        sections.append(section)
    return sections


def compare_oneflow() -> list[Section]:
    """The same of OneFlow's names; what is left out counts as such."""
    sections = []
    for name, text in ONEFLOW.items():
        path = "sluice" + name.removeprefix("oneflow")
        ours = _graph() if path.endswith("Graph") else _graph().config if path.endswith("Graph.config") else _resolve(path)
        section = Section(name, _any, names=sorted(text.split()))
        for member in section.names:
            if ours is not None and _has(ours, member, path):
                continue
            gone = ours is None and left_out(path.rpartition(".")[2], path.rpartition(".")[0]) is not None  # the whole module
            (section.excepted if gone or left_out(member, path) else section.missing).append(member)
        sections.append(section)
    return sections


def _has(owner: Any, name: str, path: str) -> bool:
    if hasattr(owner, name):
        return True
    return isinstance(owner, ModuleType) and left_out(name, path) is None and _resolve(f"{path}.{name}") is not None


def _graph() -> Any:
    """A graph, since some of its names are of objects."""
    from sluice.nn import Graph

    return Graph()


def oneflow_table(sections: list[Section]) -> str:
    """OneFlow's sections as a table in Markdown."""
    rows = ["| of OneFlow | names | here | says what to use instead |", "|---|---:|---:|---:|"]
    total = Section("all", _any)
    for s in sections:
        total.names, total.missing, total.excepted = total.names + s.names, total.missing + s.missing, total.excepted + s.excepted
    for s in [*sections, total]:
        rows.append(f"| `{s.name}` | {len(s.names)} | {len(s.names) - len(s.missing) - len(s.excepted)} | {len(s.excepted)} |")
    return "\n".join(rows)


def table(sections: list[Section], tested: bool) -> str:
    """The sections as a table in Markdown."""
    rows = ["| of torch | names | here |" + (" tested |" if tested else ""), "|---|---:|---:|" + ("---:|" if tested else "")]
    total = Section("all", _any)
    for s in sections:
        total.names += s.names
        total.missing += s.missing
        total.tested += s.tested
    for s in [*sections, total]:
        here = len(s.names) - len(s.missing)
        share = f"{here} ({100 * here / max(len(s.names), 1):.0f} %)"
        rows.append(f"| `{s.name}` | {len(s.names)} | {share} |" + (f" {len(s.tested)} |" if tested else ""))
    return "\n".join(rows)


def missing(sections: list[Section]) -> str:
    return "\n\n".join(f"**{s.name}**: " + ", ".join(f"`{n}`" for n in s.missing) for s in sections if s.missing)


def page(sections: list[Section]) -> str:
    """docs/compat.md."""
    import torch

    version = torch.__version__.partition("+")[0]
    left = "\n".join(f"- **{entry.what}**: {entry.instead} (`{entry.pattern}`" + (f" in `{entry.where}`)" if entry.where else ")")
                     for entry in LEFT_OUT if not entry.counts)
    oneflow = compare_oneflow()
    open_ = f"Neither here nor with such an error:\n\n{missing(oneflow)}\n\n" if any(s.missing for s in oneflow) else ""
    return ("# What there is of torch\n\nThis page counts the public names of PyTorch and OneFlow that Sluice has. "
            f"`python -m sluice.compat --tests tests --write docs/compat.md` makes it, beside torch {version}.\n\n"
            "A name is *here* if it exists. It is *tested* if `sluice.testing.autotest` generates calls of it and compares them with "
            "torch's, or if a test written by hand that has torch beside it names it.\n\n"
            f"{table(sections, True)}\n\n## Not here\n\n{missing(sections)}\n\n## What there is of OneFlow\n\n"
            "The names are those of OneFlow 0.9; tests compare them with torch's or NumPy's numbers. For a name that is left out, an "
            f"error says what to use instead.\n\n{oneflow_table(oneflow)}\n\n{open_}## Left out\n\nThese kinds of names are left out "
            "on purpose, and are not counted above. Behind each stands what to use instead, and in brackets the pattern of the names."
            f"\n\n{left}\n")


def main(arguments: Any = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m sluice.compat", description=__doc__.partition("\n")[0])
    parser.add_argument("--missing", action="store_true", help="also print the names that are missing")
    parser.add_argument("--tests", help="the folder of Sluice's tests: count the names that they speak of")
    parser.add_argument("--write", metavar="FILE", help="write the page to FILE")
    options = parser.parse_args(arguments)
    try:
        import torch  # noqa: F401
    except ImportError:
        parser.error("torch: not installed; it must be, for Sluice to be compared with it (pip install torch)")
    sections = compare(options.tests)
    if options.write:
        pathlib.Path(options.write).write_text(page(sections))
    oneflow = compare_oneflow()
    print(table(sections, bool(options.tests)) + "\n\n" + oneflow_table(oneflow))
    if options.missing:
        print("\n" + missing([*sections, *oneflow]))


if __name__ == "__main__":
    main()
