// Ops as C: one graph of all samples of all ops that a machine with C alone can run is compiled to a C file, that by
// the C compiler, and held against the engine.
#include <dlfcn.h>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "graph/tape.h"
#include "kernels/c/printer.h"
#include "ops/op_cases.h"
#include "tensor/c/to_c.h"
#include "tensor/session/graph_session.h"

namespace sluice::test {
namespace {

namespace fs = std::filesystem;
using testing::Test;

// A C file as a library of this process, gone with this.
class Compiled {
 public:
  explicit Compiled(const std::string& source)
      : where_(fs::temp_directory_path() / fmt::format("sluice_c_{}", getpid())) {
    fs::create_directories(where_);
    std::ofstream(where_ / "plan.c") << source;
    const std::string command = fmt::format(
        "cc -std=c99 -pedantic -Wall -Wextra -Wconversion -Werror -O0 -shared -fPIC {0}/plan.c -o "
        "{0}/plan.so -lm 2> {0}/errors",
        where_.string());
    compiled = std::system(command.c_str()) == 0;
    std::ifstream errors(where_ / "errors");
    told.assign(std::istreambuf_iterator<char>(errors), {});
    if (compiled) library_ = dlopen((where_ / "plan.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  ~Compiled() {
    if (library_ != nullptr) dlclose(library_);
    fs::remove_all(where_);
  }
  template <class F>
  F* function(const std::string& name) const {
    void* const found = library_ == nullptr ? nullptr : dlsym(library_, name.c_str());
    SLUICE_CHECK(found != nullptr, "no function {}", name);
    return reinterpret_cast<F*>(found);
  }

  bool compiled = false;
  std::string told;

 private:
  const fs::path where_;
  void* library_ = nullptr;
};

// A graph in which every sample is apart, and what to give it.
class Collected {
 public:
  explicit Collected(EagerExecutor& eager) : trace_(eager, "samples") {}
  void add(const Drawn& drawn) {
    const size_t number = labels.size();
    std::vector<Value> traced;
    for (const Value& input : drawn.inputs) {
      traced.emplace_back();
      if (!input.defined()) continue;
      traced.back() = trace_.add_input(fmt::format("i{}", given.size()), input.type());
      given.emplace_back(input);
    }
    for (const Value& v : drawn.run(traced)) {
      outputs_.emplace_back(fmt::format("o{}", outputs_.size()), v);
      of_output.push_back(number);
    }
    labels.push_back(fmt::format("{}, {}", drawn.op->name, drawn.label));
  }
  CapturedGraph finish() { return trace_.finish(outputs_); }

  std::vector<Tensor> given;
  std::vector<std::string> labels;
  std::vector<size_t> of_output;

 private:
  TraceScope trace_;
  std::vector<std::pair<std::string, Value>> outputs_;
};

bool runs_in_c(EagerExecutor& eager, const Drawn& drawn) {
  Collected alone(eager);
  try {
    alone.add(drawn);
    to_c(eager, alone.finish(), {});
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUnsupported) << drawn.op->name << ": " << error.what();
    return false;
  }
}

bool is_printed(const OpDef& op) { return c::printers().contains(op.name); }

TEST(OpsInC, ComputeAsTheEngineDoes) {
  EagerExecutor& eager = test_eager();
  const ExecutorScope scope(eager);
  const GradMode off(false);
  std::vector<Drawn> all;
  std::set<std::string> in_c;
  for (const OpDef* const op : all_ops()) {
    if (op->random || op->host || op->effectful) continue;
    for (size_t s = 0; s < op->samples.size(); ++s) {
      Drawn drawn = draw(*op, s);
      if (!runs_in_c(eager, drawn)) continue;
      in_c.insert(op->name);
      all.push_back(std::move(drawn));
    }
    EXPECT_TRUE(!is_printed(*op) || in_c.contains(op->name)) << op->name << " has a printer, and no sample runs";
  }
  Collected collected(eager);
  for (const Drawn& drawn : all) collected.add(drawn);
  const CapturedGraph graph = collected.finish();
  const std::vector<Tensor> expected = GraphSession(eager, graph).call(collected.given);
  const Compiled library(to_c(eager, graph, {.name = "all"}).source);
  ASSERT_TRUE(library.compiled) << library.told.substr(0, 4000);
  for (size_t i = 0; i < collected.given.size(); ++i) {
    const Tensor& value = collected.given[i];
    if (numel(value.shape()) == 0) continue;
    value.copy_to_host(library.function<void*()>(fmt::format("all_input_i{}", i))());
  }
  const int error = library.function<int()>("all_run")();
  ASSERT_EQ(error, 0) << library.function<const char*(int)>("all_error")(error);
  for (size_t o = 0; o < expected.size(); ++o) {
    const TensorType type = expected[o].type();
    const void* const data = library.function<const void*()>(fmt::format("all_output_o{}", o))();
    const std::vector<char> nothing(8);
    const Tensor got = Tensor::from_host(type, numel(type.shape) == 0 ? nothing.data() : data);
    expect_close({got}, {expected[o]}, type.dtype, 256, collected.labels[collected.of_output[o]]);
  }
  printf("count: ops as C: %zu of %zu\n", in_c.size(), all_ops().size());
}

TEST(OpsInC, AnErrorOfAStepHasATextThatNamesTheOp) {
  EagerExecutor& eager = test_eager();
  const ExecutorScope scope(eager);
  TraceScope trace(eager, "taken");
  const Value x = trace.add_input("x", {DType::kFloat32, {4}}), at = trace.add_input("at", {DType::kInt64, {2}});
  const Value y = call1(*builtin_ops().find("index_select"), {x, at}, {int64_t{0}});
  const c::PlanSource made = to_c(eager, trace.finish({{"y", y}}), {});
  const Compiled library(made.source);
  ASSERT_TRUE(library.compiled) << library.told;
  EXPECT_THAT(made.header, testing::HasSubstr("float* taken_input_x(void); /* float32(4,) */"));
  auto* const index = library.function<int64_t*()>("taken_input_at")();
  const auto run = [&](int64_t first, int64_t second) {
    index[0] = first;
    index[1] = second;
    return std::string(library.function<const char*(int)>("taken_error")(library.function<int()>("taken_run")()));
  };
  EXPECT_EQ(run(0, 3), "");
  EXPECT_EQ(run(0, 4), "index_select: an index is out of range; it must be in [0, 4)");
  EXPECT_EQ(run(-1, 0), "index_select: an index is out of range; it must be in [0, 4)");
}

TEST(OpsInC, PortsHaveNamesOfTheirOwn) {
  EagerExecutor& eager = test_eager();
  const ExecutorScope scope(eager);
  TraceScope trace(eager, "ports");
  const Value a = trace.add_input("x.0", {DType::kFloat32, {4}}), b = trace.add_input("x_0", {DType::kFloat32, {4}});
  const CapturedGraph graph = trace.finish({{"y", call1(*builtin_ops().find("add"), {a, b})}});
  const auto told = [&](const char* name) -> std::string {
    try {
      to_c(eager, graph, {.name = name});
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(told("n"),
            "plan 'ports' as C: input 'x_0': would be called n_input_x_0, as another is; give it another name");
  EXPECT_EQ(told("a-b"), "plan 'ports' as C: name \"a-b\": is none in C; use \"a_b\"");
}

TEST(OpsInC, WhatHasNoFormInCIsRefusedByName) {
  EagerExecutor& eager = test_eager();
  const ExecutorScope scope(eager);
  const auto refused = [&](const char* op, TensorType type, const Attrs& attrs) -> std::string {
    TraceScope trace(eager, "refused");
    const Value y = call1(*builtin_ops().find(op), {trace.add_input("x", type)}, attrs);
    try {
      to_c(eager, trace.finish({{"y", y}}), {});
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refused("argsort", {DType::kFloat32, {3}}, {int64_t{0}, false, int64_t{0}, int64_t{-1}}),
              testing::StartsWith("op argsort: no kernel on device c:0"));
  EXPECT_THAT(refused("exp", {DType::kBFloat16, {3}}, {}),
              testing::AllOf(testing::StartsWith("plan 'refused' as C: 'exp"),
                             testing::HasSubstr("': bfloat16: no form in C; cast it to float32 first")));
}

}  // namespace
}  // namespace sluice::test
