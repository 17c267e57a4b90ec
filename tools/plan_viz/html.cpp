// The page: its template, style and script as they were built, and the data of plans.
#include "base/error.h"
#include "tools/plan_viz/page.h"
#include "tools/plan_viz/text.h"

namespace sluice::plan_viz {

namespace {

// The data stands in a script element: nothing in it may close that.
std::string safe_in_script(const std::string& s) {
  std::string safe;
  safe.reserve(s.size());
  for (size_t i = 0; i < s.size(); ++i) {
    safe += s[i];
    if (s[i] == '<') safe.back() = '\\', safe += "u003c";
  }
  return safe;
}

// FNV-1a, for the page's nonce: the same plan gives the same page.
uint64_t hash_of(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

}  // namespace

// Only the page's own style and script have its nonce: nothing else runs, and nothing is loaded but what a live page
// asks its own server.
std::string html_page(const std::vector<Page>& pages, const std::vector<Page>& choices) {
  SLUICE_CHECK_KIND(
      kUnsupported, *kPageScript != '\0',
      "html: this plan-viz was built without its page: there was no esbuild; install it (Debian's package "
      "esbuild) and build again");
  std::string data;
  for (const Page& page : pages) data += (data.empty() ? "[" : ",\n") + page_json(page);
  if (!choices.empty() && pages.size() == 1) data += ",\nnull";
  for (const Page& page : choices) data += ",\n" + page_json(page);
  data = safe_in_script(data + "]");
  const std::string nonce = fmt::format("{:016x}", hash_of(data));
  const std::map<std::string_view, std::string> parts = {{"title", escaped(pages[0].plan->name)},
                                                         {"nonce", nonce},
                                                         {"connect", pages[0].live.empty() ? "'none'" : "'self'"},
                                                         {"style", kPageStyle},
                                                         {"script", kPageScript},
                                                         {"data", data}};
  std::string html;
  const std::string_view text = kPageTemplate;
  for (size_t at = 0; at < text.size();) {
    const size_t open = std::min(text.find("{{", at), text.size()), close = text.find("}}", open);
    html += text.substr(at, open - at);
    if (open == text.size()) break;
    html += parts.at(text.substr(open + 2, close - open - 2));
    at = close + 2;
  }
  return html;
}

}  // namespace sluice::plan_viz
