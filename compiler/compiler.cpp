#include "compiler/compiler.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <unordered_set>
#include <variant>

#include "base/fix.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "compiler/lowered.h"
#include "compiler/pass.h"
#include "compiler/rank_classes.h"
#include "compiler/sbp_infer.h"
#include "plan/json/json.h"
#include "plan/pack/ledger.h"
#include "plan/pack/spilled.h"
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

// One compilation, with the options as they are: "adaptive" is settled. `asked`: what the plan says of them.
//
// Invariants: the steps are taken in the order of run(). `result_.graph` is the graph behind the graph passes until a
// lowering pass at which the options stop takes its place. What later steps need stands in `lowered_`, `programs_` and
// `result_`; nothing else outlives a step.
class Compilation {
 public:
  Compilation(const plan::Target& target, const CompileOptions& options, const CompileOptions& asked,
              const ConstantLookup& constants, const ConstantEvaluator& evaluate,
              const compiler::Section* section = nullptr)
      : options_(options), asked_(asked), dump_(options), context_{target,   options,           constants,
                                                                   evaluate, result_.constants, result_.partition} {
    context_.section = section;
  }

  CompileResult run(graph::Graph graph) {
    check_ports_of(graph);
    const bool whole = rewrite(std::move(graph)) && detail();
    if (whole) {
      place_tasks();
      make_plan();
      certify();
      check();
    }
    result_.seconds = seconds_since(start_);
    if (whole) report();
    return std::move(result_);
  }

 private:
  void check_ports_of(const graph::Graph& graph) {
    stages_.run("verify_graph", [&] {
      graph.verify();
      check_ports(options_, "donated", options_.donated, "input", graph.inputs());
      check_ports(options_, "any_order", options_.any_order, "output", graph.outputs());
      return 0;
    });
  }

  template <class Run>
  void run_pass(const char* name, const graph::Graph& graph, Run pass) {
    ++number_;
    if (dump_.on()) dump_.write(fmt::format("{:02}.{}.before.ir", number_, name), graph::to_text(graph));
    stages_.run(name, pass);
    if (dump_.on()) dump_.write(fmt::format("{:02}.{}.after.ir", number_, name), graph::to_text(graph));
  }

  // The graph passes. Returns whether the compilation goes on behind them.
  bool rewrite(graph::Graph graph) {
    const std::span<const Pass> passes = compiler::graph_passes();
    const auto last =
        std::find_if(passes.rbegin(), passes.rend(), [&](const Pass& p) { return p.name == options_.until; });
    bool goes_on = true;
    for (auto pass = passes.begin(); pass != passes.end() && goes_on; ++pass) {
      if (!contains(options_.disabled_passes, pass->name))
        run_pass(pass->name, graph, [&] { return pass->run(graph, context_); });
      goes_on = last == passes.rend() || &*pass != &*last;
    }
    result_.graph = std::move(graph);
    result_.offload = std::move(context_.offload);
    if (!goes_on) return false;
    result_.passes.push_back({"fused additions", context_.fused_adds, 0});
    for (const auto& [name, times] : context_.applied) result_.passes.push_back({"pattern " + name, times, 0});
    std::unordered_set<std::string> used;
    for (const graph::Variable& v : result_.graph.variables()) used.insert(v.name);
    std::erase_if(result_.constants, [&](const auto& entry) { return !used.contains(entry.first); });
    return true;
  }

  // The lowering passes, each with its verifier. Returns whether the compilation goes on behind them.
  bool detail() {
    detailed_ = result_.graph;
    for (const compiler::LoweringPass& pass : compiler::lowering_passes()) {
      run_pass(pass.name, detailed_, [&] {
        const int rewrites = pass.run(detailed_, context_);
        if (pass.verify) pass.verify(detailed_, context_);
        return rewrites;
      });
      if (pass.name == options_.until) {
        result_.graph = std::move(detailed_);
        return false;
      }
    }
    return true;
  }

  // Kernel calls, and the programs of actors that they become.
  void place_tasks() {
    stages_.run("lower", [&] {
      lowered_ = compiler::lower(detailed_, context_);
      known_costs_ = use_known_costs(lowered_, options_.machine);
      if (detailed_.micro_batches() > 1) compiler::order_by_rate(lowered_);
      return static_cast<int>(lowered_.tasks.size());
    });
    stages_.run("programs", [&] {
      programs_ = compiler::make_programs(lowered_, options_.granularity);
      return static_cast<int>(programs_.actors.size());
    });
  }

  void make_plan() {
    stages_.run("registers_and_memory", [&] {
      // The plan with the fewest slots leaves a part of the budget, and slots that make it faster get that part.
      const uint64_t budget = options_.memory_budget;
      result_.plan = compiler::build_plan(detailed_, lowered_, programs_, options_, budget == 0 ? UINT64_MAX : 0);
      const uint64_t bytes = budget == 0 ? 0 : plan::ledger(result_.plan).total;
      if (options_.fast_quotas && budget > bytes)
        result_.plan = compiler::build_plan(detailed_, lowered_, programs_, options_, budget - bytes);
      return static_cast<int>(result_.plan.registers.size());
    });
  }

  // Writes down what the plan was made of and for, and the proof that it can run for ever.
  void certify() {
    stages_.run("certificate", [&] {
      result_.plan.options = recorded_options(asked_);
      if (asked_.auto_memory != options_.auto_memory) {
        result_.plan.options.emplace_back("auto_memory.chosen", options_.auto_memory);
        result_.plan.options.emplace_back("auto_memory.steps_in_flight", int64_t{options_.outputs_buffer_size});
      }
      if (!result_.offload.backend.empty())
        result_.plan.options.emplace_back("offload", result_.offload.backend + " " + result_.offload.version);
      if (known_costs_ > 0) result_.plan.options.emplace_back("costs", known_costs_);
      if (const plan::Spilled spilled = plan::spilled(result_.plan); spilled.values > 0)
        result_.plan.options.emplace_back("spill.bytes", static_cast<int64_t>(spilled.bytes));
      if (context_.section != nullptr && !context_.section->all()) plan::set_classes(result_.plan, classes());
      result_.plan.target = context_.target.fingerprint();
      result_.plan.certificate = plan::find_schedule(result_.plan);
      return 0;
    });
  }

  // The classes of a section's plan, with the ranks that meet in each group.
  plan::Classes classes() const {
    plan::Classes classes = context_.section->classes();
    const std::vector<int> groups = compiler::meeting_groups(lowered_);
    for (size_t t = 0; t < groups.size(); ++t)
      if (groups[t] >= 0)
        classes.groups[groups[t]].assign(lowered_.tasks[t].ranks.begin(), lowered_.tasks[t].ranks.end());
    return classes;
  }

  void check() {
    stages_.run("check", [&] {
      try {
        plan::check(result_.plan);
        plan::check_budget(result_.plan, options_.memory_budget);
      } catch (const Error&) {  // to be looked at with plan-viz
        if (dump_.on()) dump_.write_refused(result_.plan);
        throw;
      }
      return 0;
    });
  }

  void report() const {
    const plan::Plan& plan = result_.plan;
    if (dump_.on()) dump_.write("times.txt", stages_.table());
    log(LogLevel::kInfo, LogArea::kCompiler, "plan '{}': {} kernels, {} actors, {} registers, compiled in {:.1f} ms",
        options_.name, plan.kernels.size(), plan.actors.size(), plan.registers.size(), result_.seconds * 1e3);
    if (!log_enabled(LogLevel::kDebug, LogArea::kCompiler)) return;
    log(LogLevel::kDebug, LogArea::kCompiler, "plan '{}':\n{}", options_.name, stages_.table());
    for (const plan::PlacedKernel& placed : plan::placed_kernels(plan))
      log(LogLevel::kDebug, LogArea::kCompiler, "plan '{}': {} runs on {}: {}", options_.name,
          plan.kernels[placed.kernel].name, placed.device.str(), placed.why);
  }

  const Clock::time_point start_ = Clock::now();
  const CompileOptions &options_, &asked_;
  CompileResult result_;
  const Dump dump_;
  Stages stages_{result_};
  compiler::PassContext context_;
  int number_ = 0;  // of the pass, in the names of dumped files
  graph::Graph detailed_;
  compiler::Lowered lowered_;
  compiler::Programs programs_;
  int64_t known_costs_ = 0;  // tasks whose costs the machine's table says
};

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

// A plan needs more than what is alive at once: how much has to go to the disk is found by trying, in parts of
// what the plan needs, whatever the budget is. So a budget that a refusal names does work.
constexpr uint64_t kSpillParts = 16;

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
  if (options.rank_classes && options.ranks > 1 && compiler::is_global(graph))
    return compile_classes(std::move(graph), target, options, options.rank, constants, evaluate);
  const bool adaptive = options.auto_memory == "adaptive", spills = options.spill && options.memory_budget > 0;
  if (!adaptive && !spills) return Compilation(target, options, options, constants, evaluate).run(std::move(graph));
  struct Refusal {
    int64_t needed = 0;
    CompileOptions way;
    std::exception_ptr error;
  };
  std::optional<Refusal> nearest;
  // The plan, or how many bytes the one that was refused needs.
  const auto run = [&](const CompileOptions& way) -> std::variant<CompileResult, int64_t> {
    try {
      return Compilation(target, way, options, constants, evaluate).run(graph);
    } catch (const Error& error) {
      const std::optional<int64_t> needed = needed_budget(error);
      if (!needed) throw;
      if (!nearest || *needed < nearest->needed) nearest = Refusal{*needed, way, std::current_exception()};
      return *needed;
    }
  };
  for (const CompileOptions& way : adaptive ? ways_to_fit(options) : std::vector{options}) {
    auto made = run(way);
    if (auto* result = std::get_if<CompileResult>(&made)) return std::move(*result);
  }
  if (spills) {
    CompileOptions way = nearest->way;
    const auto needed = static_cast<uint64_t>(nearest->needed), part = needed / kSpillParts + 1;
    for (uint64_t parts = (needed - options.memory_budget) / part; parts <= kSpillParts; ++parts) {
      way.spill_bytes = std::max<uint64_t>(parts, 1) * part;
      auto made = run(way);
      if (auto* result = std::get_if<CompileResult>(&made)) return std::move(*result);
    }
  }
  std::rethrow_exception(nearest->error);
}

CompileResult compile_classes(graph::Graph graph, const plan::Target& target, const CompileOptions& options, int rank,
                              const ConstantLookup& constants, const ConstantEvaluator& evaluate) {
  check_options(options);
  SLUICE_CHECK(rank >= kEveryRank && rank < options.ranks,
               "classes of ranks: rank {} of a job of {}; must be one of it", rank, options.ranks);
  SLUICE_CHECK_KIND(kUnsupported, options.auto_memory != "adaptive",
                    "classes of ranks: auto_memory is \"adaptive\"; name a level, or compile all ranks, which is what "
                    "enable_rank_classes(False) does");
  SLUICE_CHECK_KIND(kUnsupported, !options.spill,
                    "classes of ranks: spill; must be off, or compile all ranks, which is what "
                    "enable_rank_classes(False) does");
  const bool all = rank == kEveryRank;
  const compiler::Section section(compiler::find_classes(graph, options, std::max(rank, 0)), all);
  CompileOptions of_classes = options;
  if (!all) of_classes.ranks = static_cast<int>(section.classes().ranks.size());
  CompileResult result = Compilation(target, of_classes, options, constants, evaluate, &section).run(std::move(graph));
  for (std::vector<plan::Shard>* shards :
       {&result.partition.inputs, &result.partition.outputs, &result.partition.shards})
    for (plan::Shard& shard : *shards)
      if (!all) shard.device.rank = section.classes().rank_at(shard.device.rank);
  return result;
}

}  // namespace sluice
