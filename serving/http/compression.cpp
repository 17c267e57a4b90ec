#include "serving/http/compression.h"

#include <zlib.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <memory>

#include "serving/core/error.h"

namespace sluice::serving {

namespace {

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

std::string lower(std::string_view text) {
  std::string s(text);
  std::transform(s.begin(), s.end(), s.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return s;
}

std::optional<Coding> known(const std::string& name) {
  if (name == "gzip" || name == "x-gzip") return Coding::kGzip;
  if (name == "deflate") return Coding::kDeflate;
  if (name == "identity" || name.empty()) return Coding::kNone;
  return std::nullopt;
}

// zlib's number for the format.
int window_of(Coding coding) { return coding == Coding::kGzip ? 15 + 16 : 15; }

constexpr size_t kOutput = size_t{64} << 10;
constexpr size_t kTurn = size_t{1} << 20;  // bytes in and out of a turn

}  // namespace

Coding coding_of(std::string_view content_encoding) {
  const auto coding = known(lower(trim(content_encoding)));
  if (!coding)
    throw Error(Code::kUnsupported, "request: Content-Encoding '" + std::string(content_encoding.substr(0, 32)) +
                                        "' is not known; gzip and deflate are");
  return *coding;
}

Coding accepted_coding(std::string_view accept) {
  Coding best = Coding::kNone;
  double best_q = 0;
  while (!accept.empty()) {
    const size_t comma = std::min(accept.find(','), accept.size());
    std::string_view item = trim(accept.substr(0, comma));
    accept.remove_prefix(std::min(comma + 1, accept.size()));
    double q = 1;
    if (const size_t semicolon = item.find(';'); semicolon != std::string_view::npos) {
      const std::string parameter = lower(trim(item.substr(semicolon + 1)));
      if (parameter.starts_with("q=")) q = std::strtod(parameter.c_str() + 2, nullptr);
      item = trim(item.substr(0, semicolon));
    }
    const auto coding = known(lower(item));
    if (coding && *coding != Coding::kNone && q > best_q) {
      best = *coding;
      best_q = q;
    }
  }
  return best;
}

const char* coding_name(Coding coding) {
  return coding == Coding::kGzip ? "gzip" : coding == Coding::kDeflate ? "deflate" : "identity";
}

Turns unpack(std::string_view data, Coding coding, size_t most, Text& out) {
  z_stream stream{};
  if (inflateInit2(&stream, window_of(coding)) != Z_OK) throw std::bad_alloc();
  const std::unique_ptr<z_stream, int (*)(z_stream*)> end(&stream, inflateEnd);
  size_t at = 0, turn = kOutput;
  for (int state = Z_OK; state != Z_STREAM_END;) {
    const size_t piece = std::min(data.size() - at, kTurn);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(data.data() + at));
    stream.avail_in = static_cast<uInt>(piece);
    const size_t had = out.size();
    out.resize(had + kOutput);
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + had);
    stream.avail_out = static_cast<uInt>(kOutput);
    state = inflate(&stream, Z_NO_FLUSH);
    at += piece - stream.avail_in;
    out.resize(out.size() - stream.avail_out);
    if (out.size() > most)
      throw Error(Code::kTooLarge,
                  "request: its body unpacks to more than the " + std::to_string(most) + " bytes that are allowed");
    // Several texts that gzip has packed may lie behind one another, and are one text then.
    const bool member = state == Z_STREAM_END && coding == Coding::kGzip && data.substr(at, 2) == "\x1f\x8b";
    if (member) state = inflateReset(&stream);
    if (state != Z_OK && state != Z_STREAM_END)
      throw Error(Code::kInvalidArgument,
                  std::string("request: its body is no whole ") + coding_name(coding) + " stream");
    if (out.size() + at < turn || state == Z_STREAM_END) continue;
    turn = out.size() + at + kTurn;
    co_yield Turn();
  }
  if (at != data.size())
    throw Error(Code::kInvalidArgument,
                std::string("request: there are bytes behind the end of its ") + coding_name(coding) + " stream");
}

Turns pack(std::vector<std::string_view> parts, Coding coding, Text& out) {
  z_stream stream{};
  if (deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, window_of(coding), 8, Z_DEFAULT_STRATEGY) != Z_OK)
    throw std::bad_alloc();
  const std::unique_ptr<z_stream, int (*)(z_stream*)> end(&stream, deflateEnd);
  if (parts.empty()) parts.emplace_back();
  size_t done = 0;  // since the last turn
  for (size_t p = 0; p < parts.size(); ++p) {
    const int flush = p + 1 == parts.size() ? Z_FINISH : Z_NO_FLUSH;
    std::string_view left = parts[p];
    for (int state = Z_OK; flush == Z_FINISH ? state != Z_STREAM_END : !left.empty();) {
      const size_t piece = std::min(left.size(), kTurn / 4);
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(left.data()));
      stream.avail_in = static_cast<uInt>(piece);
      const size_t had = out.size();
      out.resize(had + kOutput);
      stream.next_out = reinterpret_cast<Bytef*>(out.data() + had);
      stream.avail_out = static_cast<uInt>(kOutput);
      state = deflate(&stream, piece == left.size() ? flush : Z_NO_FLUSH);
      const size_t read = piece - stream.avail_in;
      left.remove_prefix(read);
      out.resize(out.size() - stream.avail_out);
      done += read;
      if (done < kTurn / 4 || state == Z_STREAM_END) continue;
      done = 0;
      co_yield Turn();
    }
  }
}

}  // namespace sluice::serving
