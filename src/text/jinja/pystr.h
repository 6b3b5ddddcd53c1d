// Python's str methods on marked strings. Every byte of a result keeps the mark of the byte it came from.
//
// Indices are code points, as in Python. Results are Markup where the source is (markupsafe keeps its class),
// and what is taken into Markup is HTML-escaped first. All may raise RenderError and charge the Runtime.
#pragma once

#include <optional>
#include <vector>

#include "text/jinja/runtime.h"

namespace barg::text::jinja::pystr {

/// Byte offset of code point `index`; REQUIRES index <= s.chars.
std::size_t byte_offset(Runtime& rt, const Str& s, std::size_t index);
Value substring(Runtime& rt, const Str& s, std::size_t begin_byte, std::size_t end_byte);
/// s[index], negative from the end; nullopt out of range.
std::optional<Value> char_at(Runtime& rt, const Str& s, Int index);
/// Code points start, start+step, ... (`count` of them), already clipped.
Value pick(Runtime& rt, const Str& s, Int start, Int step, Int count);

Value concat(Runtime& rt, const Str& a, const Str& b);
Value repeat(Runtime& rt, const Str& s, Int count);
/// markupsafe.escape: & < > ' " become entities; Markup comes back unchanged.
Value escape(Runtime& rt, const Value& v);
Value join(Runtime& rt, const Str& separator, const std::vector<Value>& items);

/// `chars` null: whitespace.
Value strip(Runtime& rt, const Str& s, const Str* chars, bool left, bool right);
/// `separator` null: runs of whitespace. `limit` < 0: no limit. ValueError on an empty separator.
std::vector<Value> split(Runtime& rt, const Str& s, const Str* separator, Int limit);
std::vector<Value> rsplit(Runtime& rt, const Str& s, const Str* separator, Int limit);
std::vector<Value> splitlines(Runtime& rt, const Str& s, bool keep_ends);
Value replace(Runtime& rt, const Str& s, const Str& from, const Str& to, Int limit);

enum class Case { kLower, kUpper, kTitle, kCapitalize, kSwap, kFold };
Value change_case(Runtime& rt, const Str& s, Case how);
/// Adds `left` and `right` times `fill` (one code point) around.
Value pad(Runtime& rt, const Str& s, const Str& fill, Int left, Int right);

}  // namespace barg::text::jinja::pystr
