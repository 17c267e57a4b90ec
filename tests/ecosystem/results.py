"""What was found, as data: results.json has the newest answer of every case, and the page is written from it."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path
from typing import Any

from ecosystem import timm_models, torchvision_models, transformers_models
from ecosystem.compare import STEPS, Excluded, text_of

FILE = Path(__file__).with_name("results.json")
# By name: the cases, the function that tries one: {step: what is wrong, or ""}, and the steps.
ZOOS = {"generation": (transformers_models.Cases(only_texts=True), transformers_models.generate, tuple(transformers_models.WAYS)),
        "timm": (timm_models.cases(), timm_models.run, STEPS),
        "torchvision": (torchvision_models.CASES, torchvision_models.run, STEPS),
        "transformers": (transformers_models.Cases(), transformers_models.run, STEPS)}


def read() -> dict[str, Any]:
    return json.loads(FILE.read_text()) if FILE.exists() and FILE.stat().st_size else {"packages": {}, "imports": {}, "zoos": {}, "examples": {}}


def keep(kind: str, name: str, found: Any) -> None:
    """Writes an answer."""
    keep_all(kind, {name: found})


def keep_all(kind: str, found: dict[str, Any]) -> None:
    """Writes answers; several programs may do so."""
    with FILE.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        results = read()
        (results["zoos"] if kind in ZOOS else results).setdefault(kind, {}).update(found)
        FILE.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


def tried(zoo: str, case: str, **options: Any) -> dict[str, str]:
    """The steps that fail, and why; {"all": why} where it did not come to them, {"excluded": why} where it is not asked."""
    try:
        return {step: why for step, why in ZOOS[zoo][1](case, **options).items() if why}
    except Excluded as reason:
        return {"excluded": str(reason)}
    except Exception as error:  # of any kind: it is what is told
        return {"all": text_of(error)}
