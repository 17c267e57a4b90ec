#pragma once
// WebP files, by libwebp, in builds that have found it. Transparency is left out, as Pillow's convert("RGB") leaves it
// out.
#include "kernels/cpu/images/image_reader.h"

namespace sluice::cpu {

// Does this build read them?
bool reads_webp();
// Is it the beginning of such a file? 12 bytes tell.
bool looks_like_webp(std::span<const std::byte> first);
// REQUIRES: the file begins as WebP files do. Else as open_image(); throws kUnsupported in builds that do not read
// them.
std::unique_ptr<ImageReader> open_webp(EncodedFile& file, const ImageLimits& limits);

}  // namespace sluice::cpu
