#pragma once
// The attributes of a call of decode_image, as its definition and its kernels read them.
#include <cstdint>
#include <vector>

#include "base/attr.h"

namespace sluice {

// An image is shown in part: its box; a part of random size and place; what resizing and a cut in the middle leave.
enum class ImageCrop : uint8_t { kBox, kRandom, kCentral };
// An image that cannot be made has a policy: the call fails; it is black; it is replaced by the next one of the
// batch that could be made; the others take its place.
enum class ImagePolicy : uint8_t { kRaise, kMark, kReplace, kSkip };
// The fate of an image, as the call's second result says it.
enum class ImageStatus : uint8_t { kGood, kAbsent, kUnreadable, kBroken };

struct ImageCall {
  ImageCall() = default;
  // Throws kValue where an attribute says nothing that can be done; kType, where it is no such attribute.
  explicit ImageCall(const NamedAttrs& attrs);
  bool tells() const { return has_status; }

  ImageCrop crop = ImageCrop::kBox;
  // The least and most area, and ratio of width to height, for kRandom; the shorter side for kCentral.
  std::vector<double> crop_numbers;
  double flip = 0;  // the probability of a flip, by the key
  std::vector<double> mean, std;
  ImagePolicy policy = ImagePolicy::kRaise;
  int64_t salt = 0;
  int64_t pixels = int64_t{1} << 28, bytes = int64_t{1} << 30, scans = 500, decoder_bytes = int64_t{1} << 31;
  int64_t meter = 0;  // of image_use.h; 0: nobody asks
  bool has_status = false;
};

}  // namespace sluice
