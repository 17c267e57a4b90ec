#include "serving/execution/model/step_data.h"

#include <algorithm>
#include <cstring>

#include "serving/execution/classify.h"
#include "sluice/plan.h"

namespace sluice::serving {

// The results of a step, and their counts. A part of them may be all that is still in use, and keeps the whole.
struct StepResults {
  std::vector<Held> counts;  // given back last
  std::vector<std::shared_ptr<void>> outputs;
};

namespace {

std::shared_ptr<StepResults> results_of(Batch& batch, const std::vector<api::Tensor>& outputs) {
  std::vector<Held> counts;
  for (const JobPtr& job : batch.jobs)
    if (job->answer.bytes() > 0) counts.push_back(std::move(job->answer));
  if (counts.empty()) return nullptr;
  counts.push_back(std::move(batch.padding));
  auto results = std::make_shared<StepResults>();
  results->counts = std::move(counts);
  for (const api::Tensor& output : outputs) results->outputs.push_back(output.shared());
  return results;
}

// The tensor counts as long as somebody has it.
void count(Tensor& tensor, const api::Tensor& whole, const std::shared_ptr<StepResults>& results,
           const MemoryPtr& memory) {
  if (results == nullptr || tensor.data == nullptr) return;
  const bool part = !tensor.data.owner_before(whole.shared()) && !whole.shared().owner_before(tensor.data);
  tensor.data = part ? std::shared_ptr<void>(results, tensor.data.get())
                     : counted(std::move(tensor.data), Held(memory, tensor.bytes));
}

std::vector<api::Tensor> rows_of(const std::vector<api::Tensor>& inputs, int64_t start, int64_t rows) {
  std::vector<api::Tensor> part;
  for (const api::Tensor& input : inputs) {
    std::vector<int64_t> shape = input.shape();
    const size_t row = input.bytes() / static_cast<size_t>(shape[0]);
    shape[0] = rows;
    auto* const data = static_cast<uint8_t*>(input.raw()) + static_cast<size_t>(start) * row;
    part.emplace_back(input.dtype(), std::move(shape), std::shared_ptr<void>(input.shared(), data));
  }
  return part;
}

}  // namespace

void StepData::open(const std::vector<api::Port>& inputs, const std::vector<api::Port>& outputs,
                    const std::string& bundle) {
  std::vector<std::string> made = SequencePorts::made(config_, inputs);
  for (std::string& name : RaggedBatch::made(config_, inputs)) made.push_back(std::move(name));
  ports_ = std::make_unique<const ModelPorts>(config_, inputs, outputs, folder_,
                                              PortRoles{std::move(made), inputs_of_files(bundle)});
  if (ports_->ragged().empty()) return;
  if (!allowed_.empty()) wrong(where_ + ": allowed_batch_sizes: a step with ragged inputs is as large as its requests");
  const api::Plan plan = api::Plan::load(bundle);
  ragged_ = std::make_unique<const RaggedBatch>(config_, *ports_, plan.dims(), plan.members());
}

void StepData::open_sequences(const std::vector<api::Port>& inputs, const std::vector<api::Port>& outputs) {
  sequence_ports_ = std::make_unique<const SequencePorts>(config_, inputs, outputs, folder_);
}

void StepData::prepare(Job& job) const {
  ModelPorts::Prepared prepared = ports_->prepare(job.request);
  job.inputs = std::move(prepared.inputs);
  job.outputs = std::move(prepared.outputs);
  job.rows = prepared.rows;
  job.ragged = std::move(prepared.ragged);
  count_texts(job);
}

// Counts its names and parameters, and what its texts became, each as long as the longest may be.
void StepData::count_texts(Job& job) const {
  if (job.request.memory == nullptr) return;
  uint64_t bytes = job.own.bytes() + text_bytes(job.request);
  for (const ShownPort& port : ports_->inputs())
    if (port.datatype == DataType::TYPE_STRING) bytes += job.inputs[static_cast<size_t>(port.port)].bytes();
  job.own = Held(job.request.memory, bytes);
}

void StepData::count_answer(Job& job) const {
  if (job.request.memory == nullptr) return;
  job.answer = Held(job.request.memory, ports_->result_bytes(job.rows, job.ragged));
}

// Counts the results of rows of nobody with those of the first request.
void StepData::count_padding(Batch& batch) const {
  const MemoryPtr& memory = batch.jobs.front()->request.memory;
  if (memory == nullptr || batch.step_rows == batch.rows) return;
  uint64_t counted = 0;
  for (const JobPtr& job : batch.jobs) counted += job->answer.bytes();
  const uint64_t all = ports_->result_bytes(batch.step_rows, {});
  if (all > counted) batch.padding = Held(memory, all - counted);
}

std::vector<api::Tensor> StepData::gather(Batch& batch) {
  std::vector<api::Tensor> inputs;
  if (ragged_ != nullptr) {
    batch.step_rows = batch.rows;  // its results are as long as its requests
    inputs = ragged_->gather(batch, buffers_);
  } else {
    const auto allowed = std::lower_bound(allowed_.begin(), allowed_.end(), batch.end);
    const int64_t wanted = allowed == allowed_.end() ? batch.end : *allowed;
    const int64_t rows = ports_->fixed_rows() > 0 ? ports_->fixed_rows() : wanted;
    batch.step_rows = ports_->max_batch() > 0 ? rows : batch.rows;
    if (batch.jobs.size() == 1 && (ports_->max_batch() == 0 || rows == batch.rows)) {
      inputs = std::move(batch.jobs.front()->inputs);
    } else {
      for (size_t i = 0; i < ports_->bundle_inputs().size(); ++i) inputs.push_back(gather_input(batch, i));
      for (const JobPtr& job : batch.jobs) job->inputs.clear();
    }
  }
  count_padding(batch);
  return inputs;
}

// The rows of all its requests, one behind the other, and those of nobody between them.
api::Tensor StepData::gather_input(const Batch& batch, size_t input) {
  const api::Tensor& first = batch.jobs.front()->inputs[input];
  std::vector<int64_t> shape = first.shape();
  shape[0] = 1;
  const uint64_t row = checked_bytes(shape, api::dtype_size(first.dtype()), where_);
  shape[0] = batch.step_rows;
  const uint64_t bytes = checked_bytes(shape, api::dtype_size(first.dtype()), where_);
  std::shared_ptr<void> memory = buffers_.take(bytes);
  auto* const to = static_cast<uint8_t*>(memory.get());
  int64_t next = 0;
  const auto nobody = [&](int64_t until) {
    if (until <= next || bytes == 0) return;
    uint8_t* const from = to + static_cast<size_t>(next) * row;
    std::memset(from, 0, static_cast<size_t>(until - next) * row);
    if (sequence_ports_ != nullptr)
      sequence_ports_->fill_empty(static_cast<int>(input), from, row, static_cast<size_t>(until - next));
  };
  for (size_t j = 0; j < batch.jobs.size(); ++j) {
    const api::Tensor& given = batch.jobs[j]->inputs[input];
    nobody(batch.at[j]);
    if (given.bytes() > 0) std::memcpy(to + static_cast<size_t>(batch.at[j]) * row, given.raw(), given.bytes());
    next = batch.at[j] + batch.jobs[j]->rows;
  }
  nobody(batch.step_rows);
  return {first.dtype(), std::move(shape), std::move(memory)};
}

StepData::Shown StepData::show(Batch& batch, const std::vector<api::Tensor>& outputs, const Answers& answers) const {
  const std::shared_ptr<StepResults> results = results_of(batch, outputs);
  Shown shown{{}, results};
  for (size_t j = 0; j < batch.jobs.size(); ++j) {
    InferResponse& response = shown.responses.emplace_back(answers.blank(*batch.jobs[j]));
    try {
      response.outputs = show_job(batch, j, outputs, results);
    } catch (const Error& error) {
      response.error = error;
    } catch (const std::exception& error) {
      response.error = Error(Code::kInternal, where_ + ": " + error.what());
    }
  }
  return shown;
}

std::vector<Tensor> StepData::show_job(const Batch& batch, size_t j, const std::vector<api::Tensor>& outputs,
                                       const std::shared_ptr<StepResults>& results) const {
  const Job& job = *batch.jobs[j];
  std::vector<Tensor> shown;
  for (size_t o = 0; o < job.outputs.size(); ++o) {
    const ShownPort& port = ports_->outputs()[static_cast<size_t>(job.outputs[o])];
    const api::Tensor& whole = outputs.at(static_cast<size_t>(port.port));
    Tensor& tensor = shown.emplace_back(ports_->show(
        port.ragged ? OutputRows{port, whole, batch.ragged_at[port.scatter][j], job.rows, &job.ragged[port.scatter]}
                    : OutputRows{port, whole, batch.at[j], job.rows, nullptr,
                                 port.lengths < 0 ? nullptr : &outputs.at(static_cast<size_t>(port.lengths))}));
    if (o < job.request.outputs.size()) {
      const RequestedOutput& wanted = job.request.outputs[o];
      tensor.name = wanted.name;
      if (wanted.classes > 0) classify(tensor, wanted.classes, port.labels, ports_->max_batch() > 0);
    }
    count(tensor, whole, results, job.request.memory);
  }
  return shown;
}

std::vector<std::vector<api::Tensor>> StepData::states_after(const Batch& batch,
                                                             const std::vector<api::Tensor>& outputs) const {
  std::vector<std::vector<api::Tensor>> states;
  for (const int64_t at : batch.at) states.push_back(state_after(outputs, at, batch.jobs.size() == 1));
  return states;
}

std::vector<api::Tensor> StepData::state_after(const std::vector<api::Tensor>& outputs, int64_t row, bool alone) const {
  std::vector<api::Tensor> state;
  for (const StatePort& port : sequence_ports_->states()) {
    const api::Tensor& whole = outputs.at(static_cast<size_t>(port.output));
    const bool batched = ports_->max_batch() > 0;
    if (!batched || (alone && whole.shape()[0] == 1)) {
      // A response may show it, too; then it must stay as it is.
      const bool shown = std::any_of(ports_->outputs().begin(), ports_->outputs().end(),
                                     [&](const ShownPort& output) { return output.port == port.output; });
      if (!shown) {
        state.push_back(whole);
        continue;
      }
    }
    std::vector<int64_t> shape = whole.shape();
    if (batched) shape[0] = 1;
    api::Tensor copy(whole.dtype(), std::move(shape));
    const size_t from = batched ? static_cast<size_t>(row) * copy.bytes() : 0;
    if (copy.bytes() > 0) std::memcpy(copy.raw(), static_cast<const uint8_t*>(whole.raw()) + from, copy.bytes());
    state.push_back(std::move(copy));
  }
  return state;
}

std::vector<JobPtr> StepData::cut(const Job& job) const {
  const int64_t most = ports_->step_rows();
  std::vector<JobPtr> parts;
  for (int64_t start = 0; start < job.rows; start += most) {
    const auto part = std::make_shared<Job>();
    part->core = job.core;
    part->part = true;
    part->received = job.received;
    part->request.outputs = job.request.outputs;
    part->request.trace = job.request.trace;
    part->request.memory = job.request.memory;
    part->options = job.options;
    part->outputs = job.outputs;
    part->rows = std::min(most, job.rows - start);
    part->inputs = rows_of(job.inputs, start, part->rows);
    count_answer(*part);
    parts.push_back(part);
  }
  return parts;
}

std::vector<Tensor> StepData::join(const Job& job, const std::vector<InferResponse>& parts) {
  std::vector<Tensor> whole = parts.front().outputs;
  for (size_t o = 0; o < whole.size(); ++o) {
    Tensor& tensor = whole[o];
    tensor.bytes = 0;
    tensor.shape[0] = 0;
    for (const InferResponse& part : parts) {
      tensor.bytes += part.outputs[o].bytes;
      tensor.shape[0] += part.outputs[o].shape[0];
    }
    tensor.data = buffers_.take(tensor.bytes, job.request.memory);
    auto* to = static_cast<uint8_t*>(tensor.data.get());
    for (const InferResponse& part : parts) {
      const Tensor& from = part.outputs[o];
      if (from.bytes > 0) std::memcpy(to, from.data.get(), from.bytes);
      to += from.bytes;
    }
  }
  return whole;
}

}  // namespace sluice::serving
