#include "serving/execution/errors.h"

#include <cctype>

namespace sluice::serving {

std::string client_text(const std::string& text) {
  std::string out, word;
  const auto flush = [&] {
    // The part behind the last slash is a name; a lone slash is a division.
    const size_t first = word.find('/'), last = word.rfind('/');
    out += first != std::string::npos && (first == 0 || first != last || word.find("./") == 0) && last + 1 < word.size()
               ? word.substr(last + 1)
               : word;
    word.clear();
  };
  for (const char c : text) {
    if (std::isspace(static_cast<unsigned char>(c)) || c == '\'' || c == '"' || c == '(' || c == ',') {
      flush();
      out += c == '\n' ? ' ' : c;
    } else {
      word += c;
    }
  }
  flush();
  constexpr size_t kLongest = 1024;
  return out.substr(0, kLongest);
}

bool is_fatal(const api::Error& error) {
  return error.kind() == api::ErrorKind::kDevice || error.kind() == api::ErrorKind::kCancelled;
}

Error error_of_submission(const std::string& where, const api::Error& error) {
  switch (error.kind()) {
    case api::ErrorKind::kValue:
    case api::ErrorKind::kType:
    case api::ErrorKind::kIndex: return {Code::kInvalidArgument, where + ": " + client_text(error.what())};
    case api::ErrorKind::kMemory: return {Code::kUnavailable, where + ": " + client_text(error.what())};
    default: return error_of_step(where, error);
  }
}

Error error_of_step(const std::string& where, const api::Error& error) {
  if (is_fatal(error))
    return {Code::kUnavailable, where + ": its instance is restarted after: " + client_text(error.what())};
  return {Code::kInternal, where + ": the step failed: " + client_text(error.what())};
}

void rethrow_as_error(const std::string& where) {
  try {
    throw;
  } catch (const Error&) {
    throw;
  } catch (const api::Error& error) {
    const Code code = error.kind() == api::ErrorKind::kUnsupported ? Code::kUnsupported
                      : error.kind() == api::ErrorKind::kMemory    ? Code::kUnavailable
                                                                   : Code::kInvalidArgument;
    throw Error(code, where + ": " + client_text(error.what()));
  } catch (const std::exception& error) {
    throw Error(Code::kInternal, where + ": " + client_text(error.what()));
  }
}

}  // namespace sluice::serving
