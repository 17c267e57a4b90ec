// plan-viz: looks at plans from the terminal.
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "base/files/file.h"
#include "graph/graph.h"
#include "plan/json/json.h"
#include "plan/ranks.h"
#include "plan/time/cores.h"
#include "plan/time/machine.h"
#include "plan/verify.h"
#include "sluice/version.h"
#include "tools/plan_viz/views.h"

namespace {

namespace fs = std::filesystem;
using namespace sluice;

int terminal_width() {
  winsize size{};
  if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20) return size.ws_col;
  return 100;
}

struct Arguments {
  std::string path, output, source, costs, plan, other, trace, name, by = "actor";
  plan_viz::ServedOptions served;
  double tolerance = 1e-5;
  bool json = false;
  plan_viz::TextOptions text;
  plan::SimulateOptions simulate;
  double firing_us = 0, message_us = 0;
  int cores = -1;
};

// The graph beside the plan, parsed and printed again, so that what is shown is what the compiler reads.
std::string ir_view(const Arguments& args) {
  const fs::path path = args.path;
  const fs::path file = fs::is_directory(path)           ? path / "graph.txt"
                        : path.filename() == "graph.txt" ? path
                                                         : path.parent_path() / "graph.txt";
  SLUICE_CHECK_KIND(kIo, fs::exists(file), "{}: no such file; `ir` shows the graph.txt of a bundle or beside a plan",
                    file.string());
  const graph::Graph graph = graph::parse(read_file(file.string()), file.string(), builtin_ops());
  const std::string text = graph::to_text(graph);
  if (!args.json) return text;
  return fmt::format(
      "{{\"name\": {}, \"nodes\": {}, \"inputs\": {}, \"outputs\": {}, \"variables\": {}, \"text\": {}}}\n",
      plan::quoted_json(graph.name), graph.nodes().size(), graph.inputs().size(), graph.outputs().size(),
      graph.variables().size(), plan::quoted_json(text));
}

// Source paths in a plan are relative; they are tried from here, then from the plan's directory.
std::string source_root(const plan::Plan& plan, const fs::path& path, const std::string& given) {
  if (!given.empty()) return given;
  for (const plan::Kernel& k : plan.kernels) {
    if (!k.source.known() || fs::path(k.source.file).is_absolute()) continue;
    if (fs::exists(k.source.file)) return ".";
    const fs::path beside = fs::is_directory(path) ? path : path.parent_path();
    if (fs::exists(beside / k.source.file)) return beside.string();
  }
  return ".";
}

// The plan that is simulated: what the ranks do, at the costs of the file given.
plan::Plan simulated(const plan::Plan& plan, const Arguments& args) {
  plan::Plan all = plan::side_by_side(plan);
  if (args.costs.empty()) return all;
  return plan::on_machine(std::move(all), plan::machine_from_json(read_file(args.costs), args.costs));
}

void write_file(const std::string& path, const std::string& text) {
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
    write_file(args.output, plan_viz::served_svg(models));
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
    write_file(args.output, plan_viz::chrome_text(recording));
    return 0;
  }
  std::string text;
  if (view == "trace") text = args.json ? plan_viz::trace_json(recording) : plan_viz::trace_text(recording, args.text);
  if (view == "latency")
    text = args.json ? plan_viz::latency_json(recording) : plan_viz::latency_text(recording, args.text);
  if (view == "blame") {
    const auto* const by = std::ranges::find(plan::kBlameBy, args.by);
    const auto key = static_cast<plan::BlameBy>(by - std::begin(plan::kBlameBy));
    text = args.json ? plan_viz::blame_json(recording, key) : plan_viz::blame_text(recording, key, args.text);
  }
  std::cout << text;
  return 0;
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
      write_file(args.output, svg);
      return "";
    }
    return args.json ? fmt::format("{{\"svg\": {}}}\n", plan::quoted_json(svg)) : svg;
  }
  if (view == "simulate") {
    const plan::Plan all = simulated(plan, args);
    return args.json ? plan_viz::simulate_json(all, args.simulate)
                     : plan_viz::simulate_text(all, args.simulate, args.text);
  }
  if (view == "pareto") {
    const plan::Plan all = simulated(plan, args);
    if (!args.output.empty()) {
      write_file(args.output, plan_viz::pareto_svg(all));
      return "";
    }
    return args.json ? plan_viz::pareto_json(all) : plan_viz::pareto_text(all, args.text);
  }
  return "";
}

// 0, or 1 when the view says that the plan is wrong, or that runs differ.
int run(const std::string& view, Arguments& args) {
  if (view == "ir") {
    std::cout << ir_view(args);
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
  if (view == "blame" || view == "trace" || view == "latency") return show_recording(view, args);
  if (view == "diff") return show_difference(args);
  const plan::Plan plan = load(args.path);
  if (view == "verify") {
    std::cout << (args.json ? plan_viz::verify_json(plan) : plan_viz::verify_text(plan, args.text));
    return plan::verify(plan).ok() ? 0 : 1;
  }
  if (view == "html") {
    plan::VerifyReport structure;
    plan::verify_structure(plan, structure);
    SLUICE_CHECK(structure.ok(), "{}: {}: {}", args.path, structure.problems[0].concern, structure.problems[0].text);
    const std::string output = args.output.empty() ? "plan.html" : args.output;
    std::optional<plan_viz::ServedTrace> recorded;
    if (!args.trace.empty()) recorded = served(plan, args);
    write_file(output, plan_viz::html_page(plan, plan::verify(plan).ok() ? simulated(plan, args) : plan,
                                           source_root(plan, args.path, args.source), recorded ? &*recorded : nullptr));
    return 0;
  }
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
  if (view == "stats") text = args.json ? plan_viz::stats_json(plan) : plan_viz::stats_text(plan, args.text);
  if (view == "mem") text = args.json ? plan_viz::mem_json(plan) : plan_viz::mem_text(plan, args.text);
  if (view == "why")
    text = args.json ? plan_viz::why_json(plan, args.name) : plan_viz::why_text(plan, args.name, args.text);
  if (view == "dot")
    text = args.json ? fmt::format("{{\"dot\": {}}}\n", plan::quoted_json(plan_viz::dot_text(plan)))
                     : plan_viz::dot_text(plan);
  if (text.empty()) text = forecast(view, plan, args);
  std::cout << text;
  return 0;
}

// The commands and options of the program. An option that commands share is written to one place.
class CommandLine {
 public:
  CommandLine(CLI::App& app, Arguments& args) : app_(app), args_(args) {
    add_looks();
    add_forecasts();
    add_measurements();
    add_recordings();
    add_reviews();
    add_served();
    add_page();
    add_requests();
    add_pareto();
  }

 private:
  CLI::App* view_of(const char* what, const std::string& name, const std::string& help) {
    CLI::App* sub = app_.add_subcommand(name, help);
    sub->add_option("file", args_.path, what)->required();
    sub->add_flag("--json", args_.json, "machine-readable");
    sub->add_option("--width", args_.text.width, "columns (default: the terminal's, 100 when piped)")
        ->check(CLI::Range(40, 1000));
    return sub;
  }
  CLI::App* view(const std::string& name, const std::string& help) {
    return view_of("plan.json or bundle directory", name, help);
  }
  void add_links(CLI::App* view) {
    view->add_option("--links", args_.costs, "what links between devices and kernels cost, as JSON");
  }
  void add_requested_model(CLI::App* view) {
    view->add_option("--model", args_.served.model, "only requests of this model");
  }
  void add_picture(CLI::App* view) {
    view->add_option("-o,--output", args_.output, "a picture (SVG) to write instead");
  }

  void add_looks() {
    view("show", "A tree of devices, streams, actors in the order they fire, their kernels and registers")
        ->add_flag("--all", args_.text.all, "every kernel of long programs");
    view("devices", "Which device runs each kernel, and why that one");
    view("info", "Name, hash, target, options that differ from the defaults, devices, memory, counts");
    view("stats", "Counts, ops by predicted time, bytes");
    view("mem", "The ledger, and a map of each arena: offsets against lifetimes")
        ->add_flag("--all", args_.text.all, "every line and buffer");
    view("verify", "The proof that the plan runs forever, or the blocking cycle; exit status 1 when refused")
        ->alias("prove");
    view("dot", "A graph for graphviz, clustered by device and stream");
    view("json", "The plan itself, in its canonical form");
    view("ir", "The graph the plan was compiled from (graph.txt beside it)");
  }

  void add_forecasts() {
    CLI::App* simulate = view("simulate", "The plan in virtual time: period, critical cycle, lanes");
    CLI::App* bottleneck =
        view("bottleneck", "What limits the plan, and what one more slot or a kernel twice as fast would gain");
    CLI::App* svg = view("svg", "A picture of the plan in virtual time, a lane for each stream");
    svg->add_option("-o,--output", args_.output, "file to write (default: standard output)");
    for (CLI::App* timed : {simulate, bottleneck, svg}) {
      timed->add_option("--steps", args_.simulate.steps, "steps submitted")
          ->check(CLI::Range(1, 100000))
          ->capture_default_str();
      timed->add_option("--in-flight", args_.simulate.in_flight, "at most so many unfinished steps (0: no limit)")
          ->check(CLI::Range(0, 100000));
      timed
          ->add_option("--cores", args_.cores,
                       "that streams of a host share (0: no limit; default: what the target says)")
          ->check(CLI::Range(0, 100000));
      timed->add_option("--firing-us", args_.firing_us, "cost of a firing besides its kernels")
          ->check(CLI::Range(0.0, 1e9));
      timed->add_option("--message-us", args_.message_us, "latency of a message between streams")
          ->check(CLI::Range(0.0, 1e9));
    }
    simulate->add_flag("--all", args_.text.all, "every lane and register");
    add_links(simulate);
    add_links(bottleneck);
    add_links(svg);
  }

  void add_measurements() {
    view_of("a file of costs", "cost", "What kernels took when they ran: how often measured, mean, standard deviation")
        ->add_option("--plan", args_.plan, "only the kernels of this plan, measured or not");
    CLI::App* compare = view_of("a directory that a dump was written to", "compare",
                                "Where two runs part: the first op whose output differs; exit status 1 when one does");
    compare->add_option("other", args_.other, "the other run's directory")->required();
    compare->add_option("--tolerance", args_.tolerance, "equal is |a - b| <= tolerance * (1 + |b|)")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    compare->add_flag("--all", args_.text.all, "every output that differs");
  }

  void add_recordings() {
    const char* const run = "a recorded run (SLUICE_TRACE=run.slt, or record_trace)";
    CLI::App* blame = view_of(run, "blame", "Where the time of each actor went, and for whom it waited");
    blame->add_option("--by", args_.by, "what rows are: actor, stream, module, line or role")
        ->check(CLI::IsMember(std::vector<std::string>(std::begin(plan::kBlameBy), std::end(plan::kBlameBy))))
        ->capture_default_str();
    blame->add_flag("--all", args_.text.all, "every row and wait");
    CLI::App* trace = view_of(run, "trace", "What was recorded, by stream");
    trace->add_option("-o,--output", args_.output, "write the events as JSON for Perfetto instead");
    view_of(run, "latency", "How long steps took, from where they begin to where they end");
  }

  void add_reviews() {
    CLI::App* diff =
        view("diff", "What differs between two plans, bundles or graph texts; exit status 1 when something does");
    diff->add_option("other", args_.other, "the other one")->required();
    diff->add_flag("--all", args_.text.all, "whole lines, however long");
    view("why", "Where an actor, a kernel or a register comes from, and what it depends on")
        ->add_option("name", args_.name, "its name, as `show` lists it")
        ->required();
  }

  void add_served() {
    CLI::App* models = view_of("what `sluice-serve check --json` prints; - is the standard input", "served",
                               "Models as a server runs them: queues, batcher, instances, and their plans");
    add_picture(models);
    models->add_option("--model", args_.served.model, "only this model");
  }

  void add_page() {
    CLI::App* html = view("html", "One self-contained page: lanes over virtual time, details, source lines");
    html->add_option("-o,--output", args_.output, "file to write (default plan.html)");
    html->add_option("--trace", args_.trace,
                     "a server's trace file: lanes of what ran for its requests, and these above");
    add_requested_model(html);
    add_links(html);
    html->add_option("--source", args_.source, "directory of the program, where the plan's source files lie");
  }

  void add_requests() {
    CLI::App* requests =
        view("requests", "Requests that sluice-serve traced, with what the engine did for each of them");
    requests->add_option("trace", args_.trace, "the server's trace file (--trace-config file=PATH)")->required();
    add_requested_model(requests);
  }

  void add_pareto() {
    CLI::App* pareto = view("pareto", "What speed costs: bytes of slots against steps per second");
    add_picture(pareto);
    add_links(pareto);
  }

  CLI::App& app_;
  Arguments& args_;
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "Looks at a Sluice plan: what runs where, in which order, in how many bytes, and why it cannot block.\n\n"
      "PLAN is a plan.json or a bundle directory. Start with\n"
      "  plan-viz info PLAN                 what it is: target, options, size\n"
      "  plan-viz show PLAN                 devices, streams, actors, kernels, registers\n"
      "  plan-viz devices PLAN              which device runs each kernel, and why\n"
      "  plan-viz mem PLAN                  every byte, per memory space and arena\n"
      "  plan-viz simulate PLAN --steps 6   the predicted period and what limits it\n"
      "  plan-viz bottleneck PLAN           what one more slot or a faster kernel would gain\n"
      "  plan-viz diff PLAN OTHER           what a change of the program changed in it\n"
      "  plan-viz why PLAN NAME             where a kernel, actor or register comes from\n"
      "  plan-viz blame RUN                 where the time of a recorded run went, and who was waited for\n"
      "  plan-viz latency RUN               how long its steps took\n"
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
  const CommandLine commands(app, args);
  CLI11_PARSE(app, argc, argv);
  try {
    std::string name = app.get_subcommands().front()->get_name();
    return run(name, args);
  } catch (const std::exception& e) {
    std::cerr << "plan-viz: " << e.what() << "\n";
    return 2;
  }
}
