#include "graph/text_attr.h"

#include <charconv>
#include <cmath>
#include <optional>

namespace sluice::graph {
namespace {

// One kind for all items; whole numbers count as real ones among those.
Attr list_of(TextCursor& line, const std::vector<Attr>& items) {
  const auto all = [&]<class T>(const T&) -> std::optional<Attr> {
    std::vector<T> list;
    for (const Attr& item : items) {
      if constexpr (std::is_same_v<T, double>) {
        if (const auto* whole = std::get_if<int64_t>(&item)) {
          list.push_back(static_cast<double>(*whole));
          continue;
        }
      }
      const T* value = std::get_if<T>(&item);
      if (value == nullptr) return std::nullopt;
      list.push_back(*value);
    }
    return Attr(std::move(list));
  };
  std::optional<Attr> list = all(int64_t{});
  if (!list) list = all(double{});
  if (!list) list = all(bool{});
  if (!list) list = all(std::string());
  if (!list) list = all(DType{});
  if (!list) list = all(TensorType{});
  if (!list) {
    line.fail("list: {} and others; items must be of one kind: int, float, bool, str, dtype or type",
              attr_kind(items[0]));
  }
  return *list;
}

// float32(4, 3) or float32(4, 3) strides (1, 4)
TensorSpec spec_of(TextCursor& line) {
  TensorSpec spec = TensorSpec::contiguous(read_type(line));
  if (line.peek() != 's') return spec;
  if (line.word() != "strides") line.fail("result: found {}; must be strides, a comma or a semicolon", line.rest());
  spec.strides = read_sizes(line, "strides", "stride");
  if (spec.strides.rank() != spec.shape.rank())
    line.fail("result: {} strides of shape {}; give one for each axis", spec.strides.rank(), spec.shape.str());
  return spec;
}

int value_number(TextCursor& line) {
  line.expect('%', "value");
  const int64_t number = line.integer("value");
  if (number < 0 || number > 1 << 30) line.fail("value: out of range: %{}; must be in [0, {}]", number, 1 << 30);
  return static_cast<int>(number);
}

int operand_number(TextCursor& line) {
  if (line.peek() == '%') return value_number(line);
  const std::string found = line.rest();
  if (line.word() != "none") line.fail("operands: found {}; must be a value or none", found);
  return kNoOperand;
}

// (2) {%2 = mul(%0, %1); output %2}
AttrGraph graph_of(TextCursor& line, int depth) {
  AttrGraph graph;
  line.expect('(', "graph");
  const int64_t inputs = line.integer("inputs of a graph");
  if (inputs < 0 || inputs > 1 << 20) line.fail("graph: {} inputs; must be in [0, {}]", inputs, 1 << 20);
  graph.inputs = static_cast<int>(inputs);
  line.expect(')', "graph");
  line.expect('{', "graph");
  int next = graph.inputs;
  while (line.peek() == '%') {
    const int first = next;
    do {
      const int number = value_number(line);
      if (number != next)
        line.fail("graph: %{} is out of order; values are numbered as they are given: %{} is next", number, next);
      ++next;
    } while (line.accept(','));
    line.expect('=', "graph");
    AttrCall& call = graph.calls.emplace_back();
    call.op = line.word();
    if (call.op.empty()) line.fail("graph: found {}; must be an op", line.rest());
    line.expect('(', "operands");
    while (line.peek() != ')') {
      if (!call.operands.empty()) line.expect(',', "operands");
      call.operands.push_back(operand_number(line));
    }
    line.expect(')', "operands");
    if (line.accept('{')) call.attrs = read_attributes(line, depth + 1);
    if (line.accept(':')) {
      do call.results.push_back(spec_of(line));
      while (line.accept(','));
    }
    if (call.num_results() != next - first)
      line.fail("graph: {} values and {} types of {}; must be equally many", next - first, call.results.size(),
                call.op);
    line.expect(';', "graph");
  }
  const std::string found = line.rest();
  if (line.word() != "output") line.fail("graph: found {}; must be a value or output", found);
  while (line.peek() != '}') {
    if (!graph.outputs.empty()) line.expect(',', "outputs");
    graph.outputs.push_back(value_number(line));
  }
  line.expect('}', "graph");
  return graph;
}

}  // namespace

Shape read_sizes(TextCursor& line, const char* what, const char* item) {
  Shape result;
  line.expect('(', what);
  while (line.peek() != ')') {
    const int64_t size = line.integer(item);
    if (size < 0) line.fail("{}: negative: {}; must be >= 0", item, size);
    result.push_back(size);
    if (line.peek() != ')') line.expect(',', what);
  }
  line.expect(')', what);
  return result;
}

TensorType read_type(TextCursor& line) {
  const std::string found = line.rest();
  const std::string_view dtype = line.word();
  if (dtype.empty()) line.fail("type: found {}; must be like float32(4, 3)", found);
  return {parse_dtype(dtype), read_sizes(line, "type", "dimension")};
}

NamedAttrs read_attributes(TextCursor& line, int depth) {
  if (depth > kMostNested) line.fail("graph: within {} others; that is too deep", depth);
  NamedAttrs attrs;
  while (line.peek() != '}') {
    if (!attrs.empty()) line.expect(',', "attributes");
    const std::string found = line.rest();
    const std::string_view key = line.word();
    if (key.empty()) line.fail("attributes: found {}; must be name = value", found);
    line.expect('=', "attributes");
    attrs.emplace_back(std::string(key), read_attribute(line, depth));
  }
  line.expect('}', "attributes");
  return attrs;
}

Attr read_attribute(TextCursor& line, int depth) {
  if (line.peek() == '"') return line.string("attribute");
  const std::string found = line.rest();
  if (line.accept('[')) {
    std::vector<Attr> items;
    while (line.peek() != ']') {
      if (!items.empty()) line.expect(',', "list");
      if (line.peek() == '[') line.fail("list: found {}; a list holds no lists", line.rest());
      items.push_back(read_attribute(line, depth));
    }
    line.expect(']', "list");
    return list_of(line, items);
  }
  const std::string_view text = line.number_text();
  if (text == "none") return NoAttr{};
  if (text == "true" || text == "false") return text == "true";
  if (text == "graph") return graph_of(line, depth);
  if (text == "nan" || text == "-nan") return std::nan("");
  if (text == "inf" || text == "-inf") return text[0] == '-' ? -HUGE_VAL : HUGE_VAL;
  const char *begin = text.data(), *end = begin + text.size();
  const bool number = !text.empty() && (text[0] == '-' || text[0] == '.' || (text[0] >= '0' && text[0] <= '9'));
  if (!number) {
    if (text.empty()) line.fail("attribute: found {}; must be a value", found);
    const DType dtype = parse_dtype(text);
    if (line.peek() == '(') return TensorType{dtype, read_sizes(line, "type", "dimension")};
    return dtype;
  }
  int64_t integer = 0;
  const auto whole = std::from_chars(begin, end, integer);
  if (whole.ec == std::errc() && whole.ptr == end) return integer;
  double real = 0;
  const auto point = std::from_chars(begin, end, real);
  const bool is_real = text.find_first_of(".eE") != std::string_view::npos;
  if (!is_real || point.ec != std::errc() || point.ptr != end) {
    line.fail("attribute: found {}; must be {} of 64 bits", found, is_real ? "a number" : "an integer");
  }
  return real;
}

}  // namespace sluice::graph
