#pragma once
// Composites of the movement ops, under torch's names.
#include <optional>
#include <span>
#include <vector>

#include "base/attr.h"
#include "graph/value.h"

namespace sluice::ops {

Value squeeze(const Value& x, const std::optional<Ints>& dim = {});
Value unsqueeze(const Value& x, int64_t dim);
Value flatten(const Value& x, int64_t start_dim = 0, int64_t end_dim = -1);
Value transpose(const Value& x, int64_t dim0, int64_t dim1);
Value movedim(const Value& x, int64_t source, int64_t destination);
Value narrow(const Value& x, int64_t dim, int64_t start, int64_t length);
Value select(const Value& x, int64_t dim, int64_t index);
std::vector<Value> unbind(const Value& x, int64_t dim = 0);
std::vector<Value> split(const Value& x, int64_t size, int64_t dim = 0);  // the last may be smaller
std::vector<Value> split(const Value& x, const Ints& sizes, int64_t dim = 0);
std::vector<Value> chunk(const Value& x, int64_t chunks, int64_t dim = 0);
Value stack(std::span<const Value> xs, int64_t dim = 0);
Value tile(const Value& x, const Ints& repeats);  // numpy.tile, torch.Tensor.repeat
Value roll(const Value& x, const Ints& shifts, const Ints& dims);
Value tril(const Value& x, int64_t diagonal = 0);
Value triu(const Value& x, int64_t diagonal = 0);

}  // namespace sluice::ops
