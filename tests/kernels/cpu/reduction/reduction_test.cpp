#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tests/kernels/kernel_runner.h"

namespace sluice {
namespace {

struct Reduced {
  std::vector<std::vector<double>> groups;  // elements of every output, in row-major order of both
  Shape shape;
};

Reduced group(const Shape& shape, const std::vector<double>& values, const Ints& dims, bool keepdim) {
  const auto reduced = [&](int i) { return dims.empty() || std::find(dims.begin(), dims.end(), i) != dims.end(); };
  Reduced r;
  int64_t outputs = 1;
  for (int i = 0; i < shape.rank(); ++i) {
    if (!reduced(i)) outputs *= shape[i];
    if (!reduced(i) || keepdim) r.shape.push_back(reduced(i) ? 1 : shape[i]);
  }
  r.groups.resize(static_cast<size_t>(outputs));
  for (size_t i = 0; i < values.size(); ++i) {
    int64_t rest = static_cast<int64_t>(i), at = 0, scale = 1;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      if (!reduced(axis)) {
        at += rest % shape[axis] * scale;
        scale *= shape[axis];
      }
      rest /= shape[axis];
    }
    r.groups[static_cast<size_t>(at)].push_back(values[i]);
  }
  return r;
}

double reference(const std::string& op, const std::vector<double>& v) {
  double sum = 0, prod = 1;
  for (double x : v) sum += x, prod *= x;
  if (op == "sum") return sum;
  if (op == "mean") return sum / static_cast<double>(v.size());
  if (op == "prod") return prod;
  if (op == "amax") return *std::max_element(v.begin(), v.end());
  if (op == "amin") return *std::min_element(v.begin(), v.end());
  if (op == "any") return std::any_of(v.begin(), v.end(), [](double x) { return x != 0; });
  if (op == "all") return std::all_of(v.begin(), v.end(), [](double x) { return x != 0; });
  if (op == "argmax") return static_cast<double>(std::max_element(v.begin(), v.end()) - v.begin());
  return static_cast<double>(std::min_element(v.begin(), v.end()) - v.begin());
}

std::vector<double> noise(int64_t n, double low, double high) {
  std::vector<double> v(static_cast<size_t>(n));
  uint32_t s = 12345;
  for (double& x : v) {
    s = s * 1664525u + 1013904223u;
    x = low + (high - low) * (s >> 8) / double(1 << 24);
  }
  return v;
}

TEST(Reduction, MatchesReferenceOverAxesLayoutsAndDtypes) {
  struct Case {
    Shape shape;
    Ints dims;
  };
  const Case cases[] = {{{}, {}},
                        {{700}, {0}},
                        {{3, 40}, {0}},
                        {{3, 40}, {1}},
                        {{70, 600}, {0}},
                        {{5, 3, 4}, {1}},
                        {{4, 3, 5, 6}, {0, 2, 3}},
                        {{4, 3, 5, 6}, {}},
                        {{130, 4}, {0, 1}},
                        {{2, 3, 4, 40}, {0, 2}}};
  for (const Case& c : cases)
    for (const char* op : {"sum", "mean", "prod", "amax", "amin", "any", "all"})
      for (DType dtype : {DType::kFloat32, DType::kFloat64, DType::kInt32, DType::kBool})
        for (int variant = 0; variant < 4; ++variant) {
          if (std::string(op) == "mean" && !is_floating(dtype)) continue;
          const bool prod = std::string(op) == "prod";
          const double high = is_floating(dtype) ? (prod ? 1.01 : 2) : 3;
          const TestTensor x(variant & 1 ? scrambled(c.shape, dtype) : dense(c.shape, dtype),
                             noise(numel(c.shape), is_floating(dtype) ? (prod ? 0.99 : -2) : 0, high));
          const Reduced want = group(c.shape, x.read(), c.dims, variant & 2);
          DType out = dtype;
          if (std::string(op) == "any" || std::string(op) == "all")
            out = DType::kBool;
          else if ((prod || std::string(op) == "sum") && !is_floating(dtype))
            out = DType::kInt64;
          const std::vector<double> y =
              run_kernel(op, {x}, variant & 1 ? scrambled(want.shape, out) : dense(want.shape, out),
                         {{"dim", c.dims.empty() ? Attr() : Attr(c.dims)}, {"keepdim", (variant & 2) != 0}});
          ASSERT_EQ(y.size(), want.groups.size());
          for (size_t i = 0; i < y.size(); ++i) {
            const double exact = reference(op, want.groups[i]);
            if (prod && !is_floating(dtype) && std::fabs(exact) > 1e15) continue;  // wraps
            double magnitude = std::fabs(exact);
            if (!prod)
              for (double v : want.groups[i]) magnitude += std::fabs(v);
            const double tolerance = (out == DType::kFloat32 ? 1e-7 : 1e-15) * (prod ? 40 : 1) * magnitude;
            ASSERT_NEAR(y[i], exact, tolerance) << op << " " << dtype_name(dtype) << c.shape.str() << variant;
          }
        }
}

TEST(Reduction, LargeSumsStayAccurateAndIgnoreThreads) {
  for (const Shape& shape : {Shape{3000001}, Shape{100000, 16}}) {
    const TestTensor x(dense(shape), noise(numel(shape), 0, 1));
    const Ints dims = {0};
    const Reduced want = group(shape, x.read(), dims, false);
    const auto run = [&](int threads) {
      return run_kernel("sum", {x}, dense(want.shape), {{"dim", dims}, {"keepdim", false}}, threads);
    };
    const std::vector<double> y = run(1);
    for (size_t i = 0; i < y.size(); ++i) {
      const double exact = reference("sum", want.groups[i]);
      EXPECT_NEAR(y[i], exact, 1.2e-7 * exact);
    }
    EXPECT_EQ(y, run(2));
    EXPECT_EQ(y, run(3));
  }
}

TEST(Reduction, NanIsExtreme) {
  const TestTensor x(dense({40}), [] {
    std::vector<double> v = ramp(40, 0, 1);
    v[17] = NAN;
    return v;
  }());
  const NamedAttrs all = {{"dim", Attr()}, {"keepdim", false}};
  EXPECT_TRUE(std::isnan(run_kernel("amax", {x}, dense({}), all)[0]));
  EXPECT_TRUE(std::isnan(run_kernel("amin", {x}, dense({}), all)[0]));
  EXPECT_EQ(run_kernel("argmax", {x}, dense({}, DType::kInt64), all)[0], 17);
}

TEST(Reduction, ArgExtremaTakeTheFirst) {
  const TestTensor x(scrambled({2, 4}), {1, 3, 3, 0, 5, 5, -1, -1});
  const auto run = [&](const char* op, Attr dim, Shape out) {
    return run_kernel(op, {x}, dense(out, DType::kInt64), {{"dim", dim}, {"keepdim", false}});
  };
  EXPECT_EQ(run("argmax", int64_t{1}, {2}), (std::vector<double>{1, 0}));
  EXPECT_EQ(run("argmin", int64_t{-1}, {2}), (std::vector<double>{3, 2}));
  EXPECT_EQ(run("argmax", int64_t{0}, {4}), (std::vector<double>{1, 1, 0, 0}));
  EXPECT_EQ(run("argmax", Attr(), {}), (std::vector<double>{4}));
}

TEST(Reduction, EmptyReductionsGiveTheIdentity) {
  const TestTensor x(dense({0, 2}));
  const NamedAttrs attrs = {{"dim", Ints{0}}, {"keepdim", false}};
  EXPECT_EQ(run_kernel("sum", {x}, dense({2}), attrs), (std::vector<double>{0, 0}));
  EXPECT_EQ(run_kernel("prod", {x}, dense({2}), attrs), (std::vector<double>{1, 1}));
  EXPECT_EQ(run_kernel("any", {x}, dense({2}, DType::kBool), attrs), (std::vector<double>{0, 0}));
  EXPECT_EQ(run_kernel("all", {x}, dense({2}, DType::kBool), attrs), (std::vector<double>{1, 1}));
  EXPECT_TRUE(std::isnan(run_kernel("mean", {x}, dense({2}), attrs)[0]));
}

TEST(Reduction, CumulativeSums) {
  const TestTensor x(scrambled({2, 3}), {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(run_kernel("cumsum", {x}, dense({2, 3}), {{"dim", int64_t{1}}}), (std::vector<double>{1, 3, 6, 4, 9, 15}));
  EXPECT_EQ(run_kernel("cumsum", {x}, scrambled({2, 3}), {{"dim", int64_t{0}}}),
            (std::vector<double>{1, 2, 3, 5, 7, 9}));
  const TestTensor wide(dense({1500}, DType::kInt32), {1});
  EXPECT_EQ(run_kernel("cumsum", {wide}, dense({1500}, DType::kInt64), {{"dim", int64_t{0}}}).back(), 1500);
}

}  // namespace
}  // namespace sluice
