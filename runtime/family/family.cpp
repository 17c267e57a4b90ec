#include "runtime/family/family.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <numeric>

#include "base/interrupt.h"
#include "runtime/bundle/moved_data.h"
#include "runtime/family/family_bundle.h"
#include "runtime/family/family_parts.h"
#include "runtime/session/engine.h"
#include "runtime/session/shared_arenas.h"

namespace sluice {

// The state that steps and callbacks need as long as there are any.
struct FamilyStep::State {
  std::shared_ptr<const plan::Family> family;
  std::vector<plan::Part> parts;
  std::vector<StepHandle> steps;
  uint64_t number = 0;

  std::mutex mutex;
  std::vector<OutputTensor> outputs;  // once asked for
  std::vector<OutputTensor> given;    // memory of the caller's for them

  ~State() {
    for (StepHandle& step : steps) step.let_go_of_outputs();
  }

  // Callbacks are told of the whole call.
  decltype(SessionOptions::on_output) on_output;
  StepDone on_done;
  std::vector<std::vector<OutputTensor>> told;
  Status failure;
  void part_done(const Status& status, const std::vector<OutputTensor>& of_part);
};

namespace {

// Copies a result of a call to where its caller wants it.
void put_into(const plan::Family& family, size_t output, const OutputTensor& result, const OutputTensor& given) {
  SLUICE_CHECK(given.type == result.type, "graph '{}': output '{}': memory for {}; it is {}", family.name,
               output < family.outputs.size() ? family.outputs[output].name : std::to_string(output), given.type.str(),
               result.type.str());
  for (const OutputTensor* tensor : {&result, &given})
    SLUICE_CHECK_KIND(
        kUnsupported, tensor->storage->space().kind != plan::SpaceKind::kDevice,
        "graph '{}': output {}: memory in {}; results go into memory of a caller's from the host's to the "
        "host's",
        family.name, output, tensor->storage->space().str());
  std::memcpy(given.storage->data(), result.storage->data(),
              checked_bytes(result.type.shape, dtype_size(result.type.dtype)));
}

}  // namespace

uint64_t FamilyStep::step() const { return state_->number; }

bool FamilyStep::done() const {
  return std::all_of(state_->steps.begin(), state_->steps.end(), [](const StepHandle& step) { return step.done(); });
}

Status FamilyStep::wait() {
  Status status;
  for (StepHandle& step : state_->steps)
    if (const Status of_part = step.wait(); status.ok()) status = of_part;
  return status;
}

Status FamilyStep::wait(Timeout timeout) {
  if (state_->steps.size() == 1) return state_->steps.front().wait(timeout);
  const Deadline deadline(timeout);
  Status status;
  for (StepHandle& step : state_->steps)
    if (const Status of_part = step.wait(deadline.left()); status.ok()) status = of_part;
  return status;
}

const std::vector<OutputTensor>& FamilyStep::outputs() {
  if (state_->parts.empty()) return state_->steps.front().outputs();
  wait().throw_if_error();
  const std::lock_guard lock(state_->mutex);
  if (!state_->outputs.empty()) return state_->outputs;
  std::vector<std::vector<OutputTensor>> results;
  for (StepHandle& step : state_->steps) results.push_back(step.outputs());
  std::vector<OutputTensor> joined = join_parts(*state_->family, state_->parts, results);
  for (size_t o = 0; o < state_->given.size(); ++o) put_into(*state_->family, o, joined[o], state_->given[o]);
  state_->outputs = state_->given.empty() ? std::move(joined) : state_->given;
  return state_->outputs;
}

bool FamilyStep::cancel() {
  bool any = false;
  for (StepHandle& step : state_->steps) any |= step.cancel();
  return any;
}

struct SessionFamily::Core {
  std::shared_ptr<const plan::Family> family;
  decltype(SessionOptions::on_output) on_output;  // of calls, where there are several members; may be null
  std::vector<Session> members;
  std::mutex telling;  // with an on_output, submissions come one after another, so that it is told of them in order
  std::atomic<uint64_t> submitted{0};
  FamilyTracing tracing;
  bool alone() const { return members.size() == 1 && family->dims.empty(); }
};

// Parts of one call end one after another: those of one member in their order, and another member waits for them.
void FamilyStep::State::part_done(const Status& status, const std::vector<OutputTensor>& of_part) {
  if (!status.ok() && failure.ok()) failure = status;
  told.push_back(of_part);
  if (told.size() < parts.size()) return;
  std::vector<OutputTensor> joined;
  try {
    if (failure.ok()) joined = join_parts(*family, parts, told);
    for (size_t o = 0; o < given.size() && failure.ok(); ++o) put_into(*family, o, joined[o], given[o]);
    if (failure.ok() && !given.empty()) joined = given;
  } catch (...) {
    failure = Status::from_current_exception();
  }
  told.clear();
  if (on_output) on_output(number, failure, joined);
  if (on_done) on_done(failure, joined);
  on_done = nullptr;
}

SessionFamily::SessionFamily(std::unique_ptr<Core> core) : core_(std::move(core)) {}
SessionFamily::SessionFamily(SessionFamily&&) noexcept = default;
SessionFamily::~SessionFamily() = default;

SessionFamily::SessionFamily(Session session) : core_(std::make_unique<Core>()) {
  plan::Family family{session.plan().name, {}, {}, {}, {{}}};
  const auto fixed = [](const PortInfo& port) {
    plan::FamilyPort of_port{port.name, port.type.dtype, {}};
    for (const int64_t size : port.type.shape) of_port.axes.push_back({plan::FamilyAxis::kFixed, size});
    return of_port;
  };
  for (const PortInfo& port : session.inputs()) family.inputs.push_back(fixed(port));
  for (const PortInfo& port : session.outputs()) family.outputs.push_back(fixed(port));
  core_->family = std::make_shared<const plan::Family>(std::move(family));
  core_->members.push_back(std::move(session));
}

SessionFamily SessionFamily::load(Engine& engine, const BundleSource& source, SessionOptions options,
                                  const Weights& given, const DataRoots& roots) {
  const std::string& directory = source.name();
  if (!is_family_bundle(source)) {
    return SessionFamily(
        load_session(engine, load_bundle(source, engine.allocator({}), given), directory, std::move(options), roots));
  }
  FamilyBundle bundle = load_family_bundle(source, engine.allocator({}), given);
  auto core = std::make_unique<Core>();
  const size_t n = bundle.members.size();
  core->family = std::make_shared<const plan::Family>(std::move(bundle.family));
  if (options.on_output) {
    core->on_output = std::exchange(options.on_output, nullptr);
  }
  if (options.arenas == nullptr) options.arenas = std::make_shared<SharedArenas>(engine);
  BoundWeights bound;
  std::vector<Session> members(n);
  // The largest first: what it has room for is not made anew.
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  std::vector<uint64_t> bytes;
  for (const Bundle& member : bundle.members)
    bytes.push_back(
        std::accumulate(member.plan.arenas.begin(), member.plan.arenas.end(), uint64_t{0},
                        [](uint64_t sum, const plan::Arena& arena) { return checked_add(sum, arena.bytes); }));
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return bytes[a] > bytes[b]; });
  for (const size_t m : order) {
    Bundle& member = bundle.members[m];
    member.meta = bundle.meta;
    members[m] = load_session(engine, std::move(member), member_directory(directory, m), options, roots, &bound);
    about_file(directory, kFamilyFile, [&] {
      const auto named = [](const std::vector<PortInfo>& ports) {
        std::vector<plan::NamedType> types;
        for (const PortInfo& port : ports) types.push_back({port.name, port.type});
        return types;
      };
      plan::check_member(*core->family, m, named(members[m].inputs()), named(members[m].outputs()));
      plan::check_updates(*core->family, members[m].plan());
    });
  }
  core->members = std::move(members);
  return SessionFamily(std::move(core));
}

const plan::Family& SessionFamily::family() const { return *core_->family; }

std::vector<PortInfo> SessionFamily::inputs() const {
  return at_most(*core_->family, core_->members.back().inputs(), core_->family->inputs);
}
std::vector<PortInfo> SessionFamily::outputs() const {
  return at_most(*core_->family, core_->members.back().outputs(), core_->family->outputs);
}

std::vector<plan::ResultExtent> SessionFamily::varying_outputs() const {
  return plan::visible_extents(plan::named_outputs(core_->members.back().plan()));
}

plan::FamilyLedger SessionFamily::ledger() const {
  std::vector<const plan::Plan*> plans;
  for (const Session& member : core_->members) plans.push_back(&member.plan());
  return plan::family_ledger(plans, !core_->alone());
}

FamilyStep SessionFamily::submit(std::span<const InputTensor> inputs, const StepCall& call) {
  return *submit(inputs, false, call);
}
std::optional<FamilyStep> SessionFamily::try_submit(std::span<const InputTensor> inputs, const StepCall& call) {
  return submit(inputs, true, call);
}

void SessionFamily::run(std::span<const InputTensor> inputs, std::span<const OutputTensor> outputs) {
  const plan::Family& family = *core_->family;
  SLUICE_CHECK(outputs.size() == family.outputs.size(), "session '{}': memory for {} results; the plan gives {}",
               family.name, outputs.size(), family.outputs.size());
  if (!core_->alone()) {
    submit(inputs, {.outputs = outputs}).outputs();
    return;
  }
  StepHandle step = core_->members.front().submit(inputs, {.outputs = outputs});
  core_->tracing.note(0, step.step(), step.step(), {});
  step.wait().throw_if_error();
  step.let_go_of_outputs();
}

namespace {

std::vector<plan::Part> parts_of_call(const plan::Family& family, std::span<const InputTensor> inputs) {
  std::vector<Shape> shapes;
  for (const InputTensor& input : inputs) shapes.push_back(input.spec.shape);
  const plan::Extents extents = plan::extents_of(family, shapes);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const plan::FamilyPort& port = family.inputs[i];
    const TensorSpec& spec = inputs[i].spec;
    SLUICE_CHECK_KIND(kType, spec.dtype == port.dtype, "graph '{}': argument '{}' has dtype {}; expected {}",
                      family.name, port.name, dtype_name(spec.dtype), dtype_name(port.dtype));
    SLUICE_CHECK(spec.strides.rank() == spec.shape.rank() && (inputs[i].data != nullptr || numel(spec.shape) == 0),
                 "graph '{}': argument '{}': got no data; expected {}", family.name, port.name,
                 TensorType{spec.dtype, spec.shape}.str());
  }
  return plan::parts_of(family, extents);
}

}  // namespace

std::optional<FamilyStep> SessionFamily::submit(std::span<const InputTensor> inputs, bool try_only,
                                                const StepCall& call) {
  Core& core = *core_;
  FamilyStep step;
  step.state_ = std::make_shared<FamilyStep::State>();
  FamilyStep::State& state = *step.state_;
  if (core.alone()) {
    std::optional<StepHandle> handle =
        try_only ? core.members.front().try_submit(inputs, call) : core.members.front().submit(inputs, call);
    if (!handle) return std::nullopt;
    state.number = handle->step();
    core.tracing.note(0, state.number, state.number, call.tag);
    state.steps.push_back(*std::move(handle));
    return step;
  }
  SLUICE_CHECK(call.outputs.empty() || call.outputs.size() == core.family->outputs.size(),
               "session '{}': memory for {} results; the plan gives {}", core.family->name, call.outputs.size(),
               core.family->outputs.size());
  state.family = core.family;
  state.given.assign(call.outputs.begin(), call.outputs.end());
  StepCall of_part{.tag = call.tag, .deadline = call.deadline, .priority = call.priority};
  state.parts = parts_of_call(*core.family, inputs);
  state.on_output = core.on_output;
  state.on_done = call.on_done;
  if (core.on_output || call.on_done) {
    of_part.on_done = [shared = step.state_](const Status& status, const std::vector<OutputTensor>& outputs) {
      shared->part_done(status, outputs);
    };
  }
  std::unique_lock telling(core.telling, std::defer_lock);
  if (core.on_output) telling.lock();
  state.number = core.submitted++;
  for (const plan::Part& part : state.parts) {
    const bool may_wait = !try_only || !state.steps.empty();
    const PartInputs given(*core.family, part, inputs, state.parts.size() == 1);
    Session& member = core.members[part.member];
    std::optional<StepHandle> handle =
        may_wait ? member.submit(given.tensors(), of_part) : member.try_submit(given.tensors(), of_part);
    if (!handle) return std::nullopt;
    core.tracing.note(part.member, handle->step(), state.number, call.tag);
    state.steps.push_back(*std::move(handle));
  }
  return step;
}

void SessionFamily::wait_all() {
  for (Session& member : core_->members) member.wait_all();
}

void SessionFamily::reset() {
  for (Session& member : core_->members) member.reset();
  core_->tracing.forget();
}

void SessionFamily::stop() {
  for (Session& member : core_->members) member.stop();
}

void SessionFamily::set_trace(bool on) { core_->tracing.set(core_->members, on); }
FamilyTrace SessionFamily::take_trace() { return core_->tracing.take(core_->members, core_->alone()); }

namespace {

// The members share what their arenas have in common, their variables, and packed copies of those.
void count_bytes(const std::vector<Session>& members, SessionStats& stats) {
  std::map<std::string, uint64_t> arenas, variables;
  uint64_t bytes = 0, mapped = 0;
  for (const Session& member : members) {
    uint64_t of_member = 0;
    for (const SessionMemory::Space& space : member.memory().spaces) {
      bytes += space.total() - space.shared - space.variables - space.packed;
      arenas[space.name] = std::max(arenas[space.name], space.shared);
      variables[space.name] = std::max(variables[space.name], space.variables);
      of_member += space.mapped;
    }
    mapped = std::max(mapped, of_member);
  }
  std::vector<const plan::Plan*> plans;
  for (const Session& member : members) plans.push_back(&member.plan());
  const plan::FamilyLedger ledger = plan::family_ledger(plans, true);
  bytes += ledger.packed;
  stats.shared = ledger.shared;
  for (const auto& shared : {arenas, variables})
    for (const auto& [space, size] : shared) bytes += size;
  stats.bytes = bytes;
  stats.mapped = mapped;
}

}  // namespace

SessionStats SessionFamily::stats() const {
  if (core_->members.size() == 1) return core_->members.front().stats();
  SessionStats all;
  count_bytes(core_->members, all);
  for (size_t m = 0; m < core_->members.size(); ++m) {
    SessionStats stats = core_->members[m].stats();
    all.submitted += stats.submitted;
    all.finished += stats.finished;
    all.failed += stats.failed;
    all.in_flight += stats.in_flight;
    all.waiting += stats.waiting;
    all.max_in_flight = std::max(all.max_in_flight, stats.max_in_flight);
    const std::string prefix = std::to_string(m) + "/";
    const int streams = static_cast<int>(all.streams.size());
    for (ActorStats& actor : stats.actors) {
      actor.name = prefix + actor.name;
      actor.stream += streams;
      all.actors.push_back(std::move(actor));
    }
    for (StreamStats& stream : stats.streams) {
      stream.name = prefix + stream.name;
      all.streams.push_back(std::move(stream));
    }
    for (RegisterStats& reg : stats.registers) {
      reg.name = prefix + reg.name;
      all.registers.push_back(std::move(reg));
    }
    for (KernelLibrary& library : stats.libraries) {
      library.name = prefix + library.name;
      all.libraries.push_back(std::move(library));
    }
  }
  return all;
}

}  // namespace sluice
