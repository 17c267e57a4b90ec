#pragma once
// Requests for inference as HTTP has them: a head in JSON, and behind it the bytes of binary tensors. No network here.
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "serving/core/buffers.h"
#include "serving/core/memory_budget.h"
#include "serving/core/server.h"
#include "serving/core/text.h"
#include "serving/http/turns.h"

namespace sluice::serving {

inline constexpr uint64_t kMemoryOfInput = 16;  // a request may hold so many times what a body may have

struct InferLimits {
  size_t most_bytes = size_t{64} << 20;  // of a body, of what it unpacks to, of the tensors that its JSON makes
  MemoryPtr memory = {};                 // in which what the JSON makes counts
};

// How the client wants its outputs.
struct AnswerForm {
  struct Output {
    bool binary = false;
    std::optional<SharedRegion> shared;
  };
  std::vector<Output> outputs;  // those asked for; none: all
  bool binary = false;          // those not asked for by name
};

struct InferHead {
  InferRequest request;
  // The bytes of each input to be read behind the head, in this order; their memory is to be made. Others need none.
  std::vector<size_t> binary;
  AnswerForm form;
  size_t binary_bytes() const;
};

// `head`: the JSON. Throws Error for whatever is wrong with it; inputs in shared memory are read from `server`.
InferHead parse_head(std::string_view head, const Server& server, BufferPool& buffers, const InferLimits& limits);
// A body without a head: the bytes of the model's only input, of which one dim at most may vary. Its tensor begins with
// `prefix`.
struct RawInput {
  InferHead head;
  std::string prefix;
};
RawInput raw_head(const inference::ModelMetadataResponse& model, bool batched, size_t bytes);

// The JSON of a response and, behind it, the tensors that follow as bytes. REQUIRES: no error.
struct InferAnswer {
  Text json;
  std::vector<Tensor> binary;
  bool has_binary = false;  // then the length of the JSON is told
};
InferAnswer answer_of(const AnswerForm& form, const InferResponse& response);
// The same in turns; the text counts where `answer` says.
Turns write_answer(const AnswerForm& form, const InferResponse& response, InferAnswer& answer);

}  // namespace sluice::serving
