"""A program and the model of ONNX that is made of it, side by side: both compute the same input, and the largest difference is told."""

from __future__ import annotations

import contextlib
import os
import pathlib
import tempfile
from typing import Any, Callable, Iterator, NamedTuple

import numpy as np

from sluice import _C
from sluice._base.device import device as _Device
from sluice._base.grad_mode import no_grad
from sluice._base.structure import flatten
from sluice._graph.lower import lower
from sluice._tensor.creation import tensor
from sluice.onnx._export import export

NAME = "onnx.convert_to_onnx_and_check"
MOST_OUTLIERS = 20  # that are printed of each output


class _Place(NamedTuple):
    """An element of an output, and by how much the two values of it differ."""

    difference: float
    output: str
    at: tuple[int, ...]
    here: Any
    there: Any

    def __str__(self) -> str:
        return f"output '{self.output}' at {list(self.at)}: {self.here:.9g} here, {self.there:.9g} in ONNX Runtime"


def _runtime() -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise ImportError(f"{NAME}: needs the package onnxruntime, whose results it compares with: pip install onnxruntime") from error
    return onnxruntime


def _provider(runtime: Any, device: Any) -> str:
    wanted = "CUDAExecutionProvider" if device.type == "cuda" else "CPUExecutionProvider"
    if wanted not in runtime.get_available_providers():
        raise _C.RuntimeError(f"{NAME}: device '{device}': this onnxruntime has only {runtime.get_available_providers()}; it must have "
                              f"{wanted} (pip install onnxruntime-gpu)")
    return wanted


def _map(nest: Any, change: Callable[[Any], Any]) -> Any:
    """The arguments with every tensor changed."""
    if isinstance(nest, _C.Tensor):
        return change(nest)
    if isinstance(nest, dict):
        return {key: _map(value, change) for key, value in nest.items()}
    if isinstance(nest, (list, tuple)):
        parts = [_map(value, change) for value in nest]
        return type(nest)(*parts) if hasattr(nest, "_fields") else type(nest)(parts)
    return nest


def _drawn(low: float, high: float) -> Callable[[Any], Any]:
    """Changes a tensor into one of its shape with numbers from low to high: always the same ones, so that a run can be repeated."""
    if not low < high:
        raise _C.ValueError(f"{NAME}: input_tensor_range ({low}, {high}); must be a number and a larger one")
    numbers = np.random.default_rng(0)

    def draw(given: Any) -> Any:
        if given.dtype is _C.bool:
            return given
        if given.is_floating_point():
            return tensor(numbers.uniform(low, high, tuple(given.shape)), dtype=given.dtype)
        return tensor(numbers.integers(int(low), max(int(high), int(low) + 1), tuple(given.shape)), dtype=given.dtype)

    return draw


def _one_more(given: Any) -> Any:
    """With its first row once more behind the others: another size of the batch."""
    array = given.cpu().numpy()
    return tensor(np.concatenate([array, array[:1]]), dtype=given.dtype, device=given.device)


def _leaves(nest: Any) -> list[Any]:
    found: list[Any] = []
    flatten(nest, "", found, [])
    return found


def _outliers(name: str, here: Any, there: Any, rtol: float, atol: float) -> tuple[_Place | None, list[_Place]]:
    """The element that differs most, and all that differ by more than the tolerance, in their order."""
    if here.shape != there.shape or here.dtype != there.dtype:
        raise AssertionError(f"{NAME}: output '{name}': {here.dtype}{list(here.shape)} here, {there.dtype}{list(there.shape)} in ONNX "
                             "Runtime; must be of one shape and dtype")
    if not here.size:
        return None, []
    a, b = (v.astype(np.complex128 if v.dtype.kind == "c" else np.float64) for v in (here, there))
    with np.errstate(invalid="ignore"):
        difference = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
        difference = np.where(np.isnan(difference), np.inf, difference)
        beyond = difference > np.where(np.isfinite(b), atol + rtol * np.abs(b), 0.0)

    def place(at: Any) -> _Place:
        index = tuple(int(i) for i in at)
        return _Place(float(difference[index]), name, index, here[index], there[index])

    most = place(np.unravel_index(int(difference.argmax()), difference.shape))
    return most, [place(at) for at in np.argwhere(beyond)]


@contextlib.contextmanager
def _file(path: str | os.PathLike[str] | None) -> Iterator[pathlib.Path]:
    """The place where the model is written: the file, or model.onnx in the folder; without a path, for as long as it is needed."""
    if path is None:
        with tempfile.TemporaryDirectory() as folder:
            yield pathlib.Path(folder) / "model.onnx"
        return
    given = pathlib.Path(path)
    yield given / "model.onnx" if given.is_dir() else given


def _session(runtime: Any, path: pathlib.Path, optimize: bool, provider: str) -> Any:
    options = runtime.SessionOptions()
    levels = runtime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_EXTENDED if optimize else levels.ORT_DISABLE_ALL
    options.log_severity_level = 3  # its warnings of weights that it folds are no news
    return runtime.InferenceSession(str(path), options, providers=[provider])


def convert_to_onnx_and_check(model: Callable[..., Any], args: Any, *, print_outlier: bool = True,
                              input_tensor_range: tuple[float, float] | None = None, device: Any = "cpu", opset: int | None = None,
                              dynamic_batch_size: bool = False, external_data: bool | None = None, ort_optimize: bool = True,
                              onnx_model_path: str | os.PathLike[str] | None = None, rtol: float = 1e-4, atol: float = 1e-4) -> float:
    """Writes a model of ONNX as export() does, computes the same inputs here and in ONNX Runtime, prints by how much the results
    differ at most, and returns that.

        sl.onnx.convert_to_onnx_and_check(net.eval(), sl.randn(1, 3, 224, 224))

    model, args, opset, external_data: as in export(). input_tensor_range: (low, high), between which inputs of the shapes and dtypes
    of `args` are drawn; without it `args` are the inputs. device: where the program runs; "cuda" also has ONNX Runtime run there.
    dynamic_batch_size: the first axis of every input is "batch" in the model, and a batch with one more row is compared, too.
    ort_optimize: whether ONNX Runtime rewrites the model before it runs. onnx_model_path: a file, or a folder for model.onnx; by
    default the model is deleted. print_outlier: whether to print elements that differ by more than atol + rtol * |ONNX Runtime's|.
    OneFlow-ONNX.

    Raises AssertionError where an element does, or where shapes or dtypes differ, ImportError without onnxruntime, and what export()
    raises.
    """
    runtime = _runtime()
    where = _Device("cuda" if device == "gpu" else device)
    provider = _provider(runtime, where)
    args = tuple(args) if isinstance(args, (tuple, list)) else (args,)
    if input_tensor_range is not None:
        args = _map(args, _drawn(*input_tensor_range))
    args = _map(args, lambda given: given.to(where))
    with _file(onnx_model_path) as path:
        dynamic = {name: {0: "batch"} for name in lower(model, *args)._trace.given.names} if dynamic_batch_size else None
        version = export(model, args, path, opset=opset, dynamic=dynamic, external_data=external_data)
        session = _session(runtime, path, ort_optimize, provider)
        most, outliers = None, []
        for inputs in [args, _map(args, _one_more)] if dynamic_batch_size else [args]:
            with no_grad():
                here = [t.detach().cpu().numpy() for t in _leaves(model(*inputs))]
            arrays = [t.detach().cpu().numpy() for t in _leaves(inputs)]
            there = session.run(None, dict(zip([port.name for port in session.get_inputs()], arrays)))
            for port, ours, theirs in zip(session.get_outputs(), here, there, strict=True):
                worst, beyond = _outliers(port.name, ours, theirs, rtol, atol)
                outliers += beyond
                if worst is not None and (most is None or worst.difference > most.difference):
                    most = worst
    name = getattr(model, "name", None) if isinstance(getattr(model, "name", None), str) else getattr(model, "__name__", type(model).__name__)
    print(f"onnx: '{name}' in opset {version}: " + ("no elements to compare" if most is None else
          f"the largest difference is {most.difference:.3g}, {most}"))
    if print_outlier:
        for place in outliers[:MOST_OUTLIERS]:
            print(f"  differs by {place.difference:.3g}, {place}")
        if len(outliers) > MOST_OUTLIERS:
            print(f"  and {len(outliers) - MOST_OUTLIERS} more")
    if outliers:
        worst = max(outliers, key=lambda place: place.difference)
        raise AssertionError(f"{NAME}: {len(outliers)} elements differ, one by {worst.difference:.3g}, {worst}; must differ by at most "
                             f"{atol:g} + {rtol:g} * the latter")
    return 0.0 if most is None else most.difference
