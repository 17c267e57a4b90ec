// cross_entropy and its backward: a team per sample.
#include "kernels/cuda/families.h"
#include "kernels/cuda/prelude.h"

namespace sluice::cuda {
namespace {

Status no_class(const int64_t* values) {
  return {ErrorKind::kIndex, fmt::format("cross_entropy: target is not a class: {} at sample {}; it must be at least 0 "
                                         "and below {}, or ignore_index {}",
                                         values[0], values[1], values[2], values[3])};
}

// The beginning that both share: the loss of a sample, and how much it weighs.
Writer begin(const plan::KernelQuery& query, size_t logits) {
  const TensorSpec& x = query.inputs[logits];
  const bool weighted = logits + 2 < query.inputs.size() && query.inputs[logits + 2].shape.rank() > 0;
  Writer writer(query, logits + 3);
  writer.compute(x.dtype);
  writer.constant("kRows", x.shape[0]);
  writer.constant("kClasses", x.shape[1]);
  writer.number("kSmoothing", get_attr<double>(query.attrs, "label_smoothing"));
  writer.add(fmt::format(R"(constexpr bool kWeighted = {};
constexpr i64 kIgnore = {}LL;
struct A {{ double loss, weight; }};
struct Sum {{ C v; }};
__device__ inline A join(A a, A b) {{ return A{{a.loss + b.loss, a.weight + b.weight}}; }}
__device__ inline Sum join(Sum a, Sum b) {{ return Sum{{a.v + b.v}}; }}
template <class W> __device__ inline C weight_of(const W* weights, i64 c) {{ return kWeighted ? (C)load(weights[c]) : (C)1; }}
template <class W> __device__ inline A counted(Failure* word, u64 ticket, i64 t, i64 row, const W* weights) {{
  if (t == kIgnore) return A{{0, 0}};
  if (t < 0 || t >= kClasses) {{
    raise(word, ticket, t, row, kClasses, kIgnore);
    return A{{0, 0}};
  }}
  return A{{0, (double)weight_of(weights, t)}};
}}
)",
                         weighted, get_attr<int64_t>(query.attrs, "ignore_index")));
  writer.add(kRunningFunctions);
  return writer;
}

// Statements up to the row's maximum and its sum of exponentials; `x`, `target`, `weights` are operands.
const char* const kRow = R"(  const i64 t = inside ? (i64)target[unit] : kIgnore;
  const A own = member() == 0 ? counted(word, ticket, t, unit, weights) : A{0, 0};
  const bool valid = inside && t != kIgnore && t >= 0 && t < kClasses;
  const Index first = valid ? unit * kClasses : 0, n = valid ? kClasses : 0;
  const Running run = over_team(running(x, first + member(), first + n, (Index)kTeam));
  const Sum top = {run.top}, sum = {run.sum};
  Sum all = {0}, total = {0};
  if (kSmoothing > 0) {
    for (Index c = member(); c < n; c += kTeam) {
      all.v += weight_of(weights, c) * (load(x[first + c]) - top.v);
      total.v += weight_of(weights, c);
    }
    all = over_team(all);
    total = over_team(total);
  }
)";

Generated cross_entropy(const plan::KernelQuery& query) {
  const Writer writer = begin(query, 0);
  const auto& reduction = get_attr<std::string>(query.attrs, "reduction");
  const int64_t rows = query.inputs[0].shape[0];
  Generated generated;
  generated.workspace_bytes = reduction == "none" ? 0 : static_cast<uint64_t>(rows) * 16;
  generated.stages.push_back(writer.teams("rows", rows, team_for(query.inputs[0].shape[1], false),
                                          std::string("  const auto x = in0;\n  const auto target = in1;\n"
                                                      "  const auto weights = in2;\n") +
                                              kRow + R"(  if (inside && member() == 0) {
    A row = own;
    if (valid) {
      const double log_sum = log((double)sum.v);
      row.loss = own.weight * (log_sum - ((double)load(x[first + t]) - top.v));
      if (kSmoothing > 0) {
        const double smooth = total.v * log_sum - all.v;
        row.loss = (1 - (double)kSmoothing) * row.loss + (double)kSmoothing / kClasses * smooth;
      }
    }
)" + (reduction == "none" ? "    store(out0 + unit, (C)row.loss);\n  }\n" : "    ((A*)work)[unit] = row;\n  }\n")));
  generated.stages.back().describe = no_class;
  if (reduction == "none") return generated;
  reduce(writer,
         {.name = "total",
          .outputs = 1,
          .length = rows,
          .first = "A{0, 0}",
          .take = "((const A*)work)[i]",
          .finish = reduction == "mean" ? "    store(out0, (C)(total.loss / total.weight));\n"
                                        : "    store(out0, (C)total.loss);\n",
          .size = 16},
         generated);
  return generated;
}

// in0 is the gradient of the loss.
Generated cross_entropy_backward(const plan::KernelQuery& query) {
  const Writer writer = begin(query, 1);
  const auto& reduction = get_attr<std::string>(query.attrs, "reduction");
  const int64_t rows = query.inputs[1].shape[0];
  Generated generated;
  if (reduction == "mean") {
    generated.workspace_bytes = 16;
    reduce(writer,
           {.name = "count",
            .outputs = 1,
            .length = rows,
            .first = "A{0, 0}",
            .take = "counted(word, ticket, (i64)in2[i], i, in3)",
            .finish = "    *(A*)work = total;\n",
            .size = 16,
            .describe = no_class},
           generated);
  }
  const std::string scale = reduction == "none"  ? "load(in0[valid ? unit : 0])"
                            : reduction == "sum" ? "load(in0[0])"
                                                 : "load(in0[0]) / ((const A*)work)->weight";
  generated.stages.push_back(writer.teams("", rows, team_for(query.inputs[1].shape[1], false),
                                          std::string("  const auto x = in1;\n  const auto target = in2;\n"
                                                      "  const auto weights = in3;\n") +
                                              kRow + R"(  if (!inside) return;
  const double scale = valid ? )" + scale + R"( : 0, smooth = (double)kSmoothing / kClasses;
  const double w = valid ? (1 - (double)kSmoothing) * weight_of(weights, t) : 0;
  const C slope = valid ? (C)(scale * (w + smooth * total.v) / sum.v) : 0, each = (C)(scale * smooth), hit = (C)(scale * w);
  const In1* row = in1 + unit * kClasses;
  const auto put = [&](C v, Index c) {
    C dx = 0;
    if (valid) dx = exp(v - top.v) * slope - each * weight_of(weights, c) - (c == t ? hit : (C)0);
    store(out0 + unit * kClasses + c, dx);
  };
  Index c = member();
  for (; c + 3 * kTeam < kClasses; c += 4 * kTeam) {
    C v[4];
    for (int k = 0; k < 4; ++k) v[k] = load(row[c + k * kTeam]);
    for (int k = 0; k < 4; ++k) put(v[k], c + k * kTeam);
  }
  for (; c < kClasses; c += kTeam) put(load(row[c]), c);
)"));
  generated.stages.back().describe = no_class;
  return generated;
}

}  // namespace

void add_cross_entropy_kernels(KernelTable& table) {
  add_generated(table, "cross_entropy", cross_entropy);
  add_generated(table, "cross_entropy_backward", cross_entropy_backward);
}

}  // namespace sluice::cuda
