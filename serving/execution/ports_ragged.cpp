// Inputs and outputs of requests that are batched without padding.
#include <fmt/format.h>

#include <algorithm>

#include "serving/execution/ports.h"

namespace sluice::serving {

namespace {

std::string first_dim(const api::Port& port) { return port.dims.empty() ? "" : port.dims[0]; }

// Dims of the client's that lie in the bundle's first axis; the others are its inner ones.
size_t flattened(const ShownPort& port) { return port.dims.size() - (port.bundle.shape.size() - 1); }

}  // namespace

std::vector<int64_t> ModelPorts::ragged_rows() const {
  std::vector<int64_t> rows;
  for (const size_t i : ragged_) rows.push_back(inputs_[i].bundle.shape[0]);
  return rows;
}

void ModelPorts::add_ragged(const inference::ModelInput& input, ShownPort& port) {
  const std::string here = where("input", input.name());
  const std::vector<int64_t>& shape = port.bundle.shape;
  bool fits = !shape.empty() && port.dims.size() >= shape.size();
  for (size_t a = 1; fits && a < shape.size(); ++a) {
    const bool fixed = port.bundle.dims.size() <= a || port.bundle.dims[a].empty();
    fits = fixed && port.dims[port.dims.size() - shape.size() + a] == shape[a];
  }
  if (!fits)
    wrong(
        fmt::format("{}: allow_ragged_batch, dims {}; the bundle has {}, and its axes behind the first must be the "
                    "last dims",
                    here, shape_text(port.dims), port.bundle.str()));
  port.ragged = true;
  ragged_.push_back(inputs_.size());
}

// Those that batch_output names, and those whose first axis is of a ragged input's dim.
void ModelPorts::find_ragged_outputs(const inference::ModelConfig& config) {
  const auto source_of = [&](const std::string& name) -> size_t {
    for (size_t r = 0; r < ragged_.size(); ++r)
      if (inputs_[ragged_[r]].name == name) return r;
    wrong(fmt::format("model '{}': batch_output: source_input '{}'; it must be an input with allow_ragged_batch",
                      model_, name));
  };
  for (const inference::BatchOutput& output : config.batch_output()) {
    if (output.target_name_size() != 1 || output.source_input_size() != 1)
      wrong(fmt::format("model '{}': batch_output: target_name and source_input must be one each", model_));
    const auto port = std::find_if(outputs_.begin(), outputs_.end(),
                                   [&](const ShownPort& shown) { return shown.name == output.target_name(0); });
    if (port == outputs_.end())
      wrong(fmt::format("model '{}': batch_output: target_name '{}'; the config has no such output", model_,
                        output.target_name(0)));
    if (port->ragged)
      wrong(fmt::format("model '{}': batch_output: target_name '{}' is there twice", model_, output.target_name(0)));
    port->ragged = true;
    port->scatter = source_of(output.source_input(0));
  }
  for (ShownPort& port : outputs_) {
    for (size_t r = 0; r < ragged_.size() && !port.ragged; ++r) {
      const std::string dim = first_dim(inputs_[ragged_[r]].bundle);
      if (dim.empty() || dim != first_dim(port.bundle)) continue;
      port.ragged = true;
      port.scatter = r;
    }
    if (!port.ragged) continue;
    const ShownPort& source = inputs_[ragged_[port.scatter]];
    const std::string here = where("output", port.name);
    const bool rows = !port.bundle.shape.empty() && port.bundle.shape[0] == source.bundle.shape[0] &&
                      first_dim(port.bundle) == first_dim(source.bundle);
    if (!rows)
      wrong(fmt::format("{}: the bundle has {}; its first axis must be that of input '{}', {}", here, port.bundle.str(),
                        source.name, source.bundle.str()));
    if (port.reshaped || port.datatype == DataType::TYPE_STRING)
      wrong(here + ": it has the shape of a ragged input, so it is neither text nor reshaped");
    const size_t inner = port.bundle.shape.size() - 1;
    bool fits = port.dims.size() == flattened(source) + inner;
    for (size_t a = 0; fits && a < inner; ++a) {
      const int64_t given = port.dims[flattened(source) + a];
      const bool varies = port.bundle.dims.size() > a + 1 && !port.bundle.dims[a + 1].empty();
      fits = varies ? given < 0 : given == port.bundle.shape[a + 1];
    }
    if (!fits)
      wrong(fmt::format("{}: dims {}; they must be those of input '{}' and, behind them, the inner axes of {}", here,
                        shape_text(port.dims), source.name, port.bundle.str()));
  }
}

api::Tensor ModelPorts::ragged_tensor(const ShownPort& port, Tensor& given, RaggedInput& input) const {
  const std::string here = fmt::format("infer: input '{}' for model '{}'", given.name, model_);
  if (given.datatype != port.datatype)
    wrong(fmt::format("{}: datatype is {}; must be {}", here,
                      given.datatype == DataType::TYPE_INVALID ? "none" : datatype_name(given.datatype),
                      datatype_name(port.datatype)));
  const uint64_t bytes = checked_bytes(given.shape, datatype_size(port.datatype), here);
  bool fits = given.shape.size() == port.dims.size() + 1 && given.shape[0] == 1;
  for (size_t a = 0; fits && a < port.dims.size(); ++a) fits = port.dims[a] < 0 || port.dims[a] == given.shape[a + 1];
  if (!fits) {
    std::vector<int64_t> wanted = port.dims;
    wanted.insert(wanted.begin(), 1);
    wrong(fmt::format("{}: shape is {}; must be {}: one row, of any length, and more rows as more requests", here,
                      shape_text(given.shape), shape_text(wanted)));
  }
  if (bytes != given.bytes)
    wrong(fmt::format("{}: {} bytes; shape {} of {} has {}", here, given.bytes, shape_text(given.shape),
                      datatype_name(port.datatype), bytes));
  input.shape.assign(given.shape.begin() + 1, given.shape.end());
  const auto inner = input.shape.begin() + static_cast<std::ptrdiff_t>(flattened(port));
  input.rows = static_cast<int64_t>(checked_bytes({input.shape.begin(), inner}, 1, here));  // of nothing: 0
  std::vector<int64_t> shape = port.bundle.shape;
  if (input.rows > shape[0])
    wrong(fmt::format("{}: shape is {}; the model takes at most {} rows in a step", here, shape_text(given.shape),
                      shape[0]));
  shape[0] = input.rows;
  return {port.bundle.dtype, std::move(shape), std::move(given.data)};
}

// Inputs of one dim are equally long, in every request.
void ModelPorts::check_ragged(const Prepared& prepared) const {
  if (prepared.rows != 1)
    wrong(fmt::format("infer: {} rows for model '{}'; a request of a model with ragged inputs has one", prepared.rows,
                      model_));
  for (size_t r = 1; r < ragged_.size(); ++r) {
    for (size_t other = 0; other < r; ++other) {
      const ShownPort &a = inputs_[ragged_[other]], &b = inputs_[ragged_[r]];
      if (first_dim(a.bundle).empty() || first_dim(a.bundle) != first_dim(b.bundle) ||
          prepared.ragged[r].rows == prepared.ragged[other].rows)
        continue;
      wrong(fmt::format("infer: input '{}' for model '{}' has {} rows, and '{}' {}; both are of dim '{}'", a.name,
                        model_, prepared.ragged[other].rows, b.name, prepared.ragged[r].rows, first_dim(a.bundle)));
    }
  }
}

void ModelPorts::show_ragged(const OutputRows& of, Tensor& tensor) const {
  const std::vector<int64_t>& whole = of.whole.shape();
  const ShownPort& source = inputs_[ragged_[of.port.scatter]];
  size_t row = api::dtype_size(of.whole.dtype());
  for (size_t a = 1; a < whole.size(); ++a) row *= static_cast<size_t>(whole[a]);
  tensor.shape = {1};
  tensor.shape.insert(tensor.shape.end(), of.input->shape.begin(),
                      of.input->shape.begin() + static_cast<std::ptrdiff_t>(flattened(source)));
  tensor.shape.insert(tensor.shape.end(), whole.begin() + 1, whole.end());
  tensor.bytes = static_cast<size_t>(of.input->rows) * row;
  if (tensor.bytes == 0) return;
  auto* const data = static_cast<uint8_t*>(of.whole.raw()) + static_cast<size_t>(of.start) * row;
  tensor.data = std::shared_ptr<void>(of.whole.shared(), data);
}

}  // namespace sluice::serving
