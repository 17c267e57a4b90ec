// uniform, normal, bernoulli, randint, dropout: element i of the tensor in row-major order takes word i of its call's
// Philox stream, so results do not depend on layouts, threads or the order of calls.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/cpu/families.h"
#include "kernels/cpu/math/vector_math.h"
#include "kernels/cpu/random/box_muller.h"
#include "kernels/cpu/random/philox.h"
#include "kernels/cpu/random/random_tiles.h"
#include "kernels/cpu/strides/strided.h"
#include "kernels/cpu/strides/tiles.h"
#include "kernels/kernel.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kRandomGrain = 8192;  // elements worth a thread
static_assert(kTile % kPhiloxGroup == 0);

// Uniform in [low, low + range), of `bits` bits, so that rounding to a narrow dtype never gives the end.
SLUICE_CLONES void to_range(const uint32_t* words, float* out, int64_t n, int bits, float low, float range) {
  const int shift = 32 - bits;
  const float scale = std::ldexp(1.f, -bits);
  for (int64_t i = 0; i < n; ++i)
    out[i] = low + static_cast<float>(static_cast<int32_t>(words[i] >> shift)) * scale * range;
}

// 1 for words below the limit, else 0.
SLUICE_CLONES void to_chosen(const uint32_t* words, float* out, int64_t n, uint32_t limit) {
  for (int64_t i = 0; i < n; ++i) out[i] = words[i] < limit ? 1.f : 0.f;
}

// Pairs of words become pairs of samples, of 24 bits of each.
SLUICE_CLONES void to_normal(const uint32_t* first, const uint32_t* second, float* out, int64_t pairs, float mean,
                             float deviation) {
  for (int64_t k = 0; k < pairs; ++k) {
    float cosine, sine;
    box_muller(static_cast<float>(static_cast<int32_t>((first[k] >> 8) + 1)) * kOf24Bits,
               static_cast<int32_t>(second[k] >> 8), cosine, sine);
    out[2 * k] = mean + deviation * cosine;
    out[2 * k + 1] = mean + deviation * sine;
  }
}
void to_normal(const uint32_t* first, const uint32_t* second, double* out, int64_t pairs, double mean,
               double deviation) {
  for (int64_t k = 0; k < pairs; ++k) {
    const double u = (static_cast<double>(first[k] >> 8) + 1) * double{kOf24Bits};
    const double angle = static_cast<double>(second[k] >> 8) * (double{kOf24Bits} * 2 * std::numbers::pi);
    const double radius = deviation * std::sqrt(-2 * std::log(u));
    out[2 * k] = mean + radius * std::cos(angle);
    out[2 * k + 1] = mean + radius * std::sin(angle);
  }
}

double to_unit(uint32_t high, uint32_t low) {
  return static_cast<double>(((uint64_t{high} << 32) | low) >> 11) * 0x1p-53;
}

// Makes elements [begin, begin + n) of the tensor, n <= kTile, as a tile.
using Generate = void (*)(const int64_t* state, int64_t salt, const double* params, int64_t begin, int64_t n,
                          void* tile);

template <int kBits>
void uniform_float(const int64_t* state, int64_t salt, const double* p, int64_t begin, int64_t n, void* tile) {
  alignas(64) uint32_t words[kTile];
  float* y = static_cast<float*>(tile);
  PhiloxStream(state, salt).words_at(begin, n, words);
  to_range(words, y, n, kBits, static_cast<float>(p[0]), static_cast<float>(p[1] - p[0]));
}

void uniform_double(const int64_t* state, int64_t salt, const double* p, int64_t begin, int64_t n, void* tile) {
  alignas(64) uint32_t high[kTile], low[kTile];
  double* y = static_cast<double*>(tile);
  PhiloxStream(state, salt).words_at(begin, n, high);
  PhiloxStream(state, salt, 1).words_at(begin, n, low);
  for (int64_t i = 0; i < n; ++i) y[i] = p[0] + to_unit(high[i], low[i]) * (p[1] - p[0]);
}

// Element i takes the cosine for even i, and the sine of the same pair of uniforms for odd i.
template <class T>
void normal(const int64_t* state, int64_t salt, const double* p, int64_t begin, int64_t n, void* tile) {
  constexpr int64_t kPairs = kTile / 2 + 1;
  alignas(64) uint32_t first[kPairs], second[kPairs];
  alignas(64) T both[2 * kPairs];
  const int64_t pair = begin / 2, pairs = (begin + n + 1) / 2 - pair;
  PhiloxStream(state, salt).words_at(pair, pairs, first);
  PhiloxStream(state, salt, 1).words_at(pair, pairs, second);
  to_normal(first, second, both, pairs, static_cast<T>(p[0]), static_cast<T>(p[1]));
  std::copy_n(both + begin % 2, n, static_cast<T*>(tile));
}

void bernoulli(const int64_t* state, int64_t salt, const double* p, int64_t begin, int64_t n, void* tile) {
  alignas(64) uint32_t words[kTile];
  float* y = static_cast<float*>(tile);
  const uint64_t limit = chosen_below(p[0]);
  if (limit > UINT32_MAX) return static_cast<void>(std::fill_n(y, n, 1.f));
  PhiloxStream(state, salt).words_at(begin, n, words);
  to_chosen(words, y, n, static_cast<uint32_t>(limit));
}

SLUICE_CLONES void drop(const float* x, const float* mask, float scale, float* y, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * mask[i] * scale;
}
void drop(const double* x, const float* mask, double scale, double* y, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * static_cast<double>(mask[i]) * scale;
}

void randint(const int64_t* state, int64_t salt, const double* p, int64_t begin, int64_t n, void* tile) {
  alignas(64) uint32_t high[kTile], low[kTile];
  int64_t* y = static_cast<int64_t*>(tile);
  const int64_t first = static_cast<int64_t>(p[0]);
  const uint64_t range = static_cast<uint64_t>(static_cast<int64_t>(p[1])) - static_cast<uint64_t>(first);
  PhiloxStream(state, salt).words_at(begin, n, high);
  PhiloxStream(state, salt, 1).words_at(begin, n, low);
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t word = (uint64_t{high[i]} << 32) | low[i];
    y[i] =
        static_cast<int64_t>(static_cast<uint64_t>(first) + static_cast<uint64_t>((__uint128_t{word} * range) >> 64));
  }
}

LoopNest output_nest(const TensorSpec& out) {
  const std::array<Strides, 1> strides = {out.strides};
  return LoopNest::in_order(out.shape, strides);
}

class Generator final : public PreparedKernel {
 public:
  Generator(const TensorSpec& out, Generate generate, TileType tile, std::array<double, 2> params, int64_t salt,
            int threads)
      : nest_(output_nest(out)),
        generate_(generate),
        store_(tile_store(tile, out.dtype)),
        params_(params),
        salt_(salt),
        size_(static_cast<int64_t>(dtype_size(out.dtype))),
        threads_(threads) {}

  void run(const KernelArgs& args) const override {
    const int64_t* state = static_cast<const int64_t*>(args.inputs[0]);
    parallel_ranges(threads_, nest_.size(), kRandomGrain, [&](int64_t begin, int64_t end) {
      alignas(64) char tile[kTileBytes];
      int64_t element = begin;
      nest_.for_segments(begin, end, [&](const auto& offsets, int64_t n) {
        for (int64_t at = 0; at < n; at += kTile) {
          const int64_t m = std::min(kTile, n - at);
          generate_(state, salt_, params_.data(), element, m, tile);
          store_(tile, static_cast<char*>(args.outputs[0]) + (offsets[0] + at * nest_.inner_stride(0)) * size_,
                 nest_.inner_stride(0), m);
          element += m;
        }
      });
    });
  }

 private:
  const LoopNest nest_;
  const Generate generate_;
  const StoreFn store_;
  const std::array<double, 2> params_;
  const int64_t salt_, size_;
  const int threads_;
};

class Dropout final : public PreparedKernel {
 public:
  Dropout(const plan::KernelQuery& q, double p, int64_t salt, int threads)
      : tile_(tile_type(q.inputs[1].dtype)),
        load_(tile_load(q.inputs[1].dtype, tile_)),
        store_(tile_store(tile_, q.outputs[0].dtype)),
        nest_(make_nest(q)),
        p_(p),
        salt_(salt),
        size_(static_cast<int64_t>(dtype_size(q.inputs[1].dtype))),
        threads_(threads) {}

  void run(const KernelArgs& args) const override {
    parallel_ranges(threads_, nest_.size(), kRandomGrain, [&](int64_t begin, int64_t end) {
      alignas(64) char x[kTile * sizeof(double)];
      const DropoutCall call{tile_, static_cast<const int64_t*>(args.inputs[0]), salt_, p_};
      int64_t element = begin;
      nest_.for_segments(begin, end, [&](const auto& offsets, int64_t n) {
        for (int64_t at = 0; at < n; at += kTile) {
          const int64_t m = std::min(kTile, n - at);
          load_(static_cast<const char*>(args.inputs[1]) + (offsets[0] + at * nest_.inner_stride(0)) * size_,
                nest_.inner_stride(0), x, m);
          drop_tile(call, x, x, element, m);
          store_(x, static_cast<char*>(args.outputs[0]) + (offsets[1] + at * nest_.inner_stride(1)) * size_,
                 nest_.inner_stride(1), m);
          element += m;
        }
      });
    });
  }

 private:
  static LoopNest make_nest(const plan::KernelQuery& q) {
    const std::array<Strides, 2> strides = {q.inputs[1].strides, q.outputs[0].strides};
    return LoopNest::in_order(q.outputs[0].shape, strides);
  }

  const TileType tile_;
  const LoadFn load_;
  const StoreFn store_;
  const LoopNest nest_;
  const double p_;
  const int64_t salt_, size_;
  const int threads_;
};

using Kernel = std::unique_ptr<PreparedKernel>;

void check_state(const plan::KernelQuery& q) {
  SLUICE_CHECK(!q.inputs.empty() && q.inputs[0].dtype == DType::kInt64 && numel(q.inputs[0].shape) == 2 &&
                   is_contiguous(q.inputs[0].shape, q.inputs[0].strides),
               "{}: the first input must be the generator state, int64(2,), contiguous", q.op);
}

Kernel make(const plan::KernelQuery& q, const PrepareContext& context, Generate generate, TileType tile,
            std::array<double, 2> params) {
  check_state(q);
  return std::make_unique<Generator>(q.outputs.at(0), generate, tile, params, get_attr<int64_t>(q.attrs, "salt"),
                                     context.threads);
}

Kernel prepare_uniform(const plan::KernelQuery& q, const PrepareContext& context) {
  const DType dtype = q.outputs.at(0).dtype;
  const std::array<double, 2> range = {get_attr<double>(q.attrs, "low"), get_attr<double>(q.attrs, "high")};
  const Generate generate = dtype == DType::kFloat64    ? uniform_double
                            : dtype == DType::kBFloat16 ? uniform_float<8>
                            : dtype == DType::kFloat16  ? uniform_float<11>
                                                        : uniform_float<24>;
  return make(q, context, generate, tile_type(dtype), range);
}

Kernel prepare_normal(const plan::KernelQuery& q, const PrepareContext& context) {
  const bool wide = q.outputs.at(0).dtype == DType::kFloat64;
  return make(q, context, wide ? normal<double> : normal<float>, wide ? TileType::kDouble : TileType::kFloat,
              {get_attr<double>(q.attrs, "mean"), get_attr<double>(q.attrs, "std")});
}

Kernel prepare_bernoulli(const plan::KernelQuery& q, const PrepareContext& context) {
  return make(q, context, bernoulli, TileType::kFloat, {get_attr<double>(q.attrs, "p"), 0});
}

Kernel prepare_randint(const plan::KernelQuery& q, const PrepareContext& context) {
  return make(q, context, randint, TileType::kInt64,
              {static_cast<double>(get_attr<int64_t>(q.attrs, "low")),
               static_cast<double>(get_attr<int64_t>(q.attrs, "high"))});
}

Kernel prepare_dropout(const plan::KernelQuery& q, const PrepareContext& context) {
  check_state(q);
  return std::make_unique<Dropout>(q, get_attr<double>(q.attrs, "p"), get_attr<int64_t>(q.attrs, "salt"),
                                   context.threads);
}

class NumbersOfKeys final : public PreparedKernel {
 public:
  NumbersOfKeys(const plan::KernelQuery& q, const PrepareContext& context)
      : n_(q.outputs.at(0).shape[0]),
        count_(q.outputs[0].shape[1]),
        salt_(get_attr<int64_t>(q.attrs, "salt")),
        threads_(context.threads) {}
  void run(const KernelArgs& args) const override {
    const auto* const keys = static_cast<const int64_t*>(args.inputs[0]);
    auto* const out = static_cast<float*>(args.outputs[0]);
    const int64_t grain = std::max<int64_t>(kRandomGrain / std::max<int64_t>(count_, kPhiloxGroup), 1);
    parallel_ranges(threads_, n_, grain, [&](int64_t begin, int64_t end) {
      alignas(64) uint32_t words[kTile];
      for (int64_t i = begin; i < end; ++i) {
        const PhiloxStream stream(keys + 2 * i, salt_);
        for (int64_t at = 0; at < count_; at += kTile) {
          const int64_t some = std::min<int64_t>(kTile, count_ - at);
          stream.words_at(at, some, words);
          to_range(words, out + i * count_ + at, some, 24, 0, 1);
        }
      }
    });
  }

 private:
  const int64_t n_, count_, salt_;
  const int threads_;
};

Kernel prepare_numbers_of_keys(const plan::KernelQuery& q, const PrepareContext& context) {
  return std::make_unique<NumbersOfKeys>(q, context);
}

plan::LayoutPreference parameters_contiguous(const plan::KernelQuery& q) {
  plan::LayoutPreference p{std::vector(q.inputs.size(), plan::Layout::kAny), {plan::Layout::kAny}};
  p.inputs[0] = plan::Layout::kContiguous;
  return p;
}

}  // namespace

void drop_tile(const DropoutCall& call, const void* x, void* out, int64_t begin, int64_t n) {
  alignas(64) float mask[kTile];
  const double keep = 1 - call.p, scale = dropout_scale(call.p);
  bernoulli(call.state, call.salt, &keep, begin, n, mask);
  if (call.tile == TileType::kDouble)
    return drop(static_cast<const double*>(x), mask, scale, static_cast<double*>(out), n);
  drop(static_cast<const float*>(x), mask, static_cast<float>(scale), static_cast<float*>(out), n);
}

void add_random_kernels(KernelTable& table) {
  const auto add = [&](const char* op, Kernel (*prepare)(const plan::KernelQuery&, const PrepareContext&),
                       std::vector<plan::InPlacePair> in_place = {},
                       bool (*can_fuse)(const plan::KernelQuery&) = nullptr) {
    table.add(DeviceKind::kCpu, {.op = op,
                                 .prepare = prepare,
                                 .layouts = parameters_contiguous,
                                 .in_place = std::move(in_place),
                                 .can_fuse = can_fuse});
  };
  add("uniform", prepare_uniform);
  table.add(DeviceKind::kCpu, {.op = "numbers_of_keys", .prepare = prepare_numbers_of_keys});
  add("normal", prepare_normal);
  add("bernoulli", prepare_bernoulli);
  add("randint", prepare_randint);
  add("dropout", prepare_dropout, {{0, 1}}, [](const plan::KernelQuery&) { return true; });
}

}  // namespace sluice::cpu
