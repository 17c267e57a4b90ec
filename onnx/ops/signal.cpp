// Fourier transforms, and features of signals and of words.
#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "graph/ops/comparison.h"
#include "graph/ops/complex.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/fft.h"
#include "graph/ops/movement.h"
#include "graph/ops/shaping.h"
#include "graph/ops/strided_view.h"
#include "onnx/table.h"
#include "tensor/tensor.h"

namespace sluice::onnx {
namespace {

// Parts in the last dim (of 1: real alone) as complex numbers.
Value complex_of(const Value& x, DType wide) {
  const int64_t parts = x.rank() > 0 ? x.shape().back() : 0;
  SLUICE_CHECK(parts == 1 || parts == 2, "a signal of shape {}; its last dim must be 1 or 2", x.shape().str());
  const Value real = ops::cast(ops::select(x, -1, 0), wide);
  return ops::complex(real, parts == 2 ? ops::cast(ops::select(x, -1, 1), wide) : ops::zeros_like(real));
}

// The first n elements, filled up with zeros.
Value fitted(const Value& x, int axis, int64_t n) {
  const int64_t size = x.shape()[axis];
  if (n <= size) return ops::narrow(x, axis, 0, n);
  Ints low(static_cast<size_t>(x.rank()), 0), high = low;
  high[static_cast<size_t>(axis)] = n - size;
  return ops::pad(x, low, high);
}

Value transformed(const Call& c) {
  const Value& x = c.in(0);
  const DType wide = x.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  const int64_t given = c.version() < 20 ? c.i("axis", 1) : c.has(2) ? c.integer(2) : -2;
  const int axis = normalize_axis(given, x.rank(), "axis");
  SLUICE_CHECK(axis < x.rank() - 1, "axis {} of {}; must not be the last", axis, x.shape().str());
  const bool inverse = c.i("inverse") != 0, onesided = c.i("onesided") != 0;
  const Value z = complex_of(x, wide);
  const int64_t size = z.shape()[axis];
  const int64_t n = c.has(1) ? c.integer(1) : inverse && onesided ? 2 * (size - 1) : size;
  SLUICE_CHECK(n > 0, "a length of {}; must be positive", n);
  if (inverse && onesided) {
    const Value real = ops::fourier_hermitian(fitted(z, axis, n / 2 + 1), axis, true, 1.0 / static_cast<double>(n), n);
    return ops::cast(ops::unsqueeze(real, -1), x.dtype());
  }
  Value y = ops::fourier(fitted(z, axis, n), axis, inverse, inverse ? 1.0 / static_cast<double>(n) : 1.0);
  if (onesided) y = ops::narrow(y, axis, 0, n / 2 + 1);
  return ops::cast(ops::view_as_real(y), x.dtype());
}

// Transforms of frames of a signal (batch, length, 1 or 2).
Value short_time_transform(const Call& c) {
  const Value& x = c.in(0);
  SLUICE_CHECK(x.rank() == 2 || x.rank() == 3, "a signal of shape {}; must be (batch, length, parts)", x.shape().str());
  const Value z = complex_of(x.rank() == 2 ? ops::unsqueeze(x, -1) : x,
                             x.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32);
  const int64_t step = c.integer(1);
  const int64_t length = c.has(3) ? c.integer(3) : c.has(2) ? numel(c.in(2).shape()) : z.shape()[1];
  SLUICE_CHECK(step > 0 && length > 0 && length <= z.shape()[1],
               "frames of {} every {} of {}; must be positive and fit", length, step, z.shape()[1]);
  Value frames = ops::sliding_windows(z, 1, length, step);  // (batch, frames, length)
  if (c.has(2)) frames = ops::mul(frames, c.in(2));
  Value y = ops::fourier(frames, 2, false, 1);
  if (c.i("onesided", 1) != 0) y = ops::narrow(y, 2, 0, length / 2 + 1);
  return ops::cast(ops::view_as_real(y), x.dtype());
}

Value mel_weights(const Call& c) {
  const int64_t bins = c.integer(0), length = c.integer(1), rate = c.integer(2);
  SLUICE_CHECK(bins > 0 && length > 0 && rate > 0 && bins < 1 << 20 && length < 1 << 24,
               "{} bins, {} samples at {} Hz; must be positive", bins, length, rate);
  const auto mel = [](double hertz) { return 2595 * std::log1p(hertz / 700) / std::log(10.0); };
  const double low = mel(c.number(3)), high = mel(c.number(4));
  const double step = (high - low) / static_cast<double>(bins + 2);
  const int64_t rows = length / 2 + 1;
  std::vector<int64_t> at;
  for (int64_t i = 0; i < bins + 2; ++i) {
    const double hertz = 700 * std::expm1((static_cast<double>(i) * step + low) / 2595 * std::log(10.0));
    const double bin = std::floor(static_cast<double>(length + 1) * hertz / static_cast<double>(rate));
    SLUICE_CHECK(bin >= 0 && bin <= static_cast<double>(rows), "an edge beyond half the rate of {} Hz; must be below",
                 rate);
    at.push_back(static_cast<int64_t>(bin));
  }
  std::vector<float> weights(static_cast<size_t>(rows * bins), 0);
  const auto set = [&](int64_t row, int64_t bin, double value) {
    if (row < rows) weights[static_cast<size_t>(row * bins + bin)] = static_cast<float>(value);
  };
  for (int64_t i = 0; i < bins; ++i) {
    const int64_t a = at[static_cast<size_t>(i)], b = at[static_cast<size_t>(i) + 1],
                  d = at[static_cast<size_t>(i) + 2];
    if (a == b) set(b, i, 1);
    for (int64_t j = a; a != b && j <= b; ++j) set(j, i, static_cast<double>(j - a) / static_cast<double>(b - a));
    for (int64_t j = b; j < d; ++j) set(j, i, static_cast<double>(d - j) / static_cast<double>(d - b));
  }
  return ops::cast(Tensor::from_host({DType::kFloat32, {rows, bins}}, weights.data()),
                   c.dtype("output_datatype", DType::kFloat32));
}

// How often n-grams of whole numbers occur, with gaps between their elements.
Value ngrams(const Call& c) {
  if (c.has_attr("pool_strings")) c.refuse("n-grams of strings; Sluice has no tensors of them");
  const Value& x = c.in(0);
  const Ints pool = c.is("pool_int64s"), starts = c.is("ngram_counts"), places = c.is("ngram_indexes");
  const int64_t shortest = c.i("min_gram_length"), longest = c.i("max_gram_length"), gaps = c.i("max_skip_count");
  const std::vector<double> weights = c.fs("weights");
  const std::string mode = c.s("mode");
  SLUICE_CHECK(!places.empty() && (weights.empty() || weights.size() == places.size()) && shortest > 0 && gaps >= 0 &&
                   gaps < 1 << 20,
               "{} n-grams with {} weights from length {}; must be some, and one each", places.size(), weights.size(),
               shortest);
  std::map<Ints, size_t> known;  // n-grams, and the numbers that they have
  size_t number = 0;
  for (size_t n = 0; n < starts.size(); ++n) {
    const int64_t end = n + 1 < starts.size() ? starts[n + 1] : static_cast<int64_t>(pool.size()),
                  size = static_cast<int64_t>(n) + 1;
    SLUICE_CHECK(starts[n] >= 0 && starts[n] <= end && end <= static_cast<int64_t>(pool.size()),
                 "ngram_counts do not lie within the pool");
    for (int64_t at = starts[n]; at + size <= end; at += size, ++number)
      if (size >= shortest && size <= longest) known[Ints(pool.begin() + at, pool.begin() + at + size)] = number;
  }
  SLUICE_CHECK(number <= places.size(), "{} n-grams, {} places; must have one each", number, places.size());
  const int64_t width = *std::max_element(places.begin(), places.end()) + 1;
  SLUICE_CHECK(*std::min_element(places.begin(), places.end()) >= 0 && width < 1 << 28,
               "places up to {}; must not be negative", width);
  const Ints values = c.ints(0);
  const int64_t rows = x.rank() > 1 ? x.shape()[0] : 1,
                length = static_cast<int64_t>(values.size()) / std::max<int64_t>(rows, 1);
  std::vector<float> counts(static_cast<size_t>(rows * width), 0);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t size = shortest; size <= longest; ++size)
      for (int64_t gap = 1; gap <= (size == 1 ? 1 : gaps + 1); ++gap)
        for (int64_t at = 0; at + gap * (size - 1) < length; ++at) {
          Ints gram;
          for (int64_t k = 0; k < size; ++k) gram.push_back(values[static_cast<size_t>(row * length + at + k * gap)]);
          if (const auto found = known.find(gram); found != known.end())
            ++counts[static_cast<size_t>(row * width + places[found->second])];
        }
  std::vector<float> weight_of(static_cast<size_t>(width), 1);
  for (size_t i = 0; i < weights.size(); ++i)
    weight_of[static_cast<size_t>(places[i])] = static_cast<float>(weights[i]);
  for (size_t i = 0; i < counts.size(); ++i) {
    const float w = weight_of[i % static_cast<size_t>(width)];
    if (mode == "IDF") counts[i] = counts[i] > 0 ? w : 0;
    if (mode == "TFIDF") counts[i] *= w;
  }
  const Shape shape = x.rank() > 1 ? Shape({rows, width}) : Shape({width});
  return Tensor::from_host({DType::kFloat32, shape}, counts.data());
}

}  // namespace

Entries signal_entries() {
  return {
      {"DFT", transformed, 6},
      {"MelWeightMatrix", mel_weights, 31},
      {"STFT", short_time_transform, 10},
      {"TfIdfVectorizer", ngrams},
  };
}

}  // namespace sluice::onnx
