"""A model in stages: which module is on which one, by a plan of names as the models of transformers carry one."""

from __future__ import annotations

from typing import Any, Callable, Iterable

from sluice import _C, sbp as _sbp
from sluice._C import Tensor
from sluice._tensor.global_tensors import _job, placement
from sluice.nn.modules._config import ModuleConfig
from sluice.parallel._mesh import stages


def plan_of(model: Any) -> list[str]:
    """The modules that work one after another, as the model itself says."""
    own = getattr(model, "_pp_plan", None) or getattr(getattr(model, "config", None), "base_model_pp_plan", None) or {}
    return list(own)


class Pipeline:
    """Layers on stages. The meshes along the axis have the stages in turns, so that each has `chunks` of them. The modules
    ahead of the layers are on the first stage, and those behind them that have parameters on the last one."""

    def __init__(self, model: Any, whole: placement, axis: str, names: Iterable[str], numbers: Iterable[int] | None, chunks: int,
                 pattern: Callable[[str], Any]) -> None:
        if chunks < 1:
            raise ValueError(f"parallelize: pp_chunks is {chunks}; must be at least 1")
        self.meshes = stages(whole, axis) * chunks
        n, modules, names = len(self.meshes), dict(model.named_modules()), list(names)
        if not names:
            raise ValueError(f"parallelize: {whole} has the axis {axis!r}, and the model carries no pp_plan; give one, such as ['layers']")
        wanted = {key: [name for name in modules if pattern(key).fullmatch(name)] for key in names}
        unused = [repr(key) for key, found in wanted.items() if not found]
        if unused:
            raise ValueError(f"parallelize: the pp_plan names {', '.join(unused)}; the model has no such module")
        lists = dict.fromkeys(name for found in wanted.values() for name in found if hasattr(modules[name], "__len__"))
        layers = [f"{name}.{own}" for name in lists for own, _ in modules[name].named_children()]
        self.layers = layers or [name for found in wanted.values() for name in found]
        self.numbers = self._numbered(n, numbers)
        self._order = list(modules)
        self._own = {name: any(True for _ in module.parameters()) for name, module in modules.items()}
        self._first = self._order.index(self.layers[0])

    def _numbered(self, n: int, numbers: Iterable[int] | None) -> list[int]:
        count = len(self.layers)
        given = [i * n // count for i in range(count)] if numbers is None else list(numbers)
        if count < n:
            raise ValueError(f"parallelize: the pp_plan names {count} layers for {n} stages; each must get one")
        if len(given) != count or sorted(given) != given or set(given) != set(range(n)):
            raise ValueError(f"parallelize: pp_stages is {given}; must be {count} numbers, one for each layer, that rise from 0 to {n - 1}")
        return given

    def number(self, name: str) -> int:
        """The stage of a module, or of a parameter."""
        for layer, number in zip(self.layers, self.numbers):
            if name == layer or name.startswith(layer + "."):
                return number
        owner = name
        while owner and owner not in self._own:
            owner = owner.rpartition(".")[0]
        return len(self.meshes) - 1 if self._order.index(owner) > self._first and self._own[owner] else 0

    def mesh(self, name: str) -> placement:
        return self.meshes[self.number(name)]

    def connect(self, model: Any, dp: str, split: bool) -> None:
        """Layers say which stage they are, and what those behind the first stage are given is brought there.

        Between ranks, layers that are `split` exchange values in every micro-batch. All ranks of a stage must do so in one order, which
        forward and backward passes that take turns do not have; there the layers do not say so.
        """
        modules = dict(model.named_modules())
        for layer, number in zip(self.layers, self.numbers):
            if not split or _job() is None:
                ModuleConfig.of(modules[layer]).stage_id = number
            if number:
                modules[layer].register_forward_pre_hook(_bringing(self.meshes[number], dp), with_kwargs=True)


def _bringing(mesh: placement, dp: str) -> Callable[..., Any]:
    def bring(value: Any, rows: int) -> Any:
        if isinstance(value, Tensor) and _C.touches_graph(value):
            split = dp in mesh.names and value.ndim and value._shape[0] == rows
            way = _sbp.each({dp: _sbp.split(0)} if split else {}, mesh.names, mesh)
            return value.to_global(mesh, way, grad_sbp=way)
        if isinstance(value, (tuple, list)) and not hasattr(value, "_fields"):
            return type(value)(bring(one, rows) for one in value)
        return value

    def hook(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        first = next((x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)), None)
        rows = -1 if first is None or not first.ndim else first._shape[0]
        return bring(args, rows), {name: bring(value, rows) for name, value in kwargs.items()}

    return hook
