// Attention's kernels, tiled and by tensor cores (as the shim lays their fragments), held against the cpu's.
#include "cuda/on_fakes.h"

namespace sluice {
namespace {

using namespace test;

struct Case {
  int64_t batch = 1, heads = 1, own_heads = 1, rows = 5, keys = 5, width = 4, value_width = 4;
  bool causal = false;
  char mask = 0;  // b: bool, o: own dtype, broadcast over heads; r: bool, one for all rows
  double dropout = 0;
  bool transposed = false;  // (batch, length, heads, width) in memory
  bool grad_lse = false;
};

TensorSpec spec_of(DType dtype, Shape shape, bool transposed) {
  TensorSpec spec = TensorSpec::contiguous({dtype, shape});
  if (transposed) spec.strides = {shape[1] * shape[2] * shape[3], shape[3], shape[1] * shape[3], 1};
  return spec;
}

Bytes numbers(const TensorSpec& spec, uint64_t seed) {
  std::mt19937_64 random(seed);
  Bytes bytes(spec.extent_bytes());
  const size_t size = dtype_size(spec.dtype);
  for (size_t i = 0; i * size < bytes.size(); ++i)
    set(spec.dtype, bytes.data() + i * size,
        spec.dtype == DType::kInt64  ? static_cast<double>(i + 3)
        : spec.dtype == DType::kBool ? static_cast<double>(random() % 3 != 0)
                                     : static_cast<double>(random() % 4001) / 1000 - 2);
  return bytes;
}

void append_mask(const Case& c, DType dtype, std::vector<TensorSpec>& inputs) {
  const TensorSpec none = TensorSpec::contiguous({DType::kFloat32, {}});
  inputs.push_back(c.mask == 'b'   ? TensorSpec::contiguous({DType::kBool, {c.batch, 1, c.rows, c.keys}})
                   : c.mask == 'r' ? TensorSpec::contiguous({DType::kBool, {1, 1, 1, c.keys}})
                   : c.mask == 'o' ? TensorSpec::contiguous({dtype, {1, c.heads, c.rows, c.keys}})
                                   : none);
  inputs.push_back(c.dropout > 0 ? TensorSpec::contiguous({DType::kInt64, {2}}) : none);
}

void expect_all(const plan::KernelQuery& query, const std::vector<Bytes>& inputs, double tolerance) {
  const auto got = all_on_cuda(0, query, inputs), expected = all_on_cpu(query, inputs);
  for (size_t i = 0; i < got.size(); ++i) {
    plan::KernelQuery one = query;
    one.outputs = {query.outputs[i]};
    SCOPED_TRACE(fmt::format("output {}", i));
    expect_close(one, got[i], expected[i], tolerance);
  }
  // The same bits in every run, and where rows may not be read 16 bytes at a time.
  EXPECT_EQ(all_on_cuda(8, query, inputs), got);
}

// The bits that TF32 has.
void round_down(Bytes& bytes) {
  for (size_t i = 0; i < bytes.size(); i += 4) bytes[i] = std::byte{0}, bytes[i + 1] &= std::byte{0xe0};
}

// `precision`: of float32; where it is given, operands have the bits that TF32 has.
void check(const Case& c, DType dtype, uint64_t seed, double tolerance, const char* precision = nullptr) {
  const DType sums = dtype == DType::kFloat64 ? dtype : DType::kFloat32;
  plan::KernelQuery query;
  query.op = "attention";
  query.attrs = {{"is_causal", c.causal}, {"scale", 0.4}, {"dropout_p", c.dropout}, {"salt", int64_t{7}}};
  if (precision != nullptr) query.attrs.emplace_back("precision", std::string(precision));
  query.inputs = {spec_of(dtype, {c.batch, c.heads, c.rows, c.width}, c.transposed),
                  spec_of(dtype, {c.batch, c.own_heads, c.keys, c.width}, c.transposed),
                  spec_of(dtype, {c.batch, c.own_heads, c.keys, c.value_width}, c.transposed)};
  const std::vector<TensorSpec> operands = query.inputs;
  append_mask(c, dtype, query.inputs);
  query.outputs = {spec_of(dtype, {c.batch, c.heads, c.rows, c.value_width}, c.transposed),
                   TensorSpec::contiguous({sums, {c.batch, c.heads, c.rows}})};
  std::vector<Bytes> inputs;
  for (size_t i = 0; i < query.inputs.size(); ++i) inputs.push_back(numbers(query.inputs[i], seed + i));
  for (size_t i = 0; precision != nullptr && i < 3; ++i) round_down(inputs[i]);
  expect_all(query, inputs, tolerance);

  const std::vector<Bytes> made = all_on_cpu(query, inputs);
  plan::KernelQuery backward;
  backward.op = "attention_backward";
  backward.attrs = query.attrs;
  backward.inputs = {query.outputs[0], operands[0], operands[1], operands[2], query.outputs[0], query.outputs[1]};
  append_mask(c, dtype, backward.inputs);
  if (c.grad_lse) backward.inputs.push_back(query.outputs[1]);
  backward.outputs = operands;
  std::vector<Bytes> all = {
      numbers(query.outputs[0], seed + 50), inputs[0], inputs[1], inputs[2], made[0], made[1], inputs[3], inputs[4]};
  if (precision != nullptr) round_down(all[0]);
  if (c.grad_lse) all.push_back(numbers(query.outputs[1], seed + 60));
  expect_all(backward, all, 2 * tolerance);
}

const Case kCases[] = {
    {.batch = 2, .heads = 2, .own_heads = 2, .rows = 70, .keys = 70, .width = 64, .value_width = 64, .causal = true},
    {.batch = 1, .heads = 4, .own_heads = 2, .rows = 9, .keys = 131, .width = 24, .value_width = 40, .mask = 'b'},
    {.heads = 2,
     .own_heads = 1,
     .rows = 140,
     .keys = 35,
     .width = 7,
     .value_width = 5,
     .causal = true,
     .mask = 'o',
     .transposed = true,
     .grad_lse = true},
    {.rows = 33, .keys = 66, .width = 128, .value_width = 100, .mask = 'r', .dropout = 0.25},
    {.rows = 3, .keys = 0},
    {.rows = 1, .keys = 1, .width = 1, .value_width = 1, .causal = true},
};

TEST(Attention, IsAsOnTheCpu) {
  uint64_t seed = 0;
  for (const Case& c : kCases) {
    SCOPED_TRACE(fmt::format("case {}", seed / 10));
    check(c, DType::kFloat32, seed, 2e-5);
    check(c, DType::kFloat64, seed, 1e-11);
    seed += 10;
  }
}

// A weight is rounded to the operands' dtype before it is multiplied by values, as torch's kernels do.
TEST(Attention, IsAsOnTheCpuByTensorCores) {
  uint64_t seed = 0;
  for (const Case& c : kCases) {
    SCOPED_TRACE(fmt::format("case {}", seed / 10));
    check(c, DType::kBFloat16, seed, 3e-2);
    check(c, DType::kFloat16, seed, 4e-3);
    seed += 10;
  }
}

// Weights are rounded to TF32, which has as many bits as float16.
TEST(Attention, IsAsOnTheCpuByTensorCoresInTf32) {
  uint64_t seed = 0;
  for (const Case& c : kCases) {
    SCOPED_TRACE(fmt::format("case {}", seed / 10));
    check(c, DType::kFloat32, seed, 3e-3, seed % 20 == 0 ? "high" : "medium");
    seed += 10;
  }
}

// 24 bits of operands are rounded to 11 where that is allowed, and only there.
TEST(Attention, RoundsOperandsToTf32WhereAllowed) {
  plan::KernelQuery query;
  query.op = "attention";
  query.attrs = {{"is_causal", false}, {"scale", 0.4}, {"dropout_p", 0.0}, {"salt", int64_t{0}}};
  const TensorSpec one = TensorSpec::contiguous({DType::kFloat32, {1, 1, 1, 1}}), none{DType::kFloat32, {}, {}};
  query.inputs = {one, one, one, none, none};
  query.outputs = {one, TensorSpec::contiguous({DType::kFloat32, {1, 1, 1}})};
  const float value = 1 + 0x1.8p-11f + 0x1p-20f;
  std::vector<Bytes> inputs(5, Bytes(4));
  for (Bytes& bytes : inputs) std::memcpy(bytes.data(), &value, 4);
  const auto made = [&](const char* precision) {
    plan::KernelQuery with = query;
    with.attrs.emplace_back("precision", std::string(precision));
    return value_of(DType::kFloat32, all_on_cuda(0, with, inputs)[0].data());
  };
  EXPECT_EQ(made("highest"), value);
  EXPECT_EQ(made("high"), 1 + 0x1p-10f);  // to the nearest
  EXPECT_EQ(made("medium"), 1 + 0x1p-10f);
}

TEST(Attention, TakesHeadsOfAnyWidth) {
  const Case wide{.heads = 2, .own_heads = 2, .rows = 20, .keys = 17, .width = 150, .value_width = 270, .causal = true};
  check(wide, DType::kFloat32, 1, 2e-5);
  check(wide, DType::kBFloat16, 2, 3e-2);
}

}  // namespace
}  // namespace sluice
