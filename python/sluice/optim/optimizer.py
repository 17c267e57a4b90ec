"""Optimizer: parameter groups, state, and step numbers as tensors, so that a step can be part of a plan."""

from __future__ import annotations

import functools
import warnings
from collections import OrderedDict, defaultdict
from typing import Any, Callable

from sluice import _C
from sluice._C import fn, Tensor
from sluice._tensor.creation import full_like, tensor, zeros_like
from sluice._base.parts import has_parts
from sluice._base.trace import running
from sluice._base.grad_mode import enable_grad, no_grad
from sluice.autograd.passes import clear_grad
from sluice.nn.modules.module import RemovableHandle
from sluice.nn.utils.clip_grad import clip_grad_norm_
from sluice.optim import _state_dict
from sluice.optim._numbers import Numbers, is_number
from sluice.sbp import broadcast


def parts_of(t: Tensor) -> Tensor:
    """A complex tensor as a real one, with a last dim of the two parts; a view. Others as they are."""
    return fn.view_as_real(t) if t.is_complex() else t


class _Required:
    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()

_pre_hooks_of_all: OrderedDict[int, Any] = OrderedDict()
_post_hooks_of_all: OrderedDict[int, Any] = OrderedDict()


def _registered(hooks: Any, hook: Any, prepend: bool = False) -> RemovableHandle:
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


def register_optimizer_step_pre_hook(hook: Any) -> RemovableHandle:
    """hook(optimizer, args, kwargs) runs before every step of every optimizer. torch.optim.optimizer's."""
    return _registered(_pre_hooks_of_all, hook)


def register_optimizer_step_post_hook(hook: Any) -> RemovableHandle:
    """hook(optimizer, args, kwargs) runs after every step of every optimizer. torch.optim.optimizer's."""
    return _registered(_post_hooks_of_all, hook)


def _with_hooks(step: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(step)
    def hooked(self: Any, *args: Any, **kwargs: Any) -> Any:
        # Within the step of a subclass, which called this one; or of a class that wraps an optimizer and has no hooks of its own.
        if self._in_step or "_pre_hooks" not in self.__dict__:
            return step(self, *args, **kwargs)
        self._in_step, given = True, (self, *args)
        try:
            for hook in [*_pre_hooks_of_all.values(), *self._pre_hooks.values()]:
                changed = hook(self, given, kwargs)
                if changed is None:
                    continue
                if not isinstance(changed, tuple) or len(changed) != 2:
                    raise RuntimeError(f"{hook} must return None or a tuple of (new_args, new_kwargs), but got {changed}.")
                given, kwargs = changed
            result = step(*given, **kwargs)
            self._opt_called = True
            for hook in [*self._post_hooks.values(), *_post_hooks_of_all.values()]:
                hook(self, given, kwargs)
        finally:
            self._in_step = False
        return result

    hooked.__dict__["hooked"] = True
    return hooked


class Optimizer:
    """Base of optimizers: torch.optim.Optimizer.

    Subclasses define `_init_state()` and `_update()`, a function of tensors that serves eager steps and plans; or, for eager
    use alone, a step() of their own, as with torch. Hooks of a step run while a graph is traced, as those of modules do.
    """

    _widen = True  # parameters of 16 bits are updated as float32
    _takes_complex = True  # their parts are updated as real numbers
    rowwise = False  # what becomes of a row, and of its state, depends on nothing of other rows
    structural: tuple[str, ...] = ()  # hyperparameters that formulas need as numbers
    _in_step = False
    _opt_called = False  # by now; schedules warn when they are first

    def __init__(self, params: Any, defaults: Any) -> None:
        if isinstance(params, Tensor):
            raise TypeError(f"{type(self).__name__}: params argument given to the optimizer should be an iterable of Tensors "
                            "or dicts, but got a Tensor")
        self.defaults = defaults
        self._prepare({})
        self.state: Any = defaultdict(dict)
        self.param_groups = []
        groups = list(params)
        if not groups:
            raise ValueError(f"{type(self).__name__}: optimizer got an empty parameter list")
        for group in groups if isinstance(groups[0], dict) else [{"params": groups}]:
            self.add_param_group(group)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "step" in cls.__dict__ and not getattr(cls.__dict__["step"], "hooked", False):
            cls.step = _with_hooks(cls.__dict__["step"])  # type: ignore[method-assign]

    def _prepare(self, state: Any) -> None:
        hooks: list[OrderedDict[int, Any]] = [OrderedDict() for _ in range(6)]
        self._pre_hooks, self._post_hooks, self._state_dict_pre_hooks, self._state_dict_post_hooks = hooks[:4]
        self._load_pre_hooks, self._load_post_hooks = hooks[4:]
        self.numbers = Numbers()
        self.homes: dict[Any, Any] = {}  # by parameter: the placement where graphs update it, where that is not its own
        self._driver: Any = None  # the schedule whose steps are in plans, when some may have been since its numbers were read
        self.__dict__.update(state)

    def __getstate__(self) -> Any:
        return {"defaults": self.defaults, "state": self.state, "_groups": self.param_groups}

    def __setstate__(self, state: Any) -> None:
        self._prepare(state)

    # Groups

    @property
    def param_groups(self) -> Any:
        """If a graph steps the schedule, its numbers are those of the steps submitted so far; reading them waits."""
        if self._driver is not None and running.now.stepped is None:
            driver, self._driver = self._driver, None
            driver.pull()
        return self._groups

    @param_groups.setter
    def param_groups(self, groups: Any) -> None:
        self._groups = groups

    def add_param_group(self, param_group: Any) -> None:
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        group = dict(param_group)
        params = group["params"]
        if isinstance(params, (set, frozenset)):
            raise TypeError("optimizer parameters need to be organized in ordered collections, but the ordering of tensors in "
                            "sets will change between runs. Please use a list instead.")
        entries = [params] if isinstance(params, Tensor) else list(params)
        names = [p[0] for p in entries if isinstance(p, tuple)]
        if names and len(names) != len(entries):
            raise ValueError("all optimizer params should be with/without names. Some param names are missing")
        group["params"] = [p[1] if isinstance(p, tuple) else p for p in entries]
        if names:
            group["param_names"] = names
        for p in group["params"]:
            if not isinstance(p, Tensor):
                raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {type(p).__name__}")
            if not p.is_leaf:
                raise ValueError("can't optimize a non-leaf Tensor")
        for name, default in self.defaults.items():
            if default is required and name not in group:
                raise ValueError(f"parameter group didn't specify a value of required optimization parameter {name}")
            group.setdefault(name, default)
        ids = [id(p) for p in group["params"]]
        if len(set(ids)) != len(ids):
            warnings.warn("optimizer contains a parameter group with duplicate parameters; in future, this will cause an error",
                          stacklevel=3)
        for other in self.param_groups:
            if ("param_names" in group) != ("param_names" in other):
                raise ValueError("all optimizer param groups should be with/without names. cannot add param group "
                                 f"{'with' if names else 'without'} names to the optimizer")
        known = {id(p) for g in self.param_groups for p in g["params"]}
        if known & set(ids):
            raise ValueError("some parameters appear in more than one parameter group")
        self._check(group)
        self.param_groups.append(group)

    def _check(self, group: Any) -> None:
        """Raises ValueError where a hyperparameter of the group cannot be."""
        lr = group.get("lr", 0)
        if isinstance(lr, Tensor):
            if lr.numel() != 1:
                raise ValueError("Tensor lr must be 1-element")
        elif not lr >= 0:
            raise ValueError(f"Invalid learning rate: {lr}")
        if group.get("weight_decay", 0) < 0:
            raise ValueError(f"Invalid weight_decay value: {group['weight_decay']}")
        if group.get("eps", 0) is not None and is_number(group.get("eps", 0)) and group.get("eps", 0) < 0:
            raise ValueError(f"Invalid epsilon value: {group['eps']}")
        betas = group.get("betas", (0, 0))
        if len(betas) != 2:
            raise ValueError(f"Invalid betas: {betas}; there must be two")
        for i, beta in enumerate(betas):
            if isinstance(beta, Tensor) and beta.numel() != 1:
                raise ValueError(f"Tensor betas[{i}] must be 1-element")
            if not 0 <= float(beta) < 1:
                raise ValueError(f"Invalid beta parameter at index {i}: {beta}")
        if group.get("differentiable"):
            raise NotImplementedError(f"{type(self).__name__}: differentiable=True: a step writes its parameters, and "
                                      "gradients do not flow through it; write the update out of place with "
                                      "autograd.grad(..., create_graph=True)")
        if group.get("foreach") and group.get("fused"):
            raise RuntimeError("`fused` and `foreach` cannot be `True` together.")

    def zero_grad(self, set_to_none: bool = True) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                clear_grad(p, set_to_none)

    # Steps

    def init_state(self) -> None:
        """Makes what there is not yet of the state of every parameter; otherwise that happens at its next step."""
        with no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    if p.requires_grad:
                        self._init_state(group, p, self.state[p])

    @_with_hooks
    def step(self, closure: Any = None) -> Any:
        """Updates the parameters that have gradients. closure: computes the loss anew, and its gradients; its result is returned."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        with no_grad():
            if running.now.stepped is None:
                self._update_all(self.numbers.views(self.param_groups, in_plan=False))
            else:
                self._step_in_plan()
        return loss

    @_with_hooks
    def step_in_plan(self) -> None:
        """The step of a graph whose build() has not made it itself. REQUIRES: inside a trace."""
        with no_grad():
            self._step_in_plan()

    def _step_in_plan(self) -> None:
        if not any(self is optim for optim in running.now.optimizers):
            raise RuntimeError(f"{type(self).__name__}.step(): inside build() of a graph that does not have the optimizer; "
                               "give it to the graph first, with add_optimizer(), or as state of Graph.trace")
        if running.now.stepped.count(self):
            raise RuntimeError(f"{type(self).__name__}.step(): called twice inside build(); a call of the graph is one step")
        running.now.stepped.append(self)
        with running.now.batches.update(self):
            skip = running.now.scaling and running.now.scaling.overflow(self)
            self._update_all(self.numbers.views(self._groups, in_plan=True), skip)

    def _update_all(self, views: Any, skip: Any = None) -> None:
        """skip: a traced bool scalar; where it is true everything stays."""
        for group, own in zip(views, self._groups):
            if group.get("clip_grad_max_norm") is not None:
                clip_grad_norm_(group["params"], group["clip_grad_max_norm"], group.get("clip_grad_norm_type", 2.0))
            for p in group["params"]:
                of_rows = running.now.tables is not None and running.now.tables.has_gradient(p)
                if of_rows or p.grad is not None:
                    state = self.state[p]
                    self._init_state(own, p, state)
                    if of_rows:
                        running.now.tables.update(self, group, p, state)
                    elif has_parts(grad := p.grad):
                        self._update_rows(group, p, grad, state)
                    else:
                        self._update_one(group, p, grad, state, skip)

    def _update_one(self, group: Any, p: Any, grad: Any, state: Any, skip: Any) -> None:
        home, param = self.homes.get(p), p
        if home is not None:
            param, grad = (t.to_global(home, broadcast) for t in (p, grad))
        narrow = p.dtype if self._widen and p.dtype in (_C.float16, _C.bfloat16) else None
        state_now = state
        if narrow:
            param, grad = param.float(), grad.float()
            state_now = {k: t.float() if isinstance(t, Tensor) and t.dtype is narrow else t for k, t in state.items()}
        if p.is_complex():
            if not self._takes_complex:
                raise RuntimeError(f"{type(self).__name__} does not support complex parameters")
            param, grad = parts_of(param), parts_of(grad)
            state_now = {k: parts_of(t) if isinstance(t, Tensor) else t for k, t in state.items()}
        new, changed = self._update(group, param, grad, state_now)
        new = new.to(narrow) if narrow else new
        if p.is_complex():
            new = fn.view_as_complex(new)
            changed = {k: fn.view_as_complex(v) if state[k].is_complex() else v for k, v in changed.items()}
        if skip is not None:
            new = fn.where(skip, p, new)
            changed = {name: fn.where(skip, state[name], value.to(state[name].dtype)) for name, value in changed.items()}
        p._write(new if home is None else new.to_global(p.placement, broadcast))
        for name, value in changed.items():
            state[name]._write(value.to(state[name].dtype) if narrow else value)

    def _update_rows(self, group: Any, p: Any, grad: Any, state: Any) -> None:
        """A step of the elements that a sparse gradient has; others, and what is remembered of them, stay as they are."""
        why = self._refuse_sparse(group)
        if why is not None:
            raise RuntimeError(f"{type(self).__name__} does not support sparse gradients{why}, please consider SparseAdam instead")
        grad = grad.to_sparse_coo().coalesce()
        at = tuple(grad.indices().unbind(0))
        of_rows = {name: t[at] if isinstance(t, Tensor) and t._shape == p._shape else t for name, t in state.items()}
        new, changed = self._update(group, p.detach()[at], grad.values(), of_rows)
        p.index_put_(at, new.to(p.dtype))
        for name, value in changed.items():
            if state[name]._shape == p._shape:
                state[name].index_put_(at, value.to(state[name].dtype))
            else:
                state[name]._write(value)

    def _refuse_sparse(self, group: Any) -> str | None:
        """The reason why a group cannot be updated row by row, for an error; None: it can."""
        return ""

    def _init_state(self, group: Any, p: Any, state: Any) -> None:
        """Adds the tensors of the state of `p` that are not there yet."""
        raise NotImplementedError(f"{type(self).__name__}: _init_state() must be defined, or step()")

    def _lay_state(self, group: Any, p: Any, state: Any) -> None:
        """Before state of a parameter is loaded that has none: global parameters' lies as they do."""
        if type(self)._init_state is not Optimizer._init_state:
            self._init_state(group, p, state)

    def _update(self, group: Any, p: Any, grad: Any, state: Any) -> Any:
        """The new p, and by name the state that changes. Hyperparameters of the group may be tensors, and lr is one."""
        raise NotImplementedError(f"{type(self).__name__}: _update() must be defined, or step()")

    @staticmethod
    def _zeros(state: Any, p: Any, *names: str) -> None:
        for name in names:
            if state.get(name) is None:
                state[name] = zeros_like(p.detach())

    @staticmethod
    def _filled(state: Any, p: Any, name: str, value: float) -> None:
        """Both parts of complex parameters are filled with the value."""
        if name not in state:
            state[name] = full_like(p.detach(), complex(value, value) if p.is_complex() else value)

    @staticmethod
    def _scalar(state: Any, name: str = "step", value: float = 0.0) -> None:
        if not isinstance(state.get(name), Tensor):
            state[name] = tensor(float(state.get(name, value)), dtype=_C.float32)

    # Hooks and state

    def register_step_pre_hook(self, hook: Any) -> RemovableHandle:
        """hook(optimizer, args, kwargs) before each step; may return (args, kwargs) to take their place."""
        return _registered(self._pre_hooks, hook)

    def register_step_post_hook(self, hook: Any) -> RemovableHandle:
        return _registered(self._post_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Any, prepend: bool = False) -> RemovableHandle:
        return _registered(self._state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(self, hook: Any, prepend: bool = False) -> RemovableHandle:
        return _registered(self._state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Any, prepend: bool = False) -> RemovableHandle:
        return _registered(self._load_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Any, prepend: bool = False) -> RemovableHandle:
        return _registered(self._load_post_hooks, hook, prepend)

    def state_dict(self) -> Any:
        """In torch's format: parameters by number."""
        for hook in self._state_dict_pre_hooks.values():
            hook(self)
        result = _state_dict.saved(self)
        for hook in self._state_dict_post_hooks.values():
            changed = hook(self, result)
            result = result if changed is None else changed
        return result

    def load_state_dict(self, state_dict: Any) -> None:
        """Takes torch's, too. State that graphs were compiled with is written in place."""
        state_dict = dict(state_dict)
        for hook in self._load_pre_hooks.values():
            changed = hook(self, state_dict)
            state_dict = state_dict if changed is None else changed
        _state_dict.load(self, state_dict)
        for hook in self._load_post_hooks.values():
            hook(self)

    def _loaded(self, group: Any, p: Any, state: Any, saved: Any) -> None:
        """After the state of a parameter was loaded: what it has beyond torch's follows."""

    def __repr__(self) -> str:
        lines = [type(self).__name__ + " ("]
        for i, group in enumerate(self.param_groups):
            lines += [*([""] if i else []), f"Parameter Group {i}"]
            lines += [f"    {k}: {group[k]}" for k in sorted(group) if k != "params"]
        return "\n".join([*lines, ")"])

