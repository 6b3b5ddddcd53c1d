// What the dialect tests share: a tokenizer whose added tokens are a family's markers, outputs as texts and tokens,
// and events with neighbours joined.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "barg/tokenizer.h"
#include "base/json.h"
#include "text/dialect.h"
#include "text/output_parser.h"

namespace barg::test {

/// Ids 0..255 are bytes, the markers follow.
class MarkerTokenizer final : public Tokenizer {
 public:
  struct Marker {
    std::string text;
    bool special = false;
  };

  explicit MarkerTokenizer(std::vector<Marker> markers) : markers_(std::move(markers)) {
    for (int b = 0; b < 256; ++b) bytes_.emplace_back(1, static_cast<char>(b));
    for (std::size_t i = 0; i < markers_.size(); ++i) {
      if (markers_[i].text == "<|call|>" || markers_[i].text == "<|return|>") ends_.push_back(id_of(i));
    }
  }

  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options) const override {
    std::vector<TokenId> ids;
    while (!text.empty()) {
      const std::size_t m = options.parse_special_tokens ? marker_at(text) : markers_.size();
      ids.push_back(m < markers_.size() ? id_of(m) : static_cast<unsigned char>(text[0]));
      text.remove_prefix(m < markers_.size() ? markers_[m].text.size() : 1);
    }
    return ids;
  }
  std::vector<TokenId> encode_marked(const std::vector<MarkedText>& pieces) const override {
    std::vector<TokenId> ids;
    for (const MarkedText& p : pieces) {
      const auto more = encode(p.text, {.add_special_tokens = false, .parse_special_tokens = p.trusted});
      ids.insert(ids.end(), more.begin(), more.end());
    }
    return ids;
  }
  std::string_view token_bytes(TokenId id) const override {
    if (id < 0 || id >= size()) return {};
    return id < 256 ? bytes_[static_cast<std::size_t>(id)] : markers_[static_cast<std::size_t>(id) - 256].text;
  }
  bool is_special(TokenId id) const override {
    return id >= 256 && id < size() && markers_[static_cast<std::size_t>(id) - 256].special;
  }
  bool is_added(TokenId id) const override { return id >= 256 && id < size(); }
  const std::vector<TokenId>& end_ids() const override { return ends_; }
  std::optional<TokenId> bos() const override { return std::nullopt; }
  std::optional<TokenId> eos() const override { return std::nullopt; }
  std::string_view special_text(std::string_view) const override { return {}; }
  std::optional<TokenId> find(std::string_view token) const override {
    for (std::size_t i = 0; i < markers_.size(); ++i) {
      if (markers_[i].text == token) return id_of(i);
    }
    return token.size() == 1 ? std::optional<TokenId>(static_cast<unsigned char>(token[0])) : std::nullopt;
  }
  std::int32_t size() const override { return 256 + static_cast<std::int32_t>(markers_.size()); }

  /// The longest marker that `text` begins with, or the number of markers.
  std::size_t marker_at(std::string_view text) const {
    std::size_t best = markers_.size();
    for (std::size_t i = 0; i < markers_.size(); ++i) {
      if (!text.starts_with(markers_[i].text)) continue;
      if (best == markers_.size() || markers_[i].text.size() > markers_[best].text.size()) best = i;
    }
    return best;
  }
  static TokenId id_of(std::size_t marker) { return static_cast<TokenId>(256 + marker); }

 private:
  std::vector<Marker> markers_;
  std::vector<std::string> bytes_;
  std::vector<TokenId> ends_;
};

/// A piece of an output: a character, or a marker that is one token.
struct Piece {
  std::string text;
  TokenId id = -1;  ///< of a marker, else -1
};
using Pieces = std::vector<Piece>;

inline void append_characters(std::string_view text, Pieces& out) {
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i + 1;
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
    out.push_back({std::string(text.substr(i, end - i)), -1});
    i = end;
  }
}

/// `markers`: whether the literals of markers in `text` are tokens.
inline void append_pieces(std::string_view text, const MarkerTokenizer& tokenizer, bool markers, Pieces& out) {
  std::size_t from = 0;
  for (std::size_t i = 0; markers && i < text.size();) {
    const std::size_t m = tokenizer.marker_at(text.substr(i));
    const std::string_view literal = tokenizer.token_bytes(MarkerTokenizer::id_of(m));
    if (literal.empty()) {
      ++i;
      continue;
    }
    append_characters(text.substr(from, i - from), out);
    out.push_back({std::string(literal), MarkerTokenizer::id_of(m)});
    from = i += literal.size();
  }
  append_characters(text.substr(from), out);
}

inline std::string raw_text(const Pieces& pieces) {
  std::string out;
  for (const Piece& p : pieces) out += p.text;
  return out;
}

/// Neighbours of one kind become one event.
inline text::OutputEvents joined(const text::OutputEvents& events) {
  using Kind = text::OutputEvent::Kind;
  text::OutputEvents out;
  for (const text::OutputEvent& e : events) {
    const bool pieces = e.kind == Kind::kText || e.kind == Kind::kReasoning || e.kind == Kind::kToolArgs;
    if (pieces && e.text.empty()) continue;
    if (pieces && !out.empty() && out.back().kind == e.kind && out.back().call == e.call) {
      out.back().text += e.text;
    } else {
      out.push_back(e);
    }
  }
  return out;
}

inline std::string shown(const text::OutputEvents& events) {
  using Kind = text::OutputEvent::Kind;
  std::string out;
  for (const text::OutputEvent& e : events) {
    switch (e.kind) {
      case Kind::kReasoning: out += "reasoning" + json_quote(e.text); break;
      case Kind::kText: out += "text" + json_quote(e.text); break;
      case Kind::kToolStart:
        out += "start#" + std::to_string(e.call) + json_quote(e.text) + (e.native_id.empty() ? "" : "@" + e.native_id) +
               (e.declared ? "" : "?");
        break;
      case Kind::kToolArgs: out += "args" + json_quote(e.text); break;
      case Kind::kToolEnd: out += e.complete ? "end" : "broken"; break;
    }
    out += " ";
  }
  return out;
}

inline std::shared_ptr<const std::vector<text::ToolInfo>> tool_infos(const Json& tools) {
  std::vector<text::ToolInfo> out;
  for (const Json& t : tools.as_array()) {
    const Json& function = *t.find("function");
    out.push_back({function.find("name")->as_string(), *function.find("parameters"), false});
  }
  return std::make_shared<const std::vector<text::ToolInfo>>(std::move(out));
}

struct ParseResult {
  text::OutputEvents events;  ///< joined
  std::string note;
  std::int32_t complete_calls = 0;
  std::size_t most_held = 0;
};

/// Feeds pieces [0, count), cut behind every piece i for which cut(i); markers always stand alone.
template <class Cut>
ParseResult parse_pieces(const std::shared_ptr<const text::BoundDialect>& dialect, const text::ParserOptions& options,
                         const MarkerTokenizer& tokenizer, const Pieces& pieces, std::size_t count, bool natural,
                         const Cut& cut) {
  text::OutputParser parser(dialect, options);
  text::OutputEvents events;
  std::string run;
  ParseResult out;
  const auto flush = [&] {
    if (!run.empty()) parser.push_text(run, events);
    run.clear();
    out.most_held = std::max(out.most_held, parser.held());
  };
  for (std::size_t i = 0; i < count; ++i) {
    if (pieces[i].id < 0) {
      run += pieces[i].text;
      if (cut(i)) flush();
      continue;
    }
    flush();
    parser.push_token(pieces[i].id, pieces[i].text, !tokenizer.is_special(pieces[i].id), events);
  }
  flush();
  parser.finish(natural, events);
  out.events = joined(events);
  out.note = parser.note();
  out.complete_calls = parser.complete_calls();
  return out;
}

inline std::string trimmed(std::string_view s) {
  const auto space = std::string_view(" \t\r\n");
  const std::size_t begin = s.find_first_not_of(space);
  if (begin == s.npos) return {};
  return std::string(s.substr(begin, s.find_last_not_of(space) - begin + 1));
}

/// The events in the words of the fixtures: texts trimmed (space around markers is nobody's), calls whole.
inline Json summary(const text::OutputEvents& events) {
  using Kind = text::OutputEvent::Kind;
  Json out = Json::array();
  std::string arguments;
  for (const text::OutputEvent& e : events) {
    if (e.kind == Kind::kText || e.kind == Kind::kReasoning) {
      const std::string text = trimmed(e.text);
      if (!text.empty()) out.push(Json::object({{e.kind == Kind::kText ? "text" : "reasoning", text}}));
    } else if (e.kind == Kind::kToolStart) {
      Json call = Json::object({{"call", e.text}});
      if (!e.native_id.empty()) call.set("id", e.native_id);
      if (!e.declared) call.set("declared", false);
      out.push(std::move(call));
      arguments.clear();
    } else if (e.kind == Kind::kToolArgs) {
      arguments += e.text;
    } else {
      auto parsed = parse_json(arguments);
      Json& call = out.as_array().back();
      call.set("arguments", parsed ? std::move(*parsed) : Json("not JSON: " + arguments));
      if (!e.complete) call.set("complete", false);
    }
  }
  return out;
}

/// Equal but for the order of members.
inline bool same_json(const Json& a, const Json& b) {
  if (a.is_object() && b.is_object()) {
    if (a.size() != b.size()) return false;
    for (const auto& [key, value] : a.as_object()) {
      const Json* other = b.find(key);
      if (other == nullptr || !same_json(value, *other)) return false;
    }
    return true;
  }
  if (a.is_array() && b.is_array()) {
    return a.size() == b.size() && std::equal(a.as_array().begin(), a.as_array().end(), b.as_array().begin(), same_json);
  }
  return a == b;
}

}  // namespace barg::test
