// First along rows, each as soon as it is decoded, then along columns. Weights are of 22 bits, so sums are exact in
// int32 and come to the same in any order.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/images/resize.cpp"

#include "kernels/cpu/images/resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "kernels/cpu/math/simd_foreach.h"

// Twice included by foreach_target.h; its types once.
#ifndef SLUICE_KERNELS_CPU_IMAGES_RESIZE_ONCE
#define SLUICE_KERNELS_CPU_IMAGES_RESIZE_ONCE
namespace sluice::cpu {

constexpr int kWeightBits = 22;  // after the point: 255 times a sum of them is less than 2^31
constexpr int kLowBits = 11;     // of a weight, which are multiplied apart from the others
constexpr int kPixels = 4;       // whose weights lie side by side
constexpr int64_t kRing = 16;    // rows from which an output row is made at once; from more it is summed up row by row
constexpr int64_t kSums = 6;  // output rows that an input row may be part of then: two or three, and at the ends more

// The functions of an instruction set. Lines are `n` bytes long, rounded up to whole vectors by all.
struct ResizeFns {
  void (*across)(const uint8_t* row, const int32_t* first, const int32_t* pairs, int64_t count, int64_t out,
                 uint8_t* to);
  void (*down)(const uint8_t* const* rows, const int32_t* weights, int64_t taps, int64_t n, uint8_t* to);
  void (*add)(const uint8_t* row, int32_t weight, int64_t n, int32_t* sums);
  void (*round)(const int32_t* sums, int64_t n, uint8_t* to);
  void (*split)(const uint8_t* line, int64_t pixels, uint8_t* red, uint8_t* green, uint8_t* blue);
  void (*bytes)(const uint8_t* plane, int64_t n, bool flip, uint8_t* to);
  void (*floats)(const uint8_t* plane, int64_t n, bool flip, float scale, float shift, float* to);
  void (*halves)(const uint8_t* plane, int64_t n, bool flip, float scale, float shift, uint16_t* to);
};

}  // namespace sluice::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

const hn::ScalableTag<int32_t> d32;
const hn::ScalableTag<float> df;
const hn::Rebind<uint8_t, decltype(d32)> d8;  // as many bytes as there are lanes of 32 bits
using V32 = hn::Vec<decltype(d32)>;

HWY_INLINE int64_t lanes() { return static_cast<int64_t>(hn::Lanes(d32)); }
HWY_INLINE V32 loaded(const uint8_t* bytes) { return hn::PromoteTo(d32, hn::LoadU(d8, bytes)); }
HWY_INLINE V32 half() { return hn::Set(d32, 1 << (kWeightBits - 1)); }
HWY_INLINE void store_rounded(V32 sum, uint8_t* to) {
  hn::StoreU(hn::DemoteTo(d8, hn::ShiftRight<kWeightBits>(sum)), d8, to);
}

#if HWY_TARGET != HWY_SCALAR
// Loads two pixels each of as many outputs as a vector has sums, from `row` on. It is a template so that tags of the
// branches that are not taken are never asked for: Highway refuses those with more lanes than the target has.
template <class D>
HWY_INLINE auto two_pixels_each(D, const uint8_t* row, const int32_t* first) {
  const hn::CappedTag<uint64_t, 1> one;
  const auto at = [&](int k) HWY_ATTR { return hn::LoadU(one, reinterpret_cast<const uint64_t*>(row + 4 * first[k])); };
  if constexpr (hn::MaxLanes(D()) < 8) {
    return at(0);
  } else {
    const hn::FixedTag<uint64_t, 2> two;
    const auto low = hn::Combine(two, at(1), at(0));
    if constexpr (hn::MaxLanes(D()) < 16)
      return low;
    else
      return hn::Combine(hn::Repartition<uint64_t, hn::Half<D>>(), hn::Combine(two, at(3), at(2)), low);
  }
}
#endif

// Pixels of four bytes. Products are of 16 bits, two pixels at a time, so weights come in their higher and lower bits:
// [group of outputs][pair of inputs][higher, lower][output], each two weights.
void across(const uint8_t* row, const int32_t* first, const int32_t* weights, int64_t pairs, int64_t out, uint8_t* to) {
#if HWY_TARGET == HWY_SCALAR
  for (int64_t o = 0; o < out; ++o)
    for (int c = 0; c < 4; ++c) {
      int32_t sums[2] = {};
      for (int64_t p = 0; p < pairs; ++p)
        for (int half = 0; half < 2; ++half) {
          const int32_t both = weights[((o / kPixels * pairs + p) * 2 + half) * kPixels + o % kPixels];
          const uint8_t* const pixel = row + (first[o] + 2 * p) * 4 + c;
          sums[half] += static_cast<int16_t>(both & 0xFFFF) * pixel[0] + (both >> 16) * pixel[4];
        }
      const int32_t sum = (sums[0] << kLowBits) + sums[1] + (1 << (kWeightBits - 1));
      to[4 * o + c] = static_cast<uint8_t>(std::clamp(sum >> kWeightBits, 0, 255));
    }
#else
  const hn::RepartitionToNarrow<decltype(d32)> d16;
  const hn::Rebind<uint8_t, decltype(d16)> db;  // two pixels for every four sums
  const int64_t step = std::min<int64_t>(lanes() / 4, kPixels);
  static_assert(hn::MaxLanes(d32) <= 4 * kPixels);
  HWY_ALIGN static constexpr uint8_t kOrder[32] = {0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15,
                                                   0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15};
  const auto order = hn::LoadU(db, kOrder);
  HWY_ALIGN int32_t spread[hn::MaxLanes(d32)];
  for (size_t i = 0; i < hn::Lanes(d32); ++i) spread[i] = static_cast<int32_t>(i / 4);
  const auto each_four_times = hn::SetTableIndices(d32, spread);
  const auto weights_at = [&](const int32_t* at) HWY_ATTR {
    return hn::BitCast(d16, hn::TableLookupLanes(hn::LoadU(d32, at), each_four_times));
  };
  for (int64_t o = 0; o < out; o += step) {
    const int32_t* weight = weights + o / kPixels * pairs * 2 * kPixels + o % kPixels;
    V32 high = hn::Zero(d32), low = high, high_rest = high, low_rest = high;
    for (int64_t p = 0; p < pairs; ++p, weight += 2 * kPixels) {
      const auto bytes = hn::BitCast(db, two_pixels_each(d32, row + 8 * p, first + o));
      const auto v = hn::PromoteTo(d16, hn::TableLookupBytes(bytes, order));
      high = hn::ReorderWidenMulAccumulate(d32, v, weights_at(weight), high, high_rest);
      low = hn::ReorderWidenMulAccumulate(d32, v, weights_at(weight + kPixels), low, low_rest);
    }
    high = hn::RearrangeToOddPlusEven(high, high_rest);
    low = hn::RearrangeToOddPlusEven(low, low_rest);
    store_rounded(hn::Add(hn::ShiftLeft<kLowBits>(high), hn::Add(low, half())), to + 4 * o);
  }
#endif
}

void down(const uint8_t* const* rows, const int32_t* weights, int64_t taps, int64_t n, uint8_t* to) {
  for (int64_t x = 0; x < n; x += lanes()) {
    V32 sum = half();
    for (int64_t t = 0; t < taps; ++t) sum = hn::Add(sum, hn::Mul(hn::Set(d32, weights[t]), loaded(rows[t] + x)));
    store_rounded(sum, to + x);
  }
}

void add(const uint8_t* row, int32_t weight, int64_t n, int32_t* sums) {
  const V32 w = hn::Set(d32, weight);
  for (int64_t x = 0; x < n; x += lanes())
    hn::StoreU(hn::Add(hn::LoadU(d32, sums + x), hn::Mul(w, loaded(row + x))), d32, sums + x);
}

void round(const int32_t* sums, int64_t n, uint8_t* to) {
  for (int64_t x = 0; x < n; x += lanes()) store_rounded(hn::Add(hn::LoadU(d32, sums + x), half()), to + x);
}

void split(const uint8_t* line, int64_t pixels, uint8_t* red, uint8_t* green, uint8_t* blue) {
#if HWY_TARGET == HWY_SCALAR
  for (int64_t x = 0; x < pixels; ++x) {
    red[x] = line[4 * x];
    green[x] = line[4 * x + 1];
    blue[x] = line[4 * x + 2];
  }
#else
  const hn::CappedTag<uint8_t, 16> d;
  hn::Vec<decltype(d)> r, g, b, none;
  for (int64_t x = 0; x < pixels; x += static_cast<int64_t>(hn::Lanes(d))) {
    hn::LoadInterleaved4(d, line + 4 * x, r, g, b, none);
    hn::StoreU(r, d, red + x);
    hn::StoreU(g, d, green + x);
    hn::StoreU(b, d, blue + x);
  }
#endif
}

void bytes(const uint8_t* plane, int64_t n, bool flip, uint8_t* to) {
  if (!flip) return static_cast<void>(std::memcpy(to, plane, static_cast<size_t>(n)));
  for (int64_t x = 0; x < n; ++x) to[n - 1 - x] = plane[x];
}

// Calls whole(x, where its lanes begin) for vectors of outputs, and one(x, where it is) for what is left.
template <class Whole, class One>
HWY_INLINE void in_vectors(int64_t n, bool flip, const Whole& whole, const One& one) {
  int64_t x = 0;
  for (; x + lanes() <= n; x += lanes()) whole(x, flip ? n - x - lanes() : x);
  for (; x < n; ++x) one(x, flip ? n - 1 - x : x);
}

HWY_INLINE hn::Vec<decltype(df)> normalized(const uint8_t* from, bool flip, hn::Vec<decltype(df)> scale,
                                            hn::Vec<decltype(df)> shift) {
  const auto v = hn::MulAdd(hn::ConvertTo(df, loaded(from)), scale, shift);
  return flip ? hn::Reverse(df, v) : v;
}

void floats(const uint8_t* plane, int64_t n, bool flip, float scale, float shift, float* to) {
  const auto s = hn::Set(df, scale), t = hn::Set(df, shift);
  in_vectors(
      n, flip, [&](int64_t x, int64_t at) HWY_ATTR { hn::StoreU(normalized(plane + x, flip, s, t), df, to + at); },
      [&](int64_t x, int64_t at) { to[at] = std::fma(static_cast<float>(plane[x]), scale, shift); });
}

// To the nearest, to even between two; what comes is finite.
void halves(const uint8_t* plane, int64_t n, bool flip, float scale, float shift, uint16_t* to) {
  const hn::Rebind<uint16_t, decltype(d32)> d16;
  const hn::RebindToUnsigned<decltype(d32)> du;
  const auto s = hn::Set(df, scale), t = hn::Set(df, shift);
  in_vectors(
      n, flip,
      [&](int64_t x, int64_t at) HWY_ATTR {
        const auto bits = hn::BitCast(du, normalized(plane + x, flip, s, t));
        const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
        const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFF))));
        hn::StoreU(hn::DemoteTo(d16, hn::BitCast(d32, rounded)), d16, to + at);
      },
      [&](int64_t x, int64_t at) {
        const float v = std::fma(static_cast<float>(plane[x]), scale, shift);
        uint32_t word;
        std::memcpy(&word, &v, sizeof(word));
        to[at] = static_cast<uint16_t>((word + 0x7FFF + (word >> 16 & 1)) >> 16);
      });
}

const ResizeFns* resize_fns() {
  static constexpr ResizeFns kFns{across, down, add, round, split, bytes, floats, halves};
  return &kFns;
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::cpu {
HWY_EXPORT(resize_fns);
namespace {

const ResizeFns& fns() {
  static const ResizeFns* const found = HWY_DYNAMIC_DISPATCH(resize_fns)();
  return *found;
}

// How many inputs each output of an axis has at most, beside each other.
int64_t most_taps(int64_t out) {
  const double scale = static_cast<double>(kMostSide) / static_cast<double>(out);
  return std::min(kMostSide, 2 * static_cast<int64_t>(std::ceil(std::max(scale, 1.0))) + 1);
}
int64_t whole_groups(int64_t n) { return static_cast<int64_t>(align_up(static_cast<uint64_t>(n), kPixels)); }

}  // namespace

// The inputs of each output pixel along an axis: `taps` weights from input `first` on, those that are not used zero.
struct Resizer::Axis {
  int64_t in, out, taps;
  int32_t *first, *weights;

  int32_t weight(int64_t o, int64_t t) const { return weights[o * taps + t]; }

  // A triangle, as wide as an output pixel in the input and at least two of the input's.
  static Axis of(int64_t in, int64_t out, int32_t* first, int32_t* weights) {
    const double scale = static_cast<double>(in) / static_cast<double>(out), radius = std::max(scale, 1.0);
    const auto centre = [&](int64_t o) { return (static_cast<double>(o) + 0.5) * scale; };
    const auto begin = [&](int64_t o) { return std::max<int64_t>(static_cast<int64_t>(centre(o) - radius + 0.5), 0); };
    const auto end = [&](int64_t o) { return std::min(static_cast<int64_t>(centre(o) + radius + 0.5), in); };
    Axis axis{in, out, 1, first, weights};
    for (int64_t o = 0; o < out; ++o) axis.taps = std::max(axis.taps, end(o) - begin(o));
    for (int64_t o = 0; o < out; ++o) {
      const int64_t b = begin(o), e = end(o);
      const auto at = [&](int64_t i) {
        return std::max(1 - std::abs(static_cast<double>(i) + 0.5 - centre(o)) / radius, 0.0);
      };
      double sum = 0;
      for (int64_t i = b; i < e; ++i) sum += at(i);
      // Taps beyond the last input would be read, though they weigh nothing.
      const int64_t moved = std::max<int64_t>(b + axis.taps - in, 0);
      int32_t* const row = weights + o * axis.taps;
      std::fill_n(row, axis.taps, 0);
      for (int64_t i = b; i < e; ++i) row[i - b + moved] = static_cast<int32_t>(at(i) / sum * (1 << kWeightBits) + 0.5);
      first[o] = static_cast<int32_t>(b - moved);
    }
    return axis;
  }

  int64_t pair_count() const { return (taps + 1) / 2; }
  // As ResizeFns::across reads them.
  void make_pairs(int32_t* pairs) const {
    const auto halves = [&](int64_t o, int64_t t, int part) -> int32_t {
      const int32_t w = o < out && t < taps ? weight(o, t) : 0;
      return part == 0 ? w >> kLowBits : w & ((1 << kLowBits) - 1);
    };
    for (int64_t group = 0; group < whole_groups(out); group += kPixels)
      for (int64_t p = 0; p < pair_count(); ++p)
        for (int part = 0; part < 2; ++part)
          for (int64_t o = group; o < group + kPixels; ++o)
            *pairs++ = halves(o, 2 * p + 1, part) << 16 | halves(o, 2 * p, part);
    std::fill(first + out, first + whole_groups(out), 0);
  }
};

ResizeWorkspace::ResizeWorkspace(int channels, int64_t height, int64_t width) {
  const auto line = static_cast<uint64_t>(ImageReader::row_bytes(width));
  const auto axis = [](int64_t out) {
    return static_cast<uint64_t>(whole_groups(out) * (most_taps(out) + 1) + 64) * 4;
  };
  row_ = layout_.add(static_cast<uint64_t>(ImageReader::row_bytes(kMostSide)));
  ring_ = layout_.add(static_cast<uint64_t>(kRing) * line);
  sums_ = layout_.add(kSums * 4 * line);
  line_ = layout_.add(line);
  planes_ = layout_.add(static_cast<uint64_t>(channels) * line);
  first_across_ = layout_.add(4 * static_cast<uint64_t>(width + 64));
  weights_across_ = layout_.add(axis(width));
  pairs_ = layout_.add(axis(width));
  first_down_ = layout_.add(4 * static_cast<uint64_t>(height + 64));
  weights_down_ = layout_.add(axis(height));
}

Resizer::Resizer(const ResizeWorkspace& p, void* workspace, int channels, int64_t height, int64_t width)
    : channels_(channels), height_(height), width_(width) {
  const auto at = [&](auto*& pointer, uint64_t offset) {
    pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(at_offset(workspace, offset));
  };
  at(row_, p.row_);
  at(ring_, p.ring_);
  at(line_, p.line_);
  at(planes_, p.planes_);
  at(sums_, p.sums_);
  at(first_across_, p.first_across_);
  at(weights_across_, p.weights_across_);
  at(pairs_, p.pairs_);
  at(first_down_, p.first_down_);
  at(weights_down_, p.weights_down_);
}

void Resizer::run(ImageReader& reader, const Box& box, bool flip, const PixelSink& sink, void* to) {
  const Axis across = Axis::of(box.columns.size, width_, first_across_, weights_across_);
  const Axis down = Axis::of(box.rows.size, height_, first_down_, weights_down_);
  if (channels_ == 3) across.make_pairs(pairs_);
  if (down.taps <= kRing)
    through_ring(reader, across, down, flip, sink, to);
  else
    through_sums(reader, across, down, flip, sink, to);
}

// The next row, resized: in `to`, or where it was read.
const uint8_t* Resizer::narrow(ImageReader& reader, const Axis& across, uint8_t* to) {
  const uint8_t* const from = reader.read_row(row_);
  if (across.in == width_) {
    std::memcpy(to, from, static_cast<size_t>(width_ * (channels_ == 1 ? 1 : 4)));
  } else if (channels_ == 1) {
    for (int64_t o = 0; o < width_; ++o) {
      int32_t sum = 1 << (kWeightBits - 1);
      for (int64_t t = 0; t < across.taps; ++t) sum += across.weight(o, t) * from[across.first[o] + t];
      to[o] = static_cast<uint8_t>(std::clamp(sum >> kWeightBits, 0, 255));
    }
  } else {
    fns().across(from, across.first, pairs_, across.pair_count(), width_, to);
  }
  return to;
}

// An output row needs few input rows: those that may still be needed stay.
void Resizer::through_ring(ImageReader& reader, const Axis& across, const Axis& down, bool flip, const PixelSink& sink,
                           void* to) {
  const int64_t line = ImageReader::row_bytes(width_), n = width_ * (channels_ == 1 ? 1 : 4);
  int64_t read = 0;
  for (int64_t y = 0; y < height_; ++y) {
    const uint8_t* rows[kRing];
    int32_t weights[kRing];
    int64_t taps = 0;
    for (int64_t t = 0; t < down.taps; ++t) {
      const int64_t row = down.first[y] + t;
      for (; read <= row; ++read) narrow(reader, across, ring_ + read % kRing * line);
      if (down.weight(y, t) == 0) continue;
      rows[taps] = ring_ + row % kRing * line;
      weights[taps++] = down.weight(y, t);
    }
    fns().down(rows, weights, taps, n, line_);
    emit(line_, y, flip, sink, to);
  }
}

// An input row goes into few output rows: those are summed up as it comes.
void Resizer::through_sums(ImageReader& reader, const Axis& across, const Axis& down, bool flip, const PixelSink& sink,
                           void* to) {
  const int64_t line = ImageReader::row_bytes(width_), n = width_ * (channels_ == 1 ? 1 : 4);
  const auto sums = [&](int64_t y) { return sums_ + y % kSums * line; };
  int64_t done = 0, begun = 0;
  for (int64_t row = 0; row < down.in; ++row) {
    narrow(reader, across, ring_);
    for (; begun < height_ && down.first[begun] <= row; ++begun) {
      SLUICE_CHECK_KIND(kRuntime, begun - done < kSums, "resize: more than {} rows in work", kSums);
      std::memset(sums(begun), 0, static_cast<size_t>(line) * 4);
    }
    for (int64_t y = done; y < begun; ++y) {
      const int64_t t = row - down.first[y];
      if (t < down.taps && down.weight(y, t) != 0) fns().add(ring_, down.weight(y, t), n, sums(y));
    }
    for (; done < begun && down.first[done] + down.taps <= row + 1; ++done) {
      fns().round(sums(done), n, line_);
      emit(line_, done, flip, sink, to);
    }
  }
}

void Resizer::emit(const uint8_t* line, int64_t y, bool flip, const PixelSink& sink, void* to) {
  const int64_t plane = ImageReader::row_bytes(width_);
  if (channels_ == 3) fns().split(line, width_, planes_, planes_ + plane, planes_ + 2 * plane);
  for (int c = 0; c < channels_; ++c) {
    const uint8_t* const from = channels_ == 3 ? planes_ + c * plane : line;
    const int64_t at = (c * height_ + y) * width_;
    if (sink.dtype == DType::kUInt8)
      fns().bytes(from, width_, flip, static_cast<uint8_t*>(to) + at);
    else if (sink.dtype == DType::kFloat32)
      fns().floats(from, width_, flip, sink.scale[c], sink.shift[c], static_cast<float*>(to) + at);
    else
      fns().halves(from, width_, flip, sink.scale[c], sink.shift[c], static_cast<uint16_t*>(to) + at);
  }
}

}  // namespace sluice::cpu
#endif
