// plan-viz: looks at plans from the terminal.
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "base/files/file.h"
#include "graph/graph.h"
#include "plan/json/json.h"
#include "plan/ranks.h"
#include "plan/record/simulated.h"
#include "plan/time/cores.h"
#include "plan/time/machine.h"
#include "plan/verify.h"
#include "sluice/version.h"
#include "tools/plan_viz/command_line.h"
#include "tools/plan_viz/kernels_here.h"
#include "tools/plan_viz/slots.h"
#include "tools/plan_viz/views.h"

namespace {

namespace fs = std::filesystem;
using namespace sluice;
using plan_viz::Arguments;

constexpr uint64_t kMostSimulated = 100'000;  // steps
constexpr int kStepsOfLatency = 200;          // of a plan

int terminal_width() {
  winsize size{};
  if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20) return size.ws_col;
  return 100;
}

// The graph.txt of a bundle, or beside a plan.
fs::path graph_file(const Arguments& args) {
  const fs::path path = args.path;
  const fs::path file = fs::is_directory(path)           ? path / "graph.txt"
                        : path.filename() == "graph.txt" ? path
                                                         : path.parent_path() / "graph.txt";
  SLUICE_CHECK_KIND(kIo, fs::exists(file),
                    "{}: no such file; the view shows the graph.txt of a bundle or beside a plan", file.string());
  return file;
}

graph::Graph graph_of(const Arguments& args) {
  const std::string file = graph_file(args).string();
  return graph::parse(read_file(file), file, builtin_ops());
}

// The graph beside the plan, parsed and printed again, so that what is shown is what the compiler reads.
std::string ir_view(const Arguments& args) {
  const graph::Graph graph = graph_of(args);
  const std::string text = graph::to_text(graph);
  if (!args.json) return text;
  return fmt::format(
      "{{\"name\": {}, \"nodes\": {}, \"inputs\": {}, \"outputs\": {}, \"variables\": {}, \"text\": {}}}\n",
      plan::quoted_json(graph.name), graph.nodes().size(), graph.inputs().size(), graph.outputs().size(),
      graph.variables().size(), plan::quoted_json(text));
}

// Source paths in a plan are relative; they are tried from here, then from the plan's directory.
std::vector<std::string> source_roots(const plan::Plan& plan, const fs::path& path,
                                      const std::vector<std::string>& given) {
  if (!given.empty()) return given;
  for (const plan::Kernel& k : plan.kernels) {
    if (!k.source.known() || fs::path(k.source.file).is_absolute()) continue;
    if (fs::exists(k.source.file)) return {"."};
    const fs::path beside = fs::is_directory(path) ? path : path.parent_path();
    if (fs::exists(beside / k.source.file)) return {beside.string()};
  }
  return {"."};
}

// The plan that is simulated: what the ranks do, at the costs of the file given.
plan::Plan simulated(const plan::Plan& plan, const Arguments& args) {
  plan::Plan all = plan::side_by_side(plan);
  if (args.costs.empty()) return all;
  return plan::on_machine(std::move(all), plan::machine_from_json(read_file(args.costs), args.costs));
}

void write_file(const Arguments& args, const std::string& path, const std::string& text) {
  for (const std::string& input : {args.path, args.costs, args.plan, args.other, args.trace}) {
    std::error_code none;  // where one of both is no file
    const bool same = fs::equivalent(input, path, none) || fs::equivalent(fs::path(input) / "plan.json", path, none);
    SLUICE_CHECK(!same, "{}: the view reads this file; -o must name another one", path);
  }
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.flush();
  SLUICE_CHECK_KIND(kIo, out.good(), "{}: cannot be written", path);
  std::cout << path << "\n";
}

// Views follow the plan's indices: a file that breaks them is an error, not a crash.
void check_structure(const plan::Plan& plan, const std::string& path) {
  plan::VerifyReport structure;
  plan::verify_structure(plan, structure);
  if (structure.ok()) plan::verify_sizes(plan, structure);
  SLUICE_CHECK(structure.ok(), "{}: {}: {}; `plan-viz verify` lists all faults", path, structure.problems[0].concern,
               structure.problems[0].text);
}

std::string cost_view(const Arguments& args) {
  const plan::Machine machine = plan::machine_from_json(read_file(args.path), args.path);
  std::optional<plan::Plan> plan;
  if (!args.plan.empty()) {
    plan = plan::load_plan(args.plan);
    check_structure(*plan, args.plan);
  }
  const plan::Plan* const shown = plan ? &*plan : nullptr;
  return args.json ? plan_viz::cost_json(machine, shown) : plan_viz::cost_text(machine, shown, args.text);
}

// The events that a server recorded of the plan. A member of a family lies in its folder "members", by its number.
plan_viz::ServedTrace served(const plan::Plan& plan, Arguments& args) {
  fs::path folder = fs::path(args.path).lexically_normal();
  if (!fs::is_directory(folder)) folder = folder.parent_path();
  if (folder.filename().empty()) folder = folder.parent_path();
  const std::string number = folder.filename().string();
  if (folder.parent_path().filename() == "members" && number.find_first_not_of("0123456789") == std::string::npos &&
      number.size() < 6)
    args.served.member = std::stoi(number);
  return plan_viz::served_trace(read_file(args.trace), args.trace, plan, args.served);
}

// Shows a repository, as the server's own program reads it.
int show_served(const Arguments& args) {
  const std::string text =
      args.path == "-" ? std::string(std::istreambuf_iterator<char>(std::cin), {}) : read_file(args.path);
  const std::vector<plan_viz::ServedModel> models =
      plan_viz::served_models(text, args.path == "-" ? "standard input" : args.path, args.served.model);
  if (!args.output.empty())
    write_file(args, args.output, plan_viz::served_svg(models));
  else
    std::cout << (args.json ? plan_viz::served_json(models) : plan_viz::served_text(models, args.text));
  return 0;
}

// Of a recording: its plan, at the costs that were measured.
plan::Plan load(const std::string& path) {
  if (!plan_viz::is_recording(path)) return plan::load_plan(path);
  return plan_viz::measured_plan(plan::load_recording(path));
}

// Views of a recorded run.
int show_recording(const std::string& view, const Arguments& args) {
  SLUICE_CHECK(plan_viz::is_recording(args.path),
               "{}: this is no recording; `{}` reads what SLUICE_TRACE or record_trace(\"run.slt\") has written",
               args.path, view);
  const plan::Recording recording = plan::load_recording(args.path);
  if (view == "trace" && !args.output.empty()) {
    const std::string kind = fs::path(args.output).extension().string();
    const bool perfetto = kind == ".perfetto-trace" || kind == ".pftrace";
    const bool tasks = args.output.ends_with(".tasks.json");
    SLUICE_CHECK(perfetto || kind == ".csv" || kind == ".json",
                 "{}: unknown format; must end with .json, .tasks.json, .csv, .perfetto-trace or .pftrace",
                 args.output);
    write_file(args, args.output,
               kind == ".csv" ? plan_viz::csv_text(recording)
               : perfetto     ? plan_viz::perfetto_trace(recording)
               : tasks        ? plan_viz::tasks_json(recording)
                              : plan_viz::chrome_text(recording));
    return 0;
  }
  std::string text;
  if (view == "trace") text = args.json ? plan_viz::trace_json(recording) : plan_viz::trace_text(recording, args.text);
  if (view == "blame") {
    const auto* const by = std::ranges::find(plan::kBlameBy, args.by);
    const auto key = static_cast<plan::BlameBy>(by - std::begin(plan::kBlameBy));
    text = args.json ? plan_viz::blame_json(recording, key) : plan_viz::blame_text(recording, key, args.text);
  }
  std::cout << text;
  return 0;
}

// A run that was recorded, or else so many steps of a plan in virtual time.
plan::Recording recording_of(const Arguments& args, int steps) {
  if (plan_viz::is_recording(args.path)) return plan::load_recording(args.path);
  const plan::Plan plan = plan::load_plan(args.path);
  check_structure(plan, args.path);
  const plan::VerifyReport report = plan::verify(plan);
  SLUICE_CHECK(report.ok(), "{}: the plan is refused: {}; `plan-viz verify` lists all faults", args.path,
               report.problems[0].text);
  return plan::simulated_recording(simulated(plan, args),
                                   {.steps = steps, .cores = plan::cores_of_target(plan.target)});
}

// How long steps took, and what they can take at most.
std::string latency_view(const Arguments& args) {
  const plan::Recording recording = recording_of(args, kStepsOfLatency);
  return args.json ? plan_viz::latency_json(recording, args.quantile)
                   : plan_viz::latency_text(recording, args.quantile, args.text);
}

// The way of a step.
std::string item_view(const Arguments& args) {
  SLUICE_CHECK(args.step < kMostSimulated || plan_viz::is_recording(args.path),
               "item: step {}: of a plan; must be less than {}", args.step, kMostSimulated);
  const plan::Recording recording = recording_of(args, static_cast<int>(args.step) + 1);
  return args.json ? plan_viz::item_json(recording, args.step, args.name)
                   : plan_viz::item_text(recording, args.step, args.name, args.text);
}

// Two plans, or two texts of graphs; of two bundles both. 1 where they differ.
int show_difference(const Arguments& args) {
  const fs::path a = args.path, b = args.other;
  const auto is_text = [](const fs::path& path) { return path.extension() == ".txt"; };
  plan_viz::PlanDifference found;
  if (!is_text(a) || !is_text(b)) {
    const plan::Plan one = load(args.path), other = load(args.other);
    check_structure(one, args.path);
    check_structure(other, args.other);
    found = plan_viz::diff_plans(one, other);
  }
  const fs::path text_a = is_text(a) ? a : a / "graph.txt", text_b = is_text(b) ? b : b / "graph.txt";
  if (is_text(a) == is_text(b) && (is_text(a) || (fs::exists(text_a) && fs::exists(text_b)))) {
    const plan_viz::PlanDifference texts =
        plan_viz::diff_texts("graph", read_file(text_a.string()), read_file(text_b.string()));
    found.rows.insert(found.rows.end(), texts.rows.begin(), texts.rows.end());
  }
  std::cout << (args.json ? plan_viz::diff_json(found) : plan_viz::diff_text(found, args.text));
  return found.rows.empty() ? 0 : 1;
}

// Views in virtual time; "" for others, and where a picture was written instead.
std::string forecast(const std::string& view, const plan::Plan& plan, Arguments& args) {
  args.simulate.firing_ns = args.firing_us * 1e3;
  args.simulate.message_ns = args.message_us * 1e3;
  args.simulate.cores = args.cores >= 0 ? args.cores : plan::cores_of_target(plan.target);
  if (view == "bottleneck") {
    const plan::Plan all = simulated(plan, args);
    return args.json ? plan_viz::bottleneck_json(all, args.simulate)
                     : plan_viz::bottleneck_text(all, args.simulate, args.text);
  }
  if (view == "svg") {
    const std::string svg = plan_viz::lanes_svg(simulated(plan, args), args.simulate);
    if (!args.output.empty()) {
      write_file(args, args.output, svg);
      return "";
    }
    return args.json ? fmt::format("{{\"svg\": {}}}\n", plan::quoted_json(svg)) : svg;
  }
  if (view == "simulate") {
    const plan::Plan all = simulated(plan, args);
    if (!args.output.empty()) {
      write_file(args, args.output, plan::recording_of(plan::simulated_recording(all, args.simulate)));
      return "";
    }
    return args.json ? plan_viz::simulate_json(all, args.simulate)
                     : plan_viz::simulate_text(all, args.simulate, args.text);
  }
  if (view == "pareto") {
    const plan::Plan all = simulated(plan, args);
    if (!args.output.empty()) {
      write_file(args, args.output, plan_viz::pareto_svg(all));
      return "";
    }
    return args.json ? plan_viz::pareto_json(all) : plan_viz::pareto_text(all, args.text);
  }
  return "";
}

// Keeps what a page shows of a file while the page is made.
struct Shown {
  std::optional<plan::Recording> recording;
  plan::Plan plan, simulated;
  std::optional<plan_viz::ServedTrace> served;
  plan_viz::Page page;

  Shown(const std::string& path, Arguments& args) {
    if (plan_viz::is_recording(path)) recording = plan::load_recording(path);
    plan = recording ? recording->plan : plan::load_plan(path);
    const bool costs = std::ranges::any_of(plan.kernels, [](const plan::Kernel& k) { return k.cost_ns > 0; });
    if (recording && !costs) plan = plan_viz::measured_plan(*recording);
    plan::VerifyReport structure;
    plan::verify_structure(plan, structure);
    SLUICE_CHECK(structure.ok(), "{}: {}: {}", path, structure.problems[0].concern, structure.problems[0].text);
    simulated = plan::verify(plan).ok() ? ::simulated(plan, args) : plan;
    page = {&plan, &simulated, source_roots(plan, path, args.source), recording ? &*recording : nullptr};
  }
};

// The summary of runs: forecast, and recorded where the file has a run.
std::string runs_view(const std::string& view, const plan::Plan& plan, Arguments& args) {
  const Shown shown(args.path, args);
  const plan_viz::Page& page = shown.page;
  if (view == "bound") return args.json ? plan_viz::bound_json(page) : plan_viz::bound_text(page, args.text);
  return args.json ? plan_viz::stats_json(plan, plan_viz::runs_summary_json(page))
                   : plan_viz::stats_text(plan, args.text) + plan_viz::runs_text(page, args.text);
}

int write_page(Arguments& args) {
  Shown first(args.path, args);
  if (!args.trace.empty()) {
    first.served = served(first.plan, args);
    first.page.served = &*first.served;
  }
  std::vector<plan_viz::Page> pages = {first.page};
  std::optional<Shown> second;
  if (!args.other.empty()) pages.push_back(second.emplace(args.other, args).page);
  if (args.json) {
    std::cout << plan_viz::page_json(pages[0]) << "\n";
    return 0;
  }
  std::vector<plan::Plan> plans, simulated;
  if (args.slots > 0) plans = plan_viz::plans_with_slots(first.plan, args.slots);
  for (const plan::Plan& plan : plans) simulated.push_back(plan::verify(plan).ok() ? ::simulated(plan, args) : plan);
  std::vector<plan_viz::Page> choices;
  for (size_t i = 0; i < plans.size(); ++i) choices.push_back({&plans[i], &simulated[i], first.page.source_roots});
  write_file(args, args.output.empty() ? "plan.html" : args.output, plan_viz::html_page(pages, choices));
  return 0;
}

// 0, or 1 when the view says that the plan is wrong, or that runs differ.
int show_view(const std::string& view, Arguments& args) {
  if (view == "ir") {
    std::cout << ir_view(args);
    return 0;
  }
  if (view == "partition") {
    std::cout << plan_viz::partition_view(graph_of(args), args.partition, args.text, args.json);
    return 0;
  }
  if (view == "sbp") {
    std::cout << plan_viz::sbp_view(graph_of(args), args.sbp, args.text, args.json);
    return 0;
  }
  if (view == "cost") {
    std::cout << cost_view(args);
    return 0;
  }
  if (view == "served") return show_served(args);
  if (view == "compare") {
    const plan_viz::DumpComparison found = plan_viz::compare_dumps(args.path, args.other, args.tolerance);
    std::cout << (args.json ? plan_viz::compare_json(found) : plan_viz::compare_text(found, args.text));
    return found.differing.empty() ? 0 : 1;
  }
  if (view == "item" || view == "latency") {
    std::cout << (view == "item" ? item_view(args) : latency_view(args));
    return 0;
  }
  if (view == "debug") return plan_viz::debug_bundle(args.debug);
  if (view == "top") return plan_viz::show_top(args.live);
  if (view == "energy") return plan_viz::show_energy(args.live, args.counters);
  if (view == "live") return plan_viz::serve_page(args.live);
  if (view == "blame" || view == "trace") return show_recording(view, args);
  if (view == "diff") return show_difference(args);
  const plan::Plan plan = load(args.path);
  if (view == "verify") {
    std::cout << (args.json ? plan_viz::verify_json(plan) : plan_viz::verify_text(plan, args.text));
    return plan::verify(plan).ok() ? 0 : 1;
  }
  if (view == "html") return write_page(args);
  if (view == "json") {
    std::cout << plan::to_json(plan);
    return 0;
  }
  check_structure(plan, args.path);
  std::string text;
  if (view == "requests") {
    const plan_viz::ServedTrace trace = served(plan, args);
    text = args.json ? plan_viz::requests_json(plan, trace) : plan_viz::requests_text(plan, trace, args.text);
  }
  if (view == "show") text = args.json ? plan_viz::show_json(plan) : plan_viz::show_text(plan, args.text);
  if (view == "devices") text = args.json ? plan_viz::devices_json(plan) : plan_viz::devices_text(plan, args.text);
  if (view == "info") text = args.json ? plan_viz::info_json(plan) : plan_viz::info_text(plan, args.text);
  if (view == "stats" || view == "bound") text = runs_view(view, plan, args);
  if (view == "mem") text = args.json ? plan_viz::mem_json(plan) : plan_viz::mem_text(plan, args.text);
  if (view == "why")
    text = args.json ? plan_viz::why_json(plan, args.name, plan_viz::kernel_here)
                     : plan_viz::why_text(plan, args.name, args.text, plan_viz::kernel_here);
  if (view == "dot")
    text = args.json ? fmt::format("{{\"dot\": {}}}\n", plan::quoted_json(plan_viz::dot_text(plan)))
                     : plan_viz::dot_text(plan);
  if (text.empty()) text = forecast(view, plan, args);
  std::cout << text;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "Looks at a Sluice plan: what runs where, in which order, in how many bytes, and why it cannot block.\n\n"
      "PLAN is a plan.json or a bundle directory. Start with\n"
      "  plan-viz info PLAN                 what it is: target, options, size\n"
      "  plan-viz show PLAN                 devices, streams, actors, kernels, registers\n"
      "  plan-viz devices PLAN              which device runs each kernel, and why\n"
      "  plan-viz partition PLAN --backend B --why    what a foreign backend would take, and why not the rest\n"
      "  plan-viz sbp PLAN                  how values may lie over several devices, and the bytes that moves\n"
      "  plan-viz mem PLAN                  every byte, per memory space and arena\n"
      "  plan-viz simulate PLAN --steps 6   the predicted period and what limits it\n"
      "  plan-viz bottleneck PLAN           what one more slot or a faster kernel would gain\n"
      "  plan-viz bound RUN                 how far a run is from what is possible\n"
      "  plan-viz diff PLAN OTHER           what a change of the program changed in it\n"
      "  plan-viz why PLAN NAME             where a kernel, actor or register comes from\n"
      "  plan-viz blame RUN                 where the time of a recorded run went, and who was waited for\n"
      "  plan-viz latency RUN               how long its steps took\n"
      "  plan-viz item RUN STEP             one step's way through the graph, with its waits\n"
      "  plan-viz top PID                   what a process does right now, and who waits for whom\n"
      "  plan-viz live PID                  the same as a page\n"
      "  plan-viz energy PID                joules a step, where the processor counts them\n"
      "  plan-viz debug BUNDLE              runs it one firing at a time; looks into registers, changes values\n"
      "  plan-viz cost COSTS --plan PLAN    what its kernels took when they ran\n"
      "  plan-viz served MODELS             what serves them: queues, batcher, instances, plans\n"
      "  plan-viz requests PLAN TRACE       what a server's requests waited for, and what fired for them\n"
      "  plan-viz html PLAN -o plan.html    one page to click through, offline\n"
      "`plan-viz COMMAND --help` tells the options of a command.\n",
      "plan-viz"};
  app.set_version_flag("--version", SLUICE_VERSION);
  app.require_subcommand(1);
  Arguments args;
  args.text.width = terminal_width();
  args.text.color = isatty(STDOUT_FILENO) && !std::getenv("NO_COLOR");
  plan_viz::add_commands(app, args);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {  // help is one, too
    return app.exit(e) == 0 ? 0 : 2;
  }
  try {
    std::string name = app.get_subcommands().front()->get_name();
    if (name == "completion") {
      std::cout << plan_viz::completion(args.shell, plan_viz::words_of(app));
      return 0;
    }
    args.debug.text = args.text;
    args.debug.json = args.json;
    args.live.text = args.text;
    args.live.json = args.json;
    args.live.redraw = isatty(STDOUT_FILENO) != 0 && !args.json;
    args.live.source = args.source.empty() ? std::vector<std::string>{"."} : args.source;
    if (args.live.count < 0) args.live.count = args.live.redraw ? 0 : 1;
    return show_view(name, args);
  } catch (const std::exception& e) {
    std::cerr << "plan-viz: " << e.what() << "\n";
    return 2;
  }
}
