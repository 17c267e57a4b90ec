"""first_difference: the op with which a plan departs from what the same program computes eagerly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sluice import _C
from sluice._C import Tensor
from sluice._base.structure import flatten
from sluice._base.trace import tracing_lock
from sluice._graph.graph import Graph
from sluice._graph.tracing import traced
from sluice.testing._close import assert_close


@dataclass(frozen=True)
class Difference:
    """Says where it is: the op, the module and the line that it comes from; `node`, its number in the traced graph.
    `expected` is what the op gives eagerly, `got` what the plan has in its place, `text` says how far they are apart."""

    op: str
    module: str
    source: str
    node: int
    got: Tensor
    expected: Tensor
    text: str

    def __str__(self) -> str:
        return f"{self.op}{f' of {self.module}' if self.module else ''} ({self.source}): {self.text}"


def first_difference(eager: Callable[..., Any], compiled: Any, *args: Any, rtol: float | None = None, atol: float | None = None,
                     **kwargs: Any) -> Difference | None:
    """The first op whose result in a plan is not near what it is eagerly; None when no result of the plan differs.

        first_difference(net, graph, x)

    eager: a function or module that computes what `compiled`, an nn.Graph, gives for the same arguments. It is called once; when it
    changes something, as training does, give a function that leaves things as they were. rtol and atol: as assert_close has them.

    The graph is traced anew. Each op of the trace is then run eagerly, one by one, and compared with plans that have its result as
    an output more; the ops to look at are found by halving, so that about as many plans are made as the number of ops has bits. All
    plans have the options of the graph, and variables of their own: parameters and buffers stay as they are. The inputs of
    the op that is found do not differ. RuntimeError: the trace itself computes something else than `eager`, op by op, or
    the difference is gone when more results are kept. NotImplementedError: for host functions, micro-batches, several
    devices' global tensors.
    """
    close = {"rtol": rtol, "atol": atol, "equal_nan": True, "check_device": False}
    probing = _Probing(compiled, args, kwargs, close)
    expected = _leaves(eager(*args, **kwargs))
    if (differs := probing.result_that_differs()) is None:
        return None
    for i, (ours, theirs) in enumerate(zip(probing.eagerly(), expected)):
        if ours is not None and (text := _difference(ours, theirs, close)) is not None:
            raise _C.RuntimeError(f"first_difference: result {i} of '{compiled.name}' differs from that of eager code when its ops are run "
                                  f"one by one, too: the two are not the same program: {text}")
    return probing.first(differs)


def _leaves(nest: Any) -> list[Tensor]:
    leaves: list[Any] = []
    flatten(nest, "", leaves, [])
    return leaves


def _difference(got: Tensor, expected: Tensor, close: dict[str, Any]) -> str | None:
    try:
        assert_close(got.detach(), expected.detach(), **close)
    except AssertionError as error:
        return str(error).strip().replace("\n", "; ").replace(";; ", "; ")
    return None


class _Probing:
    def __init__(self, graph: Any, args: Any, kwargs: Any, close: dict[str, Any]) -> None:
        if not isinstance(graph, Graph):
            raise _C.TypeError(f"first_difference: got {type(graph).__name__}; the second argument must be an nn.Graph")
        self._graph, self._close = graph, close
        given = graph._given(args, kwargs)
        if graph.config.micro_batches.n > 1 or any(leaf._global for leaf in given.leaves):
            raise _C.NotImplementedError(f"first_difference: graph '{graph.name}' has micro-batches or global tensors, whose ops do not "
                                         "run one by one; compare modules")
        with tracing_lock:
            self._trace = traced(graph, given)
        self._inputs = [leaf.detach() for leaf in given.leaves]
        captured = self._trace.captured
        self._nodes, self._operands = captured.nodes(), captured.operands()
        self._made = captured.evaluate(self._inputs)
        self._probed: dict[int, tuple[Tensor, Tensor, str] | None] = {}

    def _run(self, captured: Any) -> list[Tensor]:
        graph = self._graph
        options = {**graph.config.for_session(), "name": f"{graph.name}_probe", "dry_run": False, "stages": {}, "components": {},
                   "meta": {"name": graph.name, "signature": "{}"}, "donated": []}
        session = _C.GraphSession(captured, options, self._trace.functions)
        try:
            return [t.detach().clone() for t in session.call(self._inputs)]
        finally:
            session.close()

    def eagerly(self) -> list[Tensor | None]:
        """The results, op by op; None of those that no op has made."""
        return [None if at is None else self._made[at[0]][at[1]] for at in self._trace.captured.sources()]

    def result_that_differs(self) -> int | None:
        """The node that made it."""
        captured = self._trace.captured
        made = self._run(captured.probe(-1, 0))
        for at, got in zip(captured.sources(), made):
            if at is not None and _difference(got, self._made[at[0]][at[1]], self._close) is not None:
                return int(at[0])
        return None

    def _probe(self, node: int) -> tuple[Tensor, Tensor, str] | None:
        """Tells what is wrong with a node's results."""
        if node not in self._probed:
            self._probed[node] = None
            for output, expected in enumerate(self._made[node]):
                got = self._run(self._trace.captured.probe(node, output))[-1]
                if (text := _difference(got, expected, self._close)) is not None:
                    self._probed[node] = got, expected, text
                    break
        return self._probed[node]

    def _before(self, node: int) -> list[int]:
        """The nodes that a node depends on and itself, in order."""
        found, left = {node}, [node]
        while left:
            for operand in self._operands[left.pop()]:
                if operand not in found:
                    found.add(operand)
                    left.append(operand)
        return sorted(found)

    def first(self, node: int) -> Difference:
        if self._probe(node) is None:
            raise _C.RuntimeError(f"first_difference: a result of {self._name(node)} differs, and no longer does when the plan has one output "
                                  "more; compare with passes switched off (config.disable_pass) and with granularity 'op'")
        while True:
            before = self._before(node)
            low, high = -1, len(before) - 1  # the latter differs
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (low, middle) if self._probe(before[middle]) is not None else (middle, high)
            node = before[high]
            wrong = [operand for operand in self._operands[node] if self._probe(operand) is not None]
            if not wrong:
                break
            node = wrong[0]
        found = self._probe(node)
        assert found is not None
        got, expected, text = found
        at = self._nodes[node]
        return Difference(at["op"], at["module"], at["source"], node, got, expected, text)

    def _name(self, node: int) -> str:
        at = self._nodes[node]
        return f"{at['op']} ({at['source']})"
