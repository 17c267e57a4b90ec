// Distances between vectors, and the losses made of them: torch.nn.functional's spelling.
#include <cmath>
#include <limits>

#include "graph/executor.h"
#include "graph/ops/activation.h"
#include "graph/ops/comparison.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/forms.h"
#include "graph/ops/indexing.h"
#include "graph/ops/losses.h"
#include "graph/ops/matmul.h"
#include "graph/ops/movement.h"
#include "graph/ops/reduction.h"
#include "graph/ops/shaping.h"

namespace sluice::ops {
namespace {

using Reduction = std::string;
using OptionalBool = std::optional<bool>;

// As torch: eps bounds the values of the norms, while gradients are those of the norms.
Value bounded_norm(const Value& x, int64_t dim, double eps) {
  const Value length = norm(x, 2, Ints{dim}, true);
  const Value missing = sub(clamp(length, Operand(eps), std::nullopt), length);
  return add(length, current_executor().detach(missing));
}

Value cosine_similarity(const Value& a, const Value& b, int64_t dim, double eps) {
  const DType dtype = promote(a.dtype(), b.dtype());
  SLUICE_CHECK_KIND(kRuntime, is_floating(dtype),
                    "cosine_similarity: expected common dtype to be floating point, yet common dtype is {}",
                    dtype_name(dtype));
  const Shape shape = broadcast_shapes(a.shape(), b.shape(), "cosine_similarity");
  const Value x = expand(cast(a, dtype), shape), y = expand(cast(b, dtype), shape);
  return sum(mul(div(x, bounded_norm(x, dim, eps)), div(y, bounded_norm(y, dim, eps))), Ints{dim});
}

Value pairwise_distance(const Value& a, const Value& b, double p, double eps, bool keepdim) {
  return norm(add(sub(a, b), eps), p, Ints{-1}, keepdim);
}

// Norms of the rows of differences. Without coordinates all are 0, the largest difference as well.
Value row_norms(const Value& difference, double p) {
  return norm(difference, difference.shape().back() == 0 ? 1 : p, Ints{-1});
}

// Root of x, 0 where that is 0 or less, and so are gradients there. The root of NaN is NaN.
Value root_of_positive(const Value& x) {
  const Value none = le(x, 0);
  return where(none, 0, sqrt(where(none, 1, x)));
}

// |a|^2 - 2 a b + |b|^2 as one product: each row of a with its square and a 1, each of b with a 1 and its square.
Value distances_by_product(const Value& a, const Value& b) {
  const auto squares = [](const Value& x) { return sum(mul(x, x), Ints{-1}, true); };
  const Value of_a = squares(a), of_b = squares(b);
  const Value rows = concat(std::vector{mul(a, -2), of_a, ones_like(of_a)}, -1),
              columns = concat(std::vector{b, ones_like(of_b), of_b}, -1);
  return root_of_positive(matmul(rows, columns, false, true));
}

// As torch: many rows are multiplied, whose distances are less exact, if they are small beside the rows.
bool by_product(const Value& a, const Value& b, double p, const std::optional<std::string>& mode) {
  constexpr int64_t kFewRows = 25;
  const std::string how = mode.value_or("use_mm_for_euclid_dist_if_necessary");
  const bool always = how == "use_mm_for_euclid_dist", never = how == "donot_use_mm_for_euclid_dist";
  SLUICE_CHECK_KIND(
      kValue, always || never || how == "use_mm_for_euclid_dist_if_necessary",
      "cdist: compute_mode: got {}; must be use_mm_for_euclid_dist_if_necessary, use_mm_for_euclid_dist or "
      "donot_use_mm_for_euclid_dist",
      how);
  const auto rows = [](const Value& x) { return x.shape()[x.rank() - 2]; };
  return p == 2 && (always || (!never && (rows(a) > kFewRows || rows(b) > kFewRows)));
}

Value cdist(const Value& a, const Value& b, double p, const std::optional<std::string>& mode) {
  SLUICE_CHECK_KIND(kRuntime, a.rank() >= 2 && b.rank() >= 2,
                    "cdist: only supports at least 2D tensors, got: {}D and {}D", a.rank(), b.rank());
  SLUICE_CHECK_KIND(kRuntime, a.shape().back() == b.shape().back(),
                    "cdist: X1 and X2 must have the same number of columns: {} and {}", a.shape().str(),
                    b.shape().str());
  SLUICE_CHECK_KIND(kRuntime, p >= 0, "cdist: only supports non-negative p values: got {}", p);
  if (by_product(a, b, p, mode)) return distances_by_product(a, b);
  return row_norms(sub(unsqueeze(a, -2), unsqueeze(b, -3)), p);
}

Value pdist(const Value& x, double p) {
  SLUICE_CHECK_KIND(kRuntime, x.rank() == 2, "pdist: only supports 2D tensors, got: {}D", x.rank());
  SLUICE_CHECK_KIND(kRuntime, p >= 0, "pdist: only supports non-negative p values: got {}", p);
  std::vector<Value> rows;
  const int64_t n = x.shape()[0];
  for (int64_t i = 0; i + 1 < n; ++i)
    rows.push_back(row_norms(sub(narrow(x, 0, i, 1), narrow(x, 0, i + 1, n - i - 1)), p));
  if (rows.empty()) return row_norms(narrow(x, 0, 0, 0), p);  // no distances, with a history all the same
  return concat(rows, 0);
}

// max(x, 0), with the gradient of torch's clamp_min: 1 at 0.
Value hinge(const Value& x) { return clamp(x, Operand(0), std::nullopt); }

Value margin_ranking(const Value& a, const Value& b, const Value& target, double margin, const OptionalBool& average,
                     const OptionalBool& reduce, const Reduction& given) {
  SLUICE_CHECK_KIND(kRuntime, a.rank() == b.rank() && a.rank() == target.rank(),
                    "margin_ranking_loss: All input tensors should have same dimension but got sizes: input1: {}, "
                    "input2: {}, target: {}",
                    a.shape().str(), b.shape().str(), target.shape().str());
  return reduce_loss(hinge(add(mul(neg(target), sub(a, b)), margin)), reduction_of(average, reduce, given),
                     "margin_ranking_loss");
}

Value triplet_margin(const Value& anchor, const Value& positive, const Value& negative, double margin, double p,
                     double eps, bool swap, const OptionalBool& average, const OptionalBool& reduce,
                     const Reduction& given) {
  SLUICE_CHECK_KIND(kRuntime, anchor.rank() == positive.rank() && anchor.rank() == negative.rank(),
                    "triplet_margin_loss: The anchor, positive, and negative tensors are expected to have the same "
                    "number of dimensions, but got: anchor {}D, positive {}D, and negative {}D inputs",
                    anchor.rank(), positive.rank(), negative.rank());
  SLUICE_CHECK(margin > 0, "triplet_margin_loss: margin must be greater than 0, got {}", margin);
  const Value near = pairwise_distance(anchor, positive, p, eps, false);
  Value far = pairwise_distance(anchor, negative, p, eps, false);
  if (swap) far = minimum(far, pairwise_distance(positive, negative, p, eps, false));
  return reduce_loss(hinge(add(sub(near, far), margin)), reduction_of(average, reduce, given), "triplet_margin_loss");
}

Value hinge_embedding(const Value& x, const Value& target, double margin, const OptionalBool& average,
                      const OptionalBool& reduce, const Reduction& given) {
  // As torch, of integers the margin's whole part counts.
  const Value beyond = is_integral(x.dtype()) ? sub(static_cast<int64_t>(margin), x) : sub(margin, x);
  const Value far = where(ne(target, 1), hinge(beyond), 0), near = where(ne(target, -1), x, 0);
  return reduce_loss(add(far, near), reduction_of(average, reduce, given), "hinge_embedding_loss");
}

Value cosine_embedding(const Value& a, const Value& b, const Value& target, double margin, const OptionalBool& average,
                       const OptionalBool& reduce, const Reduction& given) {
  SLUICE_CHECK_KIND(kRuntime, target.rank() <= 1,
                    "cosine_embedding_loss: 0D or 1D target tensor expected, multi-target not supported: got {}",
                    target.shape().str());
  SLUICE_CHECK_KIND(
      kRuntime, a.rank() == target.rank() + 1 && b.rank() == target.rank() + 1,
      "cosine_embedding_loss: {}D target tensor expects {}D input tensors, but found inputs with sizes {} "
      "and {}",
      target.rank(), target.rank() + 1, a.shape().str(), b.shape().str());
  constexpr double kEps = 1e-12;  // as torch, beside the squares of the norms
  const Ints last = {-1};
  const Value squares = mul(add(sum(square(a), last), kEps), add(sum(square(b), last), kEps));
  const Value cosine = div(sum(mul(a, b), last), sqrt(squares));
  const Value alike = where(eq(target, 1), sub(1.0, cosine), 0.0);
  const Value apart = where(eq(target, -1), hinge(sub(cosine, margin)), 0.0);
  return reduce_loss(add(alike, apart), reduction_of(average, reduce, given), "cosine_embedding_loss");
}

Value bilinear(const Value& a, const Value& b, const Value& weight, const Value& bias) {
  SLUICE_CHECK_KIND(
      kRuntime, a.rank() > 0 && a.rank() == b.rank() && weight.rank() == 3,
      "bilinear: input dimensions do not match: got {} and {}, weight {}; inputs must have the same rank, "
      "the weight 3 dims",
      a.shape().str(), b.shape().str(), weight.shape().str());
  SLUICE_CHECK_KIND(kIndex, !bias.defined() || bias.rank() > 0, "bilinear: bias has no dimensions; must have one");
  const int64_t out = weight.shape()[0], left = weight.shape()[1], right = weight.shape()[2];
  Ints lead = a.shape().vec();
  lead.pop_back();
  for (int i = 0; i + 1 < a.rank(); ++i)
    SLUICE_CHECK_KIND(kRuntime, a.shape()[i] == b.shape()[i],
                      "bilinear: input batch dimensions do not match at dim {}: got {} and {}", i, a.shape()[i],
                      b.shape()[i]);
  SLUICE_CHECK_KIND(kRuntime, a.shape().back() == left && b.shape().back() == right,
                    "bilinear: input sizes do not match weight {}: got {} and {}", weight.shape().str(),
                    a.shape().back(), b.shape().back());
  SLUICE_CHECK_KIND(kRuntime, !bias.defined() || bias.shape()[0] == out,
                    "bilinear: bias size does not match weight size: got {} but expected {}", bias.shape()[0], out);
  int64_t rows = 1;
  for (int64_t d : lead) rows *= d;
  // (rows, out, right): a times each slice of the weight, then summed against b.
  const Value of_a = matmul(reshape(a, {rows, left}), reshape(permute(weight, {1, 0, 2}), {left, out * right}));
  Value y = sum(mul(reshape(of_a, {rows, out, right}), reshape(b, {rows, 1, right})), Ints{2});
  if (bias.defined()) y = add(y, bias);
  lead.push_back(out);
  return reshape(y, lead);
}

}  // namespace

std::vector<Form> distance_forms() {
  std::vector<Form> forms;
  const auto add = [&](const char* doc, Overload o, std::vector<const char*> aliases = {}, bool method = false) {
    forms.push_back({.doc = doc, .overloads = {std::move(o)}, .aliases = std::move(aliases), .method = method});
  };
  add("Cosine of the angle between vectors along dim, norms being at least eps. F.cosine_similarity.",
      overload("cosine_similarity(Tensor x1, Tensor x2, int dim=1, float eps=1e-08) -> Tensor", &cosine_similarity),
      {"nn.functional.cosine_similarity"});
  add("The p-norm of x1 - x2 + eps along the last dim. F.pairwise_distance.",
      overload("pairwise_distance(Tensor x1, Tensor x2, float p=2.0, float eps=1e-06, bool keepdim=False) -> Tensor",
               &pairwise_distance),
      {"nn.functional.pairwise_distance"});
  add("p-norms between the rows of (..., P, M) and (..., R, M): (..., P, R). torch.cdist.",
      overload("cdist(Tensor x1, Tensor x2, float p=2.0, str? compute_mode=None) -> Tensor", &cdist));
  add("p-norms between the rows i < j of a matrix, in their order. torch.pdist.",
      overload("pdist(Tensor input, float p=2.0) -> Tensor", &pdist), {"nn.functional.pdist"});
  add("x1^T A x2 + bias for each slice A of weight (out, in1, in2). F.bilinear.",
      overload("bilinear(Tensor input1, Tensor input2, Tensor weight, Tensor? bias=None) -> Tensor", &bilinear),
      {"nn.functional.bilinear"});
  add("max(0, margin - target * (input1 - input2)). F.margin_ranking_loss.",
      overload("nn.functional.margin_ranking_loss(Tensor input1, Tensor input2, Tensor target, float margin=0.0, bool? "
               "size_average=None, bool? reduce=None, str reduction=\"mean\") -> Tensor",
               &margin_ranking));
  add("max(0, margin + |anchor - positive| - |anchor - negative|) of p-norms. F.triplet_margin_loss.",
      overload("nn.functional.triplet_margin_loss(Tensor anchor, Tensor positive, Tensor negative, float margin=1.0, "
               "float p=2.0, float eps=1e-06, bool swap=False, bool? size_average=None, bool? reduce=None, str "
               "reduction=\"mean\") -> Tensor",
               &triplet_margin));
  add("input where the target is 1, max(0, margin - input) where it is -1. F.hinge_embedding_loss.",
      overload("nn.functional.hinge_embedding_loss(Tensor input, Tensor target, float margin=1.0, bool? "
               "size_average=None, bool? reduce=None, str reduction=\"mean\") -> Tensor",
               &hinge_embedding));
  add("1 - cosine where the target is 1, max(0, cosine - margin) where it is -1. F.cosine_embedding_loss.",
      overload("nn.functional.cosine_embedding_loss(Tensor input1, Tensor input2, Tensor target, float margin=0.0, "
               "bool? size_average=None, bool? reduce=None, str reduction=\"mean\") -> Tensor",
               &cosine_embedding));
  return forms;
}

}  // namespace sluice::ops
