#pragma once
// Says whether the models of a server could be loaded at its start.
#include <string>
#include <vector>

#include "serving/core/server.h"

namespace sluice::serving {

struct Loaded {
  bool done = false;                  // nothing is being loaded any more
  std::string ready;                  // "digits 1, resnet50 2"
  std::vector<std::string> failures;  // of models of which no version is served
};

Loaded look(const Server& server);

// Why a model cannot be served, with its name where the reason does not have it.
std::string failure_of(const std::string& model, const std::string& reason);

}  // namespace sluice::serving
