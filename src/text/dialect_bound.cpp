#include "text/dialect_bound.h"

#include <algorithm>

#include "base/check.h"

namespace barg::text {

BoundDialectImpl::BoundDialectImpl(const DetectedDialect& detected, const Tokenizer& tokenizer)
    : dialect_(detected.dialect), markers_(detected.reasoning), tokenizer_(&tokenizer) {
  CHECK(dialect_ != nullptr);
  reasoning_open_ = bind(markers_.open);
  reasoning_close_ = bind(markers_.close);
  answer_open_ = bind(markers_.answer_open.empty() ? dialect_->answer_open : std::string_view(markers_.answer_open));
  answer_close_ = bind(markers_.answer_close.empty() ? dialect_->answer_close : std::string_view(markers_.answer_close));
  for (const CallForm& form : dialect_->forms) {
    if (form.arguments == Arguments::kGemma && quote_.empty()) quote_ = bind("<|\"|>");
    forms_.push_back(bind_form(form));
  }
  if (const Channels* c = dialect_->channels) {
    channels_.channels = c;
    for (const std::string_view text : {c->start, c->channel, c->constrain, c->message}) {
      channels_.controls.push_back(bind(text));
    }
    for (const std::string_view text : c->ends) channels_.controls.push_back(bind(text));
  }
  for (const std::string_view text : dialect_->call_ends) {
    if (const auto id = tokenizer.find(text); id && tokenizer.is_special(*id)) call_ends_.push_back(*id);
  }
  tokenizer_ = nullptr;
}

Literal bind_literal(std::string_view text, const Tokenizer& tokenizer, std::unordered_map<TokenId, std::string>* added) {
  Literal out;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t length = text.size() - at;
    std::optional<TokenId> id;
    for (; length > 0; --length) {
      id = tokenizer.find(text.substr(at, length));
      if (id && tokenizer.is_added(*id)) break;
      id.reset();
    }
    if (!id) {
      out.push_back(byte_symbol(text[at++]));
      continue;
    }
    if (added) (*added)[*id] = std::string(text.substr(at, length));
    out.push_back(token_symbol(*id, true));
    at += length;
  }
  return out;
}

Literal BoundDialectImpl::bind(std::string_view text) { return bind_literal(text, *tokenizer_, &tokens_); }

BoundForm BoundDialectImpl::bind_form(const CallForm& form) {
  BoundForm out;
  out.form = &form;
  for (const std::string_view text : form.open) {
    if (!text.empty()) out.open.push_back(bind(text));
  }
  for (const std::string_view text : form.close) {
    if (!text.empty()) out.close.push_back(bind(text));
  }
  out.separator = bind(form.separator);
  out.call_open = bind(form.call_open);
  out.aside_close = bind(form.aside_close);
  out.lead = bind(form.lead);
  out.id_mark = bind(form.id_mark);
  out.name_end = bind(form.name_end);
  out.args_open = bind(form.args_open);
  out.args_close = bind(form.args_close);
  out.call_close = bind(form.call_close);
  if (const Tags* t = form.tags) {
    out.tags = {.key_open = bind(t->key_open),
                .value_open = bind(t->value_open),
                .value_close = bind(t->value_close),
                .key_ends = {},
                .lines = t->lines,
                .close_is_token = false};
    out.tags.close_is_token = out.tags.value_close.size() == 1 && is_token(out.tags.value_close[0]);
    for (const KeyEnd& end : t->key_ends) {
      if (!end.text.empty()) out.tags.key_ends.emplace_back(bind(end.text), end.typing);
    }
    std::stable_sort(out.tags.key_ends.begin(), out.tags.key_ends.end(),
                     [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
  }
  out.trigger_opens = !out.open.empty();
  if (out.trigger_opens) {
    out.trigger = std::move(out.open.front());
    out.open.erase(out.open.begin());
  } else {
    out.trigger = !out.call_open.empty() ? out.call_open : form.head == Head::kObject ? Literal{'{'} : out.lead;
  }
  CHECK(!out.trigger.empty());
  return out;
}

void BoundDialectImpl::append(std::string& out, Symbol s) const {
  if (!is_token(s)) {
    out += static_cast<char>(s);
  } else if (const auto at = tokens_.find(token_of(s)); at != tokens_.end()) {
    out += at->second;
  }
}

std::size_t BoundDialectImpl::size_of(Symbol s) const {
  if (!is_token(s)) return 1;
  const auto at = tokens_.find(token_of(s));
  return at == tokens_.end() ? 0 : at->second.size();
}

std::size_t BoundDialectImpl::size_of(const std::vector<Symbol>& symbols) const {
  std::size_t bytes = 0;
  for (const Symbol s : symbols) bytes += size_of(s);
  return bytes;
}

std::shared_ptr<const BoundDialect> bind_dialect(const DetectedDialect& detected, const Tokenizer& tokenizer) {
  return std::make_shared<const BoundDialectImpl>(detected, tokenizer);
}

}  // namespace barg::text
