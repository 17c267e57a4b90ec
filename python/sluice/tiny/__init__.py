"""Graphs for microcontrollers: inference and training steps as C that needs no Sluice, no operating system and no heap.

    step = TrainStep(net)                                        # an nn.Graph, with an optimizer or without
    step(images, labels)                                         # compiled
    sluice.tiny.export(step, "out/digits", samples=batches)      # C, header, linker script, Makefile, known steps
    # make -C out/digits check; make -C out/digits run-cortex-m4

The same plan runs in the engine on device "c:0", whose kernels are made of the same C: sluice.load_graph(path, device="c:0").
"""

from sluice.tiny._export import Exported, Tensor, export

__all__ = ["Exported", "Tensor", "export"]
