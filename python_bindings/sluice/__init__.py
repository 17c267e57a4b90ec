"""Sluice: an actor-model dataflow execution engine for deep learning, with torch's names.

`import sluice as torch` runs plain torch code eagerly; `sluice.nn.Graph` compiles it into a plan of actors.
"""

import atexit as _atexit
import math as _math

from sluice import _C
from sluice._C import (Generator, Tensor, bfloat16, bool, dtype, float16, float32, float64, int8, int16, int32, int64,  # noqa: A004
                       promote_types, uint8)
from sluice._C import CancelledError, EndOfData, Error, SharedArenas
from sluice._dim import Dim
from sluice._size import Size
from sluice._device import device, register_quota, stream
from sluice._creation import (arange, as_tensor, bernoulli, default_generator, empty, empty_like, eye, from_dlpack, from_numpy,
                              frombuffer, full, full_like, get_default_dtype, initial_seed, linspace, manual_seed, normal, ones,
                              ones_like, rand, rand_like, randint, randn, randn_like, randperm, set_default_dtype, tensor, to_dlpack,
                              zeros, zeros_like)
from sluice._creation import numpy as _numpy
from sluice import _pickling, _tensor_methods, sbp
from sluice._global import placement
from sluice._precision import get_float32_matmul_precision, set_float32_matmul_precision
from sluice._C.fn import *  # noqa: F401,F403
from sluice._cond import cond
from sluice._functions import broadcast_shapes, get_num_threads, is_tensor, set_num_threads
from sluice.autograd import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled

__version__ = _C.__version__

float, double, half, long, int, short = float32, float64, float16, int64, int32, int16  # noqa: A001
inf, nan, pi = _math.inf, _math.nan, _math.pi
FloatTensor = Tensor

# Imported when they are first used.
_MODULES = {"amp", "backends", "cuda", "distributed", "distributions", "errors", "func", "info", "linalg", "mock_torch", "multiprocessing", "nn", "optim", "return_types",
            "serialization", "special", "testing", "utils"}
_LAZY_NAMES = {"load_graph": "sluice._bundle", "save": "sluice.serialization", "load": "sluice.serialization"}
_LAZY_NAMES.update({name: "sluice._host_function" for name in ("extent", "host_function")})
_LAZY_NAMES.update({name: "sluice.amp.autocast_mode" for name in (
    "autocast", "clear_autocast_cache", "get_autocast_cpu_dtype", "get_autocast_dtype", "get_autocast_gpu_dtype",
    "is_autocast_cache_enabled", "is_autocast_enabled", "set_autocast_cpu_dtype", "set_autocast_dtype", "set_autocast_gpu_dtype")})
_LAZY_NAMES["vmap"] = "sluice.func"
_LAZY_NAMES["lower"] = "sluice._lower"
_LAZY_NAMES["set_log"] = "sluice.info"


def __getattr__(name):
    import importlib

    if name == "ops":
        return _C.ops
    if name in _MODULES:
        return importlib.import_module(f"sluice.{name}")
    if name in _LAZY_NAMES:
        return getattr(importlib.import_module(_LAZY_NAMES[name]), name)
    from sluice._left_out import missing

    raise missing("sluice", name)


def __dir__():
    return sorted([*globals(), *_MODULES, "ops", *_LAZY_NAMES])


_atexit.register(_C.shutdown)
