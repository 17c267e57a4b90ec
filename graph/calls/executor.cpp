#include "graph/executor.h"

#include <algorithm>
#include <atomic>

#include "graph/calls/call_fix.h"
#include "graph/routing.h"
#include "graph/tape.h"

namespace sluice {
namespace {

thread_local Executor* scoped_executor = nullptr;
thread_local Router* router = nullptr;
thread_local DeviceId creating_on;
std::atomic<Executor*> default_executor{nullptr};

}  // namespace

Executor& current_executor() {
  if (scoped_executor) return *scoped_executor;
  Executor* executor = default_executor.load(std::memory_order_acquire);
  SLUICE_CHECK_KIND(kRuntime, executor != nullptr,
                    "ops: no executor: none is set on this thread or process; make an engine or open a trace scope");
  return *executor;
}

void set_default_executor(Executor* executor) { default_executor.store(executor, std::memory_order_release); }

void set_router(Router* now) { router = now; }

bool Executor::is_true(const Value& value) {
  fail(
      ErrorKind::kUnsupported,
      "loop: a value of the graph decides how often it runs: {}; gradients, and devices other than the cpu, need scan, "
      "whose length is fixed",
      value.type().str());
}

ExecutorScope::ExecutorScope(Executor& executor) : previous_(std::exchange(scoped_executor, &executor)) {}

ExecutorScope::~ExecutorScope() { scoped_executor = previous_; }

const DeviceId& creation_device() { return creating_on; }
CreationScope::CreationScope(const DeviceId& device) : previous_(std::exchange(creating_on, device)) {}
CreationScope::~CreationScope() { creating_on = previous_; }

std::vector<Value> call(const OpDef& op, std::span<const Value> inputs, Attrs attrs) {
  check_input_count(op, inputs.size());
  std::vector<Value> padded;
  if (!op.variadic() && inputs.size() < op.inputs.size()) {
    padded.assign(inputs.begin(), inputs.end());
    padded.resize(op.inputs.size());
    inputs = padded;
  }
  attrs = validate_attrs(op, std::move(attrs));
  std::vector<Value> changed;
  if (CallFixes::active()) {
    changed.assign(inputs.begin(), inputs.end());
    CallFixes::apply(op, changed, attrs);
    inputs = changed;
  }
  const DeviceId* device = nullptr;
  bool mixed = false;
  for (const Value& input : inputs) {
    if (!input.defined()) continue;
    input.impl()->refresh_history();
    if (device == nullptr)
      device = &input.device();
    else
      mixed |= input.device() != *device;
  }
  std::vector<Value> routed;
  if (router != nullptr) routed = router->routed(inputs);
  if (!routed.empty()) inputs = routed;
  std::vector<Value> outputs, placed;
  try {
    if (mixed) placed = current_executor().placed(op, inputs);
    if (!placed.empty()) inputs = placed;
    outputs = current_executor().call(op, inputs, attrs);
  } catch (const Error& error) {
    CallFixes::rethrow(op, inputs, attrs, prefixed(op, error));
  }
  const bool differentiable =
      grad_enabled() && std::any_of(inputs.begin(), inputs.end(), [](const Value& v) { return v.requires_grad(); });
  if (differentiable) record_call(op, inputs, attrs, outputs);
  return outputs;
}

Value call1(const OpDef& op, std::initializer_list<Value> inputs, Attrs attrs) {
  std::vector<Value> outputs = call(op, std::span<const Value>(inputs.begin(), inputs.size()), std::move(attrs));
  SLUICE_CHECK_KIND(kRuntime, outputs.size() == 1, "{}: has {} outputs; call1() takes ops of one", op.name,
                    outputs.size());
  return std::move(outputs[0]);
}

}  // namespace sluice
