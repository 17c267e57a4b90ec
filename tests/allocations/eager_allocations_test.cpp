// How many heap allocations an eager op makes.
#include <gtest/gtest.h>

#include <algorithm>

#include "graph/ops/activation.h"
#include "graph/ops/elementwise.h"
#include "graph/tape.h"
#include "support/alloc_counter.h"
#include "tensor/tensor_fixture.h"

namespace sluice::test {
namespace {

class EagerAllocations : public TensorTest {};

// The fewest of many calls: caches are warm, and no other thread allocates. The result of a call goes before the next
// one.
template <class F>
uint64_t allocations_of(F f) {
  uint64_t fewest = UINT64_MAX;
  for (int i = 0; i < 100; ++i) {
    const uint64_t before = allocations();
    const Value result = f();
    fewest = std::min(fewest, allocations() - before);
  }
  return fewest;
}

TEST_F(EagerAllocations, OfASmallOp) {
  const Tensor x = vec({1, 2, 3, 4}), y = vec({5, 6, 7, 8});
  EXPECT_LE(allocations_of([&] { return ops::add(x, y); }), 3u);
  EXPECT_LE(allocations_of([&] { return ops::mul(x, y); }), 3u);
  EXPECT_LE(allocations_of([&] { return ops::tanh(x); }), 3u);
}

TEST_F(EagerAllocations, OfAnUpdateInPlace) {
  const Tensor x = vec({1, 2, 3, 4}), y = vec({5, 6, 7, 8});
  const GradMode off(false);
  // The alias that stands for the old content, and what call() returns.
  EXPECT_LE(allocations_of([&] {
              update_in_place(x, [&](const Value& old) { return ops::add(old, y); }, {.at_once = true});
              return Value();
            }),
            3u);
}

}  // namespace
}  // namespace sluice::test
