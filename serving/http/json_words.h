#pragma once
// JSON, and the words for floats that it lacks: NaN, Infinity and Inf, each also with a minus, as Python's json, Triton
// and its client write them and read them. Only for the sources of this folder.
#include <boost/json/value.hpp>
#include <string_view>

namespace sluice::serving {

// The value of the whole text, which lies in memory of `values`; what the parser itself needs is of `scratch`. Words
// are doubles; a number that is larger than every double is an error, and not infinite.
boost::json::value parse_with_words(std::string_view text, const boost::json::storage_ptr& values,
                                    const boost::json::storage_ptr& scratch, size_t max_depth,
                                    boost::system::error_code& error);

}  // namespace sluice::serving
