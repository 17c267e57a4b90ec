#include "tensor/eager.h"

#include <algorithm>
#include <boost/container/small_vector.hpp>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "base/denormals.h"
#include "base/layout.h"
#include "graph/calls/made_of.h"
#include "graph/kernel_check.h"
#include "graph/ops/fused.h"
#include "graph/ops/micro_batches.h"
#include "graph/tape.h"
#include "kernels/kernel_cache.h"
#include "memory/core_lease.h"
#include "memory/counted_bytes.h"
#include "plan/layout.h"
#include "runtime/bundle/bundle.h"
#include "runtime/extension.h"
#include "runtime/session/engine.h"
#include "streams/stream.h"
#include "tensor/call_cache.h"
#include "tensor/device_queue.h"
#include "tensor/eager_memory.h"
#include "tensor/extension.h"

namespace sluice {
namespace {

constexpr size_t kCachedCalls = 4096;

// Holds a value for each operand, on the stack where there are few.
template <class T>
using Few = boost::container::small_vector<T, 8>;

thread_local const HostFunctions* current_functions = nullptr;
thread_local OverwriteScope* overwriting = nullptr;

void check_local(const OpDef& op, const EagerImpl& impl, size_t i) {
  if (!impl.global) [[likely]]
    return;
  const std::string name = op.variadic() ? fmt::format("input {}", i) : op.inputs[i];
  fail(ErrorKind::kUnsupported,
       "{}: {} is a global tensor: {}; eager ops do not run on several devices: call it inside nn.Graph, or on "
       ".to_local()",
       op.name, name, impl.global->str());
}

// The operand as its kernel takes it: as it lies, or as a copy of it will.
TensorSpec taken(plan::Layout layout, const TensorSpec& given) {
  return plan::fits(layout, given) ? canonical(given) : plan::with_layout(given, layout);
}

struct Operands {
  DeviceId device;     // where those that are there lie
  bool any = false;    // at least one is there
  bool mixed = false;  // they lie on several devices, and those behind the first other device were not looked at
};

// Writes the spec of each operand, null for an absent one, and refuses global tensors.
[[gnu::always_inline]] inline Operands look_at(const OpDef& op, std::span<const Value> inputs,
                                               const TensorSpec** specs) {
  Operands operands;
  for (size_t i = 0; i < inputs.size(); ++i) {
    specs[i] = nullptr;
    if (!inputs[i].defined()) continue;
    const EagerImpl& impl = eager_impl(inputs[i], op.name);
    check_local(op, impl, i);
    specs[i] = &impl.spec();
    if (operands.any && impl.device() != operands.device) [[unlikely]] {
      operands.mixed = true;
      return operands;
    }
    operands.device = impl.device();
    operands.any = true;
  }
  return operands;
}

}  // namespace

struct EagerExecutor::Impl {
  explicit Impl(Engine& engine)
      : leases(engine.leases()),
        workers(engine.workers()),
        kernels(engine.kernel_cache()),
        host_memory(engine.caching_allocator()),
        threads(engine.cores()) {}

  CoreLeases& leases;
  WorkerThreads& workers;
  KernelCache& kernels;
  std::shared_ptr<Allocator> host_memory;
  std::atomic<int> threads;
  std::atomic<bool> flush_denormals{false};
  std::atomic<bool> timed{false};
  mutable std::atomic<uint64_t> kernel_ns{0}, kernel_calls{0};
  const std::shared_ptr<OpRegistry> ops = std::make_shared<OpRegistry>(builtin_ops());
  std::mutex extensions_mutex;
  size_t extensions = 0;  // of the engine's that `ops` has
  CallCache cache{kCachedCalls};

  std::shared_ptr<const CallPlan> prepare(const CallKey& key) const;
  std::optional<graph::OnePass> steps_in_one_pass(const CallKey& key, Types types) const;
  Value made_number(const graph::OnePass::Number& number) const;
  std::shared_ptr<const CallPlan> plan_for(const CallKey& key);
  void run(const PreparedKernel& kernel, KernelArgs args, int cores) const;
  // Not at every call, whose kernel may take less time.
  void look_at_workers() const {
    thread_local uint32_t calls = 0;
    if (++calls % 16 == 0) workers.look();
  }
  void copy_on_host(const TensorSpec& from, const void* source, const TensorSpec& to, void* target);

  std::mutex queues_mutex;
  const ForkLock queues_fork_lock{queues_mutex};
  std::map<DeviceId, std::shared_ptr<DeviceQueue>> queues;
};

void EagerExecutor::Impl::run(const PreparedKernel& kernel, KernelArgs args, int cores) const {
  const uint64_t bytes = kernel.workspace_bytes();
  if (bytes) args.workspace = host_memory->allocate(bytes);
  struct Free {
    const Impl& impl;
    void* data;
    uint64_t bytes;
    ~Free() {
      if (data) impl.host_memory->deallocate(data, bytes);
    }
  } free{*this, args.workspace, bytes};
  if (cores > 1) look_at_workers();
  const CoreLease lease(leases, kernel.needs_cores() ? cores : 0);
  const DenormalScope denormals(kernel.needs_cores() && flush_denormals.load(std::memory_order_relaxed));
  if (!timed.load(std::memory_order_relaxed)) [[likely]]
    return kernel.run(args);
  const auto begin = std::chrono::steady_clock::now();
  kernel.run(args);
  const auto took = std::chrono::steady_clock::now() - begin;
  kernel_ns += static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(took).count());
  ++kernel_calls;
}

// An elementwise op without a kernel runs as the body of a fused one, where its device has that.
std::optional<graph::OnePass> EagerExecutor::Impl::steps_in_one_pass(const CallKey& key, Types types) const {
  const KernelTable& table = kernels.table();
  if (!table.find(ops::fused_op().name, key.device.kind)) return {};
  if (std::find(key.inputs.begin(), key.inputs.end(), nullptr) != key.inputs.end()) return {};
  auto pass = graph::steps_of(*key.op, types, *key.attrs, key.device, [&](const plan::KernelQuery& query) {
    const KernelDef* def = table.find(query.op, query.device.kind);
    return def != nullptr && def->can_fuse != nullptr && def->can_fuse(query);
  });
  // A plan keeps its numbers, and device memory must not outlive its queue.
  if (pass && !pass->numbers.empty() && key.device.kind != DeviceKind::kCpu) return {};
  return pass;
}

// A tensor without dims in host memory.
Value EagerExecutor::Impl::made_number(const graph::OnePass::Number& number) const {
  const auto made = allocate_tensor(host_memory, {number.dtype, {}}, {});
  const plan::KernelQuery query{"full", number.full, {}, {made->spec()}, {}, 1};
  void* outputs[] = {made->data()};
  run(*kernels.get(query), {{}, outputs, nullptr, nullptr}, 1);
  return Value(made);
}

std::shared_ptr<const CallPlan> EagerExecutor::Impl::prepare(const CallKey& key) const {
  const OpDef& op = *key.op;
  auto plan = std::make_shared<CallPlan>();
  plan->op = key.op;
  plan->attrs = *key.attrs;
  plan->device = key.device;
  plan->threads = key.threads;
  plan->kernels = key.kernels;
  std::vector<TensorType> types;
  std::unique_ptr<bool[]> present(new bool[key.inputs.size() + 1]);
  for (size_t i = 0; i < key.inputs.size(); ++i) {
    present[i] = key.inputs[i] != nullptr;
    plan->present.push_back(present[i]);
    plan->inputs.push_back(key.inputs[i] ? *key.inputs[i] : TensorSpec{});
    types.push_back({plan->inputs[i].dtype, plan->inputs[i].shape});
  }
  plan->outputs = infer_types(op, types, {present.get(), key.inputs.size()}, *key.attrs);
  const KernelTable& table = kernels.table();
  const KernelDef* def = table.find(op.name, key.device.kind);
  const OpDef* made = &op;  // what the kernel is of
  Attrs attrs = *key.attrs;
  if (op.decompose && !def) {
    const std::optional<graph::OnePass> pass = steps_in_one_pass(key, types);
    if (!pass) {
      plan->decompose = true;
      return plan;
    }
    made = &ops::fused_op();
    attrs = {pass->body};
    for (const graph::OnePass::Number& number : pass->numbers) plan->numbers.push_back(made_number(number));
    def = table.find(made->name, key.device.kind);
  }
  SLUICE_CHECK_KIND(kUnsupported, def != nullptr || key.device.kind == DeviceKind::kCpu,
                    "{}: no kernel on {}; move its inputs with .to('cpu'), and the result back", op.name,
                    key.device.str());
  if (!def) def = &table.get(op.name, key.device.kind);  // throws, naming the op

  plan::KernelQuery query{made->name, name_attrs(*made, attrs), plan->inputs, {}, key.device, key.threads};
  for (const Value& number : plan->numbers) query.inputs.push_back(TensorSpec::contiguous(number.type()));
  for (const TensorType& type : plan->outputs) query.outputs.push_back(TensorSpec::contiguous(type));
  plan::LayoutPreference wanted;
  if (def->layouts) wanted = def->layouts(query);
  wanted.inputs.resize(query.inputs.size(), plan::Layout::kContiguous);
  wanted.outputs.resize(query.outputs.size(), plan::Layout::kContiguous);
  for (size_t i = 0; i < query.inputs.size(); ++i) {
    const TensorSpec given = query.inputs[i];
    query.inputs[i] = taken(wanted.inputs[i], given);
    plan->copied.push_back(!same_layout(query.inputs[i], given));
  }
  for (size_t i = 0; i < query.outputs.size(); ++i) query.outputs[i] = taken(wanted.outputs[i], query.outputs[i]);
  plan->kernel = kernels.get(query, current_functions);
  plan->in_place = def->in_place;
  plan->operands = std::move(query.inputs);
  plan->results = std::move(query.outputs);
  return plan;
}

std::shared_ptr<const CallPlan> EagerExecutor::Impl::plan_for(const CallKey& key) {
  const uint64_t hash = key.hash();
  if (auto plan = cache.find(key, hash)) return plan;
  auto plan = prepare(key);
  // A host function is looked up each time, since another may be registered under its name.
  if (!key.op->effectful) cache.insert(hash, plan);
  return plan;
}

void EagerExecutor::Impl::copy_on_host(const TensorSpec& from, const void* source, const TensorSpec& to, void* target) {
  if (numel(from.shape) == 0) return;
  plan::KernelQuery query{"copy", {}, {from}, {to}, {}, 1};
  const int64_t worth_threads = 1 << 16;
  const int cores = numel(from.shape) >= worth_threads ? threads.load(std::memory_order_relaxed) : 1;
  const auto kernel = kernels.table().get("copy", DeviceKind::kCpu).prepare(query, {cores, nullptr});
  void* outputs[] = {target};
  const void* inputs[] = {source};
  run(*kernel, {inputs, outputs, nullptr, nullptr}, cores);
}

void check_plans_from_files() {
  // Ops of extensions check their own requests.
  set_plan_check([](const plan::Plan& plan) { graph::check_kernels(plan, builtin_ops()); });
}

EagerExecutor::EagerExecutor(Engine& engine) : engine_(engine), impl_(std::make_unique<Impl>(engine)) {
  check_plans_from_files();
}
EagerExecutor::~EagerExecutor() { close(engine_.options().stop_timeout); }

void EagerExecutor::set_threads(int threads) {
  SLUICE_CHECK(threads >= 1, "set_threads: {}; must be at least 1", threads);
  impl_->threads = std::min(threads, engine_.cores());
}
int EagerExecutor::threads() const { return impl_->threads; }

void EagerExecutor::set_flush_denormals(bool on) { impl_->flush_denormals = on; }
bool EagerExecutor::flushes_denormals() const { return impl_->flush_denormals; }

void EagerExecutor::time_kernels(bool on) { impl_->timed = on; }
EagerExecutor::KernelTime EagerExecutor::kernel_time() const { return {impl_->kernel_ns, impl_->kernel_calls}; }

const OpRegistry& EagerExecutor::ops() {
  const auto loaded = engine_.extensions();
  const std::lock_guard lock(impl_->extensions_mutex);
  for (; impl_->extensions < loaded.size(); ++impl_->extensions) {
    add_extension_ops(*impl_->ops, *loaded[impl_->extensions]);
  }
  return *impl_->ops;
}
std::shared_ptr<const OpRegistry> EagerExecutor::ops_owner() const { return impl_->ops; }

HostFunctionScope::HostFunctionScope(const HostFunctions& functions)
    : previous_(std::exchange(current_functions, &functions)) {}
HostFunctionScope::~HostFunctionScope() { current_functions = previous_; }

OverwriteScope::OverwriteScope(const Value& old, const Value& target)
    : old_(old), target_(target), reads_old_(true), previous_(std::exchange(overwriting, this)) {}
OverwriteScope::OverwriteScope(const Value& target)
    : old_(target), target_(target), reads_old_(false), previous_(std::exchange(overwriting, this)) {}
OverwriteScope::~OverwriteScope() { overwriting = previous_; }

char* EagerExecutor::overwritten(const CallPlan& plan, std::span<const Value> inputs) const {
  OverwriteScope& scope = *overwriting;
  if (!scope.reads_old_) {
    const auto& target = static_cast<const EagerImpl&>(*scope.target_.impl());
    if (scope.done_ || plan.outputs.size() != 1 || !same_layout(plan.results[0], target.spec())) return nullptr;
    scope.done_ = true;
    return target.data();
  }
  if (!scope.possible_) return nullptr;
  const ValueImpl* old = scope.old_.impl();
  if (std::none_of(inputs.begin(), inputs.end(), [&](const Value& v) { return v.impl() == old; })) return nullptr;
  SLUICE_CHECK_KIND(kRuntime, !scope.done_, "{}: reads a tensor that was overwritten in place before", plan.op->name);
  const auto& impl = static_cast<const EagerImpl&>(*old);
  if (plan.outputs.size() != 1 || !same_layout(plan.results[0], impl.spec()) ||
      !is_contiguous(impl.spec().shape, impl.spec().strides))
    return nullptr;
  bool can = false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) continue;
    const auto& input = static_cast<const EagerImpl&>(*inputs[i].impl());
    const bool same = input.storage() == impl.storage();
    if (same && (input.offset() != impl.offset() || !same_layout(input.spec(), impl.spec())))
      return nullptr;  // they may overlap
    if (!same) continue;
    const bool may = std::any_of(plan.in_place.begin(), plan.in_place.end(),
                                 [&](const plan::InPlacePair& pair) { return pair.input == static_cast<int>(i); });
    if (!may) return nullptr;
    can = true;
  }
  if (!can) return nullptr;
  scope.done_ = true;
  return impl.data();
}

std::shared_ptr<EagerImpl> EagerExecutor::allocate(const TensorType& type, const DeviceId& device) {
  if (device.kind == DeviceKind::kCpu) [[likely]]
    return allocate_tensor(impl_->host_memory, type, device);
  DeviceQueue& queue = this->queue(device);
  std::shared_ptr<EagerImpl> made = allocate_tensor(queue.memory(), type, device, queue.space());
  made->storage()->attach(queue.weak_from_this(), true);
  return made;
}

DeviceQueue& EagerExecutor::queue(const DeviceId& device) {
  if (const std::shared_ptr<DeviceQueue> known = find_queue(device)) return *known;
  const auto made = std::make_shared<DeviceQueue>(engine_, device);
  std::shared_ptr<DeviceQueue> kept;
  {
    const std::lock_guard lock(impl_->queues_mutex);
    kept = impl_->queues.try_emplace(device, made).first->second;
  }
  if (kept == made)
    engine_.device_bytes(device)->add_cache(made->memory());
  else
    made->close(std::chrono::hours(1));  // another thread was first
  return *kept;
}

std::shared_ptr<DeviceQueue> EagerExecutor::find_queue(const DeviceId& device) const {
  const std::lock_guard lock(impl_->queues_mutex);
  const auto found = impl_->queues.find(device);
  return found == impl_->queues.end() ? nullptr : found->second;
}

std::vector<std::shared_ptr<DeviceQueue>> EagerExecutor::queues() const {
  std::vector<std::shared_ptr<DeviceQueue>> all;
  const std::lock_guard lock(impl_->queues_mutex);
  for (const auto& [device, queue] : impl_->queues) all.push_back(queue);
  return all;
}

std::vector<Value> EagerExecutor::call(const OpDef& op, std::span<const Value> inputs, const Attrs& attrs) {
  if (op.of_all) [[unlikely]]
    ops::check_one_value(op, attrs);
  Few<const TensorSpec*> specs(inputs.size(), boost::container::default_init);
  Operands operands = look_at(op, inputs, specs.data());
  if (operands.mixed) [[unlikely]]
    return call(op, placed(op, inputs), attrs);
  // Such a call makes something of nothing, or of a generator's numbers alone.
  if ((!operands.any || (op.random && inputs.size() == 1)) && creation_device().kind != DeviceKind::kCpu) [[unlikely]] {
    if (operands.any && operands.device != creation_device()) {
      const Value state = copy_to(inputs[0], creation_device());
      return call(op, {&state, 1}, attrs);
    }
    operands.device = creation_device();
  }
  const DeviceId& device = operands.device;
  if (device.kind != DeviceKind::kCpu) [[unlikely]]
    queue(device);  // its kernels are known from now on
  if (op.view && !inputs.empty() && inputs[0].defined()) return call_view(op, inputs[0], attrs);

  const CallKey key{&op,
                    &attrs,
                    {specs.data(), specs.size()},
                    device,
                    impl_->threads.load(std::memory_order_relaxed),
                    impl_->kernels.table().version()};
  const std::shared_ptr<const CallPlan> plan = impl_->plan_for(key);
  if (plan->decompose) {
    const ExecutorScope here(*this);
    const CreationScope there(device);
    const GradMode off(false);
    if (overwriting != nullptr) overwriting->possible_ = false;
    return op.decompose(inputs, attrs);
  }
  if (device.kind != DeviceKind::kCpu) [[unlikely]]
    return call_on_device(op, inputs, *plan);
  if (!plan->numbers.empty()) {
    Few<Value> all(inputs.begin(), inputs.end());
    all.insert(all.end(), plan->numbers.begin(), plan->numbers.end());
    return call_on_host({all.data(), all.size()}, *plan);
  }
  return call_on_host(inputs, *plan);
}

std::vector<Value> EagerExecutor::call_view(const OpDef& op, const Value& input, const Attrs& attrs) {
  auto parent = std::static_pointer_cast<EagerImpl>(input.ptr());
  // Inference checks the arguments; `view` may rely on that.
  const bool present = true;
  const DType dtype = infer_types(op, {&parent->type(), 1}, {&present, 1}, attrs)[0].dtype;
  std::optional<OpDef::ViewSpec> view = op.view(parent->spec(), attrs);
  if (overwriting != nullptr && overwriting->old_.impl() == parent.get()) overwriting->possible_ = false;
  if (view) return {Value(std::make_shared<EagerImpl>(parent, ViewStep{&op, attrs}, *view, dtype))};
  const GradMode off(false);
  const Value dense = copy(input);  // shares with nobody: the view of it is no view to the outside
  const auto& memory = static_cast<EagerImpl&>(*dense.impl());
  view = op.view(memory.spec(), attrs);
  SLUICE_CHECK_KIND(kRuntime, view.has_value(), "{}: cannot view a contiguous tensor: {}", op.name,
                    memory.type().str());
  return {Value(std::make_shared<EagerImpl>(memory.storage(), TensorSpec{dtype, view->shape, view->strides},
                                            parent->device(), memory.version_counter(), view->offset))};
}

[[gnu::always_inline]] std::vector<Value> EagerExecutor::call_on_host(std::span<const Value> inputs,
                                                                      const CallPlan& plan) {
  Few<const void*> in(inputs.size(), boost::container::default_init);
  Few<void*> out(std::max<size_t>(plan.outputs.size(), 1), boost::container::default_init);
  std::vector<std::shared_ptr<EagerImpl>> temporaries;
  for (size_t i = 0; i < inputs.size(); ++i) {
    in[i] = nullptr;
    if (!inputs[i].defined()) continue;
    const auto& impl = static_cast<const EagerImpl&>(*inputs[i].impl());
    impl.storage()->before_read();
    in[i] = impl.data();
    if (!plan.copied[i]) continue;
    temporaries.push_back(allocate(impl.type(), plan.device));
    impl_->copy_on_host(impl.spec(), impl.data(), plan.operands[i], temporaries.back()->data());
    in[i] = temporaries.back()->data();
  }
  const KernelArgs args{in.data(), out.data(), nullptr, nullptr};
  std::vector<Value> outputs;
  if (overwriting != nullptr) [[unlikely]] {
    const Value& target = overwriting->target_;
    if ((out[0] = overwritten(plan, inputs)) != nullptr) {
      const Writing writing(*static_cast<EagerImpl&>(*target.impl()).storage());
      impl_->run(*plan.kernel, args, plan.threads);
      return {target};
    }
  }
  outputs.reserve(plan.outputs.size());
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    auto output = allocate(plan.outputs[i], plan.device);
    out[i] = output->data();
    outputs.emplace_back(std::move(output));
  }
  impl_->run(*plan.kernel, args, plan.threads);
  for (size_t i = 0; i < outputs.size(); ++i) {  // eager results are contiguous, as torch's are
    if (is_contiguous(plan.results[i].shape, plan.results[i].strides)) continue;
    auto plain = allocate(plan.outputs[i], plan.device);
    impl_->copy_on_host(plan.results[i], out[i], plain->spec(), plain->data());
    outputs[i] = Value(std::move(plain));
  }
  return outputs;
}

void EagerExecutor::copy_strided(const TensorSpec& from, const void* source, const TensorSpec& to, EagerImpl& target) {
  if (target.device().kind == DeviceKind::kCpu) return impl_->copy_on_host(from, source, to, target.data());
  if (numel(from.shape) == 0) return;
  const plan::KernelQuery query{"copy", {}, {from}, {to}, target.device(), threads()};
  const void* inputs[] = {source};
  void* outputs[] = {target.data()};
  Storage* written[] = {target.storage().get()};
  queue(target.device())
      .launch(impl_->kernels.get(query), {.inputs = inputs, .outputs = outputs}, "copy", threads(), written);
}

EagerExecutor& current_eager() {
  auto* executor = dynamic_cast<TensorExecutor*>(&current_executor());
  SLUICE_CHECK_KIND(kRuntime, executor != nullptr,
                    "eager: the current executor has no engine; make an EagerExecutor current");
  return executor->eager();
}

}  // namespace sluice
