"""Post-training quantization: trained networks whose convolutions and products multiply 8-bit integers.

    batches = (images for images, _ in loader)                  # some hundred, as the network will see them
    small = sluice.quantization.quantize(model, batches)        # a module, an nn.Graph, or the directory of a bundle
    small(images)
    sluice.save(small, "folder")                                # about a quarter of the size; runs without Python, too

`sluice-quantize` does the same to a bundle on the command line. For training that knows of the rounding see nn.QatConv2d.
"""

from sluice.quantization._quantize import Layer, QuantizedGraph, quantize

__all__ = ["Layer", "QuantizedGraph", "quantize"]
