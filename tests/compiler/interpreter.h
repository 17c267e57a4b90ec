#pragma once
// Runs graphs and plans with the cpu's kernels, without a runtime: a graph node by node, a plan in a random order of
// firings that its registers allow.
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "kernels/kernel.h"
#include "plan/firing/network.h"
#include "plan/pack/spilled.h"

namespace sluice {

using Bytes = std::vector<std::byte>;
using Tensors = std::map<std::string, Bytes>;  // contiguous, by name

inline uint64_t bytes_of(const TensorType& type) { return checked_bytes(type.shape, dtype_size(type.dtype)); }

inline void run_kernel(const KernelTable& table, const plan::KernelQuery& query, std::vector<const void*> inputs,
                       std::vector<void*> outputs) {
  const auto kernel = table.get(query.op, DeviceKind::kCpu).prepare(query, PrepareContext{query.cores, nullptr});
  std::vector<std::byte> workspace(kernel->workspace_bytes() + 64);
  const auto address = (reinterpret_cast<uintptr_t>(workspace.data()) + 63) / 64 * 64;
  KernelArgs args;
  args.inputs = inputs.data();
  args.outputs = outputs.data();
  args.workspace = reinterpret_cast<void*>(address);
  kernel->run(args);
}

inline Bytes relayout(const KernelTable& table, const void* data, const TensorSpec& from, const TensorSpec& to) {
  Bytes out(std::max<uint64_t>(to.extent_bytes(), 1));
  run_kernel(table, {"copy", {}, {from}, {to}, {}, 1}, {data}, {out.data()});
  return out;
}

// Outputs of one step; `variables` are updated.
inline Tensors run_graph(const graph::Graph& graph, const KernelTable& table, const Tensors& inputs,
                         Tensors& variables) {
  std::vector<Bytes> values(graph.values().size());
  for (const graph::Input& input : graph.inputs()) values[input.value] = inputs.at(input.name);
  for (const graph::Variable& v : graph.variables()) values[v.value] = variables.at(v.name);
  const auto contiguous = [&](graph::ValueId id) { return TensorSpec::contiguous(graph.type(id)); };
  for (const graph::Node& node : graph.nodes()) {
    if (node.op->view) {
      const auto view = node.op->view(contiguous(node.inputs[0]), node.attrs);
      const TensorSpec spec{graph.type(node.outputs[0]).dtype, view->shape, view->strides};
      const std::byte* data = values[node.inputs[0]].data() + view->offset * dtype_size(spec.dtype);
      values[node.outputs[0]] = relayout(table, data, spec, contiguous(node.outputs[0]));
      continue;
    }
    plan::KernelQuery query{node.op->name, name_attrs(*node.op, node.attrs), {}, {}, {}, 1};
    for (graph::ValueId id : node.inputs) query.inputs.push_back(id < 0 ? TensorSpec{} : contiguous(id));
    for (graph::ValueId id : node.outputs) query.outputs.push_back(contiguous(id));
    const KernelDef& def = table.get(query.op, DeviceKind::kCpu);
    plan::LayoutPreference wants;
    if (def.layouts) wants = def.layouts(query);
    std::vector<Bytes> laid_out(node.inputs.size());
    std::vector<const void*> in;
    const auto is_last = [](const std::vector<plan::Layout>& layouts, size_t i) {
      return i < layouts.size() && layouts[i] == plan::Layout::kChannelsLast;
    };
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      in.push_back(node.inputs[i] < 0 ? nullptr : values[node.inputs[i]].data());
      if (!in[i] || !is_last(wants.inputs, i) || query.inputs[i].shape.rank() < 3) continue;
      query.inputs[i].strides = channels_last_strides(query.inputs[i].shape);
      laid_out[i] = relayout(table, in[i], contiguous(node.inputs[i]), query.inputs[i]);
      in[i] = laid_out[i].data();
    }
    std::vector<void*> out;
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      if (is_last(wants.outputs, o) && query.outputs[o].shape.rank() >= 3) {
        query.outputs[o].strides = channels_last_strides(query.outputs[o].shape);
      }
      values[node.outputs[o]].resize(std::max<uint64_t>(query.outputs[o].extent_bytes(), 1));
      out.push_back(values[node.outputs[o]].data());
    }
    run_kernel(table, query, in, out);
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      Bytes& value = values[node.outputs[o]];
      value = relayout(table, value.data(), query.outputs[o], contiguous(node.outputs[o]));
    }
  }
  Tensors outputs;
  for (const graph::Output& output : graph.outputs()) outputs[output.name] = values[output.value];
  for (const graph::Variable& v : graph.variables()) {
    if (v.update != graph::kNoValue) variables[v.name] = values[v.update];
  }
  return outputs;
}

class PlanInterpreter {
 public:
  PlanInterpreter(const plan::Plan& plan, const KernelTable& table, Tensors& variables)
      : plan_(plan), table_(table), variables_(variables) {
    for (const plan::Arena& arena : plan.arenas) {
      arenas_.emplace_back(arena.bytes + 64, std::byte{0xAB});
    }
  }

  // Outputs per step. The order of firings is drawn from `seed`.
  std::vector<Tensors> run(const std::vector<Tensors>& steps, uint32_t seed) {
    inputs_ = &steps;
    outputs_.assign(steps.size(), {});
    plan::Network network(plan_);
    std::mt19937 random(seed);
    for (int a = 0; a < network.actors(); ++a) {
      if (plan_.actors[a].role == plan::ActorRole::kFeed) network.rules[a].on_start(steps.size());
    }
    std::vector<int> touched;
    for (;;) {
      std::vector<int> ready;
      for (int a = 0; a < network.actors(); ++a) {
        if (network.rules[a].can_fire() && network.rules[a].firings() < steps.size()) ready.push_back(a);
      }
      if (ready.empty()) break;
      const int actor = ready[random() % ready.size()];
      fire(actor, network.rules[actor].firings());
      network.fire(actor, touched);
    }
    return outputs_;
  }

 private:
  std::byte* arena(int index) {
    return reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(arenas_[index].data()) + 63) / 64 * 64);
  }
  std::byte* buffer(int index) { return arena(plan_.buffers[index].arena) + plan_.buffers[index].offset; }
  std::byte* address(const plan::View& view, uint64_t step) {
    if (is_absent(view)) return nullptr;
    switch (view.base) {
      case plan::BaseKind::kBuffer: return buffer(view.index) + view.offset;
      case plan::BaseKind::kRegister: {
        const plan::Register& r = plan_.registers[view.index];
        return buffer(r.slots[step % r.quota]) + view.offset;
      }
      case plan::BaseKind::kVariable: return variables_.at(plan_.variables[view.index].name).data() + view.offset;
    }
    return nullptr;
  }

  void fire(int actor, uint64_t step) {
    const plan::Actor& a = plan_.actors[actor];
    if (a.role == plan::ActorRole::kFeed) {
      for (const plan::Input& input : plan_.inputs) {
        const Bytes& data = (*inputs_)[step].at(input.name);
        std::memcpy(address({plan::BaseKind::kRegister, input.reg, 0, 0, input.spec}, step), data.data(), data.size());
      }
    } else if (a.role == plan::ActorRole::kSink) {
      for (const plan::Output& output : plan_.outputs) {
        outputs_[step][output.name] =
            relayout(table_, address(output.view, step), output.view.spec,
                     TensorSpec::contiguous({output.view.spec.dtype, output.view.spec.shape}));
      }
    }
    for (const plan::Instr& instr : a.program) {
      if (instr.kind == plan::InstrKind::kRun) run(plan_.kernels[instr.index], step);
    }
  }

  void run(const plan::Kernel& kernel, uint64_t step) {
    plan::KernelQuery query{kernel.op, kernel.attrs, {}, {}, {}, 1};
    std::vector<const void*> in;
    std::vector<void*> out;
    for (const plan::View& v : kernel.inputs) {
      query.inputs.push_back(v.spec);
      in.push_back(address(v, step));
    }
    for (const plan::View& v : kernel.outputs) {
      query.outputs.push_back(v.spec);
      out.push_back(address(v, step));
    }
    if (plan::moves_to_disk(kernel)) {
      const auto* data = static_cast<const std::byte*>(in[0]);
      const plan::DiskPlace place = plan::disk_place(kernel);
      disk_[place.offset].assign(data, data + place.bytes);
      std::memcpy(out[0], &place.offset, sizeof(place.offset));
    } else if (plan::moves_from_disk(kernel)) {
      const Bytes& bytes = disk_.at(plan::disk_place(kernel).offset);
      std::memcpy(out[0], bytes.data(), bytes.size());
    } else {
      run_kernel(table_, query, in, out);
    }
    if (kernel.workspace >= 0) {  // what a kernel leaves there must not matter to anyone
      std::memset(buffer(kernel.workspace), 0xCD, plan_.buffers[kernel.workspace].bytes);
    }
  }

  const plan::Plan& plan_;
  const KernelTable& table_;
  Tensors& variables_;
  std::vector<std::vector<std::byte>> arenas_;
  const std::vector<Tensors>* inputs_ = nullptr;
  std::vector<Tensors> outputs_;
  std::map<uint64_t, Bytes> disk_;  // what has been spilled, by its place
};

}  // namespace sluice
