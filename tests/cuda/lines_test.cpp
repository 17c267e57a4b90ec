// Kernels that go along lines, held against the cpu's.
#include "cuda/on_fakes.h"

namespace sluice {
namespace {

using namespace test;

plan::KernelQuery along(const char* op, DType from, DType to, Shape shape, int64_t dim) {
  plan::KernelQuery query;
  query.op = op;
  query.inputs = {TensorSpec::contiguous({from, shape})};
  query.outputs = {TensorSpec::contiguous({to, shape})};
  query.attrs = {{"dim", dim}};
  return query;
}

// Few different values, so that there are many equal ones, and every special one.
Bytes repeated(const TensorSpec& spec, uint64_t seed) {
  Bytes bytes = operand(spec, seed, false);
  std::mt19937_64 random(seed);
  const size_t size = dtype_size(spec.dtype);
  for (size_t i = 0; i * size < bytes.size(); ++i)
    if (random() % 4 != 0) set(spec.dtype, bytes.data() + i * size, static_cast<double>(random() % 7));
  return bytes;
}

// The query is for all positions.
void set_order(plan::KernelQuery& query, bool descending) {
  query.attrs.emplace_back("descending", descending);
  query.attrs.emplace_back("first", int64_t{0});
  query.attrs.emplace_back("count", int64_t{-1});
}

TEST(Argsort, HasTheCpusOrder) {
  uint64_t seed = 0;
  for (const bool descending : {false, true}) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kInt64, DType::kFloat64, DType::kBool}) {
      plan::KernelQuery query = along("argsort", dtype, DType::kInt64, {3, 700, 2}, 1);
      set_order(query, descending);
      if (++seed % 2 == 0) query.inputs[0].strides = {1, 3, 2100};
      expect_same(query, {repeated(query.inputs[0], seed)});
    }
  }
}

TEST(Argsort, MergesTilesOfLongLines) {
  for (const int64_t length : {1025, 4500}) {
    plan::KernelQuery query = along("argsort", DType::kFloat32, DType::kInt64, {2, length}, 1);
    set_order(query, length > 2000);
    expect_same(query, {repeated(query.inputs[0], 3)});
  }
}

TEST(RunningExtrema, AreWhereTheCpuFindsThem) {
  uint64_t seed = 0;
  for (const char* op : {"running_argmax", "running_argmin"}) {
    for (const auto& [shape, dim] : {std::pair<Shape, int64_t>{{2, 2600}, 1}, {{40, 7}, 0}, {{1}, 0}}) {
      for (const DType dtype : {DType::kFloat32, DType::kInt32}) {
        const plan::KernelQuery query = along(op, dtype, DType::kInt64, shape, dim);
        expect_same(query, {repeated(query.inputs[0], ++seed)});
      }
    }
  }
}

TEST(Cumsum, ScansLongLines) {
  for (const auto& [shape, dim] : {std::pair<Shape, int64_t>{{3, 2600}, 1}, {{40, 70}, 0}, {{1025}, 0}}) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kInt64}) {
      const plan::KernelQuery query = along("cumsum", dtype, dtype, shape, dim);
      Bytes x = repeated(query.inputs[0], 5);
      for (size_t i = 0; is_floating(dtype) && i < 20; ++i) set(dtype, x.data() + i * dtype_size(dtype), 0.5);
      expect_same(query, {x});
    }
  }
}

}  // namespace
}  // namespace sluice
