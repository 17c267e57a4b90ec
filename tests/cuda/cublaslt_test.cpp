// matmul and linear on cuBLASLt: which of them it takes, what it is told, and what they give, on a fake that computes
// as the library is documented to (fake_cublaslt.h), held against the cpu's kernels.
#include "cuda/fake_cublaslt.h"
#include "cuda/on_fakes.h"
#include "kernels/cuda/product/cublaslt_matmul.h"
#include "support/error_of.h"

namespace sluice::cuda {
namespace {

using namespace test;
using plan::KernelQuery;
using testing::HasSubstr;
using testing::IsEmpty;

// A matrix operand, dense where no strides are given.
struct View {
  Shape shape;
  Strides strides = {};
};
TensorSpec spec_of(DType dtype, const View& view) {
  return view.strides.rank() == 0 ? TensorSpec::contiguous({dtype, view.shape})
                                  : TensorSpec{dtype, view.shape, view.strides};
}

KernelQuery matmul(DType dtype, const View& a, const View& b, const Shape& z, bool ta = false, bool tb = false) {
  KernelQuery query;
  query.op = "matmul";
  query.attrs = {{"transpose_a", ta}, {"transpose_b", tb}};
  query.inputs = {spec_of(dtype, a), spec_of(dtype, b)};
  query.outputs = {TensorSpec::contiguous({dtype, z})};
  query.device = parse_device("cuda");
  return query;
}

KernelQuery linear(DType dtype, const View& x, const View& weight, bool bias, const char* activation) {
  KernelQuery query;
  query.op = "linear";
  query.attrs = {{"activation", std::string(activation)}};
  query.inputs = {spec_of(dtype, x), spec_of(dtype, weight)};
  if (bias) query.inputs.push_back(spec_of(dtype, {{weight.shape[0]}}));
  Shape z = x.shape;
  z[z.rank() - 1] = weight.shape[0];
  query.outputs = {TensorSpec::contiguous({dtype, z})};
  query.device = parse_device("cuda");
  return query;
}

constexpr DType kFloats[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16};

// Every way to lie that has a leading dimension, as either operand, each in one of the dtypes.
std::vector<KernelQuery> taken() {
  std::vector<KernelQuery> all;
  const View by_rows[] = {{{5, 7}}, {{5, 7}, {9, 1}}, {{5, 7}, {1, 5}}, {{5, 7}, {1, 8}}};
  for (const View& a : by_rows) {
    for (const View& b : by_rows) {
      const View b_transposed{{b.shape[1], b.shape[0]},
                              b.strides.rank() == 0 ? Strides{} : Strides{b.strides[1], b.strides[0]}};
      all.push_back(matmul(kFloats[all.size() % 4], a, b, {5, 5}, false, true));
      all.push_back(matmul(kFloats[all.size() % 4], a, b, {7, 7}, true, false));
      all.push_back(matmul(kFloats[all.size() % 4], a, b_transposed, {5, 5}));
    }
  }
  // Vectors and single numbers, whose strides along one element are anything.
  all.push_back(matmul(DType::kFloat32, {{1, 7}, {3, 1}}, {{7, 1}, {1, 9}}, {1, 1}));
  all.push_back(matmul(DType::kFloat32, {{7, 1}, {1, 2}}, {{1, 7}, {2, 1}}, {7, 7}));
  all.push_back(matmul(DType::kFloat32, {{7, 1}, {4, 9}}, {{1, 1}, {0, 0}}, {7, 1}));
  // Batches: dense, repeated as a whole, of one dim out of two, with gaps, transposed.
  all.push_back(matmul(DType::kFloat32, {{3, 5, 7}}, {{3, 7, 4}}, {3, 5, 4}));
  all.push_back(matmul(DType::kFloat16, {{5, 7}}, {{3, 7, 4}}, {3, 5, 4}));
  all.push_back(matmul(DType::kFloat64, {{2, 3, 5, 7}}, {{7, 4}}, {2, 3, 5, 4}));
  all.push_back(matmul(DType::kFloat32, {{1, 3, 5, 7}}, {{3, 7, 4}}, {1, 3, 5, 4}));
  all.push_back(matmul(DType::kBFloat16, {{2, 3, 7, 5}, {120, 40, 5, 1}}, {{2, 3, 4, 7}}, {2, 3, 5, 4}, true, true));
  all.push_back(matmul(DType::kFloat32, {{3, 5, 7}, {7, 21, 1}}, {{3, 7, 4}}, {3, 5, 4}));  // heads of one row
  for (const char* activation : {"none", "relu", "gelu_tanh", "gelu", "silu"}) {
    for (const bool bias : {false, true}) {
      for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
        all.push_back(linear(dtype, {{2, 3, 7}}, {{5, 7}}, bias, activation));
        all.push_back(linear(dtype, {{7}}, {{5, 7}, {1, 5}}, bias, activation));
      }
    }
  }
  all.push_back(linear(DType::kFloat64, {{4, 7}}, {{5, 7}, {8, 1}}, false, "none"));
  return all;
}

std::vector<KernelQuery> left_to_generated_kernels() {
  const DType f = DType::kFloat32;
  return {
      matmul(DType::kInt32, {{5, 7}}, {{7, 4}}, {5, 4}),
      matmul(f, {{5, 7}, {14, 2}}, {{7, 4}}, {5, 4}),                      // every second column
      matmul(f, {{5, 7}, {0, 1}}, {{7, 4}}, {5, 4}),                       // one row, repeated
      matmul(f, {{5, 7}, {3, 1}}, {{7, 4}}, {5, 4}),                       // rows that overlap
      matmul(f, {{2, 3, 5, 7}}, {{3, 7, 4}}, {2, 3, 5, 4}),                // b repeats in the outer batch dim alone
      matmul(f, {{2, 1, 5, 7}}, {{2, 3, 7, 4}}, {2, 3, 5, 4}),             // a in the inner one
      matmul(f, {{2, 3, 5, 7}, {350, 35, 7, 1}}, {{7, 4}}, {2, 3, 5, 4}),  // batches of unlike distance
      matmul(f, {{5, 0}}, {{0, 4}}, {5, 4}),
      linear(DType::kFloat64, {{4, 7}}, {{5, 7}}, true, "none"),  // the library declines
  };
}

std::unique_ptr<PreparedKernel> prepared(const KernelQuery& query) {
  return table().get(query.op, DeviceKind::kCuda).prepare(query, {});
}

// Finite numbers: products make every other one a NaN.
std::vector<Bytes> numbers(const KernelQuery& query) {
  std::vector<Bytes> inputs;
  std::mt19937_64 random(7);
  for (const TensorSpec& spec : query.inputs) {
    const size_t size = dtype_size(spec.dtype);
    Bytes& bytes = inputs.emplace_back(spec.extent_bytes());
    for (size_t at = 0; at < bytes.size(); at += size) {
      const double value = static_cast<double>(random() % 4001) / 1000 - 2;
      set(spec.dtype, bytes.data() + at, is_floating(spec.dtype) ? value : std::floor(value));
    }
  }
  return inputs;
}

void check(const KernelQuery& query, bool by_library) {
  SCOPED_TRACE(fmt::format("{} {} {}{} {}{}", query.op, dtype_name(query.inputs[0].dtype), query.inputs[0].shape.str(),
                           query.inputs[0].strides.str(), query.inputs[1].shape.str(), query.inputs[1].strides.str()));
  EXPECT_STREQ(prepared(query)->library(), by_library ? "cuBLASLt" : "");
  const uint64_t before = fake_cublaslt::counts().products;
  expect_same(query, numbers(query));
  EXPECT_EQ(fake_cublaslt::counts().products - before, by_library ? 1u : 0u);
}

TEST(CublasLt, TakesEveryMatrixWithALeadingDimension) {
  for (const KernelQuery& query : taken()) check(query, true);
}

TEST(CublasLt, LeavesTheRestToGeneratedKernels) {
  for (const KernelQuery& query : left_to_generated_kernels()) check(query, false);
}

TEST(CublasLt, AsksForCopiesOfWhatItCannotSay) {
  const DType f = DType::kFloat32;
  const auto asked = [](const KernelQuery& query) {
    const std::vector<plan::Layout> inputs = table().get(query.op, DeviceKind::kCuda).layouts(query).inputs;
    return std::pair(inputs[0] == plan::Layout::kContiguous, inputs[1] == plan::Layout::kContiguous);
  };
  const View heads{{2, 3, 5, 7}, {315, 7, 63, 1}};  // of a projection to queries, keys and values
  EXPECT_EQ(asked(matmul(f, {{5, 7}}, {{7, 4}, {1, 7}}, {5, 4})), std::pair(false, false));
  EXPECT_EQ(asked(matmul(f, heads, {{2, 3, 7, 4}}, {2, 3, 5, 4})), std::pair(true, false));
  EXPECT_EQ(asked(matmul(f, {{2, 3, 5, 7}}, heads, {2, 3, 5, 5}, false, true)), std::pair(false, true));
  EXPECT_EQ(asked(matmul(f, heads, heads, {2, 3, 5, 5}, false, true)), std::pair(true, true));
  EXPECT_EQ(asked(matmul(f, {{5, 7}, {14, 2}}, {{7, 4}}, {5, 4})), std::pair(true, false));
  EXPECT_EQ(asked(matmul(DType::kInt32, {{5, 7}, {14, 2}}, {{7, 4}}, {5, 4})), std::pair(false, false));
  EXPECT_EQ(asked(matmul(f, {{2, 1, 5, 7}}, {{2, 3, 7, 4}}, {2, 3, 5, 4})), std::pair(false, false));
  EXPECT_EQ(asked(linear(f, {{4, 7}}, {{5, 7}, {14, 2}}, true, "relu")), std::pair(true, true));
}

TEST(CublasLt, IsPartOfWhatATargetIs) {
  EXPECT_EQ(table().get("matmul", DeviceKind::kCuda).library, "cuBLASLt");
  EXPECT_EQ(table().get("linear", DeviceKind::kCuda).library, "cuBLASLt");
  EXPECT_EQ(table().get("add", DeviceKind::kCuda).library, "");
}

// The same for every product, so that a plan does not depend on the algorithm; and enough for one that sums in parts.
TEST(CublasLt, HasAWorkspaceOfTheArchitecture) {
  EXPECT_EQ(cublaslt_workspace_bytes("sm_90"), 32u << 20);
  EXPECT_EQ(cublaslt_workspace_bytes("sm_100"), 32u << 20);
  EXPECT_EQ(cublaslt_workspace_bytes("sm_89"), 4u << 20);
  const KernelQuery small = matmul(DType::kFloat32, {{5, 7}}, {{7, 4}}, {5, 4});
  const KernelQuery deep = matmul(DType::kFloat32, {{5, 700}}, {{700, 4}}, {5, 4});
  EXPECT_EQ(prepared(small)->workspace_bytes(), (32u << 20) + 192);
  EXPECT_EQ(prepared(deep)->workspace_bytes(), (32u << 20) + 192);
  check(small, true);
  EXPECT_EQ(fake_cublaslt::counts().parts, 1u);
  expect_close(deep, run_on_cuda(deep, numbers(deep)), run_on_cpu(deep, numbers(deep)), 5e-5);
  EXPECT_EQ(fake_cublaslt::counts().parts, 4u);
}

// A view may begin anywhere in a buffer; the algorithm for it asks for no more than its elements do.
TEST(CublasLt, TakesViewsThatLieBadly) {
  for (const DType dtype : kFloats) {
    const KernelQuery query = matmul(dtype, {{5, 7}}, {{7, 4}}, {5, 4});
    expect_same(query, numbers(query));
    EXPECT_EQ(fake_cublaslt::counts().alignment, 64u);
    expect_same(query, numbers(query), dtype_size(dtype));
    EXPECT_EQ(fake_cublaslt::counts().alignment, dtype_size(dtype));
  }
  const KernelQuery query = linear(DType::kFloat16, {{4, 7}}, {{5, 7}}, true, "relu");
  expect_same(query, numbers(query), 2);
}

TEST(CublasLt, HasItsProposalsByName) {
  KernelQuery query = matmul(DType::kFloat32, {{5, 700}}, {{700, 4}}, {5, 4});
  const auto names = table().get("matmul", DeviceKind::kCuda).implementations(query, {});
  EXPECT_THAT(names, testing::ElementsAre("proposal 1", "proposal 2"));
  const auto inputs = numbers(query);
  query.attrs.emplace_back(plan::kImplementation, std::string());
  for (const char* name : {"proposal 1", "proposal 2", "no such"}) {
    query.attrs.back().second = std::string(name);
    expect_close(query, run_on_cuda(query, inputs), run_on_cpu(query, inputs), 5e-5);
  }
  query.attrs.pop_back();
  query.inputs[0].strides = {1400, 2};
  EXPECT_THAT(table().get("matmul", DeviceKind::kCuda).implementations(query, {}), testing::IsEmpty());
}

TEST(CublasLt, RoundsOperandsOnlyWhereAskedTo) {
  KernelQuery query = linear(DType::kFloat32, {{4, 60}}, {{5, 60}}, true, "none");
  const std::vector<Bytes> inputs = numbers(query);
  const Bytes exact = run_on_cpu(query, inputs);
  const auto run = [&](const char* precision, cublasComputeType_t compute, double tolerance) {
    query.attrs = {{"activation", std::string("none")}, {"precision", std::string(precision)}};
    const Bytes got = run_on_cuda(query, inputs);
    expect_close(query, got, exact, tolerance);
    EXPECT_EQ(fake_cublaslt::counts().compute, compute);
    return got;
  };
  const Bytes highest = run("highest", CUBLAS_COMPUTE_32F, 4e-6),
              high = run("high", CUBLAS_COMPUTE_32F_FAST_TF32, 2e-3),
              medium = run("medium", CUBLAS_COMPUTE_32F_FAST_16BF, 1e-1);
  EXPECT_NE(highest, high);
  EXPECT_NE(high, medium);
  query.attrs.back().second = std::string("fast");
  EXPECT_EQ(error_of([&] { prepared(query); }),
            "value: linear: unknown precision: \"fast\"; it must be one of highest, high, medium");
}

TEST(CublasLt, FailuresNameTheCallAndTheStatus) {
  const KernelQuery query = matmul(DType::kFloat32, {{5, 7}}, {{7, 4}}, {5, 4});
  for (const char* call : {"cublasLtMatmulDescCreate", "cublasLtMatrixLayoutCreate", "cublasLtMatmulPreferenceCreate",
                           "cublasLtMatmulAlgoGetHeuristic", "cublasLtMatmul"}) {
    fake_cublaslt::fail_call(call, 1, CUBLAS_STATUS_EXECUTION_FAILED);
    EXPECT_EQ(error_of([&] { run_on_cuda(query, numbers(query)); }),
              fmt::format("runtime: matmul: {}: CUBLAS_STATUS_EXECUTION_FAILED; SLUICE_CUBLASLT=off multiplies without "
                          "the library",
                          call));
    check(query, true);
  }
}

// For operands that lie well it has one, but a view may not.
TEST(CublasLt, WithoutAnAlgorithmAKernelIsGenerated) {
  const KernelQuery query = matmul(DType::kFloat32, {{5, 7}}, {{7, 4}}, {5, 4});
  for (const int nth : {1, 2}) {
    fake_cublaslt::fail_call("cublasLtMatmulAlgoGetHeuristic", nth, CUBLAS_STATUS_NOT_SUPPORTED);
    EXPECT_STREQ(prepared(query)->library(), "");
  }
  check(query, true);
}

TEST(CublasLt, LeavesNothingBehind) {
  const KernelQuery query = matmul(DType::kFloat32, {{5, 7}}, {{7, 4}}, {5, 4});
  {
    const auto one = prepared(query), other = prepared(query);
    EXPECT_EQ(fake_cuda::counts().contexts, 1u);
  }
  EXPECT_EQ(fake_cuda::counts().contexts, 0u);
}

TEST(CublasLt, KeepsOffCopyStreams) {
  const auto kernel = prepared(matmul(DType::kFloat32, {{5, 7}}, {{7, 4}}, {5, 4}));
  const auto device = open_backend(REAL_BACKEND)->make_device(parse_device("cuda"), {.cores = 1});
  const auto stream = device->create_stream(plan::StreamKind::kCopyIn, 0);
  EXPECT_EQ(error_of([&] {
              kernel->run({nullptr, nullptr, nullptr, stream.get()});
            }),
            "unsupported: matmul: a kernel on stream copy_in, where memory of the host takes part; lay it out on the "
            "host");
}

TEST(CublasLtLibrary, SaysWhatIsMissing) {
  EXPECT_EQ(
      error_of([] { load_cublaslt("/nonexistent/libcublasLt.so"); }),
      "unsupported: cuBLASLt, which multiplies matrices on the GPU, could not be loaded: "
      "/nonexistent/libcublasLt.so: cannot open shared object file: No such file or directory; install CUDA 13's, "
      "name it in SLUICE_CUBLASLT, or say SLUICE_CUBLASLT=off for generated kernels");
  EXPECT_EQ(error_of([] { load_cublaslt("libm.so.6"); }),
            "unsupported: cuBLASLt: 'libm.so.6' has no cublasLtCreate; install CUDA 13's");
}

// The library itself, named by SLUICE_TEST_CUBLASLT, takes every descriptor. That needs no GPU.
TEST(CublasLtLibrary, TakesEveryDescriptor) {
  const char* path = std::getenv("SLUICE_TEST_CUBLASLT");
  if (path == nullptr) GTEST_SKIP() << "SLUICE_TEST_CUBLASLT names no cuBLASLt";
  const CublasLt library = load_cublaslt(path);
  EXPECT_THAT(library.version(), testing::StartsWith("13."));
  int made = 0;
  for (KernelQuery& query : taken()) {
    for (const char* precision : {"highest", "high", "medium"}) {
      query.attrs.emplace_back("precision", std::string(precision));
      CublasLtDescriptors descriptors(library, *cublaslt_problem(matmul_problem(query)), query.op);
      descriptors.set_bias(&made);
      query.attrs.pop_back();
      ++made;
    }
  }
  EXPECT_GT(made, 200);
}

// Rows of the head of a language model, and of its gradients; of what tensor cores do not compute, or what is too small
// to gain by a copy, or needs none, nothing is padded.
TEST(CublasLtSizes, AreMultiplesOfWhatTensorCoresLoad) {
  constexpr int64_t kWords = 50257, kPadded = 50304, kTokens = 8192, kWidth = 768;
  const DType half = DType::kBFloat16;
  const KernelQuery head = linear(half, {{8, 1024, kWidth}}, {{kWords, kWidth}}, false, "none");
  EXPECT_EQ(cublaslt_sizes(head), (Ints{kTokens, kPadded, kWidth}));
  EXPECT_EQ(cublaslt_sizes(matmul(half, {{kTokens, kWords}}, {{kWords, kWidth}}, {kTokens, kWidth})),
            (Ints{kTokens, kWidth, kPadded}));
  EXPECT_EQ(cublaslt_sizes(matmul(half, {{kTokens, kWords}}, {{kTokens, kWidth}}, {kWords, kWidth}, true)),
            (Ints{kPadded, kWidth, kTokens}));
  EXPECT_EQ(cublaslt_sizes(matmul(half, {{8191, kWidth}}, {{kWords, kWidth}}, {8191, kWords}, false, true)),
            (Ints{8191, kPadded, kWidth}));
  KernelQuery floats = linear(DType::kFloat32, {{kTokens, kWidth}}, {{kWords, kWidth}}, true, "relu");
  EXPECT_EQ(cublaslt_sizes(floats), Ints{});
  floats.attrs.emplace_back(plan::kPrecision, std::string("high"));
  EXPECT_EQ(cublaslt_sizes(floats), (Ints{kTokens, 50272, kWidth}));
  EXPECT_EQ(cublaslt_sizes(linear(half, {{kTokens, kWidth}}, {{kPadded, kWidth}}, false, "none")), Ints{});
  EXPECT_EQ(cublaslt_sizes(linear(half, {{64, 2048}}, {{1001, 2048}}, false, "none")), Ints{});
  EXPECT_EQ(cublaslt_sizes(linear(half, {{kTokens, 64}}, {{kWords, 64}}, false, "none")), Ints{});
  EXPECT_EQ(cublaslt_sizes(matmul(half, {{4, 2048, 4095}}, {{4, 4095, 4095}}, {4, 2048, 4095})), Ints{});
}

// The calls that the fake refuses, so that a wrong descriptor would be seen above.
class FakeCublasLt : public testing::Test {
 protected:
  // The status that choosing an algorithm ends with.
  std::string told(const CublasLtProblem& problem) {
    const CublasLt library = load_cublaslt(FAKE_CUBLASLT);
    const CublasLtDevice device(library, parse_device("cuda"));
    const CurrentContext current(device.context());
    CublasLtDescriptors descriptors(library, problem, "it");
    const std::string error = error_of([&] {
      if (descriptors.choose(device.handle(), 64, 0, 1).empty()) throw Error(ErrorKind::kValue, "none");
    });
    return error.substr(0, error.find(';'));
  }
  const CublasLtProblem good =
      *cublaslt_problem(matmul_problem(matmul(DType::kFloat32, {{2, 5, 7}}, {{2, 7, 4}}, {2, 5, 4})));
};

TEST_F(FakeCublasLt, RefusesWhatTheLibraryDoes) {
  EXPECT_EQ(told(good), "no error");
  const auto with = [&](auto change) {
    CublasLtProblem problem = good;
    change(problem);
    return told(problem);
  };
  const std::string invalid = "runtime: it: cublasLtMatmulAlgoGetHeuristic: CUBLAS_STATUS_INVALID_VALUE";
  EXPECT_EQ(with([](auto& p) { p.a.leading = 3; }), invalid);
  EXPECT_EQ(with([](auto& p) { p.b.leading = 6; }), invalid);
  EXPECT_EQ(with([](auto& p) { p.z.leading = 0; }), invalid);
  EXPECT_EQ(with([](auto& p) { p.a.transposed = true; }), invalid);
  EXPECT_EQ(with([](auto& p) { p.z.columns = 6; }), invalid);
  EXPECT_EQ(with([](auto& p) { p.z.batch_stride = 0; }), invalid);
  EXPECT_EQ(with([](auto& p) { p.batch = 0; }), invalid);
  EXPECT_EQ(with([](auto& p) { p.type = CUDA_R_16F; }), "no error");
  EXPECT_EQ(with([](auto& p) { p.type = CUDA_R_64F; }), "value: none");
  EXPECT_EQ(with([](auto& p) { p.compute = CUBLAS_COMPUTE_64F; }), "value: none");
  EXPECT_EQ(with([](auto& p) { p.epilogue = CUBLASLT_EPILOGUE_DGELU; }), "value: none");
}

// A run with other operands than the algorithm was chosen for.
TEST_F(FakeCublasLt, RefusesOperandsThatLieBadly) {
  const CublasLt library = load_cublaslt(FAKE_CUBLASLT);
  const auto device = open_backend(REAL_BACKEND)->make_device(parse_device("cuda"), {.cores = 1});
  const CublasLtDevice on_device(library, parse_device("cuda"));
  const CurrentContext current(on_device.context());
  cublasLtHandle_t handle = on_device.handle();
  CublasLtProblem deep = *cublaslt_problem(matmul_problem(matmul(DType::kFloat32, {{5, 700}}, {{700, 4}}, {5, 4})));
  CublasLtDescriptors d(library, deep, "it");
  const auto algorithms = d.choose(handle, 64, 1 << 20, 1);
  ASSERT_EQ(algorithms.size(), 1u);
  const auto* const chosen = algorithms.data();
  ASSERT_GT(chosen->workspace_bytes, 0u);
  const plan::Space space{plan::SpaceKind::kDevice, parse_device("cuda")};
  auto* memory = static_cast<std::byte*>(device->allocate(space, 1 << 20));
  std::byte *a = memory, *b = memory + (1 << 15), *z = memory + (1 << 16), *workspace = memory + (1 << 17);
  CUstream stream = nullptr;
  ASSERT_EQ(driver().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  const float alpha = 1, beta = 0;
  const auto run = [&](const void* x, const void* y, void* to, void* work, size_t bytes) {
    return library.cublasLtMatmul(handle, d.operation(), &alpha, x, d.a(), y, d.b(), &beta, to, d.z(), to, d.z(),
                                  &chosen->algo, work, bytes, stream);
  };
  std::vector<float> host(700 * 5);
  EXPECT_EQ(run(a + 4, b, z, workspace, chosen->workspace_bytes), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(run(a, host.data(), z, workspace, chosen->workspace_bytes), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(run(a, b, z, workspace, chosen->workspace_bytes - 1), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(run(a, b, z, workspace + 64, chosen->workspace_bytes), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(run(a, b, z, nullptr, chosen->workspace_bytes), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(run(a, b, z, workspace, chosen->workspace_bytes), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(driver().cuStreamDestroy(stream), CUDA_SUCCESS);
  device->deallocate(space, memory, 1 << 20);
  EXPECT_THAT(fake_cuda::take_violations(), IsEmpty());
}

}  // namespace
}  // namespace sluice::cuda
