// Watched kernels: they compute the same, whatever lies in each other's place, and one that strays is named.
#include "kernels/guarded_kernel.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "kernels/kernel_cache.h"
#include "kernels/network_kernels.h"

namespace sluice {
namespace {

// y = x + 1, element by element from behind; and where `beyond` is set, one element more.
class AddOne final : public PreparedKernel {
 public:
  AddOne(const plan::KernelQuery& q, int64_t beyond) : x_(q.inputs[0]), y_(q.outputs[0]), beyond_(beyond) {}
  void run(const KernelArgs& args) const override {
    const auto* const x = static_cast<const float*>(args.inputs[0]);
    auto* const y = static_cast<float*>(args.outputs[0]);
    for (int64_t i = x_.shape[0] - 1; i >= 0; --i) y[i * y_.strides[0]] = x[i * x_.strides[0]] + 1;
    for (int64_t i = 0; i < beyond_; ++i) y[(y_.shape[0] - 1) * y_.strides[0] + 1 + i] = 0;
  }

 private:
  TensorSpec x_, y_;
  int64_t beyond_;
};

plan::KernelQuery query_of(int64_t n, int64_t from, int64_t to) {
  const auto spec = [&](int64_t stride) { return TensorSpec{DType::kFloat32, {n}, {stride}}; };
  return {.op = "add_one", .attrs = {}, .inputs = {spec(from)}, .outputs = {spec(to)}, .device = {}, .cores = 1};
}
std::shared_ptr<const PreparedKernel> watched(const plan::KernelQuery& q, int64_t beyond = 0) {
  return cpu::guarded(std::make_shared<AddOne>(q, beyond), q);
}
void run(const PreparedKernel& kernel, const float* from, float* to) {
  const void* const inputs[] = {from};
  void* const outputs[] = {to};
  kernel.run({.inputs = inputs, .outputs = outputs});
}

TEST(GuardedKernel, ComputesTheSameOnOperandsThatShareMemory) {
  std::vector<float> v = {1, 2, 3, 4, 5, 6, 7, 8};
  run(*watched(query_of(8, 1, 1)), v.data(), v.data());  // in place
  EXPECT_EQ(v, (std::vector<float>{2, 3, 4, 5, 6, 7, 8, 9}));
  run(*watched(query_of(4, 2, 2)), v.data(), v.data() + 1);  // columns between those of the input, which stay
  EXPECT_EQ(v, (std::vector<float>{2, 3, 4, 5, 6, 7, 8, 9}));
  run(*watched(query_of(4, 2, 1)), v.data(), v.data());  // shorter in its place
  EXPECT_EQ(std::vector<float>(v.begin(), v.begin() + 1), (std::vector<float>{3}));
  std::vector<float> w(3, -1);
  run(*watched(query_of(2, 3, 2)), v.data() + 4, w.data());
  EXPECT_EQ(w, (std::vector<float>{v[4] + 1, -1, v[7] + 1}));
}

TEST(GuardedKernel, SaysHowFarAKernelWroteAndHandsNothingOn) {
  std::vector<float> v = {1, 2, 3, 4};
  EXPECT_EQ(test::message_of([&] { run(*watched(query_of(2, 1, 1), 3), v.data(), v.data()); }),
            "add_one: memory guard: the kernel wrote beyond its output 0, of 8 bytes, up to byte 20; it must stay "
            "within: mend it, or report it");
  EXPECT_EQ(v, (std::vector<float>{1, 2, 3, 4}));
}

TEST(GuardedKernel, IsWatchedOnce) {
  const auto once = watched(query_of(2, 1, 1));
  EXPECT_EQ(cpu::guarded(once, query_of(2, 1, 1)), once);
}

// Every kernel that a cache prepares, where SLUICE_GUARD says so; the setting is read when a process begins.
TEST(GuardedKernel, AllKernelsOfAProcessAreWatchedWhereItIsSet) {
  constexpr const char* kChild = "SLUICE_TEST_GUARDED_CHILD";
  if (std::getenv(kChild) == nullptr) {
    for (const char* setting : {"1", "0"}) {
      const pid_t child = fork();
      if (child == 0) {
        setenv(kChild, "1", 1);
        setenv("SLUICE_GUARD", setting, 1);
        execl("/proc/self/exe", "kernels_tests", "--gtest_filter=*AllKernelsOfAProcess*", "--gtest_brief=1", nullptr);
        _exit(127);
      }
      int status = 0;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      EXPECT_EQ(status, 0) << "SLUICE_GUARD=" << setting;
    }
    return;
  }
  const bool set = std::getenv("SLUICE_GUARD")[0] == '1';
  KernelTable table;
  table.add(DeviceKind::kCpu, {.op = "add_one", .prepare = [](const plan::KernelQuery& q, const PrepareContext&) {
                                 return std::make_unique<AddOne>(q, 1);
                               }});
  KernelCache cache(table);
  std::vector<float> v = {1, 2, 3, 4};
  const std::string told = test::message_of([&] { run(*cache.get(query_of(2, 1, 1)), v.data(), v.data()); });
  EXPECT_EQ(told.find("memory guard") != std::string::npos, set) << told;
  EXPECT_EQ(v, (set ? std::vector<float>{1, 2, 3, 4} : std::vector<float>{2, 3, 0, 4}));
}

}  // namespace
}  // namespace sluice
