"""The command sluice-quantize."""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import zipfile
from typing import Any, Iterator

import numpy as np

from sluice import _C
from sluice._C import Tensor
from sluice._graph.bundle import load_graph
from sluice._tensor.creation import from_numpy
from sluice._base.progress import with_progress
from sluice.quantization._quantize import METHODS, MODES, quantize
from sluice.serialization import save

HELP = """\
Makes a graph that multiplies 8-bit integers of a saved one, and writes it as a bundle.

MODEL is the directory of a bundle (sluice.save of an nn.Graph), or its plan.json. Start with
  sluice-quantize MODEL --calib images.npy                     fixed scales, chosen from the images
  sluice-quantize MODEL --calib images.npy --method percentile --percentile 99.9
  sluice-quantize MODEL --mode dynamic                         scales from each call; needs no data
  sluice-quantize MODEL --calib images.npy --keep-first --exclude 'head.*'
It prints what was quantized, how large the files are, and how near the results are to those of MODEL on the data.
"""
EPILOG = """\
Data are rows of the graph's input: an .npy file of shape (rows, ...), or an .npz file with an array for each input, by name.
A bundle for batches of 32 takes them 32 by 32; the last ones are taken together with some before them.
"""


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="sluice-quantize", description=HELP, epilog=EPILOG,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL", help="bundle directory, or its plan.json")
    parser.add_argument("-o", "--output", metavar="DIR", help="bundle to write (default: MODEL-int8)")
    parser.add_argument("--calib", metavar="FILE", help="rows of inputs, .npy or .npz; modes static and qdq need them")
    parser.add_argument("--mode", choices=MODES, default="static",
                        help="static: kernels of integers with fixed scales; qdq: the same as pairs of quantize and "
                             "dequantize, from which kernels are made when it is compiled; dynamic: scales from each call "
                             "(default: static)")
    parser.add_argument("--method", choices=METHODS, default="min_max",
                        help="the range of an operand: all that was seen, or --percentile of it (default: min_max)")
    parser.add_argument("--percentile", type=float, default=99.99, metavar="P", help="default: 99.99")
    parser.add_argument("--per-tensor", action="store_true",
                        help="one scale for a weight, instead of one for each output channel")
    parser.add_argument("--exclude", action="append", default=[], metavar="LAYER",
                        help="a layer that stays as it is, by name; * stands for anything; may be repeated")
    parser.add_argument("--keep-first", action="store_true", help="the first layer stays as it is")
    parser.add_argument("--keep-last", action="store_true", help="so does the last one")
    parser.add_argument("--batches", type=int, metavar="N", help="take the first N batches only")
    parser.add_argument("--no-progress", action="store_true", help="draw no bar, as without a terminal")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    try:
        told = run(options)
    except OSError as error:
        parser.exit(2, f"sluice-quantize: {f'{error.filename}: {error.strerror}' if error.filename else error}\n")
    except (_C.Error, ValueError, TypeError, NotImplementedError) as error:
        parser.exit(2, f"sluice-quantize: {error}\n")
    sys.stdout.write(json.dumps(told, indent=1) + "\n" if options.json else text_of(told))


def run(options: argparse.Namespace) -> dict[str, Any]:
    path = pathlib.Path(options.model)
    model = path.parent if path.name == "plan.json" else path
    if not (model / "graph.txt").is_file():
        raise ValueError(f"{path}: no bundle of one graph: there is no {model / 'graph.txt'}; write one with "
                         "sluice.save(graph, directory)")
    output = pathlib.Path(options.output or f"{str(model).rstrip('/')}-int8")
    if options.batches is not None and options.batches < 1:
        raise ValueError(f"--batches: got {options.batches}; must be at least 1")
    if output.resolve() == model.resolve():
        raise ValueError(f"--output: {output} is the model; write to another directory")
    if options.calib is None and options.mode != "dynamic":
        raise ValueError(f"--calib: mode {options.mode} needs rows of inputs; give a file, or --mode dynamic")
    graph = load_graph(model)
    batches = [] if options.calib is None else list(batches_of(graph, options.calib))[: options.batches]
    shown = False if options.no_progress else None
    small = quantize(graph, batches, mode=options.mode, method=options.method, percentile=options.percentile,
                     per_channel=not options.per_tensor, exclude=options.exclude, keep_first=options.keep_first,
                     keep_last=options.keep_last, progress=shown)
    save(small, output)
    told = {"model": str(model), "output": str(output), "mode": options.mode,
            "layers": [layer._asdict() for layer in small.layers], "kept": small.kept,
            "bytes": {"before": size_of(model), "after": size_of(output)}}
    if batches:
        told["results"] = compared(graph, small, with_progress(batches, f"{model}: results", shown))
    return told


def batches_of(graph: Any, path: str) -> Iterator[dict[str, Any]]:
    """Arguments by input name, each as many rows as the graph takes."""
    ports = {name: (dtype, tuple(shape)) for name, dtype, shape in graph.inputs}
    if without := [name for name, (_, shape) in ports.items() if not shape or shape[0] == 0]:
        raise ValueError(f"--calib: input '{without[0]}' of the graph has no rows; call sluice.quantization.quantize with "
                         "batches")
    try:
        loaded = np.load(path, allow_pickle=False)
        arrays = dict(loaded) if hasattr(loaded, "files") else {graph.inputs[0][0]: loaded}
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path}: no arrays of NumPy: {error}; write it with numpy.save or numpy.savez") from error
    if sorted(arrays) != sorted(ports):
        raise ValueError(f"{path}: holds {sorted(arrays)}; the graph takes {sorted(ports)}: give an .npz file with an array "
                         "for each")
    rows = {name: array.shape[0] if array.ndim else 0 for name, array in arrays.items()}
    for name, (_, shape) in ports.items():
        if arrays[name].ndim != len(shape) or arrays[name].shape[1:] != shape[1:] or rows[name] < shape[0]:
            raise ValueError(f"{path}: {name} is {arrays[name].shape}; the graph takes {shape}: give at least "
                             f"{shape[0]} rows of {shape[1:]}")
    steps = {name: -(-rows[name] // shape[0]) for name, (_, shape) in ports.items()}
    if len(set(steps.values())) > 1:
        raise ValueError(f"{path}: rows differ: they make {steps} batches; give as many of each input")
    for step in range(next(iter(steps.values()))):
        batch = {}
        for name, (dtype, shape) in ports.items():
            begin = min(step * shape[0], rows[name] - shape[0])
            batch[name] = from_numpy(np.ascontiguousarray(arrays[name][begin : begin + shape[0]])).to(dtype)
        yield batch


def size_of(directory: pathlib.Path) -> int:
    return sum(file.stat().st_size for file in directory.iterdir() if file.is_file())


def compared(graph: Any, small: Any, batches: Any) -> dict[str, float]:
    """The first results of both on the same batches: how far apart, and how often the largest of a row is the same one."""
    worst = largest = 0.0
    same = rows = 0
    for batch in batches:
        a, b = (np.asarray(first_of(call(**batch)).float().numpy()) for call in (graph, small))
        if a.size:
            worst, largest = max(worst, float(np.abs(a - b).max())), max(largest, float(np.abs(a).max()))
        if a.ndim >= 2 and a.shape[-1] > 1:
            same, rows = same + int((a.argmax(-1) == b.argmax(-1)).sum()), rows + a[..., 0].size
    told = {"largest_difference": worst, "largest_value": largest}
    return {**told, "same_largest": same / rows} if rows else told


def first_of(result: Any) -> Any:
    while not isinstance(result, Tensor):
        result = next(iter(result.values() if isinstance(result, dict) else result))
    return result


def text_of(told: dict[str, Any]) -> str:
    width = max(len(layer["name"]) for layer in told["layers"])
    lines = [f"{told['model']} -> {told['output']}, {told['mode']}"]
    for layer in told["layers"]:
        fixed = layer["scale"] is not None
        scale = f"scale {layer['scale']:.6g}, zero point {layer['zero_point']}" if fixed else "scale of each call"
        lines.append(f"  {layer['name']:{width}}  {layer['op']:6}  {scale}")
    lines += [f"  {name:{width}}  as it was" for name in told["kept"]]
    before, after = told["bytes"]["before"], told["bytes"]["after"]
    lines.append(f"files: {before:,} bytes before, {after:,} now ({after / before:.1%})")
    if results := told.get("results"):
        same = f"; the largest of a row is the same in {results['same_largest']:.2%}" if "same_largest" in results else ""
        apart, largest = results["largest_difference"], results["largest_value"]
        lines.append(f"results: at most {apart:.3g} apart, of at most {largest:.3g}{same}")
    return "\n".join(lines) + "\n"
