"""The signature of a graph as its bundles and saved states have it: parameters, arguments and results."""

from __future__ import annotations

import json
from typing import Any

from sluice import _C
from sluice._base.structure import Structure


def read_signature(where: str, text: str, inputs: int, outputs: int) -> tuple[list[str], Structure, Structure, dict[str, Any]]:
    """The parameters, arguments and results of a graph's signature, and strides that inputs must have (call.order_of)."""
    try:
        signature = json.loads(text)
        if not isinstance(signature, dict) or sorted({*signature} - {"strides"}) != ["arguments", "parameters", "results"]:
            raise _C.ValueError(f"{signature!r:.80}; must be an object of parameters, arguments and results")
        strides = signature.get("strides", {})
        if not isinstance(strides, dict) or not all(s is None or isinstance(s, list) for s in strides.values()):
            raise _C.ValueError(f"strides {strides!r:.80}; must be null or a list, by input")
        arguments, results = Structure.from_json(signature["arguments"]), Structure.from_json(signature["results"])
        parameters = list(arguments.value or ()) if arguments.kind == "dict" else None
        if parameters is None or signature["parameters"] != parameters:
            raise _C.ValueError(f"parameters {signature['parameters']!r:.80}; arguments must be a dict of them")
        if arguments.tensors() < inputs:  # more than it needs may be given
            raise _C.ValueError(f"arguments with {arguments.tensors()} tensors; the plan takes {inputs}")
        if results.tensors() != outputs:
            raise _C.ValueError(f"results with {results.tensors()} tensors; the plan gives {outputs}")
    except (ValueError, RecursionError) as error:
        raise _C.ValueError(f"{where}: {error}") from None
    return parameters, arguments, results, {name: order and tuple(order) for name, order in strides.items()}
