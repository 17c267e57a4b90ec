#include "tools/plan_viz/command_line.h"

namespace sluice::plan_viz {

namespace {

// The commands and options of the program. An option that commands share is written to one place.
class CommandLine {
 public:
  CommandLine(CLI::App& app, Arguments& args) : app_(app), args_(args) {
    add_looks();
    add_forecasts();
    add_measurements();
    add_recordings();
    add_live();
    add_debug();
    add_reviews();
    add_served();
    add_page();
    add_requests();
    add_pareto();
    add_completion();
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
  // One folder each time, so that the plan may stand behind it.
  void add_sources(CLI::App* view) {
    view->add_option("--source", args_.source,
                     "a directory that source files are named from, as sys.path has them; may be given again")
        ->allow_extra_args(false);
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
    view("bound", "How long runs take, beside what no order of their kernels can go below");
    view("mem", "The ledger, and a map of each arena: offsets against lifetimes")
        ->add_flag("--all", args_.text.all, "every line and buffer");
    view("verify", "The proof that the plan runs forever, or the blocking cycle; exit status 1 when refused")
        ->alias("prove");
    view("dot", "A graph for graphviz, clustered by device and stream");
    CLI::App* partition = view("partition", "What a foreign backend would take of the graph: its clusters");
    partition->add_option("--backend", args_.partition.backend, "the path of its library, or its name")->required();
    partition->add_option("--option", args_.partition.options, "what it is told, as NAME=VALUE; may be given again")
        ->allow_extra_args(false);
    partition->add_flag("--why", args_.partition.why, "also the nodes that it does not take, each with the reason");
    partition->add_flag("--dot", args_.partition.dot,
                        "a graph for graphviz instead, each cluster in a colour of its own");
    CLI::App* sbp = view("sbp", "How values may lie over several devices, and the bytes that each way moves");
    sbp->add_flag("--ignore-user-sbp", args_.sbp.ignore_user, "what to_global says is free, too");
    sbp->add_option("--compute-ratio", args_.sbp.compute_ratio, "bytes that a floating-point operation counts")
        ->check(CLI::Range(0.0, 1e9))
        ->capture_default_str();
    sbp->add_option("--wait-bytes", args_.sbp.wait_bytes, "bytes that a conversion counts besides its own")
        ->check(CLI::Range(0.0, 1e18))
        ->capture_default_str();
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
    simulate->add_option("-o,--output", args_.output,
                         "write the forecast as a recorded run (run.slt), which other views read");
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
    trace->add_option(
        "-o,--output", args_.output,
        "write the events instead: for Perfetto where the name ends in .perfetto-trace, as a table where it "
        "ends in .csv, the kernels one by one where it ends in .tasks.json, else as Chrome's JSON");
    const char* const either = "a recorded run, or a plan, which is run in virtual time";
    view_of(either, "latency", "How long steps took, from where they begin to where they end, and what they can take")
        ->add_option("--quantile", args_.quantile,
                     "of the times of each actor's firings that the bound grants: 1 is the longest")
        ->check(CLI::Range(0.01, 1.0))
        ->capture_default_str();
    CLI::App* item = view_of(either, "item",
                             "The way of one step through the graph: where it waited and for whom, and where it ran");
    item->add_option("step", args_.step, "which step, from 0 on")
        ->required()
        ->check(CLI::Range(uint64_t{0}, uint64_t{1} << 53, "NONNEGATIVE"));
    item->add_option("--to", args_.name, "a sink (default: the one that the step reaches last)");
  }

  void add_live() {
    CLI::App* top = app_.add_subcommand("top", "What a process does that runs: rates, who waits for whom, registers");
    CLI::App* page = app_.add_subcommand("live", "The same as a page, on 127.0.0.1 for whoever knows its token");
    CLI::App* energy = app_.add_subcommand("energy", "Joules a step of a process that runs, or why nobody knows");
    energy->add_option("--counters", args_.counters, "folder with the system's counters")->capture_default_str();
    for (CLI::App* view : {top, page, energy}) {
      view->add_option("pid", args_.live.pid, "a process that runs with SLUICE_LIVE=1")->required();
      view->add_option("--session", args_.live.session, "only plans of this name");
    }
    for (CLI::App* view : {top, energy})
      view->add_option("--interval", args_.live.interval, "seconds between two pictures, or to measure")
          ->check(CLI::Range(0.05, 3600.0))
          ->capture_default_str();
    energy->add_flag("--json", args_.json, "machine-readable");
    top->add_option("--count", args_.live.count, "so many pictures (0: until the process ends; 1 when piped)")
        ->check(CLI::Range(0, 1000000));
    top->add_flag("--all", args_.text.all, "every actor and register");
    top->add_flag("--json", args_.json, "machine-readable, a document for each picture");
    top->add_option("--width", args_.text.width, "columns (default: the terminal's, 100 when piped)")
        ->check(CLI::Range(40, 1000));
    page->add_option("--port", args_.live.port, "of the page (0: any that is free)")->check(CLI::Range(0, 65535));
    add_sources(page);
  }

  void add_debug() {
    CLI::App* debug = app_.add_subcommand("debug", "Runs a bundle one firing at a time: breakpoints, values, changes");
    DebugOptions& options = args_.debug;
    debug->add_option("bundle", options.bundle, "a directory that sluice.save wrote, or a tar archive of one")
        ->required();
    debug->add_option("--script", options.script, "a file of commands (default: the standard input)");
    debug->add_option("--input", options.input.inputs, "[NAME=]VALUE: @FILE.npy, zeros, random, or numbers")
        ->take_all();
    debug->add_option("--fill", options.input.fill, "inputs that are not given: zeros or random")
        ->check(CLI::IsMember({"zeros", "random"}));
    debug->add_option("--seed", options.input.seed, "of random inputs")->capture_default_str();
    debug->add_option("--steps", options.steps, "how many are run, on the same inputs")
        ->check(CLI::Range(1, 1'000'000'000, "POSITIVE"))
        ->capture_default_str();
    debug->add_option("--shuffle", options.shuffle, "SEED: it chooses who fires next (default: the oldest step first)");
    debug->add_option("--cores", options.cores, "that kernels use; 0: all")->check(CLI::NonNegativeNumber);
    debug->add_option("--extension", options.extensions, "a shared library with ops of your own")->take_all();
    debug->add_option("--backend", options.backends, "a shared library with a device of your own")->take_all();
    debug->add_flag("--json", args_.json, "machine-readable, a document for each command");
    debug->add_option("--width", args_.text.width, "columns (default: the terminal's, 100 when piped)")
        ->check(CLI::Range(40, 1000));
    debug->footer(debug_commands());
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
    html->add_option("--beside", args_.other, "another plan or recorded run, to compare with");
    html->add_option(
            "--slots", args_.slots,
            "the page also has a forecast for each choice of up to so many slots of each register, to try them")
        ->check(CLI::Range(1, 16));
    add_requested_model(html);
    add_links(html);
    add_sources(html);
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

  void add_completion() {
    app_.add_subcommand("completion",
                        "What a shell completes commands and options with: eval \"$(plan-viz completion bash)\"")
        ->add_option("shell", args_.shell, "bash, zsh or fish")
        ->required()
        ->check(CLI::IsMember(std::vector<std::string>(std::begin(kShells), std::end(kShells))));
  }

  CLI::App& app_;
  Arguments& args_;
};

}  // namespace

void add_commands(CLI::App& app, Arguments& args) { const CommandLine commands(app, args); }

std::vector<CommandWords> words_of(const CLI::App& app) {
  std::vector<CommandWords> words;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    CommandWords& one = words.emplace_back(CommandWords{command->get_name(), command->get_description(), {}});
    for (const CLI::Option* option : command->get_options()) {
      for (const std::string& name : option->get_lnames()) one.options.push_back("--" + name);
      for (const std::string& name : option->get_snames()) one.options.push_back("-" + name);
    }
  }
  return words;
}

}  // namespace sluice::plan_viz
