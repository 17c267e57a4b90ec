"""Asks a served classifier for the class of an image, with Triton's own client.

    python examples/serving/client.py --model digits --image digit.png --grey 8 --scale 16
    python examples/serving/client.py --model resnet50 --image cat.jpg                      224 x 224, RGB, in 0..1
"""

import argparse
from typing import Any

import numpy as np
import tritonclient.http as httpclient  # type: ignore[import-untyped]
from PIL import Image


def preprocess(path: str, size: int = 224, grey: bool = False, scale: float = 1.0) -> Any:
    """(1, channels, size, size) of float32 in 0..scale."""
    image = Image.open(path).convert("L" if grey else "RGB").resize((size, size))
    pixels = np.asarray(image, np.float32) / 255 * scale
    pixels = pixels[..., None] if grey else pixels
    return np.ascontiguousarray(np.expand_dims(pixels, 0).transpose(0, 3, 1, 2))  # NHWC to NCHW


def classify(client: Any, model: str, image: Any, class_count: int = 1) -> Any:
    """The most probable classes, each as b"value:index", or b"value:index:label" where the model has labels."""
    tensor = httpclient.InferInput("INPUT_0", image.shape, "FP32")
    tensor.set_data_from_numpy(image, binary_data=True)
    wanted = httpclient.InferRequestedOutput("OUTPUT_0", binary_data=True, class_count=class_count)
    return client.infer(model, inputs=[tensor], outputs=[wanted]).as_numpy("OUTPUT_0")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", default="127.0.0.1:8000")
    parser.add_argument("--model", default="digits")
    parser.add_argument("--image", required=True, help="any file that PIL opens")
    parser.add_argument("--grey", type=int, metavar="SIZE", help="one channel of SIZE x SIZE, instead of RGB of 224 x 224")
    parser.add_argument("--scale", type=float, default=1.0, help="what white is")
    parser.add_argument("--classes", type=int, default=1)
    args = parser.parse_args()
    image = preprocess(args.image, args.grey or 224, bool(args.grey), args.scale)
    client = httpclient.InferenceServerClient(url=args.url)
    print(list(classify(client, args.model, image, args.classes)))


if __name__ == "__main__":
    main()
