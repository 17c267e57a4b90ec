// layer_norm, rms_norm, group_norm and their backwards: a team per row, as kernels/cpu/norm/normalization.cpp has rows.
#include "kernels/cuda/families.h"

namespace sluice::cuda {
namespace {

struct Rows {
  int64_t rows = 0, length = 0, groups = 1, run = 1, entries = 0;
  bool centred = true;
};

Rows rows_of(const plan::KernelQuery& query, const Shape& x) {
  Rows r;
  const int64_t elements = numel(x);
  if (query.op.starts_with("group_norm")) {
    r.groups = get_attr<int64_t>(query.attrs, "num_groups");
    r.rows = x[0] * r.groups;
    r.entries = x[1];
    for (int i = 2; i < x.rank(); ++i) r.run *= x[i];
  } else {
    r.entries = numel(Shape(get_attr<Ints>(query.attrs, "normalized_shape")));
    r.rows = r.entries == 0 ? 0 : elements / r.entries;
  }
  if (elements == 0) r.rows = 0, r.run = 1;
  r.length = r.rows == 0 ? 0 : elements / r.rows;
  r.centred = !query.op.starts_with("rms_norm");
  return r;
}

std::string affine(const plan::KernelQuery& query, size_t i, const char* fallback) {
  const bool given = i < query.inputs.size() && query.inputs[i].shape.rank() > 0;
  return given ? fmt::format("(C)load(in{}[e])", i) : fallback;
}

Writer begin(const plan::KernelQuery& query, const Rows& r, DType dtype, size_t inputs) {
  Writer writer(query, inputs);
  writer.compute(dtype);
  writer.constant("kRows", r.rows);
  writer.constant("kLength", r.length);
  writer.constant("kGroups", r.groups);
  writer.constant("kRun", r.run);
  writer.number("kEps", get_attr<double>(query.attrs, "eps"));
  writer.add(R"(struct A { C sum, dot; };
__device__ inline A join(A a, A b) { return A{a.sum + b.sum, a.dot + b.dot}; }
__device__ inline A term(C g, C d) { return A{g, g * d}; }
__device__ inline Index entry(Index row, Index i) { return row % kGroups * (kLength / kRun) + i / kRun; }
)");
  return writer;
}

// Statements up to `mean` and `inv_std` of the row that `x` holds.
std::string statistics(bool centred) {
  return std::string(R"(  const Index first = inside ? unit * kLength : 0, end = inside ? kLength : 0;
  C mean = 0;
  A part = {0, 0};
)") +
         (centred ? R"(  for (Index i = member(); i < end; i += kTeam) part.sum += load(x[first + i]);
  mean = over_team(part).sum / (C)kLength;
)"
                  : "") +
         R"(  for (Index i = member(); i < end; i += kTeam) {
    const C d = load(x[first + i]) - mean;
    part.dot += d * d;
  }
  const C inv_std = 1 / sqrt(over_team(part).dot / (C)kLength + kEps);
)";
}

Generated forward(const plan::KernelQuery& query) {
  const TensorSpec& x = query.inputs[0];
  const Rows r = rows_of(query, x.shape);
  const Writer writer = begin(query, r, x.dtype, 3);
  return {{writer.teams("", r.rows, team_for(r.length, false),
                        "  const In0* x = in0;\n" + statistics(r.centred) + R"(
  for (Index i = member(); i < end; i += kTeam) {
    const Index e = entry(unit, i);
    store(out0 + first + i, (load(x[first + i]) - mean) * inv_std * )" +
                            affine(query, 1, "(C)1") + " + " + affine(query, 2, "(C)0") + ");\n  }\n")}};
}

// in0 is dy, in1 x. dx comes last, as it may overwrite either.
Generated backward(const plan::KernelQuery& query) {
  const TensorSpec& x = query.inputs[1];
  const Rows r = rows_of(query, x.shape);
  const Writer writer = begin(query, r, x.dtype, 3);
  Generated generated;
  generated.workspace_bytes = 2 * static_cast<uint64_t>(r.rows) * compute_size(x.dtype);  // an A per row
  generated.stages.push_back(writer.teams("statistics", r.rows, team_for(r.length, false),
                                          "  const In1* x = in1;\n" + statistics(r.centred) +
                                              "  if (inside && member() == 0) ((A*)work)[unit] = A{mean, inv_std};\n"));
  const int64_t per_row = r.rows == 0 ? 1 : r.length / r.run;
  Writer with = writer;
  with.constant("kPerRow", per_row);
  with.add(R"(// dy times x_hat for element i of those that entry o weighs.
template <class G, class X> __device__ inline A weighed(const G* dy, const X* x, const A* rows, Index o, Index i) {
  const Index row = i / kRun * kGroups + o / kPerRow, at = row * kLength + o % kPerRow * kRun + i % kRun;
  return term((C)load(dy[at]), (load(x[at]) - rows[row].sum) * rows[row].dot);
}
)");
  reduce(with,
         {.name = "affine",
          .outputs = r.entries,
          .length = r.rows == 0 ? 0 : r.rows / r.groups * r.run,
          .by_column = r.run == 1,
          .first = "A{0, 0}",
          .take = "weighed(in0, in1, (const A*)work, o, i)",
          .finish = std::string("    out1[o] = total.dot;\n") +
                    (query.outputs.size() > 2 ? "    out2[o] = total.sum;\n" : ""),
          .size = 2 * compute_size(x.dtype)},
         generated);
  const std::string weight = affine(query, 2, "(C)1");
  generated.stages.push_back(
      writer.teams("", r.rows, team_for(r.length, false),
                   R"(  const Index first = inside ? unit * kLength : 0, end = inside ? kLength : 0;
  const A row = inside ? ((const A*)work)[unit] : A{0, 0};
  const C mean = row.sum, inv_std = row.dot;
  A part = {0, 0};
  for (Index i = member(); i < end; i += kTeam) {
    const Index e = entry(unit, i);
    part = join(part, term((C)load(in0[first + i]) * )" +
                       weight + R"(, load(in1[first + i]) - mean));
  }
  part = over_team(part);
  const C mean_g = )" + (r.centred ? "part.sum / (C)kLength" : "0") +
                       R"(, slope = part.dot / (C)kLength * inv_std * inv_std;
  for (Index i = member(); i < end; i += kTeam) {
    const Index e = entry(unit, i);
    const C g = (C)load(in0[first + i]) * )" +
                       weight + R"(;
    store(out0 + first + i, inv_std * (g - mean_g - (load(in1[first + i]) - mean) * slope));
  }
)"));
  return generated;
}

}  // namespace

void add_normalization_kernels(KernelTable& table) {
  for (const char* op : {"layer_norm", "rms_norm", "group_norm"}) add_generated(table, op, forward);
  for (const char* op : {"layer_norm_backward", "rms_norm_backward", "group_norm_backward"}) {
    add_generated(table, op, backward);
  }
}

}  // namespace sluice::cuda
