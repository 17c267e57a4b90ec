#include <array>

#include "kernels/cpu/onednn/library_defects.h"
#include "kernels/network_kernels.h"
#include "kernels/target.h"

namespace sluice {
namespace {

struct ConvCase {
  Shape x, w, y;
  Ints stride, padding, dilation;
  int64_t groups = 1;
  NamedAttrs attrs() const {
    return {{"stride", stride}, {"padding", padding}, {"dilation", dilation}, {"groups", groups}};
  }
};
const ConvCase kCases[] = {
    {{2, 3, 6, 5}, {4, 3, 3, 3}, {2, 4, 6, 5}, {1, 1}, {1, 1}, {1, 1}},
    {{2, 16, 9, 9}, {32, 16, 3, 3}, {2, 32, 4, 4}, {2, 2}, {0, 0}, {1, 1}},  // the last row and column are not read
    {{2, 16, 8, 8}, {32, 16, 1, 1}, {2, 32, 4, 4}, {2, 2}, {0, 0}, {1, 1}},
    {{2, 1, 8, 8}, {16, 1, 3, 3}, {2, 16, 8, 8}, {1, 1}, {1, 1}, {1, 1}},
    {{2, 4, 7, 7}, {6, 2, 3, 2}, {2, 6, 3, 7}, {2, 1}, {0, 1}, {1, 2}, 2},
    {{2, 8, 5, 5}, {8, 1, 3, 3}, {2, 8, 5, 5}, {1, 1}, {1, 1}, {1, 1}, 8},  // depthwise
    {{2, 3, 9}, {4, 3, 3}, {2, 4, 4}, {2}, {1}, {2}},
    {{1, 2, 4, 4, 3}, {3, 2, 2, 2, 2}, {1, 3, 3, 3, 4}, {1, 2, 1}, {0, 1, 1}, {1, 1, 1}},
    {{2, 3, 3, 3, 4}, {3, 1, 3, 3, 2}, {2, 3, 2, 2, 3}, {2, 2, 2}, {1, 1, 1}, {1, 1, 1}, 3},  // depthwise
    {{2, 3, 3, 3, 3}, {5, 3, 3, 3, 3}, {2, 5, 2, 2, 2}, {2, 2, 2}, {1, 1, 1}, {1, 1, 1}},     // steps and paddings
    {{2, 3, 6, 5}, {5, 3, 1, 1}, {2, 5, 6, 5}, {1, 1}, {0, 0}, {1, 1}},  // an odd number of results
    // oneDNN errs: a padding before the first plane that is longer than a step, ...
    {{2, 16, 4, 3, 4}, {10, 16, 5, 2, 1}, {2, 10, 3, 2, 4}, {3, 1, 1}, {4, 0, 0}, {1, 1, 1}},
    {{2, 3, 1}, {4, 3, 1}, {2, 4, 2}, {2}, {1}, {2}},  // ... lines that no window reads, ...
    {{1, 3, 6, 1}, {4, 3, 3, 2}, {1, 4, 1, 3}, {4, 2}, {0, 3}, {1, 2}},
    {{2, 1, 2, 2}, {3, 1, 3, 2}, {2, 3, 2, 1}, {1, 3}, {1, 0}, {1, 1}},  // ... and one window in steps
};

// The operand that `op` computes, from the other two.
KernelCall conv_call(const std::string& op, const ConvCase& c, DType dtype, bool x_last, bool y_last, int threads = 1) {
  auto spec = [&](const Shape& s, bool last) { return last ? channels_last(s, dtype) : dense(s, dtype); };
  const TensorSpec x = spec(c.x, x_last), y = spec(c.y, y_last), w = dense(c.w, dtype);
  KernelCall call{op, {}, {}, c.attrs(), threads};
  if (op == "conv") {
    call.inputs = {random_tensor(x, 1), random_tensor(w, 2), random_tensor(dense({c.w[0]}, dtype), 3)};
    call.outputs = {y};
  } else if (op == "conv_input_grad") {
    call.inputs = {random_tensor(y, 4), random_tensor(w, 2)};
    call.outputs = {x};
    call.attrs.insert(call.attrs.begin(), {"input_shape", c.x.vec()});
  } else {
    call.inputs = {random_tensor(y, 4), random_tensor(x, 1)};
    call.outputs = {w};
    call.attrs.insert(call.attrs.begin(), {"weight_shape", c.w.vec()});
  }
  return call;
}
constexpr const char* kOps[] = {"conv", "conv_input_grad", "conv_weight_grad"};

TEST(ConvolutionTest, AgreesWithPlainLoops) {
  for (const ConvCase& c : kCases) {
    for (const char* op : kOps) {
      const auto expected = run_call(conv_call(op, c, DType::kFloat64, false, false))[0].read();
      expect_near(run_call(conv_call(op, c, DType::kFloat32, true, true))[0].read(), expected, 1e-5,
                  std::string(op) + " " + c.x.str());
      expect_near(run_call(conv_call(op, c, DType::kBFloat16, true, true))[0].read(), expected, 3e-2,
                  std::string(op) + " " + c.x.str());
    }
  }
}

// Windows of one element with steps, over fewer channels than a block has: the library would write beyond its
// scratchpad.
TEST(ConvolutionTest, StridedWindowsOfOneElementStayInTheirWorkspace) {
  int calls = 0;
  for (const int64_t channels : {1, 2, 3, 4, 7, 8, 9, 12, 15, 16, 17}) {
    for (const auto& [batch, size, step] : {std::array<int64_t, 3>{1, 56, 2}, {3, 28, 2}, {2, 21, 3}, {1, 57, 2}}) {
      const int64_t results = (size - 1) / step + 1;
      const ConvCase square{{batch, channels, size, size},
                            {24, channels, 1, 1},
                            {batch, 24, results, results},
                            {step, step},
                            {0, 0},
                            {1, 1}};
      const ConvCase line{{batch, channels, size}, {24, channels, 1}, {batch, 24, results}, {step}, {0}, {1}};
      for (const ConvCase& c : {square, line}) {
        const auto expected = run_call(conv_call("conv_weight_grad", c, DType::kFloat64, false, false))[0].read();
        for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
          for (const int threads : {1, 2}) {
            for (const bool last : {false, true}) {
              const auto got = run_call(conv_call("conv_weight_grad", c, dtype, last, true, threads))[0].read();
              expect_near(got, expected, dtype == DType::kFloat32 ? 1e-4 : 0.1, c.x.str());
              ++calls;
            }
          }
        }
      }
    }
  }
  EXPECT_EQ(calls, 11 * 4 * 2 * 8);
}

// Every row says for which library, and what is done instead; needs() answers from it.
TEST(ConvolutionTest, KnownDefectsOfLibrariesAreInOneTable) {
  for (const cpu::LibraryDefect& defect : cpu::library_defects()) {
    EXPECT_STREQ(defect.library, "oneDNN");
    EXPECT_NE(cpu_table().find(defect.op, DeviceKind::kCpu), nullptr) << defect.op;
    EXPECT_TRUE(*defect.versions && *defect.what && *defect.when);
    EXPECT_LT(defect.since, defect.fixed_in);
    EXPECT_NE(defect.of_conv == nullptr, defect.of_matrix == nullptr);
  }
  cpu::ConvOperands o{channels_last({1, 4, 8, 8}), dense({16, 4, 1, 1}), channels_last({1, 16, 4, 4}), {}, false};
  const auto shows = [&](cpu::ConvRole result, const cpu::ConvGeometry& g) {
    return cpu::needs(cpu::Instead::kUnitStride, result, o, g);
  };
  const cpu::ConvGeometry steps{{2, 2}, {0, 0}, {1, 1}};
  EXPECT_TRUE(shows(cpu::ConvRole::kWeight, steps));
  EXPECT_FALSE(shows(cpu::ConvRole::kOutput, steps));
  EXPECT_FALSE(shows(cpu::ConvRole::kInput, steps));
  EXPECT_FALSE(shows(cpu::ConvRole::kWeight, {{1, 1}, {0, 0}, {1, 1}}));
  EXPECT_FALSE(shows(cpu::ConvRole::kWeight, {{2, 2}, {1, 1}, {1, 1}}));
  EXPECT_FALSE(shows(cpu::ConvRole::kWeight, {{2, 2}, {0, 0}, {1, 1}, 2}));
  o.x.shape[1] = o.w.shape[1] = 16;
  EXPECT_FALSE(shows(cpu::ConvRole::kWeight, steps));
  const cpu::ConvOperands volumes{dense({1, 3, 4, 4, 4}), dense({2, 3, 5, 1, 1}), dense({1, 2, 3, 4, 4}), {}, false};
  const auto by_loops = [&](const cpu::ConvGeometry& g) {
    return cpu::needs(cpu::Instead::kLoops, cpu::ConvRole::kWeight, volumes, g);
  };
  EXPECT_TRUE(by_loops({{3, 1, 1}, {4, 0, 0}, {1, 1, 1}}));
  EXPECT_FALSE(by_loops({{3, 1, 1}, {3, 0, 0}, {1, 1, 1}}));
  EXPECT_FALSE(by_loops({{1, 1, 1}, {4, 0, 0}, {1, 1, 1}}));
}

// The weight of an unchanging query is read as oneDNN wants it, and somebody else's kernel has put it so.
TEST(ConvolutionTest, PackedWeightsGiveEqualBits) {
  int packed = 0;
  for (const ConvCase& c : kCases) {
    for (const std::string op : {"conv", "conv_input_grad"}) {
      const KernelCall call = conv_call(op, c, DType::kFloat32, true, true, 2);
      plan::KernelQuery query = query_of(call);
      query.packed = {1};
      const auto kernel = cpu_table().get(op, DeviceKind::kCpu).prepare(query, {.threads = 2});
      const auto plain = prepare_call(call);
      EXPECT_TRUE(plain->packings().empty());
      const auto expected = run_prepared(*plain, call)[0].read();
      if (kernel->packings().empty()) {
        EXPECT_EQ(run_prepared(*kernel, call)[0].read(), expected) << op << " " << c.x.str();
        continue;
      }
      const Packing& packing = kernel->packings().front();
      EXPECT_EQ(packing.input, 1);
      EXPECT_GE(packing.bytes, call.inputs[1]->spec().extent_bytes());
      EXPECT_LT(kernel->workspace_bytes(), plain->workspace_bytes());
      KernelCall pack{
          "pack", {call.inputs[1]}, {TensorSpec::contiguous({DType::kUInt8, {static_cast<int64_t>(packing.bytes)}})}};
      KernelCall with = call;
      with.inputs[1] = run_prepared(*packing.kernel, pack)[0];
      EXPECT_EQ(run_prepared(*kernel, with)[0].read(), expected) << op << " " << c.x.str() << ": " << packing.format;
      ++packed;
    }
  }
  EXPECT_GT(packed, 4);
}

// Only inputs that do not change, that the kernel can read packed, and that lie otherwise than it wants them.
TEST(ConvolutionTest, TargetsSayWhichInputsAreReadPacked) {
  const KernelTarget target(cpu_table(), {{.device = {}, .cores = 2}});
  plan::KernelQuery q{
      .op = "conv",
      .attrs = {{"stride", Ints{1, 1}}, {"padding", Ints{1, 1}}, {"dilation", Ints{1, 1}}, {"groups", int64_t{1}}},
      .inputs = {dense({2, 32, 8, 8}), dense({32, 32, 3, 3}), TensorSpec{}},
      .outputs = {dense({2, 32, 8, 8})},
      .device = {},
      .cores = 2};
  EXPECT_TRUE(target.packings(q, true).empty());
  q.packed = {0, 1};
  const std::vector<plan::PackedInput> packings = target.packings(q, true);
  ASSERT_EQ(packings.size(), 1u);
  EXPECT_EQ(packings[0].input, 1);
  EXPECT_EQ(packings[0].bytes, 32u * 32 * 9 * 4);
  EXPECT_EQ(packings[0].format.find("32x32x3x3 elements, strides "), 0u) << packings[0].format;
  EXPECT_EQ(target.packings(q, true)[0].format, packings[0].format);
  q.packed = {0};
  EXPECT_TRUE(target.packings(q, true).empty());
  q.packed = {0, 1};
  q.op = "add";
  EXPECT_TRUE(target.packings(q, true).empty());
}

TEST(ConvolutionTest, LayoutsGiveEqualBits) {
  for (const ConvCase& c : kCases) {
    for (const char* op : kOps) {
      const auto expected = run_call(conv_call(op, c, DType::kFloat32, true, true, 2))[0].read();
      for (bool x_last : {false, true}) {
        for (bool y_last : {false, true}) {
          EXPECT_EQ(run_call(conv_call(op, c, DType::kFloat32, x_last, y_last, 2))[0].read(), expected)
              << op << " " << c.x.str();
        }
      }
    }
  }
}

// <g, conv(x, w)> = <input_grad(g, w), x> = <weight_grad(g, x), w>.
TEST(ConvolutionTest, GradientsAreAdjoints) {
  for (const ConvCase& c : kCases) {
    auto dot = [](const std::vector<double>& a, const std::vector<double>& b) {
      double s = 0;
      for (size_t i = 0; i < a.size(); ++i) s += a[i] * b[i];
      return s;
    };
    KernelCall forward = conv_call("conv", c, DType::kFloat64, false, false);
    forward.inputs[2].reset();
    const auto g = random_tensor(dense(c.y, DType::kFloat64), 4).read(), x = forward.inputs[0]->read(),
               w = forward.inputs[1]->read();
    const double expected = dot(g, run_call(forward)[0].read());
    EXPECT_NEAR(dot(run_call(conv_call("conv_input_grad", c, DType::kFloat64, false, false))[0].read(), x), expected,
                1e-9);
    EXPECT_NEAR(dot(run_call(conv_call("conv_weight_grad", c, DType::kFloat64, false, false))[0].read(), w), expected,
                1e-9);
  }
}

TEST(ConvolutionTest, RefusesOtherLayouts) {
  KernelCall call = conv_call("conv", kCases[0], DType::kFloat32, true, true);
  call.inputs[0] = TestTensor(scrambled(kCases[0].x));
  EXPECT_NE(
      test::message_of([&] { prepare_call(call); }).find("conv: an operand lies neither contiguous nor channels-last"),
      std::string::npos);
}

}  // namespace
}  // namespace sluice
