// torch's sequential CPU generator: a Mersenne Twister, and the order in which its numbers become samples.
#include "tensor/random.h"

#include <boost/random/mersenne_twister.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <numeric>
#include <sstream>
#include <utility>
#include <vector>

#include "graph/executor.h"
#include "graph/tape.h"
#include "kernels/cpu/random/box_muller.h"
#include "tensor/eager.h"
#include "tensor/trace_executor.h"

namespace sluice {
namespace {

// A sample in [0, 1) with as many random bits as the mantissa of T.
template <class T>
T unit(uint64_t bits) {
  constexpr int kDigits = std::numeric_limits<T>::digits;
  return static_cast<T>(bits & ((uint64_t{1} << kDigits) - 1)) * (T{1} / static_cast<T>(uint64_t{1} << kDigits));
}

using cpu::normal_by_16;

// The same of doubles.
void normal_by_16(double* samples, int64_t sixteens, double mean, double std) {
  for (double* x = samples; x != samples + 16 * sixteens; x += 16) {
    for (int j = 0; j < 8; ++j) {
      const double radius = std::sqrt(-2 * std::log(1 - x[j]));
      const double angle = 2 * std::numbers::pi * x[j + 8];
      x[j] = std::fma(radius * std::cos(angle), std, mean);
      x[j + 8] = std::fma(radius * std::sin(angle), std, mean);
    }
  }
}

constexpr int64_t kVectorSize = 16;  // from this size on, normal samples are made 16 at a time

}  // namespace

// Three times as fast as the standard library's.
struct Generator::Engine : boost::random::mt19937 {};

Generator::Generator(uint64_t seed) : engine_(std::make_unique<Engine>()) { manual_seed(seed); }
Generator::~Generator() = default;

void Generator::manual_seed(uint64_t seed) {
  seed_ = seed;
  engine_->seed(static_cast<uint32_t>(seed));
  has_next_normal_ = false;
  if (state_.defined()) write_state(0);  // graphs share this memory
}

void Generator::write_state(int64_t step) {
  const CreationScope host{DeviceId{}};
  const int64_t state[2] = {static_cast<int64_t>(seed_), step};
  const ExecutorScope now(current_eager());
  current_eager().assign(state_, Tensor::from_host(state_.type(), state));
}

const Tensor& Generator::state() {
  const CreationScope host{DeviceId{}};
  if (!state_.defined()) {
    const ExecutorScope now(current_eager());
    state_ = Tensor::empty({DType::kInt64, {2}});
    write_state(0);
  }
  return state_;
}

Generator::Draw Generator::next() {
  const CreationScope host{DeviceId{}};
  state();
  if (TraceExecutor* trace = current_trace()) {
    auto [value, salt] = trace->random_state(state_);
    return {value, salt};
  }
  int64_t now[2];
  state_.copy_to_host(now);
  const Draw draw{Tensor::from_host(state_.type(), now), 0};
  write_state(now[1] + 1);
  return draw;
}

namespace {

constexpr uint32_t kEngineWords = boost::random::mt19937::state_size;

// The bytes that get_state() writes.
struct GeneratorBytes {
  uint64_t seed, step;
  double next_normal;
  uint32_t has_next_normal;
  uint32_t engine[kEngineWords];
  uint32_t words_used;  // of these: all
};

}  // namespace

Tensor Generator::get_state() {
  const CreationScope host{DeviceId{}};
  GeneratorBytes bytes{};
  bytes.seed = seed_;
  bytes.next_normal = next_normal_;
  bytes.has_next_normal = has_next_normal_;
  std::stringstream text;  // the only way to an engine's state
  text << *engine_;
  for (uint32_t& word : bytes.engine) text >> word;
  bytes.words_used = kEngineWords;
  int64_t now[2];
  state().copy_to_host(now);
  bytes.step = static_cast<uint64_t>(now[1]);
  const ExecutorScope eager(current_eager());
  return Tensor::from_host({DType::kUInt8, {static_cast<int64_t>(sizeof bytes)}}, &bytes);
}

void Generator::set_state(const Tensor& state) {
  SLUICE_CHECK_KIND(kType, state.dtype() == DType::kUInt8, "set_state: RNG state is {}; must be a torch.ByteTensor",
                    state.type().str());
  GeneratorBytes bytes{};
  SLUICE_CHECK_KIND(kRuntime, state.size() == static_cast<int64_t>(sizeof bytes),
                    "set_state: RNG state is wrong size: {} bytes; must be {}, as get_state() gives", state.size(),
                    sizeof bytes);
  state.copy_to_host(&bytes);
  SLUICE_CHECK_KIND(kRuntime, bytes.words_used == kEngineWords,
                    "set_state: RNG state is damaged, or of an earlier build: {} of {} words are used; take it from "
                    "get_state()",
                    bytes.words_used, kEngineWords);
  std::stringstream text;
  for (const uint32_t word : bytes.engine) text << word << ' ';
  text >> *engine_;
  seed_ = bytes.seed;
  has_next_normal_ = bytes.has_next_normal != 0;
  next_normal_ = bytes.next_normal;
  this->state();
  write_state(static_cast<int64_t>(bytes.step));
}

uint32_t Generator::random32() { return (*engine_)(); }

uint64_t Generator::random64() {
  const uint64_t high = random32();
  return high << 32 | random32();
}

double Generator::next_normal() {
  if (has_next_normal_) {
    has_next_normal_ = false;
    return next_normal_;
  }
  const double angle = 2 * std::numbers::pi * unit<double>(random64());
  const double radius = std::sqrt(-2 * std::log1p(-unit<double>(random64())));
  next_normal_ = radius * std::sin(angle);
  has_next_normal_ = true;
  return radius * std::cos(angle);
}

template <class T>
void Generator::fill_uniform(T* data, int64_t n, T low, T range) {
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t bits = sizeof(T) == 8 ? random64() : random32();
    data[i] = low == 0 && range == 1 ? unit<T>(bits) : std::fma(unit<T>(bits), range, low);
  }
}

template <class T>
void Generator::fill_one_by_one(T* data, int64_t n, double mean, double std) {
  for (int64_t i = 0; i < n; ++i) data[i] = static_cast<T>(std::fma(next_normal(), std, mean));
}

// rounded: the samples of a dtype of 16 bits. Samples that are drawn anew are not drawn before.
template <class T>
void Generator::fill_normal(T* data, int64_t n, double mean, double std, bool rounded) {
  if (n < kVectorSize) {
    fill_one_by_one(data, n, mean, std);
    return;
  }
  fill_uniform<T>(data, rounded ? n - n % kVectorSize : n, 0, 1);
  normal_by_16(data, n / kVectorSize, static_cast<T>(mean), static_cast<T>(std));
  if (n % kVectorSize == 0) return;
  data += n - kVectorSize;  // the last 16 are drawn anew
  fill_uniform<T>(data, kVectorSize, 0, 1);
  normal_by_16(data, 1, static_cast<T>(mean), static_cast<T>(std));
}

template <class Fill>
Tensor Generator::filled(const TensorType& type, const char* what, Fill fill) {
  SLUICE_CHECK_KIND(kType, is_floating(type.dtype), "{}: dtype is {}; must be a floating point type", what,
                    dtype_name(type.dtype));
  const CreationScope host{DeviceId{}};
  const ExecutorScope now(current_eager());
  const GradMode off(false);
  const bool wide = type.dtype == DType::kFloat64;
  const Tensor made = Tensor::empty({wide ? DType::kFloat64 : DType::kFloat32, type.shape});
  if (wide)
    fill(static_cast<double*>(made.write()), made.size());
  else
    fill(static_cast<float*>(made.write()), made.size());
  return made.to(type.dtype);
}

namespace {

// A number as a value of that dtype.
float rounded_to(DType dtype, double number) {
  const float exact = static_cast<float>(number);
  float rounded;
  Tensor::from_host({DType::kFloat32, {}}, &exact).to(dtype).to(DType::kFloat32).copy_to_host(&rounded);
  return rounded;
}

}  // namespace

// A sample of 16 bits that is rounded up to `high` becomes `low`.
Tensor Generator::uniform(const TensorType& type, double low, double high, const char* what) {
  const bool rounded = is_floating(type.dtype) && dtype_size(type.dtype) == 2;
  const CreationScope host{DeviceId{}};
  const ExecutorScope now(current_eager());
  const GradMode off(false);
  const Tensor made = filled(type, what, [&]<class T>(T* data, int64_t n) {
    fill_uniform<T>(data, n, static_cast<T>(low), static_cast<T>(high) - static_cast<T>(low));
  });
  if (!rounded || low == high) return made;
  const float top = rounded_to(type.dtype, high);
  const Tensor wide = made.to(DType::kFloat32);
  auto* data = static_cast<float*>(wide.write());
  for (int64_t i = 0; i < wide.size(); ++i) {
    if (data[i] == top) data[i] = static_cast<float>(low);
  }
  return wide.to(type.dtype);
}

Tensor Generator::rand(const TensorType& type) { return uniform(type, 0, 1, "rand"); }

Tensor Generator::randn(const TensorType& type) {
  const bool rounded = dtype_size(type.dtype) == 2;
  return filled(type, "randn", [&]<class T>(T* data, int64_t n) { fill_normal<T>(data, n, 0, 1, rounded); });
}

void Generator::uniform_(const Tensor& tensor, double low, double high) {
  SLUICE_CHECK(low <= high, "uniform_: empty range: from {} to {}; low must not exceed high", low, high);
  write_in_place(tensor, uniform(tensor.type(), low, high, "uniform_"));
}

void Generator::normal_(const Tensor& tensor, double mean, double std, bool one_by_one) {
  SLUICE_CHECK(std >= 0, "normal_: standard deviation: {}; must be >= 0", std);
  const bool rounded = dtype_size(tensor.dtype()) == 2;
  const Tensor made = filled(tensor.type(), "normal_", [&]<class T>(T* data, int64_t n) {
    if (one_by_one)
      fill_one_by_one<T>(data, n, mean, std);
    else
      fill_normal<T>(data, n, mean, std, rounded);
  });
  write_in_place(tensor, made);
}

Tensor Generator::bernoulli(const Shape& shape, double p) {
  const CreationScope host{DeviceId{}};
  const ExecutorScope now(current_eager());
  const GradMode off(false);
  const Tensor made = Tensor::empty({DType::kBool, shape});
  auto* data = static_cast<bool*>(made.write());
  for (int64_t i = 0; i < made.size(); ++i) data[i] = unit<double>(random64()) < p;
  return made;
}

Tensor Generator::bits(const Shape& shape, int count) {
  SLUICE_CHECK(count > 0 && count < 64, "bits: {} bits; must be 1 to 63", count);
  const CreationScope host{DeviceId{}};
  const ExecutorScope now(current_eager());
  const GradMode off(false);
  const Tensor made = Tensor::empty({DType::kInt64, shape});
  auto* data = static_cast<int64_t*>(made.write());
  const uint64_t mask = (uint64_t{1} << count) - 1;
  for (int64_t i = 0; i < made.size(); ++i) {
    data[i] = static_cast<int64_t>((count > 32 ? random64() : random32()) & mask);
  }
  return made;
}

Tensor Generator::randint(const TensorType& type, int64_t low, int64_t high) {
  const CreationScope host{DeviceId{}};
  SLUICE_CHECK(low < high, "randint: empty range: from {} to {}; low must be below high", low, high);
  const ExecutorScope now(current_eager());
  const GradMode off(false);
  const uint64_t range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  const Tensor made = Tensor::empty({DType::kInt64, type.shape});
  auto* data = static_cast<int64_t*>(made.write());
  for (int64_t i = 0; i < made.size(); ++i) {
    const uint64_t bits = range >= uint64_t{1} << 28 ? random64() : random32();  // keeps the skew of % small
    data[i] = static_cast<int64_t>(bits % range + static_cast<uint64_t>(low));
  }
  return made.to(type.dtype);
}

Tensor Generator::randperm(int64_t n) {
  const CreationScope host{DeviceId{}};
  SLUICE_CHECK(n >= 0, "randperm: n is {}; must be >= 0", n);
  const ExecutorScope now(current_eager());
  const Tensor made = Tensor::empty({DType::kInt64, {n}});
  auto* data = static_cast<int64_t*>(made.write());
  std::iota(data, data + n, 0);
  for (int64_t i = 0; i + 1 < n; ++i) std::swap(data[i], data[i + random32() % static_cast<uint64_t>(n - i)]);
  return made;
}

}  // namespace sluice
