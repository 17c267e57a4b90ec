// Elementwise ops: generated from their expressions.
#include <cstring>

#include "kernels/cuda/expressions.h"
#include "kernels/cuda/generated.h"

namespace sluice::cuda {
namespace {

plan::LayoutPreference any_layouts(const plan::KernelQuery& query) {
  return {std::vector(query.inputs.size(), plan::Layout::kAny), std::vector(query.outputs.size(), plan::Layout::kAny)};
}

void add(KernelTable& table, const char* op, Source (*source)(const plan::KernelQuery&),
         std::vector<plan::InPlacePair> in_place) {
  KernelDef def;
  def.op = op;
  def.prepare = [source](const plan::KernelQuery& query, const PrepareContext&) {
    return std::make_unique<GeneratedKernel>(query, source(query));
  };
  def.layouts = any_layouts;
  def.in_place = std::move(in_place);
  table.add(DeviceKind::kCuda, std::move(def));
}

}  // namespace

void add_elementwise_kernels(KernelTable& table) {
  for (const Expression& e : expressions()) {
    if (std::strchr(e.op, ':') != nullptr) continue;  // a variant
    std::vector<plan::InPlacePair> in_place = {{0, 0}};
    if (e.inputs == 2) in_place.push_back({0, 1});
    add(table, e.op, elementwise_source, std::move(in_place));
  }
  add(table, "cast", cast_source, {});
  add(table, "where", where_source, {{0, 1}, {0, 2}});
}

}  // namespace sluice::cuda
