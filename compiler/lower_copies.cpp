// Where values lie and how they get elsewhere: other layouts, other devices, outputs, variables.
#include <algorithm>

#include "compiler/lower.h"

namespace sluice::compiler {

using graph::ValueId;
using graph::ValueKind;
using plan::Layout;

namespace {

TensorSpec contiguous(const TensorSpec& spec) { return {spec.dtype, spec.shape, contiguous_strides(spec.shape)}; }

bool fits(Layout layout, const TensorSpec& spec) {
  if (layout == Layout::kAny) return true;
  if (layout == Layout::kContiguous || spec.shape.rank() < 3) return is_contiguous(spec.shape, spec.strides);
  return spec.strides == channels_last_strides(spec.shape);
}

}  // namespace

TensorSpec with_layout(const TensorSpec& spec, Layout layout) {
  TensorSpec result = contiguous(spec);
  if (layout == Layout::kChannelsLast && spec.shape.rank() >= 3) result.strides = channels_last_strides(spec.shape);
  return result;
}

// A copy of `from` with strides `spec` on `stream`, into a store in `space` (its own unless `into` is given).
Operand Lowering::add_copy(const Operand& from, TensorSpec spec, int stream, int space, const Operand* into) {
  Task task;
  task.op = "copy";
  task.module = module_;
  task.source = source_;
  task.name = unique_name(out_.stores[from.store].name + "/copy");
  task.stream = stream;
  const plan::KernelQuery query{"copy",
                                {},
                                {from.spec},
                                {spec},
                                placer_.streams[stream].device,
                                placer_.streams[stream].cores,
                                {0, static_cast<double>(from.spec.extent_bytes() + spec.extent_bytes())}};
  SLUICE_CHECK_KIND(kUnsupported, target_.has_kernel("copy", query.device.kind),
                    "op copy: no kernel on device {}; values cannot be moved or laid out there", query.device.str());
  task.workspace_bytes = ask(query).workspace_bytes;
  task.cost_ns = ask(query).cost_ns;
  const int quota = out_.stores[from.store].quota;
  task.every = every_of(out_.stores[from.store]);
  Operand to = into ? *into : Operand{-1, 0, spec};
  if (!into) to.store = add_store({Store::Kind::kTemp, -1, space, spec.extent_bytes(), task.name, quota, task.every});
  task.inputs = {from};
  task.outputs = {to};
  add_task(std::move(task));
  return to;
}

int Lowering::every_of(const Store& store) const {
  if (store.kind != Store::Kind::kVariable) return store.every;
  const ValueId update = graph_.variables()[store.index].update;
  return update == graph::kNoValue ? every_ : std::max(1, graph_.every(update));
}

// The new content of a variable as streams other than its home may see it, while the next step overwrites it: a copy.
Operand Lowering::snapshot(ValueId value, const Operand& from, int stream) {
  const Store& store = out_.stores[from.store];
  if (!belongs_to_other_stream(from, stream) || out_.writer[store.index] < 0) return from;
  const Operand copy = add_copy(from, contiguous(from.spec), facts_.home[store.index], store.space);
  where_[value].push_back(copy);
  return copy;
}

// Where `value` can be read by a kernel of `stream`: copies it there when it is elsewhere.
Operand Lowering::fetch(ValueId value, int stream, Layout layout) {
  const int space = placer_.space_of(stream);
  const auto find = [&](Layout wanted) -> const Operand* {
    const Operand* second_best = nullptr;  // would need a snapshot
    for (const Operand& o : where_[value]) {
      if (out_.stores[o.store].space != space || !fits(wanted, o.spec) || !is_there(o)) continue;
      if (!belongs_to_other_stream(o, stream)) return &o;
      if (!second_best) second_best = &o;
    }
    return second_best;
  };
  const Operand* found = find(layout);
  if (!found) found = find(Layout::kAny);
  Operand here = found ? *found : transfer(value, stream);
  here = snapshot(value, here, stream);
  if (fits(layout, here.spec)) return here;
  const Operand copy = add_copy(here, with_layout(here.spec, layout), stream, space);
  where_[value].push_back(copy);
  return copy;
}

// Memory that another stream overwrites each step.
bool Lowering::belongs_to_other_stream(const Operand& operand, int stream) const {
  const Store& store = out_.stores[operand.store];
  return store.kind == Store::Kind::kVariable && facts_.updated(store.index) && facts_.home[store.index] != stream;
}

// What no other kernel writes before all readers have seen it, and no more than what they read.
bool Lowering::travels(const Operand& operand) const {
  const Store& store = out_.stores[operand.store];
  return store.kind != Store::Kind::kVariable && operand.offset == 0 && operand.spec.extent_bytes() == store.bytes;
}

// Copies a value into the memory of `stream`'s device: up its copy_in stream, and down copy_out of where it is. From
// the host memory of another rank it is read as it is: the register in between crosses.
Operand Lowering::transfer(ValueId value, int stream) {
  const int target_space = placer_.space_of(stream), here = placer_.rank_of(stream);
  const auto in_host = [&](const Operand& o) { return out_.stores[o.store].space == placer_.host_space(rank_of(o)); };
  const auto rank = [&](const Operand& o) {
    const bool away = rank_of(o) != here;
    return !is_there(o) * 16 + away * 8 + !in_host(o) * 4 + (away && !travels(o)) * 2 +
           (out_.stores[o.store].kind == Store::Kind::kVariable);
  };
  Operand from = *std::min_element(where_[value].begin(), where_[value].end(),
                                   [&](const Operand& a, const Operand& b) { return rank(a) < rank(b); });
  const auto hop = [&](int via, int space) {
    const DeviceId device = placer_.streams[via].device;
    if (placer_.desc(device).dma && !is_dense(from.spec.shape, from.spec.strides)) {
      const int side = in_host(from) ? host_side(value, device.rank) : placer_.compute_stream(device);
      from = add_copy(snapshot(value, from, side), contiguous(from.spec), side, out_.stores[from.store].space);
      where_[value].push_back(from);
    }
    from = snapshot(value, from, via);
    const bool dense = is_dense(from.spec.shape, from.spec.strides);
    from = add_copy(from, dense ? from.spec : contiguous(from.spec), via, space);
    where_[value].push_back(from);
  };
  if (!in_host(from)) {
    const DeviceId device = placer_.spaces[out_.stores[from.store].space].device;
    hop(placer_.copy_stream(device, plan::StreamKind::kCopyOut), placer_.host_space(device.rank));
  }
  if (const int home = rank_of(from); home != here && !travels(from))
    hop(host_side(value, home), placer_.host_space(home));
  if (target_space != placer_.host_space(here)) {
    hop(placer_.copy_stream(placer_.streams[stream].device, plan::StreamKind::kCopyIn), target_space);
  }
  return from;
}

// Called when `value` exists: makes the copies that outputs, and updates from other variables, need at once.
void Lowering::defined(ValueId value) {
  for (int k : outputs_of_[value]) {
    source_ = {};
    module_.clear();
    every_ = graph_.every(value) == 0 ? batches_ : graph_.every(value);  // the sink wants it once a step
    const int rank = partition_.outputs.empty() ? 0 : partition_.outputs[k].device.rank;
    const int stream = host_side(value, rank);
    Operand at = fetch(value, stream, Layout::kContiguous);
    if (!travels(at) || out_.stores[at.store].kind == Store::Kind::kInput || rank_of(at) != rank) {
      at = add_copy(at, contiguous(at.spec), stream, placer_.host_space(rank));
      where_[value].push_back(at);
    }
    at.spec = contiguous(at.spec);
    out_.outputs[k] = at;
  }
  if (facts_.needs_snapshot[value]) {
    const Operand from = where_[value].front();
    const Store& store = out_.stores[from.store];
    where_[value] = {add_copy(from, contiguous(from.spec), facts_.home[store.index], store.space)};
  }
}

int Lowering::host_side(ValueId value, int rank) {
  const graph::ValueInfo& info = graph_.values()[facts_.root[value]];
  int stream = placer_.default_stream(rank);
  if (info.kind == ValueKind::kNode) stream = placer_.stream_of(info.index);
  if (info.kind == ValueKind::kVariable) stream = facts_.home[info.index];
  for (int candidate : {stream, placer_.default_stream(rank)}) {
    if (placer_.space_of(candidate) == placer_.host_space(rank)) return candidate;
  }
  return placer_.host_stream(rank);
}

// Writes new contents that were not written in place, once nobody reads the old ones.
void Lowering::finish_updates(int position) {
  for (int v : facts_.updates_after[position + 1]) {
    if (out_.writer[v] >= 0) continue;
    const ValueId update = graph_.variables()[v].update;
    const int store = out_.variable_store[v], home = facts_.home[v];
    source_ = {};
    module_.clear();
    every_ = std::max(1, graph_.every(update));
    const Operand from = fetch(update, home, Layout::kAny);
    const TensorSpec spec = contiguous(from.spec);
    const Operand into{store, 0, spec};
    add_copy(from, spec, home, out_.stores[store].space, &into);
    out_.writer[v] = static_cast<int>(out_.tasks.size()) - 1;
  }
}

}  // namespace sluice::compiler
