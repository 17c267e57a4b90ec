#include "graph/ops/images.h"

#include "base/files/packed_files.h"
#include "graph/executor.h"
#include "graph/ops/common.h"

namespace sluice::ops {
namespace {

constexpr int64_t kMostPixels = 65500;  // along an axis, as in JPEG files

std::vector<TensorType> infer_decode_jpeg(Types in, Present present, const Attrs& attrs) {
  const int64_t count = attr<int64_t>(attrs, 0), height = attr<int64_t>(attrs, 1), width = attr<int64_t>(attrs, 2),
                channels = attr<int64_t>(attrs, 3);
  SLUICE_CHECK(count >= 0, "count: {}; must not be negative", count);
  SLUICE_CHECK(height >= 1 && width >= 1 && height <= kMostPixels && width <= kMostPixels,
               "size: ({}, {}); must be 1 to {} pixels each", height, width, kMostPixels);
  SLUICE_CHECK(channels == 1 || channels == 3, "channels: {}; must be 1 (gray) or 3 (RGB)", channels);
  SLUICE_CHECK_KIND(kType, in[0].dtype == DType::kUInt8 && in[0].shape.rank() == 1,
                    "files: is {}; must be bytes, uint8 of one axis, as io.pack makes them", in[0].str());
  SLUICE_CHECK(in[0].shape[0] / PackedFile::kHeadBytes >= count, "files: {} bytes; {} files take {} at least",
               in[0].shape[0], count, count * PackedFile::kHeadBytes);
  const bool numbers = in[1].dtype == DType::kFloat32 || in[1].dtype == DType::kFloat64;
  SLUICE_CHECK(!present[1] || (numbers && in[1].shape == Shape{count, 4}),
               "boxes: is {}; must be float32({}, 4): top, left, height and width of each image", in[1].str(), count);
  SLUICE_CHECK(!present[2] || (in[2].dtype == DType::kBool && in[2].shape == Shape{count}),
               "flip: is {}; must be bool({},)", in[2].str(), count);
  return {{DType::kUInt8, Shape{count, channels, height, width}}};
}

std::vector<Sample> samples() {
  const SampleInput none{.shape = {200}, .dtype = DType::kUInt8, .low = 0, .high = 0};  // images that are not there
  const SampleInput boxes{.shape = {3, 4}, .low = 0, .high = 1}, flip{.shape = {3}, .dtype = DType::kBool};
  const SampleInput absent{.shape = {}, .absent = true};
  const Attrs attrs{int64_t{3}, int64_t{4}, int64_t{5}, int64_t{3}};
  return {{.inputs = {none, absent, absent}, .attrs = attrs}, {.inputs = {none, boxes, flip}, .attrs = attrs}};
}

const OpDef decode_jpeg_def{
    .name = "decode_jpeg",
    .doc =
        "Reads and decodes JPEG files, takes a box of each image, resizes it with a linear filter as wide as the "
        "scale (as Pillow's), and flips it left to right: uint8 (count, channels, height, width). `files`: uint8, "
        "as io.pack makes them; of one that is not there the image is black. `boxes`: float32 or float64 (count, 4), "
        "top, left, "
        "height and width in parts of the image, rounded to pixels; what is outside is left out. `flip`: bool (count).",
    .inputs = {"files", "boxes?", "flip?"},
    .params = {{.name = "count", .default_value = int64_t{1}, .required = true},
               {.name = "height", .default_value = int64_t{1}, .required = true},
               {.name = "width", .default_value = int64_t{1}, .required = true},
               {.name = "channels", .default_value = int64_t{3}}},
    .infer = infer_decode_jpeg,
    .grad = [](const GradContext&) -> std::vector<Value> {
      return {Value(), Value(), Value()};
    },
    .sbp = broadcast_sbp,
    .cost = [](Types in, Types out, const Attrs&) -> Cost {
      return {.flops = 400.0 * static_cast<double>(numel(out[0].shape)), .bytes = operand_bytes(in, out)};
    },
    .samples = samples()};

}  // namespace

std::span<const OpDef* const> images_ops() {
  static const OpDef* const ops[] = {&decode_jpeg_def};
  return ops;
}

Value decode_jpeg(const Value& files, const Value& boxes, const Value& flip, int64_t count, int64_t height,
                  int64_t width, int64_t channels) {
  return call1(decode_jpeg_def, {files, boxes, flip}, {count, height, width, channels});
}

}  // namespace sluice::ops
