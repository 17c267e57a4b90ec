// Which loop computes what.
#include "kernels/cpu/loops/loops.h"

#include <iterator>
#include <string_view>

#include "kernels/cpu/math/vector_math.h"

namespace sluice::cpu {
namespace {

template <class T>
SLUICE_INLINE int choose(const void* const* in, void* out, int64_t n) {
  const uint8_t* c = static_cast<const uint8_t*>(in[0]);
  const T *a = static_cast<const T*>(in[1]), *b = static_cast<const T*>(in[2]);
  T* y = static_cast<T*>(out);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const T x = a[i], z = b[i];
    y[i] = c[i] ? x : z;
  }
  return 0;
}

// Compiled for several instruction sets, which templates cannot be.
SLUICE_LIGHT_CLONES int choose_1(const void* const* in, void* out, int64_t n) { return choose<uint8_t>(in, out, n); }
SLUICE_LIGHT_CLONES int choose_2(const void* const* in, void* out, int64_t n) { return choose<uint16_t>(in, out, n); }
SLUICE_LIGHT_CLONES int choose_4(const void* const* in, void* out, int64_t n) { return choose<uint32_t>(in, out, n); }
SLUICE_LIGHT_CLONES int choose_8(const void* const* in, void* out, int64_t n) { return choose<uint64_t>(in, out, n); }
int choose_16(const void* const* in, void* out, int64_t n) { return choose<Bytes16>(in, out, n); }

}  // namespace

const LoopSet* find_loops(const ScalarOp& op) {
  for (const auto& loops : {unary_loops(), binary_loops(), comparison_loops(), activation_loops(), special_loops()})
    for (const LoopSet& set : loops)
      if (std::string_view(op.name) == set.op && std::string_view(op.mode) == set.mode) return &set;
  return nullptr;
}

Loop loop_of(const LoopSet& set, TileType tile) {
  switch (tile) {
    case TileType::kFloat: return set.f32;
    case TileType::kDouble: return set.f64;
    case TileType::kComplexFloat: return set.c64;
    case TileType::kComplexDouble: return set.c128;
    default: return set.i64;
  }
}

Loop loop_with_one(const LoopSet& set, TileType tile, size_t one) {
  if (one >= std::size(set.f32_one)) return nullptr;
  if (tile == TileType::kFloat) return set.f32_one[one];
  return tile == TileType::kDouble ? set.f64_one[one] : nullptr;
}

Loop where_loop(int64_t element_size) {
  switch (element_size) {
    case 1: return choose_1;
    case 2: return choose_2;
    case 4: return choose_4;
    case 8: return choose_8;
    default: return choose_16;
  }
}

TileType tile_of_cast(DType from, DType to) {
  return to == DType::kFloat32 && !is_floating(from) && !is_complex(from) ? TileType::kFloat : tile_type(from);
}

}  // namespace sluice::cpu
