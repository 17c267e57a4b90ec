"""Writes docs/ecosystem.md from what is known (results.json)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ecosystem.compare import STEPS, UNTRIED
from ecosystem.names import lacking
from ecosystem.results import ZOOS, read
from ecosystem.transformers_models import TYPES

FILE = Path(__file__).resolve().parents[2] / "docs/ecosystem.md"
_HEAD = """# Other people's packages

Packages that are written for torch run on Sluice unchanged: within `sluice.mock_torch`, their `import torch` gets Sluice.

```text
import sluice as sl

with sl.mock_torch(lazy=True):
    import timm                                   # on Sluice
net = timm.create_model("resnet18", num_classes=10)
```

A whole script runs with `python -m sluice.mock_torch --lazy script.py`. torchvision's and timm's names are in `sluice.vision`, too:
`sluice.vision.models`, `transforms`, `datasets`, `ops`, `create_model`, and `load_state_dict_from_url`, which downloads a file once, checks
it, and keeps it. With `lazy`, modules of torch that Sluice lacks can be imported; what is taken from them refuses when it is used, and says
what to use instead. Give the packages without their torch: `pip install --no-deps timm`.

`tests/ecosystem` tries what this page says, a part in `make test` and all of it in `make test-long`. The page is made by
`.venv/bin/python -m ecosystem`; do not edit it.
"""


def _why(reasons: dict[str, str]) -> list[str]:
    """Reasons, each with how often and where first."""
    by: dict[str, list[str]] = {}
    for name, why in reasons.items():
        by.setdefault(why, []).append(name)
    return [f"{len(names)} x {why} ({names[0]})".replace("|", "\\|") for why, names in sorted(by.items(), key=lambda item: -len(item[1]))]


def _packages(results: dict[str, Any]) -> list[str]:
    lines = ["## Packages", "", "Modules that import, of those that import beside torch, and whether the package's first example "
             "(`tests/ecosystem/scripts`) has torch's results.", "", "| package | version | modules | example | the rest |", "|---|---|---|---|---|"]
    for name, found in sorted(results["packages"].items()):
        example = {None: "", "": "right"}.get(results["examples"].get(name), "see below")
        lines.append(f"| {name} | {found['version']} | {found['import']} of {found['of']} | {example} | {'; '.join(_why(found['lacking'])[:3])} |")
    wrong = {name: why for name, why in results["examples"].items() if why}
    if others := sorted(n for n, why in results["examples"].items() if not why and n not in results["packages"]):
        lines += ["", f"The examples of {', '.join(others[:-1])} and {others[-1]} have torch's results, too."]
    return lines + ([""] if wrong else []) + [f"- The example of {name}: {why}" for name, why in sorted(wrong.items())]


def _imports(found: dict[str, Any]) -> list[str]:
    """Packages of which the whole is not tried: whether they can be imported."""
    if not found:
        return []
    asked = {module: said for module, said in found.items() if "excluded" not in said}
    lines = ["", "## Packages that are imported once", "",
             f"Of {len(asked)} more packages that import torch, {sum(not said['why'] for said in asked.values())} import on Sluice "
             "(`python -m ecosystem.names`): " + ", ".join(f"{m} {said['version']}" for m, said in sorted(asked.items())) + "."]
    if excluded := {module: said["excluded"] for module, said in found.items() if "excluded" in said}:
        lines += ["", f"{len(excluded)} could not be imported beside torch either, and are not counted:", "", *(f"- {why}" for why in _why(excluded))]
    now = dict(lacking(asked))
    if names := dict(lacking(asked, "before")) | now:
        before = dict(lacking(asked, "before"))
        lines += ["", "The first name that each lacks, by how many need it:", "", "| name | when first tried | now |", "|---|---:|---:|"]
        lines += [f"| {name} | {len(before.get(name, []))} | {len(now.get(name, []))} |".replace("\n", " ") for name in names]
    return lines


_OF = {"generation": "Texts that models of transformers go on with, each in several ways; the words must be torch's.",
       "transformers": "Model types, each from its own config with two layers, few heads and small images, with weights that are drawn anew. "
                       f"All of the package's {TYPES} types have an answer."}
_OF_MODELS = "Each against torch with the same state: results, gradients of all parameters, results as a graph, a step of SGD as a graph."


def _zoo(name: str, all_cases: dict[str, dict[str, str]]) -> list[str]:
    cases = {case: found for case, found in all_cases.items() if "excluded" not in found}
    known = {step: sum(found.get(step) != UNTRIED for found in cases.values()) for step in ZOOS[name][2]}
    right = {step: sum(step not in found and "all" not in found for found in cases.values()) for step in ZOOS[name][2]}
    said = " ".join([*([_OF[name]] if name in _OF else []), *([_OF_MODELS] if ZOOS[name][2] == STEPS else [])])
    unasked = {step: len(cases) - n for step, n in known.items() if n < len(cases)}
    if unasked:
        said += f" Not asked yet: {', '.join(f'{n} about {step}' for step, n in unasked.items())}."
    lines = ["", f"## Models: {name}", "", said, "", "| asked | right |", "|---|---|"]
    lines += [f"| {step} | {n} of {known[step]} |" for step, n in right.items()]
    if excluded := {case: found["excluded"] for case, found in sorted(all_cases.items()) if "excluded" in found}:
        lines += ["", f"{len(excluded)} more are not asked:", "", *(f"- {why}" for why in _why(excluded))]
    wrong = {case: {step: why for step, why in found.items() if why != UNTRIED} for case, found in sorted(cases.items())}
    wrong = {case: found for case, found in wrong.items() if found}
    if wrong:
        lines += ["", "| model | what is not right |", "|---|---|"]
        for case, found in wrong.items():
            same = set(found.values())
            reason = f"{', '.join(found)}: {same.pop()}" if len(same) == 1 else "; ".join(f"{step}: {why}" for step, why in found.items())
            lines.append(f"| {case} | {reason} |".replace("\n", " "))
    return lines


def text() -> str:
    results = read()
    lines = _packages(results) + _imports(results.get("imports", {}))
    for name, cases in sorted(results["zoos"].items()):
        lines += _zoo(name, cases)
    return _HEAD + "\n" + "\n".join(lines) + "\n"


def write() -> None:
    FILE.write_text(text())
