"""What was found, as data: results.json has the newest answer of every case, and the page is written from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ecosystem import timm_models, torchvision_models

FILE = Path(__file__).with_name("results.json")
# By name: the cases, and the function that tries one: {step: what is wrong, or ""}.
ZOOS = {"timm": (timm_models.cases(), timm_models.run), "torchvision": (torchvision_models.CASES, torchvision_models.run)}


def read() -> dict[str, Any]:
    return json.loads(FILE.read_text()) if FILE.exists() else {"packages": {}, "zoos": {}, "examples": {}}


def write(results: dict[str, Any]) -> None:
    FILE.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


def tried(zoo: str, case: str, **options: Any) -> dict[str, str]:
    """The steps that fail, and why; {"all": why} where not even torch's model could be made."""
    try:
        return {step: why for step, why in ZOOS[zoo][1](case, **options).items() if why}
    except Exception as error:  # of any kind: it is what is told
        return {"all": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:240]}
