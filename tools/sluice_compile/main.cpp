// sluice-compile: a saved graph through the compiler, up to the stage that is asked for.
#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "plan/json/json.h"
#include "runtime/session/engine.h"
#include "sluice/version.h"
#include "tensor/c/to_c.h"
#include "tensor/eager.h"
#include "tensor/session/graph_session.h"
#ifdef SLUICE_HAS_ONNX
#include "onnx/capture.h"
#endif
#include "tools/plan_viz/views.h"

namespace {

namespace fs = std::filesystem;
using namespace sluice;

struct Arguments {
  std::string model, output, to = "plan", device = "cpu", name, target;
  int cores = 0;
  uint64_t memory_budget = 0, workspace_limit = 0;
  uint64_t flash = c::Machine().flash, ram = c::Machine().ram;
  std::string backend;
  std::vector<std::string> without, dims, backend_options;
};

// Stages that are not the compiler's own, and what they stand for.
constexpr const char* kInput = "graph";      // as it was saved
constexpr const char* kPasses = "ir";        // after the graph passes
constexpr const char* kLowered = "lowered";  // after all passes
constexpr const char* kPlan = "plan";
constexpr const char* kMemory = "mem";
constexpr const char* kC = "c";
constexpr const char* kBundle = "bundle";

// "batch=8" as a name and a size.
std::map<std::string, int64_t> sizes_of(const std::vector<std::string>& dims) {
  std::map<std::string, int64_t> sizes;
  for (const std::string& dim : dims) {
    const size_t cut = dim.rfind('=');
    const std::string size = cut == std::string::npos ? "" : dim.substr(cut + 1);
    SLUICE_CHECK(!size.empty() && size.size() < 10 && size.find_first_not_of("0123456789") == std::string::npos,
                 "--dim {}: must be NAME=SIZE", dim);
    sizes[dim.substr(0, cut)] = std::stoll(size);
  }
  return sizes;
}

CapturedGraph captured_from_onnx(EagerExecutor& eager, const Arguments& args) {
#ifdef SLUICE_HAS_ONNX
  return onnx::capture(eager, onnx::Model::load(args.model), sizes_of(args.dims), fs::path(args.model).stem().string());
#else
  (void)eager;
  fail(ErrorKind::kUnsupported, "{}: this build reads no models of ONNX; build it where protobuf is", args.model);
#endif
}

void write(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.flush();
  SLUICE_CHECK_KIND(kIo, out.good(), "{}: cannot be written", path);
}

// What the model is as a graph, with its weights; of a file with a graph alone no constant is known.
CapturedGraph captured_from(EagerExecutor& eager, const Arguments& args) {
  if (fs::path(args.model).extension() == ".onnx") return captured_from_onnx(eager, args);
  return saved_graph(args.model, eager.ops());
}

ToCOptions c_options(const Arguments& args) {
  return {.name = args.name, .memory_budget = args.memory_budget, .disabled_passes = args.without};
}

c::PlanSource compiled_to_c(const Arguments& args) {
  Engine engine;
  EagerExecutor eager(engine);
  const ExecutorScope scope(eager);
  return to_c(eager, captured_from(eager, args), c_options(args));
}

// A folder to build and check it in, with the result of one step on zeros.
void write_project(const Arguments& args) {
  SLUICE_CHECK(!args.output.empty(), "--target c: it needs a folder to write to; give -o FOLDER");
  SLUICE_CHECK(fs::is_directory(args.model) || fs::path(args.model).extension() == ".onnx",
               "--target c: '{}' has no weights; give a bundle's folder or a model.onnx", args.model);
  Engine engine;
  EagerExecutor eager(engine);
  const ExecutorScope scope(eager);
  const c::PlanSource made = to_c(eager, captured_from(eager, args), c_options(args));
  const c::Machine machine{.flash = args.flash, .ram = args.ram};
  c::check_fits(made, machine);
  CapturedGraph again = captured_from(eager, args);
  const std::vector<std::vector<Tensor>> steps = {zero_inputs(again)};
  const c::Vectors known = known_steps(eager, std::move(again), steps, c_options(args));
  fs::create_directories(args.output);
  for (const auto& [name, text] : c::project_files(made, machine, known)) write(fs::path(args.output) / name, text);
}

GraphSessionOptions options_of(const Arguments& args, const CapturedGraph& captured) {
  GraphSessionOptions options;
  options.compile.name = captured.graph.name;
  options.compile.device = parse_device(args.device);
  options.compile.cores = args.cores;
  options.compile.memory_budget = args.memory_budget;
  options.compile.workspace_limit = args.workspace_limit;
  options.compile.disabled_passes = args.without;
  options.compile.backend = args.backend;
  options.compile.backend_options = args.backend_options;
  return options;
}

// Loaded, not only compiled: a bundle is written once its plan has been accepted and its kernels prepared.
void write_bundle(const Arguments& args) {
  SLUICE_CHECK(!args.output.empty(), "--to bundle: a bundle is a directory; say which by -o");
  Engine engine;
  EagerExecutor eager(engine);
  const ExecutorScope scope(eager);
  CapturedGraph captured = captured_from(eager, args);
  GraphSessionOptions options = options_of(args, captured);
  GraphSession(eager, std::move(captured), std::move(options)).save(args.output);
}

std::string compiled(const Arguments& args) {
  Engine engine;
  EagerExecutor eager(engine);
  const ExecutorScope scope(eager);
  CapturedGraph captured = captured_from(eager, args);
  if (args.to == kInput) return graph::to_text(captured.graph);
  GraphSessionOptions options = options_of(args, captured);
  options.dry_run = true;
  const bool whole = args.to == kPlan || args.to == kMemory;
  if (!whole) {
    options.compile.until = args.to == kPasses    ? pass_names().back()
                            : args.to == kLowered ? stage_names().back()
                                                  : args.to;
  }
  const GraphSession session(eager, std::move(captured), std::move(options));
  const CompileResult& result = session.compiled();
  if (args.to == kMemory) return plan_viz::mem_text(result.plan, {.all = true});
  return whole ? plan::to_json(result.plan) : graph::to_text(result.graph);
}

std::string list_of(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += "  " + name + "\n";
  return text;
}

void print(const Arguments& args) {
  if (!args.target.empty()) return write_project(args);
  if (args.to == kBundle) return write_bundle(args);
  if (args.to != kC) {
    const std::string text = compiled(args);
    return args.output.empty() ? void(std::cout << text) : write(args.output, text);
  }
  const c::PlanSource made = compiled_to_c(args);
  if (args.output.empty()) {
    std::cout << made.source;
    return;
  }
  write(args.output, made.source);
  write(fs::path(args.output).replace_extension(".h").string(), made.header);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "Compiles a saved graph as far as you ask, and prints what there is then.\n\n"
      "MODEL is a bundle directory, a model.onnx, or a graph.txt (whose weights are then unknown, so that none is "
      "folded). Start with\n"
      "  sluice-compile MODEL --to graph       the graph as it was traced\n"
      "  sluice-compile MODEL --to ir          after the graph passes\n"
      "  sluice-compile MODEL --to lowered     with every copy, reorder and collective, as the plan runs it\n"
      "  sluice-compile MODEL --to plan        plan.json, for plan-viz\n"
      "  sluice-compile MODEL --to mem         every byte of it\n"
      "  sluice-compile MODEL --to c -o M.c    a C99 file, and M.h, that run it without Sluice: for small machines\n"
      "  sluice-compile MODEL --target c -o D  a folder with them, a Makefile, a linker's script, and a check\n"
      "  sluice-compile M.onnx --dim batch=8 --to bundle -o M    a bundle, to be run and served\n",
      "sluice-compile"};
  app.set_version_flag("--version", SLUICE_VERSION);
  Arguments args;
  std::vector<std::string> stages = {kInput, kPasses, kLowered, kPlan, kMemory, kC, kBundle};
  for (const std::string& name : stage_names()) stages.push_back(name);
  app.add_option("model", args.model, "bundle directory, model.onnx or graph.txt")
      ->required()
      ->check(CLI::ExistingPath);
  app.add_option("--to,--compile-to", args.to,
                 "graph, ir, lowered, plan, mem, c, bundle, or after a pass of the compiler")
      ->check(CLI::IsMember(stages))
      ->capture_default_str();
  app.add_option("-o,--output", args.output, "file to write (default: standard output); of --to bundle, the directory");
  app.add_option("--dim", args.dims, "of a model of ONNX: the size of a dim that varies, as NAME=SIZE");
  app.add_option("--name", args.name, "of --to c: what its names begin with (default: the graph's)");
  app.add_option("--target", args.target, "c: writes a folder to build and check the C in, for a microcontroller")
      ->check(CLI::IsMember(std::vector<std::string>{"c"}));
  app.add_option("--flash", args.flash, "of --target c: bytes of flash memory, as in 1MB")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  app.add_option("--ram", args.ram, "of --target c: bytes of RAM, as in 256KB")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  app.add_option("--device", args.device, "of nodes that name none")->capture_default_str();
  app.add_option("--cores", args.cores, "of a compute stream; 0: what this machine has")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  app.add_option("--memory-budget", args.memory_budget, "bytes; a plan that needs more is refused; 0: none")
      ->capture_default_str();
  app.add_option("--workspace-limit", args.workspace_limit,
                 "bytes of a kernel's workspace; an op whose kernels all need more is refused; 0: none")
      ->capture_default_str();
  app.add_option("--backend", args.backend,
                 "a foreign backend, by path or name, that computes what it takes of the graph");
  app.add_option("--backend-option", args.backend_options, "what it is told, as NAME=VALUE");
  app.add_option("--without", args.without, "passes to leave out")->check(CLI::IsMember(pass_names()));
  app.footer("Passes, in order:\n" + list_of(stage_names()));
  try {
    app.parse(argc, argv);
    print(args);
    return 0;
  } catch (const CLI::ParseError& e) {  // help is one, too
    return app.exit(e) == 0 ? 0 : 2;
  } catch (const std::exception& e) {
    std::cerr << "sluice-compile: " << e.what() << "\n";
    return 2;
  }
}
