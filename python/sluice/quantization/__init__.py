"""Post-training quantization: trained networks whose convolutions and products multiply 8-bit integers.

    batches = (images for images, _ in loader)                  # some hundred, as the network will see them
    small = sluice.quantization.quantize(model, batches)        # a module, an nn.Graph, or the directory of a bundle
    small(images)
    sluice.save(small, "folder")                                # about a quarter of the size; runs without Python, too

`sluice-quantize` does the same to a bundle on the command line.

Training that knows of the rounding loses less: `graph.config.enable_quantization_aware_training()` (or prepare(model), without a graph)
has layers round and observe, and convert(model, images) makes the graph of integers.
"""

from sluice.nn.modules.quantization import QatConfig
from sluice.quantization._quantize import Layer, QuantizedGraph, quantize
from sluice.quantization._training import convert, prepare

__all__ = ["convert", "Layer", "prepare", "QatConfig", "QuantizedGraph", "quantize"]
