#include <cmath>
#include <cstring>

#include "base/error.h"
#include "onnx/export/emission.h"

namespace sluice::onnx::exporting {
namespace {

void set_attribute(format::AttributeProto& to, const Attr& attr) {
  using Proto = format::AttributeProto;
  if (const auto* i = std::get_if<int64_t>(&attr)) {
    to.set_type(Proto::INT);
    to.set_i(*i);
  } else if (const auto* d = std::get_if<double>(&attr)) {
    to.set_type(Proto::FLOAT);
    to.set_f(static_cast<float>(*d));
  } else if (const auto* s = std::get_if<std::string>(&attr)) {
    to.set_type(Proto::STRING);
    to.set_s(*s);
  } else {
    to.set_type(Proto::INTS);
    for (const int64_t i : std::get<Ints>(attr)) to.add_ints(i);
  }
}

}  // namespace

// The coefficients of the terms, one for each set of dims: solved on the corners, tested on the last trace.
std::optional<std::vector<double>> Exporter::fit(const Number& number) const {
  const size_t dims = options_.dims.size(), terms = size_t{1} << dims;
  std::vector<std::vector<double>> rows(terms, std::vector<double>(terms + 1));
  const auto term = [&](size_t trace, size_t set) {
    double value = 1;
    for (size_t d = 0; d < dims; ++d)
      if (set >> d & 1) value *= static_cast<double>(options_.sizes[trace][d]);
    return value;
  };
  for (size_t r = 0; r < terms; ++r) {
    for (size_t set = 0; set < terms; ++set) rows[r][set] = term(r, set);
    rows[r][terms] = static_cast<double>(number[r]);
  }
  for (size_t p = 0; p < terms; ++p) {
    size_t best = p;
    for (size_t r = p; r < terms; ++r)
      if (std::abs(rows[r][p]) > std::abs(rows[best][p])) best = r;
    std::swap(rows[p], rows[best]);
    for (size_t r = 0; r < terms; ++r) {
      if (r == p) continue;
      const double factor = rows[r][p] / rows[p][p];
      for (size_t k = p; k <= terms; ++k) rows[r][k] -= factor * rows[p][k];
    }
  }
  std::vector<double> made;
  double tested = 0;
  for (size_t set = 0; set < terms; ++set) {
    made.push_back(std::round(rows[set][terms] / rows[set][set]));
    tested += made.back() * term(terms, set);
  }
  for (size_t trace = 0; trace < number.size(); ++trace) {
    double value = 0;
    for (size_t set = 0; set < terms; ++set) value += made[set] * term(trace, set);
    if (value != static_cast<double>(number[trace])) return std::nullopt;
  }
  return made;
}

std::string Exporter::dim_size(size_t dim) {
  std::string& name = dim_names_[dim];
  if (!name.empty()) return name;
  const auto at = dim_at_.find(options_.dims[dim]);
  SLUICE_CHECK(at != dim_at_.end(), "onnx.export: dim '{}' is no axis of an input; must be one", options_.dims[dim]);
  const std::string shape = add1("Shape", {at->second.first});
  const int64_t axis = at->second.second;
  name = add1("Gather", {shape, ints({Number(traces(), axis)})}, {{"axis", int64_t{0}}});
  return name;
}

std::string Exporter::computed(const Number& number) {
  std::string& made = computed_[number];
  if (!made.empty()) return made;
  const Within outermost(*this, outermost_);  // where every graph can read it
  const std::optional<std::vector<double>> terms = fit(number);
  SLUICE_CHECK_KIND(kUnsupported, terms,
                    "onnx.export: {}: a size of {} for dims of {} is no sum of their products; export it "
                    "with that dim fixed",
                    module.empty() ? "graph" : module, number.front(), options_.sizes.front().front());
  std::string sum;
  for (size_t set = 0; set < terms->size(); ++set) {
    if ((*terms)[set] == 0) continue;
    std::string product;
    for (size_t d = 0; d < options_.dims.size(); ++d)
      if (set >> d & 1) product = product.empty() ? dim_size(d) : add1("Mul", {product, dim_size(d)});
    const std::string factor = ints({Number(traces(), static_cast<int64_t>((*terms)[set]))});
    if (product.empty())
      product = factor;
    else if ((*terms)[set] != 1)
      product = add1("Mul", {product, factor});
    sum = sum.empty() ? product : add1("Add", {sum, product});
  }
  return computed_[number] = sum;
}

std::string Exporter::ints(const Numbers& numbers) {
  if (std::all_of(numbers.begin(), numbers.end(), is_fixed)) {
    std::vector<int64_t> values;
    for (const Number& n : numbers) values.push_back(n.front());
    std::string& name = constants_[values];
    if (name.empty()) {
      name = fresh("ints");
      initializer(name, Tensor::from_host({DType::kInt64, {static_cast<int64_t>(values.size())}}, values.data()));
    }
    return name;
  }
  std::vector<std::string> parts;
  Numbers run;
  const auto flush = [&] {
    if (!run.empty()) parts.push_back(ints(std::exchange(run, {})));
  };
  for (const Number& n : numbers) {
    if (is_fixed(n)) {
      run.push_back(n);
      continue;
    }
    flush();
    parts.push_back(computed(n));
  }
  flush();
  return parts.size() == 1 ? parts[0] : add1("Concat", parts, {{"axis", int64_t{0}}});
}

std::string Exporter::scalar(double value, DType dtype) {
  std::string& name = scalars_[{value, dtype}];
  if (name.empty() || value != value) name = constant(Tensor::scalar(value, dtype));
  return name;
}

std::string Exporter::constant(const Tensor& tensor) {
  const std::string name = fresh("constant");
  initializer(name, tensor);
  return name;
}

void Exporter::initializer(const std::string& name, const Tensor& tensor) {
  format::TensorProto& to = *outermost_.add_initializer();
  to.set_name(name);
  to.set_data_type(data_type_of(tensor.dtype()));
  for (const int64_t dim : tensor.shape()) to.add_dims(dim);
  std::string& raw = *to.mutable_raw_data();
  raw.resize(checked_bytes(tensor.shape(), dtype_size(tensor.dtype())));
  tensor.copy_to_host(raw.data());
}

format::NodeProto& Exporter::add_node(const char* op, const std::vector<std::string>& inputs,
                                      const Attributes& attributes, int outputs) {
  format::NodeProto& node = *graph_->add_node();
  node.set_op_type(op);
  node.set_name((module.empty() ? "" : module + "/") + fresh(op));
  for (const std::string& input : inputs) node.add_input(input);
  while (node.input_size() > 0 && node.input(node.input_size() - 1).empty()) node.mutable_input()->RemoveLast();
  for (const auto& [name, value] : attributes) {
    format::AttributeProto& attribute = *node.add_attribute();
    attribute.set_name(name);
    set_attribute(attribute, value);
  }
  for (int i = 0; i < outputs; ++i)
    node.add_output(i == 0 ? node.name() + "_out" : node.name() + "_out" + std::to_string(i));
  return node;
}

std::vector<std::string> Exporter::add(const char* op, const std::vector<std::string>& inputs,
                                       const Attributes& attributes, int outputs) {
  const format::NodeProto& node = add_node(op, inputs, attributes, outputs);
  return {node.output().begin(), node.output().end()};
}

std::vector<std::string> Exporter::add_with_graphs(const char* op, const std::vector<std::string>& inputs,
                                                   const Attributes& attributes, HeldGraphs graphs, int outputs) {
  format::NodeProto& node = add_node(op, inputs, attributes, outputs);
  for (auto& [name, held] : graphs) {
    format::AttributeProto& attribute = *node.add_attribute();
    attribute.set_name(name);
    attribute.set_type(format::AttributeProto::GRAPH);
    held.set_name(node.name() + "/" + name);
    *attribute.mutable_g() = std::move(held);
  }
  return {node.output().begin(), node.output().end()};
}

format::GraphProto Exporter::nested(const std::vector<Port>& inputs, const std::function<std::vector<Port>()>& write) {
  format::GraphProto made;
  const Within within(*this, made);
  for (const Port& port : inputs) set_type(*made.add_input(), port.name, port.types, nullptr);
  for (const Port& port : write()) {  // a result is made in the graph that gives it, and has a name of its own
    const std::string name = add1("Identity", {port.name});
    set_type(*made.add_output(), name, port.types, nullptr);
  }
  return made;
}

void set_type(format::ValueInfoProto& info, const std::string& name, const std::vector<TensorType>& types,
              const std::map<int, std::string>* axes) {
  info.set_name(name);
  auto& tensor = *info.mutable_type()->mutable_tensor_type();
  tensor.set_elem_type(data_type_of(types.front().dtype));
  auto& shape = *tensor.mutable_shape();
  for (int d = 0; d < types.front().shape.rank(); ++d) {
    auto& dim = *shape.add_dim();
    const bool fixed = std::all_of(types.begin(), types.end(),
                                   [&](const TensorType& t) { return t.shape[d] == types.front().shape[d]; });
    if (axes && axes->contains(d))
      dim.set_dim_param(axes->at(d));
    else if (fixed)
      dim.set_dim_value(types.front().shape[d]);
  }
}

namespace {
bool same(const Attr& a, const Attr& b) {
  const auto none = [](const Attr& v) { return std::holds_alternative<double>(v) && std::isnan(std::get<double>(v)); };
  return a == b || (none(a) && none(b));
}
}  // namespace

const Attr& Emission::attr(const char* name) const {
  const int at = op.find_param(name);
  SLUICE_CHECK_KIND(kRuntime, at >= 0, "onnx.export: op {} has no attribute '{}'; its entry must go with it", op.name,
                    name);
  const Attr& first = (*attrs.front())[static_cast<size_t>(at)];
  for (const Attrs* each : attrs)
    if (!same((*each)[static_cast<size_t>(at)], first))
      refuse("attribute '{}' of {} varies with a dim; export it with that dim fixed", name, op.name);
  return first;
}

Numbers Emission::numbers(const char* name) const {
  const int at = op.find_param(name);
  SLUICE_CHECK_KIND(kRuntime, at >= 0, "onnx.export: op {} has no attribute '{}'; its entry must go with it", op.name,
                    name);
  Numbers numbers;
  for (const Attrs* each : attrs) {
    const Attr& attr = (*each)[static_cast<size_t>(at)];
    const Ints values = std::holds_alternative<int64_t>(attr) ? Ints{std::get<int64_t>(attr)} : std::get<Ints>(attr);
    numbers.resize(values.size());
    for (size_t i = 0; i < values.size(); ++i) numbers[i].push_back(values[i]);
  }
  return numbers;
}

Numbers Emission::shape(const std::vector<std::vector<TensorType>>& types, size_t i) const {
  Numbers numbers(static_cast<size_t>(types.front()[i].shape.rank()));
  for (const auto& each : types)
    for (size_t d = 0; d < numbers.size(); ++d) numbers[d].push_back(each[i].shape[static_cast<int>(d)]);
  return numbers;
}

const Emits& all_emits() {
  static const Emits emits = [] {
    Emits all;
    add_elementwise_emits(all);
    add_function_emits(all);
    add_movement_emits(all);
    add_network_emits(all);
    return all;
  }();
  return emits;
}

}  // namespace sluice::onnx::exporting
