// Text -> Graph. A line is one definition:
//
//   graph "name" {
//     %0 = input "x" : float32(4, 3)
//     %1 = variable "w" : float32(3, 2)          constant "c" for constants
//     %2 = matmul(%0, %1) : float32(4, 2) [role "backward", module "fc", source "train.py:41"]
//     %3, %4 = op(%2, none) {dim = 1} : ..., ... [device "sim:0", stream "host:1", quota 2, every 4]
//     output "y" = %2                            = %2 axes(1, 0): %2 is "y" with its axes in this order
//     update "w" = %3
//   }
//
// A role left out is "forward". A graph in which no value comes of all micro-batches of a step says "micro_batches 4",
// the number that a step has. Inputs, variables and outputs may be placed as nodes are: [device "cpu:0", stream
// "host"]. An output's type may be followed by how it lies in memory, "strides (6, 1, 2)", unless that is contiguous.
// Values are numbered in order of definition. Attributes are as attr_str() prints them. '#' starts a comment.
#include <algorithm>
#include <charconv>
#include <numeric>

#include "base/log.h"
#include "base/old_attrs.h"
#include "graph/graph.h"
#include "graph/text_attr.h"

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
    ValueIds ids;
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
    const TensorType declared = read_type(line);
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

  void node(TextCursor& line, std::string_view op_name, const ValueIds& ids) {
    Node node;
    node.op = &ops_.get(op_name);
    line.expect('(', "inputs");
    while (line.peek() != ')') {
      if (!node.inputs.empty()) line.expect(',', "inputs");
      node.inputs.push_back(line.peek() == '%' ? defined_value(line) : absent(line));
    }
    line.expect(')', "inputs");
    NamedAttrs attrs;
    if (line.accept('{')) attrs = read_attributes(line);
    read_old_attrs(op_name, node.inputs.size(), attrs);
    node.attrs = order_attrs(*node.op, attrs);
    std::vector<TensorType> declared;
    std::vector<Strides> strides;
    if (!ids.empty()) {
      line.expect(':', "output types");
      do {
        declared.push_back(read_type(line));
        strides.push_back(line.peek() == 's' ? strides_of(line) : Strides());
      } while (line.accept(','));
    }
    annotations(line, node);
    line.expect_end("definition");
    if (declared.size() != ids.size()) {
      line.fail("{}: {} values defined and {} types given; must be equal", op_name, ids.size(), declared.size());
    }
    const int index = graph_.add_node(std::move(node));
    const ValueIds& outputs = graph_.nodes()[index].outputs;
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
    if (node.every != 1 || node.for_all || node.quota != 0 || node.source.known() || !node.module.empty() ||
        node.region != 0 || node.kept || node.placed != Placed::kDefault)
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
      else if (key == "placed")
        node.placed = parse_placed(line.string("placed"));
      else if (key == "quota")
        node.quota = count(line, "quota");
      else if (key == "every")
        node.every = count(line, "every");
      else if (key == "region")
        node.region = count(line, "region");
      else if (key == "for_all")
        node.for_all = true;
      else if (key == "kept")
        node.kept = true;
      else
        line.fail(
            "annotations: found {}; known are device, stream, quota, every, for_all, role, region, kept, placed, "
            "module, source",
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
    std::optional<ExtentOf> extent;
    if (line.peek() == 'e') extent = extent_of(line);
    std::vector<int> axes;
    if (line.peek() == 'a') axes = axes_of(line, graph_.type(value).shape.rank());
    const Placement placed = placement(line);
    line.expect_end("output");
    graph_.add_output(name, value, std::move(extent), std::move(axes));
    graph_.place_output(static_cast<int>(graph_.outputs().size()) - 1, placed);
  }

  ExtentOf extent_of(TextCursor& line) {
    const std::string found = line.rest();
    if (line.word() != "extent_of")
      line.fail("output: found {}; must be extent_of, axes, annotations or the end", found);
    ExtentOf extent;
    line.expect('(', "extent_of");
    extent.output = line.string("output name");
    line.expect(',', "extent_of");
    const int64_t axis = line.integer("axis");
    if (axis < 0 || axis >= kMaxRank) line.fail("axis: out of range: {}; must be in [0, {})", axis, kMaxRank);
    extent.axis = static_cast<int>(axis);
    line.expect(',', "extent_of");
    extent.dim = line.string("dim");
    line.expect(')', "extent_of");
    return extent;
  }

  std::vector<int> axes_of(TextCursor& line, int rank) {
    const std::string found = line.rest();
    if (line.word() != "axes") line.fail("output: found {}; must be extent_of, axes, annotations or the end", found);
    std::vector<int64_t> axes, each(rank);
    std::iota(each.begin(), each.end(), 0);
    line.expect('(', "axes");
    do axes.push_back(line.integer("axis"));
    while (line.accept(','));
    line.expect(')', "axes");
    if (!std::is_permutation(axes.begin(), axes.end(), each.begin(), each.end()))
      line.fail("axes: found {}; must name each of the {} axes of the value once", found, rank);
    return {axes.begin(), axes.end()};
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

  Strides strides_of(TextCursor& line) {
    const std::string found = line.rest();
    if (line.word() != "strides") line.fail("output types: found {}; must be a type, or strides", found);
    return read_sizes(line, "strides", "stride");
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
