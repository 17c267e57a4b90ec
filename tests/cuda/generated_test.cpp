// Generated kernels as the shipped backend has them, from their source: compiled for the host by the fake NVRTC, run by
// the fake driver, held against the cpu's kernels.
#include "base/scalar_ops.h"
#include "cuda/on_fakes.h"

namespace sluice {
namespace {

using namespace test;
using testing::HasSubstr;
using testing::IsEmpty;

// Operands that are transposed, broadcast, stepped, and an output that lies channels-last.
plan::KernelQuery strided(const char* op, DType in, DType out, int inputs) {
  plan::KernelQuery query;
  query.op = op;
  const Shape shape{2, 3, 4, 5};
  query.inputs = {TensorSpec{in, shape, {60, 1, 15, 3}}, TensorSpec{in, {3, 1, 5}, {10, 5, 2}}};
  query.inputs.resize(static_cast<size_t>(inputs), query.inputs[0]);
  query.outputs = {TensorSpec{out, shape, channels_last_strides(shape)}};
  return query;
}

bool has_variants(std::string_view op) {
  return std::any_of(scalar_ops().begin(), scalar_ops().end(),
                     [&](const ScalarOp& other) { return op == other.name && *other.mode != '\0'; });
}

plan::KernelQuery plain(const char* op, DType in, DType out, int inputs) {
  plan::KernelQuery query;
  query.op = op;
  query.inputs.assign(static_cast<size_t>(inputs), TensorSpec::contiguous({in, {300}}));
  query.outputs = {TensorSpec::contiguous({out, {300}})};
  return query;
}

// The queries of an op's form: in float32 or the first dtype that it has, then, strided, in others, which differ from
// op to op.
std::vector<plan::KernelQuery> queries_of(const ScalarOp& op, int seed) {
  std::vector<DType> dtypes;
  if (op.floating != nullptr) {
    const DType others[] = {DType::kFloat16, DType::kBFloat16};
    dtypes = {DType::kFloat32, others[seed % 2], DType::kFloat64};
  }
  if (op.integer != nullptr) {
    const DType all[] = {DType::kInt64, DType::kInt32, DType::kInt8, DType::kUInt8, DType::kInt16, DType::kBool};
    dtypes.push_back(all[seed % 5]);
    if (op.gives_bool) dtypes.push_back(DType::kBool);
  }
  std::vector<plan::KernelQuery> queries;
  for (const DType dtype : dtypes) {
    const DType out = op.gives_bool ? DType::kBool : dtype;
    queries.push_back((queries.empty() ? plain : strided)(op.name, dtype, out, op.inputs));
    if (has_variants(op.name))
      queries.back().attrs = {{"approximate", std::string(*op.mode == '\0' ? "none" : op.mode)}};
  }
  return queries;
}

class Generated : public testing::TestWithParam<int> {};

// The expression that is printed and the loop that is compiled of it give the same: to the bit in double and integers,
// where both are made of the same functions of C.
TEST_P(Generated, IsAsOnTheCpu) {
  for (const plan::KernelQuery& query : queries_of(scalar_ops()[GetParam()], GetParam())) {
    std::vector<Bytes> inputs;
    for (size_t i = 0; i < query.inputs.size(); ++i) inputs.push_back(operand(query.inputs[i], 7 + i, i == 1));
    const DType in = query.inputs[0].dtype;
    const bool exact = in == DType::kFloat64 || !is_floating(in);
    expect_close(query, run_on_cuda(query, inputs), run_on_cpu(query, inputs),
                 exact ? 0 : tolerance_of(query.outputs[0].dtype));
  }
}

int count() { return static_cast<int>(scalar_ops().size()); }
INSTANTIATE_TEST_SUITE_P(Ops, Generated, testing::Range(0, count()), [](const auto& info) {
  const ScalarOp& op = scalar_ops()[info.param];
  return *op.mode == '\0' ? std::string(op.name) : fmt::format("{}_{}", op.name, op.mode);
});

TEST(GeneratedCast, IsAsOnTheCpu) {
  const DType all[] = {DType::kBool,    DType::kUInt8,    DType::kInt32,   DType::kInt64,
                       DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64};
  for (size_t i = 0; i < std::size(all); ++i) {
    for (const size_t step : {1, 3}) {
      const plan::KernelQuery query = plain("cast", all[i], all[(i + step) % std::size(all)], 1);
      TensorSpec finite = query.inputs[0];
      Bytes bytes(finite.extent_bytes());
      for (int64_t k = 0; k < 300; ++k) {
        const double value = is_floating(all[i]) ? static_cast<double>(k) / 8 : static_cast<double>(k % 100);
        set(all[i], bytes.data() + static_cast<size_t>(k) * dtype_size(all[i]), value);
      }
      expect_same(query, {bytes});
    }
  }
}

// Loops over dense operands take several elements at once: the last ones, and operands that lie at no multiple of them.
TEST(GeneratedLoops, TakeViewsThatBeginAnywhereAndEndAnywhere) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat32, DType::kUInt8}) {
    for (const int64_t size : {1, 7, 301}) {
      plan::KernelQuery query = plain("add", dtype, dtype, 2);
      for (TensorSpec* spec : {&query.inputs[0], &query.outputs[0]}) *spec = TensorSpec::contiguous({dtype, {size}});
      query.inputs[1] = TensorSpec::contiguous({dtype, {size == 7 ? 1 : size}});
      for (const size_t offset : {0, 1, 4})
        expect_same(query, {operand(query.inputs[0], 1, false), operand(query.inputs[1], 2, false)},
                    offset * dtype_size(dtype));
    }
  }
}

TEST(GeneratedWhere, AndCopyMoveBits) {
  for (const DType dtype : {DType::kUInt8, DType::kFloat16, DType::kFloat32, DType::kInt64}) {
    plan::KernelQuery query = strided("where", dtype, dtype, 2);
    query.inputs.insert(query.inputs.begin(), TensorSpec::contiguous({DType::kBool, {4, 5}}));
    std::vector<Bytes> inputs;
    for (size_t i = 0; i < 3; ++i) inputs.push_back(operand(query.inputs[i], i, false));
    expect_same(query, inputs);
    query = strided("copy", dtype, dtype, 1);
    expect_same(query, {operand(query.inputs[0], 1, false)});
  }
}

// Numbers that a source has from attributes need not be finite.
TEST(GeneratedNumbers, MayBeInfiniteOrNone) {
  for (const double decay : {HUGE_VAL, -HUGE_VAL, std::nan("")}) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
      plan::KernelQuery query = plain("sgd_update", dtype, dtype, 3);
      query.inputs[2] = TensorSpec::contiguous({dtype, {}});
      query.attrs = {{"weight_decay", decay}, {"maximize", false}};
      std::vector<Bytes> inputs;
      for (size_t i = 0; i < 3; ++i) inputs.push_back(operand(query.inputs[i], 2 + i, false));
      expect_same(query, inputs);
    }
  }
}

TEST(GeneratedFailures, AreTheCpus) {
  for (const ScalarOp& op : scalar_ops()) {
    if (op.error == ScalarError::kNone) continue;
    const plan::KernelQuery query = plain(op.name, DType::kInt32, DType::kInt32, 2);
    Bytes a(1200), b(1200);
    for (int i = 0; i < 300; ++i) {
      set(DType::kInt32, a.data() + 4 * i, i);
      set(DType::kInt32, b.data() + 4 * i, i == 200 ? 0 : 1);
    }
    const auto told = [&](auto run) -> std::string {
      try {
        run(query, {a, b});
        return "nothing";
      } catch (const Error& error) {
        return error.what();
      }
    };
    EXPECT_EQ(told(run_on_cuda), told(run_on_cpu) + "  (op 'it', net.py:7)");
  }
  EXPECT_THAT(fake_cuda::take_violations(), IsEmpty());
}

// The results of every other op are held by ops' DeviceTest (cuda.OnCuda.ops).
TEST(GeneratedKernels, AreThereForEveryOpOfTheCpus) {
  std::vector<std::string> missing;
  for (const std::string& op : table().ops(DeviceKind::kCpu)) {
    const bool some_have = op.starts_with("int8_");  // of the processors
    if (table().find(op, DeviceKind::kCuda) == nullptr && !some_have) missing.push_back(op);
  }
  EXPECT_THAT(missing,
              testing::ElementsAre(
                  "case", "decode_image", "decode_jpeg", "embedding_bag", "esac", "fetch", "flat_index", "fold_bias",
                  "fold_weight", "foreign", "fourier", "fourier_hermitian", "fourier_real", "fused_batch_norm",
                  "fused_batch_norm_backward", "fused_matmul", "fused_reduce", "grid_sample", "host_function",
                  "linalg_cholesky", "linalg_eig", "linalg_eigh", "linalg_ldl", "linalg_ldl_solve", "linalg_lu",
                  "linalg_matrix_exp", "linalg_permutation", "linalg_qr", "linalg_solve", "linalg_solve_triangular",
                  "linalg_svd", "loop", "lstm_cell", "lstm_cell_backward", "numbers_of_keys", "pack_files", "positions",
                  "requantize", "sample_order", "spill", "sum_of_squares", "weighted_taps", "weighted_taps_backward"));
}

TEST(GeneratedKernels, ShowTheirText) {
  const std::string text =
      table().get("exp", DeviceKind::kCuda).source(plain("exp", DType::kFloat32, DType::kFloat32, 1));
  EXPECT_THAT(text, testing::AllOf(HasSubstr("__global__"), HasSubstr("exp(a)")));
}

TEST(GeneratedKernel, KeepsOffCopyStreamsAndOtherDevices) {
  const plan::KernelQuery query = plain("exp", DType::kFloat32, DType::kFloat32, 1);
  const auto kernel = table().get("exp", DeviceKind::kCuda).prepare(query, {});
  const auto device = open_backend(REAL_BACKEND)->make_device(parse_device("cuda"), {.cores = 1});
  const auto stream = device->create_stream(plan::StreamKind::kCopyIn, 0);
  const auto told = [&](Stream* s) -> std::string {
    KernelArgs args;
    args.stream = s;
    try {
      kernel->run(args);
      return "nothing";
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_EQ(told(stream.get()),
            "exp: a kernel on stream copy_in, where memory of the host takes part; lay it out on the host");
  EXPECT_EQ(told(nullptr), "exp: a kernel of cuda on the caller's thread; give it a stream of its device");
}

// A kernel that is repeated with one ticket tells what it found itself from what it found in an earlier firing, which
// has come back with its data: then it leaves its output alone.
TEST(GeneratedFailures, OfAnEarlierFiringKeepARepeatedKernelFromRunning) {
  const plan::KernelQuery query = [] {
    plan::KernelQuery q = plain("remainder", DType::kInt32, DType::kInt32, 2);
    q.device = parse_device("cuda");
    return q;
  }();
  const plan::Space space{plan::SpaceKind::kDevice, query.device};
  const auto device = open_backend(REAL_BACKEND)->make_device(query.device, {.cores = 1});
  const auto kernel = table().get(query.op, DeviceKind::kCuda).prepare(query, {});
  ASSERT_TRUE(kernel->repeatable());
  const uint64_t bytes = 300 * sizeof(int32_t);
  std::vector<void*> data(3);
  for (void*& d : data) d = device->allocate(space, bytes);
  const auto write = [&](void* to, int32_t value) {
    device->copy_from_host(to, std::vector<int32_t>(300, value).data(), bytes);
  };
  const auto first = [&] {
    std::vector<int32_t> all(300);
    device->copy_to_host(all.data(), data[2], bytes);
    return all[0];
  };
  {
    const auto stream = device->create_stream(plan::StreamKind::kCompute, 0);
    const auto chain = stream->create_chain("a chain");
    const auto event = stream->create_event();
    const std::string context = "op 'it', net.py:7";
    int called = 0;
    const auto step = [&](uint64_t firing, int32_t divisor) {
      write(data[1], divisor);
      stream->begin_firing(firing);
      stream->wait(*event);
      chain->run({}, [&] {
        ++called;
        const void* const inputs[] = {data[0], data[1]};
        kernel->run({inputs, &data[2], nullptr, stream.get(), &context});
      });
      stream->record(*event);
      return event->wait().message();
    };
    write(data[0], 7);
    EXPECT_EQ(step(0, 4), "ok");
    EXPECT_EQ(step(1, 4), "ok");
    EXPECT_EQ(step(2, 5), "ok");
    EXPECT_EQ(first(), 2);
    const int before = called;
    const std::string failure = step(3, 0);
    EXPECT_THAT(failure, HasSubstr("(op 'it', net.py:7)"));
    write(data[2], -1);
    EXPECT_EQ(step(4, 5), failure);
    EXPECT_EQ(called, before);
    EXPECT_EQ(first(), -1);
  }
  for (void* d : data) device->deallocate(space, d, bytes);
  EXPECT_THAT(fake_cuda::take_violations(), IsEmpty());
}

}  // namespace
}  // namespace sluice
