// Structure-aware mutants of real plans: an error that names the field, or a plan that is verified and runs. Never a
// crash, never memory that the file does not justify.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <numeric>

#include "compiler/compiler.h"
#include "compiler/nets.h"
#include "fuzz_targets/mutate.h"
#include "fuzz_targets/peak_bytes.h"
#include "graph/kernel_check.h"
#include "kernels/target.h"
#include "plan/json/json.h"
#include "plan/pack/ledger.h"
#include "plan/verify.h"
#include "runtime/bundle/bundle.h"
#include "runtime/session/engine.h"
#include "runtime/session/session.h"
#include "streams/stream.h"
#include "support/soak.h"
#include "support/two_stage_plan.h"
#include "tensor/eager.h"

namespace sluice::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// Reading and verifying may take this much memory: the document as JSON, the plan, what verify() computes from both;
// and for every firing of a period, of which verify() allows a million.
constexpr uint64_t kBytesPerByte = 60, kBytesAlways = 64 << 10, kBytesPerFiring = 32;
constexpr uint64_t kMostToRun = 64 << 20;

struct RealPlan {
  std::string name, text;
};

std::string compiled(Engine& engine, const graph::Graph& graph) {
  const KernelTarget target(engine.kernels(), {engine.device({}).describe()});
  return plan::to_json(compile(graph, target, {}).plan);
}

// Compiled here, and those of the corpus: from Python, with host functions, on two devices.
std::vector<RealPlan> real_plans() {
  Engine engine;
  std::vector<RealPlan> plans = {{"two_stage", plan::to_json(plan::two_stage_plan())},
                                 {"mlp", compiled(engine, mlp(true, 4, 8))},
                                 {"conv_net", compiled(engine, conv_net(8))},
                                 {"transformer", compiled(engine, transformer(10))}};
  for (const char* name : {"plus", "infer", "train", "staged", "sim"}) {
    std::ifstream in(std::string(SLUICE_SOURCE_DIR "/tests/fuzz_targets/corpus/plan_json/") + name + ".json");
    plans.push_back({name, {std::istreambuf_iterator<char>(in), {}}});
  }
  return plans;
}

// "registers[0].quota" is named by itself, by what it lies in ("registers[0]"), and by what lies in it.
bool names(const std::string& message, std::string path) {
  const std::string where = message.substr(message.find(": ") + 2);
  if (where.starts_with("version ")) return path == "schema_version";
  for (int up = 0; up < 3; ++up) {
    if (where.starts_with(path)) return true;
    const size_t cut = path.find_last_of(".[");
    if (cut == std::string::npos) break;
    path.resize(cut);
  }
  // A field next to one of the document's own: only it can be unknown there.
  return path.find_first_of(".[") == std::string::npos && where.starts_with("unheard_of: unknown field");
}

// One step on inputs and variables of zeros. Any error is an answer; not ending is none.
void run_one_step(Engine& engine, const plan::Plan& plan) {
  VariableBindings bindings;
  for (const plan::Variable& v : plan.variables) {
    const plan::Space& space = plan.spaces[v.space];
    const uint64_t bytes = align_up(v.spec.extent_bytes(), plan::kAlignment);
    auto storage = std::make_shared<Storage>(engine.allocator(space), bytes, space);
    const std::vector<std::byte> zeros(bytes);
    if (space.kind == plan::SpaceKind::kDevice)
      engine.device(space.device).copy_from_host(storage->data(), zeros.data(), bytes);
    else
      std::memset(storage->data(), 0, bytes);
    bindings[v.name] = std::move(storage);
  }
  SessionOptions options;
  options.submit_timeout = options.wait_timeout = std::chrono::seconds(20);
  options.functions["host_function_0"] = [](const KernelArgs&, const std::vector<TensorSpec>&,
                                            const std::vector<TensorSpec>&) {};
  Session session = Session::load(engine, plan, bindings, options);
  std::vector<std::vector<std::byte>> data;
  std::vector<InputTensor> inputs;
  for (const plan::Input& input : plan.inputs) {
    const TensorSpec spec = TensorSpec::contiguous({input.spec.dtype, input.spec.shape});
    data.emplace_back(spec.extent_bytes() + 1);
    inputs.push_back({data.back().data(), spec});
  }
  StepHandle step = session.submit(inputs);
  step.wait().throw_if_error();
}

struct Tally {
  int64_t read_refused = 0, verify_refused = 0, kernel_refused = 0, ran = 0, step_refused = 0;
};

void try_mutant(const Mutant& mutant, Engine& engine, bool run, Tally& tally) {
  plan::Plan plan;
  std::string message, problems;
  uint64_t firings = 0;
  const uint64_t peak = peak_bytes([&] {
    try {
      plan = plan::from_json(mutant.text, "mutant.json");
      const plan::VerifyReport report = plan::verify(plan);
      problems = report.str();
      firings = std::accumulate(report.repetitions.begin(), report.repetitions.end(), uint64_t{0});
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kValue);
      message = error.what();
    }
  });
  EXPECT_LE(peak, mutant.text.size() * kBytesPerByte + firings * kBytesPerFiring + kBytesAlways)
      << mutant.text.size() << " bytes, " << firings << " firings";
  if (!message.empty()) {
    ++tally.read_refused;
    EXPECT_TRUE(message.starts_with("mutant.json: ")) << message;
    if (mutant.structural) {
      EXPECT_TRUE(names(message, mutant.path)) << message;
    }
    return;
  }
  if (!problems.empty()) {
    ++tally.verify_refused;
    EXPECT_NE(problems.find(": "), std::string::npos);
    return;
  }
  if (!run || plan::ledger(plan).total > kMostToRun) return;
  try {
    graph::check_kernels(plan, builtin_ops());
  } catch (const Error& error) {
    ++tally.kernel_refused;
    EXPECT_THAT(error.what(), testing::AnyOf(HasSubstr(": kernel '"), HasSubstr(": packed copy '")));
    return;
  }
  try {
    run_one_step(engine, plan);
    ++tally.ran;
  } catch (const Error& error) {
    EXPECT_NE(error.kind(), ErrorKind::kTimeout) << error.what();
    ++tally.step_refused;
  }
}

TEST(Mutants, RealPlansAreAcceptedAndRun) {
  Engine engine;
  Tally tally;
  for (const RealPlan& real : real_plans()) {
    SCOPED_TRACE(real.name);
    try_mutant({real.text, "none", "", false}, engine, true, tally);
  }
  EXPECT_EQ(tally.read_refused + tally.verify_refused + tally.kernel_refused, 0);
  EXPECT_GE(tally.ran, 5);
}

TEST(SoakMutants, AreRefusedByNameOrRun) {
  const int64_t total = repetitions(2000, 50000), every_run = 5;
  const std::vector<RealPlan> plans = real_plans();
  Engine engine;
  Tally tally;
  Progress progress("mutants", total);
  std::vector<std::unique_ptr<Mutator>> mutators;
  for (size_t i = 0; i < plans.size(); ++i) mutators.push_back(std::make_unique<Mutator>(plans[i].text, 100 + i));
  for (int64_t n = 0; n < total && !::testing::Test::HasFailure(); ++n, progress.step()) {
    const size_t which = static_cast<size_t>(n) % plans.size();
    const Mutant mutant = mutators[which]->next();
    SCOPED_TRACE(plans[which].name + ": " + mutant.change.substr(0, 200));
    try_mutant(mutant, engine, n % every_run == 0 || n % every_run == 1, tally);
  }
  report_count("mutants of plans", total, "mutants");
  report_count("mutants of plans refused by the reader", tally.read_refused, "mutants");
  report_count("mutants of plans refused by verify", tally.verify_refused, "mutants");
  report_count("mutants of plans refused for their kernels", tally.kernel_refused, "mutants");
  report_count("mutants of plans run", tally.ran, "mutants");
  report_count("mutants of plans refused while loading or running", tally.step_refused, "mutants");
  EXPECT_GT(tally.read_refused, total / 5);
  EXPECT_GT(tally.verify_refused, total / 20);
}

// Kernels trust their operands' types: a plan from elsewhere is held against the ops' definitions.
TEST(KernelCheck, RefusesOperandsThatTheOpDoesNotGive) {
  Engine engine;
  const plan::Plan good = plan::from_json(compiled(engine, mlp(false, 4, 8)), "mlp.json");
  EXPECT_NO_THROW(graph::check_kernels(good, builtin_ops()));
  const auto linear =
      std::find_if(good.kernels.begin(), good.kernels.end(), [](const plan::Kernel& k) { return k.op == "linear"; });
  ASSERT_NE(linear, good.kernels.end());
  const auto error_with = [&](auto change) {
    plan::Plan bad = good;
    change(bad.kernels[static_cast<size_t>(linear - good.kernels.begin())]);
    try {
      graph::check_kernels(bad, builtin_ops());
      return std::string("no error");
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  const std::string where = "plan 'plan': kernel '" + linear->name + "': linear: ";
  EXPECT_EQ(error_with([](plan::Kernel& k) {
              k.outputs[0].spec.shape = {4, 9};
            }),
            where + "output 0 is float32(4, 9); its operands give float32(4, 8)");
  EXPECT_EQ(error_with([](plan::Kernel& k) { k.outputs[0].spec.dtype = DType::kFloat64; }),
            where + "output 0 is float64(4, 8); its operands give float32(4, 8)");
  EXPECT_THAT(error_with([](plan::Kernel& k) { k.inputs[0].spec.shape = {4, 1000}; }), ::testing::StartsWith(where));
  EXPECT_EQ(error_with([](plan::Kernel& k) { k.outputs.clear(); }), where + "0 outputs; its operands give 1");
  EXPECT_THAT(error_with([](plan::Kernel& k) { k.inputs.clear(); }), HasSubstr("linear: too few inputs: 0"));
  EXPECT_THAT(error_with([](plan::Kernel& k) { k.attrs.emplace_back("x", true); }),
              HasSubstr("unknown parameter: 'x'"));
}

// Held against it are also the bundles that C++ and C load.
TEST(KernelCheck, BundlesAreHeldAgainstItWhenLoaded) {
  Engine engine;
  check_plans_from_files();
  const fs::path dir = fs::path(::testing::TempDir()) / fmt::format("kernel_check_{}", ::getpid());
  Bundle bundle;
  bundle.plan = plan::from_json(compiled(engine, mlp(false, 4, 8)), "mlp.json");
  bundle.plan.kernels[0].outputs[0].spec.dtype = DType::kFloat64;
  save_bundle(dir.string(), bundle);
  try {
    load_session(engine, dir.string());
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("its operands give float32"));
  }
  fs::remove_all(dir);
}

// The two checks above find what they are for.
TEST(Mutants, CheckersFindPlantedFaults) {
  EXPECT_GE(peak_bytes([] { std::vector<char> large(1 << 20); }), uint64_t{1} << 20);
  EXPECT_LT(peak_bytes([] { std::vector<char> small(100); }), 4096u);
  EXPECT_FALSE(names("mutant.json: actors[0].name: wrong", "registers[0].quota"));
  EXPECT_TRUE(names("mutant.json: registers[0].quota: wrong", "registers[0].quota"));
  EXPECT_TRUE(names("mutant.json: registers[0].slots[1]: wrong", "registers[0].slots"));
}

}  // namespace
}  // namespace sluice::test
