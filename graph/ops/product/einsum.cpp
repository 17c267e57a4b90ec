#include "graph/ops/einsum.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "graph/ops/comparison.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/matmul.h"
#include "graph/ops/movement.h"
#include "graph/ops/reduction.h"
#include "graph/ops/shaping.h"
#include "graph/ops/strided_view.h"

namespace sluice::ops {
namespace {

// A label per dim: letters as they are, dims of an ellipsis as -1 (the last one), -2, ...
using Labels = std::vector<int>;

bool has(const Labels& labels, int label) { return std::find(labels.begin(), labels.end(), label) != labels.end(); }

struct Equation {
  std::vector<std::string> inputs;
  std::string output;
  bool explicit_output = false;
};

Equation parse(const std::string& text) {
  std::string dense;
  for (char c : text)
    if (c != ' ') dense += c;
  Equation equation;
  const size_t arrow = dense.find("->");
  equation.explicit_output = arrow != std::string::npos;
  if (equation.explicit_output) equation.output = dense.substr(arrow + 2);
  std::string inputs = dense.substr(0, arrow);
  for (size_t comma = inputs.find(','); comma != std::string::npos; comma = inputs.find(',')) {
    equation.inputs.push_back(inputs.substr(0, comma));
    inputs.erase(0, comma + 1);
  }
  equation.inputs.push_back(inputs);
  return equation;
}

// The labels of one operand, or of the result; `ellipsis` is how many dims "..." stands for.
Labels labels_of(const std::string& text, int ellipsis, const std::string& equation) {
  Labels labels;
  bool seen = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '.') {
      SLUICE_CHECK_KIND(kRuntime, !seen && text.compare(i, 3, "...") == 0,
                        "einsum: found '.' in '{}' that is not part of any ellipsis; an ellipsis is '...', once per "
                        "operand",
                        equation);
      for (int k = ellipsis; k > 0; --k) labels.push_back(-k);
      seen = true;
      i += 2;
    } else {
      SLUICE_CHECK_KIND(kRuntime, std::isalpha(static_cast<unsigned char>(text[i])),
                        "einsum: invalid subscript given at index {} of '{}' in '{}'; subscripts must be in [a-zA-Z]",
                        i, text, equation);
      labels.push_back(text[i]);
    }
  }
  return labels;
}

struct Term {
  Value value;
  Labels labels;  // each once
};

// Diagonals of repeated labels.
Term without_repeats(Term term, const std::string& equation) {
  for (size_t i = 0; i < term.labels.size(); ++i) {
    const auto again =
        std::find(term.labels.begin() + static_cast<std::ptrdiff_t>(i) + 1, term.labels.end(), term.labels[i]);
    if (again == term.labels.end()) continue;
    const int a = static_cast<int>(i), b = static_cast<int>(again - term.labels.begin());
    SLUICE_CHECK_KIND(kRuntime, term.value.shape()[a] == term.value.shape()[b],
                      "einsum: subscript {} is repeated for an operand of '{}' but the sizes don't match, {} != {}",
                      static_cast<char>(term.labels[i]), equation, term.value.shape()[b], term.value.shape()[a]);
    term.value = movedim(diagonal(term.value, 0, a, b), -1, a);
    term.labels.erase(again);
    --i;  // it may occur a third time
  }
  return term;
}

Term summed(Term term, const Labels& kept) {
  Ints dims;
  Labels left;
  for (size_t i = 0; i < term.labels.size(); ++i)
    if (has(kept, term.labels[i]))
      left.push_back(term.labels[i]);
    else
      dims.push_back(static_cast<int64_t>(i));
  if (dims.empty()) return term;
  return {cast(sum(term.value, dims), term.value.dtype()), left};
}

// The dims in the order of `labels`, of size 1 where the term has no such label.
Value arranged(const Term& term, const Labels& labels) {
  Ints order, shape;
  for (int label : labels) {
    const auto at = std::find(term.labels.begin(), term.labels.end(), label);
    shape.push_back(at == term.labels.end() ? 1 : term.value.shape()[static_cast<int>(at - term.labels.begin())]);
    if (at != term.labels.end()) order.push_back(at - term.labels.begin());
  }
  return reshape(permute(term.value, order), shape);
}

int64_t size_of(const Term& term, int label) {
  const auto at = std::find(term.labels.begin(), term.labels.end(), label);
  return at == term.labels.end() ? 1 : term.value.shape()[static_cast<int>(at - term.labels.begin())];
}

// The product of two terms, summed over what is not kept: labels of both in front as a batch, then a matrix product.
Term contracted(Term a, Term b, const Labels& kept) {
  Labels of_a = kept, of_b = kept;
  of_a.insert(of_a.end(), b.labels.begin(), b.labels.end());
  of_b.insert(of_b.end(), a.labels.begin(), a.labels.end());
  a = summed(std::move(a), of_a);
  b = summed(std::move(b), of_b);
  Labels batch, rows, columns, inner;
  for (int label : a.labels) (!has(b.labels, label) ? rows : has(kept, label) ? batch : inner).push_back(label);
  for (int label : b.labels)
    if (!has(a.labels, label)) columns.push_back(label);
  Labels result = batch;
  result.insert(result.end(), rows.begin(), rows.end());
  result.insert(result.end(), columns.begin(), columns.end());
  if (inner.empty()) return {mul(arranged(a, result), arranged(b, result)), result};
  // Sizes of 1 broadcast; the shapes of the factors: (batch, rows, inner) and (batch, inner, columns).
  Ints shape;
  int64_t inner_size = 1, row_count = 1, column_count = 1;
  const auto widened = [](const Term& term, const Labels& first, const Labels& second, const Labels& third,
                          const Term& other) {
    Labels labels = first;
    labels.insert(labels.end(), second.begin(), second.end());
    labels.insert(labels.end(), third.begin(), third.end());
    const Value value = arranged(term, labels);
    Shape shape = value.shape();
    for (size_t i = 0; i < labels.size(); ++i) {
      const int k = static_cast<int>(i);
      if (shape[k] == 1) shape[k] = size_of(other, labels[i]);
    }
    return expand(value, shape);
  };
  const auto size_both = [&](int label) {
    const int64_t m = size_of(a, label), n = size_of(b, label);
    return m == 1 ? n : m;
  };
  int64_t batch_count = 1;
  for (int label : batch) batch_count *= size_both(label), shape.push_back(size_both(label));
  for (int label : rows) row_count *= size_of(a, label), shape.push_back(size_of(a, label));
  for (int label : columns) column_count *= size_of(b, label), shape.push_back(size_of(b, label));
  for (int label : inner) inner_size *= size_both(label);
  const Value left = reshape(widened(a, batch, rows, inner, b), {batch_count, row_count, inner_size});
  const Value right = reshape(widened(b, batch, inner, columns, a), {batch_count, inner_size, column_count});
  return {reshape(matmul(left, right), shape), result};
}

}  // namespace

Value einsum(const std::string& text, const std::vector<Value>& operands) {
  const Equation equation = parse(text);
  SLUICE_CHECK_KIND(kRuntime, !operands.empty(), "einsum: must provide at least one operand");
  SLUICE_CHECK_KIND(kRuntime, equation.inputs.size() == operands.size(),
                    "einsum: {} operands were provided, and '{}' has {} subscripts; there must be one each",
                    operands.size(), text, equation.inputs.size());
  int most = 0;  // dims of the longest ellipsis
  std::vector<Term> terms;
  std::map<int, int64_t> sizes;
  std::map<int, int> counts;
  for (size_t i = 0; i < operands.size(); ++i) {
    const std::string& input = equation.inputs[i];
    const bool open = input.find("...") != std::string::npos;
    const int named = static_cast<int>(std::count_if(input.begin(), input.end(), [](char c) { return c != '.'; }));
    const int rank = operands[i].rank();
    SLUICE_CHECK_KIND(kRuntime, open ? named <= rank : named == rank,
                      "einsum: the number of subscripts in the equation ({}) does not match the number of dimensions "
                      "({}) for operand {} of '{}'",
                      named, rank, i, text);
    Term term{operands[i], labels_of(input, rank - named, text)};
    if (open) most = std::max(most, rank - named);
    for (int label : term.labels) ++counts[label];
    term = without_repeats(std::move(term), text);
    for (size_t k = 0; k < term.labels.size(); ++k) {
      const int64_t n = term.value.shape()[static_cast<int>(k)];
      int64_t& known = sizes.emplace(term.labels[k], 1).first->second;
      SLUICE_CHECK_KIND(kRuntime, known == 1 || n == 1 || n == known,
                        "einsum: operands do not broadcast with remapped shapes in '{}': a subscript has sizes {} and "
                        "{}; they must be equal or 1",
                        text, known, n);
      if (known == 1) known = n;
    }
    terms.push_back(std::move(term));
  }
  Labels output;
  if (equation.explicit_output) {
    output = labels_of(equation.output, most, text);
    for (int label : output)
      SLUICE_CHECK_KIND(kRuntime, counts.contains(label) && std::count(output.begin(), output.end(), label) == 1,
                        "einsum: output subscript {} of '{}' must appear once in the output and in some operand",
                        static_cast<char>(label), text);
  } else {
    for (int k = most; k > 0; --k) output.push_back(-k);
    for (const auto& [label, count] : counts)
      if (label > 0 && count == 1) output.push_back(label);
  }
  Term total = terms[0];
  for (size_t i = 1; i < terms.size(); ++i) {
    Labels kept = output;
    for (size_t k = i + 1; k < terms.size(); ++k)
      kept.insert(kept.end(), terms[k].labels.begin(), terms[k].labels.end());
    total = contracted(std::move(total), terms[i], kept);
  }
  return arranged(summed(std::move(total), output), output);
}

}  // namespace sluice::ops
