"""Kinds of devices that Sluice has not, as torch answers where they are missing; the random streams; and what torch.cuda has besides."""

from __future__ import annotations

import contextlib
from types import ModuleType
from typing import Any, Iterator

from sluice._base.device_module import DeviceModule
from sluice._tensor import creation
from sluice.mock_torch._private.made import Nothing, module
from sluice.mock_torch._private.refused import REFUSED, refused_module


def _missing_kind(kind: str) -> ModuleType:
    """torch.xpu and the like: there is no such device, nothing is waiting for it, and it holds nothing."""
    def nothing(*args: Any, **kwargs: Any) -> None:
        return None

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"torch.{kind}: there is no device of this kind; ask is_available() first")

    nones = {name: nothing for name in ("empty_cache", "manual_seed", "manual_seed_all", "synchronize", "reset_peak_memory_stats")}
    zeros = {name: lambda *args: 0 for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "device_count",
                                                "current_allocated_memory", "driver_allocated_memory", "recommended_max_memory")}
    no = {name: lambda *args: False for name in ("is_available", "is_initialized", "is_bf16_supported", "is_current_stream_capturing")}
    refused = {name: refuse for name in ("current_device", "device", "get_device_capability", "get_device_name", "get_device_properties",
                                         "get_rng_state", "mem_get_info", "set_device", "set_rng_state", "stream", "Stream", "Event")}
    all_of = {"get_rng_state_all": lambda: [], "set_rng_state_all": nothing}
    return module(f"torch.{kind}", **nones, **zeros, **no, **refused, **all_of)


@contextlib.contextmanager
def fork_rng(devices: Any = None, enabled: bool = True, **options: Any) -> Iterator[None]:
    """What is drawn within does not move the default generator."""
    if not enabled:
        yield
        return
    state = creation.get_rng_state()
    try:
        yield
    finally:
        creation.set_rng_state(state)


def _capability(*args: Any) -> Any:
    raise RuntimeError("torch.cuda: the capability, name and memory of a GPU are in sluice.info")


_CUDA = DeviceModule("cuda")
_RANDOM = {name: getattr(creation, name) for name in ("default_generator", "get_rng_state", "initial_seed", "manual_seed", "seed",
                                                      "set_rng_state")}
MODULES: dict[str, Any] = {f"torch.{kind}": _missing_kind(kind) for kind in ("xpu", "mps", "mtia")}
MODULES.update({
    "torch.random": module("torch.random", fork_rng=fork_rng, **_RANDOM),
    "torch.cuda.random": module("torch.cuda.random", **_RANDOM, get_rng_state_all=lambda: [], set_rng_state_all=lambda states: None),
    "torch.cuda.nvtx": module("torch.cuda.nvtx", range=Nothing, range_push=lambda text: 0, range_pop=lambda: 0, mark=lambda text: None),
    "torch.cuda.profiler": refused_module("torch.cuda.profiler"),
    # "DEFAULT": no function here has a form for bytes that a processor's instructions would choose, which packages ask this for.
    "torch.backends.cpu": module("torch.backends.cpu", get_cpu_capability=lambda: "DEFAULT"),
    "torch.cpu": module("torch.cpu", is_available=lambda: True, device_count=lambda: 1, synchronize=lambda device=None: None),
})
MEMBERS = {"torch.cuda": {**REFUSED["torch.cuda"], "get_rng_state_all": lambda: [], "set_rng_state_all": lambda states: None,
                          "get_device_capability": _capability, "get_device_name": _capability, "get_device_properties": _capability,
                          "is_current_stream_capturing": lambda: False,
                          "reset_max_memory_allocated": _CUDA.reset_peak_memory_stats,  # older names
                          "reset_max_memory_cached": _CUDA.reset_peak_memory_stats, "memory_cached": _CUDA.memory_reserved}}
