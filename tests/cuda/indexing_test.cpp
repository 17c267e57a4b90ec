// Kernels that add up or overwrite at places which indices name, held against the cpu's.
#include "cuda/on_fakes.h"

namespace sluice {
namespace {

using namespace test;

Bytes indices(const TensorSpec& spec, int64_t limit, uint64_t seed, int64_t hot = -1) {
  std::mt19937_64 random(seed);
  Bytes bytes(spec.extent_bytes());
  for (size_t i = 0; i * 8 < bytes.size(); ++i) {
    const auto at = static_cast<int64_t>(random() % static_cast<uint64_t>(limit));
    set(DType::kInt64, bytes.data() + 8 * i, static_cast<double>(hot >= 0 && random() % 2 == 0 ? hot : at));
  }
  return bytes;
}

Bytes numbers(const TensorSpec& spec, uint64_t seed) {
  std::mt19937_64 random(seed);
  Bytes bytes(spec.extent_bytes());
  const size_t size = dtype_size(spec.dtype);
  for (size_t i = 0; i * size < bytes.size(); ++i)
    set(spec.dtype, bytes.data() + i * size,
        static_cast<double>(random() % 4001) / (is_floating(spec.dtype) ? 1000 : 400) - 2);
  return bytes;
}

// float32 and float64 are added in the cpu's order, so all bits are the cpu's; and two runs give the same.
void expect_bits(const plan::KernelQuery& query, const std::vector<Bytes>& inputs) {
  const Bytes got = run_on_cuda(query, inputs);
  EXPECT_EQ(got, run_on_cpu(query, inputs)) << query.op;
  EXPECT_THAT(fake_cuda::take_violations(), testing::IsEmpty());
}

plan::KernelQuery embedding_backward(DType dtype, Shape index, int64_t rows, int64_t features, int64_t padding) {
  plan::KernelQuery query;
  query.op = "embedding_backward";
  Shape grad = index;
  grad.push_back(features);
  query.inputs = {TensorSpec::contiguous({dtype, grad}), TensorSpec::contiguous({DType::kInt64, index})};
  query.outputs = {TensorSpec::contiguous({dtype, {rows, features}})};
  query.attrs = {{"num_embeddings", rows}, {"padding_idx", padding}};
  return query;
}

TEST(EmbeddingBackward, HasTheCpusBits) {
  int seed = 0;
  for (const auto& [index, rows, features, padding, hot] :
       {std::tuple<Shape, int64_t, int64_t, int64_t, int64_t>{{3, 7}, 5, 8, -1, -1},
        {{41}, 70, 5, 3, 3},
        {{300}, 1, 12, -1, -1},
        {{700}, 5000, 4, 0, 17},
        {{1}, 3, 4, -1, -1},
        {{0}, 3, 4, -1, -1}}) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16}) {
      const plan::KernelQuery query = embedding_backward(dtype, index, rows, features, padding);
      expect_bits(query, {numbers(query.inputs[0], ++seed), indices(query.inputs[1], rows, seed, hot)});
    }
  }
}

// More indices than a block orders: digits are counted, scanned and placed by several blocks.
TEST(EmbeddingBackward, OrdersManyIndicesByManyBlocks) {
  const plan::KernelQuery query = embedding_backward(DType::kFloat32, {9500}, 6000, 4, 11);
  expect_bits(query, {numbers(query.inputs[0], 1), indices(query.inputs[1], 6000, 2, 4097)});
}

TEST(EmbeddingBackward, ReadsFromViewsThatBeginAnywhere) {
  const plan::KernelQuery query = embedding_backward(DType::kFloat32, {50}, 9, 8, -1);
  expect_same(query, {numbers(query.inputs[0], 1), indices(query.inputs[1], 9, 2)}, 8);
}

TEST(IndexAdd, HasTheCpusBits) {
  int seed = 0;
  for (const int64_t dim : {0, 1, 2}) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kInt32, DType::kUInt8}) {
      plan::KernelQuery query;
      query.op = "index_add";
      Shape x{6, 5, 8}, src = x;
      src[static_cast<int>(dim)] = 30;
      query.inputs = {TensorSpec::contiguous({dtype, x}), TensorSpec::contiguous({DType::kInt64, {30}}),
                      TensorSpec::contiguous({dtype, src})};
      query.outputs = {query.inputs[0]};
      query.attrs = {{"dim", dim}};
      ++seed;
      if (seed % 2 == 0) {  // other strides
        query.inputs[0].strides = {1, 6, 30};
        query.inputs[1].strides = {2};
      }
      if (seed % 3 == 0) query.outputs[0].strides = {5, 1, 30};
      expect_bits(query, {numbers(query.inputs[0], seed), indices(query.inputs[1], x[static_cast<int>(dim)], seed),
                          numbers(query.inputs[2], seed + 100)});
    }
  }
}

plan::KernelQuery scatter(const char* op, DType dtype, Shape x, Shape index, int64_t dim) {
  plan::KernelQuery query;
  query.op = op;
  Shape source = index;
  source[0] += 1;
  query.inputs = {TensorSpec::contiguous({dtype, x}), TensorSpec::contiguous({DType::kInt64, index}),
                  TensorSpec::contiguous({dtype, source})};
  query.outputs = {query.inputs[0]};
  query.attrs = {{"dim", dim}};
  return query;
}

TEST(Scatter, HasTheCpusBits) {
  int seed = 0;
  for (const char* op : {"scatter", "scatter_add"}) {
    for (const int64_t dim : {0, 1, 2}) {
      for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kInt64, DType::kInt8}) {
        Shape index{3, 3, 5};
        index[static_cast<int>(dim)] = 20;
        plan::KernelQuery query = scatter(op, dtype, {4, 3, 7}, index, dim);
        if (++seed % 2 == 0) query.inputs[0].strides = {1, 4, 12};
        if (seed % 3 == 0) query.inputs[1].strides = {index[1] * index[2], 1, index[1]};
        expect_bits(query, {numbers(query.inputs[0], seed),
                            indices(query.inputs[1], query.inputs[0].shape[static_cast<int>(dim)], seed, 1),
                            numbers(query.inputs[2], seed + 100)});
      }
    }
  }
}

TEST(Scatter, OrdersManyElementsByManyBlocks) {
  for (const char* op : {"scatter", "scatter_add"}) {
    const plan::KernelQuery query = scatter(op, DType::kFloat32, {100, 300}, {90, 100}, 1);
    expect_bits(query, {numbers(query.inputs[0], 1), indices(query.inputs[1], 300, 2, 7), numbers(query.inputs[2], 3)});
  }
}

TEST(ScatterReduce, HasTheCpusBits) {
  int seed = 0;
  for (const char* reduce : {"prod", "amax", "amin"}) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kInt32}) {
      plan::KernelQuery query = scatter("scatter_reduce", dtype, {9, 4}, {40, 4}, 0);
      query.attrs.emplace_back("reduce", std::string(reduce));
      ++seed;
      std::vector<Bytes> inputs = {numbers(query.inputs[0], seed), indices(query.inputs[1], 9, seed),
                                   numbers(query.inputs[2], seed + 100)};
      expect_bits(query, inputs);
      if (!is_floating(dtype)) continue;
      set(dtype, inputs[2].data() + 33 * dtype_size(dtype), NAN);
      expect_same(query, inputs);
    }
  }
}

// More windows than a block has threads for a plane, most of which choose what another one has chosen.
TEST(MaxPoolBackward, HasTheCpusBits) {
  for (const bool last : {false, true}) {
    plan::KernelQuery query;
    query.op = "max_pool_backward";
    const Shape x{2, 40, 5, 7}, y{2, 40, 15, 20};
    query.inputs = {TensorSpec::contiguous({DType::kFloat32, y}), TensorSpec::contiguous({DType::kInt64, y})};
    query.outputs = {TensorSpec::contiguous({DType::kFloat32, x})};
    query.attrs = {{"input_shape", Ints{2, 40, 5, 7}}};
    if (last) {
      for (TensorSpec* spec : {&query.inputs[0], &query.inputs[1], &query.outputs[0]})
        spec->strides = channels_last_strides(spec->shape);
    }
    expect_bits(query, {numbers(query.inputs[0], 1), indices(query.inputs[1], 35, 2, 11)});
  }
}

// The taps of a dilated window may all lie beside the input.
TEST(MaxPool, OfWindowsWithoutElementsHasTheCpusBits) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16, DType::kInt32}) {
    plan::KernelQuery query;
    query.op = "max_pool_values";
    query.inputs = {TensorSpec::contiguous({dtype, {2, 3, 3, 3}})};
    query.outputs = {TensorSpec::contiguous({dtype, {2, 3, 1, 1}})};
    query.attrs = {{"kernel_size", Ints{2, 2}},
                   {"stride", Ints{1, 1}},
                   {"padding", Ints{1, 1}},
                   {"dilation", Ints{4, 4}},
                   {"ceil_mode", false}};
    expect_bits(query, {numbers(query.inputs[0], 1)});
  }
}

TEST(Scatter, TellsOfAnIndexThatIsOutOfRange) {
  for (const char* op : {"scatter", "scatter_add", "index_add"}) {
    plan::KernelQuery query = scatter(op, DType::kFloat32, {5, 4}, {6, 4}, 0);
    if (op == std::string("index_add")) query.inputs[1] = TensorSpec::contiguous({DType::kInt64, {7}});
    Bytes index = indices(query.inputs[1], 5, 1);
    set(DType::kInt64, index.data() + 24, 5);
    const std::vector<Bytes> inputs = {numbers(query.inputs[0], 1), index, numbers(query.inputs[2], 2)};
    const auto told = [&](auto run) -> std::string {
      try {
        run(query, inputs);
        return "nothing";
      } catch (const Error& error) {
        return error.what();
      }
    };
    EXPECT_EQ(told(run_on_cuda), told(run_on_cpu) + "  (op 'it', net.py:7)");
  }
  EXPECT_THAT(fake_cuda::take_violations(), testing::IsEmpty());
}

}  // namespace
}  // namespace sluice
