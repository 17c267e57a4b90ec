#include "graph/ops/ctc.h"

#include <algorithm>
#include <limits>

#include "graph/executor.h"
#include "graph/ops/activation.h"
#include "graph/ops/comparison.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/indexing.h"
#include "graph/ops/movement.h"
#include "graph/ops/norm_common.h"
#include "graph/ops/reduction.h"
#include "graph/ops/shaping.h"

namespace sluice::ops {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

// log(sum of exp) of values of one shape, elementwise; where all are -inf so is it, without a gradient.
Value log_of_sum(std::span<const Value> terms) {
  Value most = current_executor().detach(terms[0]);
  for (const Value& term : terms.subspan(1)) most = maximum(most, current_executor().detach(term));
  most = where(eq(most, kNever), 0.0, most);
  Value total;
  for (const Value& term : terms) {
    const Value share = exp(sub(term, most));
    total = total.defined() ? add(total, share) : share;
  }
  const Value none = eq(total, 0);
  return where(none, kNever, add(log(where(none, 1.0, total)), most));
}

// Rows (N, L) moved by `count` states, into which nothing comes.
Value later(const Value& rows, int64_t count) {
  const int64_t length = rows.shape()[1];
  if (count >= length) return full(rows.shape(), kNever, rows.dtype());
  return pad(narrow(rows, 1, 0, length - count), {0, count}, {0, 0}, kNever);
}

// Targets one after the other as rows (N, S), which are filled up with what follows.
Value as_rows(const Value& targets, const Value& lengths, int64_t blank) {
  const int64_t n = lengths.shape()[0], total = targets.shape()[0];
  if (total == 0) return full({n, 1}, static_cast<double>(blank), DType::kInt64);
  const Value starts = reshape(sub(cumsum(lengths, 0), lengths), {n, 1});
  const Value at = minimum(add(starts, reshape(iota(0, 1, total), {1, total})), total - 1);
  return reshape(index_select(targets, reshape(at, {n * total}), 0), {n, total});
}

}  // namespace

Value ctc_loss(const Value& given, const Value& targets, const Value& input_lengths, const Value& target_lengths,
               int64_t blank) {
  const Value log_probs = cast(given, stat_dtype(given.dtype()));
  const int64_t steps = given.shape()[0], n = given.shape()[1];
  const Value until = reshape(cast(input_lengths, DType::kInt64), {n, 1});
  const Value count = reshape(cast(target_lengths, DType::kInt64), {n, 1});
  const Value labels = targets.rank() == 1 ? as_rows(cast(targets, DType::kInt64), reshape(count, {n}), blank)
                                           : cast(targets, DType::kInt64);
  // States: a blank before each label and one at the end. Entries beyond a sample's own labels are never read.
  const int64_t labels_most = labels.shape()[1], states = 2 * labels_most + 1;
  const Value known = where(lt(reshape(iota(0, 1, labels_most), {1, labels_most}), count), labels, blank);
  const Value blanks = full({n, labels_most}, static_cast<double>(blank), DType::kInt64);
  const Value pairs[] = {blanks, known};
  const Value path = pad(reshape(stack(pairs, 2), {n, 2 * labels_most}), {0, 0}, {0, 1}, static_cast<double>(blank));
  const Value scores = gather(log_probs, expand(reshape(path, {1, n, states}), {steps, n, states}), 2);
  const Value before = pad(narrow(path, 1, 0, std::max<int64_t>(states - 2, 0)), {0, std::min<int64_t>(2, states)},
                           {0, 0}, static_cast<double>(blank));
  const Value skips = logical_and(ne(path, blank), ne(path, before));

  const Value state = reshape(iota(0, 1, states), {1, states});
  const Value started = add(where(le(state, 1), 0.0, kNever), zeros({n, states}, log_probs.dtype()));
  // A sample without steps can only have no labels.
  Value reached = where(le(state, where(gt(until, 0), -1, 0)), zeros({n, states}, log_probs.dtype()), kNever);
  for (int64_t t = 0; t < steps; ++t) {
    Value next = started;
    if (t > 0) {
      const Value from[] = {reached, later(reached, 1), where(skips, later(reached, 2), kNever)};
      next = log_of_sum(from);
    }
    reached = where(gt(until, t), add(next, select(scores, 0, t)), reached);
  }
  const Value last = mul(count, 2);
  const Value ends[] = {gather(reached, last, 1),
                        where(gt(count, 0), gather(reached, maximum(sub(last, 1), 0), 1), kNever)};
  const Value loss = neg(reshape(log_of_sum(ends), {n}));

  const Value in_time = lt(reshape(iota(0, 1, steps), {steps, 1}), reshape(until, {1, n}));
  const Value mass = sum(where(reshape(in_time, {steps, n, 1}), exp(log_probs), 0.0), Ints{0, 2});
  return cast(add(loss, sub(mass, current_executor().detach(mass))), given.dtype());
}

}  // namespace sluice::ops
