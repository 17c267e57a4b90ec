"""Reading small files of JSON that people write, or that may be damaged."""

from __future__ import annotations

import json
from typing import Any

from sluice import _C


def read_json(path: Any, where: str = "") -> Any:
    """The content of the file. Raises OSError and ValueError that name it, behind `where`."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        raise _C.OSError(f"{where}{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise _C.ValueError(f"{where}{path}: not JSON: {error}") from None
    return parse_json(path, text, where)


def parse_json(path: Any, text: str, where: str = "") -> Any:
    """The same of the text of a file."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _C.ValueError(f"{where}{path}: not JSON: {error}") from None
