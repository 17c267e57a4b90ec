// decode_jpeg: files are read, decoded, cut, resized and flipped, an image per thread at a time.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <mutex>
#include <string>

#include "base/files/file.h"
#include "base/files/packed_files.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/spatial/jpeg.h"
#include "kernels/cpu/strides/strided.h"
#include "kernels/cpu/support/support.h"
#include "kernels/kernel.h"

namespace sluice::cpu {
namespace {

constexpr int kBits = 22;  // of weights after the point: 255 times a sum of them is less than 2^31
constexpr int64_t kMostPixels = int64_t{1} << 28;

struct Range {
  int64_t begin = 0, size = 0;
};

// The inputs of each output pixel along an axis: `taps` weights from input `first` on, those that are not used zero.
struct Weights {
  int64_t taps = 0;
  std::vector<int64_t> first;
  std::vector<int32_t> weight;
};

// A triangle, as wide as an output pixel in the input and at least two of the input's.
Weights weights_of(int64_t in, int64_t out) {
  const double scale = static_cast<double>(in) / static_cast<double>(out), radius = std::max(scale, 1.0);
  Weights w;
  w.taps = std::min(in, 2 * static_cast<int64_t>(std::ceil(radius)) + 1);
  w.weight.resize(static_cast<size_t>(out * w.taps));
  std::vector<double> exact(static_cast<size_t>(w.taps));
  for (int64_t o = 0; o < out; ++o) {
    const double centre = (static_cast<double>(o) + 0.5) * scale;
    const int64_t begin = std::max<int64_t>(static_cast<int64_t>(centre - radius + 0.5), 0);
    const int64_t end = std::min(static_cast<int64_t>(centre + radius + 0.5), in);
    double sum = 0;
    for (int64_t i = begin; i < end; ++i) {
      const double far = std::abs(static_cast<double>(i) + 0.5 - centre) / radius;
      sum += exact[static_cast<size_t>(i - begin)] = std::max(1 - far, 0.0);
    }
    for (int64_t i = begin; i < end; ++i)
      w.weight[static_cast<size_t>(o * w.taps + i - begin)] =
          static_cast<int32_t>(std::lround(exact[static_cast<size_t>(i - begin)] / sum * (1 << kBits)));
    // Taps beyond the last input would be read, though they weigh nothing.
    const int64_t moved = std::max<int64_t>(begin + w.taps - in, 0);
    int32_t* const row = w.weight.data() + o * w.taps;
    std::rotate(row, row + w.taps - moved, row + w.taps);
    w.first.push_back(begin - moved);
  }
  return w;
}

uint8_t rounded(int32_t sum) { return static_cast<uint8_t>(std::clamp((sum + (1 << (kBits - 1))) >> kBits, 0, 255)); }

// A row of `channels` values per pixel, resized.
template <int channels>
void resize_row(const uint8_t* from, const Weights& w, int64_t out, uint8_t* to) {
  for (int64_t o = 0; o < out; ++o, to += channels) {
    const uint8_t* pixel = from + w.first[static_cast<size_t>(o)] * channels;
    const int32_t* weight = w.weight.data() + o * w.taps;
    int32_t sum[channels] = {};
    for (int64_t t = 0; t < w.taps; ++t, pixel += channels)
      for (int c = 0; c < channels; ++c) sum[c] += weight[t] * pixel[c];
    for (int c = 0; c < channels; ++c) to[c] = rounded(sum[c]);
  }
}

// The pixels of a part of an image: at least one.
Range part_of(int64_t size, double begin, double length) {
  SLUICE_CHECK(begin >= 0 && begin <= 1 && length >= 0,
               "its box begins at {} and is {} long, in parts of the image; must begin in [0, 1] and not be negative",
               begin, length);
  const double all = static_cast<double>(size), end = std::min(begin + length, 1.0);
  const int64_t from = std::min(std::llround(begin * all), static_cast<long long>(size) - 1);
  return {from, std::max<int64_t>(std::llround(end * all) - from, 1)};
}

class DecodeJpeg final : public PreparedKernel {
 public:
  DecodeJpeg(const plan::KernelQuery& q, const PrepareContext& context)
      : count_(q.outputs[0].shape[0]),
        channels_(static_cast<int>(q.outputs[0].shape[1])),
        height_(q.outputs[0].shape[2]),
        width_(q.outputs[0].shape[3]),
        bytes_(static_cast<size_t>(q.inputs[0].shape[0])),
        has_boxes_(has_operand(q.inputs, 1)),
        has_flip_(has_operand(q.inputs, 2)),
        doubles_(has_boxes_ && q.inputs[1].dtype == DType::kFloat64),
        threads_(context.threads) {}

  void run(const KernelArgs& args) const override {
    Status first;
    int64_t failed = count_;
    std::mutex mutex;
    parallel_jobs(threads_, count_, [&](int64_t i, int) {
      try {
        decode(args, i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (i < failed) first = Status::from_current_exception();
        failed = std::min(failed, i);
      }
    });
    first.throw_if_error();
  }

 private:
  void decode(const KernelArgs& args, int64_t i) const {
    auto* const out = static_cast<uint8_t*>(args.outputs[0]) + i * channels_ * height_ * width_;
    const PackedFile file = packed_file({static_cast<const std::byte*>(args.inputs[0]), bytes_}, i);
    if (!file.there()) {
      std::memset(out, 0, static_cast<size_t>(channels_ * height_ * width_));
      return;
    }
    try {
      std::string read;
      std::span<const std::byte> content = file.content;
      if (content.empty()) {
        read = read_file(std::string(file.name));
        content = std::as_bytes(std::span(read));
      }
      JpegReader reader(content);
      SLUICE_CHECK(reader.height() * reader.width() <= kMostPixels, "it has {} x {} pixels; must be {} at most",
                   reader.height(), reader.width(), kMostPixels);
      const std::array<double, 4> box = box_of(args, i);
      const bool flip = has_flip_ && static_cast<const bool*>(args.inputs[2])[i];
      const Range rows = part_of(reader.height(), box[0], box[2]), columns = part_of(reader.width(), box[1], box[3]);
      reader.start(channels_);
      resize(reader, rows, columns, flip, out);
    } catch (const Error& error) {
      fail(error.kind(), "decode_jpeg: image {}{}: {}", i, file.name.empty() ? "" : fmt::format(" ('{}')", file.name),
           error.what());
    }
  }

  // Top, left, height and width; without boxes the whole image.
  std::array<double, 4> box_of(const KernelArgs& args, int64_t i) const {
    std::array<double, 4> box{0, 0, 1, 1};
    for (int64_t k = 0; has_boxes_ && k < 4; ++k)
      box[static_cast<size_t>(k)] = doubles_
                                        ? static_cast<const double*>(args.inputs[1])[4 * i + k]
                                        : static_cast<double>(static_cast<const float*>(args.inputs[1])[4 * i + k]);
    return box;
  }

  // First along rows, each as soon as it is decoded, then along columns.
  void resize(JpegReader& reader, Range rows, Range columns, bool flip, uint8_t* out) const {
    const Weights across = weights_of(columns.size, width_), down = weights_of(rows.size, height_);
    const int64_t line = width_ * channels_;
    std::vector<uint8_t> row(static_cast<size_t>(reader.width() * channels_));
    std::vector<uint8_t> narrow(static_cast<size_t>(rows.size * line));
    for (int64_t y = 0; y < rows.begin + rows.size; ++y) {
      reader.read_row(row.data());
      if (y < rows.begin) continue;
      const uint8_t* const from = row.data() + columns.begin * channels_;
      uint8_t* const to = narrow.data() + (y - rows.begin) * line;
      if (columns.size == width_)
        std::memcpy(to, from, static_cast<size_t>(line));
      else if (channels_ == 1)
        resize_row<1>(from, across, width_, to);
      else
        resize_row<3>(from, across, width_, to);
    }
    std::vector<int32_t> sums(static_cast<size_t>(line));
    for (int64_t y = 0; y < height_; ++y) {
      std::fill(sums.begin(), sums.end(), 0);
      for (int64_t t = 0; t < down.taps; ++t) {
        const int32_t weight = down.weight[static_cast<size_t>(y * down.taps + t)];
        if (weight == 0) continue;
        const uint8_t* const from = narrow.data() + (down.first[static_cast<size_t>(y)] + t) * line;
        for (int64_t x = 0; x < line; ++x) sums[static_cast<size_t>(x)] += weight * from[x];
      }
      for (int c = 0; c < channels_; ++c) {
        uint8_t* const to = out + (c * height_ + y) * width_;
        for (int64_t x = 0; x < width_; ++x)
          to[flip ? width_ - 1 - x : x] = rounded(sums[static_cast<size_t>(x * channels_ + c)]);
      }
    }
  }

  const int64_t count_;
  const int channels_;
  const int64_t height_, width_;
  const size_t bytes_;
  const bool has_boxes_, has_flip_, doubles_;
  const int threads_;
};

}  // namespace

void add_image_kernels(KernelTable& table) {
  table.add(DeviceKind::kCpu,
            {.op = "decode_jpeg", .prepare = [](const plan::KernelQuery& q, const PrepareContext& context) {
               return std::make_unique<DecodeJpeg>(q, context);
             }});
}

}  // namespace sluice::cpu
