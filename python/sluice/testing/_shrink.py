"""shrink: a program that a plan computes wrongly, as a small script that shows the same."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from sluice import _C
from sluice._C import Tensor
from sluice._base.grad_mode import no_grad
from sluice._base.structure import flatten
from sluice._graph.graph import Graph
from sluice._tensor.creation import default_generator
from sluice.fx import GraphModule, Interpreter, symbolic_trace
from sluice.fx.graph import Graph as CallGraph
from sluice.fx.node import Node, map_arg
from sluice.nn.modules.module import Module
from sluice.testing._close import assert_close

MOST_WRITTEN = 4096  # elements of a tensor that a script spells out


@dataclass(frozen=True)
class Shrunk:
    """The small program: `module(*args)` fails as the large one did. `calls` says how many calls it has, `failure` what is wrong with
    its plan, and `script` is a program of its own that shows it."""

    module: GraphModule
    args: tuple[Tensor, ...]
    calls: int
    failure: str
    script: str

    def __str__(self) -> str:
        return self.script


def shrink(function: Callable[..., Any], *args: Any, setup: str = "", rtol: float | None = None, atol: float | None = None,
           seconds: float = 120) -> Shrunk:
    """The smallest program found in `function` whose plan fails as that of the whole does: gives other results than eager code, or
    cannot be compiled or run.

        print(shrink(net.eval(), x).script)
        print(shrink(net.eval(), x, setup='config.disable_pass("fuse_bias")').script)

    function: a module or function of tensors, as fx.symbolic_trace takes it; what it does is the same at each call. setup: statements
    for the plan's `config`, in which `torch` is sluice. rtol and atol: as assert_close has them. seconds: after so many the search
    ends with what it has. torch: the minifier of torch.compile.

    Raises ValueError where the plan of the whole does not fail.
    """
    search = _Search(function, args, _Judge(setup, {"rtol": rtol, "atol": atol, "equal_nan": True, "check_device": False}), seconds)
    return search.result()


def _leaves(nest: Any) -> list[Tensor]:
    leaves: list[Any] = []
    flatten(nest, "", leaves, [])
    return leaves


def _plan_of(module: Module, setup: str) -> Graph:
    graph = Graph()
    graph.module = module
    graph.build = module.forward  # type: ignore[method-assign]
    exec("import sluice as torch\n" + setup, {"config": graph.config})  # as the script has it
    return graph


class _Judge:
    """Says how a program fails. Numbers in the text of an error do not count: those of a smaller program are others."""

    def __init__(self, setup: str, close: dict[str, Any]) -> None:
        self.setup, self.close = setup, close

    def failure(self, module: Module, args: tuple[Any, ...]) -> tuple[str, str] | None:
        """(its kind, its text); None: the plan does what eager code does, or the program itself does not run."""
        with no_grad():
            try:
                expected = _leaves(module(*args))
            except Exception:
                return None
            graph = _plan_of(module, self.setup)
            try:
                got = _leaves(graph(*args))
                for ours, theirs in zip(got, expected, strict=True):
                    assert_close(ours, theirs, **self.close)
            except AssertionError as error:
                return "differs", str(error).strip()
            except Exception as error:
                return _kind_of(error), f"{type(error).__name__}: {error}"
            finally:
                graph.close()
        return None


@dataclass(frozen=True)
class _Cut:
    """A part of the whole: it gives `outputs`, takes the values of `inputs` as given, and reads one node in the place of another."""

    outputs: tuple[Node, ...]
    inputs: frozenset[Node] = frozenset()
    instead: dict[Node, Node] = field(default_factory=dict)

    def read(self, node: Node) -> Node:
        while node in self.instead:
            node = self.instead[node]
        return node

    def nodes(self, order: list[Node]) -> list[Node]:
        """The calls that the outputs need, in order; the inputs too, but nothing that is before them."""
        needed, left = set(), [self.read(n) for n in self.outputs]
        while left:
            node = left.pop()
            if node in needed:
                continue
            needed.add(node)
            if node not in self.inputs:
                left += [self.read(n) for n in node.all_input_nodes]
        return [n for n in order if n in needed]

    def calls(self, order: list[Node]) -> list[Node]:
        return [n for n in self.nodes(order) if n.op.startswith("call_") and n not in self.inputs]


def _at(module: Module, path: str) -> Any:
    found: Any = module
    for name in path.split("."):
        found = getattr(found, name)
    return found


class _Search:
    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], judge: _Judge, seconds: float) -> None:
        self._judge, self._end = judge, time.monotonic() + seconds
        self._traced = function if isinstance(function, GraphModule) else symbolic_trace(function)
        self._order = list(self._traced.graph.nodes)
        running = Interpreter(self._traced, garbage_collect_values=False)
        with no_grad():
            running.run(*args)
        self._values = {node: value.detach() for node, value in running.env.items() if isinstance(value, Tensor)}
        leaves: list[Node] = []
        map_arg(self._order[-1].args, lambda node: leaves.append(node) or node)
        whole = _Cut(tuple(dict.fromkeys(n for n in leaves if n in self._values)))
        failure = judge.failure(*self._program(whole)) if whole.outputs else None
        if failure is None:
            raise _C.ValueError("shrink: the plan of the whole program gives what eager code gives; there is nothing to look for (the setup may "
                                "lack what makes it fail, or it fails only in a backward pass)")
        self._kind = failure[0]
        self._cut = self._smallest(whole)

    def _program(self, cut: _Cut) -> tuple[GraphModule, tuple[Tensor, ...]]:
        graph, made, args, names = CallGraph(), {}, [], {}
        for node in cut.nodes(self._order):
            if node.op == "placeholder" or node in cut.inputs:
                made[node] = graph.placeholder(node.name)
                args.append(self._values[node])
                continue
            made[node] = graph.node_copy(node, lambda n: made[cut.read(n)])
            if node.op in ("call_module", "get_attr"):
                made[node].target = names.setdefault(node.target, node.name)  # without dots, so that a script can make it
        results = [made[cut.read(n)] for n in cut.outputs]
        graph.output(results[0] if len(results) == 1 else tuple(results))
        return GraphModule({name: _at(self._traced, path) for path, name in names.items()}, graph), tuple(args)

    def _fails(self, cut: _Cut) -> bool:
        if time.monotonic() >= self._end:
            return False
        failure = self._judge.failure(*self._program(cut))
        return failure is not None and failure[0] == self._kind

    def _smallest(self, cut: _Cut) -> _Cut:
        """Fewer outputs, an earlier one, later inputs, and calls left out, until none of these helps any more."""
        size = None
        while size != (size := len(cut.calls(self._order))) and time.monotonic() < self._end:
            for step in (self._one_output, self._earlier_output, self._later_inputs, self._single_inputs, self._left_out):
                cut = step(cut)
        return cut

    def _one_output(self, cut: _Cut) -> _Cut:
        if len(cut.outputs) == 1:
            return cut
        return next((one for one in (replace(cut, outputs=(n,)) for n in cut.outputs) if self._fails(one)), cut)

    def _tensors(self, cut: _Cut) -> list[Node]:
        return [n for n in cut.calls(self._order) if n in self._values]

    def _first_that(self, candidates: list[_Cut]) -> _Cut | None:
        """By halving: the first that fails, where all behind it do. The last one is known to."""
        low, high = -1, len(candidates) - 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._fails(candidates[middle]) else (middle, high)
        return candidates[high] if candidates else None

    def _earlier_output(self, cut: _Cut) -> _Cut:
        if len(cut.outputs) != 1:
            return cut
        return self._first_that([replace(cut, outputs=(n,)) for n in self._tensors(cut)]) or cut

    def _later_inputs(self, cut: _Cut) -> _Cut:
        """All that is computed before some call is given."""
        calls = self._tensors(cut)
        candidates = [replace(cut, inputs=cut.inputs | frozenset(calls[:n])) for n in range(len(calls) - 1, -1, -1)]
        return self._first_that(candidates) or cut

    def _single_inputs(self, cut: _Cut) -> _Cut:
        for node in reversed(self._tensors(cut)[:-1]):
            smaller = replace(cut, inputs=cut.inputs | {node})
            if node in cut.nodes(self._order) and self._fails(smaller):
                cut = smaller
        return cut

    def _left_out(self, cut: _Cut) -> _Cut:
        """Calls in whose place one of their operands can stand."""
        kind = {node: (value.shape, value.dtype) for node, value in self._values.items()}
        for node in reversed(self._tensors(cut)):
            for operand in node.all_input_nodes:
                if kind.get(operand) != kind[node] or node not in cut.calls(self._order):
                    continue
                smaller = replace(cut, instead={**cut.instead, node: operand})
                if smaller.calls(self._order) and self._fails(smaller):
                    cut = smaller
                    break
        return cut

    def result(self) -> Shrunk:
        module, args = self._program(self._cut)
        failure = self._judge.failure(module, args)
        assert failure is not None
        calls = len(self._cut.calls(self._order))
        # Plain values are tried first: whoever reads the script sees that they do not matter.
        for plain in (True, False):
            script = _script(module, args, self._judge, failure[1], plain)
            if (kind := _outcome(script)) == failure[0]:
                return Shrunk(module, args, calls, failure[1], script)
        script += f"# When this was written it ended with {kind or 'no failure'}: it names something that only the program has.\n"
        return Shrunk(module, args, calls, failure[1], script)


def _outcome(script: str) -> str | None:
    """How the script ends. The generator of random numbers is then as it was."""
    state = default_generator.get_state()
    try:
        exec(compile(script, "<shrunk>", "exec"), {"__name__": "shrunk"})
    except AssertionError:
        return "differs"
    except Exception as error:
        return _kind_of(error)
    finally:
        default_generator.set_state(state)
    return None


def _kind_of(error: Exception) -> str:
    return f"{type(error).__name__} {re.sub(r'[0-9]+', '', str(error)).partition(':')[0]}"


def _literal(value: Tensor, plain: bool) -> str:
    dtype = f"dtype=torch.{str(value.dtype).rpartition('.')[2]}"
    if plain and value.is_floating_point() or value.numel() > MOST_WRITTEN:
        return f"torch.randn({tuple(value.shape)}).to({dtype})"
    return f"torch.tensor({value.cpu().tolist()}, {dtype})"


def _script(module: GraphModule, args: tuple[Tensor, ...], judge: _Judge, failure: str, plain: bool) -> str:
    """plain: floating numbers are random ones, in the place of those that the program has."""
    names = [node.name for node in module.graph.nodes if node.op == "placeholder"]
    call = ", ".join(names)
    lines = [f"# {line}" for line in failure.splitlines() if line.strip()]
    lines += ["import sluice as torch", "from sluice import nn", "", "", "class Program(nn.Module):", "    def __init__(self):",
              "        super().__init__()"]
    lines += [f"        self.{name} = nn.{child!r}" for name, child in module.named_children()]
    lines += [f"        self.{name} = nn.Parameter({_literal(value, plain)})" for name, value in module._parameters.items() if value is not None]
    lines += [f"        self.register_buffer({name!r}, {_literal(value, plain)})" for name, value in module._buffers.items() if value is not None]
    lines += ["", *(f"    {line}" for line in module.code.strip().splitlines()), "", ""]
    lines += ["class Plan(nn.Graph):", "    def __init__(self, program):", "        super().__init__()", "        self.program = program"]
    lines += ["        config = self.config", *(f"        {line}" for line in judge.setup.splitlines())] if judge.setup else []
    lines += ["", f"    def build({', '.join(['self', *names])}):", f"        return self.program({call})", "", ""]
    lines += ["torch.manual_seed(0)", "program = Program().eval()"]
    lines += [f"{name} = {_literal(value, plain)}" for name, value in zip(names, args)]
    lines += ["with torch.no_grad():"]
    if not plain:
        lines += [f"    program.{name}.copy_({_literal(value, False)})" for name, value in module.state_dict().items() if "." in name]
    close = ", ".join(f"{name}={value!r}" for name, value in judge.close.items() if value is not None)
    lines += [f"    expected, got = program({call}), Plan(program)({call})", f"    torch.testing.assert_close(got, expected, {close})", ""]
    return "\n".join(lines)
