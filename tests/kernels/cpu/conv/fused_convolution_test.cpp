// fused_conv against conv, batch_norm_infer, add and relu one by one.
#include <cmath>
#include <limits>

#include "kernels/network_kernels.h"

namespace sluice {
namespace {

struct FusedCase {
  Shape x, w, y;
  Ints stride, padding, dilation;
  int64_t groups = 1;
};
const FusedCase kFusedCases[] = {
    {{2, 3, 6, 5}, {4, 3, 3, 3}, {2, 4, 6, 5}, {1, 1}, {1, 1}, {1, 1}},
    {{2, 16, 9, 9}, {32, 16, 3, 3}, {2, 32, 4, 4}, {2, 2}, {0, 0}, {1, 1}},
    {{1, 64, 8, 8}, {48, 64, 1, 1}, {1, 48, 8, 8}, {1, 1}, {0, 0}, {1, 1}},
    {{2, 4, 7, 7}, {6, 2, 3, 2}, {2, 6, 3, 7}, {2, 1}, {0, 1}, {1, 2}, 2},
    {{2, 8, 5, 5}, {8, 1, 3, 3}, {2, 8, 5, 5}, {1, 1}, {1, 1}, {1, 1}, 8},
    {{2, 3, 9}, {4, 3, 3}, {2, 4, 4}, {2}, {1}, {2}},
};

struct Parts {
  bool bias = true, norm = true, affine = true, residual = true, relu = true;
  std::string str() const { return fmt::format("{}{}{}{}{}", bias, norm, affine, residual, relu); }
};
std::vector<Parts> all_parts() {
  std::vector<Parts> all;
  for (int bits = 0; bits < 32; ++bits) {
    const Parts parts{(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0, (bits & 16) != 0};
    if (parts.norm || !parts.affine) all.push_back(parts);
  }
  return all;
}

struct Operands {
  Operands(const FusedCase& c, DType dtype, bool x_last, bool residual_last) {
    const auto spec = [&](const Shape& s, bool last) { return last ? channels_last(s, dtype) : dense(s, dtype); };
    const TensorSpec row = dense({c.w[0]}, dtype);
    x = random_tensor(spec(c.x, x_last), 1);
    w = random_tensor(dense(c.w, dtype), 2);
    bias = random_tensor(row, 3);
    mean = random_tensor(row, 4);
    scale = random_tensor(row, 5);
    shift = random_tensor(row, 6);
    residual = random_tensor(spec(c.y, residual_last), 7);
    std::vector<double> positive = random_tensor(row, 8).read();
    for (double& v : positive) v = std::abs(v) + 0.5;
    var = TestTensor(row, positive);
  }
  std::optional<TestTensor> x, w, bias, mean, var, scale, shift, residual;
};

KernelCall fused_call(const FusedCase& c, const Operands& o, const Parts& p, bool y_last, int threads) {
  const auto where = [](bool there, const std::optional<TestTensor>& t) { return there ? t : std::nullopt; };
  const DType dtype = o.x->spec().dtype;
  return {.op = "fused_conv",
          .inputs = {o.x, o.w, where(p.bias, o.bias), where(p.norm, o.mean), where(p.norm, o.var),
                     where(p.affine, o.scale), where(p.affine, o.shift), where(p.residual, o.residual)},
          .outputs = {y_last ? channels_last(c.y, dtype) : dense(c.y, dtype)},
          .attrs = {{"eps", 1e-3},
                    {"activation", std::string(p.relu ? "relu" : "none")},
                    {"stride", c.stride},
                    {"padding", c.padding},
                    {"dilation", c.dilation},
                    {"groups", c.groups}},
          .threads = threads};
}

std::vector<double> one_by_one(const FusedCase& c, const Operands& o, const Parts& p) {
  const auto where = [](bool there, const std::optional<TestTensor>& t) { return there ? t : std::nullopt; };
  const TensorSpec spec = channels_last(c.y, o.x->spec().dtype);
  const auto run = [&](const char* op, std::vector<std::optional<TestTensor>> inputs, NamedAttrs attrs) {
    return run_call({op, std::move(inputs), {spec}, std::move(attrs), 2})[0];
  };
  TestTensor y = run("conv", {o.x, o.w, where(p.bias, o.bias)},
                     {{"stride", c.stride}, {"padding", c.padding}, {"dilation", c.dilation}, {"groups", c.groups}});
  if (p.norm)
    y = run("batch_norm_infer", {y, o.mean, o.var, where(p.affine, o.scale), where(p.affine, o.shift)},
            {{"eps", 1e-3}});
  if (p.residual) y = run("add", {y, o.residual}, {});
  if (p.relu) y = run("relu", {y}, {});
  return y.read();
}

TEST(FusedConvolution, HasTheBitsOfItsParts) {
  for (const FusedCase& c : kFusedCases) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
      const Operands o(c, dtype, true, true);
      for (const Parts& p : all_parts())
        EXPECT_EQ(run_call(fused_call(c, o, p, true, 2))[0].read(), one_by_one(c, o, p))
            << c.x.str() << " " << dtype_name(dtype) << " " << p.str();
    }
  }
}

TEST(FusedConvolution, SixteenBitsAreRoundedOnce) {
  for (const FusedCase& c : kFusedCases) {
    const Operands o(c, DType::kFloat64, true, true);
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
      const Operands rounded(c, dtype, true, true);
      for (const Parts& p : all_parts())
        expect_near(run_call(fused_call(c, rounded, p, true, 1))[0].read(), one_by_one(c, o, p), 6e-2,
                    c.x.str() + " " + p.str());
    }
  }
}

TEST(FusedConvolution, LayoutsAndThreadsGiveEqualBits) {
  for (const FusedCase& c : kFusedCases) {
    const std::vector<double> expected =
        run_call(fused_call(c, Operands(c, DType::kFloat32, true, true), {}, true, 2))[0].read();
    for (int bits = 0; bits < 16; ++bits) {
      const Operands o(c, DType::kFloat32, (bits & 1) != 0, (bits & 2) != 0);
      EXPECT_EQ(run_call(fused_call(c, o, {}, (bits & 4) != 0, (bits & 8) != 0 ? 2 : 1))[0].read(), expected)
          << c.x.str() << " " << bits;
    }
  }
}

TEST(FusedConvolution, TheResidualMayBeTheResultsMemory) {
  for (const FusedCase& c : kFusedCases) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
      for (const bool last : {false, true}) {
        const Operands o(c, dtype, true, last);
        const KernelCall call = fused_call(c, o, {}, last, 2);
        const auto kernel = prepare_call(call);
        const std::vector<double> expected = run_prepared(*kernel, call)[0].read();
        std::vector<const void*> inputs;
        for (const auto& in : call.inputs) inputs.push_back(in->data());
        TestTensor both = *o.residual;
        inputs.back() = both.data();
        void* outputs[] = {both.data()};
        std::vector<std::byte> workspace(kernel->workspace_bytes() + 64);
        const auto start = (reinterpret_cast<uintptr_t>(workspace.data()) + 63) & ~uintptr_t{63};
        kernel->run({.inputs = inputs.data(), .outputs = outputs, .workspace = reinterpret_cast<void*>(start)});
        EXPECT_EQ(both.read(), expected) << c.x.str() << " " << dtype_name(dtype) << " " << last;
      }
    }
  }
}

// A NaN or an infinity is not lost on its way through the activation.
TEST(FusedConvolution, KeepsWhatIsNotANumber) {
  const FusedCase& c = kFusedCases[2];
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16}) {
    Operands o(c, dtype, true, true);
    std::vector<double> x = o.x->read();
    x[5] = std::nan("");
    x[9] = std::numeric_limits<double>::infinity();
    o.x = TestTensor(channels_last(c.x, dtype), x);
    for (const Parts& p : all_parts()) {
      const std::vector<double> got = run_call(fused_call(c, o, p, true, 1))[0].read(), expected = one_by_one(c, o, p);
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_TRUE(std::isnan(got[i]) == std::isnan(expected[i]) && std::isinf(got[i]) == std::isinf(expected[i]))
            << dtype_name(dtype) << " " << p.str() << " " << i << ": " << got[i] << " " << expected[i];
    }
  }
}

}  // namespace
}  // namespace sluice
