#pragma once
// Communicators that run Gloo's algorithms over our own connections: Gloo's would accept anyone, know no ranks in their
// errors, and wait for a stopped rank until the timeout.
#include <chrono>
#include <memory>
#include <vector>

#include "streams/collective/communicator.h"
#include "streams/collective/links.h"

namespace sluice::collective {

// REQUIRES: `ranks` ascending, of `links`, with its own.
std::unique_ptr<Communicator> make_gloo_communicator(std::shared_ptr<Links> links, std::vector<int> ranks,
                                                     uint32_t channel, std::chrono::milliseconds timeout);

}  // namespace sluice::collective
