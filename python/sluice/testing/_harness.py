"""ActorHarness: one actor alone on the real runtime."""

from __future__ import annotations

import pathlib
import re
import tempfile
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from sluice import _C
from sluice._C import Tensor
from sluice._tensor.creation import from_numpy, tensor
from sluice._tensor.host_function import host_function
from sluice._graph.graph import Graph
from sluice.nn.modules.module import Module
from sluice.testing import _plans
from sluice.testing._close import assert_close
from sluice.testing._record import load_exact


class _Alone(Graph):
    def __init__(self, body: Callable[..., Any], name: str):
        super().__init__(name=name)
        if isinstance(body, Module):
            self.module = body
        self._body = body

    def build(self, *tokens: Tensor) -> Any:
        return self._body(*tokens)


class ActorHarness:
    """Feeds tokens to one actor and checks what comes out, on the real streams, registers and executors.

    The body is an op (`sl.ops.relu`, or any function of tensors), a module, or with `out` a Python function of NumPy
    arrays that becomes an actor on a host stream (see sluice.host_function):

        ActorHarness(sl.ops.relu).feed(sl.tensor([-1.0, 2.0])).expect([0.0, 2.0])

    feed() returns at once: several tokens may be on their way. Each expect() takes the next result. Arguments that are
    no tensors (attributes of an op) are given as keywords.
    """

    def __init__(self, body: Callable[..., Any], *, out: Any = None, name: str | None = None, **attributes: Any) -> None:
        self.name = name or getattr(body, "__name__", type(body).__name__)
        if out is not None:
            function = body

            def body(*tokens: Tensor) -> Any:
                return host_function(function, *tokens, out=out)
        elif attributes:
            inner = body

            def body(*tokens: Tensor) -> Any:
                return inner(*tokens, **attributes)
        self._graph: Any = _Alone(body, self.name)
        self._results: deque[Any] = deque()
        self._plan: _plans.Plan | None = None

    @classmethod
    def from_plan(cls, bundle: str | pathlib.Path, actor: str,
                  functions: Mapping[str, Callable[..., Any]] | None = None) -> ActorHarness:
        """An actor of a saved plan, by its name, or by that of a module or kernel that it alone runs.

        It is fed the registers it consumes, in the plan's order, and gives those it produces.
        """
        plan = _plans.read_plan(bundle)
        index = _plans.actor_index(plan, actor)
        harness = cls.__new__(cls)
        harness._plan = _plans.alone(plan, index)
        harness.name = plan["actors"][index]["name"]
        with tempfile.TemporaryDirectory() as scratch:
            _plans.write_bundle(bundle, harness._plan, pathlib.Path(scratch))
            harness._graph = load_exact(pathlib.Path(scratch), harness._plan, functions)
        harness._results = deque()
        return harness

    def feed(self, *tokens: Any) -> ActorHarness:
        """One token for each input of the actor: tensors, or what sluice.tensor takes."""
        self._results.append(self._graph(*[t if isinstance(t, Tensor) else tensor(t) for t in tokens]))
        return self

    def result(self) -> Any:
        """The next result: a tensor or a nest of them. Reading it waits, and raises the error of its firing."""
        if not self._results:
            raise AssertionError(f"actor '{self.name}': no token is left; every one that was fed has been expected")
        return self._results.popleft()

    def expect(self, *values: Any, rtol: float = 0.0, atol: float = 0.0) -> ActorHarness:
        """The next result is these values, in the actor's dtypes: bitwise, or within the tolerances."""
        result = self.result()
        results = list(result.values()) if isinstance(result, dict) else list(result) if isinstance(result, (list, tuple)) else [result]
        if len(results) != len(values):
            raise AssertionError(f"actor '{self.name}': gave {len(results)} values; {len(values)} were expected")
        for i, (got, value) in enumerate(zip(results, values)):
            wanted = value if isinstance(value, (Tensor, np.ndarray)) else tensor(value, dtype=got.dtype)
            assert_close(got, wanted, rtol=rtol, atol=atol, equal_nan=True,
                         msg=lambda text, i=i: f"actor '{self.name}', result {i}: {text}")
        return self

    def expect_error(self, kind: type[BaseException], match: str = "") -> ActorHarness:
        """The next firing failed with this exception; the actor goes on."""
        result = self.result()
        try:
            for leaf in result if isinstance(result, (list, tuple)) else [result]:
                leaf.numpy()
        except kind as error:
            if re.search(match, str(error)) is None:
                raise AssertionError(f"actor '{self.name}': failed with {error}; expected a message with {match!r}") from error
            return self
        raise AssertionError(f"actor '{self.name}': the firing succeeded; expected {kind.__name__}")

    def expect_firings(self, n: int) -> ActorHarness:
        """The actors that run kernels have fired so often, together, when all that was fed is done."""
        if self.firings != n:
            raise AssertionError(f"actor '{self.name}': fired {self.firings} times; expected {n}")
        return self

    @property
    def firings(self) -> int:
        if not self._graph.is_compiled:
            return 0
        try:
            self._graph.synchronize()
        except _C.Error:
            pass  # it belongs to a result, which says it
        counts: dict[str, int] = self._graph._call.session.stats()["firings"]
        return sum(n for actor, n in counts.items() if actor not in ("inputs", "outputs"))

    def replay(self, directory: str | pathlib.Path) -> int:
        """Feeds what sluice.testing.record() wrote and checks that the same tokens come out, bit by bit.

        Returns how many firings that were.
        """
        if self._plan is None:
            raise TypeError("replay: only an actor of a plan can replay; make the harness with from_plan()")
        steps = sorted(pathlib.Path(directory).glob("*.npz"), key=lambda path: int(path.stem))
        if not steps:
            raise FileNotFoundError(f"replay: {directory}: no recorded step; write them with sluice.testing.record()")
        for path in steps:
            with np.load(path) as tokens:
                self.feed(*[self._token(tokens, path, name, dtype) for name, dtype, _ in self._graph.inputs])
                result = self.result()
                for (name, dtype, _), got in zip(self._graph.outputs, result):
                    wanted = self._token(tokens, path, name, dtype)
                    if got.numpy().tobytes() != wanted.numpy().tobytes():
                        assert_close(got, wanted, rtol=0.0, atol=0.0,
                                     msg=lambda text, n=name, p=path: f"actor '{self.name}', step {p.stem}, register '{n}': {text}")
                        raise AssertionError(f"actor '{self.name}', step {path.stem}, register '{name}': equal, but for bits of zeros or NaNs")
        return len(steps)

    @staticmethod
    def _token(tokens: Any, path: pathlib.Path, name: str, dtype: Any) -> Tensor:
        if name not in tokens:
            raise KeyError(f"replay: {path}: holds no register '{name}'; it has {sorted(tokens)}")
        return from_numpy(tokens[name]).to(dtype)

    def close(self) -> None:
        """Ends the actor now, instead of when the harness goes."""
        if self._graph.is_compiled:
            self._graph._call.session.close()

    def __enter__(self) -> ActorHarness:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
