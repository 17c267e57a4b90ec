#pragma once
// Whether the client whose request is under way is still there. Only for the sources of this folder.
#include <functional>
#include <memory>

#include "serving/http/client_stream.h"

namespace sluice::serving {

struct Presence {
  bool over = false;                  // nobody has to know any more
  bool can_be_asked = true;           // by something that it passes over
  std::function<void()> on_gone;      // it has closed the connection
  std::function<void()> on_half_end;  // it sends nothing more; where it can be asked, that has to be done now
};
// All on the stream's own thread. `owner` keeps the stream, and what the functions need.
void watch(std::shared_ptr<void> owner, ClientStream& stream, std::shared_ptr<Presence> presence);

}  // namespace sluice::serving
