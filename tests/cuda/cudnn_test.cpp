// Convolutions on cuDNN: which it takes, by which of its engines, and what they give, on a fake that holds its callers
// to the documentation (fake_cudnn/fake_cudnn.h). And what the real library says of the same graphs, where it is at
// hand.
#include <thread>

#include "cuda/cudnn_fixture.h"
#include "kernels/cuda/conv/cudnn_convolution.h"
#include "kernels/target.h"
#include "support/error_of.h"

namespace sluice::cuda {
namespace {

using namespace test;
using plan::KernelQuery;
using testing::HasSubstr;

struct Case {
  Shape x, w;
  Ints stride = {}, padding = {}, dilation = {};
  int64_t groups = 1;
  bool bias = false, channels_last = true;
};

// The ops of a convolution: forward, and by input and weight.
std::vector<KernelQuery> queries(const Case& c, DType dtype) {
  const size_t dims = static_cast<size_t>(c.x.rank()) - 2;
  const auto full = [&](const Ints& given, int64_t missing) { return given.empty() ? Ints(dims, missing) : given; };
  const Ints stride = full(c.stride, 1), padding = full(c.padding, 0), dilation = full(c.dilation, 1);
  Shape y{c.x[0], c.w[0]};
  for (size_t d = 0; d < dims; ++d) {
    const int axis = static_cast<int>(d) + 2;
    y.push_back((c.x[axis] + 2 * padding[d] - dilation[d] * (c.w[axis] - 1) - 1) / stride[d] + 1);
  }
  const auto laid = [&](const Shape& shape) {
    return TensorSpec{dtype, shape, c.channels_last ? channels_last_strides(shape) : contiguous_strides(shape)};
  };
  const TensorSpec x = laid(c.x), w = TensorSpec::contiguous({dtype, c.w}), out = laid(y);
  const NamedAttrs attrs = {{"stride", stride}, {"padding", padding}, {"dilation", dilation}, {"groups", c.groups}};
  KernelQuery conv{"conv", attrs, {x, w}, {out}, parse_device("cuda")};
  if (c.bias) conv.inputs.push_back(TensorSpec::contiguous({dtype, {c.w[0]}}));
  return {conv,
          {"conv_input_grad", attrs, {out, w}, {x}, parse_device("cuda")},
          {"conv_weight_grad", attrs, {out, x}, {w}, parse_device("cuda")}};
}

const Case kPlain{{2, 4, 7, 6}, {6, 4, 3, 3}, {}, {1, 1}};

std::vector<Case> cases() {
  return {kPlain,
          {{2, 4, 7, 6}, {6, 4, 3, 3}, {2, 1}, {1, 0}, {1, 2}, 1, true},
          {{2, 4, 7, 6}, {6, 2, 3, 2}, {2, 2}, {1, 1}, {}, 2, true, false},
          {{3, 5, 9}, {4, 5, 3}, {2}, {1}, {2}, 1, true},
          {{3, 5, 9}, {10, 1, 4}, {}, {}, {}, 5, false, false},
          {{1, 2, 5, 4, 6}, {3, 2, 2, 3, 2}, {1, 2, 1}, {1, 1, 0}, {}, 1, true},
          {{2, 6, 5, 5}, {6, 1, 3, 3}, {}, {1, 1}, {}, 6},
          {{3, 7, 5, 5}, {5, 7, 1, 1}}};
}

std::unique_ptr<PreparedKernel> prepared(const KernelQuery& query) {
  return table().get(query.op, DeviceKind::kCuda).prepare(query, {});
}

double tolerance(const KernelQuery& query) {
  const DType dtype = query.outputs[0].dtype;
  return dtype == DType::kFloat32 ? 4e-5 : tolerance_of(dtype);
}

TEST(CudnnConvolution, IsAsOnTheCpu) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    for (const Case& c : cases()) {
      for (const KernelQuery& query : queries(c, dtype)) {
        SCOPED_TRACE(query.op + " " + query.inputs[0].shape.str() + " " + query.inputs[1].shape.str());
        const fake_cudnn::Counts before = fake().counts();
        const auto inputs = numbers(query);
        expect_close(query, run_on_cuda(query, inputs), run_on_cpu(query, inputs), tolerance(query));
        const fake_cudnn::Counts after = fake().counts();
        EXPECT_EQ(after.executed - before.executed, 1);
        EXPECT_EQ(after.fused - before.fused, query.inputs.size() > 2);
        EXPECT_EQ(after.misaligned, before.misaligned);
        EXPECT_EQ(after.descriptors, before.descriptors);
      }
    }
  }
}

// Views begin anywhere: 4 bytes behind what the vectors of an engine need.
TEST(CudnnConvolution, HasAPlanForAnyAddress) {
  for (const KernelQuery& query : queries(kPlain, DType::kFloat32)) {
    const int before = fake().counts().misaligned;
    const auto inputs = numbers(query);
    expect_close(query, run_on_cuda_at(4, query, inputs), run_on_cpu(query, inputs), tolerance(query));
    EXPECT_EQ(fake().counts().misaligned, before + 1);
  }
}

// An engine of tensor cores rounds what it multiplies, and is taken where that is allowed.
TEST(CudnnConvolution, RoundsToTf32WhereAsked) {
  for (KernelQuery query : queries(kPlain, DType::kFloat32)) {
    const auto inputs = numbers(query);
    query.attrs.emplace_back("precision", std::string("highest"));
    const Bytes exact = run_on_cuda(query, inputs);
    expect_close(query, exact, run_on_cpu(query, inputs), tolerance(query));
    query.attrs.back().second = std::string("high");
    const Bytes rounded = run_on_cuda(query, inputs);
    expect_close(query, rounded, exact, 1e-2);
    EXPECT_NE(rounded, exact);
  }
}

// CFG-09, CFG-11: the library's proposals can be asked for by name; those that vary from run to run only where that is
// allowed.
TEST(CudnnConvolution, HasItsProposalsByName) {
  for (KernelQuery query : queries(kPlain, DType::kFloat16)) {
    const auto names = [&] { return table().get(query.op, DeviceKind::kCuda).implementations(query, {}); };
    ASSERT_THAT(names(), testing::ElementsAre("engine 67", "engine 1"));
    const auto inputs = numbers(query);
    const Bytes expected = run_on_cpu(query, inputs);
    query.attrs.emplace_back(plan::kImplementation, std::string());
    for (const auto& [name, workspace] :
         {std::pair{"engine 67", 131u}, {"engine 1", 4099u}, {"engine 60", 131u}, {"no such", 131u}}) {
      query.attrs.back().second = std::string(name);
      EXPECT_EQ(prepared(query)->workspace_bytes(), workspace) << name;
      expect_close(query, run_on_cuda(query, inputs), expected, tolerance(query));
    }
    query.attrs.back() = {plan::kDeterministic, false};
    EXPECT_THAT(names(), testing::ElementsAre("engine 60", "engine 67", "engine 1"));
    query.attrs.back() = {plan::kWorkspaceLimit, int64_t{200}};
    EXPECT_THAT(names(), testing::ElementsAre("engine 67"));
    fake().set_most_operations(0);
    EXPECT_THAT(names(), testing::IsEmpty());
    fake().set_most_operations(8);
  }
}

TEST(CudnnConvolution, LeavesTheRestToGeneratedKernels) {
  for (const KernelQuery& query : queries(kPlain, DType::kFloat32)) {
    EXPECT_STREQ(prepared(query)->library(), "cuDNN");
    fake().set_most_operations(0);
    EXPECT_STREQ(prepared(query)->library(), "");
    fake().set_most_operations(8);
  }
  KernelQuery query = queries(kPlain, DType::kFloat32)[0];
  query.inputs[0].strides = {168, 1, 4, 28};  // (N, W, H, C)
  EXPECT_STREQ(prepared(query)->library(), "");
  EXPECT_STREQ(prepared(queries({{0, 4, 7, 6}, {6, 4, 3, 3}}, DType::kFloat32)[0])->library(), "");
  EXPECT_STREQ(prepared(queries(kPlain, DType::kInt32)[0])->library(), "");
}

// The operations behind a convolution: batch norm (its scale and shift by bits 0 and 1), a bias, a residual, a relu.
struct Tail {
  bool norm = false, bias = false, residual = false, relu = false;
  int affine = 3;
};

std::vector<Tail> tails() {
  std::vector<Tail> all;
  for (int i = 1; i < 16; ++i) all.push_back({(i & 1) != 0, (i & 2) != 0, (i & 4) != 0, (i & 8) != 0});
  for (int affine = 0; affine < 3; ++affine) all.push_back({true, true, true, true, affine});
  return all;
}

KernelQuery fused(const Case& c, DType dtype, const Tail& tail) {
  KernelQuery query = queries(c, dtype)[0];
  query.op = "fused_conv";
  query.attrs.insert(query.attrs.begin(), {{"eps", 1e-2}, {"activation", std::string(tail.relu ? "relu" : "none")}});
  const TensorSpec row = TensorSpec::contiguous({dtype, {c.w[0]}});
  const auto given = [&](bool is, const TensorSpec& spec) { query.inputs.push_back(is ? spec : TensorSpec{}); };
  query.inputs.resize(2);
  given(tail.bias, row);
  given(tail.norm, row);
  given(tail.norm, row);
  given(tail.norm && (tail.affine & 1) != 0, row);
  given(tail.norm && (tail.affine & 2) != 0, row);
  given(tail.residual, query.outputs[0]);
  return query;
}

std::vector<Bytes> numbers_of_fused(const KernelQuery& query) {
  std::vector<Bytes> inputs = numbers(query);
  const TensorSpec& var = query.inputs[4];
  for (size_t at = 0; var.shape.rank() > 0 && at < inputs[4].size(); at += dtype_size(var.dtype))
    set(var.dtype, inputs[4].data() + at, 0.5 + static_cast<double>(at % 5) / 4);
  return inputs;
}

// One graph of the library's; or its convolution and a pass over what it gives, where it has no such graph; or a
// generated kernel. The first rounds once where the second rounds twice, if floats have 16 bits.
TEST(CudnnConvolution, TakesWhatFollowsIt) {
  size_t n = 0;
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    for (const Tail& tail : tails()) {
      const KernelQuery query = fused(cases()[++n % cases().size()], dtype, tail);
      const auto inputs = numbers_of_fused(query);
      const Bytes expected = run_on_cpu(query, inputs);
      for (const int most : {8, 1, 0}) {
        if (most < 8 && n % 3 != 0) continue;  // sources take a while to be compiled
        SCOPED_TRACE(fmt::format("case {} {}, at most {} operations", n, dtype_name(dtype), most));
        fake().set_most_operations(most);
        const fake_cudnn::Counts before = fake().counts();
        expect_close(query, run_on_cuda(query, inputs), expected, (most == 1 ? 4 : 2) * tolerance(query));
        const fake_cudnn::Counts after = fake().counts();
        EXPECT_EQ(after.executed - before.executed, most > 0);
        EXPECT_EQ(after.fused - before.fused, most == 8);
        EXPECT_EQ(after.descriptors, before.descriptors);
      }
    }
  }
  fake().set_most_operations(8);
}

TEST(CudnnConvolution, KeepsNaNsAndInfinitiesBehindARelu) {
  const KernelQuery query = fused(kPlain, DType::kFloat32, {.norm = true, .residual = true, .relu = true});
  auto inputs = numbers_of_fused(query);
  set(DType::kFloat32, inputs[7].data(), NAN);
  set(DType::kFloat32, inputs[7].data() + 4, -INFINITY);
  set(DType::kFloat32, inputs[7].data() + 8, INFINITY);
  const Bytes expected = run_on_cpu(query, inputs);
  for (const int most : {8, 1, 0}) {
    fake().set_most_operations(most);
    expect_close(query, run_on_cuda(query, inputs), expected, 2 * tolerance(query));
  }
  fake().set_most_operations(8);
}

// Batch norm's coefficients lie in front of what an engine needs.
TEST(CudnnConvolution, KnowsTheWorkspaceOfWhatFollows) {
  const KernelTarget target(table(), {});
  const auto bytes = [&](const Tail& tail) { return target.workspace_bytes(fused(kPlain, DType::kFloat16, tail)); };
  EXPECT_EQ(bytes({.bias = true, .relu = true}), 131u);
  EXPECT_EQ(bytes({.norm = true}), 512u + 131u);
  EXPECT_TRUE(table().get("fused_conv", DeviceKind::kCuda).in_place.empty());
  // They count where there is a limit.
  KernelQuery limited = fused(kPlain, DType::kFloat16, {.norm = true});
  limited.attrs.emplace_back(plan::kWorkspaceLimit, int64_t{512 + 130});
  EXPECT_LE(target.workspace_bytes(limited), 512u + 130u);
}

// Streams of a device share a handle, which says where work is queued.
TEST(CudnnConvolution, IsCalledByThreadsInTurn) {
  std::vector<std::thread> threads;
  for (const KernelQuery& query : queries(kPlain, DType::kFloat32)) {
    threads.emplace_back([query] {
      const auto inputs = numbers(query);
      const Bytes expected = run_on_cpu(query, inputs);
      for (int i = 0; i < 20; ++i) expect_close(query, run_on_cuda(query, inputs), expected, tolerance(query));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(CudnnConvolution, TellsWhichCallFailed) {
  const KernelQuery query = queries(kPlain, DType::kFloat32)[0];
  const auto inputs = numbers(query);
  fake().fail_call("cudnnBackendExecute", 1, CUDNN_STATUS_EXECUTION_FAILED);
  EXPECT_EQ(error_of([&] { run_on_cuda(query, inputs); }),
            "runtime: conv: cudnnBackendExecute: CUDNN_STATUS_EXECUTION_FAILED: fake cudnnBackendExecute: refused; "
            "SLUICE_CUDNN=off computes without the library");
  fake().fail_call("cudnnBackendFinalize", 1, CUDNN_STATUS_INTERNAL_ERROR);
  EXPECT_EQ(error_of([&] { prepared(query); }),
            "runtime: conv: cudnnBackendFinalize: CUDNN_STATUS_INTERNAL_ERROR: fake cudnnBackendFinalize: refused; "
            "SLUICE_CUDNN=off computes without the library");
  expect_close(query, run_on_cuda(query, inputs), run_on_cpu(query, inputs), tolerance(query));
}

// The ledger is told as many bytes as an engine needs, and the same whenever it asks.
TEST(CudnnConvolution, KnowsItsWorkspaceBeforeItRuns) {
  const KernelTarget target(table(), {});
  EXPECT_EQ(target.workspace_bytes(queries(kPlain, DType::kFloat32)[0]), 4099u);
  EXPECT_EQ(target.workspace_bytes(queries(kPlain, DType::kFloat16)[0]), 131u);
  EXPECT_EQ(prepared(queries(kPlain, DType::kFloat16)[0])->workspace_bytes(), 131u);
}

TEST(Cudnn, IsMissedByName) {
  EXPECT_EQ(error_of([] { load_cudnn("/nowhere/libcudnn.so"); }),
            "unsupported: cuDNN, which computes convolutions on the GPU, could not be loaded: /nowhere/libcudnn.so: "
            "cannot open shared object file: No such file or directory; install cuDNN 9 for CUDA 13, name it in "
            "SLUICE_CUDNN, or say SLUICE_CUDNN=off for generated kernels");
  EXPECT_EQ(error_of([] { load_cudnn("libm.so.6"); }),
            "unsupported: cuDNN: 'libm.so.6' has no cudnnGetVersion; install cuDNN 9");
}

TEST_F(CudnnLibrary, HasAPlanForEveryConvolution) {
  std::vector<Case> all = cases();
  for (const bool last : {true, false}) {  // of ResNet-50 and of a digits net
    all.push_back({{32, 3, 224, 224}, {64, 3, 7, 7}, {2, 2}, {3, 3}, {}, 1, false, last});
    all.push_back({{32, 64, 56, 56}, {64, 64, 3, 3}, {}, {1, 1}, {}, 1, false, last});
    all.push_back({{32, 512, 28, 28}, {1024, 512, 1, 1}, {2, 2}, {}, {}, 1, false, last});
    all.push_back({{64, 1, 8, 8}, {16, 1, 3, 3}, {}, {1, 1}, {}, 1, true, last});
  }
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    for (const Case& c : all) {
      for (const KernelQuery& query : queries(c, dtype)) {
        const auto plans = cudnn_convolution_plans(maker, {.properties = &h100}, query);
        const std::string what = fmt::format("{} {}{}{}", query.op, dtype_name(dtype), query.inputs[0].shape.str(),
                                             query.inputs[1].shape.str());
        ASSERT_TRUE(plans.has_value()) << what;
        EXPECT_EQ(plans->workspace_bytes(), plans->aligned.workspace_bytes) << what;
      }
    }
  }
  // Tensor cores take what follows a convolution of ResNet-50, whichever way its weights lie.
  const Tail of_resnet[] = {{.norm = true, .relu = true}, {.norm = true, .residual = true, .relu = true}};
  for (const DType dtype : {DType::kBFloat16, DType::kFloat32}) {
    for (const Case& c :
         {Case{{32, 64, 56, 56}, {64, 64, 3, 3}, {}, {1, 1}}, Case{{1, 512, 28, 28}, {1024, 512, 1, 1}}}) {
      for (const Tail& tail : of_resnet) {
        KernelQuery query = fused(c, dtype, tail);
        query.attrs.emplace_back(plan::kPrecision, std::string("high"));
        EXPECT_TRUE(cudnn_convolution_plans(maker, {.properties = &h100}, query).has_value())
            << dtype_name(dtype) << " " << c.x.str() << (tail.residual ? " and a residual" : "");
      }
    }
  }
}

}  // namespace
}  // namespace sluice::cuda
