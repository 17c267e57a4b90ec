// softmax, log_softmax and their backwards: a team per row.
#include "kernels/cuda/families.h"
#include "kernels/cuda/prelude.h"

namespace sluice::cuda {
namespace {

struct Rows {
  int64_t outer = 1, length = 1, inner = 1;
};

Generated softmax(const plan::KernelQuery& query) {
  const Shape& x = query.inputs[0].shape;
  Rows rows;
  if (x.rank() > 0) {
    const int dim = normalize_axis(get_attr<int64_t>(query.attrs, "dim"), x.rank(), query.op.c_str());
    for (int i = 0; i < dim; ++i) rows.outer *= x[i];
    rows.length = x[dim];
    for (int i = dim + 1; i < x.rank(); ++i) rows.inner *= x[i];
  }
  Writer writer(query);
  writer.compute(query.inputs[0].dtype);
  writer.constant("kLength", rows.length);
  writer.constant("kInner", rows.inner);
  writer.add(kRunningFunctions);
  writer.add(R"(struct Sum { C v; };
__device__ inline Sum join(Sum a, Sum b) { return Sum{a.v + b.v}; }
)");
  const bool log = query.op.starts_with("log_");
  std::string body = R"(  const Index first = inside ? unit / kInner * kLength * kInner + unit % kInner : 0;
  const Index end = inside ? first + kLength * kInner : 0, from = first + member() * kInner, step = kTeam * kInner;
  Sum sum = {0};
)";
  if (query.op.ends_with("_backward")) {  // in0 is the gradient, in1 the result
    body += log ? "  for (Index i = from; i < end; i += step) sum.v += load(in0[i]);\n"
                : "  for (Index i = from; i < end; i += step) sum.v += load(in0[i]) * load(in1[i]);\n";
    body += "  sum = over_team(sum);\n  for (Index i = from; i < end; i += step)\n    store(out0 + i, ";
    body += log ? "load(in0[i]) - exp(load(in1[i])) * sum.v" : "load(in1[i]) * (load(in0[i]) - sum.v)";
  } else {
    body += R"(  const Running run = over_team(running(in0, from, end, step));
  const C top = run.top;
  sum.v = run.sum;
)";
    body += log ? "  const C scale = log(sum.v);\n" : "  const C scale = 1 / sum.v;\n";
    body += "  for (Index i = from; i < end; i += step)\n    store(out0 + i, ";
    body += log ? "(load(in0[i]) - top) - scale" : "exp(load(in0[i]) - top) * scale";
  }
  const int64_t units = rows.length == 0 ? 0 : rows.outer * rows.inner;
  return {{writer.teams("", units, team_for(rows.length, rows.inner > 1), body + ");\n")}};
}

}  // namespace

void add_softmax_kernels(KernelTable& table) {
  for (const char* op : {"softmax", "log_softmax", "softmax_backward", "log_softmax_backward"}) {
    add_generated(table, op, softmax);
  }
}

}  // namespace sluice::cuda
