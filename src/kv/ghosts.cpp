#include "kv/ghosts.h"

#include <bit>
#include <cstring>

#include "base/check.h"

namespace barg::kv {

Ghosts::Ghosts(std::int64_t capacity) {
  CHECK(capacity >= 0 && capacity < (std::int64_t{1} << 31));
  ring_.resize(static_cast<std::size_t>(capacity));
  slots_.resize(std::bit_ceil(2 * static_cast<std::size_t>(capacity) + 1));
}

Ghosts::Word Ghosts::word(const Digest& d) {
  Word w;
  std::memcpy(&w, d.data(), sizeof w);
  return w == 0 ? 1 : w;
}

std::size_t Ghosts::find(Word w) const {
  std::size_t i = home(w);
  while (slots_[i].word != 0 && slots_[i].word != w) i = (i + 1) & (slots_.size() - 1);
  return i;
}

void Ghosts::insert(const Digest& d) {
  if (ring_.empty()) return;
  const Word w = word(d);
  if (slots_[find(w)].word != 0) return;
  if (ring_[next_] != 0) remove(find(ring_[next_]));
  slots_[find(w)] = {w, static_cast<std::uint32_t>(next_)};
  ring_[next_] = w;
  next_ = (next_ + 1) % ring_.size();
  ++size_;
}

bool Ghosts::erase(const Digest& d) {
  const std::size_t i = find(word(d));
  if (slots_[i].word == 0) return false;
  remove(i);
  return true;
}

/// Closes the gap: who was pushed past it moves back, so that searches need no tombstones.
void Ghosts::remove(std::size_t slot) {
  const std::size_t mask = slots_.size() - 1;
  ring_[slots_[slot].place] = 0;
  --size_;
  for (std::size_t i = slot;;) {
    slots_[slot] = {};
    do {
      i = (i + 1) & mask;
      if (slots_[i].word == 0) return;
      // Stays if its home lies cyclically in (slot, i].
    } while (((i - home(slots_[i].word)) & mask) < ((i - slot) & mask));
    slots_[slot] = slots_[i];
    slot = i;
  }
}

}  // namespace barg::kv
