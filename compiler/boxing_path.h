#pragma once
// Conversions to, from and between meshes of several axes: the cheapest way of steps, each of which is a conversion of
// rows along one axis of a mesh, or moves parts from mesh to mesh.
#include <vector>

#include "compiler/boxing.h"

namespace sluice::compiler {

struct BoxingStep {
  Spread to;
  double bytes = 0;  // that travel
};

// The steps from one way to lie to another, whose bytes together are the fewest that steps can do with, and of such the
// ones with the fewest bytes from mesh to mesh, then the fewest. None where nothing changes. An axis that changes must
// have no later axis that splits the same dimension. Between meshes, parts alone travel: partial sums are added up
// before, and made after. On equal devices in equal order that is a mere change of names: of parts that are the same.
std::vector<BoxingStep> boxing_path(const TensorType& type, const Spread& from, const Spread& to,
                                    const Section* section = nullptr);

// The devices along `axis` through device `i` of a mesh of `shape`, in order.
std::vector<int> line_through(const MeshShape& shape, int axis, int i);

// Makes the nodes of a path's steps, which begin at `from`. REQUIRES: as box().
Shards box_along_path(graph::GraphBuilder& builder, const TensorType& type, Shards shards, const Spread& from,
                      const std::vector<BoxingStep>& path, const Section* section);

}  // namespace sluice::compiler
