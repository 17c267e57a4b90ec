"""Sluice: an actor-model dataflow execution engine for deep learning, with torch's names.

`import sluice as torch` runs plain torch code eagerly; `sluice.nn.Graph` compiles it into a plan of actors.
"""

import atexit as _atexit
import math as _math
import os as _os
import sys as _sys

from sluice import _C
from sluice._C import (Generator, Tensor, bfloat16, bool, complex64, complex128, dtype, float16, float32, float64, int8, int16,  # noqa: A004
                       int32, int64, promote_types, uint8)
from sluice._C import CancelledError, EndOfData, Error, SharedArenas
from sluice._C import MemoryError as OutOfMemoryError
from sluice._base.dim import Dim
from sluice._base.recorded import _assert as _assert
from sluice._base.size import Size
from sluice._base.device import device, get_default_device, register_quota, set_default_device, stream
from sluice._late import get_device_module
from sluice._tensor.creation import (arange, as_tensor, bernoulli, default_generator, empty, empty_like, empty_strided, eye, from_dlpack,
                              from_numpy, frombuffer, full, full_like, get_default_dtype, get_rng_state, initial_seed, linspace,
                              manual_seed, normal, ones, ones_like, rand, rand_like, randint, randn, randn_like, randperm, seed,
                              set_default_dtype, set_rng_state, tensor, to_dlpack, zeros, zeros_like)
from sluice._base.numbers import numpy as _numpy
from sluice import sbp
from sluice import _late
from sluice._tensor import pickling, methods, state, subclasses as _subclasses
from sluice._tensor.global_tensors import placement
from sluice._tensor.float8 import _scaled_mm as _scaled_mm
from sluice._tensor.float8_dtypes import float8_e4m3fn, float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz
from sluice._tensor.dtypes import TENSOR_CLASSES as _TENSOR_CLASSES
from sluice._tensor.dtypes import can_cast, finfo, iinfo, result_type, set_default_tensor_type
from sluice._base.memory_format import (channels_last, channels_last_3d, contiguous_format, layout, memory_format, preserve_format,
                                   sparse_coo, sparse_csc, sparse_csr, strided)
from sluice._base.precision import get_float32_matmul_precision, set_float32_matmul_precision, set_flush_denormal
from sluice._C.fn import *  # noqa: F401,F403
from sluice._tensor.cond import cond
from sluice._tensor.distributions import binomial, poisson, randint_like
from sluice._tensor.functions import broadcast_shapes, get_num_threads, is_tensor, set_num_threads, typename
from sluice._tensor.in_place import FUNCTIONS as _IN_PLACE
from sluice._tensor.numerics import gradient, logspace, tensordot, tril_indices, triu_indices, unravel_index
from sluice._tensor.numerics import range_ as range  # noqa: A001,A004
from sluice._tensor.oneflow import (batch_gather, broadcast_like, cast, convert_oneflow_dtype_to_numpy_dtype, gather_nd, in_top_k, new_empty,
                             new_full, new_ones, new_zeros, quick_gelu, roc_auc_score, scatter_nd, slice_update, square_relu,
                             tensor_scatter_nd_update, unsorted_batch_segment_sum)
from sluice._tensor.oneflow import slice_ as slice  # noqa: A001,A004
from sluice._tensor.printing import get_printoptions, set_printoptions
from sluice._base.troubles import note_on as _note_on
from sluice._tensor.aliases import COPIES as _COPIES
from sluice._tensor.aliases import FUNCTIONAL as _FUNCTIONAL
from sluice._tensor.aliases import (are_deterministic_algorithms_enabled, as_strided_scatter, asarray, empty_permuted, scalar_tensor,
                             unsafe_chunk, unsafe_split_with_sizes, use_deterministic_algorithms)
from sluice._tensor.state import QUESTIONS as _QUESTIONS
from sluice._tensor.storage import UntypedStorage, is_storage
from sluice._tensor.spectral import istft, stft
from sluice._tensor.windows import bartlett_window, blackman_window, hamming_window, hann_window, kaiser_window
from sluice.autograd import enable_grad, inference_mode, is_grad_enabled, is_inference_mode_enabled, no_grad, set_grad_enabled

__version__ = _C.__version__
_note_on(_C.Error)

float, double, half, long, int, short = float32, float64, float16, int64, int32, int16  # noqa: A001
cfloat, cdouble = complex64, complex128
inf, nan, pi = _math.inf, _math.nan, _math.pi
globals().update(_TENSOR_CLASSES)
globals().update(_IN_PLACE)
globals().update(_QUESTIONS)
globals().update(_COPIES)
char, e, newaxis, dtypes = int8, _math.e, None, _C.dtypes
multinomial = Tensor.multinomial
contiguous, expand, view = Tensor.contiguous, Tensor.expand, Tensor.view  # OneFlow's

# Imported when they are first used.
_MODULES = {"_dynamo", "accelerator", "amp", "backends", "cache", "comm", "compiler", "cuda", "data", "debug", "distributed", "distributions", "env",
            "errors", "fft", "flow", "func", "fx", "global_view", "hub", "info", "io", "jit", "library", "linalg", "memory", "mock_torch",
            "multiprocessing", "nn", "onnx", "optim", "parallel", "prims", "profiler", "quantization", "return_types", "serialization",
            "sparse", "special", "testing", "tiny", "trainer", "utils", "version", "vision"}
_LAZY_NAMES = {"load_graph": "sluice._graph.bundle", "save_graph": "sluice._graph.bundle",
               "save": "sluice.serialization", "load": "sluice.serialization"}
_LAZY_NAMES.update({name: "sluice._tensor.host_function" for name in ("extent", "host_function")})
_LAZY_NAMES.update({name: "sluice.amp.autocast_mode" for name in (
    "autocast", "autocast_decorator", "clear_autocast_cache", "get_autocast_cpu_dtype", "get_autocast_dtype",
    "get_autocast_gpu_dtype", "is_autocast_cache_enabled", "is_autocast_cpu_enabled", "is_autocast_enabled",
    "set_autocast_cache_enabled", "set_autocast_cpu_dtype", "set_autocast_cpu_enabled", "set_autocast_dtype",
    "set_autocast_enabled", "set_autocast_gpu_dtype")})
_LAZY_NAMES.update({name: "sluice.nn._root_functions" for name in (
    "alpha_dropout_", "batch_norm", "binary_cross_entropy_with_logits", "cosine_embedding_loss", "ctc_loss",
    "dropout", "dropout_", "embedding", "embedding_renorm_", "feature_alpha_dropout_", "feature_dropout", "feature_dropout_", "group_norm",
    "hinge_embedding_loss", "instance_norm", "kl_div", "margin_ranking_loss", "poisson_nll_loss", "segment_reduce",
    "triplet_margin_loss")})
_LAZY_NAMES.update({name: "sluice.sparse._make" for name in (
    "sparse_compressed_tensor", "sparse_coo_tensor", "sparse_csc_tensor", "sparse_csr_tensor")})
_LAZY_NAMES.update({name: "sluice.sparse._products" for name in ("hspmm", "smm", "spmm")})
_LAZY_NAMES["conv_tbc"] = "sluice.nn._projections"
_LAZY_NAMES.update({name: "sluice._tensor.lowrank" for name in ("geqrf", "lobpcg", "ormqr", "pca_lowrank", "svd_lowrank")})
_LAZY_NAMES.update({name: "sluice._tensor.histograms" for name in ("histogram", "histogramdd")})
_LAZY_NAMES.update({name: "sluice._tensor.removed" for name in ("eig", "lstsq", "lu", "matrix_rank", "solve", "symeig")})
_LAZY_NAMES.update({name: "sluice._tensor.aliases" for name in ("from_file", "is_deterministic_algorithms_warn_only_enabled",
                                                         "slice_copy")})
_LAZY_NAMES.update({name: "sluice._tensor.loops" for name in ("scan", "while_loop")})
_LAZY_NAMES.update({name: "sluice._tensor.detection" for name in ("deform_conv2d", "nms", "roi_align")})
_LAZY_NAMES.update({name: "sluice.global_view" for name in ("global_to_global", "local_to_global", "to_global", "to_local")})
_LAZY_NAMES.update({name: "sluice.jit" for name in ("ignore", "interface", "is_scripting", "is_tracing", "script", "unused")})
_LAZY_NAMES["repeat"] = "sluice._tensor.oneflow"
_LAZY_NAMES["vmap"] = "sluice.func"
_LAZY_NAMES["features"] = "sluice._names.features"
_LAZY_NAMES["lower"] = "sluice._graph.lower"
_LAZY_NAMES["export"] = "sluice._graph.export"
_LAZY_NAMES.update({name: "sluice._graph.eager" for name in ("get_mode", "set_mode")})
_LAZY_NAMES["eval"] = "sluice._graph.awaiting"
_LAZY_NAMES["set_log"] = "sluice.info"
_LAZY_NAMES["compile"] = "sluice._compile"


def __getattr__(name):
    import importlib

    if name == "ops":
        return _C.ops
    if name in _MODULES:
        return importlib.import_module(f"sluice.{name}")
    if name in _LAZY_NAMES:
        return getattr(importlib.import_module(_LAZY_NAMES[name]), name)
    if name in _FUNCTIONAL and hasattr(functional := importlib.import_module("sluice.nn.functional"), name):
        return getattr(functional, name)
    from sluice._names.left_out import missing

    raise missing("sluice", name)


def __dir__():
    return sorted([*globals(), *_MODULES, "ops", *_LAZY_NAMES])


# Pickles that older versions have written name what they hold by these modules.
_sys.modules.update({f"sluice.{_old}": _sys.modules[f"sluice.{_new}"] for _old, _new in {
    "_device": "_base.device", "_dim": "_base.dim", "_global": "_tensor.global_tensors", "_memory_format": "_base.memory_format",
    "_pickling": "_tensor.pickling", "_size": "_base.size"}.items()})
_atexit.register(_C.shutdown)
if "SLUICE_TRACE" in _os.environ:  # behind shutdown(), so that the recording ends first
    from sluice._graph.recording import begin_as_environment_says as _begin

    _begin()
