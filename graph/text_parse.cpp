// Text -> Graph. A line is one definition:
//
//   graph "name" {
//     %0 = input "x" : float32(4, 3)
//     %1 = variable "w" : float32(3, 2)          constant "c" for constants
//     %2 = matmul(%0, %1) : float32(4, 2) [role "backward", module "fc", source "train.py:41"]
//     %3, %4 = op(%2, none) {dim = 1} : ..., ... [device "sim:0", stream "host:1", quota 2, every 4]
//     output "y" = %2
//     update "w" = %3
//   }
//
// A role left out is "forward". Where no value comes of all micro-batches of a step, "micro_batches 4" says how many it
// has. Inputs, variables and outputs may be placed as nodes are: [device "cpu:0", stream "host"]. An output's type may
// be followed by how it lies in memory, "strides (6, 1, 2)", unless that is contiguous. Values are numbered in order of
// definition. '#' starts a comment.
#include <charconv>
#include <cmath>

#include "base/log.h"
#include "graph/graph.h"
#include "graph/text_cursor.h"

namespace sluice::graph {
namespace {

class Parser {
 public:
  Parser(const std::string& file, const OpRegistry& ops) : file_(file), ops_(ops) {}

  Graph parse(std::string_view text) {
    int number = 0;
    for (size_t pos = 0; pos < text.size();) {
      const size_t end = std::min(text.find('\n', pos), text.size());
      TextCursor line(text.substr(pos, end - pos), fmt::format("{}:{}", file_, ++number));
      pos = end + 1;
      if (!line.at_end()) statement(line);
    }
    const std::string where = fmt::format("{}:{}", file_, std::max(number, 1));
    SLUICE_CHECK(state_ != kBefore, "{}: empty file; must begin with: graph \"name\" {{", where);
    SLUICE_CHECK(state_ == kAfter, "{}: file ends inside the graph; must end with '}}'", where);
    return std::move(graph_);
  }

 private:
  enum State { kBefore, kInside, kAfter };

  void statement(TextCursor& line) {
    if (state_ == kAfter) line.fail("after the graph: extra text: {}; nothing may follow '}}'", line.rest());
    if (state_ == kBefore) {
      const std::string found = line.rest();
      if (line.word() != "graph") line.fail("header: found {}; must be: graph \"name\" {{", found);
      graph_.name = line.string("graph name");
      line.expect('{', "header");
      line.expect_end("header");
      state_ = kInside;
      return;
    }
    if (line.accept('}')) {
      line.expect_end("end of the graph");
      state_ = kAfter;
      return;
    }
    try {
      line.peek() == '%' ? definition(line) : keyword(line);
    } catch (const Error& error) {
      const std::string_view text = error.what();
      if (text.substr(0, line.where().size()) == line.where()) throw;
      throw Error(ErrorKind::kValue, fmt::format("{}: {}", line.where(), text));
    }
  }

  void keyword(TextCursor& line) {
    const std::string found = line.rest();
    const std::string_view word = line.word();
    if (word == "output") return output(line);
    if (word == "update") return update(line);
    if (word == "micro_batches") {
      graph_.set_micro_batches(count(line, "micro_batches"));
      return line.expect_end("micro_batches");
    }
    if (word.empty()) line.fail("statement: found {}; must be a definition, output or update", found);
    node(line, word, {});
  }

  void definition(TextCursor& line) {
    std::vector<ValueId> ids;
    do {
      const ValueId next = static_cast<ValueId>(graph_.values().size() + ids.size());
      const ValueId id = value_id(line);
      if (id < next) line.fail("%{} is defined twice; the next value is %{}", id, next);
      if (id > next) line.fail("%{} is out of order; values are numbered as they are defined: %{} is next", id, next);
      ids.push_back(id);
    } while (line.accept(','));
    line.expect('=', "definition");
    const std::string found = line.rest();
    const std::string_view word = line.word();
    if (word.empty()) line.fail("definition: found {}; must be input, variable, constant or an op", found);
    if (line.peek() == '(') return node(line, word, ids);
    if (word != "input" && word != "variable" && word != "constant") {
      line.fail("definition: found {}; must be input, variable, constant or an op with '('", found);
    }
    if (ids.size() != 1) line.fail("{}: defines {} values; must define one", word, ids.size());
    const std::string name = line.string("name");
    line.expect(':', "definition");
    const TensorType declared = type(line);
    const Placement placed = placement(line);
    line.expect_end("definition");
    if (word == "input") {
      graph_.add_input(name, declared);
      graph_.place_input(static_cast<int>(graph_.inputs().size()) - 1, placed);
    } else {
      graph_.add_variable(name, declared, word == "constant");
      graph_.place_variable(static_cast<int>(graph_.variables().size()) - 1, placed);
    }
  }

  void node(TextCursor& line, std::string_view op_name, const std::vector<ValueId>& ids) {
    Node node;
    node.op = &ops_.get(op_name);
    line.expect('(', "inputs");
    while (line.peek() != ')') {
      if (!node.inputs.empty()) line.expect(',', "inputs");
      node.inputs.push_back(line.peek() == '%' ? defined_value(line) : absent(line));
    }
    line.expect(')', "inputs");
    NamedAttrs attrs;
    if (line.accept('{')) {
      while (line.peek() != '}') {
        if (!attrs.empty()) line.expect(',', "attributes");
        const std::string found = line.rest();
        const std::string_view key = line.word();
        if (key.empty()) line.fail("attributes: found {}; must be name = value", found);
        line.expect('=', "attributes");
        attrs.emplace_back(std::string(key), attribute(line));
      }
      line.expect('}', "attributes");
    }
    node.attrs = order_attrs(*node.op, attrs);
    std::vector<TensorType> declared;
    std::vector<Strides> strides;
    if (!ids.empty()) {
      line.expect(':', "output types");
      do {
        declared.push_back(type(line));
        strides.push_back(line.peek() == 's' ? strides_of(line) : Strides());
      } while (line.accept(','));
    }
    annotations(line, node);
    line.expect_end("definition");
    if (declared.size() != ids.size()) {
      line.fail("{}: {} values defined and {} types given; must be equal", op_name, ids.size(), declared.size());
    }
    const int index = graph_.add_node(std::move(node));
    const std::vector<ValueId>& outputs = graph_.nodes()[index].outputs;
    if (outputs.size() != ids.size()) {
      line.fail("{}: {} values defined; the op has {} outputs", op_name, ids.size(), outputs.size());
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      const TensorType& inferred = graph_.type(outputs[i]);
      if (!(inferred == declared[i])) {
        line.fail("{}: output {} is declared {}; inferred is {}", op_name, i, declared[i].str(), inferred.str());
      }
      if (!strides[i].empty()) graph_.set_strides(outputs[i], strides[i]);
    }
  }

  Placement placement(TextCursor& line) {
    Node node;
    annotations(line, node);
    if (node.every != 1 || node.for_all || node.quota != 0 || node.source.known() || !node.module.empty())
      line.fail("annotations: found those of a node; inputs, variables and outputs have a device and a stream");
    return node.placement;
  }

  void annotations(TextCursor& line, Node& node) {
    if (!line.accept('[')) return;
    do {
      const std::string found = line.rest();
      const std::string_view key = line.word();
      if (key == "device")
        node.placement.device = parse_device(line.string("device"));
      else if (key == "stream")
        node.placement.stream = line.string("stream");
      else if (key == "module")
        node.module = line.string("module");
      else if (key == "source")
        node.source = source(line);
      else if (key == "role")
        node.role = parse_role(line.string("role"));
      else if (key == "quota")
        node.quota = count(line, "quota");
      else if (key == "every")
        node.every = count(line, "every");
      else if (key == "for_all")
        node.for_all = true;
      else
        line.fail("annotations: found {}; known are device, stream, quota, every, for_all, role, module, source",
                  found);
    } while (line.accept(','));
    line.expect(']', "annotations");
  }

  int count(TextCursor& line, const char* what) {
    const int64_t count = line.integer(what);
    if (count < 1 || count > 1 << 20) line.fail("{}: out of range: {}; must be in [1, {}]", what, count, 1 << 20);
    return static_cast<int>(count);
  }

  SourceLocation source(TextCursor& line) {
    const std::string text = line.string("source");
    const size_t colon = text.rfind(':');
    int number = 0;
    if (colon != std::string::npos) std::from_chars(text.data() + colon + 1, text.data() + text.size(), number);
    if (number <= 0) line.fail("source: found \"{}\"; must be \"file:line\"", text);
    return {text.substr(0, colon), number};
  }

  void output(TextCursor& line) {
    const std::string name = line.string("output name");
    line.expect('=', "output");
    const ValueId value = defined_value(line);
    const Placement placed = placement(line);
    line.expect_end("output");
    graph_.add_output(name, value);
    graph_.place_output(static_cast<int>(graph_.outputs().size()) - 1, placed);
  }

  void update(TextCursor& line) {
    const std::string name = line.string("variable name");
    line.expect('=', "update");
    const ValueId value = defined_value(line);
    line.expect_end("update");
    const auto& variables = graph_.variables();
    for (; num_known_ < variables.size(); ++num_known_) {
      variable_index_[variables[num_known_].name] = static_cast<int>(num_known_);
    }
    const auto it = variable_index_.find(name);
    if (it == variable_index_.end()) line.fail("update: unknown variable: \"{}\"; it must be defined before", name);
    if (variables[it->second].update != kNoValue) line.fail("update: \"{}\" is updated twice; once per step", name);
    graph_.set_update(it->second, value);
  }

  ValueId value_id(TextCursor& line) {
    line.expect('%', "value");
    const int64_t id = line.integer("value");
    if (id < 0 || id > 1 << 30) line.fail("value: out of range: %{}; must be in [0, {}]", id, 1 << 30);
    return static_cast<ValueId>(id);
  }

  ValueId defined_value(TextCursor& line) {
    const ValueId id = value_id(line);
    const size_t count = graph_.values().size();
    if (id >= static_cast<ValueId>(count)) {
      line.fail("%{} is not defined; values must be defined before use ({} are)", id, count);
    }
    return id;
  }

  ValueId absent(TextCursor& line) {
    const std::string found = line.rest();
    if (line.word() != "none") line.fail("inputs: found {}; must be a value or none", found);
    return kNoValue;
  }

  TensorType type(TextCursor& line) {
    const std::string found = line.rest();
    const std::string_view dtype = line.word();
    if (dtype.empty()) line.fail("type: found {}; must be like float32(4, 3)", found);
    return {parse_dtype(dtype), sizes(line, "type", "dimension")};
  }

  Strides strides_of(TextCursor& line) {
    const std::string found = line.rest();
    if (line.word() != "strides") line.fail("output types: found {}; must be a type, or strides", found);
    return sizes(line, "strides", "stride");
  }

  Shape sizes(TextCursor& line, const char* what, const char* item) {
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

  Attr attribute(TextCursor& line) {
    if (line.peek() == '"') return line.string("attribute");
    if (line.accept('[')) {
      Ints ints;
      while (line.peek() != ']') {
        if (!ints.empty()) line.expect(',', "list");
        ints.push_back(line.integer("list"));
      }
      line.expect(']', "list");
      return ints;
    }
    const std::string found = line.rest();
    const std::string_view text = line.number_text();
    if (text == "none") return NoAttr{};
    if (text == "true" || text == "false") return text == "true";
    if (text == "nan" || text == "-nan") return std::nan("");
    if (text == "inf" || text == "-inf") return text[0] == '-' ? -HUGE_VAL : HUGE_VAL;
    const char *begin = text.data(), *end = begin + text.size();
    const bool number = !text.empty() && (text[0] == '-' || text[0] == '.' || (text[0] >= '0' && text[0] <= '9'));
    if (!number) {
      if (text.empty()) line.fail("attribute: found {}; must be a value", found);
      return parse_dtype(text);
    }
    int64_t integer = 0;
    const auto whole = std::from_chars(begin, end, integer);
    if (whole.ec == std::errc() && whole.ptr == end) return integer;
    double real = 0;
    const auto point = std::from_chars(begin, end, real);
    const bool is_real = text.find_first_of(".eE") != std::string_view::npos;
    if (!is_real || point.ec != std::errc() || point.ptr != end) {
      line.fail("attribute: found {}; must be a number of 64 bits", found);
    }
    return real;
  }

  const std::string& file_;
  const OpRegistry& ops_;
  Graph graph_;
  State state_ = kBefore;
  std::map<std::string, int> variable_index_;
  size_t num_known_ = 0;  // variables already in variable_index_
};

}  // namespace

Graph parse(std::string_view text, const std::string& file_name, const OpRegistry& ops) {
  Graph graph = Parser(file_name, ops).parse(text);
  log(LogLevel::kDebug, LogArea::kGraph, "{}: graph '{}' of {} nodes", file_name, graph.name, graph.nodes().size());
  return graph;
}

}  // namespace sluice::graph
