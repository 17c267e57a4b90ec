// A step through the public API into memory of the caller's allocates nothing, in any thread.
#include <gtest/gtest.h>

#include <algorithm>

#include "include/sluice/sluice.hpp"
#include "runtime/bundle_fixture.h"
#include "support/alloc_counter.h"

namespace sluice::test {
namespace {

TEST(SessionAllocations, OfAStepIntoTheCallersMemory) {
  const TestFolder folder("sluice_allocations_");
  save_plain(folder.path());
  api::Engine engine({.cores = 1});
  api::Session session = api::Session::load(engine, folder.path());
  const std::vector<api::Tensor> x = {api::Tensor::from<float>(filled(3), {kN})};
  const std::vector<api::Tensor> y = {api::Tensor(api::DType::kFloat32, {kN}), api::Tensor(api::DType::kFloat32, {kN})};
  uint64_t fewest = UINT64_MAX, of_run = UINT64_MAX;
  for (int i = 0; i < 100; ++i) {  // others may allocate meanwhile, and the first calls make what is kept
    const uint64_t before = allocations();
    session.run_into(x, y);
    fewest = std::min(fewest, allocations() - before);
    const uint64_t again = allocations();
    session.run(x);
    of_run = std::min(of_run, allocations() - again);
  }
  EXPECT_EQ(fewest, 0u);
  EXPECT_GT(of_run, 0u) << "the counter sees what is allocated";
  EXPECT_EQ(y[0].data<float>()[3], 3);
}

}  // namespace
}  // namespace sluice::test
