#pragma once
// Reads answers of HTTP/1.1 from the bytes of a connection, as they come.
#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/http/parser.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::perf {

// The body of an answer: what it hashes to, however it comes in pieces, and its text where that is kept.
struct HashedBody {
  struct value_type {
    bool keep = false;
    uint64_t hash = 14695981039346656037ull, word = 0;
    size_t filled = 0;  // bytes of `word`, which are not hashed yet
    std::string text;

    void take(std::string_view bytes);
    void mix();
  };
  class reader {
   public:
    template <bool kRequest, class Fields>
    reader(boost::beast::http::header<kRequest, Fields>&, value_type& body) : body_(body) {}
    void init(const boost::optional<uint64_t>&, boost::system::error_code& error) { error = {}; }
    template <class Buffers>
    size_t put(const Buffers& buffers, boost::system::error_code& error) {
      error = {};
      size_t n = 0;
      for (const auto piece : boost::beast::buffers_range_ref(buffers)) {
        body_.take({static_cast<const char*>(piece.data()), piece.size()});
        n += piece.size();
      }
      return n;
    }
    void finish(boost::system::error_code& error) { error = {}; }

   private:
    value_type& body_;
  };
};

class HttpResponse {
 public:
  explicit HttpResponse(bool keep_body) : keep_body_(keep_body) { begin(); }

  // Takes bytes; returns how many belong to this answer. Throws std::runtime_error for what is no answer of HTTP.
  size_t feed(std::string_view bytes);
  bool done() const { return parser_->is_done(); }
  // The connection's end, which may be how the body ends. False when the answer is cut off by it.
  bool finish();

  int status() const { return static_cast<int>(parser_->get().result_int()); }
  bool keep_alive() const { return parser_->keep_alive(); }
  uint64_t hash();  // of the body
  std::string take_body() { return std::move(parser_->get().body().text); }

 private:
  void begin();
  size_t parse(std::string_view bytes);

  bool keep_body_;
  std::optional<boost::beast::http::response_parser<HashedBody>> parser_;
  std::string rest_;  // what the parser understands only with what comes next
};

}  // namespace sluice::perf
