#pragma once
// JPEG files, by libjpeg-turbo.
#include "kernels/cpu/images/image_reader.h"

namespace sluice::cpu {

// REQUIRES: the file begins as JPEG files do. Else as open_image().
std::unique_ptr<ImageReader> open_jpeg(EncodedFile& file, const ImageLimits& limits);

}  // namespace sluice::cpu
