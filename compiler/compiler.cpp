#include "compiler/compiler.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <unordered_set>

#include "base/fix.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "compiler/lowered.h"
#include "compiler/pass.h"
#include "plan/json/json.h"
#include "plan/pack/ledger.h"
#include "plan/placed.h"
#include "plan/time/costs.h"
#include "plan/verify.h"

namespace sluice {
namespace {

using compiler::Pass;
using Clock = std::chrono::steady_clock;

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Writes what a stage saw and made to numbered files of one directory.
class Dump {
 public:
  explicit Dump(const CompileOptions& options) : dir_(options.dump_dir), name_(options.name) {
    const char* from_environment = std::getenv("SLUICE_DUMP_IR");
    if (dir_.empty() && from_environment) dir_ = from_environment;
    if (dir_.empty()) return;
    std::error_code error;
    std::filesystem::create_directories(dir_, error);
    SLUICE_CHECK_KIND(kIo, !error, "dump_dir: cannot make directory: {} ({}); give a writable path", dir_,
                      error.message());
  }
  bool on() const { return !dir_.empty(); }
  void write(const std::string& file, const std::string& text) const {
    if (!on()) return;
    const std::string path = fmt::format("{}/{}.{}", dir_, name_, file);
    std::ofstream out(path);
    out << text;
    SLUICE_CHECK_KIND(kIo, out.good(), "dump_dir: cannot write: {}; give a writable path", path);
  }

  void write_refused(const plan::Plan& plan) const {
    std::error_code ignored;
    std::filesystem::create_directories(fmt::format("{}/{}.refused", dir_, name_), ignored);
    write("refused/plan.json", plan::to_json(plan));
  }

 private:
  std::string dir_, name_;
};

// Runs stages one after another, timing and reporting each.
class Stages {
 public:
  explicit Stages(CompileResult& result) : result_(result) {}

  template <class Run>
  void run(const char* name, Run stage) {
    check_interrupt();
    const auto start = Clock::now();
    const int rewrites = stage();
    result_.passes.push_back({name, rewrites, seconds_since(start)});
  }
  // Time table: its lines add up to the whole.
  std::string table() const {
    std::string text = fmt::format("{:<24} {:>9} {:>12}\n", "stage", "rewrites", "seconds");
    double sum = 0;
    for (const PassReport& p : result_.passes) {
      text += fmt::format("{:<24} {:>9} {:>12.6f}\n", p.name, p.rewrites, p.seconds);
      sum += p.seconds;
    }
    const double other = std::max(0.0, result_.seconds - sum);
    text += fmt::format("{:<24} {:>9} {:>12.6f}\n", "other", "", other);
    return text + fmt::format("{:<24} {:>9} {:>12.6f}\n", "total", "", result_.seconds);
  }

 private:
  CompileResult& result_;
};

// What an option names must be there: of `all`, which are inputs or outputs.
template <class Ports>
void check_ports(const CompileOptions& options, const char* option, const std::vector<std::string>& named,
                 const char* kind, const Ports& all) {
  std::vector<std::string> known;
  for (const auto& port : all) known.push_back(port.name);
  for (const std::string& name : named)
    SLUICE_CHECK(contains(known, name), "{}: '{}' is no {} of '{}'; its {}s are {}", option, name, kind, options.name,
                 kind, fmt::join(known, ", "));
}

// Gives tasks what they are known to take; returns of how many it is known.
int64_t use_known_costs(compiler::Lowered& lowered, const plan::Machine& machine) {
  const plan::CostTable costs(machine);
  if (costs.empty()) return 0;
  int64_t known = 0;
  for (compiler::Task& task : lowered.tasks) {
    const plan::Stream& stream = lowered.streams[task.stream];
    plan::KernelQuery query{task.op, task.attrs, {}, {}, stream.device, stream.cores};
    for (const compiler::Operand& operand : task.inputs) query.inputs.push_back(operand.spec);
    for (const compiler::Operand& operand : task.outputs) query.outputs.push_back(operand.spec);
    if (const std::optional<double> cost = costs.find(task.name, query)) {
      task.cost_ns = *cost;
      ++known;
    }
  }
  return known;
}

}  // namespace

std::vector<std::string> pass_names() {
  std::vector<std::string> names;
  for (const Pass& pass : compiler::graph_passes()) {
    if (!contains(names, pass.name)) names.emplace_back(pass.name);
  }
  return names;
}

std::vector<std::string> stage_names() {
  std::vector<std::string> names = pass_names();
  for (const compiler::LoweringPass& pass : compiler::lowering_passes()) names.emplace_back(pass.name);
  return names;
}

namespace {

// With the options as they are: "adaptive" is settled. `asked`: what the plan says of them.
CompileResult compile_as_said(graph::Graph graph, const plan::Target& target, const CompileOptions& options,
                              const CompileOptions& asked, const ConstantLookup& constants,
                              const ConstantEvaluator& evaluate) {
  const auto start = Clock::now();
  CompileResult result;
  const Dump dump(options);
  Stages stages(result);
  stages.run("verify_graph", [&] {
    graph.verify();
    check_ports(options, "donated", options.donated, "input", graph.inputs());
    check_ports(options, "any_order", options.any_order, "output", graph.outputs());
    return 0;
  });
  compiler::PassContext context{target, options, constants, evaluate, result.constants, result.partition};
  const auto stop = [&](graph::Graph& reached) {
    result.graph = std::move(reached);
    result.seconds = seconds_since(start);
    return std::move(result);
  };
  int number = 0;
  const auto run = [&](const char* name, graph::Graph& graph, auto pass) {
    ++number;
    if (dump.on()) dump.write(fmt::format("{:02}.{}.before.ir", number, name), graph::to_text(graph));
    stages.run(name, pass);
    if (dump.on()) dump.write(fmt::format("{:02}.{}.after.ir", number, name), graph::to_text(graph));
  };
  const std::span<const Pass> passes = compiler::graph_passes();
  const auto last =
      std::find_if(passes.rbegin(), passes.rend(), [&](const Pass& p) { return p.name == options.until; });
  for (const Pass& pass : passes) {
    if (!contains(options.disabled_passes, pass.name)) run(pass.name, graph, [&] { return pass.run(graph, context); });
    if (last != passes.rend() && &pass == &*last) return stop(graph);
  }
  result.passes.push_back({"fused additions", context.fused_adds, 0});
  for (const auto& [name, times] : context.applied) result.passes.push_back({"pattern " + name, times, 0});
  std::unordered_set<std::string> used;
  for (const graph::Variable& v : graph.variables()) used.insert(v.name);
  std::erase_if(result.constants, [&](const auto& entry) { return !used.contains(entry.first); });

  result.graph = std::move(graph);
  graph::Graph detailed = result.graph;
  for (const compiler::LoweringPass& pass : compiler::lowering_passes()) {
    run(pass.name, detailed, [&] {
      const int rewrites = pass.run(detailed, context);
      if (pass.verify) pass.verify(detailed, context);
      return rewrites;
    });
    if (pass.name == options.until) return stop(detailed);
  }
  compiler::Lowered lowered;
  compiler::Programs programs;
  int64_t known_costs = 0;
  stages.run("lower", [&] {
    lowered = compiler::lower(detailed, context);
    known_costs = use_known_costs(lowered, options.machine);
    if (detailed.micro_batches() > 1) compiler::order_by_rate(lowered);
    return static_cast<int>(lowered.tasks.size());
  });
  stages.run("programs", [&] {
    programs = compiler::make_programs(lowered, options.granularity);
    return static_cast<int>(programs.actors.size());
  });
  stages.run("registers_and_memory", [&] {
    // The plan with the fewest slots leaves a part of the budget, and slots that make it faster get that part.
    const uint64_t budget = options.memory_budget;
    result.plan = compiler::build_plan(detailed, lowered, programs, options, budget == 0 ? UINT64_MAX : 0);
    const uint64_t bytes = budget == 0 ? 0 : plan::ledger(result.plan).total;
    if (options.fast_quotas && budget > bytes)
      result.plan = compiler::build_plan(detailed, lowered, programs, options, budget - bytes);
    return static_cast<int>(result.plan.registers.size());
  });
  stages.run("certificate", [&] {
    result.plan.options = recorded_options(asked);
    if (asked.auto_memory != options.auto_memory) {
      result.plan.options.emplace_back("auto_memory.chosen", options.auto_memory);
      result.plan.options.emplace_back("auto_memory.steps_in_flight", int64_t{options.outputs_buffer_size});
    }
    if (known_costs > 0) result.plan.options.emplace_back("costs", known_costs);
    result.plan.target = target.fingerprint();
    result.plan.certificate = plan::find_schedule(result.plan);
    return 0;
  });
  stages.run("check", [&] {
    try {
      plan::check(result.plan);
      plan::check_budget(result.plan, options.memory_budget);
    } catch (const Error&) {  // to be looked at with plan-viz
      if (dump.on()) dump.write_refused(result.plan);
      throw;
    }
    return 0;
  });
  result.seconds = seconds_since(start);
  if (dump.on()) dump.write("times.txt", stages.table());
  log(LogLevel::kInfo, LogArea::kCompiler, "plan '{}': {} kernels, {} actors, {} registers, compiled in {:.1f} ms",
      options.name, result.plan.kernels.size(), result.plan.actors.size(), result.plan.registers.size(),
      result.seconds * 1e3);
  if (log_enabled(LogLevel::kDebug, LogArea::kCompiler)) {
    log(LogLevel::kDebug, LogArea::kCompiler, "plan '{}':\n{}", options.name, stages.table());
    for (const plan::PlacedKernel& placed : plan::placed_kernels(result.plan))
      log(LogLevel::kDebug, LogArea::kCompiler, "plan '{}': {} runs on {}: {}", options.name,
          result.plan.kernels[placed.kernel].name, placed.device.str(), placed.why);
  }
  return result;
}

// The sets of options that "adaptive" tries, in this order.
std::vector<CompileOptions> ways_to_fit(const CompileOptions& options) {
  std::vector<CompileOptions> ways;
  const auto add = [&](const char* level, int steps_in_flight, const std::string& packing) {
    CompileOptions way = options;
    way.auto_memory = level;
    way.outputs_buffer_size = steps_in_flight;
    way.packing = packing;
    ways.push_back(std::move(way));
  };
  add("disable", options.outputs_buffer_size, options.packing);
  if (options.outputs_buffer_size > 1) add("disable", 1, options.packing);
  for (const char* level : {"slight", "moderate", "heavy"}) add(level, 1, options.packing);
  if (options.packing != "search") add("heavy", 1, "search");
  return ways;
}

// The budget that a refused plan would need; none of other errors.
std::optional<int64_t> needed_budget(const Error& error) {
  const Fix fix = fix_of(error);
  if (error.kind() != ErrorKind::kMemory || fix.size() != 2 || fix[0].second != Attr(std::string("memory_budget")))
    return std::nullopt;
  return std::get<int64_t>(fix[1].second);
}

}  // namespace

CompileResult compile(graph::Graph graph, const plan::Target& target, const CompileOptions& options,
                      const ConstantLookup& constants, const ConstantEvaluator& evaluate) {
  check_options(options);
  if (options.auto_memory != "adaptive")
    return compile_as_said(std::move(graph), target, options, options, constants, evaluate);
  std::optional<std::pair<int64_t, std::exception_ptr>> nearest;
  for (const CompileOptions& way : ways_to_fit(options)) {
    try {
      return compile_as_said(graph, target, way, options, constants, evaluate);
    } catch (const Error& error) {
      const std::optional<int64_t> needed = needed_budget(error);
      if (!needed) throw;
      if (!nearest || *needed < nearest->first) nearest.emplace(*needed, std::current_exception());
    }
  }
  std::rethrow_exception(nearest->second);
}

}  // namespace sluice
