// Chains of steps as one loop, held against the loops of their steps one after the other: the same bits.
#include "kernels/cpu/loops/chains.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace sluice::cpu {
namespace {

using Other = ChainLink::Other;

// Numbers of all kinds, another order for each seed.
std::vector<float> numbers(int64_t n, int seed) {
  const float limits[] = {0.f,      -0.f,      1e-42f, -3e-39f,       3e38f,
                          INFINITY, -INFINITY, 1.f,    std::nanf(""), std::numeric_limits<float>::min()};
  std::vector<float> x(static_cast<size_t>(n));
  for (size_t i = 0; i < x.size(); ++i) {
    const auto k = i * 7 + static_cast<size_t>(seed) * 13;
    x[i] = k % 5 == 0 ? limits[k % 11 % 10] : std::sin(static_cast<float>(k)) * 3.f;
  }
  return x;
}

std::vector<std::vector<ChainLink>> known_chains() {
  std::vector<ChainLink> links;
  for (const ScalarOp& op : scalar_ops()) {
    if (op.floating == nullptr || *op.mode != '\0' || op.gives_bool || op.inputs > 2) continue;
    if (op.inputs == 1) links.push_back({op.name, Other::kNone});
    if (op.inputs == 2) links.push_back({op.name, Other::kEach});
    if (op.inputs == 2) links.push_back({op.name, Other::kOne});
  }
  std::vector<std::vector<ChainLink>> chains;
  for (const ChainLink& a : links)
    for (const ChainLink& b : links) {
      if (chain_loop(std::vector{a, b}) != nullptr) chains.push_back({a, b});
      for (const ChainLink& c : links)
        if (chain_loop(std::vector{a, b, c}) != nullptr) chains.push_back({a, b, c});
    }
  return chains;
}

TEST(Chains, HaveTheBitsOfTheirSteps) {
  const auto chains = known_chains();
  ASSERT_GE(chains.size(), 9u);
  for (const auto& links : chains) {
    for (const int64_t n : {1, 7, 64, 1023, 1025}) {
      std::vector<std::vector<float>> operands = {numbers(n, 0)};
      std::vector<float> expected = operands[0];
      for (const ChainLink& link : links) {
        const void* in[2] = {expected.data(), nullptr};
        if (link.other != Other::kNone) {
          operands.push_back(numbers(n, static_cast<int>(operands.size())));
          std::vector<float>& other = operands.back();
          if (link.other == Other::kOne) std::fill(other.begin(), other.end(), 0.37f);
          in[1] = other.data();
        }
        find_loops(*find_scalar_op(link.op))->f32(in, expected.data(), n);
      }
      std::vector<const void*> in;
      for (const auto& operand : operands) in.push_back(operand.data());
      for (const bool in_place : {false, true}) {
        std::vector<float> got(static_cast<size_t>(n));
        EXPECT_EQ(chain_loop(links)(in.data(), in_place ? operands[0].data() : got.data(), n), 0);
        if (in_place) got = operands[0];
        for (size_t i = 0; i < got.size(); ++i) {
          if (std::isnan(got[i]) && std::isnan(expected[i])) continue;
          ASSERT_EQ(std::memcmp(&got[i], &expected[i], sizeof(float)), 0)
              << links[0].op << " " << links[1].op << ", " << n << ", element " << i << ": " << got[i] << ", not "
              << expected[i];
        }
      }
    }
  }
}

// As many elements as a vector has, or what is left of them, or one by itself: threads share elements as they like.
TEST(Loops, GiveAnElementTheSameBitsWhereverItIs) {
  constexpr int64_t n = 600;
  const std::vector<float> x = numbers(n, 0), y = numbers(n, 1);
  const void* const in[] = {x.data(), y.data()};
  for (const ScalarOp& op : scalar_ops()) {
    const LoopSet* const loops = find_loops(op);
    if (op.floating == nullptr || op.gives_bool || loops == nullptr || loops->f32 == nullptr) continue;
    std::vector<float> whole(n), parts(n);
    ASSERT_EQ(loops->f32(in, whole.data(), n), 0);
    for (const int64_t size : {1, 3, 8, 13, 31}) {
      for (int64_t at = 0; at < n; at += size) {
        const void* const from[] = {x.data() + at, y.data() + at};
        ASSERT_EQ(loops->f32(from, parts.data() + at, std::min(size, n - at)), 0);
      }
      for (int64_t i = 0; i < n; ++i) {
        if (std::isnan(whole[i]) && std::isnan(parts[i])) continue;
        EXPECT_EQ(std::memcmp(&whole[i], &parts[i], sizeof(float)), 0)
            << op.name << " " << op.mode << " of " << x[i] << " and " << y[i] << ", in pieces of " << size << ": "
            << parts[i] << ", not " << whole[i];
      }
    }
  }
}

TEST(Chains, AreFoundByTheirStepsAlone) {
  EXPECT_NE(chain_loop(std::vector<ChainLink>{{"sub", Other::kOne}, {"exp"}}), nullptr);
  EXPECT_EQ(chain_loop(std::vector<ChainLink>{{"sub", Other::kEach}, {"exp"}}), nullptr);
  EXPECT_EQ(chain_loop(std::vector<ChainLink>{{"sub", Other::kOne}}), nullptr);
}

}  // namespace
}  // namespace sluice::cpu
