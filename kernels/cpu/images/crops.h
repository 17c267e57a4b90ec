#pragma once
// Which part of an image is shown. What is random comes from the sample's key and the image's size alone.
#include <array>
#include <cstdint>
#include <span>

#include "kernels/cpu/images/image_reader.h"

namespace sluice::cpu {

// The pixels of an axis that begin and length, in parts of the image, name: at least one. Throws kValue where they lie
// outside.
PixelRange part_of(int64_t size, double begin, double length);

// A part whose area is from scale[0] to scale[1], and of a ratio of width to height from ratio[0] to ratio[1]; as
// torchvision's RandomResizedCrop, in its own random numbers. `words`: random ones.
constexpr int kCropWords = 40;
Box random_resized_box(int64_t height, int64_t width, std::span<const double> scale_and_ratio,
                       std::span<const uint32_t, kCropWords> words);

// The box that torchvision's Resize(shorter) and CenterCrop((crop_height, crop_width)) leave.
Box central_box(int64_t height, int64_t width, double shorter, int64_t crop_height, int64_t crop_width);

}  // namespace sluice::cpu
