#pragma once
// Requests, steps and ports for tests of an executor's parts, without an engine.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "google/protobuf/text_format.h"
#include "serving/execution/job.h"
#include "sluice/plan.h"
#include "support/what_of.h"

namespace sluice::serving::test {

using sluice::test::what_of;

inline inference::ModelConfig model_config(const std::string& text = "") {
  inference::ModelConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config)) << text;
  if (config.name().empty()) config.set_name("m");
  return config;
}

// A port of float32 whose first axis is the batch: of any size up to `rows` where `open`.
inline api::Port float_port(const std::string& name, int64_t rows, int64_t columns, bool open = false) {
  api::Port port;
  port.name = name;
  port.shape = {rows, columns};
  if (open) port.dims = {"batch", ""};
  return port;
}

inline api::Tensor float_tensor(int64_t rows, int64_t columns, const std::vector<float>& values) {
  api::Tensor tensor(api::DType::kFloat32, {rows, columns});
  EXPECT_EQ(tensor.bytes(), values.size() * sizeof(float));
  if (!values.empty()) std::memcpy(tensor.raw(), values.data(), values.size() * sizeof(float));
  return tensor;
}
inline std::vector<float> floats_in(const void* data, size_t bytes) {
  std::vector<float> values(bytes / sizeof(float));
  if (bytes > 0) std::memcpy(values.data(), data, bytes);
  return values;
}
inline std::vector<float> floats_in(const api::Tensor& tensor) { return floats_in(tensor.raw(), tensor.bytes()); }
inline std::vector<float> floats_in(const Tensor& tensor) { return floats_in(tensor.data.get(), tensor.bytes); }

inline BatchPtr batch_of(const std::vector<JobPtr>& jobs) {
  auto batch = std::make_shared<Batch>();
  for (const JobPtr& job : jobs) {
    batch->at.push_back(batch->rows);
    batch->rows += job->rows;
    batch->jobs.push_back(job);
  }
  batch->end = batch->rows;
  return batch;
}

}  // namespace sluice::serving::test
