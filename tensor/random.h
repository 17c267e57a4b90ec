#pragma once
// Generators of random numbers: torch's sequential generator for creation and initialisation, and the state that
// counter-based random ops read.
#include <cstdint>
#include <memory>
#include <string>

#include "tensor/tensor.h"

namespace sluice {

// Thread safety: none; lock around it as torch does.
class Generator {
 public:
  explicit Generator(uint64_t seed = 67280421310721ull);
  ~Generator();
  DeviceId device;  // that it is said to draw for; it draws the same numbers for each
  // Restarts both streams of numbers.
  void manual_seed(uint64_t seed);
  uint64_t initial_seed() const { return seed_; }
  // Both streams as they are now, as bytes: uint8(n,). set_state() throws kType for another dtype, kRuntime for bytes
  // that are none of a generator's.
  Tensor get_state();
  void set_state(const Tensor& bytes);

  // First input and `salt` of one random op call. Eager: a fresh (seed, step) each time, salt 0. While tracing: the
  // generator's state becomes a variable that steps once per run of the graph, and every op has its own salt.
  struct Draw {
    Value state;
    int64_t salt = 0;
  };
  Draw next();
  // The state int64(2,) = (seed, step), shared with graphs that use this generator.
  const Tensor& state();

  // Creation, as torch's CPU generator: float32 and float64 (others by rounding float32, as torch does). Equal in every
  // bit, but for normal samples of float32, whose logarithms and cosines torch approximates.
  Tensor rand(const TensorType& type);
  Tensor randn(const TensorType& type);
  Tensor randint(const TensorType& type, int64_t low, int64_t high);
  Tensor randperm(int64_t n);
  Tensor bernoulli(const Shape& shape, double p);  // bool: true with probability p
  Tensor bits(const Shape& shape, int count);      // int64: `count` random bits each, 1 to 63
  // In-place fills (nn.init). one_by_one: normal samples as torch draws them for tensors that are not contiguous.
  void uniform_(const Tensor& tensor, double low, double high);
  void normal_(const Tensor& tensor, double mean, double std, bool one_by_one);

 private:
  uint32_t random32();
  uint64_t random64();
  double next_normal();
  template <class T>
  void fill_uniform(T* data, int64_t n, T low, T range);
  template <class T>
  void fill_normal(T* data, int64_t n, double mean, double std, bool rounded);
  template <class T>
  void fill_one_by_one(T* data, int64_t n, double mean, double std);
  template <class Fill>
  Tensor filled(const TensorType& type, const char* what, Fill fill);
  Tensor uniform(const TensorType& type, double low, double high, const char* what);
  void write_state(int64_t step);

  uint64_t seed_;
  struct Engine;
  const std::unique_ptr<Engine> engine_;
  bool has_next_normal_ = false;
  double next_normal_ = 0;  // samples come in pairs; this one waits
  Tensor state_;
};

}  // namespace sluice
