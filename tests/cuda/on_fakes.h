#pragma once
// The kernels of the shipped backend, run on fakes: sources compiled for the host by the fake NVRTC, the fake
// libraries, the fake driver. And what they are held against, the cpu's.
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
#include "kernels/kernel.h"
#include "plan/query.h"
#include "streams/backend.h"
#include "support/fake_cuda.h"

namespace sluice::test {

using Bytes = std::vector<std::byte>;

// The fake libraries, and a cache that goes with the process.
struct OnFakes {
  OnFakes() {
    setenv("SLUICE_NVRTC", FAKE_NVRTC, 1);
    setenv("SLUICE_CUBLASLT", FAKE_CUBLASLT, 1);
    setenv("SLUICE_CUDNN", FAKE_CUDNN, 1);
    setenv("SLUICE_CACHE_DIR", directory.c_str(), 1);
  }
  ~OnFakes() { std::filesystem::remove_all(directory); }
  const std::string directory = testing::TempDir() + "/sluice_generated_" + std::to_string(getpid());
};
inline const OnFakes on_fakes;

inline const KernelTable& table() {
  static const KernelTable* const all = [] {
    auto* made = new KernelTable();
    add_cpu_kernels(*made);
    open_backend(REAL_BACKEND)->add_kernels(*made);
    return made;
  }();
  return *all;
}

// Every output of a run.
inline std::vector<Bytes> all_on_cpu(plan::KernelQuery query, const std::vector<Bytes>& inputs) {
  query.device = parse_device("cpu");
  const auto kernel = table().get(query.op, DeviceKind::kCpu).prepare(query, {});
  Bytes room(kernel->workspace_bytes() + plan::kAlignment);
  void* workspace = room.data() + (plan::kAlignment - reinterpret_cast<uintptr_t>(room.data()) % plan::kAlignment);
  std::vector<const void*> in;
  for (const Bytes& bytes : inputs) in.push_back(bytes.data());
  std::vector<Bytes> outputs;
  for (const TensorSpec& spec : query.outputs) outputs.emplace_back(spec.extent_bytes());
  std::vector<void*> to;
  for (Bytes& bytes : outputs) to.push_back(bytes.data());
  kernel->run({in.data(), to.data(), workspace});
  return outputs;
}

inline Bytes run_on_cpu(const plan::KernelQuery& query, const std::vector<Bytes>& inputs) {
  return all_on_cpu(query, inputs)[0];
}

// `offset`: bytes that inputs lie behind the beginning of a buffer.
inline std::vector<Bytes> all_on_cuda(size_t offset, plan::KernelQuery query, const std::vector<Bytes>& inputs) {
  query.device = parse_device("cuda");
  const plan::Space space{plan::SpaceKind::kDevice, query.device};
  const auto device = open_backend(REAL_BACKEND)->make_device(query.device, {.cores = 1});
  const auto kernel = table().get(query.op, DeviceKind::kCuda).prepare(query, {});
  std::vector<std::pair<std::byte*, size_t>> blocks;
  const auto allocate = [&](size_t bytes) {
    blocks.emplace_back(static_cast<std::byte*>(device->allocate(space, bytes)), bytes);
    return blocks.back().first;
  };
  std::vector<const void*> in;
  for (const Bytes& bytes : inputs) {
    std::byte* data = allocate(bytes.size() + offset) + offset;
    device->copy_from_host(data, bytes.data(), bytes.size());
    in.push_back(data);
  }
  std::vector<Bytes> outputs;
  std::vector<void*> to;
  for (const TensorSpec& spec : query.outputs) {
    outputs.emplace_back(spec.extent_bytes());
    to.push_back(allocate(outputs.back().size()));
    device->copy_from_host(to.back(), outputs.back().data(), outputs.back().size());
  }
  void* workspace = kernel->workspace_bytes() > 0 ? allocate(kernel->workspace_bytes()) : nullptr;
  Status status;
  {
    const auto stream = device->create_stream(plan::StreamKind::kCompute, 0);
    const std::string context = "op 'it', net.py:7";
    stream->begin_firing(0);
    kernel->run({in.data(), to.data(), workspace, stream.get(), &context});
    status = stream->synchronize();
  }
  for (size_t i = 0; i < outputs.size(); ++i) device->copy_to_host(outputs[i].data(), to[i], outputs[i].size());
  for (const auto& [data, bytes] : blocks) device->deallocate(space, data, bytes);
  status.throw_if_error();
  return outputs;
}

inline Bytes run_on_cuda_at(size_t offset, const plan::KernelQuery& query, const std::vector<Bytes>& inputs) {
  return all_on_cuda(offset, query, inputs)[0];
}

inline Bytes run_on_cuda(const plan::KernelQuery& query, const std::vector<Bytes>& inputs) {
  return run_on_cuda_at(0, query, inputs);
}

// The value of an element, as a number.
inline double value_of(DType dtype, const std::byte* at) {
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
    default: break;
  }
  ADD_FAILURE() << dtype_name(dtype) << " is no number of one part";
  return 0;
}

inline void set(DType dtype, std::byte* at, double value) {
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
    default: ADD_FAILURE() << dtype_name(dtype) << " is no number of one part";
  }
}

// Every special value, then random ones. Second operands of integer functions must be positive.
inline Bytes operand(const TensorSpec& spec, uint64_t seed, bool positive) {
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

inline double tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16: return 1e-2;
    case DType::kFloat16: return 2e-3;
    case DType::kFloat32: return 4e-6;
    case DType::kFloat64: return 1e-12;
    default: return 0;
  }
}

inline void expect_close(const plan::KernelQuery& query, const Bytes& got, const Bytes& expected, double tolerance) {
  const DType dtype = query.outputs[0].dtype;
  for (size_t at = 0; at < expected.size(); at += dtype_size(dtype)) {
    const double want = value_of(dtype, expected.data() + at), is = value_of(dtype, got.data() + at);
    if (std::isnan(want) ? std::isnan(is) : want == is || std::abs(is - want) <= tolerance * (1 + std::abs(want)))
      continue;
    ADD_FAILURE() << query.op << " " << dtype_name(query.inputs[0].dtype) << ", element " << at / dtype_size(dtype)
                  << ": got " << is << ", the cpu " << want;
    return;
  }
  EXPECT_THAT(fake_cuda::take_violations(), testing::IsEmpty());
}

inline void expect_same(const plan::KernelQuery& query, const std::vector<Bytes>& inputs, size_t offset = 0) {
  expect_close(query, run_on_cuda_at(offset, query, inputs), run_on_cpu(query, inputs),
               tolerance_of(query.outputs[0].dtype));
}

}  // namespace sluice::test
