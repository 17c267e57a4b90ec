// Eager calls of devices other than the cpu, and what goes between devices.
#include <cstring>

#include "graph/origin.h"
#include "graph/tape.h"
#include "runtime/session/engine.h"
#include "tensor/call_cache.h"
#include "tensor/device_queue.h"
#include "tensor/eager.h"
#include "tensor/eager_memory.h"

namespace sluice {
namespace {

std::string short_name(const DeviceId& device) { return device == DeviceId{} ? "cpu" : device.str(); }

}  // namespace

std::vector<Value> EagerExecutor::placed(const OpDef& op, std::span<const Value> inputs) {
  const Value* home = nullptr;
  for (const Value& input : inputs) {
    if (!input.defined() || input.device().kind == DeviceKind::kCpu) continue;
    if (home == nullptr || (home->rank() == 0 && input.rank() > 0)) home = &input;
  }
  SLUICE_CHECK_KIND(kRuntime, home != nullptr, "{}: its inputs lie with several ranks; exchange them first", op.name);
  std::vector<Value> moved(inputs.begin(), inputs.end());
  for (size_t i = 0; i < moved.size(); ++i) {
    if (!moved[i].defined() || moved[i].device() == home->device()) continue;
    const bool follows = moved[i].device().kind == DeviceKind::kCpu && (moved[i].rank() == 0 || (op.random && i == 0));
    SLUICE_CHECK_KIND(kRuntime, follows,
                      "{}: Expected all tensors to be on the same device, but found at least two devices, {} and {}!",
                      op.name, short_name(home->device()), short_name(moved[i].device()));
    moved[i] = move_to(moved[i], home->device());
  }
  return moved;
}

std::shared_ptr<const Provenance> EagerExecutor::origin() {
  const OriginScope* scope = OriginScope::innermost();
  return scope == nullptr || scope->of() == nullptr ? nullptr : std::make_shared<Provenance>(*scope->of());
}

std::vector<Value> EagerExecutor::call_on_device(const OpDef& op, std::span<const Value> inputs, const CallPlan& plan) {
  DeviceQueue& queue = this->queue(plan.device);
  std::vector<const void*> in(inputs.size(), nullptr);
  std::vector<void*> out;
  std::vector<std::shared_ptr<EagerImpl>> made, temporaries;
  std::vector<Storage*> written;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) continue;
    const auto& impl = static_cast<const EagerImpl&>(*inputs[i].impl());
    impl.storage()->before_read(&queue);
    queue.check(*impl.storage());
    in[i] = impl.data();
    if (!plan.copied[i]) continue;
    temporaries.push_back(allocate(impl.type(), plan.device));
    copy_strided(impl.spec(), impl.data(), plan.operands[i], *temporaries.back());
    in[i] = temporaries.back()->data();
  }
  for (const TensorType& type : plan.outputs) {
    made.push_back(allocate(type, plan.device));
    out.push_back(made.back()->data());
    written.push_back(made.back()->storage().get());
  }
  queue.launch(plan.kernel, {.inputs = in.data(), .outputs = out.data()}, op.name, plan.threads, written);
  if (op.effectful) queue.synchronize();  // a function of the program's may go when this returns
  std::vector<Value> outputs;
  for (size_t i = 0; i < made.size(); ++i) {  // eager results are contiguous, as torch's are
    if (!is_contiguous(plan.results[i].shape, plan.results[i].strides)) {
      const auto plain = allocate(plan.outputs[i], plan.device);
      copy_strided(plan.results[i], out[i], plain->spec(), *plain);
      made[i] = plain;
    }
    outputs.emplace_back(std::move(made[i]));
  }
  return outputs;
}

// --- Copies ---

Value EagerExecutor::copy(const Value& value) {
  const EagerImpl& from = eager_impl(value, "copy");
  const TensorSpec& spec = from.memory_spec();
  auto to = asked_by("copy", [&] { return allocate({spec.dtype, spec.shape}, from.device()); });
  if (from.device().kind == DeviceKind::kCpu) {
    from.storage()->before_read();
  } else {
    DeviceQueue& queue = this->queue(from.device());
    from.storage()->before_read(&queue);
    queue.check(*from.storage());
  }
  copy_strided(spec, from.data(), to->spec(), *to);
  return Value(std::move(to));
}

Value EagerExecutor::detach(const Value& value) { return Value(eager_impl(value, "detach").alias()); }

void EagerExecutor::assign(const Value& target, const Value& source) {
  EagerImpl& to = eager_impl(target, "assign");
  to.check_whole("assign");
  eager_impl(source, "assign").check_whole("assign");
  for (int i = 0; i < target.rank(); ++i)
    SLUICE_CHECK_KIND(
        kRuntime, to.spec().strides[i] != 0 || target.shape()[i] <= 1 || numel(target.shape()) == 0,
        "assign: unsupported operation: more than one element of the written-to tensor refers to a single "
        "memory location: {} with strides {}; clone() the tensor before writing",
        target.type().str(), to.spec().strides.str());
  const ExecutorScope here(*this);
  const GradMode off(false);
  Value from = source.device() == target.device() ? source : copy_to(source, target.device());
  if (from.dtype() != target.dtype()) from = Tensor(from).to(target.dtype());
  if (from.impl() == source.impl() && static_cast<EagerImpl&>(*source.impl()).storage() == to.storage() &&
      source.impl() != target.impl())
    from = copy(from);  // the two may overlap
  const EagerImpl& read = static_cast<const EagerImpl&>(*from.impl());
  // Broadcast by strides of zero; leading dims of one may be dropped, as torch's copy_ does not but assignment does.
  const Shape& shape = to.spec().shape;
  TensorSpec spec{read.spec().dtype, shape, Shape::filled(shape.rank(), 0)};
  const int lead = shape.rank() - read.spec().shape.rank();
  bool fits = lead >= 0;
  for (int i = 0; fits && i < read.spec().shape.rank(); ++i) {
    const int64_t dim = read.spec().shape[i];
    fits = dim == shape[lead + i] || dim == 1;
    spec.strides[lead + i] = dim == 1 ? 0 : read.spec().strides[i];
  }
  SLUICE_CHECK(fits, "assign: shapes do not fit: source is {}, target is {}; the source must broadcast to the target",
               source.shape().str(), target.shape().str());
  const bool on_cpu = to.device().kind == DeviceKind::kCpu;
  DeviceQueue* const queue = on_cpu ? nullptr : &this->queue(to.device());
  read.storage()->before_read(queue);
  if (queue != nullptr) {
    queue->check(*read.storage());
    // The part of the old content that stays must be there.
    if (checked_bytes(shape, dtype_size(to.spec().dtype)) < to.storage()->bytes()) queue->check(*to.storage());
  }
  const Writing writing(*to.storage(), queue);
  copy_strided(spec, read.data(), to.spec(), to);
  to.bump_version();
}

Value EagerExecutor::copy_to(const Value& value, const DeviceId& device) {
  const EagerImpl& impl = eager_impl(value, "to");
  const TensorType type{impl.memory_spec().dtype, impl.memory_spec().shape};
  return copy_into(value, asked_by("to", [&] { return allocate(type, device); }));
}

bool EagerExecutor::is_true(const Value& value) {
  const Value here = value.device().kind == DeviceKind::kCpu ? value : copy_to(value, {});
  return *static_cast<const bool*>(Tensor(here).read());
}

Value EagerExecutor::move_to(const Value& value, const DeviceId& device) {
  Value result = copy_to(value, device);
  record_function("to", {&value, 1}, {&result, 1},
                  [from = value.device()](std::span<const Value> grads) -> std::vector<Value> {
                    return {Tensor(grads[0]).to(from)};
                  });
  return result;
}

Value EagerExecutor::copy_for_plan(const Value& value, const DeviceId& device) {
  const std::shared_ptr<Allocator> memory = device.kind == DeviceKind::kCpu ? nullptr : queue(device).plan_memory();
  if (memory == nullptr) return copy_to(value, device);
  const EagerImpl& impl = eager_impl(value, "to");
  DeviceQueue& queue = this->queue(device);
  const TensorType type{impl.memory_spec().dtype, impl.memory_spec().shape};
  auto to = asked_by("to", [&] { return allocate_tensor(memory, type, device, queue.space()); });
  to->storage()->attach(queue.weak_from_this(), true);
  return copy_into(value, std::move(to));
}

// REQUIRES: `to` is contiguous, and of the type that the value's memory has.
Value EagerExecutor::copy_into(const Value& value, std::shared_ptr<EagerImpl> to) {
  const bool dense = is_contiguous(value.shape(), eager_impl(value, "to").spec().strides);
  const Value from = dense ? value : copy(value);
  const EagerImpl& read = static_cast<const EagerImpl&>(*from.impl());
  const uint64_t bytes = to->storage()->bytes();
  const bool from_cpu = read.device().kind == DeviceKind::kCpu, to_cpu = to->device().kind == DeviceKind::kCpu;
  if (from_cpu) {
    read.storage()->before_read();
    if (to_cpu)
      std::memcpy(to->data(), read.data(), bytes);
    else
      queue(to->device()).copy_from_host(*to->storage(), to->data(), read.data(), bytes);
    return Value(std::move(to));
  }
  DeviceQueue& source = queue(read.device());
  read.storage()->before_read(&source);
  if (read.device() == to->device()) {
    source.check(*read.storage());
    copy_strided(read.spec(), read.data(), to->spec(), *to);
  } else if (to_cpu) {
    source.copy_to_host(to->data(), *read.storage(), read.data(), bytes);
  } else {  // two devices meet on the host
    const Value there = copy_to(from, {});
    queue(to->device()).copy_from_host(*to->storage(), to->data(), Tensor(there).read(), bytes);
  }
  return Value(std::move(to));
}

// --- All devices ---

void EagerExecutor::synchronize() {
  for (const auto& queue : queues()) queue->synchronize();
}

void EagerExecutor::close(std::chrono::milliseconds timeout) noexcept {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (const auto& queue : queues()) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    queue->close(std::max(left, std::chrono::milliseconds::zero()));
  }
}

}  // namespace sluice
