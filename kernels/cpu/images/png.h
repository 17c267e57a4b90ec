#pragma once
// PNG files, by libpng. Transparency is left out, as Pillow's convert("RGB") leaves it out; of 16 bits the higher 8
// stay.
#include "kernels/cpu/images/image_reader.h"

namespace sluice::cpu {

// REQUIRES: the file begins as PNG files do. Else as open_image().
std::unique_ptr<ImageReader> open_png(EncodedFile& file, const ImageLimits& limits);

}  // namespace sluice::cpu
