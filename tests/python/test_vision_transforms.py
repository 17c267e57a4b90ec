"""torchvision's transforms on Sluice's tensors (sluice.vision.transforms) give torch's pixels, of a photograph."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_sample_image

import sluice as sl
from torchvision_beside import both, needs_torchvision

pytestmark = needs_torchvision
IMAGE = np.ascontiguousarray(load_sample_image("china.jpg")[:200, :301].transpose(2, 0, 1))


@pytest.fixture(scope="module")
def transforms():
    with both("transforms") as modules:
        yield modules


def check_pixels(transforms, apply, ties=0.0):
    """apply(transforms, library, image) within one step of a byte of torch's, but for a share of `ties`: pixels that lie in the middle of
    two, of which the last bit of a coordinate chooses one."""
    ours = apply(transforms[0], sl, sl.from_numpy(IMAGE))
    theirs = apply(transforms[1], torch, torch.from_numpy(IMAGE))
    assert ours.shape == theirs.shape and str(ours.dtype).rpartition(".")[2] == str(theirs.dtype).rpartition(".")[2]
    far = np.abs(ours.numpy().astype(np.float64) - theirs.numpy().astype(np.float64))
    assert (far > (1 if ours.dtype == sl.uint8 else 1e-5)).mean() <= ties


FUNCTIONS = {
    "resize": ([100, 120],), "center_crop": ([90, 70],), "crop": (10, 20, 64, 63), "resized_crop": (10, 20, 100, 90, [64, 64]), "hflip": (),
    "vflip": (), "rgb_to_grayscale": (3,), "adjust_brightness": (1.3,), "adjust_contrast": (0.7,), "adjust_saturation": (1.6,),
    "adjust_hue": (0.1,), "adjust_gamma": (1.4,), "gaussian_blur": ([5, 5], [1.1, 1.1]), "posterize": (3,), "solarize": (100,),
    "autocontrast": (), "equalize": (), "invert": (), "adjust_sharpness": (2.0,), "rotate": (30,), "affine": (10.0, [3, 4], 1.1, [5.0, 2.0]),
    "pad": ([2, 3],), "five_crop": ([50, 60],),
    "perspective": ([[0, 0], [299, 0], [299, 199], [0, 199]], [[5, 6], [280, 3], [290, 190], [8, 185]]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_give_torchs_pixels(transforms, name):  # FV-10
    def apply(transforms, library, image):
        got = getattr(transforms.functional, name)(image, *FUNCTIONS[name])
        return library.stack(list(got)) if isinstance(got, tuple) else got

    check_pixels(transforms, apply)


# RandAugment, AutoAugment and TrivialAugment choose from these.
AUGMENTATIONS = {"ShearX": 0.2, "ShearY": -0.2, "TranslateX": 20, "TranslateY": -10, "Rotate": 20.0, "Brightness": 0.4, "Color": -0.5,
                 "Contrast": 0.5, "Sharpness": 0.6, "Posterize": 4, "Solarize": 120, "AutoContrast": 0, "Equalize": 0,
                 "Invert": 0}


@pytest.mark.parametrize("name", AUGMENTATIONS)
@pytest.mark.parametrize("filter_", ["NEAREST", "BILINEAR"])
def test_what_is_drawn_from_gives_torchs_pixels(transforms, name, filter_):  # FV-10
    def apply(transforms, library, image):
        return transforms.autoaugment._apply_op(image, name, AUGMENTATIONS[name], transforms.InterpolationMode[filter_], None)

    check_pixels(transforms, apply, ties=0.02 if filter_ == "NEAREST" and name in ("ShearX", "ShearY", "Rotate") else 0.0)


def test_classes_prepare_and_augment(transforms):
    def prepared(transforms, library, image):
        return transforms.Compose([transforms.Resize(80), transforms.CenterCrop(64), transforms.ConvertImageDtype(library.float32),
                                   transforms.Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.2))])(image)

    ours, theirs = prepared(transforms[0], sl, sl.from_numpy(IMAGE)), prepared(transforms[1], torch, torch.from_numpy(IMAGE))
    assert ours.shape == theirs.shape and np.abs(ours.numpy() - theirs.numpy()).max() <= 1 / 255 / 0.2 + 1e-5
    t, image = transforms[0], sl.from_numpy(IMAGE)
    random = [t.RandAugment(), t.AutoAugment(), t.TrivialAugmentWide(), t.AugMix(), t.RandomCrop(64), t.RandomHorizontalFlip(), t.RandomErasing(1.0),
              t.ColorJitter(0.3, 0.3, 0.3, 0.1), t.RandomResizedCrop(64), t.RandomAffine(20), t.RandomPerspective(), t.ElasticTransform()]
    for transform in random:
        sl.manual_seed(3)
        first = transform(image)
        sl.manual_seed(3)
        assert first.dtype == sl.uint8 and sl.equal(first, transform(image)), transform
