#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/kernel_runner.h"

namespace sluice {
namespace {

struct UnaryCase {
  const char* op;
  double (*reference)(double);
  double low, high;
};

double gelu(double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }

const UnaryCase kUnary[] = {
    {"exp", [](double x) { return std::exp(x); }, -100, 88},
    {"expm1", [](double x) { return std::expm1(x); }, -20, 20},
    {"log", [](double x) { return std::log(x); }, 1e-6, 1e6},
    {"log1p", [](double x) { return std::log1p(x); }, -0.99, 30},
    {"tanh", [](double x) { return std::tanh(x); }, -12, 12},
    {"erf", [](double x) { return std::erf(x); }, -5, 5},
    {"sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }, -80, 80},
    {"silu", [](double x) { return x / (1 + std::exp(-x)); }, -20, 20},
    {"gelu", gelu, -4, 5},
    {"sqrt", [](double x) { return std::sqrt(x); }, 0, 100},
    {"rsqrt", [](double x) { return 1 / std::sqrt(x); }, 0.1, 100},
    {"neg", [](double x) { return -x; }, -3, 3},
    {"abs", [](double x) { return std::fabs(x); }, -3, 3},
    {"relu", [](double x) { return x > 0 ? x : 0; }, -3, 3},
    {"floor", [](double x) { return std::floor(x); }, -3, 3},
    {"round", [](double x) { return std::nearbyint(x); }, -3, 3},
    {"sin", [](double x) { return std::sin(x); }, -9, 9},
    {"exp2", [](double x) { return std::exp2(x); }, -120, 120},
    {"log2", [](double x) { return std::log2(x); }, 1e-6, 1e6},
    {"log10", [](double x) { return std::log10(x); }, 1e-6, 1e6},
    {"sinh", [](double x) { return std::sinh(x); }, -89, 89},
    {"cosh", [](double x) { return std::cosh(x); }, -89, 89},
    {"atanh", [](double x) { return std::atanh(x); }, -0.99, 0.99},
    {"asin", [](double x) { return std::asin(x); }, -1, 1},
    {"acos", [](double x) { return std::acos(x); }, -1, 0.99},
    {"erfc", [](double x) { return std::erfc(x); }, -5, 9},
};

TEST(Elementwise, UnaryMatchesReference) {
  const int64_t n = 5003;
  for (const UnaryCase& c : kUnary)
    for (DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16}) {
      const bool half = dtype == DType::kBFloat16 || dtype == DType::kFloat16;
      const double low = half ? std::max(c.low, -8.0) : c.low, high = half ? std::min(c.high, 8.0) : c.high;
      NamedAttrs attrs;
      if (std::string(c.op) == "gelu") attrs = {{"approximate", std::string("none")}};
      const TestTensor x(dense({n}, dtype), ramp(n, low, (high - low) / n));
      const std::vector<double> y = run_kernel(c.op, {x}, dense({n}, dtype), attrs), in = x.read();
      const double relative = dtype == DType::kFloat64   ? 1e-15
                              : dtype == DType::kFloat32 ? 6e-7
                              : dtype == DType::kFloat16 ? 1e-3
                                                         : 8e-3;
      for (int64_t i = 0; i < n; ++i) {
        const double want = c.reference(in[i]);
        // gelu's left tail is a product with a nearly cancelled factor, as in torch.
        const double absolute = std::string(c.op) == "gelu" ? 4e-7 : half ? 1e-7 : 2e-38;
        ASSERT_NEAR(y[i], want, relative * std::fabs(want) + absolute)
            << c.op << " " << dtype_name(dtype) << " of " << in[i];
      }
    }
}

TEST(Elementwise, SpecialValues) {
  const double inf = INFINITY, nan = NAN;
  const auto at = [&](const char* op, double v) {
    return run_kernel(op, {TestTensor(dense({1}), {v})}, dense({1}))[0];
  };
  EXPECT_EQ(at("exp", inf), inf);
  EXPECT_EQ(at("exp", -inf), 0);
  EXPECT_EQ(at("exp", 200), inf);
  EXPECT_TRUE(std::isnan(at("exp", nan)));
  EXPECT_EQ(at("expm1", -inf), -1);
  EXPECT_EQ(at("log", 0), -inf);
  EXPECT_EQ(at("log", inf), inf);
  EXPECT_TRUE(std::isnan(at("log", -1)));
  EXPECT_NEAR(at("log", 1e-40), std::log(1e-40), 1e-4);
  EXPECT_EQ(at("log1p", inf), inf);
  EXPECT_EQ(at("log1p", -1), -inf);
  EXPECT_EQ(at("tanh", inf), 1);
  EXPECT_EQ(at("tanh", -inf), -1);
  EXPECT_TRUE(std::isnan(at("tanh", nan)));
  for (int power = -30; power <= 30; ++power) {
    EXPECT_EQ(at("log2", std::exp2(power)), power);
    EXPECT_EQ(at("exp2", power), std::exp2(power));
    EXPECT_EQ(at("log10", std::pow(10., power)), power);
  }
  EXPECT_EQ(at("exp2", 128), inf);
  EXPECT_EQ(at("exp2", -150), 0);
  for (const char* log : {"log2", "log10"}) {
    EXPECT_EQ(at(log, 0), -inf);
    EXPECT_EQ(at(log, inf), inf);
    EXPECT_TRUE(std::isnan(at(log, -1)));
  }
  EXPECT_EQ(at("sinh", -inf), -inf);
  EXPECT_EQ(at("sinh", 90), inf);
  EXPECT_EQ(at("cosh", -inf), inf);
  EXPECT_EQ(at("atanh", -1), -inf);
  EXPECT_EQ(at("erfc", inf), 0);
  EXPECT_EQ(at("erfc", -inf), 2);
  EXPECT_EQ(at("acos", 1), 0);
  for (const char* bounded : {"atanh", "asin", "acos"}) EXPECT_TRUE(std::isnan(at(bounded, 1.5))) << bounded;
  for (const char* odd : {"sinh", "atanh", "asin"}) EXPECT_TRUE(std::signbit(at(odd, -0.0))) << odd;
  for (const char* op : {"exp2", "log2", "log10", "sinh", "cosh", "atanh", "asin", "acos", "erfc"})
    EXPECT_TRUE(std::isnan(at(op, nan))) << op;
  EXPECT_EQ(at("erf", inf), 1);
  EXPECT_TRUE(std::isnan(at("erf", nan)));
  EXPECT_EQ(at("sigmoid", -inf), 0);
  EXPECT_TRUE(std::isnan(at("relu", nan)));
  const auto two = [&](const char* op, double a, double b) {
    return run_kernel(op, {TestTensor(dense({1}), {a}), TestTensor(dense({1}), {b})}, dense({1}))[0];
  };
  EXPECT_TRUE(std::isnan(two("maximum", nan, 1)));
  EXPECT_TRUE(std::isnan(two("minimum", 1, nan)));
  for (const char* sum : {"logaddexp", "logaddexp2"}) {
    EXPECT_EQ(two(sum, inf, inf), inf);
    EXPECT_EQ(two(sum, inf, -inf), inf);
    EXPECT_EQ(two(sum, -inf, -inf), -inf);
    EXPECT_EQ(two(sum, -inf, 3), 3);
    EXPECT_TRUE(std::isnan(two(sum, nan, 1)));
  }
  EXPECT_EQ(two("logaddexp2", 5, 5), 6);
  EXPECT_NEAR(two("logaddexp", 3, 1), std::log(std::exp(3.) + std::exp(1.)), 1e-6);
  EXPECT_EQ(two("remainder", -7, 3), 2);
  EXPECT_EQ(two("fmod", -7, 3), -1);
  EXPECT_EQ(two("floor_divide", -7, 2), -4);
}

TEST(Elementwise, BroadcastsAndStrides) {
  struct Case {
    Shape a, b, out;
  };
  const Case cases[] = {{{3, 4}, {4}, {3, 4}},          {{3, 1}, {1, 4}, {3, 4}},
                        {{}, {2, 3}, {2, 3}},           {{2, 3, 4, 5}, {3, 1, 1}, {2, 3, 4, 5}},
                        {{700, 3}, {700, 1}, {700, 3}}, {{2000}, {}, {2000}}};
  for (const Case& c : cases)
    for (int variant = 0; variant < 8; ++variant) {
      const auto spec = [&](const Shape& s, int bit) { return variant >> bit & 1 ? scrambled(s) : dense(s); };
      const TestTensor a(spec(c.a, 0), ramp(numel(c.a), 1, 1)), b(spec(c.b, 1), ramp(numel(c.b), 0.5, 0.25));
      const std::vector<double> y = run_kernel("sub", {a, b}, spec(c.out, 2)), av = a.read(), bv = b.read();
      const auto index = [&](const Shape& s, int64_t i) {
        int64_t at = 0, scale = 1;
        for (int k = 1; k <= c.out.rank(); ++k) {
          const int64_t dim = c.out[c.out.rank() - k], here = i % dim;
          i /= dim;
          if (k > s.rank()) continue;
          at += s[s.rank() - k] == 1 ? 0 : here * scale;
          scale *= s[s.rank() - k];
        }
        return static_cast<size_t>(at);
      };
      for (int64_t i = 0; i < numel(c.out); ++i)
        ASSERT_EQ(y[i], av[index(c.a, i)] - bv[index(c.b, i)]) << c.a.str() << c.b.str() << variant << " at " << i;
    }
}

TEST(Elementwise, ThreadsDoNotChangeResults) {
  const Shape shape{300, 701};
  const TestTensor x(scrambled(shape), ramp(numel(shape), -3, 1e-4)), b(dense({701}), ramp(701, -1, 0.01));
  EXPECT_EQ(run_kernel("mul", {x, b}, dense(shape), {}, 1), run_kernel("mul", {x, b}, dense(shape), {}, 2));
  EXPECT_EQ(run_kernel("tanh", {x}, dense(shape), {}, 1), run_kernel("tanh", {x}, dense(shape), {}, 3));
}

TEST(Elementwise, Integers) {
  const auto run = [](const char* op, std::vector<double> a, std::vector<double> b, DType d, DType out) {
    const Shape s{static_cast<int64_t>(a.size())};
    return run_kernel(op, {TestTensor(dense(s, d), a), TestTensor(dense(s, d), b)}, dense(s, out));
  };
  using V = std::vector<double>;
  EXPECT_EQ(run("floor_divide", {7, -7, 7, -7}, {2, 2, -2, -2}, DType::kInt32, DType::kInt32), V({3, -4, -4, 3}));
  EXPECT_EQ(run("remainder", {7, -7, 7, -7}, {4, 4, -4, -4}, DType::kInt64, DType::kInt64), V({3, 1, -1, -3}));
  EXPECT_EQ(run("pow", {2, -3, 5}, {10, 3, 0}, DType::kInt64, DType::kInt64), V({1024, -27, 1}));
  EXPECT_EQ(run("pow", {4, 1, -1, -1, 0}, {-1, -5, -3, -2, -1}, DType::kInt64, DType::kInt64), V({0, 1, -1, 1, 0}));
  EXPECT_EQ(run("add", {250, 3}, {10, 4}, DType::kUInt8, DType::kUInt8), V({4, 7}));
  EXPECT_EQ(run("add", {1, 0, 1}, {1, 0, 0}, DType::kBool, DType::kBool), V({1, 0, 1}));
  EXPECT_EQ(run("bitwise_xor", {6, 1}, {3, 1}, DType::kInt16, DType::kInt16), V({5, 0}));
  EXPECT_EQ(run("lt", {1, 2, 3}, {2, 2, 2}, DType::kInt8, DType::kBool), V({1, 0, 0}));
  EXPECT_EQ(run("logical_and", {1, 2, 0}, {2, 0, 0}, DType::kFloat32, DType::kBool), V({1, 0, 0}));
}

TEST(Elementwise, IntegerErrorsAreNamed) {
  const TestTensor a(dense({2}, DType::kInt64), {1, 2}), b(dense({2}, DType::kInt64), {1, 0});
  const auto message = [&](const char* op, const TestTensor& divisor) {
    try {
      run_kernel(op, {a, divisor}, dense({2}, DType::kInt64));
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(message("floor_divide", b), "floor_divide: integer division by zero; every divisor must be non-zero");
}

TEST(Elementwise, CastEveryPair) {
  const std::vector<double> values = {0, 1, 2, 100, 3.5, 7.25};
  for (int from = 0; from < kNumDTypes; ++from)
    for (int to = 0; to < kNumDTypes; ++to) {
      const DType f = static_cast<DType>(from), t = static_cast<DType>(to);
      const TestTensor x(scrambled({2, 3}, f), values);
      const std::vector<double> y = run_kernel("cast", {x}, dense({2, 3}, t)), in = x.read();
      for (size_t i = 0; i < in.size(); ++i) {
        const double want = t == DType::kBool ? in[i] != 0 : is_integral(t) ? std::trunc(in[i]) : in[i];
        EXPECT_EQ(y[i], want) << dtype_name(f) << " to " << dtype_name(t);
      }
    }
}

TEST(Elementwise, WhereBroadcastsAllThree) {
  for (DType d : {DType::kFloat32, DType::kFloat64, DType::kInt8, DType::kBFloat16}) {
    const TestTensor c(dense({3, 1}, DType::kBool), {1, 0, 1}), a(dense({}, d), {5}),
        b(scrambled({3, 4}, d), ramp(12, 0, 1));
    EXPECT_EQ(run_kernel("where", {c, a, b}, dense({3, 4}, d)),
              (std::vector<double>{5, 5, 5, 5, 4, 5, 6, 7, 5, 5, 5, 5}));
  }
}

TEST(Elementwise, EmptyTensorsDoNothing) {
  EXPECT_TRUE(run_kernel("add", {TestTensor(dense({0, 3})), TestTensor(dense({3}), {1, 2, 3})}, dense({0, 3})).empty());
}

}  // namespace
}  // namespace sluice
