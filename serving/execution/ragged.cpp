#include "serving/execution/ragged.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

namespace sluice::serving {

namespace {

std::string where_of(const inference::ModelConfig& config, const std::string& target) {
  return fmt::format("model '{}': batch_input '{}'", config.name(), target);
}

int find_input(const std::vector<api::Port>& inputs, const std::string& name, const std::string& where) {
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].name == name || name == "INPUT_" + std::to_string(i)) return static_cast<int>(i);
  wrong(where + ": the bundle has no input of this name");
}

template <class T>
void write(const std::vector<int64_t>& values, uint8_t* to) {
  for (size_t i = 0; i < values.size(); ++i) {
    const T value = static_cast<T>(values[i]);
    std::memcpy(to + i * sizeof(T), &value, sizeof(T));
  }
}

void write(const std::vector<int64_t>& values, api::DType dtype, uint8_t* to) {
  switch (dtype) {
    case api::DType::kInt32: return write<int32_t>(values, to);
    case api::DType::kInt64: return write<int64_t>(values, to);
    default: return write<float>(values, to);
  }
}

}  // namespace

std::vector<std::string> RaggedBatch::made(const inference::ModelConfig& config, const std::vector<api::Port>& inputs) {
  std::vector<std::string> names;
  for (const inference::BatchInput& input : config.batch_input()) {
    if (input.target_name_size() != 1) wrong(where_of(config, "") + ": target_name: it must be one");
    const std::string where = where_of(config, input.target_name(0));
    names.push_back(inputs[static_cast<size_t>(find_input(inputs, input.target_name(0), where))].name);
  }
  return names;
}

RaggedBatch::RaggedBatch(const inference::ModelConfig& config, const ModelPorts& ports,
                         const std::vector<std::string>& dims, std::vector<std::vector<int64_t>> members)
    : ports_(ports), members_(std::move(members)) {
  for (const inference::BatchInput& input : config.batch_input()) {
    const std::string where = where_of(config, input.target_name(0));
    Made made{find_input(ports.bundle_inputs(), input.target_name(0), where), input.kind(), 0};
    const auto source = std::find_if(ports.ragged().begin(), ports.ragged().end(), [&](size_t i) {
      return input.source_input_size() == 1 && ports.inputs()[i].name == input.source_input(0);
    });
    if (source == ports.ragged().end()) wrong(where + ": source_input: it must be one input with allow_ragged_batch");
    made.source = static_cast<size_t>(source - ports.ragged().begin());
    const api::Port& port = ports.bundle_inputs()[static_cast<size_t>(made.port)];
    if (dtype_of(input.data_type()) != port.dtype)
      wrong(fmt::format("{}: data_type {}; the bundle has {}", where, datatype_name(input.data_type()), port.str()));
    check(made, where);
    made_.push_back(made);
  }
  for (const api::Port& port : ports.bundle_inputs()) {
    const std::string dim = port.dims.empty() ? "" : port.dims[0];
    const auto found = std::find(dims.begin(), dims.end(), dim);
    dims_.push_back(dim.empty() ? kFixed : found == dims.end() ? kAsNeeded : static_cast<int>(found - dims.begin()));
  }
}

void RaggedBatch::check(const Made& made, const std::string& where) const {
  const api::Port& port = ports_.bundle_inputs()[static_cast<size_t>(made.port)];
  const ShownPort& source = ports_.inputs()[ports_.ragged()[made.source]];
  const auto rank = static_cast<int64_t>(source.dims.size()), most = ports_.max_batch();
  const bool varies = !port.dims.empty() && !port.dims[0].empty();
  const auto refuse = [&](const std::string& what) {
    wrong(fmt::format("{}: {}; the bundle has {}", where, what, port.str()));
  };
  // An input has one axis, or two; and is so long that all requests of a step fit, or as long as one of them.
  const auto axes = [&](size_t count, int64_t least) {
    if (port.shape.size() != count && !(count == 1 && port.shape.size() == 2 && port.shape[1] == 1))
      refuse(fmt::format("it has {}", count == 1 ? "one axis" : "two axes"));
    if (port.shape[0] < least) refuse(fmt::format("a step needs up to {} of it", least));
  };
  switch (made.kind) {
    case Kind::BATCH_ELEMENT_COUNT:
    case Kind::BATCH_ACCUMULATED_ELEMENT_COUNT: return axes(1, most);
    case Kind::BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO: return axes(1, most + 1);
    case Kind::BATCH_MAX_ELEMENT_COUNT_AS_SHAPE:
      axes(1, 1);
      if (!varies) refuse("its length must vary, since that is what it tells");
      return;
    case Kind::BATCH_ITEM_SHAPE:
      axes(2, most);
      if (port.shape[1] != rank) refuse(fmt::format("input '{}' has {} dims", source.name, rank));
      return;
    case Kind::BATCH_ITEM_SHAPE_FLATTEN: return axes(1, most * rank);
    default: refuse("kind: it must be one of BATCH_ELEMENT_COUNT and the others");
  }
}

// The values that a port is told.
std::vector<int64_t> RaggedBatch::values_of(const Made& made, const Batch& batch) const {
  std::vector<int64_t> values;
  int64_t sum = 0, longest = 0;
  if (made.kind == Kind::BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO) values.push_back(0);
  for (const JobPtr& job : batch.jobs) {
    const RaggedInput& input = job->ragged[made.source];
    const int64_t elements =
        job->inputs[static_cast<size_t>(ports_.inputs()[ports_.ragged()[made.source]].port)].size();
    sum += elements;
    longest = std::max(longest, elements);
    switch (made.kind) {
      case Kind::BATCH_ELEMENT_COUNT: values.push_back(elements); break;
      case Kind::BATCH_ACCUMULATED_ELEMENT_COUNT:
      case Kind::BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO: values.push_back(sum); break;
      case Kind::BATCH_ITEM_SHAPE:
      case Kind::BATCH_ITEM_SHAPE_FLATTEN: values.insert(values.end(), input.shape.begin(), input.shape.end()); break;
      default: break;
    }
  }
  if (made.kind == Kind::BATCH_MAX_ELEMENT_COUNT_AS_SHAPE) values.assign(static_cast<size_t>(longest), 0);
  return values;
}

std::vector<int64_t> RaggedBatch::extents(std::vector<int64_t> needed) const {
  const std::vector<int64_t>* best = nullptr;
  double least = std::numeric_limits<double>::max();
  for (const std::vector<int64_t>& member : members_) {
    double volume = 1;
    bool fits = true;
    for (const int64_t extent : member) volume *= static_cast<double>(extent);
    for (size_t i = 0; fits && i < needed.size(); ++i)
      fits = dims_[i] < 0 || needed[i] <= member[static_cast<size_t>(dims_[i])];
    if (!fits || volume >= least) continue;
    best = &member;
    least = volume;
  }
  for (size_t i = 0; i < needed.size(); ++i) {
    if (dims_[i] == kFixed)
      needed[i] = ports_.bundle_inputs()[i].shape[0];
    else if (dims_[i] >= 0 && best != nullptr)
      needed[i] = (*best)[static_cast<size_t>(dims_[i])];
  }
  return needed;
}

std::vector<api::Tensor> RaggedBatch::gather(Batch& batch, BufferPool& buffers) const {
  const std::vector<api::Port>& inputs = ports_.bundle_inputs();
  std::vector<int64_t> needed(inputs.size(), static_cast<int64_t>(batch.jobs.size()));
  std::vector<int> ragged_of(inputs.size(), -1);
  batch.ragged_at.assign(ports_.ragged().size(), {});
  for (size_t r = 0; r < ports_.ragged().size(); ++r) {
    int64_t rows = 0;
    for (const JobPtr& job : batch.jobs) {
      batch.ragged_at[r].push_back(rows);
      rows += job->ragged[r].rows;
    }
    const auto port = static_cast<size_t>(ports_.inputs()[ports_.ragged()[r]].port);
    needed[port] = rows;
    ragged_of[port] = static_cast<int>(r);
  }
  std::vector<std::vector<int64_t>> values(inputs.size());  // of those that are made here
  for (const Made& made : made_) {
    const auto port = static_cast<size_t>(made.port);
    values[port] = values_of(made, batch);
    const int64_t inner = inputs[port].shape.size() > 1 ? inputs[port].shape[1] : 1;
    needed[port] = static_cast<int64_t>(values[port].size()) / std::max<int64_t>(inner, 1);
  }
  const std::vector<int64_t> extents = this->extents(needed);
  std::vector<api::Tensor> tensors;
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::vector<int64_t> shape = inputs[i].shape;
    // Inner axes may be of dims, too: then they are those of the first request.
    if (!batch.jobs.front()->inputs[i].shape().empty()) shape = batch.jobs.front()->inputs[i].shape();
    shape[0] = extents[i];
    const uint64_t bytes = checked_bytes(shape, api::dtype_size(inputs[i].dtype), inputs[i].name);
    std::shared_ptr<void> memory = buffers.take(bytes);
    auto* const to = static_cast<uint8_t*>(memory.get());
    size_t at = 0;
    for (const JobPtr& job : batch.jobs) {
      const api::Tensor& given = job->inputs[i];
      if (given.bytes() > 0) std::memcpy(to + at, given.raw(), given.bytes());
      at += given.bytes();
    }
    tensors.emplace_back(inputs[i].dtype, std::move(shape), std::move(memory));
    if (at < bytes) std::memset(to + at, 0, bytes - at);
  }
  for (const Made& made : made_) {
    const auto port = static_cast<size_t>(made.port);
    std::vector<int64_t>& all = values[port];
    const bool accumulated = made.kind == Kind::BATCH_ACCUMULATED_ELEMENT_COUNT ||
                             made.kind == Kind::BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO;
    all.resize(static_cast<size_t>(tensors[port].size()), accumulated ? all.back() : 0);
    write(all, tensors[port].dtype(), static_cast<uint8_t*>(tensors[port].raw()));
  }
  for (const JobPtr& job : batch.jobs) job->inputs.clear();
  return tensors;
}

}  // namespace sluice::serving
