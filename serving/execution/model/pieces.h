#pragma once
// The answers to the parts of a request that was cut, until the last of them is there.
#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

#include "serving/core/request.h"

namespace sluice::serving {

// Thread-safe.
//
// Invariants:
// 1. Each part answers once, under its number.
// 2. add() is true for one caller, the one with the last answer; from then on nobody changes all().
class Pieces {
 public:
  // REQUIRES: there is a part.
  explicit Pieces(size_t parts) : answers_(parts), left_(parts) {}

  bool add(size_t part, InferResponse answer) {
    const std::lock_guard lock(mutex_);
    answers_[part] = std::move(answer);
    return --left_ == 0;
  }
  // In the order of the parts. REQUIRES: add() was true in this thread.
  const std::vector<InferResponse>& all() const { return answers_; }

 private:
  std::mutex mutex_;
  std::vector<InferResponse> answers_;
  size_t left_;
};

}  // namespace sluice::serving
