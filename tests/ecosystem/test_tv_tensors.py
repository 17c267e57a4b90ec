"""torchvision's transforms v2 on Sluice: images, boxes and masks are tensors of its own classes, and results are torch's."""

import numpy as np
import pytest
import torch

import sluice as sl
from ecosystem import beside

pytestmark = pytest.mark.skipif(not beside.INSTALLED, reason="the packages do not lie beside the environment: tools/setup.sh puts them there")
LIBS = (sl, torch)


@pytest.fixture(scope="module")
def v2():
    return beside.modules("torchvision.transforms.v2")


@pytest.fixture(scope="module")
def kinds():
    return beside.modules("torchvision.tv_tensors")


def sample(lib, tv):
    """A picture, two boxes, two masks, a label."""
    draw = np.random.default_rng(0)
    image = (np.add.outer(np.arange(40), np.arange(60)) * 2 % 256 + draw.integers(0, 20, (3, 40, 60))).clip(0, 255).astype(np.uint8)
    masks = np.zeros((2, 40, 60), bool)
    masks[0, 4:20, 10:30] = masks[1, 15:35, 25:55] = True
    make = torch.from_numpy if lib is torch else sl.from_numpy
    boxes = tv.BoundingBoxes(make(np.array([[10, 4, 30, 20], [25, 15, 55, 35]], np.float32)), format="XYXY", canvas_size=(40, 60))
    return {"image": tv.Image(make(image)), "boxes": boxes, "masks": tv.Mask(make(masks)), "label": 3}


def check(v2, kinds, make, tolerance=1e-5):
    results = [make(v2[i])(sample(LIBS[i], kinds[i])) for i in range(2)]
    ours, theirs = results
    assert ours["label"] == theirs["label"] == 3
    for part in ("image", "boxes", "masks"):
        got, expected = ours[part], theirs[part]
        assert type(got).__name__ == type(expected).__name__ and tuple(got.shape) == tuple(expected.shape)
        assert str(got.dtype).rpartition(".")[2] == str(expected.dtype).rpartition(".")[2]
        a, b = (np.asarray(t.as_subclass(lib.Tensor).numpy()).astype(np.float64) for t, lib in zip((got, expected), LIBS))
        assert np.abs(a - b).max(initial=0) <= (1 if got.dtype == sl.uint8 else tolerance), part
    assert ours["boxes"].canvas_size == theirs["boxes"].canvas_size and ours["boxes"].format.name == theirs["boxes"].format.name


FIXED = {
    "resize": lambda v: v.Resize((32, 48)), "flip": lambda v: v.RandomHorizontalFlip(1.0), "vertical": lambda v: v.RandomVerticalFlip(1.0),
    "crop": lambda v: v.CenterCrop((24, 36)), "pad": lambda v: v.Pad([2, 3]), "gray": lambda v: v.Grayscale(3),
    "invert": lambda v: v.RandomInvert(1.0), "solarize": lambda v: v.RandomSolarize(100, 1.0), "posterize": lambda v: v.RandomPosterize(3, 1.0),
    "equalize": lambda v: v.RandomEqualize(1.0),
    "blur": lambda v: v.GaussianBlur(5, (1.1, 1.1)), "rotate": lambda v: v.RandomRotation((90, 90)),
    "autocontrast": lambda v: v.RandomAutocontrast(1.0), "sharpness": lambda v: v.RandomAdjustSharpness(2.0, 1.0),
    "format": lambda v: v.ConvertBoundingBoxFormat("CXCYWH"), "clamp": lambda v: v.Compose([v.Pad(1), v.ClampBoundingBoxes()]),
    "sanitize": lambda v: v.SanitizeBoundingBoxes(labels_getter=None),
    "pipeline": lambda v: v.Compose([v.Resize((36, 54)), v.CenterCrop(32), v.RandomHorizontalFlip(1.0), v.ToImage()]),
}


@pytest.mark.parametrize("name", FIXED)
def test_transforms_give_torchs_tensors(v2, kinds, name):  # ECO-08
    check(v2, kinds, FIXED[name])


def test_images_become_what_networks_take(v2, kinds):
    def make(v):
        lib = LIBS[v2.index(v)]
        return v.Compose([v.ToDtype(lib.float32, scale=True), v.Normalize([0.5, 0.4, 0.3], [0.2, 0.3, 0.2])])

    check(v2, kinds, lambda v: lambda s: {**sample_of(make(v), s), "label": s["label"]})


def sample_of(transform, s):
    return {**s, "image": transform(s["image"])}


def test_drawn_transforms_move_boxes_with_their_images(v2, kinds):
    """What is drawn is not torch's number by number in all of them: the parts agree with one another."""
    for seed in range(3):
        sl.manual_seed(seed)
        got = v2[0].Compose([v2[0].RandomResizedCrop((24, 24), antialias=True), v2[0].RandomHorizontalFlip(0.5)])(sample(sl, kinds[0]))
        assert got["image"].shape == (3, 24, 24) and got["masks"].shape == (2, 24, 24) and got["boxes"].canvas_size == (24, 24)


def test_operations_give_plain_tensors_and_some_keep_the_class(kinds):
    for lib, tv in zip(LIBS, kinds):
        image = sample(lib, tv)["image"]
        assert type(image + 1) is lib.Tensor and type(image.float()) is lib.Tensor and type(image.clone()) is tv.Image
        assert type(image.to(lib.float32)) is tv.Image and type(image.detach()) is tv.Image
        with tv.set_return_type("TVTensor"):
            assert type(image + 1) is tv.Image
        boxes = sample(lib, tv)["boxes"]
        wrapped = tv.wrap(boxes * 2, like=boxes)
        assert type(wrapped) is tv.BoundingBoxes and wrapped.canvas_size == (40, 60) and boxes.clone().format.name == "XYXY"
        assert isinstance(image, lib.Tensor) and "Image(" in repr(image)


def test_mixup_and_cutmix_draw_as_torch_does(v2):
    for name in ("MixUp", "CutMix"):
        made = []
        for i, lib in enumerate(LIBS):
            lib.manual_seed(0)
            images, labels = getattr(v2[i], name)(num_classes=4)(lib.arange(2 * 3 * 8 * 8.0).reshape(2, 3, 8, 8), lib.tensor([1, 3]))
            made.append((tuple(images.shape), tuple(labels.shape), round(float(labels.sum()), 4)))
        assert made[0] == made[1]
