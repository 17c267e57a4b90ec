"""A case inside nn.Graph: forward and backward in one plan."""

from __future__ import annotations

import warnings
from typing import Any

import sluice
from sluice.testing.autotest.arrays import Array, Case
from sluice.testing.autotest.execute import SEED, Outcome, built, callable_of, derived, value_of


class Called(sluice.nn.Graph):
    """build() gives the outputs that are tensors, and the gradients there are. places: what each of them is."""

    def __init__(self, case: Case, order: int, spread: bool) -> None:
        super().__init__()
        self.case, self.order, self.spread = case, order, spread
        self.places: list[str] = []
        self.plain: list[tuple[str, Any]] = []
        self.call = callable_of(case, sluice)
        if case.inputs is not None:
            self.module = self.call.__closure__[0].cell_contents  # type: ignore[index]

    def build(self, *inputs: Any) -> Any:
        given, wanted = iter(inputs), []

        def tensor(array: Array) -> Any:
            x = next(given)
            if self.order and array.parameter and array.floating:
                x = x.requires_grad_()
                wanted.append(x)
            return x

        case = self.case
        args = built(case.args if case.inputs is None else case.inputs, sluice, tensor)
        keywords = built(case.keywords, sluice, tensor) if case.inputs is None else {}
        if case.inputs is not None and self.order:
            wanted += [p for p in self.module.parameters() if p.requires_grad]
        self.places, self.plain, results = [], [], []
        outputs, first, _ = derived(sluice, lambda: self.call(args, keywords), wanted, self.order)
        for key, values in (("output", outputs), ("gradient", first)):
            for i, y in enumerate(values):
                if isinstance(y, sluice.Tensor):
                    self.places.append(f"{key} {i}")
                    results.append(y)
                else:
                    self.plain.append((f"{key} {i}", value_of(y)))
        return tuple(results)


def placed(x: Any, placement: Any) -> Any:
    """Split over the placement along the first dim where it can be."""
    split = x.dim() and x.shape[0] >= 2
    return x.to_global(placement, sluice.sbp.split(0) if split else sluice.sbp.broadcast)


def execute_graph(case: Case, order: int, granularity: str, spread: bool, decomposed: bool = False) -> Outcome:
    outcome = Outcome()
    graph = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sluice.manual_seed(SEED)
            graph = Called(case, min(order, 1), spread)
            graph.config.set_granularity(granularity)
            graph.config.decompose_to_prims(decomposed)
            graph.config.set_device(sluice.get_default_device())
            used = [a for a in case.arrays if case.state is None or not any(a is s for s in case.state.values())]
            if case.inputs is not None:
                used = Case("", case.inputs, {}).arrays
            inputs = [a.build(sluice) for a in used]
            if spread:
                placement = sluice.placement("sim", [0, 1])
                inputs = [placed(x, placement) for x in inputs]
            results = graph(*inputs)
            whole = [y.to_local() if getattr(y, "is_global", False) else y for y in results]
            outcome.values = [*((p, value_of(y)) for p, y in zip(graph.places, whole)), *graph.plain]
    except Exception as error:  # noqa: BLE001
        outcome.error = error
    finally:
        if graph is not None:
            graph.close()
    return outcome
