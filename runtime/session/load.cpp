#include "runtime/session/load.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "actors/stream_executor.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "kernels/collectives.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/flushing_kernel.h"
#include "kernels/guarded_kernel.h"
#include "kernels/kernel_cache.h"
#include "plan/pack/ledger.h"
#include "plan/query.h"
#include "plan/ranks.h"
#include "plan/verify.h"
#include "runtime/session/engine.h"
#include "runtime/session/load_ranks.h"
#include "runtime/session/shared_arenas.h"
#include "runtime/session/spills.h"
#include "streams/stream.h"

namespace sluice {
namespace {

using plan::SpaceKind;

constexpr int kMostInFlight = 65536;

std::string kernel_where(const plan::Plan& plan, int kernel) {
  const plan::Kernel& k = plan.kernels[kernel];
  for (const plan::Actor& actor : plan.actors) {
    for (const plan::Instr& instr : actor.program) {
      if (instr.kind != plan::InstrKind::kRun || instr.index != kernel) continue;
      return fmt::format("{}kernel '{}' of actor '{}'", k.prefix(), k.name, actor.name);
    }
  }
  return fmt::format("kernel '{}'", k.name);
}

void check_host_functions(const plan::Plan& plan, const KernelTable& table, const HostFunctions& functions) {
  for (const plan::Actor& actor : plan.actors) {
    const DeviceKind device = plan.streams[actor.stream].device.kind;
    for (const plan::Instr& instr : actor.program) {
      if (instr.kind != plan::InstrKind::kRun) continue;
      const plan::Kernel& kernel = plan.kernels[instr.index];
      const KernelDef* def = table.find(kernel.op, device);
      if (def == nullptr || def->function.empty()) continue;
      const std::string& name = get_attr<std::string>(kernel.attrs, def->function.c_str());
      SLUICE_CHECK_KIND(
          kUnsupported, functions.contains(name),
          "plan '{}': {} runs host function '{}', which this program has not; pass it in SessionOptions::functions",
          plan.name, kernel_where(plan, instr.index), name);
    }
  }
}

void bind_variables(LoadedPlan& loaded, const VariableBindings& bindings) {
  const plan::Plan& plan = loaded.plan;
  loaded.variable_written = plan::written_variables(plan);
  for (const plan::Variable& variable : plan.variables) {
    const plan::Space& space = plan.spaces[variable.space];
    const uint64_t bytes = variable.spec.extent_bytes();
    const auto it = bindings.find(variable.name);
    SLUICE_CHECK(it != bindings.end() && it->second != nullptr,
                 "plan '{}': variable '{}' is not bound; it needs {} bytes in {}", plan.name, variable.name, bytes,
                 space.str());
    const Storage& storage = *it->second;
    const bool host = space.kind != SpaceKind::kDevice;
    SLUICE_CHECK(storage.bytes() >= bytes, "plan '{}': variable '{}': bound to {} bytes; it needs {}", plan.name,
                 variable.name, storage.bytes(), bytes);
    SLUICE_CHECK(host ? storage.space().kind != SpaceKind::kDevice : storage.space() == space,
                 "plan '{}': variable '{}': bound to memory of {}; it must be in {}", plan.name, variable.name,
                 storage.space().str(), space.str());
    const std::shared_ptr<const MappedFile>& file = storage.file();
    loaded.variable_mapped.push_back(file != nullptr);
    if (file != nullptr && std::find(loaded.files.begin(), loaded.files.end(), file) == loaded.files.end()) {
      file->check().throw_if_error();
      loaded.files.push_back(file);
    }
    loaded.variables.push_back(it->second);
    loaded.bindings.variables.push_back(static_cast<std::byte*>(storage.data()));
  }
}

void allocate_arenas(Engine& engine, LoadedPlan& loaded) {
  const plan::Plan& plan = loaded.plan;
  std::vector<SharedArenas::Place> shared(plan.arenas.size());
  if (const auto& arenas = loaded.options.arenas; arenas != nullptr) {
    SLUICE_CHECK(&arenas->engine() == &engine, "session '{}': arenas: of another engine; they must be of its own",
                 plan.name);
    shared = arenas->place(plan);
  }
  for (size_t a = 0; a < plan.arenas.size(); ++a) {
    const plan::Arena& arena = plan.arenas[a];
    const uint64_t bytes = align_up(arena.bytes, plan::kAlignment);
    std::shared_ptr<Storage>& block = shared[a].block;
    loaded.arena_shared.push_back(block != nullptr);
    if (block == nullptr) block = allocate_for(engine, plan, plan.spaces[arena.space], bytes);
    loaded.bindings.arenas.push_back(static_cast<std::byte*>(block->data()) + shared[a].offset);
    loaded.arenas.push_back(std::move(block));
  }
}

// What a plan says of a kernel before its copies are those of this machine.
struct KernelReads {
  plan::KernelQuery query;
  std::vector<std::optional<plan::Derivation>> derived;  // per input
};
KernelReads reads_of(const plan::Plan& plan, int kernel, int stream) {
  if (stream < 0) return {};
  const plan::Kernel& k = plan.kernels[kernel];
  KernelReads reads{plan::query_of(plan, k, plan.streams[stream]), {}};
  for (const plan::View& view : k.inputs) {
    reads.derived.emplace_back();
    if (view.packed >= 0) reads.derived.back() = plan.packed[view.packed].derived;
  }
  return reads;
}

// Keeps the copy that the plan has got last, where it is a new one.
void keep_copy(Engine& engine, LoadedPlan& loaded, int kernel, int index, const Packing* packing, int cores) {
  if (index < static_cast<int>(loaded.packed.size())) return;
  const plan::Plan& plan = loaded.plan;
  const plan::PackedCopy& copy = plan.packed[index];
  const plan::Variable& variable = plan.variables[copy.variable];
  const std::string what = fmt::format("{} '{}' for {}", packing != nullptr ? "packing" : "deriving", variable.name,
                                       kernel_where(plan, kernel));
  CopyRecipe recipe{.words = copy.format, .bytes = copy.bytes};
  if (packing != nullptr) recipe.order = packing->kernel;
  if (copy.derived) {
    const plan::Derivation& derived = *copy.derived;
    plan::KernelQuery query{derived.op, derived.attrs, {}, {derived.spec}, {}, cores};
    for (const int source : derived.inputs) {
      recipe.sources.push_back(source < 0 ? nullptr : loaded.variables[source]);
      query.inputs.push_back(source < 0 ? TensorSpec{} : plan.variables[source].spec);
    }
    recipe.derive = engine.kernel_cache().get(query);
    recipe.derived_bytes = std::max<uint64_t>(derived.spec.extent_bytes(), 1);
    query.cores = 0;  // the result does not depend on them
    recipe.words = key_of(query).take() + copy.format;
  } else {
    recipe.sources = {loaded.variables[copy.variable]};
  }
  const auto allocate = [&](uint64_t bytes) { return allocate_for(engine, plan, plan.spaces[variable.space], bytes); };
  loaded.packed.push_back(engine.packed_weights().get(engine, recipe, allocate, what, cores));
  loaded.bindings.packed.push_back(static_cast<std::byte*>(loaded.packed.back()->memory()->data()));
}

// The copies that kernels read here, which the plan then says. The plan of another machine may have said otherwise of
// their order.
void keep_copies(Engine& engine, LoadedPlan& loaded, int kernel, const KernelReads& reads,
                 const PreparedKernel& prepared, int cores) {
  plan::Plan& plan = loaded.plan;
  std::vector<plan::View>& inputs = plan.kernels[kernel].inputs;
  for (const Packing& packing : prepared.packings()) {
    plan::View& view = inputs[packing.input];
    view.packed = plan::packed_copy(plan, view.index, packing.format, packing.bytes, reads.derived[packing.input]);
    keep_copy(engine, loaded, kernel, view.packed, &packing, cores);
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].packed >= 0 || !reads.derived[i]) continue;
    inputs[i].packed = plan::derived_copy(plan, *reads.derived[i]);
    keep_copy(engine, loaded, kernel, inputs[i].packed, nullptr, cores);
  }
}

// Kernels of Sluice's own: those of others may take any time, and wait for anything.
bool is_own(const std::string& op) {
  static const std::set<std::string> own = [] {
    KernelTable table;
    add_cpu_kernels(table);
    const std::vector<std::string> ops = table.ops(DeviceKind::kCpu);
    return std::set<std::string>(ops.begin(), ops.end());
  }();
  return own.contains(op);
}

int space_of_kernels(Engine& engine, plan::Plan& plan, const DeviceId& device) {
  const bool host = engine.device(device).describe().host_memory;
  const plan::Space space = host ? plan::Space{SpaceKind::kHost, {device.rank, DeviceKind::kCpu, 0}}
                                 : plan::Space{SpaceKind::kDevice, device};
  const auto index = std::find(plan.spaces.begin(), plan.spaces.end(), space) - plan.spaces.begin();
  if (index == std::ssize(plan.spaces)) plan.spaces.push_back(space);
  return static_cast<int>(index);
}

// A kernel of another instruction set or another version of a library may need more workspace than the plan has for it.
// It lies in an arena of its stream beside those of the plan, since a stream runs one kernel at a time.
void give_workspace(Engine& engine, plan::Plan& plan, plan::Kernel& kernel, int stream, uint64_t bytes) {
  const std::string name = plan.streams[stream].name + "/workspaces of this machine";
  auto arena = std::find_if(plan.arenas.begin(), plan.arenas.end(), [&](const auto& a) { return a.name == name; });
  if (arena == plan.arenas.end()) {
    const int space = space_of_kernels(engine, plan, plan.streams[stream].device);
    arena = plan.arenas.insert(arena, {name, space, stream, 0, 0});
  }
  arena->bytes = arena->lower_bound = std::max(arena->bytes, align_up(bytes, plan::kAlignment));
  if (kernel.workspace < 0) {
    kernel.workspace = static_cast<int>(plan.buffers.size());
    plan.buffers.push_back({kernel.name + "/workspace"});
  }
  plan::Buffer& buffer = plan.buffers[kernel.workspace];
  buffer.arena = static_cast<int>(arena - plan.arenas.begin());
  buffer.offset = 0;
  buffer.bytes = bytes;
}

void prepare_kernels(Engine& engine, LoadedPlan& loaded) {
  plan::Plan& plan = loaded.plan;
  const std::vector<int> stream_of = plan::streams_of_kernels(plan);
  std::vector<KernelReads> reads;
  for (size_t k = 0; k < plan.kernels.size(); ++k) reads.push_back(reads_of(plan, static_cast<int>(k), stream_of[k]));
  plan.packed.clear();
  loaded.bindings.kernels.resize(plan.kernels.size());
  loaded.bindings.branches.resize(plan.kernels.size());
  loaded.bindings.timely.resize(plan.kernels.size());
  const bool flushes = loaded.options.flush_denormals || plan::beside(plan.options, plan::kFlushDenormals, false);
  for (size_t k = 0; k < plan.kernels.size(); ++k) {
    plan::Kernel& kernel = plan.kernels[k];
    const bool runs = stream_of[k] >= 0;
    plan::KernelQuery& query = reads[k].query;
    for (plan::View& view : kernel.inputs) view.packed = -1;
    if (!runs) continue;
    query.cores = std::min(query.cores, engine.cores());
    try {
      if (kernel.collective >= 0) {
        loaded.kernels.push_back(prepare_collective(query, *loaded.communicators.at(kernel.collective)));
      } else {
        loaded.kernels.push_back(engine.kernel_cache().get(query, &loaded.options.functions));
      }
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("{}  ({})", error.what(), kernel_where(plan, static_cast<int>(k))));
    } catch (const std::bad_variant_access&) {  // kernels read attributes as the types their op gives them
      fail(ErrorKind::kType, "{}: an attribute has the wrong type; the op's definition says which  ({})", kernel.op,
           kernel_where(plan, static_cast<int>(k)));
    }
    if (loaded.options.memory_guard) loaded.kernels.back() = cpu::guarded(loaded.kernels.back(), query);
    if (flushes && query.device.kind == DeviceKind::kCpu) loaded.kernels.back() = cpu::flushing(loaded.kernels.back());
    const PreparedKernel& prepared = *loaded.kernels.back();
    const uint64_t workspace = kernel.workspace < 0 ? 0 : plan.buffers[kernel.workspace].bytes;
    if (prepared.workspace_bytes() > workspace)
      give_workspace(engine, plan, kernel, stream_of[k], prepared.workspace_bytes());
    loaded.bindings.kernels[k] = &prepared;
    const KernelDef* const def = engine.kernels().find(kernel.op, query.device.kind);
    loaded.bindings.branches[k] = def != nullptr && def->branches;
    loaded.bindings.timely[k] = kernel.collective < 0 && prepared.needs_cores() && is_own(kernel.op);
    keep_copies(engine, loaded, static_cast<int>(k), reads[k], prepared, query.cores);
  }
}

void log_loaded(const SessionCore& core, std::chrono::steady_clock::time_point start) {
  if (!log_enabled(LogLevel::kInfo, LogArea::kRuntime)) return;
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  uint64_t bytes = 0;
  for (const SessionMemory::Space& space : core.memory().spaces) bytes += space.total();
  log(LogLevel::kInfo, LogArea::kRuntime, "session '{}': {} actors on {} streams, {} bytes, loaded in {:.1f} ms",
      core.plan().name, core.plan().actors.size(), core.plan().streams.size(), bytes, took.count());
}

}  // namespace

void clear_initial_tokens(Engine& engine, const LoadedPlan& loaded) {
  const plan::Plan& plan = loaded.plan;
  for (const plan::Register& reg : plan.registers) {
    for (int t = 0; t < reg.initial_tokens && reg.bytes > 0; ++t) {
      const plan::Buffer& buffer = plan.buffers[reg.slots[t]];
      const plan::Space& space = plan.spaces[plan.arenas[buffer.arena].space];
      std::byte* const slot = loaded.bindings.arenas[buffer.arena] + buffer.offset;
      if (space.kind != SpaceKind::kDevice) {
        std::memset(slot, 0, buffer.bytes);
        continue;
      }
      const std::vector<std::byte> zeros(buffer.bytes);
      engine.device(space.device).copy_from_host(slot, zeros.data(), buffer.bytes);
    }
  }
}

namespace {

// The plan's streams, once the thread of each of them has answered. One that is known to be stuck, in a kernel of
// another session, is replaced.
std::vector<std::shared_ptr<actors::StreamExecutor>> reachable_streams(Engine& engine, const plan::Plan& plan,
                                                                       Timeout timeout) {
  const Deadline deadline(timeout);
  const auto is_reachable = [&](const auto& stream) {
    return stream->run_sync([] {}, deadline.left()) || !stream->left_behind();
  };
  while (true) {
    auto streams = engine.executors(plan.streams);
    if (std::all_of(streams.begin(), streams.end(), is_reachable)) return streams;
  }
}

}  // namespace

std::shared_ptr<SessionCore> load_core(Engine& engine, plan::Plan plan, const VariableBindings& variables,
                                       SessionOptions options) {
  const auto start = std::chrono::steady_clock::now();
  engine.check_process();
  plan::check(plan);
  auto loaded = std::make_unique<LoadedPlan>();
  if (plan::together(plan)) plan = join_ranks(engine, plan, *loaded);
  loaded->spill_file = add_spill_functions(plan, options.functions);
  check_host_functions(plan, engine.kernels(), options.functions);
  SLUICE_CHECK(options.max_in_flight >= 0 && options.max_in_flight <= kMostInFlight,
               "session '{}': max_in_flight: {}; must be 1 to {}, or 0 for the plan's own", plan.name,
               options.max_in_flight, kMostInFlight);
  loaded->plan = std::move(plan);
  loaded->options = std::move(options);
  const plan::FiringCounts counts(loaded->plan);
  loaded->ports = ports_of(loaded->plan, counts, loaded->options.shards);
  loaded->exchange = find_exchange(loaded->plan, counts, loaded->ports, loaded->options);
  set_apart(loaded->plan, loaded->exchange);
  loaded->streams = reachable_streams(engine, loaded->plan, loaded->options.wait_timeout);
  for (const auto& stream : loaded->streams) loaded->bindings.streams.push_back(stream.get());
  bind_variables(*loaded, variables);
  prepare_kernels(engine, *loaded);
  allocate_arenas(engine, *loaded);
  clear_initial_tokens(engine, *loaded);
  const auto core = std::make_shared<SessionCore>(engine, std::move(loaded));
  try {
    core->open();
    log_loaded(*core, start);
  } catch (...) {
    core->end(std::min<Timeout>(core->stop_timeout(), std::chrono::milliseconds(100)));  // nothing runs in it yet
    throw;
  }
  return core;
}

}  // namespace sluice
