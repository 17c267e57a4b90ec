// Generated kernels as the shipped backend has them, from their source: compiled for the host by the fake NVRTC, run by
// the fake driver, held against the cpu's kernels.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>

#include "cuda/fake_driver/fake_driver.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cuda/expressions.h"
#include "kernels/kernel.h"
#include "streams/backend.h"
#include "support/fake_cuda.h"

namespace sluice {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using Bytes = std::vector<std::byte>;

// The fake compiler, and a cache that goes with the process.
struct OnFakes {
  OnFakes() {
    setenv("SLUICE_NVRTC", FAKE_NVRTC, 1);
    setenv("SLUICE_CACHE_DIR", directory.c_str(), 1);
  }
  ~OnFakes() { std::filesystem::remove_all(directory); }
  const std::string directory = testing::TempDir() + "/sluice_generated_" + std::to_string(getpid());
} const on_fakes;

const KernelTable& table() {
  static const KernelTable* const all = [] {
    auto* made = new KernelTable();
    add_cpu_kernels(*made);
    load_backend("", REAL_BACKEND)->add_kernels(*made);
    return made;
  }();
  return *all;
}

Bytes run_on_cpu(plan::KernelQuery query, const std::vector<Bytes>& inputs) {
  query.device = parse_device("cpu");
  const auto kernel = table().get(query.op, DeviceKind::kCpu).prepare(query, {});
  Bytes out(query.outputs[0].extent_bytes()), workspace(kernel->workspace_bytes());
  std::vector<const void*> in;
  for (const Bytes& bytes : inputs) in.push_back(bytes.data());
  void* to = out.data();
  kernel->run({in.data(), &to, workspace.data()});
  return out;
}

Bytes run_on_cuda(plan::KernelQuery query, const std::vector<Bytes>& inputs) {
  query.device = parse_device("cuda");
  const plan::Space space{plan::SpaceKind::kDevice, query.device};
  const auto device = load_backend("", REAL_BACKEND)->make_device(query.device, {.cores = 1});
  const auto kernel = table().get(query.op, DeviceKind::kCuda).prepare(query, {});
  Bytes out(query.outputs[0].extent_bytes());
  std::vector<const void*> in;
  for (const Bytes& bytes : inputs) {
    void* data = device->allocate(space, bytes.size());
    device->copy_from_host(data, bytes.data(), bytes.size());
    in.push_back(data);
  }
  void* to = device->allocate(space, out.size());
  device->copy_from_host(to, out.data(), out.size());
  Status status;
  {
    const auto stream = device->create_stream(plan::StreamKind::kCompute, 0);
    const std::string context = "op 'it', net.py:7";
    stream->begin_firing(0);
    kernel->run({in.data(), &to, nullptr, stream.get(), &context});
    status = stream->synchronize();
  }
  device->copy_to_host(out.data(), to, out.size());
  device->deallocate(space, to, out.size());
  for (size_t i = 0; i < in.size(); ++i) device->deallocate(space, const_cast<void*>(in[i]), inputs[i].size());
  status.throw_if_error();
  return out;
}

// What lies at an element, as a number.
double value_of(DType dtype, const std::byte* at) {
  const auto as = [at]<class T>(T value) {
    std::memcpy(&value, at, sizeof(T));
    return value;
  };
  switch (dtype) {
    case DType::kBool:
    case DType::kUInt8: return as(uint8_t{});
    case DType::kInt8: return as(int8_t{});
    case DType::kInt16: return as(int16_t{});
    case DType::kInt32: return as(int32_t{});
    case DType::kInt64: return static_cast<double>(as(int64_t{}));
    case DType::kFloat16: return to_float(as(Float16{}));
    case DType::kBFloat16: return to_float(as(BFloat16{}));
    case DType::kFloat32: return as(float{});
    case DType::kFloat64: return as(double{});
  }
  return 0;
}

void set(DType dtype, std::byte* at, double value) {
  const auto put = [at](auto v) { std::memcpy(at, &v, sizeof(v)); };
  switch (dtype) {
    case DType::kBool: return put(static_cast<uint8_t>(value != 0));
    case DType::kUInt8: return put(static_cast<uint8_t>(value));
    case DType::kInt8: return put(static_cast<int8_t>(value));
    case DType::kInt16: return put(static_cast<int16_t>(value));
    case DType::kInt32: return put(static_cast<int32_t>(value));
    case DType::kInt64: return put(static_cast<int64_t>(value));
    case DType::kFloat16: return put(to_float16(static_cast<float>(value)));
    case DType::kBFloat16: return put(to_bfloat16(static_cast<float>(value)));
    case DType::kFloat32: return put(static_cast<float>(value));
    case DType::kFloat64: return put(value);
  }
}

// Every special value, then random ones. Second operands of integer functions must be positive.
Bytes operand(const TensorSpec& spec, uint64_t seed, bool positive) {
  std::mt19937_64 random(seed);
  const size_t size = dtype_size(spec.dtype);
  Bytes bytes(spec.extent_bytes());
  const double special[] = {0, -0.0, 1, -1, 0.5, 2, INFINITY, -INFINITY, NAN, 1e-7, 300, -2.5, 3.5};
  for (size_t i = 0; i * size < bytes.size(); ++i) {
    double value = static_cast<double>(random() % 4001) / 1000 - 2;
    if (!is_floating(spec.dtype)) value = static_cast<double>(random() % 9) - (spec.dtype == DType::kUInt8 ? 0 : 4);
    if (is_floating(spec.dtype) && i < std::size(special)) value = special[(i + seed) % std::size(special)];
    if (positive && !is_floating(spec.dtype)) value = static_cast<double>(random() % 3 + 1);
    set(spec.dtype, bytes.data() + i * size, value);
  }
  return bytes;
}

double tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16: return 1e-2;
    case DType::kFloat16: return 2e-3;
    case DType::kFloat32: return 4e-6;
    case DType::kFloat64: return 1e-12;
    default: return 0;
  }
}

void expect_same(const plan::KernelQuery& query, const std::vector<Bytes>& inputs) {
  const Bytes expected = run_on_cpu(query, inputs), got = run_on_cuda(query, inputs);
  const DType dtype = query.outputs[0].dtype;
  const double tolerance = tolerance_of(dtype);
  for (size_t at = 0; at < expected.size(); at += dtype_size(dtype)) {
    const double want = value_of(dtype, expected.data() + at), is = value_of(dtype, got.data() + at);
    if (std::isnan(want) ? std::isnan(is) : want == is || std::abs(is - want) <= tolerance * (1 + std::abs(want)))
      continue;
    ADD_FAILURE() << query.op << " " << dtype_name(query.inputs[0].dtype) << ", element " << at / dtype_size(dtype)
                  << ": got " << is << ", the cpu " << want;
    return;
  }
  EXPECT_THAT(fake_cuda::take_violations(), IsEmpty());
}

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

plan::KernelQuery plain(const char* op, DType in, DType out, int inputs) {
  plan::KernelQuery query;
  query.op = op;
  query.inputs.assign(static_cast<size_t>(inputs), TensorSpec::contiguous({in, {300}}));
  query.outputs = {TensorSpec::contiguous({out, {300}})};
  return query;
}

class Generated : public testing::TestWithParam<int> {};

// Each op in float32 and two more of its dtypes, which differ from op to op.
TEST_P(Generated, IsAsOnTheCpu) {
  const cuda::Expression& e = cuda::expressions()[GetParam()];
  std::string op = e.op;
  const bool tanh = op.ends_with(":tanh");
  if (tanh) op.resize(op.size() - 5);
  std::vector<DType> dtypes;
  if (e.floating != nullptr) {
    const DType others[] = {DType::kFloat16, DType::kBFloat16, DType::kFloat64};
    dtypes = {DType::kFloat32, others[GetParam() % 3]};
  }
  if (e.integer != nullptr) {
    const DType all[] = {DType::kInt64, DType::kInt32, DType::kInt8, DType::kUInt8, DType::kInt16, DType::kBool};
    dtypes.push_back(all[GetParam() % 5]);
    if (e.gives_bool) dtypes.push_back(DType::kBool);
  }
  for (size_t d = 0; d < dtypes.size(); ++d) {
    const DType out = e.gives_bool ? DType::kBool : dtypes[d];
    plan::KernelQuery query = (d == 0 ? plain : strided)(op.c_str(), dtypes[d], out, e.inputs);
    if (op.starts_with("gelu")) query.attrs = {{"approximate", std::string(tanh ? "tanh" : "none")}};
    std::vector<Bytes> inputs;
    for (size_t i = 0; i < query.inputs.size(); ++i) inputs.push_back(operand(query.inputs[i], 7 + i, i == 1));
    expect_same(query, inputs);
  }
}

int count() { return static_cast<int>(cuda::expressions().size()); }
INSTANTIATE_TEST_SUITE_P(Ops, Generated, testing::Range(0, count()), [](const auto& info) {
  std::string name = cuda::expressions()[info.param].op;
  std::replace(name.begin(), name.end(), ':', '_');
  return name;
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
  for (const char* op : {"fmod", "remainder", "floor_divide", "pow"}) {
    const plan::KernelQuery query = plain(op, DType::kInt32, DType::kInt32, 2);
    Bytes a(1200), b(1200);
    for (int i = 0; i < 300; ++i) {
      set(DType::kInt32, a.data() + 4 * i, i);
      set(DType::kInt32, b.data() + 4 * i, i == 200 ? (query.op == "pow" ? -1 : 0) : 1);
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

// What every other op gives is held by ops' DeviceTest (cuda.OnCuda.ops).
TEST(GeneratedKernels, AreThereForEveryOpOfTheCpus) {
  std::vector<std::string> missing;
  for (const std::string& op : table().ops(DeviceKind::kCpu)) {
    if (table().find(op, DeviceKind::kCuda) == nullptr) missing.push_back(op);
  }
  EXPECT_THAT(missing, testing::ElementsAre("host_function"));
}

TEST(GeneratedKernel, KeepsOffCopyStreamsAndOtherDevices) {
  const plan::KernelQuery query = plain("exp", DType::kFloat32, DType::kFloat32, 1);
  const auto kernel = table().get("exp", DeviceKind::kCuda).prepare(query, {});
  const auto device = load_backend("", REAL_BACKEND)->make_device(parse_device("cuda"), {.cores = 1});
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
  const auto device = load_backend("", REAL_BACKEND)->make_device(query.device, {.cores = 1});
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
