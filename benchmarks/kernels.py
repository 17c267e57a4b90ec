"""kernel.*: kernels of the CPU on tensors beyond the caches, each an eager call, against PyTorch.

One process, bursts in turn, one thread (`--threads N` for others), all cores for `kernel.naive.*`; medians of the process's
clock (of time, where there are several threads). `kernel.stream.*` are reductions of 64 MiB, whose peer is a copy that reads
as many bytes, as far apart: their bandwidth over that of the copy. `kernel.naive.*` have a loop of scalar C as their peer, on
4M floats (`also`: the bandwidth over that of a streaming copy, which bounds it) and, as `kernel.naive.NAME.256k` and `.64k`,
on floats that the caches hold.
"""
import argparse
import statistics
import time

import numpy as np
from common import report, spread

ROUNDS = 9
MANY, MATRIX, IMAGE, MAPS = (4 << 20,), (4096, 1024), (4, 16, 64, 64), (8, 32, 56, 56)


def bursts(sides, seconds=0.05, clock=time.process_time):
    """Seconds per call of each side, burst by burst in turn."""
    counts, rows = [], [[] for _ in sides]
    for f in sides:
        f()
        begin = clock()
        f()
        counts.append(max(1, int(seconds / max(clock() - begin, 1e-6))))
    for _ in range(ROUNDS):
        for f, n, row in zip(sides, counts, rows):
            begin = clock()
            for _ in range(n):
                f()
            row.append((clock() - begin) / n)
    return rows


def tensor(torch, shape, low=-1.0, high=1.0, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).uniform(low, high, shape).astype("float32"))


def whole(torch, shape, high, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).integers(0, high, shape))


def of(shapes, f, low=-1.0, high=1.0):
    """f(torch, *tensors), of uniform random tensors."""
    def make(torch):
        given = [tensor(torch, shape, low, high, k) for k, shape in enumerate(shapes)]
        return lambda: f(torch, *given)
    return make


def one(name, low=-1.0, high=1.0, shape=MANY, module=None):
    def find(torch):
        return getattr(getattr(torch, module) if module else torch, name)
    return of([shape], lambda torch, x: find(torch)(x), low, high)


def two(name, low=-1.0, high=1.0, shape=MANY):
    return of([shape, shape], lambda torch, x, y: getattr(torch, name)(x, y), low, high)


def nn(f):
    """f(functional, *tensors) of what a pooling or a padding takes."""
    return lambda torch, *given: f(torch.nn.functional, *given)


def back(shape, f, *more):
    """The backward pass alone of f(torch, x, *more); `more` are shapes of further operands with gradients."""
    def make(torch):
        given = [tensor(torch, s, seed=k).requires_grad_() for k, s in enumerate((shape, *more))]
        y = f(torch, *given)
        g = torch.ones(y.shape)
        return lambda: torch.autograd.grad(y, given, g, retain_graph=True)
    return make


def indexed(shape, index_shape, f):
    """f(torch, x, index): whole numbers below the first size of x."""
    def make(torch):
        x, index = tensor(torch, shape), whole(torch, index_shape, shape[0])
        return lambda: f(torch, x, index)
    return make


def gather(torch):
    x, index = tensor(torch, (20000, 128)), whole(torch, (20000, 64), 128)
    return lambda: torch.gather(x, 1, index)


def lines(torch):
    """Rows by an index that is expanded over them."""
    x, index = tensor(torch, (20000, 128)), whole(torch, (4096, 1), 20000).expand(4096, 128)
    return lambda: torch.gather(x, 0, index)


def masked(torch):
    x, mask = tensor(torch, MANY), tensor(torch, MANY, seed=1) > 0
    return lambda: x[mask]


def scatter_add(torch):
    x, index, src = torch.zeros(20000, 128), whole(torch, (20000, 64), 128), tensor(torch, (20000, 64))
    return lambda: x.scatter_add(1, index, src)


def index_add(torch):
    x, index, src = torch.zeros(20000, 128), whole(torch, 8192, 20000), tensor(torch, (8192, 128))
    return lambda: x.index_add(0, index, src)


def ctc(gradients):
    def make(torch):
        x = tensor(torch, (100, 16, 40)).requires_grad_(gradients)
        targets, times = whole(torch, (16, 20), 39) + 1, torch.full((16,), 100)
        lengths = torch.full((16,), 20)
        loss = lambda: torch.nn.functional.ctc_loss(x.log_softmax(-1), targets, times, lengths)
        return (lambda: torch.autograd.grad(loss(), x)) if gradients else loss
    return make


def norm_back(make_net, shape):
    def make(torch):
        net, x = make_net(torch.nn), tensor(torch, shape).requires_grad_()
        y = net(x)
        g, given = torch.ones(y.shape), [x, *net.parameters()]
        return lambda: torch.autograd.grad(y, given, g, retain_graph=True)
    return make


def forward(make_net, shape):
    def make(torch):
        net, x = make_net(torch.nn), tensor(torch, shape)
        return lambda: net(x)
    return make


KERNELS = {
    **{name: one(name) for name in ("relu", "exp", "tanh", "sigmoid", "erf", "sin", "erfinv", "sqrt", "expm1", "lgamma",
                                    "digamma", "sign", "floor", "neg", "exp2", "sinh", "cosh", "asin", "acos", "erfc", "nan_to_num")},
    **{name: one(name, 0.1, 4) for name in ("log", "log1p", "log2", "log10", "rsqrt", "reciprocal")},
    **{name: two(name) for name in ("add", "mul", "div", "maximum", "atan2", "lt", "eq", "fmod", "hypot", "logaddexp", "logaddexp2")},
    "atanh": one("atanh", -0.9, 0.9),
    **{name: of([MANY], lambda torch, x, name=name: getattr(torch.nn.functional, name)(x)) for name in (
        "hardtanh", "hardshrink", "softshrink")},
    **{name: of([MANY, MANY], lambda torch, x, y, name=name: getattr(torch.nn.functional, name)(x, y)) for name in (
        "huber_loss", "smooth_l1_loss", "mse_loss")},
    "lerp": of([MANY, MANY], lambda torch, x, y: torch.lerp(x, y, 0.3)),
    "addcmul": of([MANY, MANY, MANY], lambda torch, x, y, z: torch.addcmul(x, y, z)),
    **{f"embedding_bag_{mode}": indexed((20000, 128), (4096, 8), lambda torch, x, i, mode=mode:
                                        torch.nn.functional.embedding_bag(i, x, mode=mode)) for mode in ("sum", "mean", "max")},
    "pow": two("pow", 0.1, 4),
    "pow_scalar": of([MANY], lambda torch, x: x ** 1.7, 0.1, 4),
    "pow_2": of([MANY], lambda torch, x: x ** 2),
    "pow_3": of([MANY], lambda torch, x: x ** 3),
    "where": of([MANY, MANY], lambda torch, x, y: torch.where(x > y, x, y)),
    "add_": of([MANY, MANY], lambda torch, x, y: x.add_(y)),
    "add_out": of([MANY, MANY, MANY], lambda torch, x, y, out: torch.add(x, y, out=out)),
    "add_bias": of([MATRIX, (1024,)], lambda torch, x, b: x + b),
    "add_transposed": of([(2048, 2048), (2048, 2048)], lambda torch, x, y: x + y.t()),
    "gelu": of([MANY], lambda torch, x: torch.nn.functional.gelu(x)),
    "gelu_tanh": of([MANY], lambda torch, x: torch.nn.functional.gelu(x, approximate="tanh")),
    "silu": of([MANY], lambda torch, x: torch.nn.functional.silu(x)),
    "clamp": of([MANY], lambda torch, x: x.clamp(-0.5, 0.5)),
    "to_bf16": of([MANY], lambda torch, x: x.to(torch.bfloat16)),
    "sum_all": of([(256, 256, 256)], lambda torch, x: x.sum()),
    "sum_0": of([(256, 256, 256)], lambda torch, x: x.sum(0)),
    "sum_1": of([(256, 256, 256)], lambda torch, x: x.sum(1)),
    "sum_2": of([(256, 256, 256)], lambda torch, x: x.sum(2)),
    "sum_02": of([(256, 256, 256)], lambda torch, x: x.sum((0, 2))),
    "sum_t": of([(4096, 4096)], lambda torch, x: x.t().sum(1)),
    "mean_short": of([(1 << 20, 4)], lambda torch, x: x.mean(1)),
    "amax_1": of([MATRIX], lambda torch, x: x.amax(1)),
    "amax_0": of([MATRIX], lambda torch, x: x.amax(0)),
    "argmax_1": of([MATRIX], lambda torch, x: x.argmax(1)),
    "argmax_0": of([MATRIX], lambda torch, x: x.argmax(0)),
    "max_dim": of([MATRIX], lambda torch, x: x.max(1)),
    "var": of([MATRIX], lambda torch, x: x.var(1)),
    "norm": of([MATRIX], lambda torch, x: x.norm(dim=1)),
    "logsumexp": of([MATRIX], lambda torch, x: x.logsumexp(1)),
    "gather": gather,
    "gather_lines": lines,
    "gather_middle": indexed((128, 64, 256), (64, 32, 256), lambda torch, x, i: torch.gather(x, 0, i)),
    "embedding": indexed((20000, 128), (4096,), lambda torch, x, i: torch.nn.functional.embedding(i, x)),
    "index_select": indexed((20000, 128), (4096,), lambda torch, x, i: x.index_select(0, i)),
    "index_rows": indexed((20000, 128), (4096,), lambda torch, x, i: x[i]),
    "index_flat": indexed(MANY, (1 << 20,), lambda torch, x, i: x[i]),
    "index_pairs": indexed((512, 512), (1 << 18,), lambda torch, x, i: x[i, i]),
    "take": indexed(MANY, (1 << 20,), lambda torch, x, i: x.take(i)),
    "index_mask": masked,
    "index_add": index_add,
    "scatter_add": scatter_add,
    "nonzero": of([MANY], lambda torch, x: torch.nonzero(x > 0)),
    "cat": of([MATRIX, MATRIX], lambda torch, x, y: torch.cat([x, y], 1)),
    "transpose": of([(2048, 2048)], lambda torch, x: x.t().contiguous()),
    "permute": of([MAPS], lambda torch, x: x.permute(0, 2, 3, 1).contiguous()),
    "cumsum_1": of([MATRIX], lambda torch, x: x.cumsum(1)),
    "cumsum_0": of([MATRIX], lambda torch, x: x.cumsum(0)),
    "cumprod_1": of([MATRIX], lambda torch, x: x.cumprod(1)),
    "cumprod_0": of([MATRIX], lambda torch, x: x.cumprod(0)),
    "cummax_1": of([MATRIX], lambda torch, x: x.cummax(1)),
    "logcumsumexp": of([MATRIX], lambda torch, x: x.logcumsumexp(1)),
    "sort": of([MATRIX], lambda torch, x: x.sort(1)),
    "sort_flat": of([(1 << 20,)], lambda torch, x: x.sort()),
    "argsort_0": of([MATRIX], lambda torch, x: x.argsort(0)),
    "topk": of([MATRIX], lambda torch, x: x.topk(10)),
    "median": of([MATRIX], lambda torch, x: x.median(1)),
    "kthvalue": of([MATRIX], lambda torch, x: x.kthvalue(100)),
    "unique": indexed((1000,), (1 << 18,), lambda torch, x, i: torch.unique(i)),
    "softmax_1": of([MATRIX], lambda torch, x: x.softmax(1)),
    "softmax_0": of([MATRIX], lambda torch, x: x.softmax(0)),
    "softmax_channels": of([(8, 21, 128, 128)], lambda torch, x: x.softmax(1)),
    "softmax_0.back": back(MATRIX, lambda torch, x: x.softmax(0)),
    "log_softmax_1": of([MATRIX], lambda torch, x: x.log_softmax(1)),
    "layer_norm": forward(lambda nn: nn.LayerNorm(1024), MATRIX),
    "layer_norm.back": norm_back(lambda nn: nn.LayerNorm(1024), MATRIX),
    "group_norm": forward(lambda nn: nn.GroupNorm(8, 32), MAPS),
    "group_norm.back": norm_back(lambda nn: nn.GroupNorm(8, 32), MAPS),
    "batch_norm": forward(lambda nn: nn.BatchNorm2d(32), MAPS),
    "batch_norm.back": norm_back(lambda nn: nn.BatchNorm2d(32), MAPS),
    "max_pool1d": of([(16, 64, 1024)], nn(lambda f, x: f.max_pool1d(x, 3, 2, 1))),
    "max_pool2d": of([MAPS], nn(lambda f, x: f.max_pool2d(x, 3, 2, 1))),
    "max_pool2d_2": of([MAPS], nn(lambda f, x: f.max_pool2d(x, 2))),
    "max_pool2d_14": of([(16, 128, 14, 14)], nn(lambda f, x: f.max_pool2d(x, 2))),
    "max_pool2d_indices": of([MAPS], nn(lambda f, x: f.max_pool2d(x, 3, 2, 1, return_indices=True))),
    "max_pool2d_dilated": of([MAPS], nn(lambda f, x: f.max_pool2d(x, 3, 2, 1, dilation=2, ceil_mode=True))),
    "max_pool3d": of([(4, 16, 16, 28, 28)], nn(lambda f, x: f.max_pool3d(x, 2))),
    "avg_pool1d": of([(16, 64, 1024)], nn(lambda f, x: f.avg_pool1d(x, 3, 2, 1))),
    "avg_pool2d": of([MAPS], nn(lambda f, x: f.avg_pool2d(x, 2))),
    "avg_pool2d_3": of([MAPS], nn(lambda f, x: f.avg_pool2d(x, 3, 2, 1, count_include_pad=False))),
    "avg_pool3d": of([(4, 16, 16, 28, 28)], nn(lambda f, x: f.avg_pool3d(x, 2))),
    "adaptive_avg": of([MAPS], nn(lambda f, x: f.adaptive_avg_pool2d(x, 1))),
    "adaptive_avg_7": of([MAPS], nn(lambda f, x: f.adaptive_avg_pool2d(x, 7))),
    "max_pool1d.back": back((16, 64, 1024), nn(lambda f, x: f.max_pool1d(x, 3, 2, 1))),
    "max_pool2d.back": back(MAPS, nn(lambda f, x: f.max_pool2d(x, 3, 2, 1))),
    "max_pool2d_2.back": back(MAPS, nn(lambda f, x: f.max_pool2d(x, 2))),
    "max_pool3d.back": back((4, 16, 16, 28, 28), nn(lambda f, x: f.max_pool3d(x, 2))),
    "avg_pool1d.back": back((16, 64, 1024), nn(lambda f, x: f.avg_pool1d(x, 3, 2, 1))),
    "avg_pool2d.back": back(MAPS, nn(lambda f, x: f.avg_pool2d(x, 2))),
    "avg_pool2d_3.back": back(MAPS, nn(lambda f, x: f.avg_pool2d(x, 3, 2, 1, count_include_pad=False))),
    "avg_pool3d.back": back((4, 16, 16, 28, 28), nn(lambda f, x: f.avg_pool3d(x, 2))),
    "bilinear": of([IMAGE], nn(lambda f, x: f.interpolate(x, scale_factor=2, mode="bilinear"))),
    "bicubic": of([IMAGE], nn(lambda f, x: f.interpolate(x, scale_factor=2, mode="bicubic"))),
    "nearest": of([IMAGE], nn(lambda f, x: f.interpolate(x, scale_factor=2, mode="nearest"))),
    "nearest.back": back(IMAGE, nn(lambda f, x: f.interpolate(x, scale_factor=2, mode="nearest"))),
    "grid_sample": of([IMAGE, (4, 64, 64, 2)], nn(lambda f, x, g: f.grid_sample(x, g, align_corners=False))),
    "grid_sample.back": back(IMAGE, nn(lambda f, x, g: f.grid_sample(x, g, align_corners=False)), (4, 64, 64, 2)),
    "grid_nearest": of([IMAGE, (4, 64, 64, 2)],
                       nn(lambda f, x, g: f.grid_sample(x, g, mode="nearest", align_corners=False))),
    "pad_constant": of([MAPS], nn(lambda f, x: f.pad(x, (3, 3, 3, 3)))),
    "pad_reflect": of([MAPS], nn(lambda f, x: f.pad(x, (3, 3, 3, 3), mode="reflect"))),
    "pad_replicate": of([MAPS], nn(lambda f, x: f.pad(x, (3, 3, 3, 3), mode="replicate"))),
    "pad_reflect.back": back(MAPS, nn(lambda f, x: f.pad(x, (3, 3, 3, 3), mode="reflect"))),
    "unfold": of([MAPS], nn(lambda f, x: f.unfold(x, 3, padding=1))),
    "row_times_columns": of([(1, 768), (3072, 768)], lambda torch, x, w: torch.nn.functional.linear(x, w)),
    "row_times_rows": of([(1, 768), (768, 3072)], lambda torch, x, w: x @ w),
    "pixel_shuffle": of([MAPS], nn(lambda f, x: f.pixel_shuffle(x, 2))),
    "cross_entropy": indexed(MATRIX, (4096,), lambda torch, x, i: torch.nn.functional.cross_entropy(x, i % 1024)),
    "ctc_loss": ctc(False),
    "ctc_loss.train": ctc(True),
    **{name: one(name, 0.1, 12, (1 << 17,), "special") for name in (
        "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "i0", "i0e", "i1", "i1e", "modified_bessel_k0",
        "modified_bessel_k1")},
    "igamma": two("igamma", 0.1, 5, (1 << 16,)),
    "rfft": of([(1024, 1024)], lambda torch, x: torch.fft.rfft(x)),
    "irfft": of([(1024, 1024)], lambda torch, x: torch.fft.irfft(torch.complex(x, x))),
    "rfft_odd": of([(1024, 1000)], lambda torch, x: torch.fft.rfft(x)),
    "rfft2": of([(16, 256, 256)], lambda torch, x: torch.fft.rfft2(x)),
    "fft": of([(1024, 1024)], lambda torch, x: torch.fft.fft(torch.complex(x, x))),
    "stft": of([(8, 32000)], lambda torch, x: torch.stft(x, 512, 128, window=torch.ones(512), return_complex=True)),
}

def half(x):
    return x[:, :4096]


# Reductions of 64 MiB: any set of axes, of contiguous and other tensors.
CUBE = (256, 256, 256)
STREAMS = {
    "all": (CUBE, lambda x: x.sum()), "0": (CUBE, lambda x: x.sum(0)), "1": (CUBE, lambda x: x.sum(1)),
    "2": (CUBE, lambda x: x.sum(2)), "01": (CUBE, lambda x: x.sum((0, 1))), "02": (CUBE, lambda x: x.sum((0, 2))),
    "12": (CUBE, lambda x: x.sum((1, 2))), "rows": ((4096, 4096), lambda x: x.sum(1)),
    "columns": ((4096, 4096), lambda x: x.sum(0)), "short_rows": ((1 << 20, 16), lambda x: x.sum(1)),
    "short_columns": ((1 << 20, 16), lambda x: x.sum(0)), "middle": ((1 << 12, 64, 64), lambda x: x.sum(1)),
    "transposed_rows": ((4096, 4096), lambda x: x.t().sum(1)),
    "transposed_columns": ((4096, 4096), lambda x: x.t().sum(0)),
    "permuted_1": (CUBE, lambda x: x.permute(2, 0, 1).sum(1)),
    "permuted_02": (CUBE, lambda x: x.permute(2, 0, 1).sum((0, 2))),
    "half_rows": ((4096, 8192), lambda x: half(x).sum(1)), "half_columns": ((4096, 8192), lambda x: half(x).sum(0)),
}

# Beside loops of scalar C (-O2, no vector instructions, one thread): the expression, the operands that are read, the call.
NAIVE = {"relu": ("x[i] > 0 ? x[i] : 0", 1, lambda torch, x, y: torch.relu(x)),
         "add": ("x[i] + y[i]", 2, lambda torch, x, y: x + y),
         "gelu": ("0.5f * x[i] * (1 + erff(x[i] * 0.70710678f))", 1, lambda torch, x, y: torch.nn.functional.gelu(x))}
# By as many threads as ours.
STREAMING_COPY = """
#include <math.h>
#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif
void copy(const float* x, float* out, int64_t n, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t b = 0; b < n / 1024; ++b)
#ifdef __SSE2__
    for (int64_t i = 0; i < 1024; i += 4) _mm_stream_ps(out + b * 1024 + i, _mm_loadu_ps(x + b * 1024 + i));
#else
    memcpy(out + b * 1024, x + b * 1024, 4096);
#endif
}
"""
SIZES = {"": MANY[0], ".256k": 1 << 18, ".64k": 1 << 16}


def naive_loops(folder):
    import ctypes
    import subprocess
    text = STREAMING_COPY + "".join(
        f"void {name}(const float* x, const float* y, float* out, int64_t n) "
        f"{{ for (int64_t i = 0; i < n; ++i) out[i] = {expression}; }}\n" for name, (expression, *_) in NAIVE.items())
    (folder / "naive.c").write_text(text)
    subprocess.run(["cc", "-O2", "-fno-tree-vectorize", "-fopenmp", "-shared", "-fPIC", "naive.c", "-o", "naive.so", "-lm"],
                   cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "naive.so"))


def compare(name, ours, peer, peer_name, scale=1.0, also=None, clock=time.process_time):
    """scale: how many times the peer's work ours is. also: a line's name, a third side and a scale, told beside the ratio."""
    more = {} if also is None else {also[0]: also[1]}
    rows = bursts([ours, peer, *more.values()], clock=clock)
    x, y, *others = [statistics.median(row) * 1e3 for row in rows]
    told = {label: round(also[2] * z / x, 3) for label, z in zip(more, others)}
    more = {"also": told} if told else {}
    report(name, x, y, peer_name, "ms", ROUNDS, max(map(spread, rows[:2])), ratio=scale * y / x, **more)


def aligned(values):
    """The same at the beginning of a line."""
    memory = np.empty(values.size + 16, "float32")
    at = -memory.ctypes.data // 4 % 16
    memory[at:at + values.size] = values
    return memory[at:at + values.size]


def naive(wanted, sluice, torch):
    import ctypes
    import os
    import pathlib
    import tempfile
    lines = [(f"kernel.naive.{name}{size}", name, size) for name in NAIVE for size in SIZES]
    lines = [line for line in lines if wanted(line[0])]
    if not lines:
        return
    cores = os.cpu_count()
    sluice.set_num_threads(cores)
    with tempfile.TemporaryDirectory() as folder:
        loops = naive_loops(pathlib.Path(folder))
        for line, name, size in lines:
            n, (_, operands, f) = SIZES[size], NAIVE[name]
            x, y = tensor(sluice, (n,)), tensor(sluice, (n,), seed=1)
            given = [aligned(tensor(torch, (n,), seed=k).numpy()) for k in range(3)]
            loop, pointers = getattr(loops, name), [ctypes.c_void_p(v.ctypes.data) for v in given]
            run = lambda: loop(*pointers, ctypes.c_int64(n))
            # A copy of n floats reads and writes each of them: two of the operands + 1 that are moved here.
            copied = lambda: loops.copy(pointers[0], pointers[2], ctypes.c_int64(n), cores)
            bound = None if size else ("share of a streaming copy's bandwidth", copied, (operands + 1) / 2)
            compare(line, lambda: f(sluice, x, y), run, "a scalar loop, one thread", also=bound, clock=time.perf_counter)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("prefix", nargs="?", default="")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    import torch

    import sluice
    for module in (sluice, torch):
        module.set_num_threads(arguments.threads)

    def wanted(name):
        return name.startswith(arguments.prefix)
    for name, make in KERNELS.items():
        if wanted(f"kernel.{name}"):
            compare(f"kernel.{name}", make(sluice), make(torch), "torch")
    for name, (shape, f) in STREAMS.items():
        if not wanted(f"kernel.stream.{name}"):
            continue
        x = tensor(sluice, shape)
        source = half(tensor(torch, shape)) if name.startswith("half") else torch.ones(16 << 20)
        target = torch.ones(source.shape)
        # The copy moves every byte twice; a copy that reads as many bytes as the sum moves twice as many in all.
        compare(f"kernel.stream.{name}", lambda: f(x), lambda: target.copy_(source), "copy", 0.5)
    naive(wanted, sluice, torch)


if __name__ == "__main__":
    main()
