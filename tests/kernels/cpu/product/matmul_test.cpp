#include <array>
#include <random>
#include <thread>

#include "kernels/cpu/onednn/onednn.h"
#include "kernels/network_kernels.h"
#include "support/thread_counter.h"

namespace sluice {
namespace {

NamedAttrs transposes(bool a, bool b) { return {{"transpose_a", a}, {"transpose_b", b}}; }

// a (m, k) and b (k, n) by definition.
std::vector<double> product(const std::vector<double>& a, const std::vector<double>& b, int64_t m, int64_t k,
                            int64_t n) {
  std::vector<double> c(static_cast<size_t>(m * n));
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j)
      for (int64_t q = 0; q < k; ++q)
        c[static_cast<size_t>(i * n + j)] += a[static_cast<size_t>(i * k + q)] * b[static_cast<size_t>(q * n + j)];
  return c;
}
TensorSpec transposed(int64_t rows, int64_t cols, DType dtype) { return {dtype, {rows, cols}, {1, rows}}; }

class Matmul : public testing::TestWithParam<DType> {};

TEST_P(Matmul, MultipliesHoweverOperandsLie) {
  const int64_t m = 5, k = 7, n = 6;
  const auto a = noise(m * k, 1), b = noise(k * n, 2);
  const auto expected = product(a, b, m, k, n);
  const double tolerance = dtype_size(GetParam()) == 2 ? 2e-2 : 1e-6;
  for (const TensorSpec& as :
       {dense({m, k}, GetParam()), transposed(m, k, GetParam()), scrambled({m, k}, GetParam())}) {
    for (const TensorSpec& bs :
         {dense({k, n}, GetParam()), transposed(k, n, GetParam()), scrambled({k, n}, GetParam())}) {
      KernelCall call{
          "matmul", {TestTensor(as, a), TestTensor(bs, b)}, {dense({m, n}, GetParam())}, transposes(false, false)};
      expect_near(run_call(call)[0].read(), expected, tolerance, as.strides.str() + " x " + bs.strides.str());
    }
  }
}

// A matrix, or batches of them, in memory that a seed chooses: turned or not, its lines apart, and the last axis of the
// batches within the lines, as heads are within tokens.
TensorSpec drawn(const Shape& shape, DType dtype, std::mt19937& draw) {
  const int r = shape.rank();
  const bool turned = draw() % 2 == 0, within = r > 2 && draw() % 2 == 0;
  const int fast = turned ? r - 2 : r - 1, slow = turned ? r - 1 : r - 2;
  const int64_t line = shape[fast] + static_cast<int64_t>(draw() % 2 * (draw() % 5));
  Strides strides = contiguous_strides(shape);
  strides[fast] = 1;
  strides[slow] = line;
  int64_t extent = line * shape[slow];
  for (int axis = r - 3; axis >= 0; --axis) {
    strides[axis] = axis == r - 3 && within ? line : extent;
    if (axis == r - 3 && within) strides[slow] = line * shape[axis];
    extent *= shape[axis];
  }
  return {dtype, shape, strides};
}

TEST_P(Matmul, MultipliesBatchesHoweverTheyLie) {
  std::mt19937 draw(5);
  const std::array<int64_t, 9> sizes = {1, 2, 3, 4, 9, 16, 17, 24, 33};
  const double tolerance = dtype_size(GetParam()) == 2 ? 4e-2 : 1e-5;
  for (int i = 0; i < 300; ++i) {
    const auto size = [&] { return sizes[draw() % sizes.size()]; };
    const int64_t m = size(), k = size(), n = size();
    Shape batches;
    for (size_t axis = draw() % 3; axis > 0; --axis) batches.push_back(static_cast<int64_t>(1 + draw() % 4));
    const auto shaped = [&](int64_t rows, int64_t cols) {
      Shape shape = batches;
      shape.push_back(rows);
      shape.push_back(cols);
      return shape;
    };
    const TensorSpec as = drawn(shaped(m, k), GetParam(), draw), bs = drawn(shaped(k, n), GetParam(), draw);
    const auto a = noise(numel(as.shape), 2 * i), b = noise(numel(bs.shape), 2 * i + 1);
    std::vector<double> expected;
    for (int64_t q = 0; q < numel(batches); ++q) {
      const auto part = [&](const std::vector<double>& all, int64_t each) {
        return std::vector(all.begin() + q * each, all.begin() + (q + 1) * each);
      };
      const auto c = product(part(a, m * k), part(b, k * n), m, k, n);
      expected.insert(expected.end(), c.begin(), c.end());
    }
    const KernelCall call{
        "matmul", {TestTensor(as, a), TestTensor(bs, b)}, {dense(shaped(m, n), GetParam())}, transposes(false, false)};
    expect_near(run_call(call)[0].read(), expected, tolerance, as.strides.str() + " x " + bs.strides.str());
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, Matmul,
                         testing::Values(DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16),
                         [](const auto& info) { return dtype_name(info.param); });

TEST(MatmulTest, TransposedOperandsOfALargeProduct) {
  const int64_t m = 64, k = 100, n = 48;
  const auto a = noise(m * k, 3), b = noise(k * n, 4);
  const auto expected = product(a, b, m, k, n);
  auto transpose = [](const std::vector<double>& v, int64_t rows, int64_t cols) {
    std::vector<double> t(v.size());
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < cols; ++j) t[static_cast<size_t>(j * rows + i)] = v[static_cast<size_t>(i * cols + j)];
    return t;
  };
  for (bool ta : {false, true}) {
    for (bool tb : {false, true}) {
      const TestTensor x(ta ? dense({k, m}) : dense({m, k}), ta ? transpose(a, m, k) : a);
      const TestTensor y(tb ? dense({n, k}) : dense({k, n}), tb ? transpose(b, k, n) : b);
      expect_near(run_call({"matmul", {x, y}, {dense({m, n})}, transposes(ta, tb), 2})[0].read(), expected, 1e-5);
    }
  }
}

TEST(MatmulTest, StartsNoThreadsOnceItsTeamIsThere) {
  const auto times = [](int64_t n) {
    run_call({"matmul",
              {random_tensor(dense({n, n}), 7), random_tensor(dense({n, n}), 8)},
              {dense({n, n})},
              transposes(false, false),
              2});
  };
  times(128);  // makes the team
  const uint64_t before = test::threads_started();
  for (const int64_t n : {128, 130, 200}) times(n);
  EXPECT_EQ(test::threads_started(), before);
}

TEST(MatmulTest, BatchesThatRepeatByStrideZero) {
  TensorSpec repeated{DType::kFloat32, {3, 4, 5}, {0, 5, 1}};
  const TestTensor a(repeated, noise(20, 5)), b = random_tensor(dense({3, 5, 2}), 6);
  const auto got = run_call({"matmul", {a, b}, {dense({3, 4, 2})}, transposes(false, false)})[0].read();
  const auto all = b.read();
  for (int64_t i = 0; i < 3; ++i) {
    const auto expected = product(noise(20, 5), {all.begin() + i * 10, all.begin() + (i + 1) * 10}, 4, 5, 2);
    expect_near({got.begin() + i * 8, got.begin() + (i + 1) * 8}, expected, 1e-6);
  }
}

// Inner and columns of a product, threads, and whether b is transposed.
class Rows : public testing::TestWithParam<std::tuple<int, int, int, bool>> {};

TEST_P(Rows, RoundAlikeHoweverManyThereAre) {
  const auto [inner, cols, threads, by_columns] = GetParam();
  constexpr int64_t kMost = 64;
  const auto values = noise(kMost * inner, 10);
  const TestTensor b = random_tensor(by_columns ? dense({cols, inner}) : dense({inner, cols}), 11);
  auto run = [&](int64_t rows) {
    const TestTensor a(dense({rows, inner}), {values.begin(), values.begin() + rows * inner});
    return run_call({"matmul", {a, b}, {dense({rows, cols})}, transposes(false, by_columns), threads})[0].read();
  };
  const auto all = run(kMost);
  for (int64_t rows = 1; rows < kMost; ++rows)
    EXPECT_EQ(run(rows), std::vector<double>(all.begin(), all.begin() + rows * cols)) << rows << " rows";
}

INSTANTIATE_TEST_SUITE_P(Products, Rows,
                         testing::Combine(testing::Values(7, 64, 300, 600, 1100, 2100),
                                          testing::Values(1, 10, 64, 130, 300), testing::Values(1, 2, 5),
                                          testing::Bool()));

// With a bias and relu, or an addend: they come after the sum of a single row as after those of many.
TEST(MatmulTest, ASingleRowIsFinishedAsManyAre) {
  for (const int64_t inner : {1, 5, 130, 700, 1500}) {
    for (const int64_t cols : {1, 33, 200}) {
      SCOPED_TRACE(testing::Message() << inner << " x " << cols);
      const auto values = noise(8 * inner, 12), added = noise(8 * cols, 13);
      const TestTensor w = random_tensor(dense({cols, inner}), 14), bias = random_tensor(dense({cols}), 15);
      const auto run = [&](int64_t rows) {
        const TestTensor a(dense({rows, inner}), {values.begin(), values.begin() + rows * inner}),
            addend(dense({rows, cols}), {added.begin(), added.begin() + rows * cols});
        auto all =
            run_call({"linear", {a, w, bias}, {dense({rows, cols})}, {{"activation", std::string("relu")}}})[0].read();
        NamedAttrs attrs = transposes(false, true);
        const auto fused = run_call({"fused_matmul", {a, w, addend, bias}, {dense({rows, cols})}, attrs})[0].read();
        all.insert(all.end(), fused.begin(), fused.begin() + cols);
        return std::pair(std::vector<double>(all.begin(), all.begin() + cols),
                         std::vector<double>(all.end() - cols, all.end()));
      };
      EXPECT_EQ(run(1), run(8));
    }
  }
}

TEST(MatmulTest, NothingToSumGivesZero) {
  const auto y = run_call({"matmul",
                           {TestTensor(dense({2, 0})), TestTensor(dense({0, 3}))},
                           {dense({2, 3})},
                           transposes(false, false)})[0]
                     .read();
  EXPECT_EQ(y, std::vector<double>(6, 0.0));
}

TEST(LinearTest, ActivationsAgreeBetweenDtypes) {
  const auto x = noise(4 * 8, 7), w = noise(6 * 8, 8), b = noise(6, 9);
  for (const char* activation : {"none", "relu", "gelu", "gelu_tanh", "tanh", "sigmoid", "silu"}) {
    auto run = [&](DType dtype) {
      return run_call({"linear",
                       {TestTensor(dense({4, 8}, dtype), x), TestTensor(dense({6, 8}, dtype), w),
                        TestTensor(dense({6}, dtype), b)},
                       {dense({4, 6}, dtype)},
                       {{"activation", std::string(activation)}}})[0]
          .read();
    };
    expect_near(run(DType::kFloat32), run(DType::kFloat64), 1e-5, activation);
  }
}

TEST(LinearTest, RunsFromSeveralThreadsAtOnce) {
  const KernelCall call{
      "linear",
      {random_tensor(dense({16, 32}), 1), random_tensor(dense({24, 32}), 2), random_tensor(dense({24}), 3)},
      {dense({16, 24})},
      {{"activation", std::string("relu")}}};
  const auto kernel = prepare_call(call);
  const auto expected = run_prepared(*kernel, call)[0].read();
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) wrong += run_prepared(*kernel, call)[0].read() != expected;
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

// Products of matrices that do not change, which oneDNN reads in blocks with AVX-512.
struct PackedProduct {
  std::string op;
  bool transposed;
  std::vector<TestTensor> behind;  // bias, residual
  NamedAttrs attrs;
};
std::vector<PackedProduct> packed_products(int64_t m, int64_t n, DType dtype) {
  const TestTensor bias(dense({n}, dtype), noise(n, 3)), residual(dense({m, n}, dtype), noise(m * n, 4));
  return {{"matmul", false, {}, transposes(false, false)},
          {"matmul", true, {}, transposes(false, true)},
          {"linear", true, {bias}, {{"activation", std::string("gelu")}}},
          {"linear", true, {bias}, {{"activation", std::string("relu")}}},
          {"fused_matmul", true, {residual, bias}, transposes(false, true)}};
}

TEST_P(Matmul, PackedMatricesGiveEqualBits) {
  int packed = 0;
  for (const auto& [m, k, n] : std::vector<std::array<int64_t, 3>>{
           {1, 64, 64}, {2, 1, 3}, {3, 33, 65}, {5, 64, 1}, {16, 100, 64}, {17, 513, 130}, {70, 256, 48}}) {
    for (const PackedProduct& p : packed_products(m, n, GetParam())) {
      const TensorSpec b = p.transposed ? dense({n, k}, GetParam()) : dense({k, n}, GetParam());
      KernelCall call{p.op,
                      {TestTensor(dense({m, k}, GetParam()), noise(m * k, 1)), TestTensor(b, noise(k * n, 2))},
                      {dense({m, n}, GetParam())},
                      p.attrs,
                      2};
      call.inputs.insert(call.inputs.end(), p.behind.begin(), p.behind.end());
      plan::KernelQuery query = query_of(call);
      query.packed = {0, 1};
      const auto kernel = cpu_table().get(p.op, DeviceKind::kCpu).prepare(query, {.threads = call.threads});
      const auto plain = prepare_call(call);
      EXPECT_TRUE(plain->packings().empty());
      if (kernel->packings().empty()) continue;
      const Packing& packing = kernel->packings().front();
      EXPECT_EQ(packing.input, 1);
      const KernelCall pack{
          "pack", {call.inputs[1]}, {TensorSpec::contiguous({DType::kUInt8, {static_cast<int64_t>(packing.bytes)}})}};
      KernelCall with = call;
      with.inputs[1] = run_prepared(*packing.kernel, pack)[0];
      EXPECT_EQ(run_prepared(*kernel, with)[0].read(), run_prepared(*plain, call)[0].read())
          << p.op << " " << m << "x" << k << "x" << n << ": " << packing.format;
      ++packed;
    }
  }
  if (cpu::onednn::supports(GetParam()) && dnnl::get_effective_cpu_isa() >= dnnl::cpu_isa::avx512_core)
    EXPECT_GT(packed, 20);
  else
    EXPECT_EQ(packed, 0);
}

}  // namespace
}  // namespace sluice
