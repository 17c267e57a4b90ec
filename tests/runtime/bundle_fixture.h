#pragma once
// A bundle of one plan that needs no host function.
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "runtime/bundle/bundle.h"
#include "runtime/fixture.h"

namespace sluice::test {

// out = copy(x), with op "copy", and a variable that is added nowhere but must be bound.
inline Plan plain_plan() {
  Plans b("plain");
  b.stream("cpu:0", StreamKind::kCompute, 0);
  const int feed = b.feed("feed"), net = b.actor("net"), sink = b.sink("sink");
  const int w = b.variable("w", {kN}, true);
  const int x = b.reg("x", feed, {net}, {.quota = 2, .bytes = 16});
  const int y = b.reg("y", net, {sink}, {.quota = 2, .bytes = 16});
  const int z = b.reg("z", net, {sink}, {.quota = 2, .bytes = 16});
  b.run(net, "copy", {b.r(x)}, {b.r(y)});
  b.run(net, "copy", {b.v(w)}, {b.r(z)});
  b.input("x", x, b.f32({kN}));
  b.output("y", b.r(y));
  b.output("w", b.r(z));
  return b.build();
}

inline BundleTensor tensor(const Floats& values) {
  auto storage = std::make_shared<Storage>(make_host_allocator(), values.size() * 4);
  std::copy(values.begin(), values.end(), static_cast<float*>(storage->data()));
  return {PlanBuilder::f32({static_cast<int64_t>(values.size())}), storage};
}

// Writes the bundle of plain_plan().
inline void save_plain(const std::string& dir) {
  save_bundle(dir, {plain_plan(), "graph text\n", {{"w", tensor({1, 2, 3, 4})}}, {{"by", "test"}}});
}

// A folder that goes with the test.
class TestFolder {
 public:
  explicit TestFolder(const std::string& name)
      : path_((std::filesystem::path(::testing::TempDir()) / (name + std::to_string(getpid()))).string()) {}
  ~TestFolder() { std::filesystem::remove_all(path_); }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

}  // namespace sluice::test
