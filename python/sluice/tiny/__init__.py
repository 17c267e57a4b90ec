"""Graphs for microcontrollers: inference and training steps as C that needs no Sluice, no operating system and no heap.

    step = TrainStep(net)                                        # an nn.Graph, with an optimizer or without
    step(images, labels)                                         # compiled
    sluice.tiny.export(step, "out/digits", samples=batches)      # C, header, linker script, Makefile, known steps
    # make -C out/digits check; make -C out/digits run-cortex-m4

Networks of 8-bit integers that train so:

    net = sluice.tiny.quantize(model, batches)                   # int8 weights, 8-bit activations
    step = sluice.tiny.TrainStep(net, lr=0.01, scheme="full")    # or "last-only", "bias-only", a file that says which tensors

The same plan runs in the engine on device "c:0", whose kernels are made of the same C: sluice.load_graph(path, device="c:0").
"""

from sluice.tiny._export import Exported, Tensor, export
from sluice.tiny._int8 import Int8Conv2d, Int8Linear
from sluice.tiny._picture import draw
from sluice.tiny._quantize import quantize, write_scales
from sluice.tiny._scales import Format
from sluice.tiny._search import Contribution, Found, Trial, search
from sluice.tiny._table import MemoryRow, MemoryTable, memory_table
from sluice.tiny._training import PRESETS, Scheme, TrainStep

__all__ = ["PRESETS", "Contribution", "Exported", "Format", "Found", "Int8Conv2d", "Int8Linear", "MemoryRow", "MemoryTable", "Scheme",
           "Tensor", "TrainStep", "Trial", "draw", "export", "memory_table", "quantize", "search", "write_scales"]
