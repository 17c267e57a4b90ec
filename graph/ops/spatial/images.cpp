#include "graph/ops/images.h"

#include "base/files/image_call.h"
#include "base/files/packed_files.h"
#include "graph/executor.h"
#include "graph/ops/common.h"

namespace sluice::ops {
namespace {

extern const OpDef decode_image_def;

constexpr int64_t kMostPixels = 65500;  // along an axis, as in JPEG files

TensorType infer_images(Types in, Present present, const Attrs& attrs) {
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
  return {DType::kUInt8, Shape{count, channels, height, width}};
}

std::vector<TensorType> infer_decode_image(Types in, Present present, const Attrs& attrs) {
  TensorType images = infer_images(in, present, attrs);
  const int64_t count = images.shape[0], channels = images.shape[1];
  images.dtype = attr<DType>(attrs, 4);
  const ImageCall call(name_attrs(decode_image_def, attrs));
  const bool floats = images.dtype == DType::kFloat32 || images.dtype == DType::kBFloat16;
  SLUICE_CHECK_KIND(kType, floats || images.dtype == DType::kUInt8, "dtype: {}; must be uint8, float32 or bfloat16",
                    dtype_name(images.dtype));
  SLUICE_CHECK(call.mean.empty() || (floats && call.mean.size() == static_cast<size_t>(channels)),
               "mean: {} numbers for {} channels of {}; must be one each, of float32 or bfloat16", call.mean.size(),
               channels, dtype_name(images.dtype));
  SLUICE_CHECK(!present[3] || (in[3].dtype == DType::kInt64 && in[3].shape == Shape{count, 2}),
               "keys: is {}; must be int64({}, 2)", in[3].str(), count);
  SLUICE_CHECK(present[3] || (call.crop != ImageCrop::kRandom && call.flip == 0),
               "keys: none; random crops and flips are drawn from a key for each image");
  return {images, {DType::kUInt8, Shape{count}}, {DType::kInt64, Shape{count}}};
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
    .infer = [](Types in, Present present, const Attrs& attrs) -> std::vector<TensorType> {
      return {infer_images(in, present, attrs)};
    },
    .grad = [](const GradContext&) -> std::vector<Value> {
      return {Value(), Value(), Value()};
    },
    .sbp = broadcast_sbp,
    .cost = [](Types in, Types out, const Attrs&) -> Cost {
      return {.flops = 400.0 * static_cast<double>(numel(out[0].shape)), .bytes = operand_bytes(in, out)};
    },
    .samples = samples()};

std::vector<Sample> decode_image_samples(const OpDef& op) {
  const SampleInput none{.shape = {200}, .dtype = DType::kUInt8, .low = 0, .high = 0};  // images that are not there
  const SampleInput keys{.shape = {3, 2}, .dtype = DType::kInt64, .low = 0, .high = 100};
  const auto attrs = [&op](DType dtype, Doubles mean, std::string crop, Doubles numbers, double flip) -> Attrs {
    Attrs all{int64_t{3}, int64_t{4}, int64_t{5},      int64_t{3},         dtype,
              mean,       mean,       std::move(crop), std::move(numbers), flip};
    for (size_t i = all.size(); i < op.params.size(); ++i) all.push_back(op.params[i].default_value);
    return all;
  };
  return {{.inputs = {none, kAbsent, kAbsent, kAbsent}, .attrs = attrs(DType::kUInt8, {}, "box", {}, 0)},
          {.inputs = {none, kAbsent, kAbsent, kAbsent},
           .attrs = attrs(DType::kFloat32, {0.5, 0.5, 0.5}, "central", {8}, 0)},
          {.inputs = {none, kAbsent, kAbsent, keys},
           .attrs = attrs(DType::kBFloat16, {}, "random", {0.08, 1, 0.75, 1.33}, 0.5)}};
}

const OpDef decode_image_def = [] {
  OpDef op = decode_jpeg_def;
  op.name = "decode_image";
  op.doc =
      "decode_jpeg of JPEG, PNG and WebP files, normalised in the same go: (v / 255 - mean) / std as float32 or "
      "bfloat16, "
      "or v; with mean and std empty. "
      "`keys`: int64 (count, 2), from which each image's crop and flip are drawn. `crop`: 'box'; 'random', of "
      "`crop_numbers` least and most area, and ratio of width to height, as torchvision's RandomResizedCrop; "
      "'central', "
      "Resize(crop_numbers[0]) and CenterCrop. `on_error`: 'raise', 'mark' (black), 'replace' (by another of the "
      "batch), 'skip' (the others move up). Results: the images; uint8 (count), 0 for good ones, 1 for those that are "
      "not there, 2 for files that cannot be read, 3 for broken or too large ones; int64 (count), which file's image "
      "stands in each row, -1 for none. `meter`: the number under which it counts what images take; 0: it does not.";
  op.inputs.push_back("keys?");
  for (Param& param : std::vector<Param>{{.name = "dtype", .default_value = DType::kUInt8},
                                         {.name = "mean", .default_value = Doubles{}},
                                         {.name = "std", .default_value = Doubles{}},
                                         {.name = "crop", .default_value = std::string("box")},
                                         {.name = "crop_numbers", .default_value = Doubles{}},
                                         {.name = "flip_probability", .default_value = 0.0},
                                         {.name = "salt", .default_value = int64_t{0}},
                                         {.name = "on_error", .default_value = std::string("raise")},
                                         {.name = "max_pixels", .default_value = int64_t{1} << 28},
                                         {.name = "max_bytes", .default_value = int64_t{1} << 30},
                                         {.name = "max_scans", .default_value = int64_t{500}},
                                         {.name = "max_decoder_bytes", .default_value = int64_t{1} << 31},
                                         {.name = "meter", .default_value = int64_t{0}}})
    op.params.push_back(std::move(param));
  op.num_outputs = 3;
  op.infer = infer_decode_image;
  op.grad = [](const GradContext&) -> std::vector<Value> { return {Value(), Value(), Value(), Value()}; };
  op.sbp = [](Types inputs, const Attrs&) -> std::vector<SbpRow> {
    return {{std::vector<Sbp>(inputs.size(), Sbp::broadcast()), std::vector<Sbp>(3, Sbp::broadcast())}};
  };
  op.samples = decode_image_samples(op);
  return op;
}();

}  // namespace

std::span<const OpDef* const> images_ops() {
  static const OpDef* const ops[] = {&decode_jpeg_def, &decode_image_def};
  return ops;
}

Value decode_jpeg(const Value& files, const Value& boxes, const Value& flip, int64_t count, int64_t height,
                  int64_t width, int64_t channels) {
  return call1(decode_jpeg_def, {files, boxes, flip}, {count, height, width, channels});
}

}  // namespace sluice::ops
