#pragma once
// The views of plan-viz: each view of a plan as text and as JSON. Pure functions.
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "plan/plan.h"
#include "plan/record/blame.h"
#include "plan/time/machine.h"
#include "plan/time/simulator.h"
#include "tools/plan_viz/served_models.h"
#include "tools/plan_viz/served_trace.h"

namespace sluice::plan_viz {

struct TextOptions {
  int width = 100;
  bool color = false;
  bool all = false;  // every kernel, however long the program
};

// Name, hash, target, options that differ from the defaults, devices, memory, counts.
std::string info_text(const plan::Plan& plan, const TextOptions& options);
std::string info_json(const plan::Plan& plan);

// Devices, streams, actors in the order they fire, kernels, registers.
std::string show_text(const plan::Plan& plan, const TextOptions& options);
std::string show_json(const plan::Plan& plan);

// Which device runs each kernel, and why that one.
std::string devices_text(const plan::Plan& plan, const TextOptions& options);
std::string devices_json(const plan::Plan& plan);

// Counts, ops by predicted time, bytes.
std::string stats_text(const plan::Plan& plan, const TextOptions& options);
std::string stats_json(const plan::Plan& plan, const std::string& runs = "[]");  // `runs`: runs_summary_json()

// The ledger and a map of every arena: offsets against lifetimes.
std::string mem_text(const plan::Plan& plan, const TextOptions& options);
std::string mem_json(const plan::Plan& plan);

// The proof that the plan runs forever, or what is wrong with it.
std::string verify_text(const plan::Plan& plan, const TextOptions& options);
std::string verify_json(const plan::Plan& plan);

// Predicted period, critical cycle, use of devices, lanes. A plan of several ranks is given as side_by_side()
// (plan/ranks.h).
std::string simulate_text(const plan::Plan& plan, const plan::SimulateOptions& simulate, const TextOptions& options);
std::string simulate_json(const plan::Plan& plan, const plan::SimulateOptions& simulate);

// The critical cycle, and what one more slot of each register in it, or one of its kernels twice as fast, would gain.
std::string bottleneck_text(const plan::Plan& plan, const plan::SimulateOptions& simulate, const TextOptions& options);
std::string bottleneck_json(const plan::Plan& plan, const plan::SimulateOptions& simulate);

// Shows the price of speed: the fewest bytes of slots for ever shorter periods, beside the plan as it is. Also as a
// picture.
std::string pareto_text(const plan::Plan& plan, const TextOptions& options);
std::string pareto_json(const plan::Plan& plan);
std::string pareto_svg(const plan::Plan& plan);

// Shows what is known of kernels on a machine: how often they were measured, mean and deviation. With a plan (null:
// none) it shows its kernels, each signature once, known or not.
std::string cost_text(const plan::Machine& machine, const plan::Plan* plan, const TextOptions& options);
std::string cost_json(const plan::Machine& machine, const plan::Plan* plan);

// The first differences of two dumps of kernels' outputs (SessionOptions::dump), in the order of the first one's plan.
struct DumpComparison {
  struct Row {
    uint64_t step = 0;
    std::string name, op;
    int output = 0;
    std::string type, source, text;
  };
  std::vector<Row> differing;
  size_t compared = 0, only_one = 0;  // outputs that are in both; in one only
};
// Equal is |a - b| <= tolerance * (1 + |b|), for elements where both dumps have them, else for their statistics. Throws
// kIo, and kValue for what is no dump, or has nothing in common.
DumpComparison compare_dumps(const std::string& a, const std::string& b, double tolerance);
std::string compare_text(const DumpComparison& comparison, const TextOptions& options);
std::string compare_json(const DumpComparison& comparison);

// Requests that a server traced: how long each waited and was computed, with whom, and what fired for it.
std::string requests_text(const plan::Plan& plan, const ServedTrace& trace, const TextOptions& options);
std::string requests_json(const plan::Plan& plan, const ServedTrace& trace);

// Models as a server runs them: queues, batcher, instances, and the plans that they run. Also as a picture.
std::string served_text(const std::vector<ServedModel>& models, const TextOptions& options);
std::string served_json(const std::vector<ServedModel>& models);
std::string served_svg(const std::vector<ServedModel>& models);

// Does the file begin as a recording does?
bool is_recording(const std::string& path);
// The plan with what its kernels took in the recorded run as their costs, as far as they were measured.
plan::Plan measured_plan(const plan::Recording& recording);

// Where the time of a recorded run went, for whom each actor waited, and whom the last one waited for in the end.
std::string blame_text(const plan::Recording& recording, plan::BlameBy by, const TextOptions& options);
std::string blame_json(const plan::Recording& recording, plan::BlameBy by);
// The events of a recorded run, by stream; all of them as Chrome's JSON, which Perfetto opens, and as a table of
// commas.
std::string trace_text(const plan::Recording& recording, const TextOptions& options);
std::string trace_json(const plan::Recording& recording);
std::string chrome_text(const plan::Recording& recording);
std::string csv_text(const plan::Recording& recording);
// The kernels that ran, one by one, with what they took and moved.
std::string tasks_json(const plan::Recording& recording);
// The same in Perfetto's own format: lanes of streams and actors, flows of tokens, counters of slots and memory.
std::string perfetto_trace(const plan::Recording& recording);
// How long its steps took, from each actor that begins them to each sink, and what they can take at most.
// `quantile`: of the times of each actor's firings that the bound of a step grants.
std::string latency_text(const plan::Recording& recording, double quantile, const TextOptions& options);
std::string latency_json(const plan::Recording& recording, double quantile);

// The way of one step of a run to a sink ("": the one that ended last): where it waited and where it was worked on, hop
// by hop. Throws kValue where the step was not recorded, and for a sink that the plan has not.
std::string item_text(const plan::Recording& recording, uint64_t step, const std::string& sink,
                      const TextOptions& options);
std::string item_json(const plan::Recording& recording, uint64_t step, const std::string& sink);

// What differs between two plans: entities by name, and what of them. Empty rows: nothing.
struct PlanDifference {
  struct Row {
    char kind = '~';   // '-' only in the first, '+' only in the second, '~' in both, and different
    std::string what;  // "kernel", "actor", "register", ...
    std::string name;
    std::string text;  // "cost_ns: 100 -> 200"
  };
  std::vector<Row> rows;
};
PlanDifference diff_plans(const plan::Plan& a, const plan::Plan& b);
// Of two texts of graphs, line by line.
PlanDifference diff_texts(const std::string& what, const std::string& a, const std::string& b);
std::string diff_text(const PlanDifference& difference, const TextOptions& options);
std::string diff_json(const PlanDifference& difference);

// What is known of an actor, a kernel or a register by that name: where it comes from, why it is where it is, what it
// waits for. Throws kValue naming what is alike where the plan has none such.
// `here`: adds what a machine says of a kernel (kernels_here.h).
using KernelFacts = std::function<std::vector<std::pair<std::string, std::string>>(const plan::Plan& plan, int kernel)>;
std::string why_text(const plan::Plan& plan, const std::string& name, const TextOptions& options,
                     const KernelFacts& here = nullptr);
std::string why_json(const plan::Plan& plan, const std::string& name, const KernelFacts& here = nullptr);

// A picture of the plan in virtual time: a lane for each stream.
std::string lanes_svg(const plan::Plan& plan, const plan::SimulateOptions& simulate);

// Graphviz, clustered by device and stream.
std::string dot_text(const plan::Plan& plan);

// A page shows of a plan: `simulated`, which is `plan` or made of it for the simulator, with the user's source
// lines (read from `source_roots` when the plan's paths are relative). Proved is `plan`. Beside the forecast stands
// what was recorded, or what ran for a server's requests.
struct Page {
  const plan::Plan* plan = nullptr;
  const plan::Plan* simulated = nullptr;
  std::vector<std::string> source_roots = {"."};
  const plan::Recording* recording = nullptr;
  const ServedTrace* served = nullptr;
  std::string live = "";  // of a page that asks its server how the plan runs now: whose it is, as JSON
};
std::string page_json(const Page& page);
// The summary of the runs of a page, as its panels have it, and the bytes per second of actors and links: a part
// of `stats`.
std::string runs_text(const Page& page, const TextOptions& options);
std::string runs_summary_json(const Page& page);

// How long the runs of a page took, beside what no order of their kernels can go below. Throws kValue where there is
// nothing to say how long kernels take.
std::string bound_text(const Page& page, const TextOptions& options);
std::string bound_json(const Page& page);
// One page without any other file, of one plan or of two side by side, and of forecasts of the first with other numbers
// of slots, among which its reader can choose. Throws kUnsupported where plan-viz was built
// without the page.
std::string html_page(const std::vector<Page>& pages, const std::vector<Page>& choices = {});

}  // namespace sluice::plan_viz
