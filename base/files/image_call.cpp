#include "base/files/image_call.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"

namespace sluice {
namespace {

template <class Choice, size_t n>
Choice chosen(const NamedAttrs& attrs, const char* name, const std::array<std::string_view, n>& names) {
  const std::string& given = get_attr<std::string>(attrs, name);
  const auto found = std::find(names.begin(), names.end(), given);
  SLUICE_CHECK(found != names.end(), "{}: '{}'; must be one of {}", name, given, fmt::join(names, ", "));
  return static_cast<Choice>(found - names.begin());
}

// Plans that were saved before there were meters have none.
int64_t meter_of(const NamedAttrs& attrs) {
  const auto is_meter = [](const auto& attr) { return attr.first == "meter"; };
  return std::any_of(attrs.begin(), attrs.end(), is_meter) ? get_attr<int64_t>(attrs, "meter") : 0;
}

}  // namespace

ImageCall::ImageCall(const NamedAttrs& attrs)
    : crop(chosen<ImageCrop, 3>(attrs, "crop", {"box", "random", "central"})),
      crop_numbers(get_attr<Doubles>(attrs, "crop_numbers")),
      flip(get_attr<double>(attrs, "flip_probability")),
      mean(get_attr<Doubles>(attrs, "mean")),
      std(get_attr<Doubles>(attrs, "std")),
      policy(chosen<ImagePolicy, 4>(attrs, "on_error", {"raise", "mark", "replace", "skip"})),
      salt(get_attr<int64_t>(attrs, "salt")),
      pixels(get_attr<int64_t>(attrs, "max_pixels")),
      bytes(get_attr<int64_t>(attrs, "max_bytes")),
      scans(get_attr<int64_t>(attrs, "max_scans")),
      decoder_bytes(get_attr<int64_t>(attrs, "max_decoder_bytes")),
      meter(meter_of(attrs)),
      has_status(true) {
  const std::vector<double>& n = crop_numbers;
  const size_t wanted = crop == ImageCrop::kRandom ? 4 : crop == ImageCrop::kCentral ? 1 : 0;
  SLUICE_CHECK(n.size() == wanted, "crop_numbers: {} numbers; must be {} for this crop", n.size(), wanted);
  SLUICE_CHECK(crop != ImageCrop::kRandom || (n[0] > 0 && n[0] <= n[1] && n[1] <= 1),
               "crop_numbers: area from {} to {}; must be in (0, 1], and in this order", n[0], n[1]);
  SLUICE_CHECK(crop != ImageCrop::kRandom || (n[2] > 0 && n[2] <= n[3] && n[3] < 1e6),
               "crop_numbers: ratio from {} to {}; must be positive, and in this order", n[2], n[3]);
  SLUICE_CHECK(crop != ImageCrop::kCentral || (n[0] >= 1 && n[0] <= 1e6),
               "crop_numbers: the shorter side has {} pixels; must be 1 to 1000000", n[0]);
  SLUICE_CHECK(flip >= 0 && flip <= 1, "flip_probability: {}; must be a probability, in [0, 1]", flip);
  SLUICE_CHECK(mean.size() == std.size(), "mean, std: {} and {} numbers; must be as many", mean.size(), std.size());
  for (const double s : std) SLUICE_CHECK(s > 0, "std: {}; must be positive", s);
  SLUICE_CHECK(pixels >= 1 && bytes >= 1 && scans >= 1 && decoder_bytes >= 1,
               "max_pixels, max_bytes, max_scans, max_decoder_bytes: {}, {}, {}, {}; must be positive", pixels, bytes,
               scans, decoder_bytes);
}

}  // namespace sluice
