// Filters on sequences and mappings.
#include <algorithm>
#include <functional>
#include <unordered_set>

#include "text/jinja/builtins.h"
#include "text/jinja/pystr.h"

namespace barg::text::jinja {

namespace {

using Items = std::vector<Value>;

// "a.b.0" as the lookups it means; an int, or None for no lookup, stands for itself.
Items attribute_path(Runtime& rt, const Value& attribute) {
  Items path;
  if (attribute.is_none() || attribute.is(Kind::kMissing)) return path;
  if (!attribute.is_string()) return {attribute};
  for (Value& part : pystr::split(rt, attribute.str(), &make_literal(".").str(), -1)) {
    const std::string& t = part.text();
    const bool number = !t.empty() && t.size() < 19 && t.find_first_not_of("0123456789") == t.npos;
    path.push_back(number ? Value::integer(std::stoll(t)) : std::move(part));
  }
  return path;
}

Value follow(Runtime& rt, Value item, const Items& path, const Value& fallback = Value()) {
  for (const Value& part : path) {
    item = get_item(rt, item, part);
    if (!fallback.is_none() && item.is_undefined()) item = fallback;
  }
  return item;
}

Value fold_case(Runtime& rt, const Value& v, bool case_sensitive) {
  return v.is_string() && !case_sensitive ? pystr::change_case(rt, v.str(), pystr::Case::kLower) : v;
}

// What a Python generator would do: items up to the error, then the error. Only budget errors are not put
// off.
Value generate(Runtime& rt, const std::function<void(Items&)>& body) {
  Items items;
  std::string error;
  try {
    body(items);
  } catch (const RenderError& e) {
    if (e.type == RenderError::Type::kLimit) throw;
    error = e.message.empty() ? "error" : e.message;
  }
  return rt.iterator(std::move(items), std::move(error));
}

CallArgs rest_of(Runtime& rt, const CallArgs& args, std::size_t skip) {
  rt.step(args.positional.size() + args.named.size());
  CallArgs out;
  out.positional.assign(
      args.positional.begin() + static_cast<std::ptrdiff_t>(std::min(skip, args.positional.size())),
      args.positional.end());
  out.named = args.named;
  return out;
}

Value map(Runtime& rt, const Value& v, Args& args) {
  CallArgs& raw = args.raw();
  return generate(rt, [&](Items& out) {
    if (!truthy(v)) return;
    const auto attribute = std::find_if(raw.named.begin(), raw.named.end(),
                                        [](const auto& n) { return n.first == "attribute"; });
    if (raw.positional.empty() && attribute != raw.named.end()) {
      Value fallback;
      for (const auto& [name, value] : raw.named) {
        if (name == "default")
          fallback = value;
        else if (name != "attribute")
          type_error("Unexpected keyword argument '" + name + "'");
      }
      const Items path = attribute_path(rt, attribute->second);
      for (const Value& item : iterate(rt, v)) out.push_back(follow(rt, item, path, fallback));
      return;
    }
    if (raw.positional.empty()) type_error("map requires a filter argument");
    if (!raw.positional[0].is_string()) type_error("map requires the name of a filter");
    const std::string name = raw.positional[0].text();
    for (const Value& item : iterate(rt, v)) {
      out.push_back(apply_filter(rt, find_filter(name), name, item, rest_of(rt, raw, 1)));
    }
  });
}

template <bool keep, bool by_attribute>
Value select(Runtime& rt, const Value& v, Args& args) {
  CallArgs& raw = args.raw();
  return generate(rt, [&](Items& out) {
    if (!truthy(v)) return;
    Items path;
    if (by_attribute) {
      if (raw.positional.empty()) type_error("Missing parameter for attribute name");
      path = attribute_path(rt, raw.positional[0]);
    }
    constexpr std::size_t kSkip = by_attribute ? 1 : 0;
    const bool test = raw.positional.size() > kSkip;
    const std::string name = test ? to_string(rt, raw.positional[kSkip]).text() : std::string();
    for (const Value& item : iterate(rt, v)) {
      const Value subject = follow(rt, item, path);
      const bool yes = test ? apply_test(rt, find_test(name), name, subject, rest_of(rt, raw, kSkip + 1))
                            : truthy(subject);
      if (yes == keep) out.push_back(item);
    }
  });
}

void stable_sort(Runtime& rt, std::vector<std::pair<Value, Value>>& keyed, bool reverse) {
  const auto before = [&](const auto& a, const auto& b) { return less(rt, a.first, b.first); };
  if (reverse) std::reverse(keyed.begin(), keyed.end());
  std::stable_sort(keyed.begin(), keyed.end(), before);
  if (reverse) std::reverse(keyed.begin(), keyed.end());
}

Value sort(Runtime& rt, const Value& v, Args& args) {
  const bool case_sensitive = args.truth(1, false);
  std::vector<Items> paths;
  if (args.has(2) && args[2].is_string()) {
    for (const Value& part : pystr::split(rt, args[2].str(), &make_literal(",").str(), -1)) {
      paths.push_back(attribute_path(rt, part));
    }
  } else {
    paths.push_back(args.has(2) ? attribute_path(rt, args[2]) : Items{});
  }
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : iterate(rt, v)) {
    Items key;
    for (const Items& path : paths) key.push_back(fold_case(rt, follow(rt, item, path), case_sensitive));
    keyed.emplace_back(rt.list(std::move(key)), item);
  }
  stable_sort(rt, keyed, args.truth(0, false));
  Items out;
  for (auto& [key, item] : keyed) out.push_back(std::move(item));
  return rt.list(std::move(out));
}

Value dict_sort(Runtime& rt, const Value& v, Args& args) {
  const bool case_sensitive = args.truth(0, false);
  const std::string by = args.has(1) ? args.text(1).text : "key";
  if (by != "key" && by != "value") type_error("You can only sort by either \"key\" or \"value\"");
  require_defined(v);
  if (!v.is_dict()) type_error("'" + std::string(type_name(v)) + "' object has no attribute 'items'");
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [k, x] : v.dict().items) {
    keyed.emplace_back(fold_case(rt, by == "key" ? k : x, case_sensitive), rt.tuple({k, x}));
  }
  stable_sort(rt, keyed, args.truth(2, false));
  Items out;
  for (auto& [key, item] : keyed) out.push_back(std::move(item));
  return rt.list(std::move(out));
}

Value unique(Runtime& rt, const Value& v, Args& args) {
  const bool case_sensitive = args.truth(0, false);
  return generate(rt, [&](Items& out) {
    const Items path = args.has(1) ? attribute_path(rt, args[1]) : Items{};
    Dict seen;
    for (const Value& item : iterate(rt, v)) {
      const Value key = fold_case(rt, follow(rt, item, path), case_sensitive);
      if (!is_hashable(key)) type_error("unhashable type: '" + std::string(type_name(key)) + "'");
      rt.step(key.is_string() ? 1 : 1 + seen.items.size() / 4);
      if (seen.find(key) != nullptr) continue;
      rt.charge(2 * sizeof(Value));
      seen.set(key, Value());
      out.push_back(item);
    }
  });
}

template <bool largest>
Value extreme(Runtime& rt, const Value& v, Args& args) {
  const Items items = iterate(rt, v);
  if (items.empty()) return rt.undefined("No aggregated item, sequence was empty.");
  const Items path = args.has(1) ? attribute_path(rt, args[1]) : Items{};
  const auto key = [&](const Value& item) {
    return fold_case(rt, follow(rt, item, path), args.truth(0, false));
  };
  std::size_t best = 0;
  Value best_key = key(items[0]);
  for (std::size_t i = 1; i < items.size(); ++i) {
    Value k = key(items[i]);
    if (largest ? less(rt, best_key, k, ">") : less(rt, k, best_key)) {
      best = i;
      best_key = std::move(k);
    }
  }
  return items[best];
}

Value group_by(Runtime& rt, const Value& v, Args& args) {
  const bool case_sensitive = args.truth(2, false);
  const Value fallback = args.has(1) ? args[1] : Value();
  const Items path = attribute_path(rt, args[0]);
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : iterate(rt, v)) {
    keyed.emplace_back(fold_case(rt, follow(rt, item, path, fallback), case_sensitive), item);
  }
  stable_sort(rt, keyed, false);
  Items groups;
  for (std::size_t i = 0; i < keyed.size();) {
    Items members;
    const std::size_t first = i;
    while (i < keyed.size() && equals(rt, keyed[first].first, keyed[i].first))
      members.push_back(keyed[i++].second);
    if (members.empty()) members.push_back(keyed[i++].second);  // a key unequal to itself
    const Value name = case_sensitive ? keyed[first].first : follow(rt, members[0], path, fallback);
    Value group = rt.tuple({name, rt.list(std::move(members))});
    group.list().group = true;
    groups.push_back(std::move(group));
  }
  return rt.list(std::move(groups));
}

Value first(Runtime& rt, const Value& v, Args&) {
  if (v.is(Kind::kIterator)) {
    auto& it = v.object<Iterator>();
    if (it.next < it.items.size()) return it.items[it.next++];
    if (!it.error.empty()) raise(RenderError::Type::kTemplate, it.error);
    return rt.undefined("No first item, sequence was empty.");
  }
  const Items items = iterate(rt, v);
  return items.empty() ? rt.undefined("No first item, sequence was empty.") : items.front();
}

Value last(Runtime& rt, const Value& v, Args&) {
  if (v.is(Kind::kIterator)) type_error("'" + std::string(type_name(v)) + "' object is not reversible");
  const Items items = iterate(rt, v);
  return items.empty() ? rt.undefined("No last item, sequence was empty.") : items.back();
}

Value reverse(Runtime& rt, const Value& v, Args&) {
  if (v.is_string()) return slice(rt, v, Value(), Value(), Value::integer(-1));
  const bool has_reversed = !v.is(Kind::kIterator);
  Items items = iterate(rt, v);
  std::reverse(items.begin(), items.end());
  if (!has_reversed) return rt.list(std::move(items));
  return rt.iterator(std::move(items), {}, "reversed");
}

Value list(Runtime& rt, const Value& v, Args&) { return rt.list(iterate(rt, v)); }
Value count(Runtime& rt, const Value& v, Args&) { return Value::integer(length(rt, v)); }

Value items(Runtime& rt, const Value& v, Args&) {
  return generate(rt, [&](Items& out) {
    if (v.is_undefined()) return;
    if (!v.is_dict()) type_error("Can only get item pairs from a mapping.");
    for (const auto& [k, x] : v.dict().items) out.push_back(rt.tuple({k, x}));
  });
}

Value default_value(Runtime& rt, const Value& v, Args& args) {
  if (!v.is_undefined() && !(args.truth(1, false) && !truthy(v))) return v;
  return args.has(0) ? args[0] : rt.string("");
}

Value attribute(Runtime& rt, const Value& v, Args& args) {
  require_defined(v);
  const Value name = to_string(rt, args[0]);
  const Value found = attribute_only(rt, v, name.text());
  return found.is(Kind::kMissing) ? rt.undefined(v, name) : found;
}

Value sum(Runtime& rt, const Value& v, Args& args) {
  const Items path = args.has(0) ? attribute_path(rt, args[0]) : Items{};
  Value total = args.has(1) ? args[1] : Value::integer(0);
  if (total.is_string()) type_error("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& item : iterate(rt, v)) total = binary(rt, Binary::kAdd, total, follow(rt, item, path));
  return total;
}

Value batch(Runtime& rt, const Value& v, Args& args) {
  return generate(rt, [&](Items& out) {
    Items row;
    const Int size = args.integer(0, 0);
    for (const Value& item : iterate(rt, v)) {
      if (static_cast<Int>(row.size()) == size) out.push_back(rt.list(std::exchange(row, {})));
      row.push_back(item);
    }
    if (row.empty()) return;
    if (args.has(1) && !args[1].is_none()) {
      while (static_cast<Int>(row.size()) < size) {
        rt.step();
        rt.charge(sizeof(Value));
        row.push_back(args[1]);
      }
    }
    out.push_back(rt.list(std::move(row)));
  });
}

Value slice_filter(Runtime& rt, const Value& v, Args& args) {
  return generate(rt, [&](Items& out) {
    const Items all = iterate(rt, v);
    const Int slices = args.integer(0, 0), total = static_cast<Int>(all.size());
    if (slices == 0) raise(RenderError::Type::kTemplate, "integer division or modulo by zero");
    const Int each = slices > 0 ? total / slices : 0, extra = slices > 0 ? total % slices : 0;
    Int offset = 0;
    for (Int n = 0; n < slices; ++n) {
      rt.step();
      const Int begin = offset + n * each;
      if (n < extra) ++offset;
      const Int end = offset + (n + 1) * each;
      Items row(all.begin() + static_cast<std::ptrdiff_t>(begin),
                all.begin() + static_cast<std::ptrdiff_t>(end));
      if (args.has(1) && !args[1].is_none() && n >= extra) row.push_back(args[1]);
      out.push_back(rt.list(std::move(row)));
    }
  });
}

constexpr FilterRow kFilters[] = {
    {"attr", "name", attribute},
    {"batch", "linecount fill_with?", batch},
    {"count", "", count},
    {"d", "default_value? boolean?", default_value},
    {"default", "default_value? boolean?", default_value},
    {"dictsort", "case_sensitive? by? reverse?", dict_sort},
    {"first", "", first},
    {"groupby", "attribute default? case_sensitive?", group_by},
    {"items", "", items},
    {"last", "", last},
    {"length", "", count},
    {"list", "", list},
    {"map", "*", map},
    {"max", "case_sensitive? attribute?", extreme<true>},
    {"min", "case_sensitive? attribute?", extreme<false>},
    {"reject", "*", select<false, false>},
    {"rejectattr", "*", select<false, true>},
    {"reverse", "", reverse},
    {"select", "*", select<true, false>},
    {"selectattr", "*", select<true, true>},
    {"slice", "slices fill_with?", slice_filter},
    {"sort", "reverse? case_sensitive? attribute?", sort},
    {"sum", "attribute? start?", sum},
    {"unique", "case_sensitive? attribute?", unique},
};

}  // namespace

std::span<const FilterRow> sequence_filters() { return kFilters; }

}  // namespace barg::text::jinja
