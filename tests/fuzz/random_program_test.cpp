// Random programs give the same bits however they are compiled: eagerly, with every pass, with none, an actor per
// kernel, without sharing memory, on several streams and devices, with results in the memory of inputs.
#include "fuzz/random_program.h"

#include <cmath>
#include <cstring>

#include "graph/ops/activation.h"
#include "graph/ops/matmul.h"
#include "graph/ops/softmax.h"
#include "plan/verify.h"
#include "runtime/session/engine.h"
#include "support/accelerator.h"
#include "support/memory_watch.h"
#include "tensor/session/graph_session.h"

namespace sluice::test {

namespace {

constexpr int64_t kMostElements = 600;
const double kNumbers[] = {0.0, -0.0, 1, -1, 2, 0.5};

bool broadcasts(const Shape& a, const Shape& b) {
  int64_t elements = 1;
  for (int i = 1; i <= std::max(a.rank(), b.rank()); ++i) {
    const int64_t x = i <= a.rank() ? a[a.rank() - i] : 1, y = i <= b.rank() ? b[b.rank() - i] : 1;
    if (x != y && x != 1 && y != 1) return false;
    elements *= std::max(x, y);
  }
  return elements <= kMostElements;
}

}  // namespace

RandomProgram::RandomProgram(unsigned seed) : seed_(seed), random_(seed) {
  length_ = 4 + draw(seed % 10 == 0 ? 250 : 40);
}

const std::vector<TensorType>& RandomProgram::input_types() {
  static const std::vector<TensorType> types = {
      {DType::kFloat32, {4, 6}}, {DType::kFloat32, {6}}, {DType::kInt64, {4, 1}}, {DType::kFloat32, {2, 4, 6}}};
  return types;
}

const std::vector<TensorType>& RandomProgram::variable_types() {
  static const std::vector<TensorType> types = {{DType::kFloat32, {4, 6}}, {DType::kFloat32, {}}, {DType::kInt64, {6}}};
  return types;
}

std::vector<Value> RandomProgram::run(const Operands& operands, bool placed) {
  random_.seed(seed_);
  pool_.clear();
  for (const Tensor& t : operands.inputs) pool_.push_back(t);
  for (const Tensor& t : operands.variables) pool_.push_back(t);
  const bool spread = draw(2) == 0;
  for (size_t i = 0; i < length_; ++i) {
    const int where = spread ? draw(6) : 5, quota = draw(8) == 0 ? 2 : 0;
    graph::Placement placement;
    if (where == 0) placement.stream = draw(2) == 0 ? "host" : "host:1";
    if (where == 1) placement.device = accelerator();
    std::unique_ptr<PlacementScope> scope;
    if (placed) scope = std::make_unique<PlacementScope>(placement, quota);
    pool_.push_back(step());
    if (draw(12) == 0) write(operands.variables);
  }
  std::vector<Value> outputs = {pool_.back()};
  for (int n = draw(4); n > 0; --n) outputs.push_back(pool_[draw(static_cast<int>(pool_.size()))]);
  return outputs;
}

Value RandomProgram::any_float() {
  const Value x = any();
  if (x.dtype() != DType::kFloat32) return ops::cast(x, DType::kFloat32);
  return draw(4) == 0 ? ops::where(ops::isfinite(x), x, 0.5) : x;
}

Value RandomProgram::any_bool() {
  const Value x = any();
  return x.dtype() == DType::kBool ? x : ops::gt(x, 0);
}

Value RandomProgram::step() {
  switch (draw(13)) {
    case 0:
    case 1: return unary();
    case 12: return rows();
    case 2:
    case 3:
    case 4: return binary();
    case 5: return compare();
    case 6: return reduce();
    case 7: return move();
    case 8:
    case 9: return view();
    case 10: return convert();
    default: return product();
  }
}

Value RandomProgram::unary() {
  const Value x = any_float();
  switch (draw(12)) {
    case 0: return ops::neg(x);
    case 1: return ops::abs(x);
    case 2: return ops::sign(x);
    case 3: return ops::tanh(x);
    case 4: return ops::relu(x);
    case 5: return ops::square(x);
    case 6: return ops::floor(x);
    case 7: return ops::neg(ops::neg(x));
    case 8: return ops::sigmoid(x);
    case 9: return ops::relu(ops::relu(x));
    case 10: return ops::round(x);
    default: return ops::sqrt(ops::abs(x));
  }
}

Value RandomProgram::binary() {
  const bool floats = draw(3) > 0;
  const Value a = floats ? any_float() : any(), b = floats ? any_float() : any();
  if (a.dtype() == DType::kBool) return ops::logical_xor(a, draw(2) == 0);
  if (draw(3) == 0 || !broadcasts(a.shape(), b.shape()) || b.dtype() == DType::kBool) {
    const double number = kNumbers[draw(std::size(kNumbers))];
    switch (draw(5)) {
      case 0: return ops::add(a, number);
      case 1: return ops::sub(a, number);
      case 2: return ops::mul(number, a);
      case 3: return ops::add(number, a);
      default: return ops::div(a, number == 0 ? 1 : number);
    }
  }
  switch (draw(5)) {
    case 0: return ops::add(a, b);
    case 1: return ops::sub(a, b);
    case 2: return ops::mul(a, b);
    case 3: return ops::maximum(a, b);
    default: return ops::minimum(a, b);
  }
}

Value RandomProgram::compare() {
  const Value c = any_bool(), a = any_float(), b = any_float();
  if (broadcasts(c.shape(), a.shape()) && broadcasts(a.shape(), b.shape()) && broadcasts(c.shape(), b.shape()) &&
      draw(3) > 0) {
    const Value picked = ops::where(c, a, draw(2) == 0 ? ops::Operand(b) : ops::Operand(1.5));
    if (numel(picked.shape()) <= kMostElements) return picked;
  }
  return draw(2) == 0 ? ops::logical_not(c) : ops::le(a, 0.25);
}

// Sums are of small whole numbers, so that their order is of no account: it follows the layout of the operand.
Value RandomProgram::reduce() {
  const Value x = any_float();
  ops::Dims dim;
  if (x.shape().rank() > 0 && draw(3) > 0) dim = Ints{draw(x.shape().rank())};
  const bool keepdim = draw(2) == 0;
  switch (draw(5)) {
    case 0: return ops::sum(ops::round(ops::hardtanh(x, -9, 9)), dim, keepdim);
    case 1: return ops::mean(ops::round(ops::hardtanh(x, -9, 9)), dim, keepdim);
    case 2: return ops::amax(x, dim, keepdim);
    case 3: return ops::any(ops::gt(x, 0), dim, keepdim);
    default: return x.shape().rank() > 0 ? ops::softmax(x, draw(x.shape().rank())) : ops::neg(x);
  }
}

// Elements with what their rows come to, as norms have it. A value that is summed is whole.
Value RandomProgram::rows() {
  const Value x = any_float();
  const int rank = x.shape().rank();
  if (rank == 0) return ops::neg(x);
  const int64_t dim = draw(4) == 0 ? draw(rank) : rank - 1;
  const bool keepdim = draw(2) == 0;
  const auto back = [&](const Value& row) { return keepdim ? row : ops::unsqueeze(row, dim); };
  const Value centred = ops::sub(x, back(ops::amax(x, Ints{dim}, keepdim)));
  const Value whole = ops::round(ops::hardtanh(centred, -9, 9));
  const Value total = back(draw(2) == 0 ? ops::sum(whole, Ints{dim}, keepdim) : ops::mean(whole, Ints{dim}, keepdim));
  switch (draw(4)) {
    case 0: return ops::div(whole, ops::add(ops::abs(total), 1));
    case 1: return ops::mul(ops::add(x, total), ops::amin(whole, Ints{dim}, true));
    case 2: return ops::sub(total, ops::tanh(total));
    default: return ops::where(ops::gt(centred, total), x, whole);
  }
}

// Elements move to new memory.
Value RandomProgram::move() {
  const Value x = any();
  const int rank = x.shape().rank();
  if (rank == 0) return ops::copy(x);
  const int axis = draw(rank);
  const int64_t doubled = 2 * numel(x.shape());
  switch (draw(4)) {
    case 0: return ops::flip(x, {axis});
    case 1: {
      if (doubled > kMostElements) return ops::copy(x);
      const Value both[] = {x, x};
      return ops::concat(both, axis);
    }
    case 2: {
      if (doubled > kMostElements) return ops::copy(x);
      Ints low(rank, 0), high(rank, 0);
      high[axis] = draw(2);
      return ops::pad(x, low, high, x.dtype() == DType::kBool ? 0 : 1);
    }
    default: return ops::copy(x);
  }
}

Value RandomProgram::view() {
  const Value x = any();
  const Shape shape = x.shape();
  const int rank = shape.rank();
  if (rank == 0) return ops::expand(x, {3});
  const int axis = draw(rank);
  switch (draw(5)) {
    case 0: return ops::flatten(x);
    case 1: return ops::transpose(x, axis, draw(rank));
    case 2: return shape[axis] > 1 ? ops::slice_axis(x, axis, draw(2), shape[axis], 1 + draw(2)) : x;
    case 3: return rank < 4 ? ops::unsqueeze(x, axis) : ops::flatten(x);
    default: return ops::reshape(ops::transpose(x, 0, rank - 1), {-1});
  }
}

Value RandomProgram::convert() {
  const Value x = any();
  if (x.dtype() != DType::kFloat32) return ops::cast(x, draw(2) == 0 ? DType::kFloat32 : DType::kInt64);
  if (draw(3) == 0) return ops::cast(ops::cast(x, DType::kFloat64), DType::kFloat32);
  return ops::cast(ops::round(ops::clamp(ops::where(ops::isfinite(x), x, 1.0), -9, 9)), DType::kInt64);
}

// Products are of small whole numbers, so that the order of the sums is of no account.
Value RandomProgram::product() {
  const Value a = ops::sign(any_float());
  if (a.shape().rank() < 2) return ops::mul(a, a);
  const int rank = a.shape().rank();
  const int64_t result = numel(a.shape()) / a.shape()[rank - 1] * a.shape()[rank - 2];
  if (result > kMostElements) return ops::neg(a);
  if (draw(2) == 0) return ops::matmul(a, ops::transpose(a, rank - 2, rank - 1));
  return rank == 2 ? ops::relu(ops::linear(a, ops::copy(a))) : ops::matmul(a, a, false, true);
}

void RandomProgram::write(const std::vector<Tensor>& variables) {
  const Tensor& v = variables[draw(static_cast<int>(variables.size()))];
  Value fresh;
  for (const Value& x : pool_) {
    if (x.type() == v.type() && draw(2) == 0) fresh = x;
  }
  if (fresh.defined())
    write_in_place(v, ops::copy(fresh));
  else
    update_in_place(v, [](const Value& old) { return ops::sub(old, 2); });
}

namespace {

using Bytes = std::vector<std::byte>;

// A NaN is a NaN.
Bytes bytes_of(const Value& value) {
  const Tensor t(value);
  Bytes bytes(static_cast<size_t>(t.size()) * dtype_size(t.dtype()));
  t.copy_to_host(bytes.data());
  for (size_t i = 0; t.dtype() == DType::kFloat32 && i < bytes.size(); i += sizeof(float)) {
    float x;
    std::memcpy(&x, bytes.data() + i, sizeof x);
    if (std::isnan(x)) std::memset(bytes.data() + i, 0xff, sizeof x);
  }
  return bytes;
}

Tensor filled(const TensorType& type, unsigned seed) {
  std::mt19937 random(seed);
  const auto n = static_cast<size_t>(numel(type.shape));
  std::vector<float> floats(n);
  std::vector<int64_t> ints(n);
  for (size_t i = 0; i < n; ++i) {
    ints[i] = static_cast<int64_t>(random() % 7) - 3;
    floats[i] = random() % 6 == 0 ? -0.0f : static_cast<float>(random() % 4001) / 1000 - 2;
  }
  return Tensor::from_host(type, type.dtype == DType::kFloat32 ? static_cast<const void*>(floats.data()) : ints.data());
}

std::vector<Tensor> all_filled(const std::vector<TensorType>& types, unsigned seed) {
  std::vector<Tensor> tensors;
  for (const TensorType& type : types) tensors.push_back(filled(type, seed++));
  return tensors;
}

class RandomPrograms : public testing::TestWithParam<unsigned> {
 protected:
  // Kernels of one core everywhere: streams share cores, and the cores of a kernel decide the order of its sums.
  static void SetUpTestSuite() {
    engine = std::make_unique<Engine>(EngineOptions{.cores = 1, .watchdog = std::chrono::milliseconds(5000)});
    executor = std::make_unique<EagerExecutor>(*engine);
  }
  static void TearDownTestSuite() {
    executor.reset();
    engine.reset();
  }
  static constexpr int kSteps = 3;
  // Bytes of the outputs of every step and of the variables after the last.
  using Trace = std::vector<Bytes>;

  Trace eager(RandomProgram& program, unsigned seed) {
    Trace trace;
    Operands operands{{}, all_filled(RandomProgram::variable_types(), seed)};
    for (int s = 0; s < kSteps; ++s) {
      operands.inputs = all_filled(RandomProgram::input_types(), seed + 100 * s);
      for (const Value& y : program.run(operands, false)) trace.push_back(bytes_of(y));
    }
    for (const Tensor& v : operands.variables) trace.push_back(bytes_of(v));
    return trace;
  }

  Trace compiled(RandomProgram& program, unsigned seed, const CompileOptions& options, bool placed) {
    Operands operands{{}, all_filled(RandomProgram::variable_types(), seed)};
    std::unique_ptr<GraphSession> session;
    {
      TraceScope scope(*executor, "random");
      std::vector<Tensor> traced;
      for (size_t i = 0; i < RandomProgram::input_types().size(); ++i) {
        traced.push_back(scope.add_input("x" + std::to_string(i), RandomProgram::input_types()[i]));
      }
      for (size_t i = 0; i < operands.variables.size(); ++i) {
        scope.register_variable("v" + std::to_string(i), operands.variables[i]);
      }
      std::vector<std::pair<std::string, Value>> outputs;
      for (const Value& y : program.run({traced, operands.variables}, placed)) {
        outputs.emplace_back("y" + std::to_string(outputs.size()), y);
      }
      GraphSessionOptions session_options;
      session_options.compile = options;
      const MemoryWatch watch(executor->engine(), {plan::Space{}});
      session = std::make_unique<GraphSession>(*executor, scope.finish(outputs), session_options);
      EXPECT_EQ(watch.held_but_for(ledger_bytes(session->running_plan(), true, false)), "");
    }
    EXPECT_EQ(plan::verify(session->compiled().plan).str(), "");
    Trace trace;
    std::vector<std::vector<Tensor>> results;
    for (int s = 0; s < kSteps; ++s) {
      results.push_back(session->call(all_filled(RandomProgram::input_types(), seed + 100 * s)));
    }
    for (const auto& step : results) {
      for (const Tensor& y : step) trace.push_back(bytes_of(y));
    }
    for (const Tensor& v : operands.variables) trace.push_back(bytes_of(v));
    return trace;
  }

  static inline std::unique_ptr<Engine> engine;
  static inline std::unique_ptr<EagerExecutor> executor;
};

struct Way {
  const char* name;
  CompileOptions options;
  bool placed = false;
};

std::vector<Way> ways() {
  std::vector<Way> all(8);
  all[0].name = "default";
  all[1] = {"no passes, per op", {}, false};
  all[1].options.disabled_passes = pass_names();
  std::erase(all[1].options.disabled_passes, "decompose");  // a need, not a choice
  all[1].options.granularity = Granularity::kOp;
  all[2] = {"no reuse, not in place", {}, false};
  all[2].options.reuse_memory = all[2].options.in_place = false;
  all[3] = {"placed", {}, true};
  all[4] = {"placed, per op", {}, true};
  all[4].options.granularity = Granularity::kOp;
  all[5] = {"placed, no passes, one step at a time", {}, true};
  all[5].options.disabled_passes = all[1].options.disabled_passes;
  all[5].options.outputs_buffer_size = 1;
  all[6] = {"donated", {}, false};
  for (size_t i = 0; i < RandomProgram::input_types().size(); ++i)
    all[6].options.donated.push_back("x" + std::to_string(i));
  all[7] = {"donated, placed, no passes, per op", all[1].options, true};
  all[7].options.donated = all[6].options.donated;
  return all;
}

TEST_P(RandomPrograms, GiveTheSameBitsEveryWay) {
  const ExecutorScope scope(*executor);
  constexpr unsigned kPrograms = 20;
  for (unsigned seed = GetParam() * kPrograms; seed < (GetParam() + 1) * kPrograms; ++seed) {
    RandomProgram program(seed);
    const Trace by_cpu = eager(program, seed);
    Trace by_accelerator;  // its first way, where it rounds otherwise
    for (const Way& way : ways()) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", " << way.name << ", " << program.length() << " ops");
      Trace got;
      try {
        got = compiled(program, seed, way.options, way.placed);
      } catch (const Error& error) {
        // If a device reads inputs in pinned memory, plain memory is no donation: then it is refused, and says so.
        const bool pinned =
            std::string_view(error.what()).find("the plan reads it in pinned:") != std::string_view::npos;
        EXPECT_TRUE(pinned && way.placed && !way.options.donated.empty() && accelerator().kind == DeviceKind::kCuda)
            << error.what();
        continue;
      }
      if (way.placed && by_accelerator.empty()) by_accelerator = accelerator_rounds_as_cpu() ? by_cpu : got;
      const Trace& expected = way.placed ? by_accelerator : by_cpu;
      ASSERT_EQ(got.size(), expected.size());
      for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(got[i] == expected[i]) << "result " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomPrograms, testing::Range(0u, 10u));

}  // namespace
}  // namespace sluice::test
