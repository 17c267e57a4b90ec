// The public C++ API, forwarded to the runtime. Errors change their type at this border, and nothing else does.
#include <cstring>
#include <map>

#include "include/sluice/sluice.hpp"
#include "plan/foreign/foreign.h"
#include "runtime/api/api_support.h"
#include "runtime/bundle/bundle.h"
#include "runtime/family/family.h"
#include "runtime/session/engine.h"
#include "runtime/session/session.h"
#include "streams/collective/world.h"

namespace sluice::api {
namespace {

// The public headers are installed without those of base, so they have lists of their own, in the same order: values
// are cast at this border.
template <class Public, class Inner>
constexpr bool same(Public a, Inner b) {
  return static_cast<int>(a) == static_cast<int>(b);
}
using InnerKind = sluice::ErrorKind;
using InnerType = sluice::DType;
static_assert(same(ErrorKind::kValue, InnerKind::kValue) && same(ErrorKind::kType, InnerKind::kType) &&
              same(ErrorKind::kIndex, InnerKind::kIndex) && same(ErrorKind::kRuntime, InnerKind::kRuntime) &&
              same(ErrorKind::kUnsupported, InnerKind::kUnsupported) && same(ErrorKind::kMemory, InnerKind::kMemory) &&
              same(ErrorKind::kTimeout, InnerKind::kTimeout) && same(ErrorKind::kIo, InnerKind::kIo) &&
              same(ErrorKind::kCancelled, InnerKind::kCancelled) && same(ErrorKind::kDevice, InnerKind::kDevice) &&
              same(ErrorKind::kEndOfData, InnerKind::kEndOfData) && same(ErrorKind::kLinAlg, kLastErrorKind));
static_assert(same(DType::kBool, InnerType::kBool) && same(DType::kUInt8, InnerType::kUInt8) &&
              same(DType::kInt8, InnerType::kInt8) && same(DType::kInt16, InnerType::kInt16) &&
              same(DType::kInt32, InnerType::kInt32) && same(DType::kInt64, InnerType::kInt64) &&
              same(DType::kFloat16, InnerType::kFloat16) && same(DType::kBFloat16, InnerType::kBFloat16) &&
              same(DType::kFloat32, InnerType::kFloat32) && same(DType::kFloat64, InnerType::kFloat64) &&
              same(DType::kComplex64, InnerType::kComplex64) && same(DType::kComplex128, InnerType::kComplex128) &&
              static_cast<int>(DType::kComplex128) + 1 == kNumDTypes);

std::vector<Tensor> tensors_of(const std::vector<OutputTensor>& outputs) {
  std::vector<Tensor> tensors;
  for (const OutputTensor& output : outputs) tensors.push_back(tensor_of(output));
  return tensors;
}

InputTensor input_of(const Tensor& tensor) { return {tensor.raw(), TensorSpec::contiguous(type_of(tensor))}; }

// The input of a step that copies its inputs, which it can do from host memory.
InputTensor borrowed(const Tensor& tensor, const std::vector<Port>& ports, size_t index) {
  SLUICE_CHECK(space_of(tensor).kind != plan::SpaceKind::kDevice,
               "session: input {}: {} on {}; must lie in host memory, or be handed over by hand_over()",
               index < ports.size() ? "'" + ports[index].name + "'" : std::to_string(index), tensor.str(),
               tensor.device());
  return input_of(tensor);
}

std::vector<InputTensor> inputs_of(const std::vector<Tensor>& tensors, const std::vector<Port>& ports) {
  std::vector<InputTensor> inputs;
  for (size_t i = 0; i < tensors.size(); ++i) inputs.push_back(borrowed(tensors[i], ports, i));
  return inputs;
}

std::vector<InputTensor> inputs_to_keep(const std::vector<Tensor>& tensors) {
  std::vector<InputTensor> inputs;
  for (const Tensor& tensor : tensors) {
    inputs.push_back(input_of(tensor));
    inputs.back().storage = storage_of(tensor);
  }
  return inputs;
}

std::vector<OutputTensor> places_of(const std::vector<Tensor>& tensors) {
  std::vector<OutputTensor> places;
  for (const Tensor& tensor : tensors) places.push_back({type_of(tensor), storage_of(tensor)});
  return places;
}

// Vectors whose memory this thread keeps from call to call. A call within a call has its own.
template <class T>
class Kept {
 public:
  Kept() : values_(std::move(kept())) {}
  ~Kept() {
    values_.clear();
    kept() = std::move(values_);
  }
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;
  std::vector<T>& operator*() { return values_; }

 private:
  static std::vector<T>& kept() {
    static thread_local std::vector<T> values;
    return values;
  }
  std::vector<T> values_;
};

// The limit that options give, where 0 stands for none.
Timeout limit_of(std::chrono::milliseconds ms, const char* what) {
  const Timeout timeout = timeout_of(ms, what);
  return timeout == Timeout::zero() ? kNoTimeout : timeout;
}

}  // namespace

const Error& out_of_memory() {
  static const auto* const error =
      new Error(ErrorKind::kMemory, "sluice: out of memory");  // threads may outlive main()
  return *error;
}
[[maybe_unused]] static const Error& made_at_start = out_of_memory();

const char* version() { return SLUICE_VERSION; }

Engine::Engine(EngineOptions options) {
  guarded([&] {
    sluice::EngineOptions o;
    o.cores = options.cores;
    o.watchdog = std::chrono::milliseconds(options.watchdog_ms);
    o.cpus = options.cpus;
    const int spin = static_cast<int>(options.spin);
    SLUICE_CHECK(spin >= 0 && spin <= static_cast<int>(Spin::kAlways), "engine: spin: {}; must be one of Spin", spin);
    o.spin = static_cast<sluice::Spin>(options.spin);
    o.memory = {std::move(options.memory.allocate), std::move(options.memory.release)};
    SLUICE_CHECK(options.stop_timeout_ms >= 0, "engine: stop_timeout_ms: {}; must not be negative",
                 options.stop_timeout_ms);
    o.stop_timeout = std::chrono::milliseconds(options.stop_timeout_ms);
    SLUICE_CHECK(options.replay_messages.empty() || !options.shuffle_messages.has_value(),
                 "engine: replay_messages and shuffle_messages are both set; an order is replayed or chosen");
    SLUICE_CHECK(options.record_messages.empty() || options.record_messages != options.replay_messages,
                 "engine: record_messages: '{}' is also replayed; record to another file", options.record_messages);
    o.record_messages = std::move(options.record_messages);
    o.replay_messages = std::move(options.replay_messages);
    o.manual_stepping = options.shuffle_messages.has_value();
    o.seed = options.shuffle_messages.value_or(0);
    impl_ = std::make_unique<sluice::Engine>(std::move(o));
  });
}
Engine::~Engine() = default;
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;
void Engine::join(const WorldOptions& options) {
  guarded([&] {
    SLUICE_CHECK(options.timeout_ms >= 0, "engine: timeout_ms: {}; must not be negative", options.timeout_ms);
    collective::WorldOptions o;
    o.rank = options.rank;
    o.size = options.size;
    o.master = {options.master_host, options.master_port};
    o.token = options.token;
    o.timeout = std::chrono::milliseconds(options.timeout_ms);
    o.heartbeat = std::chrono::milliseconds(options.heartbeat_ms);
    sluice::Engine& engine = inside(*this);
    engine.join(std::make_shared<collective::World>(o));
  });
}
int Engine::cores() const { return inside(*this).cores(); }
void Engine::load_extension(const std::string& path) {
  guarded([&] { inside(*this).load_extension(path); });
}
std::string Engine::load_backend(const std::string& path) {
  return guarded([&] {
    if (plan::is_foreign(path)) return plan::load_foreign(path).name();
    return inside(*this).load_backend(path).str();
  });
}
uint64_t Engine::memory_bytes() const {
  return guarded([&] { return inside(*this).allocator_stats({}).current_bytes; });
}
uint64_t Engine::peak_memory_bytes() const {
  return guarded([&] { return inside(*this).allocator_stats({}).peak_bytes; });
}

namespace {
constexpr const char* kResultSource = "Session::submit()";
}  // namespace

uint64_t Result::step() const {
  return guarded([&] { return held(impl_, "result", kResultSource).step(); });
}
bool Result::ready() const {
  return guarded([&] { return held(impl_, "result", kResultSource).done(); });
}
std::vector<Tensor> Result::get() {
  return guarded([&] { return tensors_of(held(impl_, "result", kResultSource).outputs()); });
}
std::vector<Tensor> Result::get(std::chrono::milliseconds timeout) {
  return guarded([&] {
    FamilyStep& handle = held(impl_, "result", kResultSource);
    handle.wait(timeout_of(timeout, "result: timeout")).throw_if_error();
    return tensors_of(handle.outputs());
  });
}

bool Result::cancel() {
  return guarded([&] { return held(impl_, "result", kResultSource).cancel(); });
}

Session::Session(std::unique_ptr<sluice::SessionFamily> impl) : impl_(std::move(impl)) {
  const plan::Family& family = impl_->family();
  inputs_ = ports_of(family, impl_->inputs(), family.inputs);
  outputs_ = ports_of(family, impl_->outputs(), family.outputs);
  name_varying(outputs_, impl_->varying_outputs());
}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

namespace {

// Options of embedders as the session's own; `what` is for errors.
template <class T>
void take_option(const T& given, T& option, const std::string& /*what*/) {
  option = given;
}
void take_option(std::chrono::milliseconds given, Timeout& option, const std::string& what) {
  option = limit_of(given, what.c_str());
}
void take_option(std::chrono::microseconds given, Timeout& option, const std::string& what) {
  SLUICE_CHECK(given.count() >= 0, "{}: {} us; must not be negative", what, given.count());
  option = given;
}

sluice::SessionOptions options_of(SessionOptions& options) {
  sluice::SessionOptions o;
#define OPTION(...)
#define OBJECT(...)
#define PUBLIC(type, name, ...) take_option(options.name, o.name, "session: " #name);
#include "runtime/options.inc"
  if (options.on_output) {
    o.on_output = [f = std::move(options.on_output)](uint64_t step, const Status& status,
                                                     const std::vector<OutputTensor>& outputs) {
      f(step, status.ok() ? tensors_of(outputs) : std::vector<Tensor>(),
        status.ok() ? std::string() : status.message());
    };
  }
  return o;
}

// `places` is of options.outputs, and must outlive it.
StepCall call_of(const StepOptions& options, std::span<const OutputTensor> places) {
  StepCall call{.tag = options.tag, .outputs = places, .priority = options.priority};
  const Timeout limit = limit_of(options.deadline, "step: deadline");
  if (limit != kNoTimeout) call.deadline = std::chrono::steady_clock::now() + limit;
  if (options.on_done) {
    call.on_done = [f = options.on_done](const Status& status, const std::vector<OutputTensor>& outputs) {
      f(status.ok() ? tensors_of(outputs) : std::vector<Tensor>(), status.ok() ? std::string() : status.message());
    };
  }
  return call;
}

// Borrowed, also where Sluice has made the memory: steps must not write to it.
Weights weights_of(const std::vector<NamedTensor>& tensors) {
  Weights weights;
  for (const NamedTensor& w : tensors) {
    const TensorSpec spec = TensorSpec::contiguous(type_of_whole(w.name, w.tensor));
    weights[w.name] = {spec, std::make_shared<Storage>(w.tensor.raw(), w.tensor.bytes(), [kept = w.tensor] {})};
  }
  return weights;
}

DataRoots roots_of(const std::vector<DataRoot>& roots) {
  std::map<std::string, std::string> found_at;
  for (const DataRoot& root : roots) found_at[root.folder] = root.found_at;
  return DataRoots(found_at);
}

}  // namespace

struct Session::Loader {
  static Session load(Engine& engine, const BundleSource& source, SessionOptions options) {
    sluice::SessionOptions o = options_of(options);
    o.arenas = options.arenas.impl_;
    return Session(std::make_unique<SessionFamily>(SessionFamily::load(
        inside(engine), source, std::move(o), weights_of(options.weights), roots_of(options.data_roots))));
  }
};

Session Session::load(Engine& engine, const std::string& bundle, SessionOptions options) {
  return guarded([&] { return Loader::load(engine, bundle, std::move(options)); });
}

Session Session::load(Engine& engine, std::shared_ptr<const void> archive, size_t bytes, SessionOptions options) {
  return guarded([&] {
    return Loader::load(engine, BundleSource(std::move(archive), bytes, "bundle in memory"), std::move(options));
  });
}

Result Session::submit(const std::vector<Tensor>& inputs) { return submit(inputs, StepOptions()); }
Result Session::submit(const std::vector<Tensor>& inputs, const StepOptions& options) {
  return guarded([&] {
    Result result;
    const std::vector<OutputTensor> places = places_of(options.outputs);
    result.impl_ =
        std::make_shared<FamilyStep>(inside(*this).submit(inputs_of(inputs, inputs_), call_of(options, places)));
    return result;
  });
}

Result Session::hand_over(std::vector<Tensor> inputs) { return hand_over(std::move(inputs), StepOptions()); }
Result Session::hand_over(std::vector<Tensor> inputs, const StepOptions& options) {
  return guarded([&] {
    Result result;
    const std::vector<OutputTensor> places = places_of(options.outputs);
    result.impl_ = std::make_shared<FamilyStep>(inside(*this).submit(inputs_to_keep(inputs), call_of(options, places)));
    return result;
  });
}

std::optional<Result> Session::try_submit(const std::vector<Tensor>& inputs) {
  return try_submit(inputs, StepOptions());
}
std::optional<Result> Session::try_submit(const std::vector<Tensor>& inputs, const StepOptions& options) {
  return guarded([&]() -> std::optional<Result> {
    const std::vector<OutputTensor> places = places_of(options.outputs);
    std::optional<FamilyStep> handle = inside(*this).try_submit(inputs_of(inputs, inputs_), call_of(options, places));
    if (!handle) return std::nullopt;
    Result result;
    result.impl_ = std::make_shared<FamilyStep>(*std::move(handle));
    return result;
  });
}

void Session::run_into(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs) {
  guarded([&] {
    Kept<InputTensor> given;
    Kept<OutputTensor> places;
    for (size_t i = 0; i < inputs.size(); ++i) (*given).push_back(borrowed(inputs[i], inputs_, i));
    for (const Tensor& tensor : outputs) (*places).push_back({type_of(tensor), storage_of(tensor)});
    inside(*this).run(*given, *places);
  });
}

std::vector<Tensor> Session::run(const std::vector<Tensor>& inputs) { return submit(inputs).get(); }
void Session::wait_all() {
  guarded([&] { inside(*this).wait_all(); });
}
void Session::reset() {
  guarded([&] { inside(*this).reset(); });
}
void Session::stop() {
  guarded([&] { inside(*this).stop(); });
}
std::vector<ActorCount> Session::firings() const {
  return guarded([&] {
    std::vector<ActorCount> counts;
    for (const ActorStats& actor : inside(*this).stats().actors) counts.push_back({actor.name, actor.firings});
    return counts;
  });
}

Counters Session::counters() const {
  return guarded([&] {
    const SessionStats stats = inside(*this).stats();
    Counters counters;
    counters.submitted = stats.submitted;
    counters.finished = stats.finished;
    counters.failed = stats.failed;
    counters.in_flight = stats.in_flight;
    counters.max_in_flight = stats.max_in_flight;
    counters.waiting = stats.waiting;
    counters.bytes = stats.bytes;
    counters.mapped = stats.mapped;
    counters.shared = stats.shared;
    counters.input_copies = stats.input_copies;
    counters.output_copies = stats.output_copies;
    for (const ActorStats& a : stats.actors) {
      counters.actors.push_back({a.name, a.firings, a.waits, a.busy_ns, a.stream});
    }
    for (const StreamStats& s : stats.streams) counters.streams.push_back({s.name, s.busy_ns, s.parks});
    for (const RegisterStats& r : stats.registers) {
      counters.registers.push_back({r.name, r.tokens, r.quota, r.used, r.ready, r.peak});
    }
    counters.text = stats.str();
    return counters;
  });
}

}  // namespace sluice::api
