#include "tensor/eager.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "graph/autodiff/tape.h"
#include "graph/kernel_check.h"
#include "graph/ops/micro_batches.h"
#include "kernels/kernel_cache.h"
#include "memory/core_lease.h"
#include "runtime/bundle.h"
#include "runtime/engine.h"
#include "runtime/extension.h"
#include "streams/stream.h"
#include "tensor/call_cache.h"
#include "tensor/extension.h"

namespace sluice {
namespace {

constexpr size_t kCachedCalls = 4096;
constexpr int kMaxInline = 8;  // operands kept on the stack

// Storage and version of a fresh tensor in one allocation.
struct Block {
  template <class... Args>
  explicit Block(Args&&... args) : storage(std::forward<Args>(args)...) {}
  Storage storage;
  uint64_t version = 0;
};

thread_local const HostFunctions* current_functions = nullptr;

EagerImpl& eager_impl(const Value& value, const char* where) {
  SLUICE_CHECK_KIND(kRuntime, !value.impl()->traced(),
                    "{}: a value of a graph was used outside it: {}; its content exists only when the graph runs",
                    where, value.type().str());
  return static_cast<EagerImpl&>(*value.impl());
}

void check_local(const OpDef& op, const EagerImpl& impl, size_t i) {
  if (!impl.global) [[likely]]
    return;
  const std::string name = op.variadic() ? fmt::format("input {}", i) : op.inputs[i];
  fail(ErrorKind::kUnsupported,
       "{}: {} is a global tensor: {}; eager ops do not run on several devices: call it inside nn.Graph, or on "
       ".to_local()",
       op.name, name, impl.global->str());
}

TensorSpec in_layout(plan::Layout layout, const TensorSpec& spec) {
  switch (layout) {
    case plan::Layout::kAny: return spec;
    case plan::Layout::kContiguous: break;
    case plan::Layout::kChannelsLast:
      if (spec.shape.rank() >= 3) return {spec.dtype, spec.shape, channels_last_strides(spec.shape)};
      break;
  }
  return {spec.dtype, spec.shape, contiguous_strides(spec.shape)};
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
  std::atomic<bool> prefer_decompose{false};
  const std::shared_ptr<OpRegistry> ops = std::make_shared<OpRegistry>(builtin_ops());
  std::mutex extensions_mutex;
  size_t extensions = 0;  // of the engine's that `ops` has
  CallCache cache{kCachedCalls};

  std::shared_ptr<const CallPlan> prepare(const CallKey& key) const;
  std::shared_ptr<const CallPlan> plan_for(const CallKey& key);
  void run(const PreparedKernel& kernel, KernelArgs args, int cores) const;
  // Not at every call, whose kernel may take less time.
  void look_at_workers() const {
    thread_local uint32_t calls = 0;
    if (++calls % 16 == 0) workers.look();
  }
  // Copies between any two layouts of one type. REQUIRES: storages were asked for access.
  void copy_strided(const TensorSpec& from, const void* source, const TensorSpec& to, void* target);
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
  kernel.run(args);
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
  SLUICE_CHECK_KIND(kUnsupported, key.device.kind == DeviceKind::kCpu,
                    "{}: eager ops do not run on {}; call it inside nn.Graph, or move the tensors to cpu", op.name,
                    key.device.str());
  const KernelTable& table = kernels.table();
  const KernelDef* def = table.find(op.name, key.device.kind);
  if (op.decompose && (!def || prefer_decompose.load(std::memory_order_relaxed))) {
    plan->decompose = true;
    return plan;
  }
  if (!def) def = &table.get(op.name, key.device.kind);  // throws, naming the op

  plan::KernelQuery query{op.name, name_attrs(op, *key.attrs), plan->inputs, {}, key.device, key.threads};
  for (const TensorType& type : plan->outputs) query.outputs.push_back(TensorSpec::contiguous(type));
  if (def->layouts) {
    const plan::LayoutPreference wanted = def->layouts(query);
    for (size_t i = 0; i < query.inputs.size(); ++i)
      query.inputs[i] =
          in_layout(i < wanted.inputs.size() ? wanted.inputs[i] : plan::Layout::kContiguous, query.inputs[i]);
    for (size_t i = 0; i < query.outputs.size() && i < wanted.outputs.size(); ++i)
      query.outputs[i] = in_layout(wanted.outputs[i], query.outputs[i]);
  } else {
    for (TensorSpec& input : query.inputs) input = in_layout(plan::Layout::kContiguous, input);
  }
  plan->kernel = kernels.get(query, current_functions);
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

void EagerExecutor::Impl::copy_strided(const TensorSpec& from, const void* source, const TensorSpec& to, void* target) {
  if (numel(from.shape) == 0) return;
  plan::KernelQuery query{"copy", {}, {from}, {to}, {}, 1};
  const auto kernel = kernels.table().get("copy", DeviceKind::kCpu).prepare(query, {1, nullptr});
  void* outputs[] = {target};
  const void* inputs[] = {source};
  run(*kernel, {inputs, outputs, nullptr, nullptr}, 1);
}

void check_plans_from_files() {
  // Ops of extensions check their own requests.
  set_plan_check([](const plan::Plan& plan) { graph::check_kernels(plan, builtin_ops()); });
}

EagerExecutor::EagerExecutor(Engine& engine) : engine_(engine), impl_(std::make_unique<Impl>(engine)) {
  check_plans_from_files();
}
EagerExecutor::~EagerExecutor() = default;

void EagerExecutor::set_threads(int threads) {
  SLUICE_CHECK(threads >= 1, "set_threads: {}; must be at least 1", threads);
  impl_->threads = std::min(threads, engine_.cores());
}
int EagerExecutor::threads() const { return impl_->threads; }

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

void EagerExecutor::set_prefer_decompose(bool on) {
  impl_->prefer_decompose = on;
  impl_->cache.clear();
}

std::shared_ptr<EagerImpl> EagerExecutor::allocate(const TensorType& type, const DeviceId& device) {
  const uint64_t bytes = checked_bytes(type.shape, dtype_size(type.dtype));
  std::shared_ptr<Block> block;
  if (device.kind == DeviceKind::kCpu || engine_.device(device).describe().host_memory) {
    block = std::make_shared<Block>(impl_->host_memory, bytes);
  } else {
    const plan::Space space{plan::SpaceKind::kDevice, device};
    block = std::make_shared<Block>(engine_.allocator(space), bytes, space);
  }
  std::shared_ptr<Storage> storage(block, &block->storage);
  std::shared_ptr<uint64_t> version(block, &block->version);
  return std::make_shared<EagerImpl>(std::move(storage), TensorSpec::contiguous(type), device, std::move(version));
}

std::vector<Value> EagerExecutor::call(const OpDef& op, std::span<const Value> inputs, const Attrs& attrs) {
  if (op.of_all) [[unlikely]]
    ops::check_one_value(op, attrs);
  const TensorSpec* inline_specs[kMaxInline];
  std::vector<const TensorSpec*> many;
  const TensorSpec** specs = inline_specs;
  if (inputs.size() > kMaxInline) {
    many.resize(inputs.size());
    specs = many.data();
  }
  DeviceId device;
  bool placed = false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    specs[i] = nullptr;
    if (!inputs[i].defined()) continue;
    const EagerImpl& impl = eager_impl(inputs[i], op.name);
    check_local(op, impl, i);
    specs[i] = &impl.spec();
    SLUICE_CHECK(!placed || impl.device() == device,
                 "{}: inputs are on different devices: {} and {}; move them to one with .to(device)", op.name,
                 device.str(), impl.device().str());
    device = impl.device();
    placed = true;
  }

  if (op.view && !inputs.empty() && inputs[0].defined()) {
    auto parent = std::static_pointer_cast<EagerImpl>(inputs[0].ptr());
    // Inference checks the arguments; `view` may rely on that.
    const bool present = true;
    const DType dtype = infer_types(op, {&parent->type(), 1}, {&present, 1}, attrs)[0].dtype;
    std::optional<OpDef::ViewSpec> view = op.view(parent->spec(), attrs);
    if (view) return {Value(std::make_shared<EagerImpl>(parent, ViewStep{&op, attrs}, *view, dtype))};
    const GradMode off(false);
    const Value dense = copy(inputs[0]);  // shares with nobody: the view of it is no view to the outside
    const auto& memory = static_cast<EagerImpl&>(*dense.impl());
    view = op.view(memory.spec(), attrs);
    SLUICE_CHECK_KIND(kRuntime, view.has_value(), "{}: cannot view a contiguous tensor: {}", op.name,
                      memory.type().str());
    return {
        Value(std::make_shared<EagerImpl>(memory.storage(), TensorSpec{dtype, view->shape, view->strides},
                                          device, memory.version_counter(), view->offset))};
  }

  const CallKey key{&op,
                    &attrs,
                    {specs, inputs.size()},
                    device,
                    impl_->threads.load(std::memory_order_relaxed),
                    impl_->kernels.table().version()};
  const std::shared_ptr<const CallPlan> plan = impl_->plan_for(key);
  if (plan->decompose) {
    const ExecutorScope here(*this);
    const GradMode off(false);
    return op.decompose(inputs, attrs);
  }

  const void* inline_in[kMaxInline];
  void* inline_out[kMaxInline];
  std::vector<const void*> many_in;
  std::vector<void*> many_out;
  const void** in = inline_in;
  void** out = inline_out;
  if (inputs.size() > kMaxInline) {
    many_in.resize(inputs.size());
    in = many_in.data();
  }
  if (plan->outputs.size() > kMaxInline) {
    many_out.resize(plan->outputs.size());
    out = many_out.data();
  }
  std::vector<std::shared_ptr<EagerImpl>> temporaries;
  for (size_t i = 0; i < inputs.size(); ++i) {
    in[i] = nullptr;
    if (!inputs[i].defined()) continue;
    const auto& impl = static_cast<const EagerImpl&>(*inputs[i].impl());
    impl.storage()->before_read();
    in[i] = impl.data();
    if (impl.spec().strides == plan->operands[i].strides) continue;
    temporaries.push_back(allocate(impl.type(), device));
    impl_->copy_strided(impl.spec(), impl.data(), plan->operands[i], temporaries.back()->data());
    in[i] = temporaries.back()->data();
  }
  std::vector<Value> outputs;
  outputs.reserve(plan->outputs.size());
  for (size_t i = 0; i < plan->outputs.size(); ++i) {
    auto output = allocate(plan->outputs[i], device);
    out[i] = output->data();
    outputs.emplace_back(std::move(output));
  }
  impl_->run(*plan->kernel, {in, out, nullptr, nullptr}, plan->threads);
  for (size_t i = 0; i < outputs.size(); ++i) {  // eager results are contiguous, as torch's are
    if (is_contiguous(plan->results[i].shape, plan->results[i].strides)) continue;
    auto plain = allocate(plan->outputs[i], device);
    impl_->copy_strided(plan->results[i], out[i], plain->spec(), plain->data());
    outputs[i] = Value(std::move(plain));
  }
  return outputs;
}

Value EagerExecutor::copy(const Value& value) {
  const EagerImpl& from = eager_impl(value, "copy");
  SLUICE_CHECK_KIND(kUnsupported, from.on_host(),
                    "copy: eager ops do not run on {}; call it inside nn.Graph, or move the tensor to cpu",
                    from.device().str());
  const TensorSpec& spec = from.memory_spec();
  auto to = allocate({spec.dtype, spec.shape}, from.device());
  from.storage()->before_read();
  impl_->copy_strided(spec, from.data(), to->spec(), to->data());
  return Value(std::move(to));
}

Value EagerExecutor::detach(const Value& value) { return Value(eager_impl(value, "detach").alias()); }

void EagerExecutor::assign(const Value& target, const Value& source) {
  EagerImpl& to = eager_impl(target, "assign");
  to.check_whole("assign");
  eager_impl(source, "assign").check_whole("assign");
  for (int i = 0; i < target.rank(); ++i)
    SLUICE_CHECK_KIND(
        kRuntime, to.spec().strides[i] != 0 || target.shape()[i] <= 1,
        "assign: unsupported operation: more than one element of the written-to tensor refers to a single "
        "memory location: {} with strides {}; clone() the tensor before writing",
        target.type().str(), to.spec().strides.str());
  const ExecutorScope here(*this);
  const GradMode off(false);
  if (!to.on_host()) return assign_on_device(to, source);
  Value from = eager_impl(source, "assign").on_host() ? source : copy_to(source, {});
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
  read.storage()->before_read();
  const Writing writing(*to.storage());
  impl_->copy_strided(spec, read.data(), to.spec(), to.data());
  to.bump_version();
}

// By way of the host.
void EagerExecutor::assign_on_device(EagerImpl& to, const Value& source) {
  SLUICE_CHECK_KIND(
      kUnsupported, is_contiguous(to.spec().shape, to.spec().strides),
      "assign: the target is a part of a tensor on {}: {} with strides {}; write all of it, or move it to "
      "cpu",
      to.device().str(), to.type().str(), to.spec().strides.str());
  const auto host = allocate(to.type(), {});
  assign(Value(host), source);
  const Writing writing(*to.storage());
  engine_.device(to.device()).copy_from_host(to.data(), host->data(), host->storage()->bytes());
  to.bump_version();
}

Value EagerExecutor::copy_to(const Value& value, const DeviceId& device) {
  Value from = value;
  const Tensor tensor(value);
  const EagerImpl& impl = eager_impl(value, "to");
  if (!tensor.is_contiguous()) from = copy(value);
  const EagerImpl& read = static_cast<const EagerImpl&>(*from.impl());
  auto to = allocate({impl.memory_spec().dtype, impl.memory_spec().shape}, device);
  const uint64_t bytes = to->storage()->bytes();
  read.storage()->before_read();
  if (read.on_host() && to->on_host()) {
    std::memcpy(to->data(), read.data(), bytes);
  } else if (to->on_host()) {
    engine_.device(read.device()).copy_to_host(to->data(), read.data(), bytes);
  } else if (read.on_host()) {
    engine_.device(device).copy_from_host(to->data(), read.data(), bytes);
  } else {
    return copy_to(copy_to(value, {}), device);
  }
  return Value(std::move(to));
}

EagerExecutor& current_eager() {
  auto* executor = dynamic_cast<TensorExecutor*>(&current_executor());
  SLUICE_CHECK_KIND(kRuntime, executor != nullptr,
                    "eager: the current executor has no engine; make an EagerExecutor current");
  return executor->eager();
}

}  // namespace sluice
